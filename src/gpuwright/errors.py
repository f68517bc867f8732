"""What a command raises when it cannot go on: a message for people and the exit code of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpuwright import exits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class CommandError(Exception):
    """Ends a command with one message.

    Attributes:
        exit_code: the contract's exit code.
        suggestions: what to try instead, best first; may be empty.
        conflicts: for refusals, the reasons as the resolver gives them (`rule`, `text`, `source`, `remedy`).
    """

    exit_code: ClassVar[int] = exits.FAILED

    def __init__(
        self, message: str, suggestions: Iterable[str] = (), conflicts: Iterable[Mapping[str, str | None]] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.suggestions = list(suggestions)
        self.conflicts = list(conflicts)

    def document(self) -> dict[str, object]:
        """The JSON document that `--json` prints in place of a result."""
        if self.conflicts:
            return {"ok": False, "conflicts": self.conflicts}
        return {"ok": False, "error": self.message, "suggestions": self.suggestions}


class BadInput(CommandError):
    """Something the person wrote is not known, not there or not readable: exit 2."""

    exit_code = exits.BAD_INPUT


class Refused(CommandError):
    """Nothing was changed because it must not or cannot be done: exit 3."""

    exit_code = exits.REFUSED


class Failed(CommandError):
    """The work itself could not be done: exit 1."""


class Interrupted(CommandError):
    """Ctrl-C or a request to terminate: exit 130."""

    exit_code = exits.INTERRUPTED

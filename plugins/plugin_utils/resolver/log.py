# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How decisions are remembered, and how a wish that cannot be met ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..model.stack import Conflict, Stack, Why
from ..rules import Row, Rules, cite

Entry = Conflict
Value = TypeVar("Value")

DESIGN = "gpuwright's order of preference (docs/decisions.md)"


class Unresolved(Exception):
    """The wish cannot be met; carries every reason that is known at this point, and the stack as far as it could be decided."""

    def __init__(self, *conflicts: Entry, stack: Stack | None = None) -> None:
        super().__init__("; ".join(each["text"] for each in conflicts))
        self.conflicts = list(conflicts)
        self.stack: Stack = stack or {}


def conflict(rule: str, text: str, source: str, remedy: str) -> Entry:
    """Make one reason why a wish cannot be met, with the nearest thing that would work."""
    return {"rule": rule, "text": text, "source": source, "remedy": remedy}


def offered(versions: Sequence[str]) -> str:
    """Return what a package index has instead of something, as the end of a sentence; nothing where that is not known."""
    return f"; it has {', '.join(versions)}" if versions else ""


def of_all(candidates: Sequence[Sequence[Entry]]) -> list[Entry]:
    """Return why none of several candidates will do, each with its reasons: first the reason that all of them share, with the others of the
    one that came nearest. Where they share none, the reasons of the nearest one, then those of the nearest of which these are no reasons.
    """
    left = [list(each) for each in candidates]
    shared = set.intersection(*({entry["rule"] for entry in each} for each in left)) if left else set()
    told: list[Entry] = []
    while left:
        nearest = min(left, key=len)
        told += sorted(nearest, key=lambda entry: entry["rule"] not in shared)
        named = {entry["rule"] for entry in nearest}
        left = [each for each in left if not named & {entry["rule"] for entry in each}]
    return told


class Log:
    """What was decided and why, in the order of deciding.

    trial: it only matters whether there is an answer; where there is none, the first reason ends it.
    """

    def __init__(self, rules: Rules, *, trial: bool = False) -> None:
        self.rules = rules
        self.trial = trial
        self.why: list[Why] = []
        self.warnings: list[Why] = []
        self.conflicts: list[Entry] = []

    def decided(self, rule: str, text: str, source: str) -> None:
        """Remember a decision."""
        self.why.append({"rule": rule, "text": text, "source": source})

    def warn(self, rule: str, text: str, source: str) -> None:
        """Remember something that a person should know before going on; the same thing only once."""
        entry: Why = {"rule": rule, "text": text, "source": source}
        if entry not in self.warnings:
            self.warnings.append(entry)

    def cite(self, table: str, row: Row) -> str:
        """Return where a row was read."""
        return cite(self.rules, table, row)

    def attempt(self, decision: Callable[..., Value], *arguments: Any) -> Value | None:
        """Run a decision; where it cannot be made remember why and go on, so that all reasons are named."""
        try:
            return decision(*arguments)
        except Unresolved as error:
            if self.trial:
                raise
            self.conflicts.extend(error.conflicts)
            return None

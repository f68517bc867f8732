# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How decisions are remembered, and how a wish that cannot be met ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..rules import Row, Rules, cite

Entry = dict[str, str]
Value = TypeVar("Value")

DESIGN = "gpuwright's order of preference (docs: how decisions are made)"


class Unresolved(Exception):
    """The wish cannot be met; carries every reason that is known at this point."""

    def __init__(self, *conflicts: Entry) -> None:
        super().__init__("; ".join(each["text"] for each in conflicts))
        self.conflicts = list(conflicts)


def conflict(rule: str, text: str, source: str, remedy: str) -> Entry:
    """Make one reason why a wish cannot be met, with the nearest thing that would work."""
    return {"rule": rule, "text": text, "source": source, "remedy": remedy}


class Log:
    """What was decided and why, in the order of deciding."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.why: list[Entry] = []
        self.warnings: list[Entry] = []
        self.conflicts: list[Entry] = []

    def decided(self, rule: str, text: str, source: str) -> None:
        """Remember a decision."""
        self.why.append({"rule": rule, "text": text, "source": source})

    def warn(self, rule: str, text: str, source: str) -> None:
        """Remember something that a person should know before going on; the same thing only once."""
        entry = {"rule": rule, "text": text, "source": source}
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
            self.conflicts.extend(error.conflicts)
            return None

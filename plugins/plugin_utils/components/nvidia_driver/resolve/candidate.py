# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A driver branch that may be chosen."""

from __future__ import annotations

from dataclasses import dataclass

from ....rules import Row


@dataclass(frozen=True)
class Candidate:
    """A branch of a source that passes: the build a distribution carries (None: the index says), the lowest build
    that cards, kernel and wish allow (None: any).
    """

    row: Row
    source: str
    modules: str
    build: str | None
    minimum: str | None
    prebuilt: bool

    @property
    def branch(self) -> str:
        """The branch as text, such as "580"."""
        return str(self.row["branch"])


def within(branch: str, row: Row) -> bool:
    """Whether a branch is among those that a row of a table is for: from first_branch to last_branch, None where nothing limits it."""
    first, last = row["first_branch"], row["last_branch"]
    return (first is None or int(branch) >= int(first)) and (last is None or int(branch) <= int(last))

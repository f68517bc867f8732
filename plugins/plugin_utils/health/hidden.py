# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge what keeps the packages of a stack from being installed, by the settings of the package manager alone.

Of a pin for one source alone the package index knows what it means: that is asked when a run is planned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..components.view import View

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import HidingRule

    from ..model.stack import Stack

#: A pattern of a node that cannot take long: no groups, and few places that repeat.
_PLAIN = re.compile(r"/(?P<pattern>[\w.:^$|*+?-]{1,60})/\Z")
_REPEATS = 4
_NAMED = 6


def judge_hidden(view: View, stack: Stack) -> list[Check]:
    """No pin and no exclusion keeps out what the stack still lacks; one check for each that does."""
    rows: Sequence[HidingRule] | None = (view.get("packages") or {}).get("hides")
    there = view.get("packages.installed")
    if rows is None or there is None:
        return []
    lacking = sorted(set(_packages(stack)).difference(there))
    found = []
    for row in rows if view.get("packages.manager") else ():
        names = [name for name in lacking if row["source"] is None and keeps_out(row, name)]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        if names:
            found.append(
                checks.failed(
                    "packages.hidden",
                    "warning",
                    measured=names,
                    reason=f"{row['file']} keeps {', '.join(names[:_NAMED])}{more} from being installed ({row['entry']})",
                    action="configure",
                    remedy=f"take these packages out of it, or remove it, where they may be installed ({row['file']}: that entry alone)",
                )
            )
    return found or [checks.passed("packages.hidden", "warning")]


def _packages(stack: Stack) -> Iterator[str]:
    """The packages of what a stack has that is not adopted as it is."""
    for value in stack.values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Mapping) and not part.get("adopted"):
                yield from part.get("packages") or ()


def keeps_out(row: HidingRule, name: str) -> bool:
    """Whether a rule means a package."""
    return any(_fits(name, each) for each in row["packages"]) and not any(_fits(name, each) for each in row["except"])


def _fits(name: str, pattern: str) -> bool:
    """Whether a pattern of a package manager means a name; one of apt may be a regular expression."""
    plain = _PLAIN.match(pattern)
    if plain:
        if sum(map(plain["pattern"].count, "*+?")) > _REPEATS:
            return False
        try:
            return re.search(plain["pattern"], name) is not None
        except re.error:
            return False
    return fnmatchcase(name, pattern) or fnmatchcase(name, pattern.rpartition(":")[0])

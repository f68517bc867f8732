# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the measurements of a proof answered: their checks, and whether they prove the machine. Pure functions for the role's filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check


class Measured(TypedDict, total=False):
    """The result of a task that measures: its checks, or a result for each turn of its loop."""

    checks: Sequence[Check]
    results: Sequence[Measured]


def checks(results: Iterable[Measured]) -> Iterator[Check]:
    """The checks of results of tasks, in their order: a loop has one a turn, and what was skipped has none."""
    for result in results:
        yield from result.get("checks") or ()
        yield from checks(result.get("results") or ())


def not_proven(found: Iterable[Check]) -> str:
    """Why checks prove nothing, as one text for a person; empty where they prove the machine."""
    found = list(found)
    bad = [check for check in found if check["status"] in ("fail", "incomplete")]
    if not bad and any(check["status"] == "pass" for check in found):
        return ""
    told = f"Expected every check to pass. Found {len(bad)} that did not"
    if not bad:
        return f"{told}, and none that did."
    return " ".join([f"{told}:", *(_told(check) for check in bad)])


def _told(check: Check) -> str:
    remedy = f" What to do: {check['remedy']}." if check["remedy"] else ""
    return f"{check['id']} is {check['status']}: {check['reason']}{remedy}"

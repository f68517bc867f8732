# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which checks follow from which, by compat/causes.yaml: a symptom has no remedy of its own beside its cause, whoever reads it."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..rules import Row, Rules

_BAD = ("fail", "warn")
_BUS_ID = re.compile(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7]")
_TOLD = (*_BAD, "incomplete")
#: What tells that something is not as it was left, and not what: behind all that does.
_LAST = ("seals", "proof")


def told(found: Sequence[Check], rules: Rules) -> list[Check]:
    """The checks as people and programs read them: the worst first, a cause before its like, and what follows from one as a skip that
    names it. A cause is as bad as what follows from it, so that the verdict stays.
    """
    rows = rules["causes"]["rows"]
    roots = {place: _root(place, found, rows) for place, check in enumerate(found) if check["status"] in _TOLD}
    followers = {place: root for place, root in roots.items() if root != place}
    result = [
        _followed(check, found[followers[place]]) if place in followers else _worsened(check, place, found, followers)
        for place, check in enumerate(found)
    ]
    causes = {id(result[root]) for root in followers.values()}

    def rank(check: Check) -> tuple[int, bool, int, bool]:
        severity = checks.SEVERITIES.index(check["severity"]) if check["severity"] in checks.SEVERITIES else 0
        return _status(check), checks.group(check) in _LAST, -severity, id(check) not in causes

    return sorted(result, key=rank)


def _root(place: int, found: Sequence[Check], rows: Sequence[Row]) -> int:
    """Where the first cause of a check is: the check itself, where it has none."""
    seen = {place}
    while True:
        above = next((cause for cause in _causes(found[place], found, rows) if cause not in seen), None)
        if above is None:
            return place
        place = above
        seen.add(place)


def _causes(symptom: Check, found: Sequence[Check], rows: Sequence[Row]) -> Iterator[int]:
    """Where the checks are that explain another one. What is told of a card explains what is told of it, and of the host."""
    for row in rows:
        if not any(fnmatchcase(symptom["id"], name) for name in row["explains"]):
            continue
        for place, cause in enumerate(found):
            same = None in (cause["gpu"], symptom["gpu"]) or _place(cause["gpu"]) == _place(symptom["gpu"])
            if cause["id"] == row["check"] and cause["status"] in _BAD and same and _is_of(symptom, cause, row):
                yield place


def _place(card: str | int | None) -> str:
    """The place of a card, which nvidia-smi's checks name behind its number."""
    found = _BUS_ID.search(str(card))
    return found[0] if found else str(card)


def _is_of(symptom: Check, cause: Check, row: Row) -> bool:
    """Whether a row speaks of such a symptom and such a cause; one with a name, of what the cause measured."""
    if not re.search(row.get("because", ""), cause["reason"] or ""):
        return False
    if not row.get("where"):
        return True
    found = re.search(row["where"], symptom["reason"] or "")
    name = found.groupdict().get("name") if found else None
    return found is not None and (name is None or name in cause["measured"])


def _followed(symptom: Check, cause: Check) -> Check:
    reason = f"follows from {cause['id']}: {symptom['reason']}"
    return {**symptom, "status": "skip", "reason": reason, "action": None, "remedy": None}


def _worsened(check: Check, place: int, found: Sequence[Check], followers: dict[int, int]) -> Check:
    """A check, as bad as the worst that follows from it."""
    failing = [found[each] for each, root in followers.items() if root == place and found[each]["status"] == "fail"]
    if not failing or check["status"] == "fail":
        return check
    return {
        **check,
        "status": "fail",
        "severity": max((each["severity"] for each in failing), key=checks.SEVERITIES.index),
    }


def _status(check: Check) -> int:
    order = ("fail", "incomplete", "warn", "pass", "skip")
    return order.index(check["status"]) if check["status"] in order else 1

"""The exit codes of the contract, and how the records of many hosts become one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Record

DONE = 0
FAILED = 1
BAD_INPUT = 2
REFUSED = 3
REBOOT = 4
INTERRUPTED = 130

# The check of a diagnosis that says what of the wish cannot be met.
_CONFLICT = "wish.conflict"

# Several hosts: the first of these that occurred is the exit code of the run.
ORDER = (BAD_INPUT, FAILED, REFUSED, REBOOT, DONE)


def combine(codes: Iterable[int]) -> int:
    """The exit code of a run from those of its hosts. A run over nothing has done nothing: bad input."""
    seen = set(codes)
    return next((code for code in ORDER if code in seen), BAD_INPUT)


def of_plan(plan: Plan) -> int:
    """The exit code of one host's plan."""
    if plan.get("error"):
        return BAD_INPUT
    if plan.get("conflicts") or plan.get("refusals"):
        return REFUSED
    return DONE if plan.get("ok") or plan.get("skipped") else FAILED


def of_status(plan: Plan) -> int:
    """The exit code of one host of `status`: done where it is as it was sealed and proven, whatever else would be changed there."""
    if plan.get("error"):
        return BAD_INPUT
    if plan.get("conflicts"):
        return REFUSED
    return DONE if plan["status"]["state"] in {"ok", "skip"} else FAILED


def of_judgement(record: Record) -> int:
    """The exit code of one host that was only looked at (`validate`, `doctor`): its verdict, fail closed.

    A wish or a lock that cannot be met is code 3 with every verb. What only keeps `up` from changing the host now is not.
    """
    if record.get("error"):
        return BAD_INPUT
    if any(check["id"] == _CONFLICT for check in record.get("checks") or ()):
        return REFUSED
    return DONE if record.get("verdict") in {"pass", "skip"} else FAILED


def of_result(record: Record) -> int:
    """The exit code of one host after `up`.

    A reboot that is still needed leaves the proof incomplete, which is code 4 and no failure; a check that *failed* or
    a task that failed is code 1 with or without a reboot.
    """
    if record.get("error"):
        return BAD_INPUT
    if record.get("conflicts") or record.get("refusals"):
        return REFUSED
    if record.get("failure"):
        return FAILED
    verdict = record.get("verdict")
    if record.get("reboot") and verdict in {"pass", "incomplete"}:
        return REBOOT
    return DONE if verdict in {"pass", "skip"} else FAILED


def verdict_of(code: int, verdicts: Iterable[str]) -> str:
    """The verdict of a run: never better than its exit code or its worst host."""
    seen = set(verdicts)
    if code in {FAILED, BAD_INPUT, REFUSED}:
        return "incomplete" if code == FAILED and "fail" not in seen and "incomplete" in seen else "fail"
    if code == REBOOT or "incomplete" in seen:
        return "incomplete"
    return "pass" if "pass" in seen else "incomplete"

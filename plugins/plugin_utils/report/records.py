# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record of one host in a run: what the report, the exit code and the command line are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.plan import Plan
    from ..model.report import Failure, Record

#: Parts of a plan that only its reader wants. ``warnings`` are shown by Ansible itself.
_REPORTED = ("why", "checks", "cards", "digests", "manages", "facts_summary", "warnings")
#: Where a failure came before the first change.
BEFORE_ANY_CHANGE = ("preflight", "lock")


def stays(plan: Plan) -> bool:
    """Whether the host is right and stays as it is: its plan is its result, and is seldom looked at."""
    return bool(plan["ok"]) and not plan["components"] and not plan["reboot"] and plan["verdict"] in ("pass", "skip")


def ended_in_plan(plan: Plan) -> Record:
    """A host that no role touched: already right, skipped, refused, or without its cards."""
    return _record(plan, plan["verdict"], plan["checks"], changed=False)


def applied(
    plan: Plan,
    verdict: str,
    checks: Sequence[Check],
    failure: Failure | None,
    *,
    reboot: bool,
) -> Record:
    """A host that was worked on: its proof, or what failed. A refusal of the role preflight, or the lock of another run,
    came before any change.
    """
    failed = failure.get("component") if failure is not None else None
    refused = failed == "preflight"
    record = _record(plan, verdict, checks, changed=failed not in BEFORE_ANY_CHANGE)
    record["failure"] = failure.copy() if failure else None
    record["reboot"] = reboot
    if refused and failure is not None:
        record["refusals"] = [
            {"rule": "preflight", "text": failure["message"], "source": "roles/preflight", "remedy": None},
        ]
    return record


def as_result(plan: Plan) -> dict[str, object]:
    """A plan as the result of a task: what roles act on. The rest is for the report, and a variable of every host is dear.

    ``skipped`` means something to Ansible itself (2.21 takes it out of a result): it goes by the name ``left_alone``.
    """
    result = {key: value for key, value in plan.items() if key not in _REPORTED}
    result["left_alone"] = result.pop("skipped")
    return result


def sentence(record: Record) -> str:
    """The verdict and its first reason, for a person."""
    if record["failure"]:
        return f"{record['verdict']}: {record['failure']['task']}: {record['failure']['message']}{rollback(record)}"
    if record["reboot"]:
        return "done, but a reboot is needed to finish"
    told = [check for check in record["checks"] if check["status"] in ("fail", "incomplete")]
    first = f": {told[0]['id']}: {told[0]['reason']}" if told else ""
    return f"{record['verdict']}{first}"


def rollback(record: Record) -> str:
    """What became of a node whose new driver failed, as one more sentence; nothing where it did not go back."""
    returned = record.get("returned")
    if not returned:
        return ""
    if returned["failure"]:
        return f" The way back to driver {returned['version'] or 'before'} failed too: {returned['failure']}"
    state = "proven again" if returned["verdict"] == "pass" else f"not proven ({returned['verdict']})"
    return f" The node was returned to driver {returned['version']}, which is {state}."


def _record(plan: Plan, verdict: str, checks: Sequence[Check], *, changed: bool) -> Record:
    return {
        "host": plan["host"],
        "verdict": verdict,
        "reached": True,
        "changed": changed and bool(plan["changes"]),
        "changes": plan["changes"] if changed else [],
        "checks": list(checks),
        "reboot": False,
        "left": [],
        "resume": None,
        "rescue": [],
        "failure": None,
        "error": plan["error"],
        "suggestions": plan["suggestions"],
        "skipped": plan["skipped"],
        "refusals": plan["refusals"],
        "conflicts": plan["conflicts"],
        "simulated": plan["facts_summary"]["simulated"],
        "summary": plan["facts_summary"],
        "gpus": plan.get("cards") or [],
        "seconds": None,
        "stack": plan["stack"],
        "warnings": plan["warnings"],
        "why": plan["why"],
    }

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record of one host in a run: what the report, the exit code and the command line are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import model

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.plan import Plan
    from ..model.report import Failure, Record, Returned

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
        told = f"{record['verdict']}: {record['failure']['task']}: {record['failure']['message']}"
    elif record["reboot"]:
        told = "done, but a reboot is needed to finish"
    else:
        bad = [check for check in record["checks"] if check["status"] in ("fail", "incomplete")]
        told = record["verdict"] + (f": {bad[0]['id']}: {bad[0]['reason']}" if bad else "")
    return ". ".join(filter(None, (told.rstrip("."), rollback(record)))) if record["returned"] else told


def returned(plan: Plan, verdict: str, failure: Failure | None) -> Returned | None:
    """The rollback that the verb of that name asked for; None where nothing of the host is rolled back."""
    paths = [change["files"][0] for change in plan["changes"] if change["action"] == "return"]
    restore = plan["restore"]
    if not paths and restore is None:
        return None
    told: Returned = {
        "version": restore["version"] if restore else None,
        "failure": f"{failure['task']}: {failure['message']}" if failure else None,
        "verdict": verdict,
    }
    return {**told, "environments": paths} if paths else told


def rollback(record: Record) -> str | None:
    """What became of a rollback, in the words of every report; None where there was none."""
    told = record.get("returned")
    if not told:
        return None
    driver = [f"driver {told['version']}"] if told["version"] else []
    what = " and ".join([*driver, *told.get("environments", ())]) or "the driver before"
    if told["failure"]:
        failure = record["failure"]
        said = failure and told["failure"] == f"{failure['task']}: {failure['message']}"
        return f"the rollback to {what} failed" + ("" if said else f": {told['failure']}")
    state = "proven again" if told["verdict"] == "pass" else f"not proven ({told['verdict']})"
    return f"rolled back to {what}: {state}"


def _record(plan: Plan, verdict: str, checks: Sequence[Check], *, changed: bool) -> Record:
    """What a plan says of a host by the names of a record, with what the run says of it."""
    values = {
        **plan,
        "verdict": verdict,
        "changed": changed and bool(plan["changes"]),
        "changes": plan["changes"] if changed else [],
        "checks": checks,
        "reboot": False,
        "rescue": [],
        "simulated": plan["facts_summary"]["simulated"],
        "summary": plan["facts_summary"],
        "gpus": plan.get("cards"),
    }
    return model.host_record(plan["host"], values)

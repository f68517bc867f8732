# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the records of hosts to one report: pure functions, no files, no Ansible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..model.plan import Change
from ..model.report import Failure, Record, Report, Run

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

SCHEMA = 1
VERDICTS = ("fail", "incomplete", "pass", "skip")

EMPTY: dict[str, object] = {
    "reached": True,
    "changed": False,
    "changes": [],
    "checks": [],
    "reboot": False,
    "left": [],
    "resume": None,
    "rescue": [],
    "failure": None,
    "simulated": False,
    "summary": {},
    "gpus": [],
    "seconds": None,
    "stack": None,
    "warnings": [],
    "why": [],
    "refusals": [],
    "conflicts": [],
    "skipped": None,
    "measurements": {},
}


def host_record(host: str, values: Mapping[str, object]) -> Record:
    """One host's record with every key of the schema; what is not given is empty, and a missing verdict is found.

    A verdict that is none of the known ones counts as incomplete, and a failure is never a pass.
    """
    shaped = {key: _shaped(key, values.get(key)) for key in EMPTY}
    record = cast("Record", {"host": host, "verdict": values.get("verdict"), **shaped})
    record["checks"] = [_whole(check) for check in shaped["checks"] if isinstance(check, Mapping)]
    if values.get("verdict") is None:
        record["verdict"] = "skip" if record["skipped"] else checks.verdict(record["checks"])
    if record["verdict"] not in VERDICTS:
        record["verdict"] = "incomplete"
    if record["failure"] or record["refusals"] or record["conflicts"]:
        record["verdict"] = "fail"
    changes: list[Change] = [cast("Change", change) for change in shaped["changes"] if isinstance(change, Mapping)]
    record["changes"] = changes
    return record


def from_plan(host: str, plan: Mapping[str, object]) -> Record:
    """The record of a host of which there is only a plan: its passive checks, and what would be done."""
    told = plan.get("facts_summary")
    summary = told if isinstance(told, Mapping) else {}
    values = {**plan, "summary": summary, "simulated": summary.get("simulated"), "changed": False}
    if plan.get("ok") and plan.get("changes"):
        values["verdict"] = "incomplete"  # what its checks miss waits to be done
    if plan.get("error"):
        values["failure"] = {"task": None, "message": str(plan["error"]), "component": None}
    return host_record(host, values)


def brief(record: Record, *, whole: str) -> Record:
    """Of a host that stays as it is: how many checks it passed, and what it warned of.

    Args:
        record: of :func:`host_record`.
        whole: the file of the run directory that has all of it.
    """
    told = [check for check in record["checks"] if check["status"] not in ("pass", "skip")]
    cards = [{"name": _name_of(card)} for card in record["gpus"]]
    short = {
        **record,
        "checks": told,
        "counts": checks.counts(record["checks"]),
        "gpus": cards,
        "stack": None,
        "why": [],
        "whole": whole,
    }
    return cast("Record", short)


def _name_of(card: Any) -> str:
    return str(card.get("name") or card.get("device") or "GPU") if isinstance(card, Mapping) else str(card)


def without_record(host: str, reason: str, base: Mapping[str, object] | None = None) -> Record:
    """The record of a host that was met and has no credible result: it failed."""
    failure = {"task": None, "message": reason, "component": None}
    # Of a plan whose work may have begun nobody knows that nothing changed.
    changed = bool(base and base.get("changes"))
    return host_record(host, {**(base or {}), "verdict": "fail", "failure": failure, "changed": changed})


def report_of(
    records: Mapping[str, Record],
    run: Run,
    *,
    unreachable: Mapping[str, str] | None = None,
    not_reached: Iterable[str] = (),
) -> Report:
    """The report of a run.

    Args:
        records: of :func:`host_record`, by host.
        run: what was run, when, and how it ended.
        unreachable: hosts that could not be reached, with the reason.
        not_reached: hosts that the run never came to, because it stopped before.
    """
    lost = dict(sorted((unreachable or {}).items()))
    waiting = sorted(set(not_reached) - set(lost))
    hosts = {host: records[host] for host in sorted(records) if host not in lost and host not in waiting}
    return {
        "schema": SCHEMA,
        "gpuwright": run["gpuwright"],
        "verb": run["verb"],
        "verdict": verdict_of(hosts.values(), len(lost), len(waiting)),
        # Also where a node that was planned for was not come to.
        "simulated": any(record["simulated"] for record in records.values()),
        "started": run["started"],
        "finished": run["finished"],
        "ended": run["ended"],
        "counts": {verdict: sum(record["verdict"] == verdict for record in hosts.values()) for verdict in VERDICTS}
        | {"unreachable": len(lost), "not_reached": len(waiting)},
        "hosts": hosts,
        "unreachable": lost,
        "not_reached": waiting,
    }


def verdict_of(records: Iterable[Record], unreachable: int = 0, not_reached: int = 0) -> str:
    """The worst of the hosts: a host that is not proven leaves the run not proven.

    ``skip`` only where there was nothing to prove on any host; nothing at all is incomplete.
    """
    found = {record["verdict"] for record in records}
    if "fail" in found or unreachable:
        return "fail"
    if "incomplete" in found or not_reached or not found:
        return "incomplete"
    return "pass" if "pass" in found else "skip"


def _shaped(key: str, value: Any) -> Any:
    """A value in the shape that the schema gives its key, whatever was handed in; empty where there is nothing."""
    empty = EMPTY[key]
    if isinstance(empty, bool):
        return empty if value is None else bool(value)
    if isinstance(empty, list):
        return list(value) if isinstance(value, (list, tuple)) else ([] if value is None else [value])
    if isinstance(empty, dict):
        return dict(value) if isinstance(value, Mapping) else {}
    if value is None:
        return None
    return _NULLABLE[key](value)


def _failure(value: Any) -> Failure | None:
    told = value if isinstance(value, Mapping) else {"message": value}
    if not value:
        return None
    return {
        "task": told.get("task"),
        "message": str(told.get("message") or "no message"),
        "component": told.get("component"),
        "output": str(told.get("output") or ""),
    }


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value >= 0 else None


_NULLABLE: dict[str, Callable[[Any], Any]] = {
    "failure": _failure,
    "seconds": _seconds,
    "stack": lambda value: dict(value) if isinstance(value, Mapping) else None,
    "skipped": str,
    "resume": lambda value: dict(value) if isinstance(value, Mapping) else None,
}


def _whole(check: Mapping[str, object]) -> Check:
    """A check with every key and only those, so that one odd entry of a node does not spoil the report."""
    whole: dict[str, object] = {key: check.get(key) for key in checks.KEYS}
    whole["id"] = str(whole["id"] or "unnamed")
    if whole["status"] not in checks.STATUSES:
        whole["status"] = "incomplete"
    if whole["severity"] not in checks.SEVERITIES:
        whole["severity"] = "critical"
    if whole["action"] not in checks.ACTIONS:
        whole["action"] = None
    for key in ("unit", "gpu", "reason", "evidence", "remedy"):
        whole[key] = None if whole[key] is None else str(whole[key])
    return cast("Check", whole)

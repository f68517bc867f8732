# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the records of hosts to one report: pure functions, no files, no Ansible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..model import definition
from ..model.report import VERDICTS, Failure, Record, Report, Run

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.report import Counts

SCHEMA: Final = 1


def host_record(host: str, values: Mapping[str, object]) -> Record:
    """One host's record with every key of its definition; what is not given is empty, and a missing verdict is found.

    A verdict that is none of the known ones counts as incomplete, and a failure is never a pass.
    """
    shaped = definition.shaped(Record, {"reached": True, **values, "host": host})
    record = cast("Record", shaped)
    record["failure"] = _failure(values.get("failure") or values.get("error"))
    record["checks"] = [_whole(check) for check in _mappings(shaped["checks"])]
    record["changes"] = _mappings(shaped["changes"])
    if values.get("verdict") is None:
        record["verdict"] = "skip" if record["skipped"] else checks.verdict(record["checks"])
    if record["verdict"] not in VERDICTS:
        record["verdict"] = "incomplete"
    if record["failure"] or record["refusals"] or record["conflicts"]:
        record["verdict"] = "fail"
    return record


def from_plan(host: str, plan: Mapping[str, object]) -> Record:
    """The record of a host of which there is only a plan: its passive checks, and what would be done."""
    told = plan.get("facts_summary")
    summary = told if isinstance(told, Mapping) else {}
    values = {**plan, "summary": summary, "simulated": summary.get("simulated"), "changed": False}
    if plan.get("ok") and plan.get("changes"):
        values["verdict"] = "incomplete"  # what its checks miss waits to be done
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
    doubt = {"verdict": "fail", "failure": failure, "changed": changed, "counts": None, "whole": None}
    return host_record(host, {**(base or {}), **doubt})


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
    of_verdicts = {verdict: sum(record["verdict"] == verdict for record in hosts.values()) for verdict in VERDICTS}
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
        "counts": cast("Counts", of_verdicts | {"unreachable": len(lost), "not_reached": len(waiting)}),
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


def _mappings(rows: object) -> list[Any]:
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


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

"""What a run left in its directory about each host."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from gpuwright import paths
from gpuwright.errors import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Change, Plan
    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Failure, Record


class Unproven(TypedDict):
    """Result of a host that left no credible record."""

    verdict: str
    checks: list[Check]
    changes: list[Change]
    reboot: bool
    failure: Failure


class Downloaded(TypedDict):
    """How many bytes of how many came, of what a host downloads now."""

    done: int
    total: int


# The contract's keys of one host in the JSON of `plan`, and those of the other verbs.
PLAN_KEYS = ("changes", "reboot", "download_bytes", "disk_bytes", "stack", "warnings", "why")
RESULT_KEYS = ("verdict", "checks", "changes", "reboot")

# Said only where there is something to say.
_PLAN_EXTRAS = (
    "error",
    "suggestions",
    "conflicts",
    "refusals",
    "skipped",
    "reboot_reason",
    "takes",
    "rescue",
    "gpus",
    "assumed",
)
_RESULT_EXTRAS = (
    "error",
    "suggestions",
    "conflicts",
    "refusals",
    "skipped",
    "failure",
    "returned",
    "left",
    "resume",
    "rescue",
    "warnings",
    "stack",
    "measurements",
)

# The verdict of a host by its state in `status`.
_OF_STATE = {"ok": "pass", "skip": "skip", "unknown": "incomplete", "incomplete": "incomplete"}


def plans(run_dir: Path) -> dict[str, Plan]:
    """The plans of a run, by host."""
    return {host: cast("Plan", plan) for host, plan, _ in _read_all(run_dir / "plans")}


def results(run_dir: Path) -> dict[str, Record]:
    """The results of a run, by host. Of a host that stays as it is that is its plan."""
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records

    plans = _read_all(run_dir / "plans")
    staying: dict[str, Record] = {
        host: records.ended_in_plan(cast("Plan", plan)) for host, plan, packed in plans if packed
    }
    return staying | {host: cast("Record", record) for host, record, _ in _read_all(run_dir / "hosts")}


def samples(run_dir: Path) -> dict[str, dict[str, object]]:
    """What the cards of each host did, or a day of their log, by host."""
    return {host: record for host, record, _ in _read_all(run_dir / "samples")}


def rollback(record: Record) -> str | None:
    """What became of a rollback, as every report says it; None where there was none."""
    if not record.get("returned"):
        return None
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records

    return records.rollback(record)


def downloaded(run_dir: Path, host: str) -> Downloaded | None:
    """How far a host is with what it downloads now; None where it downloads nothing, or nobody knows."""
    folder = run_dir / "progress"
    if not folder.is_dir():
        return None
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory

    path = run_directory.document(folder, host)
    return cast("Downloaded | None", run_directory.read_json(path) if path else None)


def plan_document(plan: Plan) -> dict[str, object]:
    """One host's plan as `plan --json` gives it."""
    document = {key: plan.get(key) for key in PLAN_KEYS}
    return document | {key: plan.get(key) for key in _PLAN_EXTRAS if plan.get(key)} | _simulated(plan)


def result_document(record: Record) -> dict[str, object]:
    """One host's result as `up`, `validate` and `doctor` give it with `--json`."""
    document: dict[str, object] = {key: record.get(key) for key in RESULT_KEYS}
    document["checks"] = document["checks"] or []
    document["changes"] = document["changes"] or []
    document["reboot"] = bool(document["reboot"])
    return document | {key: record.get(key) for key in _RESULT_EXTRAS if record.get(key)} | _simulated(record)


def status_document(plan: Plan) -> dict[str, object]:
    """One host's entry in the JSON of `status`."""
    told = plan["status"]
    verdict = _OF_STATE.get(told["state"], "fail")
    extras = ("error", "suggestions", "conflicts", "refusals", "skipped")
    return {"verdict": verdict, **told} | {key: plan.get(key) for key in extras if plan.get(key)} | _simulated(plan)


def without_record(message: str, verdict: str = "fail") -> Unproven:
    """The result of a host that was met and left no credible record: not proven, whatever the reason."""
    return {
        "verdict": verdict,
        "checks": [],
        "changes": [],
        "reboot": False,
        "failure": {"task": None, "message": message, "component": None},
    }


def simulated(record: Plan | Record) -> bool:
    """Whether the host is a simulated node."""
    summary: object = record.get("facts_summary")
    return bool(record.get("simulated") or (isinstance(summary, dict) and summary.get("simulated")))


def _simulated(record: Plan | Record) -> dict[str, object]:
    return {"simulated": True} if simulated(record) else {}


def _read_all(directory: Path) -> Iterator[tuple[str, dict[str, object], bool]]:
    """Host, document, and whether it is a packed one.

    Raises:
        Failed: one cannot be read.
    """
    paths.make_collection_importable()
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory

    for path in run_directory.documents(directory):
        record = run_directory.read_json(path)
        if record is None:
            raise Failed(f"the record {path} cannot be read")
        yield str(record.get("host") or run_directory.host_of(path)), record, run_directory.is_packed(path)

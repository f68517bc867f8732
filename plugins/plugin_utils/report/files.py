# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The run directory: what is written there, and how.

Many hosts write at once, and a run may end anywhere. So every file is written beside its place and renamed, each host has a
file of its own, and the report is made anew from those files as often as one likes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import outliers
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Ended, Record, Report, Run
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import comparison, run_directory
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import model as pure

FOLDERS = ("facts", "plans", "sealed", "hosts")
META = "run.json"


def now() -> str:
    """The time, ISO 8601 in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def open_run(path: Path, verb: str | None) -> Path:
    """Make the run directory, private to its user, and note when the run began.

    What an earlier run in the same directory wrote of hosts is dropped: its plans and results are none of this run's.

    Raises:
        RefusedError: the directory is not its user's alone.
    """
    path = run_directory.make(path)
    for folder in FOLDERS:
        (path / folder).mkdir(mode=0o700, exist_ok=True)
        for left in run_directory.documents(path / folder):
            left.unlink()
    if not (path / META).exists():
        note_begin(path, verb)
    return path


def note_begin(path: Path, verb: str | None) -> None:
    """Note in the run directory what was begun, and when."""
    run_directory.write_json(path / META, {"verb": verb, "started": now(), "gpuwright": version(), "ended": None})


def default_run_dir() -> Path:
    """A new directory under the user's state directory (XDG)."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return state / "gpuwright" / "runs" / f"{stamp}-{os.getpid()}"


def write_host(run_dir: Path, host: str, values: Mapping[str, object]) -> Record:
    """Write one host's record."""
    record = pure.host_record(host, values)
    run_directory.write_document(run_dir / "hosts", host, record, sync=True)
    return record


def aggregate(
    run_dir: Path | str,
    *,
    verb: str | None = None,
    unreachable: Mapping[str, str] | None = None,
    failed: Mapping[str, str] | None = None,
    not_reached: list[str] | None = None,
    ended: Ended | None = "done",
) -> Report:
    """Make report.json, outliers.json, report.html and junit.xml from what the hosts left, and return the report.

    May be called at any time and as often as wanted.

    Args:
        run_dir: the run directory.
        verb: what was run; taken from the run's own note when not given.
        unreachable: hosts that could not be reached, with the reason.
        failed: hosts without a credible result of their own, with the reason.
        not_reached: hosts that the run never came to.
        ended: how the run ended; None where it goes on.
    """
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import html, junit

    directory = Path(run_dir)
    meta = run_directory.read_json(directory / META) or {}
    records, comparable = read_records(directory)
    for host, reason in (failed or {}).items():
        records[host] = pure.without_record(host, reason, records.get(host))
    run: Run = {
        "gpuwright": meta.get("gpuwright") or version(),
        "verb": verb or meta.get("verb"),
        "started": meta.get("started"),
        # Nobody was there to see when a run was killed.
        "finished": None if ended in (None, "killed") else now(),
        "ended": ended,
    }
    # Before any of the three forms is made: what a run could not reach or failed on is told in words of the node.
    report: Report = redact.document(
        pure.report_of(records, run, unreachable=unreachable, not_reached=not_reached or [])
    )
    compared = outliers.compare(comparable)
    run_directory.write_json(directory / "report.json", report)
    run_directory.write_json(directory / "outliers.json", comparison.document(compared))
    # What a list of runs shows, beside a report that may be of a fleet.
    run_directory.write_json(
        directory / META,
        {**meta, **{key: report.get(key) for key in ("verb", "verdict", "finished", "ended", "counts")}},
    )
    write(directory / "report.html", html.render(report, comparison.shown(compared)).encode("utf-8", "replace"))
    write(directory / "junit.xml", junit.render(report))
    return report


def read_records(run_dir: Path) -> tuple[dict[str, Record], list[outliers.Value]]:
    """Every host's record (its result, else its plan), and what can be compared of it, which is more than a brief record has.

    A file that cannot be read is a host that is not proven.
    """
    records: dict[str, Record] = {}
    comparable: dict[str, list[outliers.Value]] = {}
    for folder, make in (("plans", pure.from_plan), ("hosts", pure.host_record)):
        for path in run_directory.documents(run_dir / folder):
            values = run_directory.read_json(path)
            host = str((values or {}).get("host") or run_directory.host_of(path))
            if values is None:
                records[host] = pure.without_record(host, f"its record {path.name} cannot be read")
                continue
            record = make(host, values)
            comparable[host] = comparison.values(record, values.get("cards"))
            is_packed = run_directory.is_packed(path)
            records[host] = pure.brief(record, whole=f"{folder}/{path.name}") if is_packed else record
    return records, [value for found in comparable.values() for value in found]


def waiting(run_dir: Path) -> list[str]:
    """Hosts that have something to change and no result: the run did not come to them, or not yet."""
    plans = _plans(path for path in _without_result(run_dir) if not run_directory.is_packed(path))
    return [host for host, plan in plans.items() if plan.get("ok") and plan.get("components")]


def unproven(run_dir: Path) -> list[str]:
    """Hosts of a run that proves all of them, which have no result yet."""
    return [
        host for host, plan in _plans(_without_result(run_dir)).items() if plan.get("ok") and not plan.get("skipped")
    ]


def _without_result(run_dir: Path) -> list[Path]:
    """The plans of hosts that have no result."""
    done = {run_directory.host_of(path) for path in run_directory.documents(run_dir / "hosts")}
    return [path for path in run_directory.documents(run_dir / "plans") if run_directory.host_of(path) not in done]


def read_plans(run_dir: Path) -> dict[str, Plan]:
    """The plans of this run by host."""
    return _plans(run_directory.documents(run_dir / "plans"))


def _plans(paths: Iterable[Path]) -> dict[str, Plan]:
    plans = [run_directory.read_json(path) or {} for path in paths]
    return {str(plan["host"]): cast("Plan", plan) for plan in plans if plan.get("host")}


def version() -> str | None:
    """The version of this collection: of galaxy.yml in a clone, of MANIFEST.json where it was installed."""
    root = Path(__file__).resolve().parents[3]
    manifest = run_directory.read_json(root / "MANIFEST.json")
    if manifest is not None:
        found = (manifest.get("collection_info") or {}).get("version")
        return str(found) if found else None
    with contextlib.suppress(OSError):
        match = re.search(
            r"^version:\s*[\"']?([^\s\"'#]+)", (root / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE
        )
        if match:
            return match.group(1)
    return None


def write(path: Path, content: bytes) -> None:
    """Replace a file in one step, and have it on the disk."""
    run_directory.write(path, content, sync=True)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The run directory: what is written there, and how.

Many hosts write at once, and a run may end anywhere. So every file is written beside its place and renamed, each host has a
file of its own, and the report is made anew from those files as often as one likes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ansible_collections.gpuwright.node.plugins.module_utils import redact
from ansible_collections.gpuwright.node.plugins.plugin_utils import run_directory
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
        for left in (path / folder).glob("*.json"):
            left.unlink()
    if not (path / META).exists():
        write_json(path / META, {"verb": verb, "started": now(), "gpuwright": version()})
    return path


def default_run_dir() -> Path:
    """A new directory under the user's state directory (XDG)."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return state / "gpuwright" / "runs" / f"{stamp}-{os.getpid()}"


def write_host(run_dir: Path, host: str, values: Mapping[str, Any]) -> pure.Record:
    """Write one host's record."""
    record = pure.host_record(host, values)
    (run_dir / "hosts").mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(run_dir / "hosts" / file_name(host), record)
    return record


def file_name(host: str) -> str:
    """A file name for a host; a name with a slash in it stays inside its folder."""
    return quote(host, safe=" :@+,[]()=") + ".json"


def aggregate(
    run_dir: Path | str,
    *,
    verb: str | None = None,
    unreachable: Mapping[str, str] | None = None,
    failed: Mapping[str, str] | None = None,
    not_reached: list[str] | None = None,
) -> pure.Report:
    """Make report.json, report.html and junit.xml from what the hosts left, and return the report.

    May be called at any time and as often as wanted.

    Args:
        run_dir: the run directory.
        verb: what was run; taken from the run's own note when not given.
        unreachable: hosts that could not be reached, with the reason.
        failed: hosts without a credible result of their own, with the reason.
        not_reached: hosts that the run never came to.
    """
    from ansible_collections.gpuwright.node.plugins.plugin_utils.report import html, junit

    directory = Path(run_dir)
    meta = _read(directory / META) or {}
    records = read_records(directory)
    for host, reason in (failed or {}).items():
        records[host] = pure.without_record(host, reason, records.get(host))
    # Before any of the three forms is made: what a run could not reach or failed on is told in words of the node.
    report: pure.Report = redact.document(
        pure.report_of(
            records,
            version=meta.get("gpuwright") or version(),
            verb=verb or meta.get("verb"),
            started=meta.get("started"),
            finished=now(),
            unreachable=unreachable,
            not_reached=not_reached or [],
        )
    )
    write_json(directory / "report.json", report)
    # What a list of runs shows, beside a report that may be of a fleet.
    write_json(directory / META, {**meta, **{key: report[key] for key in ("verb", "verdict", "finished", "counts")}})
    write(directory / "report.html", html.render(report).encode("utf-8", "replace"))
    write(directory / "junit.xml", junit.render(report))
    return report


def read_records(run_dir: Path) -> dict[str, pure.Record]:
    """Every host's record: its result, else its plan. A file that cannot be read is a host that is not proven."""
    records: dict[str, pure.Record] = {}
    for folder, make in (("plans", pure.from_plan), ("hosts", pure.host_record)):
        for path in sorted((run_dir / folder).glob("*.json")):
            values = _read(path)
            if values is None:
                records[path.stem] = pure.without_record(path.stem, f"its record {path.name} cannot be read")
                continue
            host = str(values.get("host") or path.stem)
            records[host] = make(host, values)
    return records


def waiting(run_dir: Path) -> list[str]:
    """Hosts that have something to change and no result: the run did not come to them, or not yet."""
    done = {path.name for path in (run_dir / "hosts").glob("*.json")}
    plans = read_plans(run_dir, without=done)
    return [host for host, plan in plans.items() if plan.get("ok") and plan.get("components")]


def read_plans(run_dir: Path, without: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """The plans of this run by host, but for the files of these names."""
    paths = [path for path in sorted((run_dir / "plans").glob("*.json")) if path.name not in without]
    plans = [_read(path) or {} for path in paths]
    return {str(plan["host"]): plan for plan in plans if plan.get("host")}


def version() -> str | None:
    """The version of this collection: of galaxy.yml in a clone, of MANIFEST.json where it was installed."""
    root = Path(__file__).resolve().parents[3]
    manifest = _read(root / "MANIFEST.json")
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


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: Any) -> None:
    """Write JSON that any parser reads, compact since a fleet's report is large.

    There are no credentials and no NaN in it, and lone surrogates of odd output are escaped.
    """
    write(path, (_dumps(redact.document(value)) + "\n").encode("ascii"))


def _dumps(value: Any) -> str:
    options: dict[str, Any] = {"separators": (",", ":"), "default": str, "allow_nan": False}
    try:
        return json.dumps(value, **options)
    except ValueError:
        return json.dumps(_finite(value), **options)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def write(path: Path, content: bytes) -> None:
    """Replace a file in one step, and have it on the disk."""
    run_directory.write(path, content, sync=True)

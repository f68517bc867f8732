"""The folders that runs leave in the user's state directory: which there are, what they say, and which go."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypedDict, cast

from gpuwright import ends, paths
from gpuwright.errors import BadInput, Failed

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Ended, Report

#: Runs that are kept, and for how long, unless somebody asks for less.
KEEP = 100
DAYS = 90
#: Of these nobody loses one to age: the last runs of a machine that is seldom looked at.
_ALWAYS = 5


class Meta(TypedDict, total=False):
    """What a run noted of itself."""

    verb: str | None
    started: str | None
    ended: Ended | None
    verdict: str | None
    counts: dict[str, int]


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        name: of its folder, which begins with the time of the run (UTC).
        path: the folder.
        verb: what was run; None where the folder does not say.
        started: when (ISO 8601).
        ended: how it ended; None while it is at work.
        verdict: of the run; None where it did not come to its report.
        hosts: how many hosts are in its report; None as above.
    """

    name: str
    path: Path
    verb: str | None = None
    started: str | None = None
    ended: Ended | None = None
    verdict: str | None = None
    hosts: int | None = None

    def as_dict(self) -> dict[str, object]:
        """As `runs --json` has it."""
        keys = ("name", "verb", "started", "ended", "verdict", "hosts")
        return {key: getattr(self, key) for key in keys} | {"path": str(self.path)}

    @property
    def told(self) -> str:
        """Its verdict for people, or why it has none."""
        return self.verdict or "none" if self.ended == "done" else self.ended or "at work"


def directory() -> Path:
    """Where runs without `--report` leave their folders."""
    return paths.state_home() / "gpuwright" / "runs"


def known() -> list[Run]:
    """The runs of this user, newest first. What is not a folder that a run made is left out."""
    root = directory()
    found = sorted(root.iterdir(), reverse=True) if root.is_dir() else []
    return [_read(path) for path in found if _is_ours(path)]


def find(name: str) -> Run:
    """The run of a name, of the beginning of one, or `last`.

    Raises:
        BadInput: there is none, or more than one.
    """
    runs = known()
    if not runs:
        raise BadInput(f"there are no runs in {directory()}")
    matching = runs[:1] if name == "last" else [run for run in runs if run.name.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    what = "no run" if not matching else f"{len(matching)} runs"
    raise BadInput(
        f"{what} of {directory()} begins with {name}", ["see them with: gpuwright runs", "the newest one is `last`"]
    )


def prune(keep: int = KEEP, days: int = DAYS) -> list[Run]:
    """Remove the folders of runs beyond the newest `keep` and of those that are older than `days`; returns what went.

    The newest few stay whatever their age, and so does a run at work.
    """
    now = datetime.now(UTC)
    gone = []
    for number, run in enumerate(known()):
        try:
            age = now - datetime.fromtimestamp(run.path.stat().st_mtime, UTC)
        except FileNotFoundError:
            continue  # another prune took it meanwhile
        old = number >= _ALWAYS and age > timedelta(days=days)
        if (number >= keep or old) and run.ended:
            shutil.rmtree(run.path, ignore_errors=True)
            gone.append(run)
    return gone


def report_of(run: Run) -> Report:
    """The report of a run.

    Raises:
        BadInput: it has none, or one that cannot be read.
    """
    if not run.ended and run.verdict is None:
        raise BadInput(f"the run {run.name} is at work and has no report yet")
    try:
        report = json.loads((run.path / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"the run {run.name} has no report that can be read", [f"look at {run.path}"]) from error
    if not isinstance(report, dict) or not isinstance(report.get("hosts"), dict):
        raise BadInput(f"{run.path / 'report.json'} is no report of gpuwright")
    return cast("Report", report)


def _is_ours(path: Path) -> bool:
    try:
        folder, marker = path.lstat(), (path / paths.MARKER).lstat()
    except OSError:
        return False
    return stat.S_ISDIR(folder.st_mode) and stat.S_ISREG(marker.st_mode) and folder.st_uid == os.geteuid()


def _read(path: Path) -> Run:
    """What a run noted of itself; a fleet's whole report is not read for a line of a list.

    Where its process went without a word, the report that it could not write is written now.
    """
    meta = _meta(path)
    ended = meta.get("ended", "done" if meta.get("verdict") else None)  # an earlier gpuwright did not note it
    if ended is None and not ends.is_at_work(path):
        ended = "killed"
        with contextlib.suppress(Failed):
            ends.report(path, meta.get("verb") or "", "killed")
            meta = _meta(path)
    counts = meta.get("counts")
    hosts = sum(counts.values()) if isinstance(counts, dict) else None
    return Run(path.name, path, meta.get("verb"), meta.get("started"), ended, meta.get("verdict"), hosts)


def _meta(path: Path) -> Meta:
    try:
        meta = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("Meta", meta) if isinstance(meta, dict) else {}

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run one step: its raw output goes to files, it ends in its time, and what it found is told in one shape."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: What can be found, the worst first. The state of a step is the worst of what it found, and `pass` where it found none of these.
WORST_FIRST = ("failed", "differs", "incomplete", "skip")
#: Seconds for a killed process to go; one that stays longer hangs in the kernel, and is left behind.
_AFTER_KILL = 2.0
#: Bytes of an output that are read; the file has all of it.
_MOST = 16 << 20


@dataclass(frozen=True)
class Finding:
    """One thing that was found: its kind (`failed`, `differs`, `incomplete`, `skip` or `note`) and a sentence."""

    kind: str
    text: str


@dataclass(frozen=True)
class Ran:
    """How a program ended: `rc` is None where it was ended because its time was over, or could not be started (`error`)."""

    argv: Sequence[str]
    rc: int | None
    seconds: float
    out: str
    err: str
    error: str = ""

    def document(self) -> dict[str, Any] | None:
        """The JSON object that it printed, alone or as its last line; None where there is none."""
        for text in (self.out, self.out.strip().rpartition("\n")[2]):
            with contextlib.suppress(ValueError):
                found = json.loads(text)
                if isinstance(found, dict):
                    return found
        return None


Read = Callable[[Ran], list[Finding]]


@dataclass(frozen=True)
class Step:
    """A program, the seconds that it has at the most, and what reads its answer.

    `lacks`: why it cannot run here. `skipped`: why it need not.
    """

    name: str
    seconds: float
    argv: Sequence[str]
    read: Read
    lacks: str = ""
    skipped: str = ""


@dataclass
class Done:
    """What became of a step."""

    name: str
    argv: list[str] = field(default_factory=list)
    rc: int | None = None
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    @property
    def state(self) -> str:
        """The worst of what was found."""
        kinds = {finding.kind for finding in self.findings}
        return next((kind for kind in WORST_FIRST if kind in kinds), "pass")

    def told(self) -> dict[str, Any]:
        """The step in summary.json."""
        return {**asdict(self), "state": self.state}


def perform(step: Step, folder: Path, environment: dict[str, str], left: float) -> Done:
    """Run a step in the time that is left, and keep its output in the folder. Whatever happens, the next step can begin."""
    if step.skipped or step.lacks:
        kind, why = ("skip", step.skipped) if step.skipped else ("incomplete", step.lacks)
        return Done(step.name, list(step.argv), findings=[Finding(kind, why)])
    limit = min(step.seconds, left)
    if limit < 1:
        return Done(step.name, list(step.argv), findings=[Finding("incomplete", "no time was left for it")])
    ran = run(step.argv, folder, environment, limit)
    return Done(step.name, list(ran.argv), ran.rc, round(ran.seconds, 2), _found(step, ran, limit))


def _found(step: Step, ran: Ran, limit: float) -> list[Finding]:
    if ran.error:
        return [Finding("incomplete", f"it could not be started: {ran.error}")]
    if ran.rc is None and limit < step.seconds:
        return [Finding("incomplete", f"the time was over after {limit:.0f} s of it, and it was killed")]
    if ran.rc is None:
        return [Finding("failed", f"it did not end within {limit:.0f} s and was killed")]
    try:
        return step.read(ran)
    except ImportError as error:
        return [Finding("incomplete", f"its answer was not read: this Python has no {error.name}")]
    except Exception as error:  # noqa: BLE001 - a real answer may be of any shape, and the other steps go on
        return [Finding("failed", f"its answer was not understood here: {type(error).__name__}: {error}")]


def run(argv: Sequence[str], folder: Path, environment: dict[str, str], limit: float) -> Ran:
    """Run a program with its output in the folder; it and all its children are killed where it is over its time."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "command").write_text(shlex.join(argv) + "\n")
    begun = time.monotonic()
    rc, error = None, ""
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        try:
            process = subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
            )
        except OSError as problem:
            error = str(problem)
        else:
            rc = _wait(process, limit)
    seconds = time.monotonic() - begun
    ended = {"rc": rc, "seconds": round(seconds, 3), "limit": round(limit, 1), "error": error}
    (folder / "ended.json").write_text(json.dumps(ended) + "\n")
    return Ran(argv, rc, seconds, _text(folder / "stdout"), _text(folder / "stderr"), error)


def _wait(process: subprocess.Popen[bytes], limit: float) -> int | None:
    """The exit status; None where it was killed."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # What it started and left behind goes as well.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_AFTER_KILL)


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(_MOST).decode("utf-8", "replace")

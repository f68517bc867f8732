"""`gpuwright up` ended at ten moments, by Ctrl-C and by kill -9: its report, `runs`, `status` and the lock say what was so."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim import settings

from .conftest import Node, command_line, environment

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="environments")]

_LOCK = "/run/gpuwright/lock.json"
_LIMIT_SECONDS = 600
_ENDED = {signal.SIGINT: "interrupted", signal.SIGKILL: "killed"}
_SAID = {signal.SIGINT: "interrupted", signal.SIGKILL: "the run was killed"}

_BEFORE, _LOOK, _PLANNED, _QUESTION = "before the look", "in the look", "after the plan", "at the question"
_APPLY = ("nvidia_driver", "cuda", "container_toolkit", "frameworks")
_PROVE, _REPORT = "prove", "report"
_MOMENTS = (_BEFORE, _LOOK, _PLANNED, _QUESTION, *_APPLY, _PROVE, _REPORT)


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Iterator[Node]:
    """A bare node, which each run brings a step further than the one before."""
    made = make_shared_node("interrupted", "two-h100")
    yield made
    healed = made.up()
    assert healed.code == 0, str(healed)
    assert not made.shell(f"cat {_LOCK}", check=False)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs leave their folders."""
    return tmp_path_factory.mktemp("state")


@pytest.mark.parametrize("number", _ENDED, ids=["Ctrl-C", "kill -9"])
@pytest.mark.parametrize("moment", _MOMENTS)
def test_it_is_told_what_was_so(machine: Node, state: Path, moment: str, number: signal.Signals) -> None:
    # There is work, whatever the run before came to.
    if moment == _REPORT or (moment == _PROVE and number is signal.SIGKILL):
        machine.shell("rm -f /etc/modprobe.d/gpuwright-nouveau.conf; update-initramfs -u -k $(uname -r)")
    before = _runs(machine, state)
    process, end = _begin(machine, state, asks=moment == _QUESTION)
    try:
        _come(process, moment, state, end)
        process.send_signal(number)
        code = process.wait(timeout=_LIMIT_SECONDS)
    finally:
        process.kill()
        os.close(end)
    assert code == (130 if number is signal.SIGINT else -number)

    path = Path(_runs(machine, state)[0]["path"])
    _gone(path)  # until then it is at work
    run = _runs(machine, state)[0]
    assert run not in before
    assert run["ended"] == _ENDED[number]
    report = json.loads((path / "report.json").read_text())
    _as_it_was(report, moment, number)
    proven = any(each["verdict"] == "pass" for each in report["hosts"].values())

    locked = machine.shell(f"cat {_LOCK}", check=False)
    assert not locked or number is signal.SIGKILL
    assert locked or number is signal.SIGINT or proven or moment not in (*_APPLY, _PROVE)
    told = _json(machine, state, "status", "-i", str(machine.inventory))
    (host,) = told["hosts"].values()
    assert host["state"] != "ok" or proven, told
    assert not locked or not any("at work" in text for text in (*host["drift"], *host["unknown"].values())), told
    _quiet(machine)


def _as_it_was(report: dict[str, Any], moment: str, number: signal.Signals) -> None:
    """What the report of a run that ended at that moment says of its host."""
    assert report["ended"] == _ENDED[number]
    assert (report["finished"] is None) is (number is signal.SIGKILL)
    assert report["simulated"] or moment in (_BEFORE, _LOOK)
    named = {*report["hosts"], *report["not_reached"]}
    if moment == _BEFORE:
        assert not report["not_reached"], report
        return
    assert len(named) == 1, report
    # What looks at a host outlives who started it by a moment, and may still bring its plan home; on a busy machine before Ctrl-C too.
    looked = moment == _LOOK and bool(report["not_reached"])
    # On a busy machine the run goes on to its first change before the signal arrives.
    failures = [host["failure"]["message"] for host in report["hosts"].values() if host["failure"]]
    went_on = moment in (_LOOK, _PLANNED) and any(said.startswith(f"{_SAID[number]} in the step ") for said in failures)
    if looked or (moment in (_PLANNED, _QUESTION) and not went_on):
        assert not report["hosts"], report
        return
    (host,) = report["hosts"].values()
    if went_on:
        return
    # On a quick machine the proof is over before the signal arrives.
    if moment == _REPORT or (moment == _PROVE and host["verdict"] == "pass"):
        assert host["verdict"] == "pass", report
        return
    assert host["verdict"] == "fail"
    said = "before this host was looked at" if moment == _LOOK else f"in the step {moment};"
    assert host["failure"]["message"].startswith(f"{_SAID[number]} {said}"), host["failure"]
    assert host["changed"] is (moment != _LOOK)


def _begin(machine: Node, state: Path, *, asks: bool) -> tuple[subprocess.Popen[bytes], int]:
    """`gpuwright up` at a terminal, whose other end is returned too."""
    end, terminal = pty.openpty()
    # Tests that are started in the background of a script have Ctrl-C ignored, which a child inherits.
    at_terminal = ["env", "--default-signal=INT"]
    words = [*at_terminal, *command_line(), "up", "-i", str(machine.inventory), *([] if asks else ["--yes"])]
    process = subprocess.Popen(
        words,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment() | {"XDG_STATE_HOME": str(state)},
        cwd=settings.CLONE,
        start_new_session=True,
    )
    os.close(terminal)
    os.set_blocking(end, False)
    return process, end


def _come(process: subprocess.Popen[bytes], moment: str, state: Path, end: int) -> None:
    """Wait for the moment of a run. Fails where it ends before that."""
    began, said = time.monotonic(), b""
    while time.monotonic() < began + _LIMIT_SECONDS:
        try:
            said += os.read(end, 65536)
        except OSError:
            time.sleep(0.02)
        if moment == _QUESTION and b"Apply this plan?" in said:
            return
        newest = max(state.glob("gpuwright/runs/*"), key=lambda path: path.stat().st_ctime, default=None)
        if newest and newest.stat().st_ctime > time.time() - (time.monotonic() - began) and _is_at(newest, moment):
            return
        assert process.poll() is None, said[-2000:].decode(errors="replace")
    raise AssertionError(f"the moment never came: {moment}")


def _is_at(run: Path, moment: str) -> bool:
    if moment == _BEFORE:
        return bool((run / "run.json").exists() and (run / "run.json").read_text())
    if moment == _REPORT:
        return any(run.glob("hosts/*.json"))
    steps = run / "steps.jsonl"
    lines = steps.read_text().splitlines() if steps.exists() else []
    wanted = {_LOOK: "observe and resolve", _PLANNED: "preflight"}.get(moment, moment)
    return bool(lines) and lines[-1].endswith("]") and json.loads(lines[-1])[1] == wanted and moment != _QUESTION


def _gone(run: Path) -> None:
    """Wait until nothing of a run is at work here."""
    for _ in range(100):
        if not subprocess.run(["pgrep", "-f", str(run)], capture_output=True, check=False).stdout:
            return
        time.sleep(0.2)
    raise AssertionError("ansible-playbook goes on without gpuwright")


def _quiet(machine: Node) -> None:
    """Wait until what the run began on the node has come to its end."""
    busy = "pgrep -x 'dpkg|apt-get|dkms|pip|fio' || pgrep -f '[p]ip --isolated' || ! flock -n /run/gpuwright/lock.work true"
    for _ in range(300):
        if machine.shell(f"test ! -e /run/gpuwright/lock.work || if {busy}; then echo busy; fi") == "":
            return
        time.sleep(1)
    raise AssertionError("the node is still at work")


def _runs(machine: Node, state: Path) -> list[dict[str, Any]]:
    return [run for run in _json(machine, state, "runs")["runs"] if run["verb"] == "up"]


def _json(_machine: Node, state: Path, *words: str) -> Any:
    done = subprocess.run(
        [*command_line(), *words, "--json"],
        capture_output=True,
        env=environment() | {"XDG_STATE_HOME": str(state)},
        cwd=settings.CLONE,
        check=False,
    )
    return json.loads(done.stdout)

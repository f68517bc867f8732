"""A run that does not come to its end: its report and `gpuwright runs` say what was so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.report import files
from gpuwright import console, ends, knowledge, paths, steps
from tests.unit.cli.conftest import FakeAnsible, event, plan_record, result_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.cli.conftest import Done

AGGREGATE = knowledge.aggregate

PLAN = "gpuwright.node.plan"
WORDS = ("up", "--yes", "-i", "a,b,c,d,e")
#: One host is done, one at work, to one the run has not come, one cannot be reached, one was not looked at yet.
EVENTS = [
    *(event("runner_on_ok", host, resolved_action=PLAN) for host in "abc"),
    event("runner_on_unreachable", "d", resolved_action=PLAN, res={"msg": "no route to host"}),
    event("runner_on_start", "e", resolved_action=PLAN),
    *(event("runner_on_ok", host, "Take", resolved_action=steps.TAKES) for host in "ab"),
    *(event("runner_on_start", host, "Install", role="gpuwright.node.nvidia_driver") for host in "ab"),
]


@pytest.fixture
def cut(ansible: FakeAnsible, monkeypatch: pytest.MonkeyPatch) -> FakeAnsible:
    """A run that is cut off while it applies the driver; its report is the real one."""
    monkeypatch.setattr(knowledge, "aggregate", AGGREGATE)
    simulated = {"facts_summary": {"simulated": True}, "components": ["nvidia_driver"]}
    ansible.plans = {host: plan_record(host, **simulated) for host in "abc"}
    ansible.results = {"a": result_record("a", simulated=True)}
    ansible.script = {"site": EVENTS, "release": [event("runner_on_ok", "b", resolved_action="gpuwright.node.seal")]}
    return ansible


def report(made: FakeAnsible) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made.requests[0].run_dir / "report.json").read_text())
    return found


def test_after_ctrl_c_the_report_says_what_was_so_on_each_host(
    gpuwright: Callable[..., Done], cut: FakeAnsible
) -> None:
    cut.status = "canceled"
    assert gpuwright(*WORDS).code == 130
    told = report(cut)
    assert (told["ended"], told["verdict"], told["simulated"]) == ("interrupted", "fail", True)
    assert told["finished"] >= told["started"]
    assert told["not_reached"] == ["c"]
    assert "no route to host" in told["unreachable"]["d"]
    assert told["hosts"]["a"]["verdict"] == "pass"
    assert told["hosts"]["b"]["failure"]["message"].startswith("interrupted in the step nvidia_driver")
    assert told["hosts"]["b"]["changed"]
    assert told["hosts"]["e"]["failure"]["message"] == "interrupted before this host was looked at"
    assert gpuwright("runs").out.splitlines()[-1].endswith("interrupted")
    shown = gpuwright("runs", "last")
    assert "this run was interrupted" in shown.err
    assert "not reached" in shown.out


def test_ctrl_c_at_the_question_says_that_nothing_was_begun(
    gpuwright: Callable[..., Done], cut: FakeAnsible, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_question: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(console, "interactive", lambda: True)
    monkeypatch.setattr(console, "ask", interrupted)
    cut.results, cut.script = {}, {"site": EVENTS[:3]}
    assert gpuwright("up", "-i", "a,b,c").code == 130
    assert (report(cut)["ended"], report(cut)["not_reached"], report(cut)["hosts"]) == ("interrupted", [*"abc"], {})


@pytest.mark.parametrize("answer", [True, False, None], ids=["--json", "no", "nobody to ask"])
def test_a_plan_that_is_not_applied_is_a_run_that_ended(
    gpuwright: Callable[..., Done], cut: FakeAnsible, monkeypatch: pytest.MonkeyPatch, answer: bool | None
) -> None:
    monkeypatch.setattr(console, "interactive", lambda: answer is False)
    monkeypatch.setattr(console, "ask", lambda _question: False)
    cut.results, cut.script = {}, {"site": EVENTS[:3]}
    assert gpuwright("up", "-i", "a,b,c", *(["--json"] if answer else [])).code == 2
    assert (report(cut)["ended"], report(cut)["verdict"], sorted(report(cut)["hosts"])) == (
        "done",
        "incomplete",
        [*"abc"],
    )


def test_of_a_run_whose_process_was_killed_the_next_look_says_so(
    gpuwright: Callable[..., Done], cut: FakeAnsible, tmp_path: Path
) -> None:
    place = tmp_path / "state/gpuwright/runs/20261129T100000Z-1"
    (place / "hosts").mkdir(parents=True)
    (place / paths.MARKER).touch()
    for host, made in cut.plans.items():
        cut._write(place / "plans" / f"{host}.json", made)
    noted = steps.Steps(place)
    for each in EVENTS:
        noted.take(each)
    files.aggregate(place, verb="up", not_reached=["a", "b", "c"], ended=None)
    holds = "import fcntl, sys, time; mark = open(sys.argv[1]); fcntl.flock(mark, fcntl.LOCK_SH); print(flush=True); time.sleep(20)"
    with subprocess.Popen([sys.executable, "-c", holds, str(place / paths.MARKER)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert gpuwright("runs").out.splitlines()[-1].endswith("at work")
        assert json.loads((place / "report.json").read_text())["finished"] is None
        os.kill(process.pid, signal.SIGKILL)
    assert gpuwright("runs").out.splitlines()[-1].endswith("killed")
    told = json.loads((place / "report.json").read_text())
    assert (told["ended"], told["finished"], told["not_reached"]) == ("killed", None, ["c"])
    assert told["hosts"]["b"]["failure"]["message"].startswith("the run was killed in the step nvidia_driver")
    assert "no route to host" in told["unreachable"]["d"]


def test_a_step_whose_line_was_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / steps.FILE).write_text('["a", "nvidia_driver", true, null]\n["b", "nvi')
    assert steps.read(tmp_path) == {"a": steps.Step("nvidia_driver", True)}
    assert steps.read(tmp_path / "nothing") == {}


def test_a_step_tells_no_password_of_an_address(tmp_path: Path) -> None:
    said = {"msg": "cannot reach https://me:s3cr3t@mirror.example/x"}
    steps.Steps(tmp_path).take(event("runner_on_unreachable", "d", resolved_action=PLAN, res=said))
    written = (tmp_path / steps.FILE).read_text()
    assert "mirror.example" in written
    assert "s3cr3t" not in written


def test_a_run_that_nobody_noted_is_none_at_work(tmp_path: Path) -> None:
    assert not ends.is_at_work(tmp_path)


def test_ansible_ends_with_the_command_that_started_it_and_is_at_work_until_then(tmp_path: Path) -> None:
    (tmp_path / paths.MARKER).touch()
    begins = (
        "import pathlib, subprocess, sys; from gpuwright import runner;"
        "tied = runner._tied(['sleep', '60'], pathlib.Path(sys.argv[1]));"
        "child = subprocess.Popen(tied, stdout=subprocess.DEVNULL);"
        "print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", begins, str(tmp_path / paths.MARKER)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        assert await_command(child) == b"sleep\x0060\x00"
        assert ends.is_at_work(tmp_path)
        os.kill(parent.pid, signal.SIGKILL)
    for _ in range(2000):
        if not (path := Path(f"/proc/{child}/stat")).exists() or ") Z " in path.read_text():
            assert not ends.is_at_work(tmp_path)
            return
        time.sleep(0.05)
    raise AssertionError("it goes on")


def await_command(process: int) -> bytes:
    """The command line of a process as soon as it is the program that it becomes."""
    found = b""
    for _ in range(2000):
        found = Path(f"/proc/{process}/cmdline").read_bytes()
        if found and not found.startswith(os.fsencode(sys.executable)):  # empty for the moment of an exec
            break
        time.sleep(0.05)
    return found

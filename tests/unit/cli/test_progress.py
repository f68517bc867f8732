from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records, run_directory
from gpuwright import progress, reasons
from gpuwright import records as gpuwright_records
from tests.unit.cli.conftest import event

if TYPE_CHECKING:
    from collections.abc import Iterator

SSH = "Failed to connect to the host via ssh: "
UNREACHABLE = "cannot be reached by ssh: "
NO_PYTHON = "no Python on the node: install python3"
NO_PASSWORD = "sudo asks for a password on the node: run with -K"
NO_BECOME = (
    "Task failed: Premature end of stream waiting for become success.\n>>> Standard Error\nsudo: a password is required"
)
OLD_PYTHON = "ansible-core requires a minimum of Python version 3.8. Current version: 3.6.8"

# As ansible-runner records them: a role's full name on its tasks, none on the loop's own.
RECORDED = [
    event("runner_on_start", "a", "Plan", resolved_action="gpuwright.node.plan"),
    event("runner_on_start", "b", "Plan", resolved_action="gpuwright.node.plan"),
    event("runner_on_ok", "a", "Plan", resolved_action="gpuwright.node.plan"),
    event("runner_on_unreachable", "b", "Plan", res={"msg": SSH + "ssh: connect to host b port 22: timed out"}),
    event("runner_on_start", "a", "Install the driver", role="gpuwright.node.nvidia_driver"),
    event(
        "runner_on_failed",
        "a",
        "Try the mirror",
        role="gpuwright.node.nvidia_driver",
        ignore_errors=True,
        res={"msg": "no"},
    ),
    event("runner_on_ok", "a", "Install the driver", role="gpuwright.node.nvidia_driver"),
    event("runner_on_start", "a", "Measure", role="validate"),
    event("runner_on_failed", "a", "Measure", role="validate", res={"msg": "fio is missing"}),
]


@pytest.fixture
def ticks() -> Iterator[float]:
    return iter(float(number) for number in range(1000))


def test_components_are_told_when_they_end(ticks: Iterator[float]) -> None:
    said: list[str] = []
    state = progress.State(clock=lambda: next(ticks), say=said.append)
    for one in RECORDED:
        state.take(one)
    state.finish()
    words = [line.partition(" (")[0] for line in said]
    assert words == [
        "[b] observe and resolve: unreachable: cannot be reached by ssh: connect to host b port 22: timed out",
        "[a] observe and resolve: done",
        "[a] nvidia_driver: done",
        "[a] prove: failed: fio is missing",
    ]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_hosts_time_is_its_own_and_not_its_waves() -> None:
    said: list[str] = []
    clock = Clock()
    state = progress.State(clock=clock, say=said.append)
    for host in ("quick", "slow"):
        state.take(event("runner_on_start", host, "Install", role="cuda"))
    clock.now = 4
    state.take(event("runner_on_ok", "quick", "Install", role="cuda"))
    clock.now = 90
    state.take(event("runner_on_ok", "slow", "Install", role="cuda"))
    for host in ("quick", "slow"):
        state.take(event("runner_on_start", host, "Measure", role="validate"))
    assert said == ["[quick] cuda: done (4 s)", "[slow] cuda: done (90 s)"]


def planned() -> Any:
    """What the action `plan` answers of a driver that is 412 MB to download."""
    packages = [
        {"name": "a", "download_bytes": 400_000_000},
        {"name": "b", "download_bytes": 10_000_000},
        {"name": "c", "download_bytes": 2_000_000},
        {"name": "d"},
    ]
    changes = [
        {"component": "nvidia_driver", "packages": packages[:1]},
        {"component": "nvidia_driver", "packages": packages[1:2], "wheels": packages[2:]},
    ]
    made: Any = {"skipped": None, "changes": changes, "digests": {}}
    return records.as_result(made)


def test_a_long_step_says_every_half_minute_that_it_lives() -> None:
    clock = Clock()
    state = progress.State(clock=clock)
    state.take(event("runner_on_start", "a", "Plan", resolved_action="gpuwright.node.plan"))
    state.take(event("runner_on_ok", "a", "Plan", resolved_action="gpuwright.node.plan", res=planned()))
    state.take(event("runner_on_start", "a", "Install packages", role="nvidia_driver"))
    said = []
    for second in range(1, 96):
        clock.now = second
        if second % 10 == 0:  # many short tasks are a long step too
            state.take(event("runner_on_ok", "a", "Install packages", role="nvidia_driver"))
            state.take(event("runner_on_start", "a", f"Task at {second}", role="nvidia_driver"))
        said += [(second, line) for line in state.signs()]
    assert said == [
        (30, "[a] nvidia_driver: at work for 30 s (412.0 MB to download): Task at 30"),
        (60, "[a] nvidia_driver: at work for 60 s (412.0 MB to download): Task at 60"),
        (90, "[a] nvidia_driver: at work for 90 s (412.0 MB to download): Task at 90"),
    ]


def test_a_download_that_can_be_watched_says_how_far_it_is_and_how_long_it_will_take() -> None:
    clock, done = Clock(), iter(range(210_000_000, 3_400_000_000, 10_000_000))
    far: dict[str, Any] = {}
    state = progress.State(clock=clock, read=far.get)
    state.take(event("runner_on_start", "a", "Install the wheels", role="frameworks"))
    said = []
    for second in range(1, 126):
        clock.now = second
        far["a"] = {"done": next(done), "total": 3_400_000_000} if second < 100 else None
        if second == 100:
            state.take(event("runner_on_ok", "a", "Install the wheels", role="frameworks"))
            state.take(event("runner_on_start", "a", "Check", role="frameworks"))
        state.look()
        said += state.signs()
    assert said == [
        "[a] frameworks: at work for 30 s (about 500.0 MB of 3.4 GB, 5 min left): Install the wheels",
        "[a] frameworks: at work for 60 s (about 800.0 MB of 3.4 GB, 4 min left): Install the wheels",
        "[a] frameworks: at work for 90 s (about 1.1 GB of 3.4 GB, 4 min left): Install the wheels",
        "[a] frameworks: at work for 2 min 00 s: Check",
    ]


def test_a_download_that_begins_anew_is_timed_anew() -> None:
    clock, far = Clock(), {"done": 900, "total": 1000}
    state = progress.State(clock=clock, read=lambda _host: far)  # type: ignore[arg-type, return-value]  # as a file has it
    state.take(event("runner_on_start", "a", "Install the wheels", role="frameworks"))
    for clock.now, far["done"], far["total"] in ((1, 0, 1000), (31, 900, 1000), (61, 100, 1000)):
        state.look()
    assert state.signs() == ["[a] frameworks: at work for 61 s (about 100 B of 1 kB): Install the wheels"]


def test_how_far_a_host_is_comes_from_the_runs_directory(tmp_path: Path) -> None:
    assert gpuwright_records.downloaded(tmp_path, "gpu01") is None
    run_directory.write_document(tmp_path / "progress", "gpu01", {"done": 1, "total": 2})
    assert gpuwright_records.downloaded(tmp_path, "gpu01") == {"done": 1, "total": 2}
    assert gpuwright_records.downloaded(tmp_path, "gpu02") is None


def test_a_host_that_waits_for_its_wave_or_ended_gives_no_sign() -> None:
    clock = Clock()
    state = progress.State(clock=clock)
    state.take(event("runner_on_start", "waits", "Install", role="cuda"))
    state.take(event("runner_on_ok", "waits", "Install", role="cuda"))
    state.take(event("runner_on_start", "ended", "Install", role="cuda"))
    state.take(event("runner_on_unreachable", "ended", "Install", role="cuda", res={"msg": "gone"}))
    clock.now = 1000
    assert state.signs() == []


def test_the_signs_of_a_fleet_are_a_few_lines_and_a_sum() -> None:
    clock = Clock()
    state = progress.State(clock=clock)
    for number in range(300):
        state.take(event("runner_on_start", f"gpu{number:03}", "Install", role="cuda" if number % 2 else "validate"))
    clock.now = progress.SILENCE
    signs = state.signs()
    assert len(signs) == progress.MOST_SIGNS + 1
    assert signs[-1] == "295 more hosts at work: 148 cuda, 147 prove"
    assert state.signs() == []


def test_who_holds_the_package_manager_is_told_once_and_in_each_sign() -> None:
    said: list[str] = []
    clock = Clock()
    state = progress.State(clock=clock, say=said.append)
    state.take(event("runner_on_start", "a", "Wait", role="preflight"))
    for busy in ("apt-get (pid 11369)", "apt-get (pid 11369)", "dpkg (pid 7)"):
        clock.now += 10
        state.take(event("runner_retry", "a", "Wait", role="preflight", res={"busy": busy, "attempts": 1}))
    assert said == ["[a] waiting until apt-get (pid 11369) ends", "[a] waiting until dpkg (pid 7) ends"]
    clock.now += progress.SILENCE
    assert state.signs() == ["[a] preflight: at work for 60 s: waiting until dpkg (pid 7) ends"]
    state.take(event("runner_on_ok", "a", "Wait", role="preflight", res={"busy": None}))
    state.take(event("runner_on_start", "a", "Check the disks", role="preflight"))
    clock.now += progress.SILENCE
    assert state.signs() == ["[a] preflight: at work for 90 s: Check the disks"]


PLAN = {"resolved_action": "gpuwright.node.plan"}
LOADING = {"role": "gpuwright.node.validate", "resolved_action": "gpuwright.node.gpu_load"}


def of_plan(**takes: int) -> Any:
    """What the action `plan` answers of a proof whose loads take so long."""
    return {"left_alone": None, "work": {"validate": {"takes": takes}}}


def under_load(clock: Clock, said: list[str], *hosts: str, **takes: int) -> progress.State:
    """Hosts whose cards begin to be loaded by the driver alone."""
    state = progress.State(clock=clock, say=said.append)
    for host in hosts:
        state.take(event("runner_on_ok", host, "Plan", res=of_plan(**takes), **PLAN))
    for host in hosts:
        state.take(event("runner_on_start", host, "Load the cards", **LOADING))
    return state


def test_a_load_says_what_goes_on_and_how_much_time_is_left_at_most() -> None:
    clock = Clock()
    said: list[str] = []
    state = under_load(clock, said, "node3", gpu_load=2700)
    words = {}
    for clock.now in (0, 240, 241, 2580, 2601, 2699.5, 2700, 2760, 2885):
        words[clock.now] = state.hosts["node3"].doing(clock.now)
    assert words == {
        0: "loading the cards: 45 min left",
        240: "loading the cards: 41 min left",
        241: "loading the cards: 41 min left",
        2580: "loading the cards: 2 min left",
        2601: "loading the cards: 99 s left",
        2699.5: "loading the cards: 1 s left",
        2700: "loading the cards: 0 s over its time",
        2760: "loading the cards: 60 s over its time",
        2885: "loading the cards: 4 min over its time",
    }
    line = " ".join(progress._line("node3", state.hosts["node3"], 240).split())
    assert line == "node3 prove 4 min 00 s loading the cards: 41 min left"


def test_each_load_has_its_own_time_and_what_comes_after_it_none() -> None:
    clock = Clock()
    said: list[str] = []
    state = under_load(clock, said, "a", dcgm_diag=150, gpu_load=45, framework_load=90)
    found = []
    for clock.now, module in enumerate(("dcgm_diag", "gpu_load", "framework_load", "kernel_log")):
        state.take(event("runner_on_start", "a", module, role="validate", resolved_action=f"gpuwright.node.{module}"))
        found.append(state.hosts["a"].doing(clock.now))
        state.take(event("runner_on_ok", "a", module, role="validate", resolved_action=f"gpuwright.node.{module}"))
        assert state.hosts["a"].load is None
    assert found == [
        "diagnosing the cards by DCGM: 3 min left",
        "loading the cards: 45 s left",
        "loading through the framework: 90 s left",
        "kernel_log",
    ]


def test_after_an_apply_the_times_are_those_of_the_look_at_what_became() -> None:
    clock = Clock()
    state = progress.State(clock=clock)
    state.take(event("runner_on_ok", "a", "Plan", res={"left_alone": None, "work": {"cuda": {}}}, **PLAN))
    sealed = {"sealed": [], "measure": {"takes": {"gpu_load": 45}}}
    state.take(event("runner_on_ok", "a", "Seal", res=sealed, resolved_action="gpuwright.node.seal"))
    state.take(event("runner_on_start", "a", "Load the cards", **LOADING))
    assert state.hosts["a"].doing(0) == "loading the cards: 45 s left"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("runner_on_skipped", {}),
        ("runner_on_failed", {"res": {"msg": "no"}}),
        ("runner_on_failed", {"res": {"msg": "no"}, "ignore_errors": True}),
        ("runner_on_unreachable", {"res": {"msg": "gone"}}),
        ("runner_on_ok", {}),
    ],
)
def test_however_a_load_ends_nothing_is_left_of_it(name: str, more: dict[str, Any]) -> None:
    clock = Clock()
    said: list[str] = []
    state = under_load(clock, said, "a", gpu_load=43_200)
    clock.now = 60
    state.take(event(name, "a", "Load the cards", **LOADING, **more))
    assert (state.hosts["a"].load, state.longest()) == (None, None)
    assert "left" not in progress._line("a", state.hosts["a"], 60)


def test_what_the_plan_leaves_out_or_nobody_knows_the_time_of_is_no_load() -> None:
    clock = Clock()
    said: list[str] = []
    for takes in ({}, {"framework_load": 90}, {"gpu_load": 0}):
        state = under_load(clock, said, "a", **takes)
        assert state.hosts["a"].doing(0) == "Load the cards"
    odd: list[Any] = [
        None,
        {},
        {"work": None},
        {"work": {"validate": None}},
        {"measure": {"takes": None}},
        {"measure": {"takes": []}},
    ]
    for answer in odd:
        state = progress.State(clock=clock, say=said.append)
        state.take(event("runner_on_ok", "a", "Plan", res=answer, **PLAN))
        state.take(event("runner_on_start", "a", "Load the cards", **LOADING))
        assert state.hosts["a"].load is None
    assert not [line for line in said if "loading" in line]


def test_no_node_says_how_long_its_load_takes() -> None:
    state = progress.State(clock=Clock())
    for action in ("ansible.builtin.command", "gpuwright.node.node_facts", "gpuwright.node.gpu_load"):
        answer = {"measure": {"takes": {"gpu_load": 9}}, **of_plan(gpu_load=9)}
        state.take(event("runner_on_ok", "a", "Look", res=answer, resolved_action=action))
    state.take(event("runner_on_start", "a", "Load the cards", **LOADING))
    assert state.hosts["a"].load is None


def test_a_log_has_a_line_when_a_load_begins_and_seldom_one_while_it_goes_on() -> None:
    clock = Clock()
    said: list[str] = []
    state = under_load(clock, said, "a", gpu_load=43_200)
    assert said == ["[a] observe and resolve: done (0 s)", "[a] loading the cards: 12 h"]
    signs = []
    for second in range(1, 43_200 + 61):
        clock.now = second
        signs += [(second, line) for line in state.signs()]
    assert len(signs) == 12 * 6 + 2, "one in ten minutes; when its time is over one in half a minute again"
    assert signs[0] == (600, "[a] prove: at work for 10 min 00 s: loading the cards: 11 h 50 min left")
    assert signs[-1] == (43_260, "[a] prove: at work for 721 min 00 s: loading the cards: 60 s over its time")


def test_of_several_hosts_the_longest_is_told_beside_the_title() -> None:
    clock = Clock()
    said: list[str] = []
    state = under_load(clock, said, "a", gpu_load=45)
    assert state.longest() is None, "its own line says it"
    state.take(event("runner_on_ok", "b", "Plan", res=of_plan(gpu_load=3600), **PLAN))
    clock.now = 30
    state.take(event("runner_on_start", "b", "Load the cards", **LOADING))
    state.take(event("runner_on_start", "c", "Load the cards", **LOADING))
    longest = state.longest()
    assert longest
    assert (longest[0], longest[1].words(90)) == ("b", "loading the cards: 59 min left")
    state.take(event("runner_on_ok", "b", "Load the cards", **LOADING))
    assert state.longest() is None


def test_a_terminal_shows_the_load_of_each_host_and_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    clock = Clock()
    monkeypatch.setattr("gpuwright.progress.time.monotonic", clock)
    live = progress.LiveProgress("proving")
    with live:
        live._state.clock = clock
        for number in range(20):
            host = f"node{number:02}"
            live.take(event("runner_on_ok", host, "Plan", res=of_plan(gpu_load=60 * number), **PLAN))
            live.take(event("runner_on_start", host, "Load the cards", **LOADING))
        clock.now = 61
        drawn = Console(file=io.StringIO(), width=100, record=True)
        drawn.print(live._render())
    lines = drawn.export_text().splitlines()
    assert "proving  61 s  longest on node19, loading the cards: 18 min left" in lines[0]
    assert " ".join(lines[4].split()) == "node03 prove 61 s loading the cards: 2 min left"
    assert "20 hosts: 20 prove" in lines[-1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0 s"), (0.2, "1 s"), (99.9, "100 s"), (100, "2 min"), (2401, "41 min"), (3541, "1 h"), (43_140, "11 h 59 min"),
     (604_800, "168 h")],
)  # fmt: skip
def test_what_is_left_at_most_is_never_told_too_short(value: float, expected: str) -> None:
    assert progress._at_most(value) == expected


def test_a_log_gets_the_signs_while_the_run_is_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    monkeypatch.setattr(progress, "_LOOK", 0.01)
    with progress.PlainProgress("bringing up") as shown:
        shown.take(event("runner_on_start", "a", "Install packages", role="cuda"))
        said = ""
        for _ in range(500):
            said += capsys.readouterr().err
            if "at work" in said:
                break
            time.sleep(0.01)
    assert "[a] cuda: at work for 0 s: Install packages" in said


def test_a_host_that_was_rescued_goes_on() -> None:
    state = progress.State()
    state.take(event("runner_on_failed", "a", role="cuda", res={"msg": "x"}))
    assert state.hosts["a"].ended == "failed"
    state.take(event("runner_on_start", "a", role="validate"))
    assert (state.hosts["a"].ended, state.hosts["a"].component) == ("", "prove")


def test_what_helps_with_a_black_screen_is_read_before_the_reboot() -> None:
    told: list[str] = []
    state = progress.State(tell=told.append)
    tasks = yaml.safe_load((Path(__file__).parents[3] / "roles/reboot/tasks/boot_shown.yml").read_text())
    (task,) = [row["name"] for row in tasks if "rescue" in str(row.get("ansible.builtin.debug"))]
    state.take(event("runner_on_ok", "desk", task=task, role="reboot", res={"msg": ["ssh to desk", "press e"]}))
    state.take(event("runner_on_ok", "desk", task="Other", role="reboot", res={"msg": ["not this"]}))
    assert told == ["[desk] ssh to desk", "[desk] press e"]


def test_events_without_a_host_are_nothing() -> None:
    state = progress.State()
    state.take({"event": "playbook_on_stats", "event_data": {}})
    state.take({"event": "verbose", "stdout": "x"})
    assert not state.hosts


def test_plain_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.PlainProgress("planning") as shown:
        for one in RECORDED:
            shown.take(one)
    said = capsys.readouterr()
    assert not said.out
    assert "[a] nvidia_driver: done" in said.err
    assert "runner_on_ok a" not in said.err


def test_verbose_progress_has_ansibles_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.PlainProgress("planning", with_output=True) as shown:
        shown.take(RECORDED[0])
    assert "runner_on_start a" in capsys.readouterr().err


def test_a_fleet_is_a_few_lines_and_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    live = progress.LiveProgress("bringing up")
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with live:
        for number in range(300):
            live.take(event("runner_on_start", f"gpu{number:03}", role="cuda"))
        live.take(event("runner_on_unreachable", "gpu299", role="cuda", res={"msg": "gone"}))
        drawn = Console(file=io.StringIO(), width=100, record=True)
        drawn.print(live._render())
    lines = drawn.export_text().splitlines()
    assert len(lines) == progress.MOST_HOSTS + 2
    assert "unreachable" in lines[1]
    assert "300 hosts: 299 cuda, 1 unreachable" in lines[-1]


@pytest.mark.parametrize(("value", "expected"), [(3.2, "3 s"), (99, "99 s"), (125, "2 min 05 s")])
def test_durations_are_for_people(value: float, expected: str) -> None:
    assert progress.seconds(value) == expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {"msg": SSH + "ssh: Could not resolve hostname x: Name or service not known"},
            UNREACHABLE + "Could not resolve hostname x: Name or service not known",
        ),
        (
            {"msg": SSH + "Warning: Permanently added 'x'\r\nroot@x: Permission denied (publickey)."},
            UNREACHABLE + "root@x: Permission denied (publickey).",
        ),
        ({"msg": SSH + "Host key verification failed."}, UNREACHABLE + "Host key verification failed."),
        ({"msg": ""}, UNREACHABLE + "no answer"),
        (
            {"msg": "Task failed: gpu17 gave no answer to node_facts within 300 seconds. What to do: boot it"},
            "no answer to node_facts within 300 seconds. What to do: boot it",
        ),
    ],
)
def test_an_unreachable_host_is_told_in_peoples_words(result: Any, expected: str) -> None:
    assert reasons.unreachable(result) == expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {
                "msg": "The module failed to execute correctly",
                "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found",
            },
            NO_PYTHON,
        ),
        ({"msg": "MODULE FAILURE", "module_stdout": "/bin/sh: python3: command not found", "rc": 127}, NO_PYTHON),
        ({"msg": "Missing sudo password"}, NO_PASSWORD),
        ({"msg": NO_BECOME}, NO_PASSWORD),
        ({"msg": "Incorrect sudo password"}, "sudo does not take this password: give the right one with -K"),
        ({"msg": "bob is not in the sudoers file."}, "the user of this login may not use sudo on the node"),
        ({"msg": OLD_PYTHON}, f"the node's Python is too old: {OLD_PYTHON}"),
        ({"msg": "no room on /boot"}, "no room on /boot"),
        (
            {"msg": "", "module_stderr": "Traceback (most recent call last):\n  File x\nKeyError: 'os'"},
            "a module crashed: KeyError: 'os'",
        ),
        ({}, "failed without a message"),
    ],
)
def test_a_failed_task_is_told_in_peoples_words(result: Any, expected: str) -> None:
    assert reasons.failure(result) == expected


def test_the_work_of_a_shared_role_is_told_as_the_component_that_uses_it() -> None:
    lines: list[str] = []
    state = progress.State(clock=lambda: 0.0, say=lines.append)
    for role in ("nvidia_driver", "packages", "repositories", "nvidia_driver", "cuda"):
        state.take({"event": "runner_on_ok", "event_data": {"host": "a", "role": f"gpuwright.node.{role}"}})
    state.finish()
    assert lines == ["[a] nvidia_driver: done (0 s)", "[a] cuda: done (0 s)"]

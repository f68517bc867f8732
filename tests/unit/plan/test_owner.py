"""Whose lock it is, and whether that run still lives."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import owner

PROCESS = 4711
BOOT = "6b1d6a4c-2f4f-4d0e-9a55-0f6c5b8a1c11"


def controller(
    root: Path,
    *,
    machine: str = "a" * 32,
    boot: str = BOOT,
    pid_ns: str = "pid:[4026531836]",
    time_ns: str | None = "time:[4026531834]",
    start: int | None = 1000,
    state: str = "S",
) -> Path:
    """A controller as its /proc shows it, with the process that is meant, or without."""
    for path, text in {"etc/machine-id": f"{machine}\n", "proc/sys/kernel/random/boot_id": f"{boot}\n"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "proc/self/ns").mkdir(parents=True)
    for name, where in {"pid": pid_ns, "time": time_ns}.items():
        if where:
            (root / "proc/self/ns" / name).symlink_to(where)
    if start is not None:
        stat = root / f"proc/{PROCESS}/stat"
        stat.parent.mkdir(parents=True)
        stat.write_text(f"{PROCESS} (a ) name) {state} 1 {' '.join('0' for _ in range(17))} {start} 0 0\n")
    return root


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(os, "getppid", lambda: PROCESS)
    return owner.of_this_run(controller(tmp_path / "before"))


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process of this machine has the number."""

    def gone(_process: int, _signal: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)


def test_the_owner_names_the_process_that_started_this_one(mine: str) -> None:
    who, process, start, where = mine.split(":")
    assert (who.partition("@")[2], process, start) == (platform.node(), str(PROCESS), "1000")
    assert "a" * 32 not in where


def test_a_run_that_lives_is_not_dead(mine: str, tmp_path: Path) -> None:
    assert not owner.is_dead(mine, controller(tmp_path / "now"))


@pytest.mark.parametrize("now", [{"start": None}, {"start": 2000}, {"state": "Z"}, {"state": "X"}])
def test_a_run_that_ended_is_dead_also_where_another_process_has_its_number(
    mine: str, tmp_path: Path, now: dict[str, object]
) -> None:
    assert owner.is_dead(mine, controller(tmp_path / "now", **now))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [
        {"machine": "b" * 32},
        {"boot": "7c2d6a4c-2f4f-4d0e-9a55-0f6c5b8a1c22"},
        {"pid_ns": "pid:[4026532201]"},
        {"time_ns": "time:[4026532202]"},
    ],
)
def test_of_a_run_on_another_controller_of_the_same_name_nothing_is_known(
    mine: str, tmp_path: Path, other: dict[str, str]
) -> None:
    """A container with processes of its own, another machine of an image, and the same machine before its boot."""
    assert not owner.is_dead(mine, controller(tmp_path / "other", start=None, **other))


def test_where_proc_hides_the_processes_of_others_they_are_not_dead(
    mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_process: int, _signal: int) -> None:
        raise PermissionError

    for answer in (denied, lambda _process, _signal: None):
        monkeypatch.setattr(os, "kill", answer)
        assert not owner.is_dead(mine, controller(tmp_path / answer.__name__, start=None))


@pytest.mark.parametrize(
    "written",
    [
        "",
        "somebody@elsewhere:999999999",
        f"somebody@{platform.node()}:999999999",
        "a@b:1:unknown:x",
        ":::",
        "a:b:c:d:e",
    ],
)
def test_what_does_not_tell_which_process_it_was_is_not_dead(written: str, tmp_path: Path) -> None:
    """Such as the lock of an earlier gpuwright, which named a number alone."""
    assert not owner.is_dead(written, controller(tmp_path / "now", start=None))


def test_without_a_proc_an_owner_is_told_and_never_dead(tmp_path: Path) -> None:
    known = owner.of_this_run(tmp_path)
    assert known.endswith(f"@{platform.node()}:{os.getppid()}")
    assert not owner.is_dead(known, tmp_path)


def test_a_real_process_is_known_by_its_start_and_dead_as_a_zombie(monkeypatch: pytest.MonkeyPatch) -> None:
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(os, "getppid", lambda: process.pid)
        known = owner.of_this_run()
        assert not owner.is_dead(known)
        assert process.stdin
        process.stdin.close()
        until = time.monotonic() + 10
        while not owner.is_dead(known) and time.monotonic() < until:
            time.sleep(0.02)
        assert owner.is_dead(known)
    assert owner.is_dead(known)

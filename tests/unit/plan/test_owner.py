"""Whose lock it is, and whether that run still lives."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import owner

HERE = f"somebody@{platform.node()}"


def test_the_owner_names_the_process_that_started_this_one() -> None:
    assert owner.of_this_run().endswith(f"@{platform.node()}:{os.getppid()}")


def test_a_run_that_lives_is_not_dead() -> None:
    assert not owner.is_dead(f"{HERE}:{os.getpid()}")
    assert not owner.is_dead(f"{HERE}:1")


def test_a_run_that_ended_is_dead() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    assert owner.is_dead(f"{HERE}:{ended.pid}")


def test_a_run_that_ended_and_was_not_collected_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as zombie:
        until = time.monotonic() + 10
        while " Z " not in Path(f"/proc/{zombie.pid}/stat").read_text(encoding="utf-8") and time.monotonic() < until:
            time.sleep(0.02)
        assert owner.is_dead(f"{HERE}:{zombie.pid}")


def test_of_a_run_on_another_controller_nothing_is_known() -> None:
    assert not owner.is_dead("somebody@elsewhere:999999999")
    assert not owner.is_dead(f"{HERE}:unknown")
    assert not owner.is_dead("")

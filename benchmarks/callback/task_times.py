"""A callback plugin of the benchmarks: one line of JSON for each task that ended on a host, with its role, name, status and seconds.

A task of a loop is one line, as Ansible's events and its recap count it. A task that includes others is a line, too.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: task_times
type: notification
short_description: Writes what became of each task, and how long it took
description:
  - Appends a line of JSON for each task that ended on a host to the file that E(GPUWRIGHT_BENCHMARK_TASKS) names.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """See the module's documentation."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "task_times"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        # By host: one works on one task at a time.
        self._begun: dict[str, float] = {}

    def v2_runner_on_start(self, host: Any, _task: Any) -> None:
        """Note when a task begins on a host."""
        self._begun[host.get_name()] = time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        """A task that was done."""
        self._write(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_skipped(self, result: Any) -> None:
        """A task whose condition did not hold."""
        self._write(result, "skipped")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """A task that failed."""
        self._write(result, "ignored" if ignore_errors else "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """A task whose host did not answer."""
        self._write(result, "unreachable")

    def _write(self, result: Any, status: str) -> None:
        host, now = result.host.get_name(), time.monotonic()
        # A role's task is told with the role before its name.
        role, _, name = result.task.get_name().rpartition(" : ")
        row = {
            "host": host,
            "role": role,
            "task": name,
            "action": result.task.action,
            "path": result.task.get_path(),
            "status": status,
            "seconds": round(now - self._begun.get(host, now), 3),
        }
        with Path(os.environ["GPUWRIGHT_BENCHMARK_TASKS"]).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How long the controller waits for a node's answer. One that says nothing for longer is unreachable, and the others go on.

A module has limits of its own on the node, for each program that it calls. These here are for the node that keeps none: whose Python does
not come to its end, whose disk does not answer, whose network is gone in the middle of a connection.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure

#: Seconds that a look may take, without what its own programs may (variable ``gpuwright_answer_timeout``).
ANSWER = 300
#: The same of what measures, and of what installs, fetches or builds: that is cut by nobody else either, and ends by itself.
_MEASURES, _INSTALLS = 4 * 3600, 24 * 3600
_MEASURING = frozenset(
    [
        "container_check",
        "cuda_compat",
        "dcgm_diag",
        "driver_module",
        "fabric_load",
        "fio",
        "framework_check",
        "framework_load",
        "gpu_compute",
        "gpu_load",
        "toolkit_check",
        "removal_answers",
    ]
)
_INSTALLING = frozenset(
    [
        "container_image",
        "dnf_transaction",
        "driver_file",
        "environment_build",
        "package_call",
        "package_transaction",
        "wheels",
        "resume_program",
    ]
)
#: Options by which a module is told how long its programs may take.
_OWN = ("timeout", "seconds", "test_seconds", "startup", "patience", "lock_timeout")


def seconds(module: str, arguments: Mapping[str, object], answer: int) -> int:
    """How long a module may take on a node, whose looks may take ``answer`` seconds."""
    own = sum(float(value) for key in _OWN if isinstance(value := arguments.get(key), (int, float)))
    base = _INSTALLS if module in _INSTALLING else _MEASURES if module in _MEASURING else answer
    return int(base + 2 * own)


@contextlib.contextmanager
def within(limit: int, host: str, module: str) -> Iterator[None]:
    """Raise AnsibleConnectionFailure where the body takes longer: Ansible takes the host for unreachable then.

    A limit of the task's own (``timeout``) gives way meanwhile, and goes on after it: the body's time is none of its.
    """

    def on_alarm(_signal: int, _frame: object) -> None:
        raise AnsibleConnectionFailure(
            f"{host} gave no answer to {module} within {limit} seconds. What to do: look at it (ssh {host} uptime; dmesg | tail), and boot"
            " it where it hangs. A machine that is only slow: -e gpuwright_answer_timeout=SECONDS"
        )

    handler = signal.signal(signal.SIGALRM, on_alarm)
    left = signal.alarm(limit)
    try:
        yield
    except AnsibleConnectionFailure:
        _end_children()
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        signal.alarm(left)


def _end_children() -> None:
    """End what this process of Ansible's has started to reach the host: nobody reads it any more."""
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                os.kill(child, signal.SIGTERM)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove the Jupyter kernel of an environment: find it as Jupyter does, start it, import the framework in it and let it calculate.

The environment has the client itself: what a kernel is made of needs it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Mapping, Protocol, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check


class Runner(Protocol):
    """What runs a program, as :func:`run.run` does."""

    def __call__(self, argv: Sequence[str], *, timeout: float, env: Mapping[str, str]) -> Result:
        """What became of it."""


# What Jupyter writes lies in a directory that goes with the program: not in a home.
_PROGRAM = """
import shutil, tempfile
place = tempfile.mkdtemp(prefix="gpuwright-kernel-")
for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "HOME"):
    os.environ[variable] = place
try:
    from jupyter_client.manager import start_new_kernel
    manager, client = start_new_kernel(kernel_name={kernel!r}, startup_timeout={seconds})
    try:
        reply = client.execute("import {module}", user_expressions={{"sum": "1 + 1"}}, reply=True, timeout={seconds})["content"]
        if reply["status"] != "ok":
            say("kernel", error="%s: %s" % (reply.get("ename"), reply.get("evalue")))
        else:
            say("kernel", said=str(reply["user_expressions"]["sum"].get("data", {{}}).get("text/plain")))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
except BaseException as error:
    say("kernel", error=told(error))
finally:
    shutil.rmtree(place, ignore_errors=True)
"""


def ask(python: str, name: str, kernel: str, timeout: float, run: Runner = run_module.run) -> Result:
    """Start the kernel of a directory by its name; as root, as an ordinary user would."""
    text = framework.HEAD + _PROGRAM.format(
        kernel=os.path.basename(kernel), module=ABOUT[name].module, seconds=int(timeout)
    )
    words = [python, "-I", "-B", "-c", text]
    if os.geteuid() == 0:
        words = framework.as_a_user(words)
    # The client's own patience ends before ours, so that it tells why.
    return run(words, timeout=2 * timeout + 30, env={"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": "/tmp"})  # noqa: S108


def judge(name: str, kernel: str, answer: Result) -> Check:
    """``framework.kernel`` of one run of :func:`ask`."""
    told = next((step for step in framework.steps_of(answer.out) if step["step"] == "kernel"), None)
    title = ABOUT[name].title
    if told is not None and told.get("said") == "2":
        reason = f"the Jupyter kernel {os.path.basename(kernel)} starts, imports {title} and calculates"
        return checks.passed("framework.kernel", reason=reason)
    if told is None:
        evidence = answer.error or answer.err[-1500:] or answer.out[-500:]
    else:
        evidence = told.get("error") or f"1 + 1 is {told.get('said')}"
    return checks.failed(
        "framework.kernel",
        reason=f"the Jupyter kernel {os.path.basename(kernel)} does not work with {title}",
        evidence=evidence,
        action="configure",
        remedy=f"read what it says; {framework.ANEW}, with {kernel}",
    )

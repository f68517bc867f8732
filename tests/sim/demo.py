"""The demonstration: a simulated server with two H100 becomes a proven deep-learning node.

It ends with the exit status of `gpuwright up`; the node stays, to be looked at, until `make demo-clean`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import engine, node, settings
from .shell import SimulationError, say

NODE = "demo"
_SCENARIO = "two-h100"


def run() -> int:
    """Make the node, show the plan, carry it out, say where the report lies."""
    started = time.monotonic()
    program = _program()
    say("a simulated server: two H100, nouveau loaded, nothing of NVIDIA installed")
    engine.ensure()
    node.remove(NODE)
    node.create(NODE, _SCENARIO)
    inventory = settings.STATE / "demo" / "inventory.yml"
    inventory.parent.mkdir(parents=True, exist_ok=True)
    inventory.write_text(node.inventory([NODE]))
    report = settings.STATE / "demo" / "report"
    shutil.rmtree(report, ignore_errors=True)

    say("$ gpuwright plan: what would be done, and why; nothing is changed")
    planned = _gpuwright(program, "plan", "-i", str(inventory))
    if planned not in (0, 4):
        say(f"the plan ended with {planned}: the demonstration ends here")
        return planned
    say("$ gpuwright up: do it, reboot, prove it")
    status = _gpuwright(program, "up", "--yes", "-i", str(inventory), "--report", str(report))
    say(f"`gpuwright up` ended with {status} after {time.monotonic() - started:.0f} s in all")
    for name in ("report.html", "report.json"):
        if (report / name).exists():
            say(f"the report: {report / name}")
    say(f"look at the node with `python -m tests.sim node exec {NODE} nvidia-smi`; remove it with `make demo-clean`")
    return status


def _program() -> list[str]:
    """The command of this clone: the one next to the running Python, else the one on the PATH."""
    beside = Path(sys.executable).with_name("gpuwright")
    if beside.exists():
        return [str(beside)]
    if (settings.CLONE / "src/gpuwright").is_dir():
        return [sys.executable, "-m", "gpuwright"]
    raise SimulationError("the command gpuwright is not installed: run `make setup`, then `make demo`")


def _gpuwright(program: list[str], *arguments: str) -> int:
    sources = f"{settings.CLONE / 'src'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    environment = {**os.environ, "PYTHONPATH": sources}
    return subprocess.run([*program, *arguments], cwd=settings.CLONE, env=environment, check=False).returncode

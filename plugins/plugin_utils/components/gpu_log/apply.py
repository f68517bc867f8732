# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The light log of the cards: a timer that appends to a file of CSV once a minute. What it has written is not taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_log

from ...model.plan import Plan
from ...model.stack import Stack
from ...model.work import File, Unit, Work
from .. import programs
from ..base import Component, Context, Finding, Manages, Step
from ..view import View

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

NAME = "gpu_log"
SERVICE = "gpuwright-gpu-log.service"
TIMER = "gpuwright-gpu-log.timer"
PROGRAM = f"{paths.PROGRAMS}/gpu_log.py"
SERVICE_FILE = f"/etc/systemd/system/{SERVICE}"
TIMER_FILE = f"/etc/systemd/system/{TIMER}"
FILES = (PROGRAM, SERVICE_FILE, TIMER_FILE)
SCRIPT = programs.Program(NAME, "programs.gpu_log", PROGRAM)

_TURNS = programs.Timed(
    "gpu.log",
    SERVICE,
    TIMER,
    purpose="the log is filled",
    failure="gave no sample",
    record=f", and so does the last line in {gpu_log.DIRECTORY}",
)

#: What its role changes.
TOUCHES = frozenset({"services"})


def wanted(context: Context) -> bool:
    return NAME in context.stack


def findings(context: Context) -> list[Finding]:
    if not context.runs_here or _TURNS.ticks(context.facts):
        return []
    return [Finding("configure", "no timer fills the log of the cards", files=list(FILES), services=[TIMER])]


def manages(context: Context) -> Manages:
    return Manages(files=FILES, services=[TIMER] if context.runs_here else [])


def inputs(context: Context) -> Mapping[str, object]:
    return {"days": context.stack["gpu_log"]["days"], "program": SCRIPT.digest()}


# The work of the role


def begin(context: Context, plan: Plan) -> Work:
    """The units, and the timer enabled and begun where the cards are."""
    service = _SERVICE.format(python=programs.python(context.facts), days=context.stack["gpu_log"]["days"])
    return {
        "files": [
            File(path=SERVICE_FILE, content=service, mode="0644"),
            File(path=TIMER_FILE, content=_TIMER, mode="0644"),
        ],
        "units": [Unit(name=TIMER, enabled=True, state="started")] if context.runs_here else [],
    }


STEPS: Mapping[str, Step] = {"begin": begin}

# LogLevelMax: systemd itself would tell journald three times a minute that all is well. TimeoutStopSec: what hangs in the kernel gets
# no signal, so nobody waits for it.
_SERVICE = f"""\
# Written by gpuwright (role gpu_log). A change here is overwritten by the next run.
[Unit]
Description=Log of the NVIDIA cards
Documentation=https://docs.nvidia.com/deploy/nvidia-smi/

[Service]
Type=oneshot
ExecStart={{python}} {PROGRAM} --days {{days}}
Nice=10
LogLevelMax=notice
LogsDirectory=gpuwright
TimeoutStartSec=45
TimeoutStopSec=5
UMask=0022
NoNewPrivileges=yes
PrivateTmp=yes
ProtectHome=yes
ProtectSystem=strict
"""

_TIMER = """\
# Written by gpuwright (role gpu_log). A change here is overwritten by the next run.
[Unit]
Description=Log of the NVIDIA cards, once a minute

[Timer]
OnCalendar=minutely
AccuracySec=1s

[Install]
WantedBy=timers.target
"""


def judge(view: View, stack: Stack) -> list[Check]:
    """The timer runs, and its last turn wrote a sample."""
    return [_TURNS.judge(view)] if NAME in stack and view.gpus else []


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=("gpu_log",),
    touches=TOUCHES,
    units=(SERVICE, TIMER),
    program=SCRIPT,
    outgrown=(programs.SAMPLER,),
    judge=judge,
    steps=STEPS,
)

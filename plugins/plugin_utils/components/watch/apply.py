# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node that watches itself: a timer runs the quick checks, looks whether all is as it was sealed, writes metrics and tells what changed.

The program is the collection's own, see module_utils/watch/. What it goes by is data that the last run left: the floors and ends of life
of the rules, and the meaning of the errors of the cards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.watch.settings import SCHEMA, Settings

from ...model import sections
from ...model.plan import Plan
from ...model.stack import Stack
from ...model.work import File, Unit, Work
from ...rules import Row, load_rules
from .. import programs
from ..base import Component, Context, Finding, Manages, Step
from ..nvidia_driver.resolve.branch import END_IS_NEAR
from ..view import View
from .model import Watch

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log_judge import Row as Meaning

NAME = "watch"
SERVICE = "gpuwright-watch.service"
TIMER = "gpuwright-watch.timer"
PROGRAM = f"{paths.PROGRAMS}/watch.py"
SCRIPT = programs.Program(NAME, "watch.program", PROGRAM)
SERVICE_FILE = f"/etc/systemd/system/{SERVICE}"
TIMER_FILE = f"/etc/systemd/system/{TIMER}"
#: Not the address of the webhook: no seal names a file with a secret.
FILES = (PROGRAM, paths.WATCH_SETTINGS, SERVICE_FILE, TIMER_FILE)
_TURNS = programs.Timed("watch.runs", SERVICE, TIMER, purpose="the node watches itself", failure="failed")

#: What its role changes.
TOUCHES = frozenset({"services"})


def wanted(context: Context) -> bool:
    return NAME in context.stack


def findings(context: Context) -> list[Finding]:
    if not _ticks_here(context) or _TURNS.ticks(context.facts):
        return []
    return [Finding("configure", "no timer watches the node", files=list(FILES), services=[TIMER])]


def _ticks_here(context: Context) -> bool:
    """Whether there is a node to watch: in an image that is being built the timer begins with the first boot."""
    wsl = context.facts["environment"]["kind"] == "wsl" and not context.provision_only
    return context.runs_here or wsl


def manages(context: Context) -> Manages:
    return Manages(files=FILES, services=[TIMER] if _ticks_here(context) else [])


def inputs(context: Context) -> Mapping[str, object]:
    """The wish, and what a newer collection brings besides: its program, and what the rules say."""
    written = hashlib.sha256(_settings(context.stack["watch"]).encode()).hexdigest()
    return {"minutes": context.stack["watch"]["minutes"], "settings": written, "program": SCRIPT.digest()}


# The work of the role


class Directory(TypedDict):
    """Where the metrics lie. ``ours``: below gpuwright's own directory, which others may then go through; another one is as its owner has
    it.
    """

    path: str
    ours: bool


class WatchWork(Work):
    """The work, with the directory of the metrics."""

    directory: Directory


def begin(context: Context, plan: Plan) -> WatchWork:
    """The settings, the units, and the timer enabled and begun where the cards are."""
    wished = context.stack["watch"]
    directory = wished["textfile_directory"]
    service = _service(wished, programs.python(context.facts))
    return {
        "directory": {"path": directory, "ours": directory == paths.METRICS},
        "files": [
            File(path=paths.WATCH_SETTINGS, content=_settings(wished), mode="0644"),
            File(path=SERVICE_FILE, content=service, mode="0644"),
            File(path=TIMER_FILE, content=_TIMER.format(minutes=wished["minutes"]), mode="0644"),
        ],
        "absent": _left_elsewhere(context.facts, directory),
        "units": [Unit(name=TIMER, enabled=True, state="started")] if _ticks_here(context) else [],
    }


STEPS: Mapping[str, Step] = {"begin": begin}


def _left_elsewhere(facts: Facts, directory: str) -> list[str]:
    """The metrics where an earlier wish had them: node_exporter would go on to read what gets old there."""
    earlier = sections.sealed_stack(facts, NAME).get("textfile_directory", directory)
    return [] if earlier == directory else [f"{earlier}/{paths.METRICS_FILE}"]


def _settings(wished: Watch) -> str:
    rules = load_rules()
    settings: Settings = {
        "schema": SCHEMA,
        "interval": wished["minutes"] * 60,
        "textfile_directory": wished["textfile_directory"],
        "proof_max_age": wished["proof_max_age"],
        "mail": wished["mail"],
        "smtp": wished["smtp"],
        "cards": {
            "count": wished["cards"]["count"],
            "names": wished["cards"]["names"],
            "ignore": wished["cards"]["ignore"],
            "pcie_lanes": wished["cards"]["pcie_lanes"],
        },
        "floors": [
            {"branch": row["branch"], "floor": row["floor"], "bulletin": row["bulletin"]}
            for row in rules["security"]["rows"]
            if row["component"] == "driver"
        ],
        "branches": [{"branch": row["branch"], "eol": row["eol"]} for row in rules["driver_branches"]["rows"]],
        "end_is_near": END_IS_NEAR.days,
        "xid": _meanings(rules["xid"]["rows"]),
        "sxid": _meanings(rules["sxid"]["rows"]),
    }
    return json.dumps(settings, indent=1, sort_keys=True) + "\n"


def _meanings(rows: Iterable[Row]) -> list[Meaning]:
    """What numbers of the kernel log mean, without where that was read."""
    return [
        {
            "codes": row["codes"],
            "meaning": row["meaning"],
            "severity": row["severity"],
            "action": row["action"],
            "remedy": row["remedy"],
        }
        for row in rows
    ]


def _service(wished: Watch, python: str) -> str:
    """The unit. Where a local sendmail takes the mail, it and what it starts write below /var and may go on after it; else nothing is
    written but what is ours.
    """
    by_sendmail = bool(wished["mail"]) and wished["smtp"] is None
    ours = f"ProtectSystem=strict\nReadWritePaths={paths.STATE} -{wished['textfile_directory']} {_RPM}"
    writes = "ProtectSystem=full\nKillMode=process" if by_sendmail else ours
    return _SERVICE.format(python=python, writes=writes)


#: Who asks rpm's database writes into it: a lock, or the index of its journal.
_RPM = "-/var/lib/rpm -/usr/lib/sysimage/rpm"
# LogLevelMax: systemd itself would tell journald three times a turn that all is well. What hangs in the kernel gets no signal, so nobody
# waits for it. ProtectHome is not "yes": an environment that is sealed may be in a home. No ProtectKernelLogs and no PrivateDevices: the
# errors of the cards are in that log, and nvidia-smi opens its devices. StartLimitIntervalSec: a turn is begun by the timer or by somebody,
# never by its own failure; systemd would refuse whoever asks for a sixth within ten seconds.
_SERVICE = f"""\
# Written by gpuwright (role watch). A change here is overwritten by the next run.
[Unit]
Description=Quick checks of a node with NVIDIA cards
Documentation=https://docs.nvidia.com/deploy/nvidia-smi/
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={{python}} -I {PROGRAM}
Nice=10
LogLevelMax=notice
TimeoutStartSec=300
TimeoutStopSec=5
UMask=0022
NoNewPrivileges=yes
PrivateTmp=yes
ProtectHome=read-only
{{writes}}
ProtectControlGroups=yes
ProtectKernelTunables=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
"""

# A turn of its own soon after the boot: by then the driver is loaded. Not all nodes of a fleet at the same moment.
_TIMER = """\
# Written by gpuwright (role watch). A change here is overwritten by the next run.
[Unit]
Description=Quick checks of a node with NVIDIA cards, every {minutes} minutes

[Timer]
OnBootSec=5min
OnUnitActiveSec={minutes}min
RandomizedDelaySec=30s
AccuracySec=10s

[Install]
WantedBy=timers.target
"""


def judge(view: View, stack: Stack) -> list[Check]:
    """The timer runs, and its last turn could be made."""
    return [_TURNS.judge(view)] if NAME in stack and view.gpus else []


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=("watch",),
    touches=TOUCHES,
    units=(SERVICE, TIMER),
    program=SCRIPT,
    judge=judge,
    steps=STEPS,
)

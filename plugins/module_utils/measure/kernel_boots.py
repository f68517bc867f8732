# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the journal has of the kernel log of earlier boots."""

from __future__ import annotations

from typing import List, Optional, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_faults, kernel_log
from ansible_collections.gpuwright.node.plugins.module_utils.measure.hardware_errors import Hardware
from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_faults import Fault
from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import EarlierLog, Event, Seen

#: Earlier boots that can be asked for.
MOST_BOOTS = 10
#: Errors, and faults, that are told of an earlier boot, and characters of each: a node's answer has a limit.
MOST_OF_BOOT = 50
_LONGEST = 300
#: The journal outlives a boot where this is a directory (Storage= in journald.conf(5)).
_KEPT = "/var/log/journal"


class Boot(TypedDict):
    """What an earlier boot told, as :func:`kernel_log.events` and :func:`kernel_faults.faults` do. ``boot``: -1 is the one before this."""

    boot: int
    lines: int
    events: List[Event]
    more: int
    faults: List[Fault]
    more_faults: int


class Journal(TypedDict):
    """The earlier boots. ``wanted``: how many were asked for; ``kept``: whether the journal outlives a boot; ``why``: why the next one
    could not be read, None where all were.
    """

    wanted: int
    kept: bool
    boots: List[Boot]
    why: Optional[str]


class Answer(Seen):
    """What the module kernel_log answers. ``since_boot``: whether the lines go back to the boot."""

    since_boot: bool
    faults: List[Fault]
    more_faults: int
    hardware: Hardware
    journal: Journal


def journal(wanted: int, logs: Sequence[EarlierLog], why: Optional[str], host: Host) -> Journal:
    """What the logs of the wanted earlier boots tell; ``logs`` and ``why`` as :func:`kernel_log.read_earlier` returns them."""
    return {"wanted": wanted, "kept": host.isdir(_KEPT), "boots": [_boot(log) for log in logs], "why": why}


def _boot(log: EarlierLog) -> Boot:
    numbered, told = kernel_log.events(log.lines), kernel_faults.faults(log.lines)
    events, faults = numbered["events"], told["faults"]
    for event in events:
        event["message"] = event["message"][:_LONGEST]
    for fault in faults:
        fault["message"] = fault["message"][:_LONGEST]
    return {
        "boot": log.boot,
        "lines": len(log.lines),
        "events": events[:MOST_OF_BOOT],
        "more": numbered["more"] + len(events[MOST_OF_BOOT:]),
        "faults": faults[:MOST_OF_BOOT],
        "more_faults": told["more_faults"] + len(faults[MOST_OF_BOOT:]),
    }

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The errors that NVIDIA's driver numbered in the kernel log since the boot: Xid of a card, SXid of an NVSwitch.

The log is read as dmesg or the journal shows it; what stands before the driver's own words (times, levels, a host's name) does not matter.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.run import Result, run

#: Lines of the journal that are read, its last ones.
MOST_LINES = 100_000
#: Distinct errors that are told apart; one is a number of one card.
MOST_EVENTS = 200

_DMESG = ("dmesg",)
_JOURNAL = (
    "journalctl",
    "--dmesg",
    "--boot",
    "--no-pager",
    "--quiet",
    "--output=short-monotonic",
    f"--lines={MOST_LINES}",
)
_SECONDS = 30.0
# A line of the kernel has at most 1,024 bytes of words.
_LINE = 2_000

_BOOTED = "Linux version "
_LOADED = "NVRM: loading NVIDIA UNIX"
_PLACE = r"(?:PCI:)?(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?"
# "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
_XID = re.compile(r"NVRM: Xid \(" + _PLACE + r"[^()]{0,40}\): ([0-9]{1,6})\b,?\s*(.*)")
# "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
_SXID = re.compile(r"nvidia-nvswitch[0-9]{1,3}: SXid \(" + _PLACE + r"\): ([0-9]{1,6})\b,?\s*(.*)")
# "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus." and, of very old drivers, "NVRM: GPU at 0000:01:00.0 has fallen off the bus."
_FALLEN = re.compile(r"NVRM: GPU (?:at )?" + _PLACE + r":? (?:GPU )?has fallen off the bus()(.*)")
_FALLEN_XID = 79
# An SXid goes on in lines with its registers, which are no error of their own.
_GOES_ON = re.compile(r"Severity \d|Data \{")
_FATAL = re.compile(r"(?<![-\w])Fatal\b")
# What a user called the program that met the error.
_NAME = re.compile(r"\bname=[^,]*")


class Log(NamedTuple):
    """What could be read of the kernel's log."""

    lines: List[str]
    whole: bool
    """Whether it goes back to the boot or to the loading of the driver; the kernel keeps no more than fits."""
    why: Optional[str]
    """Why nothing could be read; None where something was."""


def read(call: Callable[..., Result] = run) -> Log:
    """The log of this boot: dmesg, and where that does not go back far enough the journal; ``call`` is what runs programs."""
    lines, why = _lines(call(list(_DMESG), timeout=_SECONDS))
    if not _whole(lines):
        journal, _without = _lines(call(list(_JOURNAL), timeout=_SECONDS))
        if _whole(journal) or len(journal) > len(lines):
            lines = journal
    return Log(lines, _whole(lines), None if lines else why)


def _lines(answer: Result) -> Tuple[List[str], Optional[str]]:
    if not answer.ok:
        return [], (answer.error or answer.err.strip() or f"exit status {answer.rc}")[:300]
    return [line[:_LINE] for line in answer.out.split("\n") if line.strip()], None


def _whole(lines: Sequence[str]) -> bool:
    return any(_BOOTED in line for line in lines[:50]) or any(_LOADED in line for line in lines)


def events(lines: Sequence[str]) -> Dict[str, Any]:
    """The numbered errors of the log.

    Returns:
        ``events``: since the driver was loaded last, one for each number of each card, as ``{"kind": "xid"|"sxid", "code", "bus_id",
        "count", "fatal", "message"}``: how often it came, whether a line called it fatal, and the words of the last one.
        ``earlier``: how many errors came before, under a driver that is not the one that runs.
        ``more``: how many could not be told apart, beyond :data:`MOST_EVENTS`.
    """
    found: Dict[Tuple[str, int, str], Dict[str, Any]] = {}
    earlier = more = 0
    for line in lines:
        if _LOADED in line:
            earlier += more + sum(event["count"] for event in found.values())
            found, more = {}, 0
            continue
        event = _event(line)
        if event is None:
            continue
        key = (event["kind"], event["code"], event["bus_id"])
        known = found.get(key)
        if known is not None:
            known.update(count=known["count"] + 1, fatal=known["fatal"] or event["fatal"], message=event["message"])
        elif len(found) < MOST_EVENTS:
            found[key] = event
        else:
            more += 1
    return {"events": list(found.values()), "earlier": earlier, "more": more}


def _event(line: str) -> Optional[Dict[str, Any]]:
    """The error that one line tells of; None for any other line."""
    if "NVRM: " not in line and "SXid" not in line:
        return None
    sxid = _SXID.search(line)
    match = sxid or _XID.search(line) or _FALLEN.search(line)
    if match is None:
        return None
    domain, bus, device, function, code, message = match.groups()
    if sxid and _GOES_ON.match(message):
        return None
    return {
        "kind": "sxid" if sxid else "xid",
        "code": int(code or _FALLEN_XID),
        "bus_id": f"{int(domain or '0', 16):08X}:{bus.upper()}:{device.upper()}.{function or '0'}",
        "count": 1,
        "fatal": "Fatal" in message and _FATAL.search(_NAME.sub("", message)) is not None,
        "message": match.group(0).strip(),
    }

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The errors that NVIDIA's driver wrote into the kernel log since the boot: Xid of a card, SXid of an NVSwitch, and a card that it could
not start.

The log is read as dmesg or the journal shows it; what stands before the driver's own words (times, levels, a host's name) does not matter.
"""

from __future__ import annotations

import re
import time
from typing import Callable, Dict, List, Match, NamedTuple, Optional, Sequence, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result, run

#: Lines of the journal that are read, its last ones.
MOST_LINES = 100_000
#: Distinct errors that are told apart; one is a number of one card.
MOST_EVENTS = 200

_DMESG = ("dmesg",)
_SECONDS = 30.0
#: For all earlier boots together.
EARLIER_SECONDS = 120.0
# A line of the kernel has at most 1,024 bytes of words.
_LINE = 2_000

_BOOTED = "Linux version "
#: The driver says that it is loaded after it has looked at each card; before that it says that its part for NVLink begins.
LOADED = "NVRM: loading NVIDIA UNIX"
BEGINS = "Nvlink Core is being initialized"
# Seconds since the boot, as dmesg and the journal both write them.
_TIME = re.compile(r"\[ {0,8}([0-9]{1,12}\.[0-9]{1,6})\]")
_PLACE = r"(?:PCI:)?(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?"
# "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
_XID = re.compile(r"NVRM: Xid \(" + _PLACE + r"[^()]{0,40}\): ([0-9]{1,6})\b,?\s*(.*)")
# "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
_SXID = re.compile(r"nvidia-nvswitch[0-9]{1,3}: SXid \(" + _PLACE + r"\): ([0-9]{1,6})\b,?\s*(.*)")
# "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus." and, of very old drivers, "NVRM: GPU at 0000:01:00.0 has fallen off the bus."
_FALLEN = re.compile(r"NVRM: GPU (?:at )?" + _PLACE + r":? (?:GPU )?has fallen off the bus()(.*)")
_FALLEN_XID = 79
# Of a card that is gone when the driver comes, in up to four lines: "NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: (PCI ID: 10de:26b5)
# installed in this system has", "NVRM: fallen off the bus and is not responding to commands."
_REFUSED = re.compile(r"NVRM: The NVIDIA GPU " + _PLACE)
_OFF = "fallen off the bus"
# "NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned from rmStatus @ ..."
_LOST = "[NV_ERR_GPU_IS_LOST]"
_REFUSED_LINES = 4
# "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:1017)", and the same again: "NVRM: GPU 0000:02:00.0: rm_init_adapter failed,
# device minor number 0". Old drivers name no card.
_INIT = re.compile(
    r"NVRM: (?:GPU[ -](?:at )?" + _PLACE + r":? |GPU[0-9]{1,3}:? )?(RmInitAdapter|rm_init_adapter) failed\b(.*)"
)
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


def read(call: Callable[..., Result] = run, *, since_boot: bool = False) -> Log:
    """The log of this boot: dmesg, and where that does not go back far enough the journal.

    Args:
        call: what runs programs.
        since_boot: whether far enough is the boot; else the loading of the driver, whose errors are judged since then.
    """
    far_enough = reaches_boot if since_boot else _whole
    lines, why = _lines(call(list(_DMESG), timeout=_SECONDS))
    if not far_enough(lines):
        journal, _without = _lines(call(_journal(0), timeout=_SECONDS))
        lines = _joined(journal, lines)
    return Log(lines, _whole(lines), None if lines else why)


class EarlierLog(NamedTuple):
    """The log of an earlier boot."""

    boot: int
    """-1 is the boot before this one."""
    lines: List[str]


def read_earlier(
    boots: int, call: Callable[..., Result] = run, clock: Callable[[], float] = time.monotonic
) -> Tuple[List[EarlierLog], Optional[str]]:
    """The logs of so many earlier boots as the journal has, the newest first, and why the next one could not be read; None where all were.

    All together within :data:`EARLIER_SECONDS`.
    """
    found: List[EarlierLog] = []
    end = clock() + EARLIER_SECONDS
    for boot in range(-1, -boots - 1, -1):
        left = end - clock()
        if left <= 0:
            return found, f"reading the journal took longer than {EARLIER_SECONDS:g} s"
        lines, why = _lines(call(_journal(boot), timeout=min(_SECONDS, left)))
        if not lines:
            return found, why or "the journal has no line of the kernel of that boot"
        found.append(EarlierLog(boot, lines))
    return found, None


def _journal(boot: int) -> List[str]:
    return [
        *("journalctl", "--dmesg", f"--boot={boot}", "--no-pager", "--quiet", "--output=short-monotonic"),
        f"--lines={MOST_LINES}",
    ]


def _joined(journal: List[str], lines: List[str]) -> List[str]:
    """What the journal has of the time before dmesg's first line, then dmesg's: a journal that stopped lacks the newest lines."""
    begin = next((each for each in map(_TIME.match, lines) if each), None)
    if begin is None:
        # A kernel that writes no times (printk.time=0).
        return journal if len(journal) > len(lines) else lines
    older: List[str] = []
    for line in journal:
        time_of = _TIME.match(line)
        if time_of and float(time_of[1]) >= float(begin[1]):
            break
        older.append(line)
    return older + lines


def _lines(answer: Result) -> Tuple[List[str], Optional[str]]:
    if not answer.ok:
        return [], (answer.error or answer.err.strip() or f"exit status {answer.rc}")[:300]
    return [line[:_LINE] for line in answer.out.split("\n") if line.strip()], None


def reaches_boot(lines: Sequence[str]) -> bool:
    """Whether a log begins with the boot."""
    return any(_BOOTED in line for line in lines[:50])


def _whole(lines: Sequence[str]) -> bool:
    return reaches_boot(lines) or any(LOADED in line for line in lines)


class _Event(TypedDict):
    kind: str
    code: int
    bus_id: str
    count: int
    fatal: bool
    message: str


class Event(_Event, total=False):
    """An error of the log; ``again``: told by a line that only repeats it."""

    again: bool


class Events(TypedDict):
    """What :func:`events` returns."""

    events: List[Event]
    earlier: int
    more: int


class Seen(Events):
    """What the module kernel_log answers."""

    lines: int
    whole: bool
    why: Optional[str]


def events(lines: Sequence[str]) -> Events:
    """The numbered errors of the log.

    Returns:
        ``events``: since the driver was loaded last, one for each number of each card, as ``{"kind": "xid"|"sxid"|"init", "code",
        "bus_id", "count", "fatal", "message"}``: how often it came, whether a line called it fatal, and the words of the last one. A card
        that fell off the bus is Xid 79, whatever line says so; one that could not be started has no number (0). ``bus_id`` is empty where
        the driver does not name the card.
        ``earlier``: how many errors came before, under a driver that is not the one that runs.
        ``more``: how many could not be told apart, beyond :data:`MOST_EVENTS`.
    """
    found: Dict[Tuple[str, int, str], Event] = {}
    while_loading: Dict[Tuple[str, int, str], Event] = {}
    earlier = more = left = 0
    refused: Optional[Match[str]] = None
    for line in lines:
        if "NVRM: " in line:
            left = max(left - 1, 0)
            header = _REFUSED.search(line)
            refused, left = (header, _REFUSED_LINES) if header else (refused if left else None, left)
        if LOADED in line:
            earlier += more + sum(event["count"] for key, event in found.items() if key not in while_loading)
            found, while_loading, more = while_loading, {}, 0
            continue
        if BEGINS in line:
            while_loading = {}
        event = _event(line)
        gone = event is None
        event = event or _gone(line, refused)
        if event is None:
            continue
        key = (event["kind"], event["code"], event["bus_id"])
        known = found.get(key)
        again = event.pop("again", False)
        if gone and len(while_loading) < MOST_EVENTS:
            while_loading[key] = event
        if known is not None and again:
            continue
        if known is not None:
            known["count"] += 1
            known["fatal"] = known["fatal"] or event["fatal"]
            known["message"] = event["message"]
        elif len(found) < MOST_EVENTS:
            found[key] = event
        else:
            more += 1
    return {"events": _named(found), "earlier": earlier, "more": more}


def _named(found: Dict[Tuple[str, int, str], Event]) -> List[Event]:
    """The errors without a card that is lost and has no name, where another line names one."""
    lost = {key for key in found if key[:2] == ("xid", _FALLEN_XID)}
    return [event for key, event in found.items() if key not in lost or key[2] or len(lost) == 1]


def new_events(before: Sequence[Event], after: Sequence[Event]) -> List[Event]:
    """What came into the log between two readings of it: the errors of the second one, without how often the first one had them."""
    known = {(event["kind"], event["code"], event["bus_id"]): event["count"] for event in before}
    found: List[Event] = []
    for event in after:
        count = event["count"] - known.get((event["kind"], event["code"], event["bus_id"]), 0)
        if count > 0:
            found.append({**event, "count": count})
    return found


def _event(line: str) -> Optional[Event]:
    """The error that one line tells of; None for any other line."""
    if "NVRM: " not in line and "SXid" not in line:
        return None
    sxid = _SXID.search(line)
    match = sxid or _XID.search(line) or (_FALLEN.search(line) if _OFF in line else None)
    if match is None:
        return _not_started(line)
    domain, bus, device, function, code, message = match.groups()
    if sxid and _GOES_ON.match(message):
        return None
    return _made("sxid" if sxid else "xid", int(code or _FALLEN_XID), (domain, bus, device, function), match.group(0))


def _not_started(line: str) -> Optional[Event]:
    """A card that the driver could not start. The second line of it counts only where the log has lost the first."""
    match = _INIT.search(line) if " failed" in line else None
    if match is None:
        return None
    domain, bus, device, function, words, _rest = match.groups()
    event = _made("init", 0, (domain, bus, device, function), match.group(0))
    return event if words == "RmInitAdapter" else {**event, "again": True}


def _gone(line: str, refused: Optional[Match[str]]) -> Optional[Event]:
    """A card that is off the bus, by a line that does not name it itself; ``refused`` are the words before, which do."""
    found = line.find("NVRM: ")
    if found < 0 or (_OFF not in line and _LOST not in line):
        return None
    words = line[found:]
    if refused is None or _LOST in line:
        return _made("xid", _FALLEN_XID, (None, None, None, None), words)
    named = "" if refused.group(0) in words else refused.group(0) + " "
    return _made("xid", _FALLEN_XID, refused.groups(), named + words)


def _made(kind: str, code: int, place: Sequence[Optional[str]], message: str) -> Event:
    domain, bus, device, function = place
    return {
        "kind": kind,
        "code": code,
        "bus_id": f"{int(domain or '0', 16):08X}:{bus.upper()}:{device.upper()}.{function or '0'}"
        if bus and device
        else "",
        "count": 1,
        "fatal": _FATAL.search(_NAME.sub("", message)) is not None if "Fatal" in message else False,
        "message": message.strip(),
    }

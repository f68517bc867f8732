# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every card does at this moment, by one call of nvidia-smi. Imported by gpu_log.py, beside which it lies on a node.

Fields: `nvidia-smi --help-query-gpu`. A card that does not answer has a row that says so, and the others have theirs.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import re
import signal
import stat
import subprocess
import time
from typing import Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, TypedDict

# Python 3.8 runs this too: the aliases below are evaluated.
#: Arguments of nvidia-smi → exit status, what it said. Raises :class:`Hung`.
Runner = Callable[[Sequence[str]], Tuple[int, str]]


class Sample(TypedDict):
    """A card at one moment; ``None`` is what the card does not tell. ``memory_*`` in MiB, ``temperature`` in °C, ``power`` in W,
    ``utilization`` in percent. ``throttle``: the reasons for which its clocks are low, ``problem``: what it says instead of values.
    """

    index: Optional[int]
    name: Optional[str]
    uuid: Optional[str]
    utilization: Optional[float]
    memory_used: Optional[float]
    memory_total: Optional[float]
    temperature: Optional[float]
    power: Optional[float]
    power_limit: Optional[float]
    throttle: Optional[List[str]]
    problem: Optional[str]


class SampleError(Exception):
    """nvidia-smi gave no sample; the text is for a person."""


class Hung(SampleError):
    """nvidia-smi does not answer. ``pid`` and ``started`` (of /proc) of what cannot be killed either, None where it is gone."""

    def __init__(self, text: str, pid: Optional[int] = None, started: Optional[str] = None) -> None:
        super().__init__(text)
        self.pid = pid
        self.started = started


#: What is told of cards that are not asked, because the question would wake them: a laptop's battery pays for each.
ASLEEP = "every card sleeps (suspended at run time), and is not woken by a question"


class Asleep(SampleError):
    """Every card sleeps."""

    def __init__(self) -> None:
        super().__init__(ASLEEP)


NOT_LOADED = "no NVIDIA driver is loaded"
#: A loaded node with eight cards answers in less than two seconds; one that needs this long hangs in the driver.
SECONDS = 20
_KILLED_WITHIN = 2
_ROOT = 0
#: Seconds after which a process that only waited for a device has gone on.
_MOMENT = 0.2
_FIELDS = (
    "index",
    "name",
    "uuid",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "temperature.gpu",
    "power.draw",
    "power.limit",
)
#: Renamed in 535.54.03; both names work for a while (nvidia-smi's change log).
_REASONS, _OLD_REASONS = "clocks_event_reasons.active", "clocks_throttle_reasons.active"
_NO_SUCH_FIELD = "is not a valid field to query"
#: Bits of the mask, in NVIDIA's words (nvml.h, nvmlClocksEventReason*).
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
_PROBLEM = re.compile(r"^\[.*\]$")
#: Between the rows nvidia-smi says of a card that it is lost. Some drivers have a row of it as well.
_LOST = re.compile(r"^Unable to determine the device handle for (?:GPU ?)?(.*)$")
_NOT_TOLD = re.compile(r"^\[?(N/A|Not Supported|Requested functionality has been deprecated)\]?$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MOST_CARDS = 64
_LONGEST = 120
_DEVICES = "/sys/bus/pci/devices"
#: Vendor, and how the class of a card begins: VGA or 3D controller.
_NVIDIA, _DISPLAY = "0x10de", "0x03"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/wsl/lib"


def samples(smi: Runner) -> List[Sample]:
    """The cards, in nvidia-smi's order. Raises SampleError with what it says where it answers for none."""
    status, text = smi(_question(_REASONS))
    if status and _NO_SUCH_FIELD in text:
        status, text = smi(_question(_OLD_REASONS))
    rows = parse(text)
    if not rows:
        raise SampleError(_plain(text) or f"nvidia-smi ended with status {status} and said nothing")
    return rows


def look() -> List[Sample]:
    """The cards of this machine. Raises SampleError where no driver is loaded, Hung without asking where the kernel holds a call of
    anybody, or as :func:`samples` and :func:`run` say.
    """
    if not loaded():
        raise SampleError(NOT_LOADED)
    pid = held()
    if pid is not None:
        raise Hung("an nvidia-smi hangs in the kernel", pid, start_of(pid))
    return samples(run)


def _question(reasons: str) -> List[str]:
    return ["--query-gpu=" + ",".join((*_FIELDS, reasons)), "--format=csv,noheader,nounits"]


def parse(text: str) -> List[Sample]:
    """The rows of an answer, and of a card that is only told as lost between them a row that says so."""
    lines = text.splitlines()
    found: List[Sample] = []
    for cells in csv.reader(lines, skipinitialspace=True):
        if len(cells) == len(_FIELDS) + 1 and len(found) < _MOST_CARDS:
            found.append(_sample([_shown(cell) for cell in cells]))
    lost = [_shown(match.group(1)) for match in map(_LOST.match, lines) if match]
    told = sum(1 for sample in found if sample["problem"])
    return found + [_without_values(problem) for problem in lost[told : told + _MOST_CARDS - len(found)]]


def _shown(cell: str) -> str:
    return _CONTROL.sub(" ", cell).strip()[:_LONGEST]


def _without_values(problem: str) -> Sample:
    return {**_sample(["[N/A]"] * (len(_FIELDS) + 1)), "problem": problem}


def _sample(cells: Sequence[str]) -> Sample:
    problems = [cell for cell in cells if _PROBLEM.match(cell) and not _NOT_TOLD.match(cell)]
    index = _number(cells[0])
    return {
        "index": None if index is None else int(index),
        "name": _text(cells[1]),
        "uuid": _text(cells[2]),
        "utilization": _number(cells[3]),
        "memory_used": _number(cells[4]),
        "memory_total": _number(cells[5]),
        "temperature": _number(cells[6]),
        "power": _number(cells[7]),
        "power_limit": _number(cells[8]),
        "throttle": reasons_of(cells[9]),
        "problem": problems[0].strip("[]") if problems else None,
    }


def _text(cell: str) -> Optional[str]:
    return None if _PROBLEM.match(cell) or _NOT_TOLD.match(cell) else cell


def _number(cell: str) -> Optional[float]:
    return float(cell) if re.match(r"^\d{1,12}(\.\d{1,6})?$", cell) else None


def reasons_of(cell: str) -> Optional[List[str]]:
    """The names of a mask's bits; a bit that has none here is told as its number."""
    if not re.match(r"^0x[0-9a-fA-F]{1,16}$", cell):
        return None
    mask = int(cell, 16)
    named = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return named + ([hex(rest)] if rest else [])


def _plain(text: str) -> str:
    """What a program said, as one line."""
    return " ".join(_CONTROL.sub(" ", text).split())[:300]


def loaded() -> bool:
    """Whether the driver is there to be asked: nvidia-smi would load its module, which nobody asked for. Inside WSL there is none."""
    return any(map(os.path.exists, ("/proc/driver/nvidia/version", "/dev/dxg")))


def asleep(devices: str = _DEVICES) -> bool:
    """Whether the driver has cards, and each of them is suspended at run time (the kernel's runtime_status). One that cannot be read is
    not asleep.
    """
    states = [
        _line(f"{devices}/{name}/power/runtime_status")
        for name in (os.listdir(devices) if os.path.isdir(devices) else ())
        if _line(f"{devices}/{name}/vendor") == _NVIDIA
        and _line(f"{devices}/{name}/class").startswith(_DISPLAY)
        and os.path.basename(os.path.realpath(f"{devices}/{name}/driver")) == "nvidia"
    ]
    return bool(states) and all(state == "suspended" for state in states)


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().strip()
    except OSError:
        return ""


def run(arguments: Sequence[str], seconds: float = SECONDS) -> Tuple[int, str]:
    """Call nvidia-smi. Raises Asleep where that would wake every card, SampleError where it is not there, Hung where it does not answer: it
    is killed, and left alone where the kernel holds it.
    """
    if asleep():
        raise Asleep
    environment = {"PATH": _PATH, "LC_ALL": "C"}
    try:
        # No module is here that could be asked for run_command. A group of its own: what it started is killed with it.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            ["nvidia-smi", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        absent = error.errno in (errno.ENOENT, errno.ENOTDIR)
        raise SampleError("there is no nvidia-smi" if absent else f"nvidia-smi: {error.strerror}") from None
    try:
        said, _nothing = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise _hung(process, seconds) from None
    except BaseException:
        # Whoever asked is interrupted, and the group of its own is not.
        _kill(process)
        raise
    return process.returncode, said.decode("utf-8", "replace")


def _hung(process: subprocess.Popen[bytes], seconds: float) -> Hung:
    started = start_of(process.pid)
    text = f"nvidia-smi did not answer within {seconds:g} s"
    return Hung(text) if _kill(process) else Hung(text, process.pid, started)


def _kill(process: subprocess.Popen[bytes]) -> bool:
    """End a process and what it started; whether it is gone."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout:
        process.stdout.close()
    try:
        process.wait(_KILLED_WITHIN)
    except subprocess.TimeoutExpired:
        return False
    return True


def start_of(pid: int) -> Optional[str]:
    """When a process began, in ticks since the boot (proc(5), field 22 of stat); None where it is gone or has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if len(fields) < 20 or fields[0] in ("Z", "X") else fields[19]


def held(proc: str = "/proc") -> Optional[int]:
    """An nvidia-smi that sleeps in the kernel for longer than an answer takes, and a moment later too; None where there is none."""
    for pid in _sleeping(proc, filter(str.isdigit, os.listdir(proc))):
        time.sleep(_MOMENT)
        if list(_sleeping(proc, [pid])):
            return int(pid)
    return None


def _sleeping(proc: str, pids: Iterable[str]) -> Iterator[str]:
    """Those of the processes that are an nvidia-smi in uninterruptible sleep (D, proc(5)) and were begun long ago."""
    for pid in pids:
        try:
            with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as stream:
                begin, _bracket, rest = stream.read().rpartition(")")
            if not begin.endswith("(nvidia-smi") or rest.split()[0] != "D" or not _is_nvidias(f"{proc}/{pid}"):
                continue
            with open(f"{proc}/uptime", encoding="utf-8") as stream:
                uptime = float(stream.read().split()[0])
        except (OSError, ValueError, IndexError):
            continue
        if uptime - int(rest.split()[19]) / os.sysconf("SC_CLK_TCK") > SECONDS:
            yield pid


def _is_nvidias(process: str) -> bool:
    """Whether a process is the nvidia-smi that its name says: run by root or by who asks, or from a file of root's that nobody else may
    change. Any user may give any process that name.
    """
    try:
        if os.stat(process).st_uid in (_ROOT, os.geteuid()):
            return True
        program = os.stat(f"{process}/exe")
        named = os.path.basename(os.readlink(f"{process}/exe")) == "nvidia-smi"
    except OSError:
        return False
    return named and program.st_uid == _ROOT and not program.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def now() -> str:
    """The time in UTC, as ISO 8601 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

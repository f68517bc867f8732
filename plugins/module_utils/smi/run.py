# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run nvidia-smi: with a time limit, never beside a call that the kernel holds, and no question wakes cards that sleep."""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import Callable, Iterable, Iterator, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module

# Python 3.8 runs this too: the aliases below are evaluated.
#: Arguments of nvidia-smi → exit status, what it said. Raises :class:`Hung`.
Runner = Callable[[Sequence[str]], Tuple[int, str]]


class SmiError(Exception):
    """nvidia-smi gave no answer, or one that cannot be read; the text is a sentence for a person."""


class Hung(SmiError):
    """nvidia-smi does not answer. ``pid`` and ``started`` (of /proc) of what cannot be killed either, None where it is gone."""

    def __init__(self, text: str, pid: Optional[int] = None, started: Optional[str] = None) -> None:
        super().__init__(text)
        self.pid = pid
        self.started = started


#: What is told of cards that are not asked, because the question would wake them: a laptop's battery pays for each.
ASLEEP = "every card sleeps (suspended at run time), and is not woken by a question"


class Asleep(SmiError):
    """Every card sleeps."""

    def __init__(self) -> None:
        super().__init__(ASLEEP)


NOT_LOADED = "no NVIDIA driver is loaded"
#: A loaded node with eight cards answers in less than two seconds; one that needs this long hangs in the driver.
SECONDS = 20
#: What changes something may have to wait for the card.
_SECONDS_OF_A_CHANGE = 120
_ROOT = 0
#: Seconds after which a process that only waited for a device has gone on.
_MOMENT = 0.2
_DEVICES = "/sys/bus/pci/devices"
#: Vendor, and how the class of a card begins: VGA or 3D controller.
_NVIDIA, _DISPLAY = "0x10de", "0x03"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/wsl/lib"


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
    """Ask nvidia-smi. Raises Asleep where that would wake every card, and as :func:`change` does."""
    if asleep():
        raise Asleep
    return change(arguments, seconds)


def change(arguments: Sequence[str], seconds: float = _SECONDS_OF_A_CHANGE) -> Tuple[int, str]:
    """Have nvidia-smi do something; what it says on stderr stands behind the rest, not in the midst of it.

    Raises SmiError where it is not there, Hung where it does not answer: it is killed, and left alone where the kernel holds it.
    """
    done = run_module.run(["nvidia-smi", *arguments], timeout=seconds, env={"PATH": _PATH})
    if done.errno is not None:
        absent = done.errno in (errno.ENOENT, errno.ENOTDIR)
        raise SmiError("there is no nvidia-smi" if absent else f"nvidia-smi: {os.strerror(done.errno)}")
    if done.rc is None:
        started = None if done.pid is None else start_of(done.pid)
        raise Hung(f"nvidia-smi did not answer within {seconds:g} s", done.pid if started else None, started)
    return done.rc, done.out + done.err


def answered(smi: Runner, arguments: Sequence[str]) -> str:
    """What nvidia-smi says. Raises SmiError where it fails, and as the runner does."""
    status, text = smi(arguments)
    if status != 0:
        raise SmiError("nvidia-smi {} failed ({}): {}".format(" ".join(arguments), status, text.strip()))
    return text


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

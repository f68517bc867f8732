# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every card does at this moment, by one question to nvidia-smi for CSV.

Fields: `nvidia-smi --help-query-gpu`. A card that does not answer has a row that says so, and the others have theirs.
"""

from __future__ import annotations

import csv
import re
import time
from typing import List, Optional, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.smi import run
from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import Runner, SmiError


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


def samples(smi: Runner) -> List[Sample]:
    """The cards, in nvidia-smi's order. Raises SmiError with what it says where it answers for none."""
    status, text = smi(_question(_REASONS))
    if status and _NO_SUCH_FIELD in text:
        status, text = smi(_question(_OLD_REASONS))
    rows = parse(text)
    if not rows:
        raise SmiError(_plain(text) or f"nvidia-smi ended with status {status} and said nothing")
    return rows


def look() -> List[Sample]:
    """The cards of this machine. Raises SmiError where no driver is loaded, Hung without asking where the kernel holds a call of
    anybody, or as :func:`samples` and :func:`run.run` say.
    """
    if not run.loaded():
        raise SmiError(run.NOT_LOADED)
    pid = run.held()
    if pid is not None:
        raise run.Hung("an nvidia-smi hangs in the kernel", pid, run.start_of(pid))
    return samples(run.run)


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


def now() -> str:
    """The time in UTC, as ISO 8601 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

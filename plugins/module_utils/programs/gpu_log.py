# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Append what every card does to a log, a file of CSV for each day (UTC). A program of its own on the node, run once a minute by a timer.

    gpu_log.py --days 30

A day that is older than so many days is removed where so many newer ones were written: a clock that jumps takes no log with it. What is
not known stays empty; a minute without an answer has a row with its reason: a gap tells why it is there. A call of nvidia-smi that the
kernel holds is left alone, and no other one is begun beside it. Exit status: 0 written, or no driver is loaded that could be asked; 1 no
sample, or the log could not be written.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import os
import re
import sys
from typing import Callable, List, Optional, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.smi import run
from ansible_collections.gpuwright.node.plugins.module_utils.smi.csv import Sample, now, samples

DIRECTORY = "/var/log/gpuwright"
COLUMNS = (
    "timestamp",
    "index",
    "name",
    "uuid",
    "utilization.gpu [%]",
    "memory.used [MiB]",
    "memory.total [MiB]",
    "temperature.gpu [C]",
    "power.draw [W]",
    "clocks_event_reasons",
    "note",
)
NAME = re.compile(r"^gpu-(\d{4}-\d{2}-\d{2})\.csv$")


def name_of(day: str) -> str:
    """The file of a day such as 2026-11-27."""
    return f"gpu-{day}.csv"


def row(timestamp: str, sample: Sample) -> List[object]:
    """A card's line, in the order of COLUMNS."""
    reasons = sample["throttle"]
    values = [
        sample["index"],
        sample["name"],
        sample["uuid"],
        _number(sample["utilization"]),
        _number(sample["memory_used"]),
        _number(sample["memory_total"]),
        _number(sample["temperature"]),
        _number(sample["power"]),
        None if reasons is None else "+".join(reasons),
        sample["problem"],
    ]
    return [timestamp, *("" if value is None else value for value in values)]


def _noted(timestamp: str, note: str) -> List[object]:
    """The line of a minute without an answer."""
    return [timestamp, *[""] * (len(COLUMNS) - 2), note]


def _number(value: Optional[float]) -> Optional[str]:
    return None if value is None else f"{value:.15g}"


def append(directory: str, timestamp: str, rows: Sequence[Sequence[object]]) -> None:
    """Add lines to the file of their day, at once; a line that a cut left unfinished ends first. Raises OSError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(os.path.join(directory, name_of(timestamp[:10])), flags, 0o644)
    try:
        size = os.fstat(handle).st_size
        begun = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerows(rows if size else [COLUMNS, *rows])
        content = (b"\n" if begun else b"") + text.getvalue().encode()
        if os.write(handle, content) != len(content):
            raise OSError("the disk is full")
    finally:
        os.close(handle)


def tidy(directory: str, today: str, days: int) -> List[str]:
    """Remove the files of days before the last ``days``, and return their names. Nothing is one of them that is not called as they are.

    The newest ``days`` files up to today stay, however old they are.
    """
    oldest = str(_date(today) - dt.timedelta(days=days - 1))
    past = sorted(name for name in os.listdir(directory) if _day(name) and _day(name) <= today)
    gone = [name for name in past[:-days] if _day(name) < oldest]
    for name in gone:
        os.unlink(os.path.join(directory, name))
    return gone


def _day(name: str) -> str:
    found = NAME.match(name)
    return found.group(1) if found else ""


def _date(day: str) -> dt.date:
    year, month, date = (int(part) for part in day.split("-"))
    return dt.date(year, month, date)


def turn(
    directory: str,
    days: int,
    smi: run.Runner,
    clock: Callable[[], str],
    held: Callable[[], Optional[int]] = run.held,
) -> Optional[str]:
    """Ask, append, tidy; return why there is no sample. Raises OSError where the log cannot be written."""
    timestamp = clock()
    rows: List[List[object]] = []
    problem = None
    pid = held()
    if pid is not None:
        problem = f"nvidia-smi (process {pid}) hangs in the kernel"
    else:
        try:
            rows = [row(timestamp, sample) for sample in samples(smi)]
        except run.Asleep as error:
            rows = [_noted(timestamp, str(error))]
        except run.SmiError as error:
            problem = str(error)
    if problem is not None:
        rows = [_noted(timestamp, problem)]
    append(directory, timestamp, rows)
    tidy(directory, timestamp[:10], days)
    return problem


def main(
    arguments: Sequence[str],
    smi: run.Runner = run.run,
    directory: str = DIRECTORY,
    clock: Callable[[], str] = now,
    loaded: Callable[[], bool] = run.loaded,
) -> int:
    """One turn of the log; what went wrong is told as journald takes it, by its priority (sd-daemon(3))."""
    if len(arguments) != 2 or arguments[0] != "--days" or not re.match(r"^[1-9]\d{0,3}$", arguments[1]):
        sys.stderr.write("<3>expected --days and a number of days\n")
        return 1
    if not loaded():
        return 0
    try:
        problem = turn(directory, int(arguments[1]), smi, clock)
    except OSError as error:
        sys.stderr.write(f"<3>the log cannot be written: {error}\n")
        return 1
    if problem:
        sys.stderr.write(f"<4>no sample: {problem}\n")
    return 1 if problem else 0

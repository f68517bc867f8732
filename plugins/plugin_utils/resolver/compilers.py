# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a toolkit's nvcc compiles with: the newest gcc and the newest C library that it takes.

Programs that are compiled already run all the same, so nothing here forbids a toolkit that was asked for.
"""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base import dotted

from ..rules import Row, Rules
from .log import Log
from .situation import Situation


def compiles(cuda: str, situation: Situation, rules: Rules) -> bool:
    """Say whether a toolkit (12.8) compiles against the machine's C library: another one cannot be put beside it."""
    return not _glibc(cuda, situation, rules)


def warn(cuda: str, situation: Situation, system: Row, log: Log) -> None:
    """Warn where a toolkit does not compile with what the machine has, and say what does."""
    for limit in _glibc(cuda, situation, log.rules):
        text = f"CUDA {cuda} on glibc {situation.glibc}: {limit['text']}; programs that are already compiled run"
        first = next(
            (row["cuda"] for row in log.rules["cuda"]["compilers"] if _reaches(row, situation.glibc or "")), None
        )
        more = f", and CUDA from {first} on compiles" if first else ""
        log.warn("cuda.glibc", text + more, log.cite("systems", limit))
    row = limits(cuda, log.rules)
    gcc = _gcc(situation, system)
    if row is not None and row["gcc"] and not dotted.at_least(row["gcc"], gcc):
        text = f"the nvcc of CUDA {cuda} takes gcc up to {row['gcc']}, this machine has {gcc}: {instead(row, system, log.rules)}"
        log.warn("cuda.gcc", text, log.cite("cuda", row))


def instead(row: Row, system: Row, rules: Rules) -> str:
    """Return what a person can do: an older gcc of the system's archive beside the default one, or a newer toolkit."""
    older = [each for each in system["gcc_also"] if dotted.at_least(row["gcc"], each)]
    if older:
        best = max(older, key=dotted.key)
        return f"install gcc-{best} and g++-{best} beside it and compile with nvcc -ccbin g++-{best}"
    newer = [each for each in rules["cuda"]["compilers"] if dotted.at_least(each["gcc"] or "0", system["gcc"])]
    if newer:
        return f"use cuda={newer[0]['cuda']} or newer"
    return f"compile on a system whose gcc is not newer than {row['gcc']}"


def limits(cuda: str, rules: Rules) -> Row | None:
    """Return the row of a toolkit; for one that was not read the row of the one before it answers."""
    rows: list[Row] = rules["cuda"]["compilers"]  # oldest first, as a test holds them
    return next((row for row in reversed(rows) if dotted.at_least(cuda, row["cuda"])), None)


def _glibc(cuda: str, situation: Situation, rules: Rules) -> list[Row]:
    """Return the reasons why a toolkit does not compile against the machine's C library."""
    row = limits(cuda, rules)
    if not situation.glibc or row is None or _reaches(row, situation.glibc):
        return []
    reasons: list[Row] = rules["systems"]["glibc"]
    return [
        each
        for each in reasons
        if dotted.at_least(situation.glibc, each["glibc"]) and dotted.at_least(each["toolkit_up_to"], cuda)
    ]


def _reaches(row: Row, glibc: str) -> bool:
    return row["glibc"] is None or dotted.at_least(row["glibc"], ".".join(glibc.split(".")[:2]))


def _gcc(situation: Situation, system: Row) -> str:
    """Return the major version of the default gcc: the one that is there, else the one that the system would install."""
    return dotted.major(situation.gcc or system["gcc"])

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a toolkit's nvcc compiles with: the newest gcc and the newest C library that it takes.

Programs that are compiled already run all the same, so nothing here forbids a toolkit that was asked for.
"""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver.log import Log
from ....resolver.machine import Machine
from ....rules import Row, Rules


def warn(cuda: str, machine: Machine, system: Row, log: Log) -> list[str]:
    """Warn where a toolkit does not compile with what the machine has, and say what does; return what was said."""
    said = []
    for limit in glibc_limits(cuda, machine, log.rules):
        text = f"CUDA {cuda} on glibc {machine.glibc}: {limit['text']}; programs that are already compiled run"
        first = next(
            (row["cuda"] for row in log.rules["cuda"]["compilers"] if _reaches(row, machine.glibc or "")), None
        )
        more = f", and CUDA from {first} on compiles" if first else ""
        log.warn("cuda.glibc", text + more, log.cite("systems", limit))
        said.append(text + more)
    row, gcc = limits(cuda, log.rules), _gcc(machine, system)
    if row is not None and not _takes(row, gcc):
        text = f"the nvcc of CUDA {cuda} takes gcc up to {row['gcc']}, this machine has {gcc}: {instead(row, system, log.rules)}"
        log.warn("cuda.gcc", text, log.cite("cuda", row))
        said.append(text)
    return said


def host_compiler(cuda: str, machine: Machine, system: Row, rules: Rules) -> str | None:
    """Return the package of the system's C++ compiler; None where the toolkit does not take that one."""
    row = limits(cuda, rules)
    if row is not None and not _takes(row, _gcc(machine, system)):
        return None
    packages = [each["package"] for each in rules["cuda"]["host_compilers"] if each["family"] == system["family"]]
    return str(packages[0]) if packages else None


def instead(row: Row, system: Row, rules: Rules) -> str:
    """Return what a person can do: an older gcc of the system's archive beside the default one, or a newer toolkit."""
    older = [each for each in system["gcc_also"] if numeric_version.at_least(row["gcc"], each)]
    if older:
        best = max(older, key=numeric_version.key)
        return f"install gcc-{best} and g++-{best} beside it and compile with nvcc -ccbin g++-{best}"
    newer = [each for each in rules["cuda"]["compilers"] if numeric_version.at_least(each["gcc"] or "0", system["gcc"])]
    if newer:
        return f"use cuda={newer[0]['cuda']} or newer"
    return f"compile on a system whose gcc is not newer than {row['gcc']}"


def limits(cuda: str, rules: Rules) -> Row | None:
    """Return the row of a toolkit; for one that was not read the row of the one before it answers."""
    rows: list[Row] = rules["cuda"]["compilers"]  # oldest first, as a test holds them
    return next((row for row in reversed(rows) if numeric_version.at_least(cuda, row["cuda"])), None)


def glibc_limits(cuda: str, machine: Machine, rules: Rules) -> list[Row]:
    """Return the reasons why a toolkit does not compile against the machine's C library."""
    row = limits(cuda, rules)
    if not machine.glibc or row is None or _reaches(row, machine.glibc):
        return []
    reasons: list[Row] = rules["systems"]["glibc"]
    return [
        each
        for each in reasons
        if numeric_version.at_least(machine.glibc, each["glibc"])
        and numeric_version.at_least(each["toolkit_up_to"], cuda)
    ]


def _takes(row: Row, gcc: str) -> bool:
    return not row["gcc"] or numeric_version.at_least(row["gcc"], gcc)


def _reaches(row: Row, glibc: str) -> bool:
    return row["glibc"] is None or numeric_version.at_least(row["glibc"], ".".join(glibc.split(".")[:2]))


def _gcc(machine: Machine, system: Row) -> str:
    """Return the major version of the default gcc: the one that is there, else the one that the system would install."""
    return numeric_version.major(machine.gcc or system["gcc"])

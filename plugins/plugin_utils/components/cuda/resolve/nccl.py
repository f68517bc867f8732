# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NCCL as packages, for those who compile against it; wheels bring their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import part
from ....resolver.log import Log, Unresolved, conflict
from ....resolver.machine import Machine
from ....resolver.naming import component, names
from ....rules import Row, Rules, cite
from ....wish.wish import Wish
from ..model import Nccl
from .library_archive import Archives, Published


def choose(_machine: Machine, wish: Wish, system: Row, cuda_versions: Sequence[str], log: Log) -> Nccl:
    """Return version (None: the newest of the index), packages and the CUDA major they are built for. Raises Unresolved.

    One name serves all CUDA versions: the newest major version in use is the one that counts.
    """
    major = max((numeric_version.major(cuda) for cuda in cuda_versions), key=int)
    row = component("nccl", log.rules)
    version = wish.nccl_version
    if version:
        _check(version, major, log)
        log.decided("nccl.version", f"NCCL {version} for CUDA {major}: asked for", log.cite("packages", row))
    else:
        text = f"NCCL: the newest of the machine's package index that was built for CUDA {major}"
        log.decided("nccl.version", text, log.cite("packages", row))
    return {"version": version, "packages": names(row, system), "cuda": major}


def _check(version: str, major: str, log: Log) -> None:
    """Raise Unresolved where a version was never built for a CUDA major version."""
    rows: list[Row] = log.rules["libraries"]["nccl"]
    built = [row for row in rows if f"cu{major}" in row["variants"]]
    if any(row["version"] == version for row in built):
        return
    row = next((row for row in rows if row["version"] == version), None)
    if row is None:
        # What the tables do not reach is told before anything is chosen.
        raise Unresolved
    majors = ", ".join(variant.removeprefix("cu") for variant in row["variants"])
    text = f"NCCL {version} was built for CUDA {majors}, not for CUDA {major}"
    remedy = f"use nccl={built[-1]['version']}" if built else "leave NCCL out (frameworks bring their own)"
    raise Unresolved(conflict("nccl.cuda", text, log.cite("libraries", row), remedy))


def _published(rules: Rules) -> Iterator[Published]:
    for row in rules["libraries"]["nccl_archives"]:
        for arch in ("x86_64", "aarch64"):
            version = row["version"]
            place = f"v{version}/nccl_{version}-1+cuda{row['cuda']}_{arch}.txz"
            source = cite(rules, "libraries", row)
            yield Published(version, numeric_version.major(row["cuda"]), arch, place, row[arch], source)


def _serves(version: str, major: str, machine: Machine, rules: Rules) -> bool:
    built = [row for row in rules["libraries"]["nccl"] if row["version"] == version]
    return any(machine.arch in row["variants"].get(f"cu{major}", ()) for row in built)


ARCHIVES = Archives("nccl", "NCCL", "compat/libraries.yaml (nccl_archives)", "nvidia-redist-nccl", _published, _serves)
PART = part.library("nccl", "NCCL", lambda rules: rules["libraries"]["nccl"])

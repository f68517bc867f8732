# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The CUDA toolkit of a distribution's own archive: one version a release, in /usr, with the gcc that its nvcc takes.

compat/cuda.yaml (distro) has them. Its libraries depend on those of the driver as packages.
"""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver.log import DESIGN, Entry, Log, conflict, offered
from ....resolver.machine import Machine
from ....resolver.part import DISTRO
from ....rules import Row, Rules, cite
from ....wish.wish import Wish
from ..model import CudaToolkit
from ..wish import KEEP

#: Where its programs are: in /usr/bin, on everybody's PATH.
PATH = "/usr"
_INSTEAD = "use cuda-source=nvidia"
#: Sources of a driver whose libraries are packages.
_PACKAGED = ("nvidia", "distro")


def toolkit(os: str, rules: Rules) -> Row | None:
    """Return the row of a system's own toolkit; None where its archive has none."""
    rows: list[Row] = rules["cuda"]["distro"]
    return next((row for row in rows if row["os"] == os), None)


def version(os: str, rules: Rules) -> str | None:
    """Return the version of a system's own toolkit."""
    row = toolkit(os, rules)
    return str(row["cuda"]) if row else None


def release(os: str, rules: Rules) -> str | None:
    """Return its version with all numbers."""
    row = toolkit(os, rules)
    return str(row["release"]) if row and row["release"] else None


def components(os: str, rules: Rules) -> list[str]:
    """Return the components of the archive that the toolkit is in."""
    row = toolkit(os, rules)
    return list(row["components"]) if row else []


def obstacles(cuda: str, wanted: str | None, machine: Machine, wish: Wish, rules: Rules, *, fits: bool) -> list[Entry]:
    """Return why a toolkit (12.4) is not to be had from the distribution; ``wanted``: the version that was asked for, ``fits``: whether
    the one that is there serves driver and cards.
    """
    row = toolkit(machine.os, rules)
    if row is None:
        text = f"the archive of {machine.os} has no CUDA toolkit of its own"
        return [conflict("cuda.distro-none", text, "compat/cuda.yaml (distro)", _INSTEAD)]
    source = cite(rules, "cuda", row)
    if row["broken"]:
        text = f"the CUDA {row['cuda']} of the archive of {machine.os} is not served: {row['broken']}"
        return [conflict("cuda.distro-broken", text, source, _INSTEAD)]
    if machine.arch not in row["arch"]:
        text = f"no CUDA toolkit for {machine.arch} was seen in the archive of {machine.os}"
        return [conflict("cuda.distro-none", text, source, _INSTEAD)]
    return [*_version(cuda, wanted, row, machine, source, fits=fits), *_driver(machine, wish, source), *_places(wish)]


def _version(cuda: str, wanted: str | None, row: Row, machine: Machine, source: str, *, fits: bool) -> list[Entry]:
    """Return why a version is not the one of the archive."""
    entries = []
    asked = wanted or cuda
    if not (numeric_version.belongs(row["release"], asked) and cuda == row["cuda"]):
        text = f"the archive of {machine.os} has CUDA {row['release']} alone, not {asked}"
        remedy = f"use cuda={row['cuda']}" if fits else _INSTEAD
        entries.append(conflict("cuda.distro-version", text, source, remedy))
    elif f"cuda={cuda}" in machine.absent:
        text = f"the machine's package index has no {row['package']}{offered(machine.absent[f'cuda={cuda}'])}"
        entries.append(conflict("cuda.absent", text, "the machine's package index", _INSTEAD))
    return entries


def _driver(machine: Machine, wish: Wish, source: str) -> list[Entry]:
    """Return why the packages would bring a second driver: the libraries of the one in use are no packages."""
    file = wish.driver_source == "runfile" or (
        machine.driver_owner not in (None, "none", "packages") and wish.driver_source not in _PACKAGED
    )
    if not (file or machine.brings_own_driver):
        return []
    whose = "a file of NVIDIA's" if file else "another system"
    text = f"the distribution's toolkit depends on the driver's libraries as packages (libcuda1), and here they come from {whose}"
    return [conflict("cuda.distro-driver", text, source, f"{_INSTEAD}, whose toolkit depends on no driver")]


def _places(wish: Wish) -> list[Entry]:
    """Return why it cannot be where it is wished: there is one of it, in /usr."""
    asked = [
        name
        for name, is_asked in (
            ("cuda_default", wish.cuda_default not in (None, KEEP)),
            ("cuda_modulefiles", wish.cuda_modulefiles),
        )
        if is_asked
    ]
    text = "the distribution's toolkit is in /usr and on everybody's PATH: no link and no modulefile leads to it"
    remedy = f"leave {' and '.join(asked)} out, or {_INSTEAD}"
    return [conflict("cuda.distro-place", text, DESIGN, remedy)] if asked else []


def of_toolkit(cuda: str, mode: str | None, machine: Machine, log: Log) -> CudaToolkit:
    """Return the toolkit for which :func:`obstacles` has none."""
    row = toolkit(machine.os, log.rules) or {}
    text = (
        f"CUDA {cuda} comes from the archive of {machine.os} as {row['package']}: it is in /usr, and /usr/local/cuda is left alone; "
        "its packages bring the compiler that it takes"
    )
    log.decided("cuda.distro", text, log.cite("cuda", row))
    return {"version": cuda, "mode": mode, "packages": [str(row["package"])], "path": PATH, "source": DISTRO}

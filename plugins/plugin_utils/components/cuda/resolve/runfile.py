# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A CUDA toolkit as a file (.run), for systems whose repository lacks it: which release, from where, how it is called.

compat/cuda_runfile.yaml has the files and their checksums. A file is never run without one. The driver inside is never installed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import upstreams
from ....resolver.log import Entry, Unresolved, conflict
from ....resolver.machine import Machine
from ....rules import Row, Rules
from ....wish.wish import Wish
from ..model import ToolkitFile

_SOURCE = "compat/cuda_runfile.yaml"


def refuse_several(wanted: Sequence[str | None], wish: Wish) -> None:
    """Raise Unresolved where one file is given and several toolkits are wished."""
    if len(wanted) > 1 and (wish.cuda_runfile or wish.cuda_runfile_sha256):
        text = f"cuda_runfile and cuda_runfile_sha256 are of one file, and {len(wanted)} toolkits are wished"
        remedy = "wish that one toolkit, or releases whose checksum the rules have, without the two variables"
        raise Unresolved(conflict("cuda.runfile-several", text, "the wish", remedy))


def obstacles(cuda: str, wanted: str | None, machine: Machine, wish: Wish, system: Row, rules: Rules) -> list[Entry]:
    """Return why a toolkit (12.8) cannot come from a file; ``wanted``: the version that was asked for."""
    unserved = next((row for row in rules["cuda_runfile"]["unserved"] if row["os"] == machine.os), None)
    if unserved or not packages(system, rules):
        reason = unserved["reason"] if unserved else "what it needs is not known there"
        text = f"the installer of NVIDIA's file does not run on {machine.os}: {reason}"
        return [conflict("cuda.runfile-system", text, f"{_SOURCE} (unserved, tools)", "use cuda_source: nvidia")]
    release = _release(cuda, wanted, wish, machine, rules)
    if release is None:
        return [_no_checksum(wanted or cuda, machine, rules)]
    if not (wish.cuda_runfile or _driver(release, rules)):
        text = f"the name of NVIDIA's file of CUDA {release} is not known"
        remedy = "say where the file is: set cuda_runfile to its address, or to its path on the node"
        return [conflict("cuda.runfile-place", text, f"{_SOURCE} (files)", remedy)]
    return []


def of_toolkit(cuda: str, wanted: str | None, machine: Machine, wish: Wish, rules: Rules) -> ToolkitFile:
    """Return the file of a toolkit for which :func:`obstacles` has none."""
    release = str(_release(cuda, wanted, wish, machine, rules))
    driver = _driver(release, rules)
    place = next(str(row["path"]) for row in rules["cuda_runfile"]["places"] if row["arch"] == machine.arch)
    path = place.replace("{release}", release).replace("{driver}", driver or "")
    name = path.rpartition("/")[2] if driver else f"cuda_{release}_linux.run"
    address = wish.cuda_runfile or f"{upstreams.url('nvidia-cuda-runfile', wish, rules)}/{path}"
    row = _row(release, machine, rules)
    return {
        "name": name,
        "release": release,
        "addresses": [address],
        "sha256": wish.cuda_runfile_sha256 or str(row[machine.arch] if row else ""),
        "arguments": [argument for row in rules["cuda_runfile"]["arguments"] for argument in row["arguments"]],
    }


def packages(system: Row, rules: Rules) -> list[str]:
    """Return what the installer needs; nothing where that is not known for a system."""
    return next(
        (list(row["packages"]) for row in rules["cuda_runfile"]["tools"] if row["family"] == system["family"]), []
    )


def checked(machine: Machine, rules: Rules) -> list[str]:
    """Return the releases whose checksum the rules have, oldest first."""
    rows: list[Row] = rules["cuda_runfile"]["files"]
    return [row["release"] for row in rows if row.get(machine.arch)]


def _release(cuda: str, wanted: str | None, wish: Wish, machine: Machine, rules: Rules) -> str | None:
    """Return the release of a toolkit: with a checksum that is given, the one that was asked for with all its numbers, else the last one
    that the rules have a checksum of.
    """
    asked = wanted if wanted and len(numeric_version.key(wanted)) > 2 else None
    if wish.cuda_runfile_sha256:
        return asked
    known = [each for each in checked(machine, rules) if numeric_version.belongs(each, asked or cuda)]
    return max(known, key=numeric_version.key, default=None)


def _row(release: str, machine: Machine, rules: Rules) -> Row | None:
    rows: list[Row] = rules["cuda_runfile"]["files"]
    return next((row for row in rows if row["release"] == release and row.get(machine.arch)), None)


def _driver(release: str, rules: Rules) -> str | None:
    """Return the driver that stands in the name of a file."""
    rows = [*rules["cuda_runfile"]["files"], *rules["cuda"]["elsewhere"]]
    return next((str(row["driver"]) for row in rows if row["release"] == release), None)


def _no_checksum(wanted: str, machine: Machine, rules: Rules) -> Entry:
    text = f"no checksum is known of NVIDIA's file of CUDA {wanted}, and no file is run unseen"
    remedy = (
        "set cuda_runfile_sha256 to what `sha256sum` says of a file that you trust and name its release with all numbers, or ask for one "
        f"whose checksum the rules have: {', '.join(checked(machine, rules))}"
    )
    return conflict("cuda.runfile-checksum", text, f"{_SOURCE} (files)", remedy)

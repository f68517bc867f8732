# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's driver as a file (.run), for systems without a repository: which build, from where, how it is called.

compat/runfile.yaml has the arguments of the installer by branch. A file is never run without a checksum.
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import systems, upstreams
from ....resolver.log import Unresolved, conflict
from ....resolver.machine import Machine
from ....rules import Row, Rules
from ....wish.wish import Wish
from ..model import DriverNames
from .candidate import Candidate, within


def serves(branch: str, rules: Rules) -> bool:
    """Say whether the installer of a branch can be run without taking down what uses the cards."""
    rows = rules["runfile"]["arguments"]
    return any(row["when"] == "always" and within(branch, row) for row in rows)


def of_driver(
    candidate: Candidate, package_set: str, machine: Machine, wish: Wish, system: Row, rules: Rules
) -> DriverNames:
    """Return version, packages, pin, build, kernel_module, headers and runfile of a driver that a file brings.

    runfile: its name, its addresses in the order in which they are tried (or the path that was given), its SHA256 (None
    where this very build is there already), the arguments, and those that are added where nouveau is loaded or somebody
    has a desktop. Raises Unresolved where packages are in the way, a fabric manager is needed, or no checksum is known.
    """
    _refuse(machine)
    version = _version(candidate, machine, wish, rules)
    headers = systems.headers(machine, system, rules)
    tools = _tools(system, rules)
    name = f"NVIDIA-Linux-{machine.arch}-{version}.run"
    always = ("always", candidate.modules, *(["compute"] if package_set == "compute" else []))
    return {
        "version": version,
        "packages": [headers, *tools],
        "pin": {},
        "build": "dkms",
        "kernel_module": "nvidia",
        "headers": headers,
        "runfile": {
            "name": name,
            "addresses": _addresses(version, machine, wish, rules),
            "sha256": _checksum(version, machine, wish, rules),
            "arguments": _arguments(candidate.branch, always, rules),
            "with_nouveau": _arguments(candidate.branch, ("nouveau",), rules),
            "with_session": _arguments(candidate.branch, ("session",), rules),
        },
    }


def displaced(machine: Machine, wish: Wish, source: str) -> str | None:
    """Return the version of an installation by a .run file that packages take the place of; None where there is none.

    Only where another source was asked for by name: what another owner installed is not swapped unasked.
    """
    if machine.driver_owner != "runfile" or source == "runfile" or not wish.driver_source:
        return None
    return machine.driver.version if machine.driver else "unknown"


def _refuse(machine: Machine) -> None:
    if machine.driver_owner == "packages":
        text = f"packages of {machine.driver_source or 'an unknown source'} have a driver here; a .run file would write over their files"
        remedy = "remove them first, or use driver-source=nvidia or driver-source=distro"
        raise Unresolved(conflict("driver.runfile-packages", text, "the machine's facts", remedy))
    if machine.nvswitch:
        text = (
            "the machine has NVSwitches, and the .run file brings no fabric manager: CUDA would not start (error 802)"
        )
        raise Unresolved(
            conflict("driver.runfile-fabric", text, "compat/packages.yaml (fabric_manager)", "use driver-source=nvidia")
        )


def _tools(system: Row, rules: Rules) -> list[str]:
    for row in rules["runfile"]["tools"]:
        if row["family"] == system["family"]:
            return list(row["packages"])
    text = f"what the installer of a .run file compiles with is not known for {system['os']}"
    remedy = "use driver-source=nvidia or driver-source=distro"
    raise Unresolved(conflict("driver.runfile-tools", text, "compat/runfile.yaml (tools)", remedy))


def _version(candidate: Candidate, machine: Machine, wish: Wish, rules: Rules) -> str:
    """Return the build: the one that was asked for, the one that is in force (an upgrade: the newest that has a checksum), else the
    newest that the rules know.
    """
    if wish.driver_version:
        return wish.driver_version
    kept = machine.kept
    version = kept["version"] if kept and kept["source"] == "runfile" and not kept["adopted"] else None
    if (
        version
        and numeric_version.major(version) == candidate.branch
        and numeric_version.at_least(version, candidate.minimum or version)
    ):
        return (
            max(_checked(candidate.branch, machine, rules), str(version), key=numeric_version.key)
            if machine.moves
            else str(version)
        )
    return str(candidate.row["latest"])


def _checked(branch: str, machine: Machine, rules: Rules) -> str:
    """Return the newest build of a branch whose checksum the rules have; "0" where they have none."""
    rows = [row["version"] for row in rules["runfile"]["checksums"] if row["arch"] == machine.arch]
    return max(
        (version for version in rows if numeric_version.major(version) == branch), key=numeric_version.key, default="0"
    )


def _addresses(version: str, machine: Machine, wish: Wish, rules: Rules) -> list[str]:
    if wish.driver_runfile:
        return [wish.driver_runfile]
    base = upstreams.url("nvidia-runfile", wish, rules)
    places = (row["path"] for row in rules["runfile"]["places"])
    return [f"{base}/{place.replace('{version}', version).replace('{arch}', machine.arch)}" for place in places]


def _checksum(version: str, machine: Machine, wish: Wish, rules: Rules) -> str | None:
    if wish.driver_runfile_sha256:
        return wish.driver_runfile_sha256
    for row in rules["runfile"]["checksums"]:
        if (row["version"], row["arch"]) == (version, machine.arch):
            return str(row["sha256"])
    kept = machine.kept.get("runfile") if machine.kept else None
    if machine.kept and kept and kept["sha256"] and machine.kept["version"] == version:
        return str(kept["sha256"])
    if machine.driver_owner == "runfile" and machine.driver and machine.driver.version == version:
        return None
    known = [row["version"] for row in rules["runfile"]["checksums"] if row["arch"] == machine.arch]
    text = f"no checksum is known of NVIDIA-Linux-{machine.arch}-{version}.run, and no file is run unseen"
    remedy = (
        "set nvidia_driver_runfile_sha256 to what `sha256sum` says of a file that you trust (NVIDIA's page of the driver shows it"
        f" too), or ask for a build whose checksum the rules have: {', '.join(known) or 'none for this processor'}"
    )
    raise Unresolved(conflict("driver.runfile-checksum", text, "compat/runfile.yaml (checksums)", remedy))


def _arguments(branch: str, when: Iterable[str], rules: Rules) -> list[str]:
    rows = [row for row in rules["runfile"]["arguments"] if row["when"] in when and within(branch, row)]
    return [argument for row in rows for argument in row["arguments"]]

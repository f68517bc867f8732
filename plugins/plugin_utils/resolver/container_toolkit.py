# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NVIDIA container toolkit and the container engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..model.stack import ContainerToolkit, Engine, Specified, Stack
from ..rules import Row, Rules
from ..wish import Wish
from .log import Log
from .machine import Machine
from .part import TOOLKIT_SOURCE, Part

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack


def choose(machine: Machine, wish: Wish, system: Row, driver: DriverStack | None, log: Log) -> ContainerToolkit:
    """Return version_spec, packages and engine."""
    table = log.rules["container_toolkit"]
    floor = _floor(system, driver, table["floors"])
    asked = wish.container_toolkit_version
    if asked:
        exact = len(numeric_version.key(asked)) > 2
        spec = f"=={asked}" if exact else f"=={asked}.*"
        log.decided("container-toolkit.version", f"container toolkit {asked}: asked for", "the wish")
        if exact:
            _warn_of(asked, floor, log)
    else:
        spec = f">={floor['version']}"
        text = f"container toolkit from {floor['version']} on: {floor['text']}"
        log.decided("container-toolkit.version", text, log.cite("container_toolkit", floor))
    if system.get("podman") and not machine.docker:
        engine: Engine = {"name": "podman", "packages": list(system["podman"])}
        text = f"podman, which hands cards to containers by CDI: {system['name']} has no Docker of its own, and none is there"
        log.decided("container-toolkit.engine", text, log.cite("systems", system))
    else:
        engine = {"name": "docker", "packages": _engine(machine, system)}
        _warn_of_engine(machine, system, log)
    return {"version_spec": spec, "packages": list(table["packages"][0]["names"]), "engine": engine}


def _engine(machine: Machine, system: Row) -> list[str]:
    """Return the distribution's engine; none of it where another engine (docker-ce, a binary) is there and is kept.

    A half-installed engine of the distribution is still its own: what a cut run left out is named again.
    """
    packages: list[str] = list(system["docker"])
    ours = bool(set(packages) & set(machine.installed or {}))
    return packages if ours or not machine.docker else []


def _floor(system: Row, driver: DriverStack | None, floors: list[Row]) -> Row:
    from_distro = driver is not None and driver["source"] == "distro" and system["family"] == "debian"
    rows = [row for row in floors if row["when"] == "always" or (row["when"] == "debian-distro-driver" and from_distro)]
    return max(rows, key=lambda row: numeric_version.key(row["version"]))


def _warn_of(asked: str, floor: Row, log: Log) -> None:
    if not numeric_version.at_least(asked, floor["version"]):
        text = f"container toolkit {asked} is older than {floor['version']}: {floor['text']}"
        log.warn("container-toolkit.floor", text, log.cite("container_toolkit", floor))
    rows = log.rules["container_toolkit"]["rows"]
    row = next((each for each in rows if each["version"] == asked), None)
    if row and row.get("bad"):
        log.warn("container-toolkit.bad", f"container toolkit {asked} {row['bad']}", log.cite("container_toolkit", row))


def _warn_of_engine(machine: Machine, system: Row, log: Log) -> None:
    version = machine.docker if machine.docker not in (None, "unknown") else system["docker_version"]
    row = next(each for each in log.rules["container_toolkit"]["engines"] if each["engine"] == "docker")
    if version and not numeric_version.at_least(version, row["version"]):
        text = f"docker {version} is older than {row['version']}, which {row['needs']}: use the nvidia runtime, not CDI"
        log.warn("container-toolkit.engine", text, log.cite("container_toolkit", row))


def _wants(toolkit: Specified) -> Iterator[str]:
    yield f"container-toolkit={toolkit['version_spec'].removeprefix('==')}"


def _exactly(toolkit: ContainerToolkit, _stack: Stack, _machine: Machine, rules: Rules) -> ContainerToolkit:
    return {**toolkit, "version_spec": f"=={_version(toolkit['version_spec'], rules)}"}


def _version(specifier: str, rules: Rules) -> str:
    """Return the version that a specifier names, or the newest good one that it allows."""
    asked = specifier.lstrip("=>")
    if specifier.startswith("==") and not specifier.endswith("*"):
        return asked
    rows = [row for row in rules["container_toolkit"]["rows"] if row["confirmed"] and not row.get("bad")]
    if specifier.startswith("=="):
        rows = [row for row in rows if numeric_version.belongs(row["version"], asked.removesuffix(".*"))]
    else:
        rows = [row for row in rows if numeric_version.at_least(row["version"], asked)]
    return max((row["version"] for row in rows), key=numeric_version.key, default=asked.removesuffix(".*"))


PART = Part(
    "container_toolkit",
    "container toolkit",
    {"version_spec": str, "packages": [str]},
    _wants,
    _exactly,
    version_key="version_spec",
    source=TOOLKIT_SOURCE,
    left_out=("jetson", "container"),
)

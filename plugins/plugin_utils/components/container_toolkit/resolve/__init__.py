# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NVIDIA container toolkit and the container engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....model.stack import Stack
from ....resolver.log import Log, Unresolved, conflict
from ....resolver.machine import Machine
from ....resolver.part import TOOLKIT_SOURCE, Part, Place
from ....rules import Row, Rules
from ....wish.wish import Wish
from ..model import ContainerToolkit, Engine, Specified
from . import docker_repository, elsewhere, podman, rootless
from .docker_repository import packages_of, removal

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack


_NEWER = "1.19.1"
_INSTALL_DOCKER = "install Docker first, what is there is used, and use container-engine=docker"


def choose(machine: Machine, wish: Wish, system: Row, driver: DriverStack | None, log: Log) -> ContainerToolkit:
    """Return version_spec, packages and engine. Raises Unresolved."""
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
    engine = _engine(machine, wish, system, log)
    if engine["name"] == "podman" and _writes_newer(spec):
        _refuse_old_podman(machine, system, log)
    _warn_of_engine(machine, system, engine["name"], log)
    _warn_of_before(machine, system, log)
    found: ContainerToolkit = {
        "version_spec": spec,
        "packages": list(table["packages"][0]["names"]),
        "engine": engine,
    }
    of_users = rootless.choose(machine, wish, system, log)
    return {**found, "rootless": of_users} if of_users else found


def _writes_newer(spec: str) -> bool:
    """Say whether the toolkit that comes writes specifications that only newer engines read: from 1.19.1 on, or an unnamed later one."""
    asked = spec.lstrip("=>").removesuffix(".*")
    return (
        not spec.startswith("==") or numeric_version.at_least(asked, _NEWER) or numeric_version.belongs(_NEWER, asked)
    )


def _refuse_old_podman(machine: Machine, system: Row, log: Log) -> None:
    """Raise Unresolved where Podman hands the cards on and does not read what the toolkit writes, whoever named it."""
    old = podman.too_old(machine, system, log.rules)
    if old is None:
        return
    docker = "use container-engine=docker" if machine.docker or system["docker"] else _INSTALL_DOCKER
    remedy = f"{docker}; or install a newer Podman first; or name what you want without container-toolkit (--want driver, for example)"
    raise Unresolved(conflict("container-toolkit.engine", *old, remedy))


def _engine(machine: Machine, wish: Wish, system: Row, log: Log) -> Engine:
    """Return the engine that is asked for, or the one that is there, or the system's own. Raises Unresolved."""
    asked = wish.container_toolkit_engine
    if asked:
        log.decided("container-toolkit.engine", f"{asked}: asked for", "the wish")
        name = asked
    elif wish.container_toolkit_engine_source == docker_repository.DOCKER:
        log.decided("container-toolkit.engine", "docker: its own repository is asked for", "the wish")
        name = "docker"
    else:
        name = _found(machine, system, log)
    elsewhere.refuse(name, machine, wish, system, log)
    if name == "containerd" and machine.containerd and not machine.containerd.cri:
        text = (
            "containerd serves no Kubernetes here: disabled_plugins of /etc/containerd/config.toml names its part cri"
        )
        raise Unresolved(
            conflict(
                "container-toolkit.cri",
                text,
                "the machine",
                "take cri out of that list, or use container-engine=docker",
            )
        )
    engine = _sourced(name, machine, wish, system, log)
    settings = dict(wish.container_toolkit_docker)
    if settings:
        _check_settings(settings, name, _version_of(name, machine, system), log)
        log.decided("container-toolkit.settings", f"Docker's {', '.join(settings)}: asked for", "the wish")
        engine["settings"] = settings
    return engine


def _sourced(name: str, machine: Machine, wish: Wish, system: Row, log: Log) -> Engine:
    """Return an engine with its packages, from the place that is asked for. Raises Unresolved."""
    source = wish.container_toolkit_engine_source
    if source == docker_repository.DOCKER:
        own = docker_repository.packages(name, machine, system, log)
        return {"name": name, "packages": own, "source": docker_repository.DOCKER}
    if source and name == "docker":
        docker_repository.refuse_in_place_of(machine, system)
    return {"name": name, "packages": _packages(name, machine, system, log)}


def _check_settings(settings: Mapping[str, object], engine: str, version: str | None, log: Log) -> None:
    """Raise Unresolved where settings of Docker are asked for and the engine is another one, or a Docker that does not start with them."""
    if engine != "docker":
        text = f"container_toolkit_docker has settings of Docker ({', '.join(settings)}), and the engine is {engine}"
        remedy = "take container_toolkit_docker away, or use container-engine=docker"
        raise Unresolved(conflict("container-toolkit.settings", text, "the wish", remedy))
    for row in log.rules["container_toolkit"]["settings"]:
        if row["key"] in settings and version and not numeric_version.at_least(version, row["version"]):
            text = f"docker {version} does not start with the setting {row['key']}, which came with {row['version']}"
            remedy = f"take {row['key']} out of container_toolkit_docker: {row['instead']}"
            source = log.cite("container_toolkit", row)
            raise Unresolved(conflict("container-toolkit.settings", text, source, remedy))


def _found(machine: Machine, system: Row, log: Log) -> str:
    """Return the engine of a machine of which nobody asks for one. What is there is used, never another put beside it."""
    serves = machine.containerd is not None and machine.containerd.active and machine.containerd.cri
    if serves and not machine.docker and not _ours(machine, system):
        log.decided("container-toolkit.engine", "containerd: it is at work here, and no Docker is there", "the machine")
        return "containerd"
    if system.get("podman") and not machine.docker:
        text = f"podman, which hands cards to containers by CDI: {system['name']} has no Docker of its own, and none is there"
        log.decided("container-toolkit.engine", text, log.cite("systems", system))
        return "podman"
    return "docker"


def _ours(machine: Machine, system: Row) -> bool:
    """Say whether the distribution's Docker is there, as far as a cut run came: what is left out of it is named again."""
    return bool(set(system["docker"]) & set(machine.installed or {}))


def _packages(name: str, machine: Machine, system: Row, log: Log) -> list[str]:
    """Return the distribution's packages of an engine; none of them where another one (docker-ce, a binary) is there and is kept."""
    packages: list[str] = list(_of_system(name, system))
    there = {"docker": machine.docker, "containerd": machine.containerd}.get(name)
    if set(packages) & set(machine.installed or {}) or not there:
        if packages or name in (machine.installed or {}):
            return packages
        text = f"{system['name']} has no {name} of its own, and none is there"
        others = [each for each in ("docker", "podman", "containerd") if _of_system(each, system)]
        remedy = f"use container-engine={others[0]}, or install {name} first: what is there is used"
        beside = docker_repository.conflicting(machine, log) if name == docker_repository.DOCKER else {}
        if beside:
            text += "".join(f"; Docker's own {package} does not come beside {each}" for each, package in beside.items())
            remedy += f"; before that {removal(system, list(beside))}, with what hangs on it"
        raise Unresolved(conflict("container-toolkit.engine", text, log.cite("systems", system), remedy))
    return []


def _of_system(name: str, system: Row) -> list[str]:
    """Return the packages of an engine that a system has: its own one, or one on wish."""
    return list(system.get(name) or (system.get("engines") or {}).get(name) or ())


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


def _warn_of_engine(machine: Machine, system: Row, engine: str, log: Log) -> None:
    """Tell of an engine that is too old for CDI as the toolkit writes it."""
    row = next(each for each in log.rules["container_toolkit"]["engines"] if each["engine"] == engine)
    version = _version_of(engine, machine, system)
    if version and not numeric_version.at_least(version, row["version"]):
        text = (
            f"{engine} {version} is older than {row['version']}, which {row['needs']}: use the nvidia runtime, not CDI"
        )
        log.warn("container-toolkit.engine", text, log.cite("container_toolkit", row))


def _warn_of_before(machine: Machine, system: Row, log: Log) -> None:
    """Tell of packages whose place the toolkit takes, before the package manager removes them or stumbles over them."""
    installed = packages_of(machine)
    rows = [
        row
        for row in log.rules["container_toolkit"]["before"]
        if row["name"] in installed
        and numeric_version.at_least(row["until"], numeric_version.upstream(installed[row["name"]]))
    ]
    if not rows:
        return
    names = [row["name"] for row in rows]
    told = ", ".join(f"{name} {installed[name]}" for name in names)
    text = (
        f"{told} of before {'is' if len(names) == 1 else 'are'} here ({'; '.join(dict.fromkeys(row['why'] for row in rows))}): "
        f"nvidia-container-toolkit takes the place. What to do: {removal(system, names)}, or allow it with --allow-remove NAME"
    )
    log.warn("container-toolkit.before", text, log.cite("container_toolkit", rows[0]))


def _version_of(engine: str, machine: Machine, system: Row) -> str | None:
    if engine == "containerd":
        return machine.containerd.version if machine.containerd else None
    if engine == "docker":
        version: str | None = machine.docker if machine.docker not in (None, "unknown") else system["docker_version"]
        return version
    return None


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


def _places(toolkit: ContainerToolkit, machine: Machine, wish: Wish, system: Row, log: Log) -> list[Place]:
    """Return the package source of the engine where it is Docker's own."""
    own = toolkit["engine"].get("source") == docker_repository.DOCKER
    return [docker_repository.place(machine, wish, system, log)] if own else []


PART = Part(
    "container_toolkit",
    "container toolkit",
    _wants,
    _exactly,
    version_key="version_spec",
    source=TOOLKIT_SOURCE,
    places=_places,
    left_out=("jetson", "container"),
)

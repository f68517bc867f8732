# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Docker's own package repository: which systems it serves, what comes from it, and what its packages cannot be beside."""

from __future__ import annotations

from collections.abc import Mapping

from ....resolver import keys, upstreams
from ....resolver.log import Log, Unresolved, conflict
from ....resolver.machine import Machine
from ....resolver.naming import RPM_FAMILY
from ....resolver.part import Place
from ....rules import Row, Rules
from ....wish.wish import Wish

#: The source of an engine as it is wished, and the names of the upstream and of the package source.
DOCKER = "docker"
_ENGINE = "docker-ce"
_USE = "leave container-engine-source away: the engine that is there is used as it is"


def packages(engine: str, machine: Machine, system: Row, log: Log) -> list[str]:
    """Return the engine's packages where they are asked for from here. Raises Unresolved where they cannot come, or something is there
    that they would take the place of.
    """
    if engine != DOCKER:
        text = f"Docker's own repository is asked for and has Docker alone, and the engine is {engine}"
        remedy = "take container-engine-source away, or use container-engine=docker"
        raise Unresolved(conflict("container-toolkit.engine-source", text, "the wish", remedy))
    row = _row(system, log.rules)
    if row is None:
        text = f"Docker's own repository is not known to have packages for {system['name']}"
        served = ", ".join(each for row in _rows(log.rules) for each in row["os"])
        remedy = f"leave container-engine-source away; it serves {served}"
        raise Unresolved(
            conflict(
                "container-toolkit.engine-source", text, "compat/container_toolkit.yaml (docker_repositories)", remedy
            )
        )
    _refuse_others(machine, system, log)
    log.decided("container-toolkit.engine-source", "Docker's own repository: asked for", "the wish")
    return list(row["packages"])


def refuse_in_place_of(machine: Machine, system: Row) -> None:
    """Raise Unresolved where the distribution's Docker is asked for and Docker's own is there."""
    if _ENGINE not in packages_of(machine):
        return
    text = f"the Docker of {system['name']} is asked for, and Docker's own is there ({_ENGINE}), which is used and never replaced"
    raise Unresolved(
        conflict("container-toolkit.engine-source", text, "the machine", f"{_USE}; or {_by_hand(system, [_ENGINE])}")
    )


def place(machine: Machine, wish: Wish, system: Row, log: Log) -> Place:
    """Return where the repository of a system is that it serves."""
    row = _row(system, log.rules) or {}
    key = keys.by_id(row["key"], log.rules)
    fingerprint = keys.fingerprint(DOCKER, wish, key)
    base = f"{upstreams.url(DOCKER, wish, log.rules)}/{row['directory']}"
    text = f"Docker's own repository, signed by {fingerprint}"
    log.decided("repository.docker", text, log.cite("container_toolkit", row))
    rpm = system["family"] == RPM_FAMILY
    return Place(
        name=DOCKER,
        uri=f"{base}/{system['version']}/{machine.arch}/stable/" if rpm else base,
        suites=[] if rpm else [system["codename"]],
        components=[] if rpm else ["stable"],
        key_url=f"{base}/{key['file']}",
        fingerprint=fingerprint,
    )


def _refuse_others(machine: Machine, system: Row, log: Log) -> None:
    """Raise Unresolved where another build of the engine is there, or packages that Docker's own cannot be beside."""
    there = packages_of(machine)
    for row in log.rules["container_toolkit"]["docker_conflicts"]:
        found = [name for name in row["names"] if name in there]
        if found:
            text = f"{', '.join(found)} is there, which {row['package']} of Docker's own repository would take the place of"
            remedy = f"{_USE}; or {_by_hand(system, found)}"
            raise Unresolved(
                conflict("container-toolkit.engine-source", text, log.cite("container_toolkit", row), remedy)
            )
    if machine.docker and _ENGINE not in there:
        text = "a Docker is there that comes from another place than Docker's own repository"
        raise Unresolved(conflict("container-toolkit.engine-source", text, "the machine", _USE))


def packages_of(machine: Machine) -> Mapping[str, str]:
    """Return the packages that are known to be there, with their versions."""
    return machine.installed or {}


def conflicting(machine: Machine, log: Log) -> dict[str, str]:
    """Return what is there that Docker's own packages cannot be beside, each with the package that says so."""
    rows = log.rules["container_toolkit"]["docker_conflicts"]
    return {name: row["package"] for row in rows for name in row["names"] if name in packages_of(machine)}


def removal(system: Row, names: list[str]) -> str:
    """Return the command that takes packages away and leaves their data."""
    return f"{'dnf remove' if system['family'] == RPM_FAMILY else 'apt-get remove'} {' '.join(names)}"


def _by_hand(system: Row, names: list[str]) -> str:
    """Return what a person does who wants another engine all the same. Its data stays in /var/lib/docker."""
    return (
        f"end the containers that run, run `{removal(system, names)}` (images and volumes stay in /var/lib/docker), "
        "and run again"
    )


def _row(system: Row, rules: Rules) -> Row | None:
    return next((row for row in _rows(rules) if system["os"] in row["os"]), None)


def _rows(rules: Rules) -> list[Row]:
    found: list[Row] = rules["container_toolkit"]["docker_repositories"]
    return found

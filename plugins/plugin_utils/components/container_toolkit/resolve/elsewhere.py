# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Engines that are there and are no service of the system: nothing is put beside them unasked, and none of them is set up from here."""

from __future__ import annotations

from ....resolver.log import Log, Unresolved, conflict
from ....resolver.machine import Machine
from ....rules import Row
from ....wish.wish import Wish
from . import docker_repository, podman

_RULE = "container-toolkit.elsewhere"
_MACHINE = "the machine"
_WITHOUT = "name what you want without container-toolkit (--want driver, for example)"


def refuse(name: str, machine: Machine, wish: Wish, system: Row, log: Log) -> None:
    """Raise Unresolved where the engine would stand beside one that is there and cannot be set up from here."""
    if machine.docker:
        return
    if (
        machine.kubernetes
        and machine.containerd is None
        and (wish.container_toolkit_engine is None or name == "containerd")
    ):
        _refuse_kubernetes(machine.kubernetes, wish)
    asks_own = wish.container_toolkit_engine_source == docker_repository.DOCKER
    if name != "docker" or machine.docker_elsewhere is None:
        return
    other = "" if podman.too_old(machine, system, log.rules) else "; or use --want container-engine=podman"
    if machine.docker_elsewhere == "snap":
        text = (
            "Docker is here as a snap, which reads neither /etc/docker/daemon.json nor programs of the toolkit's packages; the system's "
            "Docker beside it would be a second one"
        )
        remedy = (
            f"save what its containers hold, take it away (sudo snap remove docker) and run again{other}; or {_WITHOUT}"
        )
        raise Unresolved(conflict(_RULE, text, _MACHINE, remedy))
    if not asks_own:
        text = "Docker is here as Docker Desktop, whose containers run in a virtual machine that has no card"
        beside = "take Docker's own engine beside it (--want container-engine-source=docker, then docker context use default)"
        served = any(system["os"] in row["os"] for row in log.rules["container_toolkit"]["docker_repositories"])
        remedy = f"{beside if served else _WITHOUT}{other}"
        raise Unresolved(conflict(_RULE, text, _MACHINE, remedy))


def _refuse_kubernetes(name: str, wish: Wish) -> None:
    """k3s and RKE2 look for NVIDIA's runtime when they start, and write the configuration of their containerd anew each time; an addon of
    MicroK8s does it there.
    """
    if name == "microk8s":
        text = "MicroK8s is here, a snap with a containerd of its own that its addons configure, and no other engine is there"
        serves = f"for its pods sudo microk8s enable nvidia (its addon, which takes the host's driver), and {_WITHOUT}"
    else:
        text = (
            f"{name} brings a containerd of its own here (/var/lib/rancher/{name}/agent/etc/containerd/config.toml, written anew at "
            "each start), and no other engine is there"
        )
        serves = (
            f"for its pods install nvidia-container-toolkit and restart {name}, which finds NVIDIA's runtime by itself "
            f"(runtimeClassName: nvidia), and {_WITHOUT}"
        )
    beside = (
        "" if wish.container_toolkit_engine else "; for an engine beside it name one: --want container-engine=docker"
    )
    raise Unresolved(conflict(_RULE, text, _MACHINE, serves + beside))

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is checked of the engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ...model.stack import Stack
from ..view import UP, View, unknown
from . import cdi as of_cdi
from . import docker as of_docker
from . import rootless as of_users

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Containerd, Docker, Rootless

_REFRESH = f"run gpuwright up, or systemctl restart {of_cdi.REFRESH}; a specification that was written by hand has to go by hand"


def judge(view: View, stack: Stack) -> list[Check]:
    """Whether the engines can read their configuration, run with it, and know the NVIDIA runtime where they should."""
    toolkit = stack.get("container_toolkit")
    # A stack of an earlier version may not tell the engine: it was Docker then.
    engine = toolkit.get("engine", {}).get("name", "docker") if toolkit is not None else None
    docker = view.get("containers.docker")
    if not isinstance(docker, Mapping):
        if view.why_unknown("containers"):
            return [unknown("container.daemon_json", view, "containers", "how Docker is configured", "warning")]
        return []
    found = [_docker(cast("Docker", docker), knows=engine == "docker")]
    return [
        *found,
        *([_containerd(view)] if engine == "containerd" else []),
        *([_cdi(view), _links(view)] if toolkit is not None else []),
        *([_rootless(view, toolkit["rootless"]["users"])] if toolkit is not None and "rootless" in toolkit else []),
    ]


def _cdi(view: View) -> Check:
    """Whether containers get by CDI the very cards that the node has."""
    name = "container.cdi"
    if view.get("containers.cdi") is None or view.why_unknown("containers.cdi"):
        return unknown(name, view, "containers.cdi", "which cards engines find", "warning")
    if view.get("driver.loaded_version") is None:
        return checks.skipped(name, "no driver is loaded", "warning")
    if view.get("smi.data") is None:
        return unknown(name, view, "smi", "which cards there are", "warning")
    reason = of_cdi.stale(view.facts)
    if reason:
        return _warned(name, f"containers would get other cards than the node has: {reason}", _REFRESH)
    if not view.get("containers.cdi.specifications"):
        return checks.skipped(
            name, "the toolkit is older than 1.18, which makes no CDI specification by itself", "warning"
        )
    return checks.passed(name, "warning")


def _links(view: View) -> Check:
    """Whether containers keep their cards over a `systemctl daemon-reload`."""
    name = "container.device_links"
    if view.get("containers.cdi") is None:
        return unknown(name, view, "containers.cdi", "which device nodes have links", "warning")
    if view.get("driver.loaded_version") is None or view.environment == "wsl":
        return checks.skipped(name, "no driver with device nodes is loaded", "warning")
    unlinked = view.get("containers.cdi.unlinked")
    if unlinked:
        lost = "a systemctl daemon-reload may take the cards from containers that run"
        return _warned(name, f"{lost}: no link in /dev/char leads to {', '.join(unlinked)}", UP)
    return checks.passed(name, "warning")


def _rootless(view: View, users: Sequence[str]) -> Check:
    """Whether the users who are to start containers without root can."""
    name = "container.rootless"
    seen = view.get("containers.rootless")
    if not isinstance(seen, Mapping) or view.why_unknown("containers.rootless"):
        return unknown(name, view, "containers.rootless", "what containers without root need", "warning")
    if view.get("containers.podman.version") is None:
        return _warned(name, "Podman is not installed", UP)
    reason = of_users.reason(cast("Rootless", seen), users)
    return (
        _warned(name, f"containers without root do not start: {reason}", UP)
        if reason
        else checks.passed(name, "warning")
    )


def _docker(docker: Docker, *, knows: bool) -> Check:
    """``knows``: whether it should know the NVIDIA runtime."""
    if not docker.get("installed"):
        return checks.skipped("container.daemon_json", "Docker is not installed", "warning")
    if docker.get("daemon_json_error"):
        return checks.failed(
            "container.daemon_json",
            reason="Docker's daemon.json cannot be read: Docker will not start with it",
            evidence=docker["daemon_json_error"],
            action="configure",
            remedy="correct /etc/docker/daemon.json; gpuwright keeps the copy that it found beside it",
        )
    if knows and not of_docker.has_runtime(docker):
        return _warned("container.daemon_json", "Docker does not know the NVIDIA runtime", UP)
    if docker.get("config_loaded") is False:
        return _warned(
            "container.daemon_json",
            "Docker has not read its configuration since it changed",
            "restart Docker when its containers may stop",
        )
    return checks.passed("container.daemon_json", "warning")


def _containerd(view: View) -> Check:
    name = "container.containerd"
    containerd = cast("Containerd", view.get("containers.containerd") or {})
    if not containerd.get("installed"):
        return _warned(name, "containerd is not installed", UP)
    if containerd.get("config_error"):
        return checks.failed(
            name,
            reason="containerd's configuration cannot be read: containerd will not start with it",
            evidence=containerd["config_error"],
            action="configure",
            remedy="correct /etc/containerd/config.toml; gpuwright keeps the copy that it found beside it",
        )
    why = view.why_unknown("containers.containerd.config")
    if why:
        return unknown(name, view, "containers.containerd.config", "how containerd is configured", "warning")
    config = containerd.get("config")
    if not config or not config["runtime"]:
        return _warned(name, "containerd does not know the NVIDIA runtime", UP)
    if containerd.get("config_loaded") is False:
        remedy = "restart containerd when it suits: containers run on meanwhile"
        return _warned(name, "containerd has not read its configuration since it changed", remedy)
    return checks.passed(name, "warning")


def _warned(name: str, reason: str, remedy: str) -> Check:
    return checks.failed(name, "warning", reason=reason, action="configure", remedy=remedy)

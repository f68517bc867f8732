# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a proof starts in containers: an image that was pulled ahead, by each way in which its engine hands out the cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ...model.work import ContainerQuestion
from ..base import Context
from . import cdi, images

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

#: From there on Docker reads the specifications that the toolkit writes (compat/container_toolkit.yaml, engines).
_DOCKER_READS = "26.1.0"


def containers(context: Context) -> list[ContainerQuestion]:
    """What is asked of the engine; nothing where the toolkit is not wished."""
    toolkit = context.stack.get("container_toolkit")
    if not toolkit:
        return []
    engine = toolkit["engine"]["name"]
    return [
        {
            "engine": engine,
            "images": images.wished(context),
            "ways": _ways(context.facts, engine),
            "unlinked": list(context.facts["containers"]["cdi"]["unlinked"]) if cdi.has_nodes(context) else [],
            "smi": context.facts["driver"]["nvidia_smi"] or "nvidia-smi",
            "left_out": _left_out(context, engine),
        }
    ]


def _left_out(context: Context, engine: str) -> str | None:
    """Why no container is started."""
    if engine == "containerd":
        return (
            "containerd serves Kubernetes here: ask the cards in a pod (nvidia-smi -L with the resource nvidia.com/gpu)"
        )
    if not images.wished(context):
        return "no image is wished that a container could be started of: container-image=auto pulls one that fits the driver"
    return None


def _ways(facts: Facts, engine: str) -> list[str]:
    if engine == "podman":
        return ["cdi"]
    version = facts["containers"]["docker"]["version"] or "0"
    reads = numeric_version.at_least(version, _DOCKER_READS)
    return ["gpus", "cdi"] if reads and cdi.is_kept(facts) else ["gpus"]

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which directories with data of users were made by a program that gpuwright brought, and which were there before it.

A directory is ours where it was not there as the run began that brought a package of it. Noted before the first change of each run; what no
run has seen is not known, and nobody's to remove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.records import sealing, seals

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

DOCKER, CONTAINERD, PODMAN = "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers"
#: The directories, each with the packages whose programs make it.
MAKERS = {
    DOCKER: ("docker.io", "docker-ce", "moby-engine"),
    CONTAINERD: ("containerd", "containerd.io", "moby-containerd"),
    PODMAN: ("podman",),
}


def begin(host: Host, brought: Collection[str]) -> None:
    """Note which of them are not there yet. One with a maker that is `brought` already keeps what was noted before. Raises SealError."""
    before = _absent(host)
    absent = [
        path
        for path, makers in MAKERS.items()
        if (path in before if set(makers) & set(brought) else not host.exists(path) and host.link(path) is None)
    ]
    if absent != before:
        sealing.write_object(host, paths.DATA, {"schema": seals.SCHEMA, "absent": absent})


def made(host: Host, brought: Collection[str]) -> list[str]:
    """Those that a program made which was `brought`, and that are there. Raises SealError."""
    return [path for path in _absent(host) if set(MAKERS.get(path, ())) & set(brought) and host.isdir(path)]


def _absent(host: Host) -> list[str]:
    found = (seals.read_object(host, paths.DATA) or {}).get("absent")
    return [path for path in found if path in MAKERS] if isinstance(found, list) else []

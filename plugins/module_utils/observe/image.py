# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether somebody else looks after the driver: an image that brings one, a driver container of Kubernetes.

Only what is certain counts, because nothing of such a driver is changed: files that these makers write and nobody else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import DriverImage


class _Mark(NamedTuple):
    kind: str
    owner: str
    path: str
    says: str | None = None
    """What the file has to say; None where it is enough that it is there."""


_MARKS = (
    _Mark("gpu-operator", "NVIDIA's GPU operator of Kubernetes", "/run/nvidia/validations/.driver-ctr-ready"),
    _Mark("gke", "Google Kubernetes Engine", "/home/kubernetes/bin/nvidia/bin/nvidia-smi"),
    _Mark("dgx-os", "NVIDIA's DGX OS", "/etc/dgx-release", r"^DGX_NAME=|\bDGX\b"),
    _Mark("azure-hpc", "Microsoft's Azure HPC image", "/opt/azurehpc/component_versions.txt", r"(?i)\"nvidia"),
)


def observe(host: Host) -> DriverImage | None:
    """The part `driver.image`: kind, owner (words for a person) and evidence (a path), or None."""
    for mark in _MARKS:
        if mark.says is None:
            found = host.exists(mark.path)
        else:
            text = host.read(mark.path, "driver.image", limit=65536) or ""
            found = re.search(mark.says, text, re.MULTILINE) is not None
        if found:
            return {"kind": mark.kind, "owner": mark.owner, "evidence": mark.path}
    return None

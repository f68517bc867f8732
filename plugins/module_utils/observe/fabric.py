# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the cards of a data-centre machine speak through: the fabric manager, and the kernel modules beside the driver's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Fabric

MANAGER = "nvidia-fabricmanager.service"
_MANAGER_PROGRAM = "/usr/bin/nv-fabricmanager"
_MODULES = ("ib_umad", "nvidia_peermem")
_AT_BOOT = "/etc/modules-load.d"
_LINK_LAYERS = "/sys/class/infiniband/*/ports/*/link_layer"
# Beside its own name the one under which Debian packs it.
_PEERMEM_FILE = re.compile(r"^\S*/(nvidia(?:-current)?-peermem)\.ko", re.MULTILINE)


def _manager_stale(host: Host, fields: Mapping[str, str]) -> bool | None:
    """Whether the running fabric manager is another program than the one on disk; None where there is nothing to compare.

    By the file that the process was started from, and by what is in it: times change with the mode and the owner of a file, and a package
    that is installed again brings the same one.
    """
    process = "/proc/{}/exe".format(fields.get("MainPID", "0"))
    link, program = host.link(process), host.stat(_MANAGER_PROGRAM)
    if program is None or fields.get("ActiveState") != "active" or not (link or "").startswith(_MANAGER_PROGRAM):
        return None
    running = host.stat(process)
    if running is None:
        return None
    if (running.st_dev, running.st_ino) == (program.st_dev, program.st_ino):
        return False
    before, now = (host.read_bytes(path, "fabric.manager_stale") for path in (process, _MANAGER_PROGRAM))
    return None if before is None or now is None else before != now


def _at_boot(host: Host) -> list[str]:
    """Kernel modules of interest that a file of the machine has loaded at each boot (modules-load.d(5))."""
    named = set()
    for path in host.glob(_AT_BOOT + "/*.conf"):
        for line in (host.read(path) or "").splitlines():
            named.add(line.strip().replace("-", "_"))
    return [name for name in _MODULES if name in named or name.replace("nvidia_", "nvidia_current_") in named]


def _peermem_file(host: Host, kernel: str | None) -> str | None:
    """Name under which the next kernel has nvidia-peermem; None where it has none."""
    listing = host.read(f"/lib/modules/{kernel}/modules.dep") if kernel else None
    found = _PEERMEM_FILE.search(listing or "")
    return found.group(1) if found else None


def observe(host: Host, kernel: str | None, shown: Mapping[str, Mapping[str, str]]) -> Fabric:
    """The part `fabric`. `kernel`: the one that boots next. `shown`: systemd's properties of the units."""
    return {
        "manager_stale": _manager_stale(host, shown.get(MANAGER, {})),
        "modules_loaded": [name for name in _MODULES if host.isdir("/sys/module/" + name)],
        "modules_at_boot": _at_boot(host),
        "peermem_module": _peermem_file(host, kernel),
        "link_layers": _link_layers(host),
    }


def _link_layers(host: Host) -> list[str]:
    """What the ports of RDMA adapters speak (InfiniBand, Ethernet), each once."""
    told = {(host.read(path, limit=64) or "").strip() for path in host.glob(_LINK_LAYERS)}
    return sorted(told & {"InfiniBand", "Ethernet"})

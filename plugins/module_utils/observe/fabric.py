# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the cards of a data-centre machine speak through: the fabric manager, and the kernel modules beside the driver's own."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe.containers import started

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Fabric

MANAGER = "nvidia-fabricmanager.service"
_MANAGER_PROGRAM = "/usr/bin/nv-fabricmanager"
_MODULES = ("ib_umad", "nvidia_peermem")
_AT_BOOT = "/etc/modules-load.d"
# Beside its own name the one under which Debian packs it.
_PEERMEM_FILE = re.compile(r"^\S*/(nvidia(?:-current)?-peermem)\.ko", re.MULTILINE)


def _manager_stale(host: Host, fields: Mapping[str, str]) -> bool | None:
    """Whether the running fabric manager is older than its program on disk; None where there is nothing to compare.

    The change time: a package gives its files the modification time of their build.
    """
    program = host.stat(_MANAGER_PROGRAM)
    if program is None or fields.get("ActiveState") != "active":
        return None
    since = started(fields, time.time(), time.clock_gettime(time.CLOCK_MONOTONIC))
    return None if since is None else since < program.st_ctime


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
    }

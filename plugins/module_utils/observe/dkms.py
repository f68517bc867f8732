# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What DKMS left: builds of NVIDIA's module that failed, and the kernels that have one."""

from __future__ import annotations

import re
from typing import Any, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils import versions
from ansible_collections.gpuwright.node.plugins.module_utils.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import bootloader

#: The last lines of a build log that are passed on: make says there what stopped it.
LOG_LINES = 12

_TREE = "/var/lib/dkms"
# DKMS before 3.1.4 writes "MODULE-VERSION" there, where the two cannot be told apart; the path of the log tells them.
_TITLE = re.compile(r"make\.log for \S+ for kernel (\S+)")
_PLACE = re.compile(_TREE + r"/([^/]+)/([^/]+)/build/make\.log")
_NO_SPACE = re.compile(r"No space left on device|Cannot allocate memory|Killed")


def failed_build(text: str, path: str) -> dict[str, Any] | None:
    """What the log of a build tells: its module, version and kernel, and its end. None for a text that is no such log.

    ``transient``: it was not the source that failed, but the disk or the memory. ``compiler``: the compiler refused the source, and
    would again.
    """
    title, place = _TITLE.search(text[:400]), _PLACE.fullmatch(path)
    if title is None or place is None:
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    transient = _NO_SPACE.search(text) is not None
    errors = [line for line in lines if re.search(r"\berror:|\bError \d+", line)]
    return {
        "module": place[1],
        "version": place[2],
        "kernel": title[1],
        "log": path,
        "errors": errors[:3],
        "end": lines[-LOG_LINES:],
        "transient": transient,
        "compiler": not transient and any(re.search(r"\berror: ", line) for line in errors),
    }


def left_out_by(build: Mapping[str, Any]) -> str:
    """The file in which DKMS is told to leave this build of a module out: for this version and kernel alone."""
    return "/etc/dkms/{module}-{version}-{kernel}.conf".format(**build)


def observe(host: Host, kernels: list[str]) -> dict[str, Any]:
    """The part `dkms`. Where a build goes well, DKMS takes its directory away: a log that is still there is one that did not."""
    failed = []
    for path in host.glob(_TREE + "/nvidia*/*/build/make.log", "dkms.failed"):
        found = failed_build(host.read(path, "dkms.failed") or "", path)
        if found is not None:
            found["left_out"] = host.exists(left_out_by(found))
            failed.append(found)
    built = [name for name in kernels if host.glob(f"/lib/modules/{name}/updates/dkms/nvidia*.ko*", "dkms.kernels")]
    return {
        "failed": failed,
        "kernels": sorted(built, key=versions.key),
        "boot_entries": bootloader.grub_entries(host) if failed else {},
    }

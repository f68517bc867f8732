# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge the room that is left where installations, users and containers write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.observe import containers

from ..components.view import View, unknown

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Disk

MB = 1_000_000
# The least that is free where the next installation writes; /boot takes a kernel and an initramfs of 60 to 150 MB.
SPACE = {
    "/boot": 200 * MB,
    "/": 2_000 * MB,
    "/var": 2_000 * MB,
    "/usr": 1_000 * MB,
    "/opt": 1_000 * MB,
    "/home": 200 * MB,
    "/tmp": 200 * MB,  # noqa: S108 - a mount point, nothing is written
    "/var/tmp": 200 * MB,  # noqa: S108 - as above
    "/var/lib/dkms": 500 * MB,
    "/lib/modules": 500 * MB,
}
#: An image of a framework takes more, and Docker stops at the last byte.
_CONTAINERS = 2_000 * MB
#: A file system that takes no more files than these is as good as full.
_FILES = 1_000
#: People set these up so that nothing is written there.
_MAY_BE_READ_ONLY = ("/home", "/lib/modules")


def judge_disks(view: View) -> list[Check]:
    """Room for the next kernel, the next installation, users and containers, and a root that can be written."""
    disks = view.get("disks")
    if disks is None:
        return [unknown("disk.space", view, "disks", "how much space is free")]
    floors = {**SPACE, **_of_containers(view)}
    return [check for disk in disks for check in _judge_disk(disk, floors)]


def _of_containers(view: View) -> dict[str, int]:
    docker = view.get("containers.docker")
    return {containers.data_root(docker): _CONTAINERS} if docker and docker["installed"] else {}


def _judge_disk(disk: Disk, floors: dict[str, int]) -> list[Check]:
    mount = disk["mount"]
    held = [place for place in dict.fromkeys([mount, *(disk.get("places") or ())]) if place in floors]
    # The space of a server's file system is not asked.
    if not held or disk.get("class") == "network":
        return []
    return [*_read_only(disk), _space(disk, max(floors[place] for place in held), held)]


def _read_only(disk: Disk) -> list[Check]:
    mount = disk["mount"]
    if not disk.get("read_only") or mount not in SPACE or mount in _MAY_BE_READ_ONLY:
        return []
    return [
        checks.failed(
            "disk.read_only",
            measured=mount,
            reason=f"{mount} is mounted read-only",
            action="check_hardware",
            remedy="read the kernel log: a file system turns read-only after errors of its disk; else mount it writable",
        )
    ]


def _space(disk: Disk, floor: int, held: list[str]) -> Check:
    mount, free, files = disk["mount"], disk.get("free_bytes"), disk.get("free_files")
    rest: checks.Rest = {"expected": floor // MB, "unit": "MB free", "evidence": mount}
    if free is None:
        return checks.incomplete("disk.space", f"it is not known how much of {mount} is free", "warning", **rest)
    remedy = (
        "remove kernels that are no longer used ('apt autoremove')" if mount == "/boot" else "free space or enlarge it"
    )
    if files is not None and files < _FILES:
        return checks.failed(
            "disk.space",
            "warning",
            measured=files,
            expected=_FILES,
            unit="free inodes",
            evidence=mount,
            reason=f"{mount} takes no more files, whatever space is free: its inodes are used up",
            action="configure",
            remedy="find the directory with the many small files (du --inodes -x -d 3) and clear it",
        )
    others = [place for place in held if place != mount]
    holds = f", which holds {' and '.join(others)}," if others and mount not in SPACE else ""
    ok = free >= floor
    return checks.judged(
        "disk.space",
        ok,
        "warning",
        measured=free // MB,
        reason=mount if ok else f"{mount}{holds} is nearly full",
        action="configure",
        remedy=remedy,
        **rest,
    )

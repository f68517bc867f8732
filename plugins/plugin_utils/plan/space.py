# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a change writes, and the file systems that do not hold it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import words

from ..components.base import Context, Need
from ..components.registry import COMPONENTS
from ..model.shortfalls import holding, room
from .document import refusal

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Disk

    from ..model.plan import Change, Plan
    from ..model.stack import Refusal


#: Free space that has to stay after the change, in bytes: a full root or /boot is a failure of its own.
RESERVE_BYTES = 512 * 1024**2
#: A rebuilt initramfs stands beside the old one until it is renamed (Ubuntu's are 60 to 110 MB).
INITRAMFS_BYTES = 128 * 1024**2
#: Where the package manager keeps what it downloads.
_CACHES = {"apt": "/var/cache/apt/archives", "dnf": "/var/cache/dnf"}
#: Packages whose files lie below /usr/local/cuda-X.Y.
_TOOLKIT = re.compile(r"(?:cuda-(?!drivers|compat)|libcu(?!dnn)|libnpp|libnv(?!idia)|nsight-|gds-tools)")


def of_wheels(changes: Sequence[Change]) -> int:
    """Return the bytes of the wheels that the changes download; what several environments have comes once, from pip's cache."""
    # A plan that an earlier gpuwright wrote has none.
    wheels = [row for change in changes for row in change.get("wheels") or ()]
    rows = {(row["name"], row["version"], row["download_bytes"] or 0) for row in wheels}
    return sum(size for _name, _version, size in rows)


def of_packages(plan: Plan) -> int:
    """Return the bytes that the package manager downloads: the place of the wheels is among what an environment takes."""
    return plan["download_bytes"] - of_wheels(plan["changes"])


def refusals(plan: Plan, context: Context) -> list[Refusal]:
    """Each file system that the change writes to must be writable and hold it, with a reserve left. One of unknown space is left to the
    role preflight, which sees it at work.
    """
    disks = context.facts["disks"] or ()
    needs: dict[str, list[Need]] = {}
    for need in _needs(plan, context):
        disk = holding(need.path, disks)
        if disk is not None and need.size:
            needs.setdefault(disk["mount"], []).append(need)
    found = [_no_space(disk, needs[disk["mount"]]) for disk in disks if disk["mount"] in needs]
    return [row for row in found if row is not None]


def _needs(plan: Plan, context: Context) -> list[Need]:
    cache = _CACHES.get(context.facts["packages"]["manager"] or "", "/var")
    toolkits = sum(row.get("installed_bytes") or 0 for row in plan["install"] if _TOOLKIT.match(row["name"]))
    needs = [
        Need(cache, of_packages(plan)),
        Need("/usr", max(plan["disk_bytes"] - toolkits, 0)),
        Need("/usr/local", toolkits),
    ]
    changed = [component for name, component in COMPONENTS.items() if name in plan["components"]]
    if any("initramfs" in component.touches for component in changed):
        needs.append(Need("/boot", INITRAMFS_BYTES))
    for change in plan["changes"]:
        if change["component"] in COMPONENTS:
            needs += COMPONENTS[change["component"]].space(change, context)
    return needs


def _no_space(disk: Disk, needs: Sequence[Need]) -> Refusal | None:
    """Why a file system does not take what is needed of it; None where it does."""
    mebibytes, mount = 1024**2, disk["mount"]
    if disk["read_only"]:
        remedy = "read the kernel log: a file system turns read-only after errors of its disk; else mount it writable"
        return refusal("read-only", f"{mount} is mounted read-only, and {needs[0].path} is written to", remedy)
    files = sum(need.files for need in needs)
    free_files = disk.get("free_files")
    if free_files is not None and free_files < files:
        text = (
            f"{mount} takes {words.count(free_files, 'more files')} (inodes), {files} {words.verb(files, 'are')} needed"
        )
        return refusal("no-space", text, f"remove small files on {mount}, or give it more inodes")
    needed = sum(need.size for need in needs) + (0 if mount == "/boot" else RESERVE_BYTES)
    free = room(disk)
    if free is None or free >= needed:
        return None
    text = f"{mount} has {free // mebibytes} MiB free, {needed // mebibytes} MiB are needed"
    remedy = "remove old kernels (apt autoremove --purge)" if mount == "/boot" else f"make room on {mount}"
    return refusal("no-space", text, remedy)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""File systems, their space, and what kind of device carries them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Iterable

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import disk_class
from ansible_collections.gpuwright.node.plugins.module_utils.observe import environment_builds

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Disk

#: Where installations write. Each may be a file system of its own, or a link that leads to one.
PLACES = (
    "/",
    "/boot",
    "/boot/efi",
    "/home",
    "/lib/modules",
    "/opt",
    "/tmp",  # noqa: S108 - a place to look at, not to write to
    "/usr",
    "/usr/local",
    "/var",
    "/var/cache/apt/archives",
    "/var/cache/dnf",
    "/var/lib/dkms",
    "/var/lib/docker",
    "/var/lib/gpuwright",
    "/var/tmp",  # noqa: S108 - as above
)
# File systems that have no device of the kernel's own, but storage.
_POOLED = frozenset(("zfs", "btrfs", "bcachefs"))
_READ_ONLY_IMAGES = frozenset(("squashfs", "iso9660", "erofs"))


def is_of_interest(mount: dict[str, str]) -> bool:
    """Whether a mount is a real file system that something could be installed or written to."""
    if mount["fstype"] in _READ_ONLY_IMAGES or mount["device"].startswith("/dev/loop"):
        return False
    return (
        mount["device"].startswith("/dev/") or mount["fstype"] in _POOLED or disk_class.network_name(mount) is not None
    )


def _space(host: Host, path: str) -> tuple[int | None, int | None, int | None]:
    """Bytes of a file system, in all and free for an ordinary user; and how many files it takes yet (None where it counts none)."""
    try:
        space = os.statvfs(host.at(path))
    except OSError as exc:
        host.unknown("disks." + path, f"the space of {path} could not be asked: {exc.strerror or exc}")
        return None, None, None
    return space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize, space.f_favail if space.f_files else None


def _describe(host: Host, mount: dict[str, str], look: disk_class.Look, places: list[str]) -> Disk:
    if disk_class.network_name(mount):
        # A server that is away would keep this question waiting for ever, so it is not asked.
        size, free, files = None, None, None
        host.unknown("disks." + mount["mount"], "the space of a network file system is not asked")
    else:
        size, free, files = _space(host, mount["mount"])
    options = mount["options"].split(",") + mount["super"].split(",")
    return {
        "mount": mount["mount"],
        "size_bytes": size,
        "free_bytes": free,
        "free_files": files,
        "class": disk_class.class_of(look.of_mount(mount)),
        "read_only": "ro" in options or "emergency_ro" in options,
        "places": places,
    }


def _limited(host: Host, disk: Disk) -> list[Disk]:
    """A file system, and apart from it the directories below which a quota lets it look smaller (of a project: XFS, ext4).

    A quota of a user does not hold root back, who installs.
    """
    if disk["size_bytes"] is None:
        return [disk]
    disk, places = {**disk, "places": []}, disk["places"]
    found = {disk["size_bytes"]: disk}
    for place in places:
        directory = host.realpath(place)
        while not host.exists(directory) and directory != os.path.dirname(directory):
            directory = os.path.dirname(directory)
        below = directory.startswith(disk["mount"].rstrip("/") + "/")
        size, free, files = _space(host, directory) if below else (None, None, None)
        own: Disk = {
            **disk,
            "mount": directory,
            "size_bytes": size,
            "free_bytes": free,
            "free_files": files,
            "places": [],
        }
        found.setdefault(disk["size_bytes"] if size is None else size, own)["places"].append(place)
    return list(found.values())


def _places_by_mount(host: Host, mounts: Iterable[str], places: Iterable[str]) -> dict[str, list[str]]:
    """The places that lie on each mount, links followed: the mount with the longest path above it."""
    found: dict[str, list[str]] = {}
    known = sorted(mounts, key=len, reverse=True)
    for place in places:
        path = host.realpath(place)
        holder = next((mount for mount in known if path == mount or path.startswith(mount.rstrip("/") + "/")), None)
        if holder is not None:
            found.setdefault(holder, []).append(place)
    return found


def _is_directory(host: Host, mount: dict[str, str]) -> bool:
    # Containers get single files (/etc/hosts) mounted from the engine's disk. A network path is not touched.
    if disk_class.network_name(mount):
        return True
    found = host.stat(mount["mount"])
    return found is None or stat.S_ISDIR(found.st_mode)


def observe(host: Host, places: Iterable[str] = ()) -> list[Disk]:
    """The part `disks`: each file system once (by its first mount), and whatever holds one of the places that are written to, as
    `PLACES` and the wish (`places`) have them; of these also memory, overlays and images that cannot be written.
    """
    places = list(places)
    text = host.read("/proc/self/mountinfo" if host.live else "/proc/1/mountinfo", "disks")
    if text is None:
        host.unknown("disks", "no mount table in /proc")
        return []
    # A later mount on the same place hides the earlier one.
    mounts = disk_class.parse_mountinfo(text)
    by_place = {mount["mount"]: mount for mount in mounts}
    look = disk_class.Look(host, mounts)
    held = _places_by_mount(host, by_place, dict.fromkeys([*PLACES, *places]))
    seen = set()
    found = []
    for place in sorted(by_place):
        mount = by_place[place]
        identity = (mount["number"], mount["device"])
        written = place in held
        if (
            not _is_directory(host, mount)
            or not (written or is_of_interest(mount))
            or (identity in seen and not written)
        ):
            continue
        seen.add(identity)
        found += _limited(host, _describe(host, mount, look, held.get(place, [])))
    for path in places:
        _count_debris(host, path, found)
    return found


def _count_debris(host: Host, path: str, disks: Iterable[Disk]) -> None:
    """Tell of the disk of an environment what a cut build of it takes: the next run has that room, too."""
    size = environment_builds.debris_bytes(host, path)
    for disk in disks:
        if size and path in disk.get("places", ()):
            disk["reclaimed_bytes"] = (disk.get("reclaimed_bytes") or 0) + size

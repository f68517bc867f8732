# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which class of disk stands behind a directory.

Read from /sys alone: nothing is opened, nothing is executed.
"""

from __future__ import annotations

import os
import re
from typing import List, Optional, Tuple

# File systems that keep everything in memory, and those that another host serves.
_MEMORY = ("tmpfs", "ramfs", "rootfs")
_NETWORK = re.compile(
    r"^(?:nfs4?|cifs|smb3?|smbfs|ceph|lustre|gpfs|beegfs(?:_.*)?|fuse\.(?:glusterfs|ceph.*|sshfs|s3fs|.*gcsfuse.*)|9p|"
    r"virtiofs|afs|orangefs|panfs|wekafs|glusterfs)$"
)
# A PCIe lane's speed tells the generation, and only with it does "NVMe" mean a number.
_NVME_GENERATIONS = ((32.0, "nvme5"), (16.0, "nvme4"), (8.0, "nvme3"))


def file_system_of(path: str, mountinfo: Optional[str] = None) -> Tuple[Optional[str], Optional[str]]:
    """Type and mount point of the file system that holds ``path``; (None, None) when /proc does not tell.

    Args:
        path: an absolute path without symbolic links.
        mountinfo: contents of /proc/self/mountinfo; read when not given.
    """
    if mountinfo is None:
        mountinfo = _read("/proc/self/mountinfo") or ""
    best: Tuple[Optional[str], Optional[str]] = (None, None)
    for line in mountinfo.splitlines():
        before, _dash, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts on one point the later one is what is seen.
        if inside and (best[1] is None or len(point) >= len(best[1])):
            best = (kind[0], point)
    return best


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def disk_class(path: str, sys_root: str = "/sys", mountinfo: Optional[str] = None) -> Optional[str]:
    """The class of the disk behind a directory.

    Returns:
        ``hdd``, ``ssd``, ``nvme``, ``nvme3``, ``nvme4``, ``nvme5``, ``md``, ``network``, ``virtual``, ``memory``, or ``None``.
    """
    kind = file_system_of(path, mountinfo)[0]
    if kind in _MEMORY:
        return "memory"
    if kind is not None and _NETWORK.match(kind):
        return "network"
    try:
        number = os.stat(path).st_dev
    except OSError:
        return None
    link = f"{sys_root}/dev/block/{os.major(number)}:{os.minor(number)}"
    return class_of_device(os.path.realpath(link), sys_root) if os.path.exists(link) else None


def class_of_device(device: str, sys_root: str = "/sys") -> Optional[str]:
    """The class of one entry of /sys/block or of a partition in it; a mapping is what its slowest disk is."""
    if os.path.exists(os.path.join(device, "partition")):
        device = os.path.dirname(device)
    name = os.path.basename(device)
    if os.path.isdir(os.path.join(device, "md")):
        return "md"
    slaves = _names(os.path.join(device, "slaves"))
    if slaves:
        classes = [
            class_of_device(os.path.realpath(os.path.join(device, "slaves", slave)), sys_root) for slave in slaves
        ]
        return classes[0] if len(set(classes)) == 1 else None
    if name.startswith("nvme"):
        return _nvme_class(name, sys_root)
    if re.match(r"^(?:vd|xvd|nbd|rbd|loop|zram|ram)", name):
        return "virtual"
    rotational = _read(os.path.join(device, "queue", "rotational"))
    vendor = (_read(os.path.join(device, "device", "vendor")) or "").strip().lower()
    if vendor in ("vmware", "qemu", "msft", "virtio", "google", "amazon"):
        return "virtual"
    return {"1": "hdd", "0": "ssd"}.get((rotational or "").strip())


def _nvme_class(name: str, sys_root: str) -> str:
    controller = re.sub(r"n\d+$", "", name)
    base = os.path.join(sys_root, "class", "nvme", controller)
    model = (_read(os.path.join(base, "model")) or "").lower()
    # Clouds show their network volumes as NVMe.
    if re.search(r"elastic block store|nvme_card|msft nvme|virtual", model):
        return "virtual"
    match = re.match(r"^([\d.]+)", _read(os.path.join(base, "device", "current_link_speed")) or "")
    width = re.match(r"^(\d+)", _read(os.path.join(base, "device", "current_link_width")) or "")
    if match is None or width is None:
        return "nvme"
    # The floors are those of four lanes; with fewer the plain class stands, whose floor shows the narrow link.
    if int(width.group(1)) < 4:
        return "nvme"
    return next((found for speed, found in _NVME_GENERATIONS if float(match.group(1)) >= speed), "nvme")


def _names(directory: str) -> List[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _read(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which disks stand behind a directory: its file system, what lies between, and the class of each disk at the bottom.

Read from /proc and /sys alone: no program is run, and no device is opened. Where the kernel does not tell (the disks of a ZFS pool, those
of the host below a container) the class is None, and nothing is guessed.

Sources: proc_pid_mountinfo(5); of the kernel's Documentation ABI/stable/sysfs-block, ABI/testing/sysfs-block-dm, ABI/testing/sysfs-bus-pci,
admin-guide/md.rst, admin-guide/bcache.rst and admin-guide/nvme-multipath.rst; lvmthin(7), lvmcache(7) and lvmraid(7) for hidden volumes.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

#: Each class, the slowest first: what is made of several is as slow as its slowest.
CLASSES = ("usb", "mmc", "hdd", "network", "virtual", "raid", "ssd", "md", "nvme", "nvme3", "nvme4", "nvme5", "memory")

#: Characters of a file of /proc or /sys that are read, and layers and disks that are looked at: a machine has fewer.
_MOST_CHARACTERS = 4 * 1024**2
_MOST_DEPTH, _MOST_DEVICES = 16, 1000
#: Characters of a name that a disk or a server gives itself.
_LONGEST = 80

_MEMORY = frozenset(("tmpfs", "ramfs", "rootfs"))
#: File systems that another host serves (what the kernel calls them, `fuse.` and the program's name for those of FUSE), and their names.
_NETWORK: Dict[str, str] = {
    "9p": "9P",
    "afs": "AFS",
    "beegfs": "BeeGFS",
    "ceph": "CephFS",
    "cifs": "SMB",
    "fuse.ceph-fuse": "CephFS",
    "fuse.gcsfuse": "gcsfuse",
    "fuse.glusterfs": "GlusterFS",
    "fuse.goofys": "goofys",
    "fuse.juicefs": "JuiceFS",
    "fuse.mountpoint-s3": "Mountpoint for S3",
    "fuse.rclone": "rclone",
    "fuse.s3fs": "s3fs",
    "fuse.sshfs": "SSHFS",
    "glusterfs": "GlusterFS",
    "gpfs": "GPFS",
    "lustre": "Lustre",
    "nfs": "NFS",
    "nfs4": "NFS",
    "orangefs": "OrangeFS",
    "panfs": "PanFS",
    "pvfs2": "OrangeFS",
    "smb3": "SMB",
    "smbfs": "SMB",
    "virtiofs": "virtiofs",
    "wekafs": "WekaFS",
}
_OVERLAYS = frozenset(("overlay", "fuse.fuse-overlayfs"))

#: Gigatransfers a second of a lane, by the generation of PCI Express (https://pcisig.com/specifications).
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_TRANSPORTS = {"tcp": "TCP", "rdma": "RDMA", "fc": "Fibre Channel", "loop": "a loop"}
#: NVMe drives that a cloud or a hypervisor makes, by the beginning of their model.
_VIRTUAL_NVME: Tuple[Tuple[str, str], ...] = (
    # https://docs.aws.amazon.com/ebs/latest/userguide/identify-nvme-ebs-device.html
    ("Amazon Elastic Block Store", "Amazon EBS volume"),
    ("Amazon EC2 NVMe Instance Storage", "Amazon EC2 instance store"),
    # https://learn.microsoft.com/azure/virtual-machines/enable-nvme-remote-faqs, github.com/Azure/azure-vm-utils udev/80-azure-disk.rules
    ("MSFT NVMe Accelerator", "Azure remote disk"),
    ("Microsoft NVMe Direct Disk", "Azure local disk"),
    # github.com/GoogleCloudPlatform/guest-configs src/lib/udev/google_nvme_id; c3-standard-88-lssd counts its local ones: nvme_card0 …
    ("nvme_card-pd", "Google Persistent Disk"),
    ("nvme_card", "Google Local SSD"),
    ("Alibaba Cloud Elastic Block Storage", "Alibaba Cloud disk"),
    # What hypervisors call the drives that they make: hw/nvme/ctrl.c of QEMU; VMware and VirtualBox as their guests list them.
    ("QEMU NVMe", "QEMU disk"),
    ("VMware Virtual NVMe", "VMware disk"),
    ("ORCL-VBOX-NVME", "VirtualBox disk"),
)
#: The same for disks of SCSI, by vendor and model as they are told in /sys/block/*/device.
_VIRTUAL_SCSI: Tuple[Tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^Google +PersistentDisk", re.IGNORECASE), "Google Persistent Disk"),
    (re.compile(r"^Google +EphemeralDisk", re.IGNORECASE), "Google Local SSD"),
    (re.compile(r"^Msft +Virtual Disk", re.IGNORECASE), "Hyper-V or Azure disk"),
    (re.compile(r"^VMware|^ATA +VMware", re.IGNORECASE), "VMware disk"),
    (re.compile(r"^QEMU|^ATA +QEMU", re.IGNORECASE), "QEMU disk"),
    (re.compile(r"^VBOX|^ATA +VBOX", re.IGNORECASE), "VirtualBox disk"),
    (re.compile(r"^(?:Google|Amazon|Msft|virtio)\b", re.IGNORECASE), "virtual disk"),
)
#: What RAID controllers call the volumes that they make of disks which the kernel does not see; whether those rotate is not known.
_RAID_VOLUME = re.compile(
    r"\bPERC\b|LOGICAL VOLUME|MegaRAID|\bMR\d{4}|ServeRAID|\bPRAID\b|DELLBOSS|LogicalDrv|\bRAID\b", re.IGNORECASE
)
#: A hidden volume of LVM by the end of its name, and whether data lie on it.
_HIDDEN_VOLUME = re.compile(
    r"(?:_(tdata|tmeta|cdata|cmeta|corig|cpool|cvol|[rm]image_\d+|rmeta_\d+)|-(tpool|cow|real))$"
)
_METADATA = re.compile(r"_(?:tmeta|cmeta|rmeta_\d+)$")


class Link(NamedTuple):
    """Link of PCI Express: GT/s of a lane, and lanes."""

    speed: float
    width: int

    def __str__(self) -> str:
        generation = _GENERATIONS.get(self.speed)
        return f"PCIe {generation}.0 x{self.width}" if generation else f"PCIe {self.speed:g} GT/s x{self.width}"


class Layer(NamedTuple):
    """A layer of storage. `kind`: `disk`, `crypt`, `lvm`, `multipath`, `cache`, `loop`, `mapped`, `file system` or a level of md (`raid0`).

    A disk has what the kernel calls it as `name` and a class, None where it is not known; an NVMe drive its `link`, and what it and what
    its slot can do. `carries`: bytes a second of the link to the server of a network file system.
    """

    kind: str
    words: str
    below: Tuple[Layer, ...] = ()
    name: Optional[str] = None
    disk_class: Optional[str] = None
    model: Optional[str] = None
    link: Optional[Link] = None
    able: Optional[Link] = None
    slot: Optional[Link] = None
    carries: Optional[float] = None


# --------------------------------------------------------------------------------------------------------------------
# What the layers mean
# --------------------------------------------------------------------------------------------------------------------


def disks_of(layer: Layer) -> List[Layer]:
    """The disks at the bottom, each once."""
    found: Dict[Optional[str], Layer] = {}
    for disk in _bottom(layer):
        found.setdefault(disk.name, disk)
    return list(found.values())


def _bottom(layer: Layer) -> Iterator[Layer]:
    if not layer.below:
        yield layer
    for each in layer.below:
        yield from _bottom(each)


def class_of(layer: Layer) -> Optional[str]:
    """One of :data:`CLASSES`, or None. What is made of several disks has the class of the slowest, an md array its own."""
    if not layer.below:
        return layer.disk_class
    if layer.kind.startswith("raid") or layer.kind == "linear":
        return "md"
    classes = [class_of(each) for each in layer.below]
    known = [CLASSES.index(each) for each in classes if each in CLASSES]
    return CLASSES[min(known)] if len(known) == len(classes) else None


def words(layer: Layer) -> str:
    """The layers for a person, from the file system down: `ext4 on LVM on dm-crypt on NVMe PCIe 4.0 x4 (model)`."""
    if not layer.below:
        return layer.words
    told = [words(each) for each in layer.below]
    counted = [f"{told.count(each)} × {each}" if told.count(each) > 1 else each for each in dict.fromkeys(told)]
    return "{} on {}".format(layer.words, " and ".join(counted))


def names(layer: Layer) -> List[str]:
    """The words of each layer, the bottom first; those that are the same beside each other once."""
    below = [name for each in layer.below for name in names(each)]
    return list(dict.fromkeys([*below, layer.words]))


# --------------------------------------------------------------------------------------------------------------------
# File systems
# --------------------------------------------------------------------------------------------------------------------


def parse_mountinfo(text: str) -> List[Dict[str, str]]:
    """Mounts of a mountinfo file (proc_pid_mountinfo(5))."""
    mounts = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if not dash or len(fields) < 6 or len(tail) < 3:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), fields[4])
        mounts.append(
            {
                "number": fields[2],
                "inside": fields[3],
                "mount": mount,
                "options": fields[5],
                "fstype": tail[0],
                "device": tail[1],
                "super": tail[2],
            }
        )
    return mounts


def mount_of(mounts: Sequence[Dict[str, str]], path: str) -> Optional[Dict[str, str]]:
    """The mount that holds an absolute path without links; of two on one place the later one, which is what is seen."""
    best: Optional[Dict[str, str]] = None
    for mount in mounts:
        point = mount["mount"]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best["mount"])):
            best = mount
    return best


def network_name(mount: Dict[str, str]) -> Optional[str]:
    """What a file system is called that another host serves; None where it is another one."""
    kind = mount["fstype"]
    # The program names itself where it does not name a type (https://www.kernel.org/doc/html/latest/filesystems/fuse.html).
    return _NETWORK.get("fuse." + mount["device"] if kind == "fuse" else kind)


def behind(path: str, host: Optional[Host] = None) -> Layer:
    """The layers behind an absolute path without links."""
    host = host or Host()
    return Look(host, _mounts(host)).of_path(path)


def file_system_of(path: str, host: Optional[Host] = None) -> Optional[str]:
    """What the kernel calls the file system that holds an absolute path without links; None where /proc does not tell."""
    mount = mount_of(_mounts(host or Host()), path)
    return mount["fstype"] if mount else None


def _mounts(host: Host) -> List[Dict[str, str]]:
    path = "/proc/self/mountinfo" if host.live else "/proc/1/mountinfo"
    return parse_mountinfo(host.read(path, limit=_MOST_CHARACTERS) or "")


def _unknown(what: str) -> Layer:
    return Layer("disk", what, name=what)


def _said(text: Optional[str]) -> str:
    """A name that a disk, a server or a user of the machine gave, for a person: one line, and nothing that moves a cursor."""
    return " ".join("".join(each if each.isprintable() else " " for each in (text or "")[:1000]).split())[:_LONGEST]


class Look:
    """One look at the layers behind the mounts of a machine."""

    def __init__(self, host: Host, mounts: Sequence[Dict[str, str]]) -> None:
        self._host, self._mounts = host, mounts
        self._left = _MOST_DEVICES

    def of_path(self, path: str, depth: int = 0) -> Layer:
        """The layers behind a path."""
        mount = mount_of(self._mounts, path)
        return self.of_mount(mount, depth) if mount else _unknown("a file system that is not among the mounts")

    def of_mount(self, mount: Dict[str, str], depth: int = 0) -> Layer:
        """The layers behind a mount."""
        if depth == 0:
            self._left = _MOST_DEVICES
        kind = mount["fstype"]
        if kind in _MEMORY:
            return Layer("disk", kind, name=kind, disk_class="memory")
        if kind in _OVERLAYS:
            return Layer("file system", "overlay", (self._upper(mount, depth),))
        served = network_name(mount)
        if served:
            return _served(self._host, mount, served)
        below = [self._device(each, depth) for each in self._directories(mount)]
        if below:
            return Layer("file system", _said(kind), tuple(below))
        if kind == "zfs":
            pool = _said(mount["device"].split("/")[0])
            return Layer("file system", "ZFS", (_unknown(f"disks of the pool {pool}, which the kernel does not name"),))
        return Layer(
            "file system", _said(kind), (_unknown(f"a disk that the kernel does not name ({_said(mount['device'])})"),)
        )

    def _upper(self, mount: Dict[str, str], depth: int) -> Layer:
        """Where an overlay keeps what is written. In a container that place is the host's and not seen: the overlay itself covers it."""
        for name in ("upperdir", "lowerdir"):
            place = option(mount["super"], name)
            if place is not None and depth < _MOST_DEPTH:
                path = self._host.realpath(place.split(":")[0])
                holder = mount_of(self._mounts, path)
                if holder is not None and holder["number"] != mount["number"] and self._host.exists(path):
                    return self.of_mount(holder, depth + 1)
                break
        return _unknown("a disk of the host, which is not seen in here")

    def _directories(self, mount: Dict[str, str]) -> List[str]:
        """The directories in sysfs of the devices that carry a file system."""
        of_number = "/sys/dev/block/" + mount["number"]
        if re.match(r"^\d+:\d+$", mount["number"]) and self._host.exists(of_number):
            return [self._host.realpath(of_number)]
        # btrfs and bcachefs have no device number of their own. The first is mounted from one of its devices, the other names all.
        found = [self._directory(each) for each in mount["device"].split(":") if each.startswith("/dev/")]
        if mount["fstype"] == "btrfs":
            found = self._of_btrfs(found) or found
        return [each for each in found if each is not None]

    def _directory(self, device: str) -> Optional[str]:
        # /dev/mapper/x is a link to dm-n.
        path = "/sys/class/block/" + os.path.basename(self._host.realpath(device))
        return self._host.realpath(path) if self._host.exists(path) else None

    def _of_btrfs(self, known: Sequence[Optional[str]]) -> List[Optional[str]]:
        """All devices of the file system that has one of the known ones (Documentation/ABI/testing/sysfs-fs-btrfs)."""
        for devices in self._host.glob("/sys/fs/btrfs/*/devices"):
            members: List[Optional[str]] = [
                self._host.realpath(f"{devices}/{name}") for name in self._host.names(devices)[:_MOST_DEVICES]
            ]
            if not set(known).isdisjoint(members):
                return members
        return []

    # Block devices

    def _device(self, directory: str, depth: int) -> Layer:
        """The layers behind a block device, by its directory in sysfs."""
        if self._host.exists(directory + "/partition"):
            directory = os.path.dirname(directory)
        name = os.path.basename(directory)
        self._left -= 1
        if depth > _MOST_DEPTH or self._left < 0:
            return _unknown(f"{name} with more below it than is looked at")
        if self._host.isdir(directory + "/md"):
            return self._array(directory, name, depth)
        if name.startswith("dm-"):
            return self._mapped(directory, depth)
        if name.startswith("loop"):
            return self._loop(directory, name, depth)
        if name.startswith("nvme"):
            return _nvme(self._host, directory, name)
        below = self._slaves(directory, depth)
        if below:
            return Layer("cache", "bcache", below) if name.startswith("bcache") else Layer("mapped", name, below)
        return _disk(self._host, directory, name)

    def _slaves(self, directory: str, depth: int) -> Tuple[Layer, ...]:
        return tuple(self._device(each, depth + 1) for each in self._members(directory))

    def _members(self, directory: str) -> List[str]:
        members = self._host.names(directory + "/slaves")[:_MOST_DEVICES]
        return [self._host.realpath(f"{directory}/slaves/{name}") for name in members]

    def _array(self, directory: str, name: str, depth: int) -> Layer:
        level = self._line(directory + "/md/level") or ""
        below = self._slaves(directory, depth) or (_unknown("disks that are not seen"),)
        known = re.match(r"^(raid\d+|linear)$", level)
        told = (level.upper() if level.startswith("raid") else "linear md") if known else "md"
        return Layer(level if known else "raid", f"{told} ({name})", below)

    def _loop(self, directory: str, name: str, depth: int) -> Layer:
        file = self._line(directory + "/loop/backing_file")
        below = self.of_path(self._host.realpath(file), depth + 1) if file else _unknown("a file that is not named")
        return Layer("loop", f"a file ({name})", (below,))

    def _mapped(self, directory: str, depth: int) -> Layer:
        """A device of the device mapper. Its UUID begins with who made it (dm_uuid of libdevmapper: LVM-, CRYPT-, mpath-)."""
        uuid = self._line(directory + "/dm/uuid") or ""
        if uuid.startswith("LVM-"):
            kinds, members = self._volume(directory, depth)
            return Layer("lvm", " ".join(["LVM", *sorted(kinds)]), members or (_unknown("disks that are not seen"),))
        below = self._slaves(directory, depth) or (_unknown("disks that are not seen"),)
        partition = re.match(r"^part\d+-", uuid)
        if partition:
            # As with a partition that the kernel made, what counts is the device that it is of.
            return below[0]
        if uuid.startswith("CRYPT-VERITY"):
            return Layer("mapped", "dm-verity", below)
        if uuid.startswith("CRYPT-"):
            return Layer("crypt", "dm-crypt", below)
        if uuid.startswith("mpath-"):
            # Each path leads to the same disk.
            return Layer("multipath", f"multipath ({len(below)} paths)", below[:1])
        return Layer("mapped", "device mapper", below)

    def _volume(self, directory: str, depth: int) -> Tuple[Dict[str, None], Tuple[Layer, ...]]:
        """What kinds of volumes of LVM lie within each other, and what is below them all. Metadata are left out: they carry little."""
        kinds: Dict[str, None] = {}
        below: Dict[str, Layer] = {}
        if depth > _MOST_DEPTH:
            return kinds, ()
        for member in self._members(directory):
            name = self._line(member + "/dm/name") or ""
            hidden = _HIDDEN_VOLUME.search(name)
            if not (self._line(member + "/dm/uuid") or "").startswith("LVM-"):
                layer = self._device(member, depth + 1)
                below[member] = layer
            elif not _METADATA.search(name):
                self._left -= 1
                kind = _kind_of_volume(hidden.group(1) or hidden.group(2)) if hidden else None
                inner, layers = self._volume(member, depth + 1) if self._left > 0 else ({}, ())
                kinds.update(inner)
                if kind:
                    kinds[kind] = None
                below.update({str(number) + member: layer for number, layer in enumerate(layers)})
        return kinds, tuple(below.values())

    def _line(self, path: str) -> Optional[str]:
        return _line(self._host, path)


def _line(host: Host, path: str) -> Optional[str]:
    """A file of one value; None where it is absent, empty or cannot be read."""
    text = host.read(path, limit=4096)
    return (text.strip() or None) if text else None


def _kind_of_volume(suffix: str) -> Optional[str]:
    if suffix.startswith("t"):
        return "thin"
    if suffix.startswith("c") and suffix != "cow":
        return "cache"
    return "RAID" if suffix.startswith(("rimage", "mimage")) else "snapshot"


def option(options: str, name: str) -> Optional[str]:
    """The value of a mount option, the last one where it stands twice."""
    found = [each.partition("=")[2] for each in options.split(",") if each.startswith(name + "=")]
    return found[-1] if found else None


# --------------------------------------------------------------------------------------------------------------------
# Servers
# --------------------------------------------------------------------------------------------------------------------


def _served(host: Host, mount: Dict[str, str], served: str) -> Layer:
    version, address = option(mount["super"], "vers"), option(mount["super"], "addr")
    link = link_to(host, address) if address else None
    told = [f"{served} {_said(version)}" if version else served]
    if link:
        told.append(f"over {link[0]} ({link[1] / 1000:g} Gb/s)")
    device = _said(mount["device"])
    told.append(f"({device})")
    return Layer("disk", " ".join(told), name=device, disk_class="network", carries=link[1] * 1e6 / 8 if link else None)


def link_to(host: Host, address: str) -> Optional[Tuple[str, int]]:
    """The interface by which an IPv4 address is reached, and its speed in Mb/s, where /proc/net/route and /sys/class/net tell both."""
    try:
        wanted = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    except OSError:
        return None
    best: Optional[Tuple[int, str]] = None
    for line in (host.read("/proc/net/route", limit=_MOST_CHARACTERS) or "").splitlines()[1:]:
        fields = line.split()
        try:
            # The kernel prints addresses as numbers of the machine's own order of bytes.
            destination, mask = int(fields[1], 16), int(fields[7], 16)
        except (IndexError, ValueError):
            continue
        length = bin(mask).count("1")
        if wanted & mask == destination and (best is None or length > best[0]):
            best = (length, fields[0])
    if best is None or "/" in best[1]:
        return None
    speed = _number(_line(host, f"/sys/class/net/{best[1]}/speed"))
    # An interface that has no speed, or no link, says -1 (Documentation/ABI/testing/sysfs-class-net).
    return (best[1], int(speed)) if speed and 0 < speed < 1e8 else None


def _number(text: Optional[str]) -> Optional[float]:
    """The number that a text begins with."""
    found = re.match(r"^\d{1,9}(?:\.\d{1,3})?(?=\s|$)", text or "")
    return float(found.group(0)) if found else None


# --------------------------------------------------------------------------------------------------------------------
# Disks
# --------------------------------------------------------------------------------------------------------------------


def _nvme(host: Host, directory: str, name: str) -> Layer:
    controllers = _controllers(host, directory, name)
    controller = controllers[0]
    transport, model = _line(host, controller + "/transport"), _said(_line(host, controller + "/model"))
    tail = f" ({model})" if model else ""
    paths = f" over {len(controllers)} paths" if len(controllers) > 1 else ""
    if transport in _TRANSPORTS:
        return Layer("disk", f"NVMe over {_TRANSPORTS[transport]}{paths}{tail}", (), name, "network", model)
    for begin, told in _VIRTUAL_NVME:
        if model.lower().startswith(begin.lower()):
            return Layer("disk", f"{told} by NVMe ({model})", (), name, "virtual", model)
    port = controller + "/device"
    link, able = _link(host, port, "current"), _link(host, port, "max")
    slot = _link(host, os.path.dirname(host.realpath(port)), "max")
    generation = min(_GENERATIONS.get(link.speed, 0), 5) if link else 0
    kind = f"nvme{generation}" if generation >= 3 else "nvme"
    return Layer("disk", "NVMe {}{}{}".format(link or "drive", paths, tail), (), name, kind, model, link, able, slot)


def _controllers(host: Host, directory: str, name: str) -> List[str]:
    """Directories of the controllers that lead to a namespace.

    Numbers do not tell: where the kernel's own multipath is on, a namespace is named after its subsystem and lies below it, beside links to
    the controllers (nvme-multipath.rst).
    """
    parent = os.path.dirname(directory)
    if re.match(r"^nvme-subsys\d+$", os.path.basename(parent)):
        found = [host.realpath(f"{parent}/{each}") for each in host.names(parent) if re.match(r"^nvme\d+$", each)]
        if found:
            return found
    if re.match(r"^nvme\d+$", os.path.basename(parent)):
        return [parent]
    return [host.realpath("/sys/class/nvme/" + re.sub(r"(c\d+)?n\d+$", "", name))]


def _link(host: Host, directory: str, when: str) -> Optional[Link]:
    """The `current` or `max` link of a PCI device; None where it does not tell (a virtual one says "Unknown", 0 or 255 lanes)."""
    speed = _number(_line(host, f"{directory}/{when}_link_speed"))
    width = _number(_line(host, f"{directory}/{when}_link_width"))
    return Link(speed, int(width)) if speed in _GENERATIONS and width and width <= 32 and speed else None


#: Disks whose driver tells what they are, by the beginning of their name: class and words.
_BY_NAME: Tuple[Tuple[str, str, str], ...] = (
    ("vd", "virtual", "virtio disk"),
    ("xvd", "virtual", "Xen disk"),
    ("rbd", "network", "Ceph RBD"),
    ("nbd", "network", "network block device"),
    ("drbd", "network", "DRBD"),
    ("zram", "memory", "zram"),
    ("ram", "memory", "RAM disk"),
    ("pmem", "memory", "persistent memory"),
)
#: What the path of a SCSI disk in sysfs goes through: how it is attached (Documentation/scsi, transport classes).
_ATTACHED: Tuple[Tuple[str, str, str], ...] = (
    (r"/session\d+/", "network", "iSCSI disk"),
    (r"/rport-[^/]+/", "network", "Fibre Channel disk"),
    (r"/usb\d+/", "usb", "USB disk"),
    (r"/virtio\d+/", "virtual", "virtio disk"),
)


def _disk(host: Host, directory: str, name: str) -> Layer:
    vendor, model = _said(_line(host, directory + "/device/vendor")), _said(_line(host, directory + "/device/model"))
    # A disk of virtio has the number of its vendor there.
    vendor = "" if vendor.startswith("0x") else vendor
    made = f"{vendor} {model}".strip()
    kind, told = _kind_of_disk(host, directory, name, made)
    product = model if vendor in ("", "ATA") else made
    return Layer("disk", f"{told} ({product})" if product else told, (), name, kind, product or None)


def _kind_of_disk(host: Host, directory: str, name: str, made: str) -> Tuple[Optional[str], str]:
    for begin, kind, told in _BY_NAME:
        if re.match(rf"{begin}[a-z0-9]", name):
            return kind, told
    if name.startswith("mmcblk"):
        return "mmc", {"MMC": "eMMC", "SD": "SD card"}.get(_line(host, directory + "/device/type") or "", "MMC")
    for pattern, told in _VIRTUAL_SCSI:
        if pattern.search(made):
            return "virtual", told
    for way, kind, told in _ATTACHED:
        if re.search(way, host.realpath(directory) + "/"):
            return kind, told
    if _RAID_VOLUME.search(made):
        return "raid", "volume of a RAID controller"
    rotational = _line(host, directory + "/queue/rotational")
    bus = "SATA" if made.startswith("ATA ") else "SAS" if "/end_device-" in directory else "SCSI"
    known = {"1": ("hdd", f"{bus} hard disk"), "0": ("ssd", f"{bus} SSD")}
    return known.get(rotational or "", (None, f"{name}, whose kind the kernel does not tell"))

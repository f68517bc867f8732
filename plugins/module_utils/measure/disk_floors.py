# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a disk has to deliver at the least, by its class and by the layers above it.

Floors are low on purpose: they find a disk that is broken or wrongly attached, and rank none, since drives of one family differ by a factor
of three. A missed one is a warning. What a network, a cloud or a RAID controller gives is reported and not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import disk_class

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.disk_class import Layer

MB = 1_000_000


class Row(NamedTuple):
    """Floors of a class: bytes a second for `seqread` and `seqwrite`, operations a second for `randread` (4 KiB, 4 jobs of 32 requests).

    `nominal` is what the class promises for sequential reads. `source` is where the floors are from, or how they were assumed.
    """

    limits: Mapping[str, float]
    source: str


class Limits(NamedTuple):
    """What a measurement of one disk is held against. `words` name the disk; `source` as in a row."""

    words: str
    limits: Mapping[str, float]
    source: str


_NVME3 = Row(
    {"seqread": 2_500 * MB, "randread": 300_000, "seqwrite": 1_000 * MB, "nominal": 3_500 * MB},
    "assumed: about seven tenths of what drives with four lanes of PCIe 3.0 promise",
)
_NOT_JUDGED = "none: what it may take is another's choice (a network, a cloud, a controller, a plug)"
FLOORS: Dict[str, Row] = {
    "hdd": Row(
        {"seqread": 100 * MB, "seqwrite": 80 * MB}, "assumed: the inner tracks of a disk with 7,200 turns a minute"
    ),
    # 600 MB/s are what the link carries: https://sata-io.org/developers/sata-ecosystem (6 Gb/s, 8b/10b).
    "ssd": Row(
        {"seqread": 400 * MB, "randread": 50_000, "seqwrite": 300 * MB, "nominal": 500 * MB},
        "assumed: two thirds of what SATA at 6 Gb/s carries",
    ),
    # A drive whose link the machine does not tell: as the slowest that is sold.
    "nvme": _NVME3,
    "nvme3": _NVME3,
    # github.com/oracle-quickstart/oci-hpc judges Samsung's MZWLJ7T6HALA, a PCIe 4.0 drive, by 430,000 less 2 %.
    "nvme4": Row(
        {"seqread": 5_000 * MB, "randread": 400_000, "seqwrite": 2_000 * MB, "nominal": 7_000 * MB},
        "randread: below the slowest PCIe 4.0 drive of github.com/oracle-quickstart/oci-hpc (430,000); the others assumed",
    ),
    "nvme5": Row(
        {"seqread": 10_000 * MB, "randread": 600_000, "seqwrite": 4_000 * MB},
        "assumed: twice those of PCIe 4.0; randread what four jobs on slow processors do",
    ),
    "md": Row({}, "none: the floor of an array is made of its disks"),
    "raid": Row({}, _NOT_JUDGED),
    "network": Row({}, _NOT_JUDGED),
    "virtual": Row({}, _NOT_JUDGED),
    "usb": Row({}, _NOT_JUDGED),
    "mmc": Row({}, _NOT_JUDGED),
    "memory": Row({}, "none: no disk is measured"),
}
_PARTS = ("seqread", "randread", "seqwrite")
#: Gigatransfers and lanes that the floors of an NVMe class are for: a narrower or slower link has its share of them.
_LANES = 4.0
_SPEEDS = {"nvme": 8.0, "nvme3": 8.0, "nvme4": 16.0, "nvme5": 32.0}

#: RAID 0 reads and writes all its disks at once; of their sum so much is asked, and no more than one job's processor can move. All assumed.
_STRIPED = {"seqread": 0.8, "randread": 0.5, "seqwrite": 0.7}
_MOST_OF_STRIPED = {"seqread": 10_000.0 * MB, "randread": 600_000.0, "seqwrite": 4_000.0 * MB}
#: A mirror writes each block to all its disks; assumed. What parity costs a write depends on its size, so it has no floor.
_MIRRORED_WRITES = 0.5
#: Encryption costs processor time: https://blog.cloudflare.com/speeding-up-linux-disk-encryption/ measured dm-crypt at a half to a seventh
#: of the disk below. Assumed: a quarter.
_ENCRYPTED = 0.25


def of_class(name: Optional[str]) -> Limits:
    """The floors of a class that somebody named; none where there is no such class."""
    row = FLOORS.get(name or "")
    if row is None:
        return Limits("a disk of unknown class", {}, "none: the class of the disk is not known")
    return Limits(f"a disk of class {name}", row.limits, row.source)


def of_layers(layer: Layer) -> Limits:
    """The floors of what stands behind a directory: those of its disks, by way of the layers above them."""
    sources: List[str] = []
    return Limits(disk_class.words(layer), _of(layer, sources), "; ".join(dict.fromkeys(sources)))


def _of(layer: Layer, sources: List[str]) -> Dict[str, float]:
    """The floors of a layer; where they come from is added to the sources."""
    if not layer.below:
        return _of_disk(layer, sources)
    below = [_of(each, sources) for each in layer.below]
    if layer.kind == "loop":
        # Its file is read through the page cache of the file system below.
        sources.append("none: a loop device is read through the page cache")
        return {}
    if layer.kind == "crypt":
        sources.append("a quarter of it for dm-crypt, assumed")
        return {part: value * _ENCRYPTED for part, value in _slowest(below).items() if part in _PARTS}
    if layer.kind == "raid0":
        sources.append("RAID 0: a share of the sum of its disks, with an end at what one job moves, assumed")
        return _sum(below)
    if layer.kind.startswith("raid"):
        sources.append(f"{layer.kind}: as its slowest disk, assumed")
        return _redundant(layer.kind, _slowest(below))
    return _slowest(below)


def _of_disk(disk: Layer, sources: List[str]) -> Dict[str, float]:
    known = of_class(disk.disk_class)
    sources.append(known.source)
    if disk.carries:
        return {"nominal": disk.carries}
    wanted = _SPEEDS.get(disk.disk_class or "")
    share = min(1.0, disk.link.width / _LANES * min(1.0, disk.link.speed / wanted)) if disk.link and wanted else 1.0
    if share < 1:
        sources.append(f"{share:.0%} of it for {disk.link}")
        return {part: value * share for part, value in known.limits.items() if part in _PARTS}
    return dict(known.limits)


def _slowest(below: Sequence[Mapping[str, float]]) -> Dict[str, float]:
    """What the slowest of several has; nothing of a part that one of them has no floor for, and no promise of them together."""
    parts = below[0] if len(below) == 1 else _PARTS
    return {part: min(each[part] for each in below) for part in parts if all(part in each for each in below)}


def _sum(below: Sequence[Mapping[str, float]]) -> Dict[str, float]:
    floors = {}
    for part in _PARTS:
        if all(part in each for each in below):
            floors[part] = min(sum(each[part] for each in below) * _STRIPED[part], _MOST_OF_STRIPED[part])
    return floors


def _redundant(level: str, slowest: Mapping[str, float]) -> Dict[str, float]:
    floors = {part: value for part, value in slowest.items() if part in _PARTS}
    if "seqwrite" in floors:
        floors["seqwrite"] *= _MIRRORED_WRITES
    if level not in ("raid1", "raid10"):
        floors.pop("seqwrite", None)
    return floors


# --------------------------------------------------------------------------------------------------------------------
# Judging
# --------------------------------------------------------------------------------------------------------------------


def judge(layer: Layer, given: Optional[str] = None) -> List[Check]:
    """The checks `fio.disk`, whether it is known what was measured, and `fio.link`, one for each NVMe drive with a link.

    `given` is the class that a person named instead.
    """
    told = disk_class.words(layer)
    drives = [disk for disk in disk_class.disks_of(layer) if disk.link is not None]
    links = [_judge_link(disk) for disk in drives] or [
        checks.skipped("fio.link", "no NVMe drive with a link of PCI Express is below the directory", "warning")
    ]
    if given is not None:
        return [
            checks.passed("fio.disk", "info", measured=given, reason=f"its class is given; found was {told}"),
            *links,
        ]
    found = disk_class.class_of(layer)
    return [
        checks.judged(
            "fio.disk",
            found is not None,
            "info",
            measured=found,
            reason=told if found else f"measured and held against no floor: {told}",
            action="configure",
            remedy="name the class with 'disk_class', or the floors with 'expected_read_mb', 'expected_write_mb' and 'expected_iops'",
        ),
        *links,
    ]


def _judge_link(disk: Layer) -> Check:
    """A drive in a link below what it can: a fault where its slot can do more, else the choice of who built the machine."""
    link, able, slot = disk.link, disk.able or disk.link, disk.slot
    if link is None or able is None:
        return checks.incomplete("fio.link", f"{disk.name} does not tell its link", "warning")
    rest: checks.Rest = {"measured": str(link), "expected": str(able), "evidence": f"{disk.name}: {disk.words}"}
    if link.speed >= able.speed and link.width >= able.width:
        return checks.passed("fio.link", "warning", **rest)
    by_slot = (
        slot is not None and link.speed >= min(able.speed, slot.speed) and link.width >= min(able.width, slot.width)
    )
    if by_slot:
        return checks.failed(
            "fio.link",
            "info",
            reason=f"{disk.name} could have {able} and is in a slot with {slot}",
            action="none",
            remedy="where its speed matters, put the drive into a slot with those lanes, or look for them in the firmware's setup",
            **rest,
        )
    return checks.failed(
        "fio.link",
        "warning",
        reason=f"{disk.name} has {link} where it could have {able}",
        action="check_hardware",
        remedy="reseat the drive and its riser, backplane or cable, and look at the lanes of the slot in the firmware's setup",
        **rest,
    )

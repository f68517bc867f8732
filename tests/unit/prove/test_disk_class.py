"""Which disks stand behind a directory, and what they have to deliver."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import disk_class, disk_floors
from ansible_collections.gpuwright.node.plugins.module_utils.measure.disk_class import Layer, Link

MB = 1_000_000
MACHINES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "fixtures" / "disks.yaml").read_text(encoding="utf-8")
)


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(Path(*[".."] * (len(path.parts) - 1 - shared(path, target)), *target.parts[shared(path, target) :]))


def shared(one: Path, other: Path) -> int:
    """How many parts two paths begin with together."""
    same = [left == right for left, right in zip(one.parts, other.parts, strict=False)]
    return same.index(False) if False in same else len(same)


def build(root: Path, machine: dict[str, Any]) -> Host:
    """The tree of a machine of the fixture."""
    devices, kept = root / "sys/devices", machine.get("devices", {})
    write(root / "proc/1/mountinfo", "\n".join(machine["mounts"]))
    for number, device in kept.items():
        place = devices / device["path"]
        place.mkdir(parents=True, exist_ok=True)
        link(root / "sys/dev/block" / number, place)
        link(root / "sys/class/block" / place.name, place)
        write_attributes(place, device)
        for slave in device.get("slaves", ()):
            below = devices / kept[slave]["path"]
            link(place / "slaves" / below.name, below)
    for number in machine.get("btrfs", ()):
        below = devices / kept[number]["path"]
        link(root / "sys/fs/btrfs/0123-4567/devices" / below.name, below)
        write(root / "dev" / below.name, "")
    controllers(devices, machine)
    routes(root, machine.get("route", {}))
    for name, text in machine.get("files", {}).items():
        write(root / name, text)
    for name in machine.get("directories", ()):
        (root / name).mkdir(parents=True, exist_ok=True)
    return Host(root=str(root), euid=0)


def controllers(devices: Path, machine: dict[str, Any]) -> None:
    """The links of PCI devices, and the controllers of NVMe with their subsystems."""
    for place, ends in machine.get("links", {}).items():
        for when, told in ends.items():
            speed, width = str(told).split()
            write(devices / place / f"{when}_link_speed", speed if speed == "Unknown" else f"{speed} GT/s PCIe")
            write(devices / place / f"{when}_link_width", width)
    for place, attributes in machine.get("nvme", {}).items():
        for name, value in attributes.items():
            write(devices / place / name, value)
        if "pci" in place:
            link(devices / place / "device", (devices / place).parent.parent)
    for place, paths in machine.get("subsystem", {}).items():
        for path in paths:
            link(devices / place / Path(path).name, devices / path)


def write_attributes(place: Path, device: dict[str, Any]) -> None:
    if place.parent.name == "block" and "virtual" not in place.parts:
        link(place / "device", place.parent.parent)
    elif re.match(rf"{place.parent.name}p?\d", place.name):
        write(place / "partition", 1)
    if "rotational" in device:
        write(place / "queue/rotational", device["rotational"])
    for name, value in zip(("vendor", "model"), device.get("scsi", ()), strict=False):
        write(place.parent.parent / name, f"{value:<8}")
    for name in ("vendor", "type"):
        if name in device:
            write(place.parent.parent / name, device[name])
    for name, value in zip(("name", "uuid"), device.get("dm", ()), strict=False):
        write(place / "dm" / name, value)
    if "md" in device:
        write(place / "md/level", device["md"])
    if "loop" in device:
        write(place / "loop/backing_file", device["loop"])


def routes(root: Path, interfaces: dict[str, list[Any]]) -> None:
    lines = ["Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT"]
    for name, (network, mask, speed) in interfaces.items():
        hexed = [f"{int.from_bytes(socket.inet_aton(each), 'little'):08X}" for each in (network, mask)]
        lines.append(f"{name}\t{hexed[0]}\t00000000\t0001\t0\t0\t0\t{hexed[1]}\t0\t0\t0")
        write(root / "sys/class/net" / name / "speed", speed)
    write(root / "proc/net/route", "\n".join(lines))


def test_there_are_twenty_five_machines_each_with_its_source() -> None:
    assert len(MACHINES) >= 25
    assert all(machine["source"] for machine in MACHINES)
    assert {machine["class"] for machine in MACHINES} >= {
        None,
        "hdd",
        "ssd",
        "nvme3",
        "nvme4",
        "nvme5",
        "md",
        "network",
        "virtual",
    }


@pytest.mark.parametrize("machine", MACHINES, ids=[machine["name"] for machine in MACHINES])
def test_the_disks_of_a_machine_are_told_with_class_layers_and_floors(tmp_path: Path, machine: dict[str, Any]) -> None:
    host = build(tmp_path, machine)
    layer = disk_class.behind(machine.get("path", "/var/tmp"), host)
    assert (disk_class.class_of(layer), disk_class.words(layer)) == (machine["class"], machine["words"])
    limits = disk_floors.of_layers(layer)
    unit = {"seqread": MB, "seqwrite": MB, "randread": 1}
    floors = {part: limits.limits[part] / unit[part] for part in unit if part in limits.limits}
    assert floors == machine["floors"]
    assert limits.source
    if "nominal" in machine:
        assert limits.limits["nominal"] == machine["nominal"] * MB
    found, link_of_drive, *_ = disk_floors.judge(layer)
    assert found["status"] == ("pass" if machine["class"] else "warn")
    wanted = machine.get("link", "skip").split(", an info")[0].split(", a warning")[0]
    assert link_of_drive["status"] == wanted
    assert (link_of_drive["severity"] == "info") is machine.get("link", "").endswith("info")


def test_a_later_mount_hides_the_earlier_one_and_a_longer_name_is_no_part_of_a_shorter() -> None:
    mounts = disk_class.parse_mountinfo(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:25 / /tmp rw - tmpfs tmpfs rw\n"
        "3 1 0:50 / /mnt/my\\040data rw - nfs4 nas:/e rw\n4 1 8:2 / /mnt/my\\040data rw - xfs /dev/sda2 rw\n"
    )
    for path, kind in (("/", "ext4"), ("/tmp/x", "tmpfs"), ("/tmpx", "ext4"), ("/mnt/my data/y", "xfs")):
        mount = disk_class.mount_of(mounts, path)
        assert mount
        assert mount["fstype"] == kind


def test_a_drive_that_its_slot_holds_back_is_told_and_one_that_came_up_narrow_is_a_fault(tmp_path: Path) -> None:
    drive = Layer("disk", "x", (), "nvme0n1", "nvme4", "x", Link(8.0, 4), Link(16.0, 4), Link(8.0, 4))
    [_, held] = disk_floors.judge(drive)
    assert (held["status"], held["severity"], held["action"]) == ("warn", "info", "none")
    for slot in (Link(16.0, 16), None):
        [_, fault] = disk_floors.judge(drive._replace(slot=slot))
        assert (fault["severity"], fault["action"]) == ("warning", "check_hardware")
        assert (fault["measured"], fault["expected"]) == ("PCIe 3.0 x4", "PCIe 4.0 x4")
    assert disk_floors.judge(drive._replace(link=Link(16.0, 4)))[1]["status"] == "pass"


def test_a_class_that_a_person_gives_wins_and_what_was_found_is_told() -> None:
    unknown = Layer("disk", "a disk that nobody knows")
    [found, _] = disk_floors.judge(unknown, "nvme4")
    assert (found["status"], found["measured"]) == ("pass", "nvme4")
    [found, _] = disk_floors.judge(unknown)
    assert (found["status"], found["severity"]) == ("warn", "info")
    assert "disk_class" in str(found["remedy"])
    assert "nobody knows" in str(found["reason"])


def array(level: str, *disks: str) -> dict[str, float]:
    below = tuple(Layer("disk", name, (), f"{name}{number}", name) for number, name in enumerate(disks))
    return dict(disk_floors.of_layers(Layer(level, level, below)).limits)


def test_the_floor_of_an_array_is_made_of_its_disks() -> None:
    assert array("raid0", "ssd", "ssd") == {"seqread": 640 * MB, "randread": 50_000, "seqwrite": 420 * MB}
    assert array("raid0", "nvme5", "nvme5", "nvme5")["seqread"] == 10_000 * MB, "one job moves no more"
    assert array("raid0", "ssd", "virtual") == {}
    assert array("raid0", "hdd", "hdd") == {"seqread": 160 * MB, "seqwrite": 112 * MB}
    assert array("raid1", "ssd", "hdd") == {"seqread": 100 * MB, "seqwrite": 40 * MB}
    assert array("raid5", "ssd", "ssd", "ssd") == {"seqread": 400 * MB, "randread": 50_000}
    assert array("linear", "ssd", "hdd") == {"seqread": 100 * MB, "seqwrite": 80 * MB}


def test_several_disks_together_promise_nothing_and_one_below_lvm_what_it_promises() -> None:
    ssd = Layer("disk", "ssd", (), "sda", "ssd")
    assert disk_floors.of_layers(Layer("lvm", "LVM", (ssd,))).limits["nominal"] == 500 * MB
    assert "nominal" not in disk_floors.of_layers(Layer("lvm", "LVM", (ssd, ssd))).limits
    assert "nominal" not in disk_floors.of_layers(Layer("crypt", "dm-crypt", (ssd,))).limits


def test_every_class_has_floors_or_a_reason_for_none() -> None:
    assert set(disk_floors.FLOORS) == set(disk_class.CLASSES)
    for name, row in disk_floors.FLOORS.items():
        assert row.source, name
        assert set(row.limits) <= {"seqread", "randread", "seqwrite", "nominal"}, name
        assert bool(row.limits) != row.source.startswith("none"), name


# --------------------------------------------------------------------------------------------------------------------
# What a broken or hostile machine says
# --------------------------------------------------------------------------------------------------------------------

ODD = ["", "nan", "1e999", "-1", "0", "255", "4" * 400, "Unknown", "16.0.0", "x4", "\x1b[2J", "16,0"]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["current_link_speed", "current_link_width"])
def test_a_link_that_cannot_be_is_no_link(tmp_path: Path, name: str, odd: str) -> None:
    machine = next(each for each in MACHINES if each["class"] == "nvme4")
    host = build(tmp_path, machine)
    write(tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0" / name, odd)
    layer = disk_class.behind("/", host)
    assert disk_class.class_of(layer) == "nvme"
    assert disk_class.words(layer) == "ext4 on LVM on dm-crypt on NVMe drive (Example 960)"
    assert disk_floors.judge(layer)[1]["status"] == "skip"


def test_what_a_disk_says_of_itself_moves_no_cursor_and_has_an_end(tmp_path: Path) -> None:
    machine = next(each for each in MACHINES if each["class"] == "nvme4")
    host = build(tmp_path, machine)
    write(tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/model", "\x1b[2J\n" + "x" * 100_000)
    told = disk_class.words(disk_class.behind("/", host))
    assert "\x1b" not in told
    assert "\n" not in told
    assert len(told) < 200


def test_devices_that_lie_on_each_other_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    for uuid in ("LVM-x", "CRYPT-LUKS2-x", "mpath-x", "part1-x", ""):
        root = tmp_path / (uuid or "none")
        devices = {
            f"253:{number}": {
                "path": f"virtual/block/dm-{number}",
                "dm": [f"v{number}", uuid],
                "slaves": [f"253:{other}" for other in range(6)],
            }
            for number in range(6)
        }
        host = build(root, {"mounts": ["1 0 253:0 / / rw - ext4 /dev/dm-0 rw"], "devices": devices})
        layer = disk_class.behind("/", host)
        assert disk_class.class_of(layer) is None
        assert disk_floors.of_layers(layer).limits == {}
        assert len(disk_class.disks_of(layer)) < 2000


def test_overlays_and_images_that_lie_on_each_other_come_to_an_end(tmp_path: Path) -> None:
    mounts = [
        "1 0 0:61 / / rw - overlay overlay rw,upperdir=/b/up",
        "2 1 0:62 / /b rw - overlay overlay rw,upperdir=/up",
        "3 1 7:0 / /c rw - ext4 /dev/loop0 rw",
    ]
    machine = {"mounts": mounts, "directories": ["b/up", "up", "c"], "files": {"c/image": ""}}
    host = build(tmp_path, {**machine, "devices": {"7:0": {"path": "virtual/block/loop0", "loop": "/c/image"}}})
    for path in ("/", "/b", "/c"):
        assert disk_class.class_of(disk_class.behind(path, host)) is None


NO_MOUNTS = [
    "",
    "\0" * 5000,
    "1 2 3",
    " - ".join("x" * 9),
    "22 1 ../../etc:1 / / rw - ext4 /dev/../../etc rw",
    "22 1 8:1 / / rw - ext4 " + "y" * 200_000,
]


@pytest.mark.parametrize("text", NO_MOUNTS)
def test_a_table_of_mounts_that_is_none_names_no_disk(tmp_path: Path, text: str) -> None:
    write(tmp_path / "proc/1/mountinfo", text)
    layer = disk_class.behind("/var/tmp", Host(root=str(tmp_path), euid=0))
    assert disk_class.class_of(layer) is None
    assert len(disk_class.words(layer)) < 300


_REST = "\t0\t1\t0\t0\t0\t"
NO_ROUTES = ["", "eth0", f"eth0\tzz{_REST}zz", f"../x\t00000000{_REST}00000000", f"eth9\t00000000{_REST}00000000"]


@pytest.mark.parametrize("line", NO_ROUTES)
def test_a_table_of_routes_that_is_none_names_no_link(tmp_path: Path, line: str) -> None:
    write(tmp_path / "proc/net/route", "Iface\n" + line)
    write(tmp_path / "sys/class/net/eth0/speed", -1)
    assert disk_class.link_to(Host(root=str(tmp_path), euid=0), "10.0.0.1") is None
    for address in ("", "fd00::1", "nas", "999.1.1.1", "10.0.0.1 x"):
        assert disk_class.link_to(Host(root=str(tmp_path), euid=0), address) is None

"""What the kernel counts of errors in /sys: of PCIe, on the way to cards and adapters, and of the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import hardware_errors

#: As Documentation/ABI/testing/sysfs-bus-pci-devices-aer of Linux has them.
KINDS = {
    "correctable": ("COR", ["RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr"]),
    "nonfatal": ("NONFATAL", ["Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO"]),
    "fatal": ("FATAL", ["Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO"]),
}
ROOT_PORT, SWITCH_PORT, CARD = "0000:3a:00.0", "0000:3b:00.0", "0000:3c:00.0"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Machine:
    """A tree of /sys and /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/bus/pci/devices").mkdir(parents=True)
        write(root / "proc/uptime", "7200.50 90000.00\n")

    def device(self, *way: str, vendor: str = "0x8086", device_class: str = "0x060400", counts: bool = True) -> Path:
        """A device below the others of its way, with its counts."""
        place = self.root / "sys/devices/pci0000:3a" / "/".join(way)
        write(place / "vendor", f"{vendor}\n")
        write(place / "class", f"{device_class}\n")
        for kind, (total, names) in KINDS.items() if counts else ():
            lines = [*(f"{name} 0" for name in names), f"TOTAL_ERR_{total} 0"]
            write(place / f"aer_dev_{kind}", "\n".join(lines) + "\n")
        (self.root / "sys/bus/pci/devices" / way[-1]).symlink_to(Path("../../../devices/pci0000:3a") / "/".join(way))
        return place

    def memory(self, name: str, corrected: str, uncorrected: str) -> None:
        place = self.root / "sys/devices/system/edac/mc" / name
        write(place / "ce_count", corrected)
        write(place / "ue_count", uncorrected)

    def read(self) -> hardware_errors.Hardware:
        return hardware_errors.read(Host(root=str(self.root)))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A root port, a port of a switch below it, and a card there; a sound device of the same card, and a disk."""
    machine = Machine(tmp_path)
    machine.device(ROOT_PORT)
    machine.device(ROOT_PORT, SWITCH_PORT)
    card = machine.device(ROOT_PORT, SWITCH_PORT, CARD, vendor="0x10de", device_class="0x030200")
    write(card / "max_link_speed", "32.0 GT/s PCIe\n")
    write(card / "max_link_width", "16\n")
    machine.device(ROOT_PORT, SWITCH_PORT, "0000:3c:00.1", vendor="0x10de", device_class="0x040300")
    machine.device("0000:3a:05.0", vendor="0x144d", device_class="0x010802")
    return machine


def test_a_card_is_told_with_the_bridges_above_it_and_nothing_else(machine: Machine) -> None:
    found = machine.read()
    assert [(each["bus_id"], each["role"]) for each in found["devices"]] == [
        ("00000000:3A:00.0", "bridge"),
        ("00000000:3B:00.0", "bridge"),
        ("00000000:3C:00.0", "card"),
    ]
    card = found["devices"][2]
    assert (card["correctable"], card["nonfatal"], card["fatal"], card["errors"]) == (0, 0, 0, "")
    assert (card["lanes"], card["speed_gts"]) == (16, 32.0)
    assert (found["uptime"], found["devices_unread"], found["memory_unread"]) == (7200.5, None, None)


def test_adapters_and_nvswitches_are_told_and_parts_that_are_lent_are_not(machine: Machine) -> None:
    machine.device("0000:3a:06.0", "0000:60:00.0", vendor="0x15b3", device_class="0x020700")
    machine.device("0000:3a:07.0", "0000:61:00.0", vendor="0x10de", device_class="0x068000")
    lent = machine.device("0000:3a:06.0", "0000:60:00.1", vendor="0x15b3", device_class="0x020700")
    (lent / "physfn").symlink_to("../0000:60:00.0")
    roles = {each["bus_id"]: each["role"] for each in machine.read()["devices"]}
    assert roles["00000000:60:00.0"] == "network"
    assert roles["00000000:61:00.0"] == "switch"
    assert roles["00000000:3A:06.0"] == "bridge"
    assert "00000000:60:00.1" not in roles


def test_counts_are_told_by_their_sum_and_their_kinds(machine: Machine) -> None:
    place = machine.root / "sys/devices/pci0000:3a" / ROOT_PORT
    write(place / "aer_dev_correctable", "RxErr 7\nBadTLP 2\nTOTAL_ERR_COR 9\n")
    write(place / "aer_dev_fatal", "DLP 1\nTOTAL_ERR_FATAL 1\n")
    port = machine.read()["devices"][0]
    assert (port["correctable"], port["nonfatal"], port["fatal"]) == (9, 0, 1)
    assert port["errors"] == "RxErr 7, BadTLP 2, DLP 1"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", None),
        ("\n", None),
        ("garbage", None),
        ("RxErr -1\nTOTAL_ERR_COR nan\n", None),
        ("RxErr 1e999\nTOTAL_ERR_COR 1e999\n", None),
        ("RxErr 99999999999999999999999999\n", None),
        ("RxErr 3\nBadTLP 4\n", 7),
        ("TOTAL_ERR_COR 5", 5),
        ("TOTAL_ERR_COR 5\n" + "x" * 100_000, 5),
        ("RxErr 5 5\nTOTAL_ERR_COR 6\n", 6),
    ],
)
def test_what_is_no_count_is_none(machine: Machine, text: str, count: int | None) -> None:
    write(machine.root / "sys/devices/pci0000:3a" / ROOT_PORT / "aer_dev_correctable", text)
    assert machine.read()["devices"][0]["correctable"] == count


@pytest.mark.parametrize(
    ("speed", "width", "found"),
    [
        ("16.0 GT/s PCIe", "8", (8, 16.0)),
        ("8 GT/s", "16", (16, 8.0)),
        ("Unknown", "255", (None, None)),
        ("", "0", (None, None)),
        ("nan GT/s", "-1", (None, None)),
    ],
)
def test_links_are_told_where_the_kernel_knows_them(
    machine: Machine, speed: str, width: str, found: tuple[int | None, float | None]
) -> None:
    place = machine.root / "sys/devices/pci0000:3a" / ROOT_PORT
    write(place / "max_link_speed", speed)
    write(place / "max_link_width", width)
    device = machine.read()["devices"][0]
    assert (device["lanes"], device["speed_gts"]) == found


def test_a_kernel_that_counts_nothing_is_no_error(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.device(CARD, vendor="0x10de", device_class="0x030000", counts=False)
    found = machine.read()
    [card] = found["devices"]
    assert (card["correctable"], card["nonfatal"], card["fatal"]) == (None, None, None)
    assert (found["memory"], found["devices_unread"], found["memory_unread"]) == ([], None, None)
    empty = hardware_errors.read(Host(root=str(tmp_path / "nothing")))
    assert (empty["devices"], empty["memory"], empty["uptime"]) == ([], [], None)


def test_what_is_there_and_cannot_be_read_is_told(machine: Machine) -> None:
    place = machine.root / "sys/devices/pci0000:3a" / ROOT_PORT / "aer_dev_fatal"
    place.unlink()
    place.mkdir()
    assert "aer_dev_fatal could not be read" in str(machine.read()["devices_unread"])
    assert machine.read()["memory_unread"] is None
    machine.memory("mc0", "0\n", "0\n")
    count = machine.root / "sys/devices/system/edac/mc/mc0/ue_count"
    count.unlink()
    count.mkdir()
    assert "ue_count could not be read" in str(machine.read()["memory_unread"])


def test_the_memory_is_told_by_its_controllers(machine: Machine) -> None:
    machine.memory("mc0", "3\n", "0\n")
    machine.memory("mc1", "nan", "-1")
    (machine.root / "sys/devices/system/edac/mc/power").mkdir()
    assert machine.read()["memory"] == [
        {"controller": "mc0", "corrected": 3, "uncorrected": 0},
        {"controller": "mc1", "corrected": None, "uncorrected": None},
    ]


@pytest.mark.parametrize(
    ("text", "uptime"), [("12 3", 12.0), ("nan 3", None), ("", None), ("-5 3", None), ("1e999 1", None)]
)
def test_the_time_since_the_boot_is_a_number_or_nothing(machine: Machine, text: str, uptime: float | None) -> None:
    write(machine.root / "proc/uptime", text)
    assert machine.read()["uptime"] == uptime

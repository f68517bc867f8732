"""What is not this system's to manage: cards of virtual machines, virtual cards, the driver of Windows or of a container's host."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.facts import OtherGpu, Smi
from ansible_collections.gpuwright.node.plugins.module_utils.observe import foreign, pci
from ansible_collections.gpuwright.node.plugins.module_utils.observe.machine import observe
from tests.unit.observe.trees import FakePrograms, Tree

GPU = "0000:3b:00.0"
IDS = """# made up
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX]
\t\t1002 0e3b  a subsystem
10de  NVIDIA Corporation
\t2684  AD102 [GeForce RTX 4090]
\t744c  not this one
C 03  Display controller
"""


def configuration(capability: bytes, *, before: bytes = b"\x01\x50\x03\x00") -> bytes:
    """A PCI configuration space of 256 bytes with a power-management capability and CAPABILITY after it."""
    data = bytearray(256)
    data[0:4] = b"\xde\x10\xb8\x1e"
    data[0x06] = 0x10
    data[0x34] = 0x40
    data[0x40 : 0x40 + len(before)] = before
    data[0x50 : 0x50 + len(capability)] = capability
    return bytes(data)


def vgpu_capability(*records: bytes) -> bytes:
    body = b"VF" + b"".join(records)
    return bytes((0x09, 0x00, 3 + len(body))) + body


HOST = b"\x00\x16" + b"550.163.02".ljust(10, b"\0") + b"r550_00".ljust(10, b"\0")


@pytest.mark.parametrize("driver", ["vfio-pci", "pci-stub", "xen-pciback"])
def test_a_card_that_is_held_for_a_virtual_machine_is_none_of_this_systems(tree: Tree, driver: str) -> None:
    tree.h100()
    tree.pci("0000:5e:00.0", "0x10de", "0x2684", "0x030000")
    tree.link("/sys/bus/pci/devices/0000:5e:00.0/driver", f"../../../bus/pci/drivers/{driver}")
    tree.file("/usr/share/misc/pci.ids", IDS)
    seen = pci.observe(tree.host())
    assert [gpu["bus_id"] for gpu in seen["gpus"]] == ["00000000:3B:00.0"]
    assert seen["reserved"] == [
        {
            "vendor": "10de",
            "device": "2684",
            "bus_id": "00000000:5E:00.0",
            "name": "AD102 [GeForce RTX 4090]",
            "driver": driver,
        }
    ]


def test_a_card_on_another_driver_is_not_held_for_a_virtual_machine(tree: Tree) -> None:
    tree.pci("0000:5e:00.0", "0x10de", "0x2684", "0x030000")
    tree.link("/sys/bus/pci/devices/0000:5e:00.0/driver", "../../../bus/pci/drivers/nouveau")
    seen = pci.observe(tree.host())
    assert (len(seen["gpus"]), seen["reserved"]) == (1, [])


def test_a_switch_of_a_virtual_machine_needs_no_fabric_manager_here(tree: Tree) -> None:
    tree.pci("0000:07:00.0", "0x10de", "0x22a3", "0x068000")
    tree.link("/sys/bus/pci/devices/0000:07:00.0/driver", "../../../bus/pci/drivers/vfio-pci")
    seen = pci.observe(tree.host())
    assert (seen["nvswitches"], seen["reserved"]) == ([], [])


def test_the_functions_that_a_card_offers_to_machines_are_no_cards(tree: Tree) -> None:
    tree.h100()
    tree.pci("0000:3b:00.4", "0x10de", "0x2330", "0x030200")
    tree.link("/sys/bus/pci/devices/0000:3b:00.4/physfn", "../0000:3b:00.0")
    seen = pci.observe(tree.host())
    assert ([gpu["bus_id"] for gpu in seen["gpus"]], seen["virtual_functions"]) == (["00000000:3B:00.0"], 1)


def test_other_vendors_cards_are_named_by_the_systems_list(tree: Tree) -> None:
    tree.pci("0000:03:00.0", "0x1002", "0x744c", "0x030000")
    tree.file("/usr/share/hwdata/pci.ids", IDS)
    assert pci.observe(tree.host())["other_gpus"][0]["name"] == "Navi 31 [Radeon RX 7900 XT/7900 XTX]"


@pytest.mark.parametrize(
    ("capability", "found"),
    [
        (vgpu_capability(HOST), ["550.163.02"]),
        (vgpu_capability(b"\x01\x04ab", HOST), ["550.163.02"]),
        (vgpu_capability(b"\x01\x00"), [None]),
        (vgpu_capability(b"\x00\x05ab"), [None]),
        (bytes((0x09, 0x00, 0x14)) + b"P2" + bytes(15), []),
        (b"", []),
    ],
    ids=["version first", "after another record", "broken", "cut short", "passed through", "no capability"],
)
def test_a_virtual_gpu_is_told_by_its_signature(tree: Tree, capability: bytes, found: list[str | None]) -> None:
    tree.h100(GPU)
    tree.file(f"/sys/bus/pci/devices/{GPU}/config", configuration(capability))
    host = tree.host()
    seen = foreign.vgpus(host, pci.observe(host)["gpus"])
    assert [gpu["host_driver"] for gpu in seen] == found
    assert all(gpu["bus_id"] == "00000000:3B:00.0" for gpu in seen)
    assert "pci.vgpus" not in host.unknown_facts


def test_what_an_ordinary_user_cannot_read_is_unknown(tree: Tree) -> None:
    tree.h100(GPU)
    tree.file(f"/sys/bus/pci/devices/{GPU}/config", configuration(vgpu_capability(HOST))[:64])
    host = tree.host()
    assert foreign.vgpus(host, pci.observe(host)["gpus"]) == []
    assert "root" in host.unknown_facts["pci.vgpus"]


def test_a_list_of_capabilities_that_goes_in_a_circle_ends(tree: Tree) -> None:
    tree.h100(GPU)
    tree.file(f"/sys/bus/pci/devices/{GPU}/config", configuration(b"", before=b"\x01\x40\x03\x00"))
    host = tree.host()
    assert foreign.vgpus(host, pci.observe(host)["gpus"]) == []


def test_virtual_gpus_are_looked_for_in_virtual_machines_alone(tree: Tree) -> None:
    tree.h100(GPU)
    tree.file(f"/sys/bus/pci/devices/{GPU}/config", configuration(vgpu_capability(HOST)))
    assert observe(tree.host())["pci"]["vgpus"] == []
    tree.file("/sys/class/dmi/id/sys_vendor", "QEMU\n")
    assert observe(tree.host())["pci"]["vgpus"][0]["host_driver"] == "550.163.02"


def test_wsl_has_the_driver_of_windows(tree: Tree) -> None:
    tree.file("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2")
    tree.packages({"libc6": "2.39-0ubuntu8"})
    tree.file("/usr/lib/wsl/lib/libcuda.so.1")
    tree.program("/usr/lib/wsl/lib/nvidia-smi")
    facts = observe(tree.host())
    assert facts["environment"]["kind"] == "wsl"
    assert (facts["driver"]["owner"], facts["driver"]["nvidia_smi"]) == ("host", "/usr/lib/wsl/lib/nvidia-smi")
    assert not {"driver.owner", "driver.user_version"} & set(facts["unknown"])


def test_a_container_has_the_driver_of_its_host(tree: Tree) -> None:
    tree.file("/.dockerenv")
    tree.packages({"libc6": "2.39-0ubuntu8"})
    tree.file("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05")
    tree.link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.580.95.05")
    driver = observe(tree.host())["driver"]
    assert (driver["owner"], driver["user_version"]) == ("host", "580.95.05")


def test_elsewhere_libraries_of_no_package_have_no_known_owner(tree: Tree) -> None:
    tree.packages({"libc6": "2.39-0ubuntu8"})
    tree.file("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05")
    tree.link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.580.95.05")
    facts = observe(tree.host())
    assert facts["driver"]["owner"] == "unknown"
    assert "driver.owner" in facts["unknown"]


def test_inside_wsl_the_cards_are_those_that_nvidia_smi_names() -> None:
    said: Any = {"data": {"gpus": [{"pci_bus_id": "00000000:01:00.0", "pci_id": "10de:2684"}]}}
    (card,) = foreign.cards_of_windows(said)
    assert (card["bus_id"], card["vendor"], card["device"]) == ("00000000:01:00.0", "10de", "2684")
    silent: Smi = {"rc": 1, "seconds": 0.1, "error": "no device", "data": None}
    assert foreign.cards_of_windows(None) == foreign.cards_of_windows(silent) == []


def test_names_are_looked_up_for_nothing_without_reading_the_list(tree: Tree) -> None:
    host = tree.host(runner=FakePrograms())
    tree.file("/usr/share/misc/pci.ids", IDS)
    device: OtherGpu = {"vendor": "10de", "device": "744c", "bus_id": "00000000:01:00.0", "name": None}
    assert foreign.names(host, []) == {}
    assert foreign.names(host, [device]) == {("10de", "744c"): "not this one"}

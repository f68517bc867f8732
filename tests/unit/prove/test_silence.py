"""Healthy machines of different kinds give no alarm: what is judged of one kind is no fault of another.

What each of them tells is assumed from what such machines are known to tell; the cards begin with the values of the fixtures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import causes, judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes
from tests.unit.plan.test_hosts import elsewhere, wsl
from tests.unit.prove.conftest import FIXTURES
from tests.unit.prove.test_around import disk, library, node
from tests.unit.prove.test_load_judge import changed

Machine = Callable[[Any], Any]

INTEL = {"vendor": "8086", "device": "a7a0", "bus_id": "00000000:00:02.0", "name": "Iris Xe"}
SCREEN = "00000000:1B:00.0"
DISPLAY_CARD, CONTROLLER = "0300", "0302"


def cards(facts: Any, count: int, device_class: str, **values: Any) -> Any:
    """The good node with so many of its card, each at its own place; ``values`` of nvidia-smi."""
    (place,), (told,) = facts["pci"]["gpus"], facts["smi"]["data"]["gpus"]
    buses = [f"00000000:{0x1B + number:02X}:00.0" for number in range(count)]
    several = [
        changed({**told, "pci_bus_id": bus, "index": number, "minor_number": number, "uuid": f"GPU-{number}"}, values)
        for number, bus in enumerate(buses)
    ]
    driver = facts["driver"]["user_version"]
    own = [node("/dev/nvidiactl"), *(node(f"/dev/nvidia{number}") for number in range(count))]
    return nodes.merged(
        facts,
        {
            "pci": {"gpus": [{**place, "bus_id": bus, "class": device_class} for bus in buses]},
            "smi": {"data": {"gpus": several, "attached_gpus": count}},
            "driver": {"loader": [library("/usr/lib/x86_64-linux-gnu/libcuda.so.1", driver)], "nodes": own},
            "names": {"servers": ["127.0.0.53"], "hosts": ["localhost"], "problem": None},
            "disks": [disk("/"), disk("/home")],
        },
    )


def laptop(facts: Any) -> Any:
    """Hybrid graphics: the screen hangs on Intel's, and the card sleeps most of the day, so that nvidia-smi leaves it alone."""
    seen = cards(
        facts, 1, CONTROLLER, name="NVIDIA GeForce RTX 4070 Laptop GPU", power_limit_w=None, persistence_mode=False
    )
    return nodes.merged(seen, {"pci": {"other_gpus": [INTEL]}, "display": {"desktop": True}})


def workstation(facts: Any) -> Any:
    """A desktop with its screen on the card, which computes beside it; the file system is one."""
    desk = {"pid": 1500, "type": "G", "name": "/usr/lib/xorg/Xorg"}
    seen = cards(facts, 1, DISPLAY_CARD, name="NVIDIA GeForce RTX 5090", persistence_mode=False, processes=[desk])
    return nodes.merged(seen, {"display": {"desktop": True, "nvidia_screens": [SCREEN]}})


def two_at_a_desk(facts: Any) -> Any:
    """Two cards for games: the bridges and the IOMMU are as the firmware leaves them."""
    seen = cards(facts, 2, DISPLAY_CARD, name="NVIDIA GeForce RTX 4090")
    return nodes.merged(seen, {"pci": {"peers": {"redirecting": ["0000:00:01.1"], "iommu": ["DMA-FQ"]}}})


def board_of_eight(facts: Any) -> Any:
    """Eight cards behind NVSwitches; the IOMMU translates, as distributions have it, and NVLink does not care."""
    fabric = {"fabric.state": "Completed", "fabric.status": "Success"}
    seen = cards(facts, 8, CONTROLLER, name="NVIDIA H100 80GB HBM3", **fabric)
    driver = seen["driver"]["loaded_version"]
    return nodes.merged(
        seen,
        {
            "pci": {
                "nvswitches": [{"bus_id": f"00000000:0{number}:00.0", "device": "22a3"} for number in range(1, 5)],
                "peers": {"redirecting": [], "iommu": ["DMA-FQ"]},
            },
            "services": {"nvidia-fabricmanager.service": {"active": "active", "enabled": "enabled"}},
            "packages": {"installed": {"nvidia-fabricmanager": f"{driver}-1"}},
        },
    )


def bridged_pair(facts: Any) -> Any:
    """Two H100 NVL over three bridges: twelve of eighteen links are up, by design (azurehpc-health-checks takes that for a fault)."""
    seen = cards(facts, 2, CONTROLLER, name="NVIDIA H100 NVL")
    return nodes.merged(seen, {"pci": {"peers": {"redirecting": [], "iommu": ["identity"]}}})


def guest_with_a_card(facts: Any) -> Any:
    """A virtual machine to which a card was passed through: the link is what the hypervisor says."""
    link = {"pcie.width": 16, "pcie.width_max": 16, "virtualization_mode": "Pass-Through"}
    return nodes.merged(cards(facts, 1, CONTROLLER, **link), {"environment": {"kind": "vm", "detail": "kvm"}})


def guest_with_cards_of_a_cloud(facts: Any) -> Any:
    """Eight cards passed through: what is between them is the hypervisor's."""
    seen = cards(facts, 8, CONTROLLER, virtualization_mode="Pass-Through")
    between = {"redirecting": ["0000:00:01.0"], "iommu": ["DMA"]}
    return nodes.merged(seen, {"environment": {"kind": "vm", "detail": "kvm"}, "pci": {"peers": between}})


def without_cards(_facts: Any) -> Any:
    """A machine for metrics or storage."""
    return nodes.bare(pci={"gpus": []}, kernel={"loaded": {}})


def host_of_virtual_machines(facts: Any) -> Any:
    """PVE: one card computes here, two are held for guests by vfio-pci."""
    held = [
        {"vendor": "10de", "device": "2330", "bus_id": f"00000000:A{number}:00.0", "name": None, "driver": "vfio-pci"}
        for number in range(2)
    ]
    seen = cards(facts, 1, CONTROLLER)
    kernel = "6.17.2-1-pve"
    return nodes.merged(seen, {"pci": {"reserved": held}, "kernel": {"running": kernel, "next": kernel}})


def of_windows(facts: Any) -> Any:
    """WSL: the library has no version in its name, and there are no device nodes."""
    of_wsl = {"loader": [library("/usr/lib/wsl/lib/libcuda.so.1", None)], "nodes": []}
    return nodes.merged(wsl(), {"smi": facts["smi"], "driver": of_wsl})


def board(_facts: Any) -> Any:
    """A Jetson: no card on a bus, no nvidia-smi, the driver of its own image."""
    seen = elsewhere("jetson", detail="NVIDIA Jetson AGX Orin")
    return nodes.merged(seen, {"os": {"arch": "aarch64"}, "pci": {"gpus": []}, "driver": {"owner": "host"}})


def spark(facts: Any) -> Any:
    """A GB10: its memory is the machine's, so that nvidia-smi knows neither its size nor a limit of power or a fan."""
    none = dict.fromkeys(
        (
            "memory_total_mib",
            "power_limit_w",
            "power_default_limit_w",
            "fan_percent",
        ),
    )
    pcie = {"pcie.gen_host_max": None, "ecc.mode": None, "ecc.pending": None, "remapped_rows": None}
    return nodes.merged(cards(facts, 1, CONTROLLER, name="NVIDIA GB10", **none, **pcie), {"os": {"arch": "aarch64"}})


def virtual_card(facts: Any) -> Any:
    """A guest of a vGPU with its licence."""
    seen = cards(facts, 1, CONTROLLER, virtualization_mode="VGPU", licence="Licensed (Expiry: 2027-1-1 0:0:0 GMT)")
    virtual = [{"bus_id": "00000000:1B:00.0", "host_driver": "580.105.06"}]
    return nodes.merged(seen, {"environment": {"kind": "vm", "detail": "kvm"}, "pci": {"vgpus": virtual}})


def parted(facts: Any) -> Any:
    """A server with MIG on, its cards in parts."""
    data = parse_xml((FIXTURES / "mig_580.xml").read_text(encoding="utf-8"))
    (place,) = facts["pci"]["gpus"]
    own = [node("/dev/nvidiactl"), *(node(f"/dev/nvidia{number}") for number in range(8))]
    version = data["driver_version"]
    parts = [
        f"{number}:{part}" for number, card in enumerate(data["gpus"]) for part in range(len(card["mig"]["devices"]))
    ]
    return nodes.merged(
        facts,
        {
            "containers": {
                "cdi": {
                    "specifications": [
                        {"path": "/var/run/cdi/nvidia.yaml", "driver": version, "devices": [*parts, "all"]}
                    ]
                }
            },
            "pci": {"gpus": [{**place, "bus_id": card["pci_bus_id"]} for card in data["gpus"]]},
            "smi": {"data": {**data, "gpus": [{**card, "persistence_mode": True} for card in data["gpus"]]}},
            "driver": {"loaded_version": version, "user_version": version, "nodes": own},
            "kernel": {"available": {"nvidia": {"version": version}}},
            "proof": {"driver": version},
        },
    )


MACHINES: tuple[Machine, ...] = (
    laptop,
    workstation,
    two_at_a_desk,
    board_of_eight,
    bridged_pair,
    guest_with_a_card,
    guest_with_cards_of_a_cloud,
    without_cards,
    host_of_virtual_machines,
    of_windows,
    board,
    spark,
    virtual_card,
    parted,
)


def alarms(seen: Any) -> dict[str, str]:
    """What a person would read of a machine; that one was never proven is none of its faults."""
    found = causes.told(judge.judge(seen, {}, {"proof": False}), load_rules())
    return {check["id"]: str(check["reason"]) for check in found if check["status"] not in ("pass", "skip")}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_a_healthy_machine_is_silent(facts: Any, machine: Machine) -> None:
    assert alarms(machine(facts)) == {}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_the_same_machine_with_a_full_disk_is_not(facts: Any, machine: Machine) -> None:
    assert "disk.space" in alarms(nodes.merged(machine(facts), {"disks": [disk("/", 10**6)]}))

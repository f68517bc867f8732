"""Devices beside the cards that a scenario may have: NVSwitches, the ports that manage an NVLink 5 fabric, RDMA adapters."""

from __future__ import annotations

import json
from typing import Any

from . import node

# Text of the vital product data of a ConnectX-7; the management ports of an NVLink 5 fabric bear the mark SW_MNG.
_VPD = b"\x82\x2d\x00NVIDIA ConnectX-7 HHHL Adapter Card, 400GbE\x00\x90\x12\x00PN\x0fMCX75310AAS%b\x78"


def beside(scenario: dict[str, Any]) -> list[dict[str, Any]]:
    """PCI devices of the scenario that are no cards."""
    devices = list(scenario.get("other_gpus") or ())
    devices += [_device(0x60 + index, "10de", "22a3", "068000") for index in range(scenario.get("nvswitches") or 0)]
    devices += [
        {**_device(0x70 + index, "15b3", "1021", "020700"), "vpd": _VPD % b"-SW_MNG"}
        for index in range(scenario.get("fabric_ports") or 0)
    ]
    devices += [
        {**_device(0x78 + index, "15b3", "1021", "020700"), "vpd": _VPD % b"-N"}
        for index in range(scenario.get("adapters") or 0)
    ]
    return devices


def _device(bus: int, vendor: str, device: str, class_code: str) -> dict[str, Any]:
    return {"bus_id": f"0000:{bus:02x}:00.0", "vendor": vendor, "device": device, "class": class_code, "driver": None}


def has_fabric(scenario: dict[str, Any]) -> bool:
    """Whether the cards talk through NVSwitches, so that a fabric manager has to connect them."""
    return bool(scenario.get("nvswitches") or scenario.get("fabric_ports"))


def fabric_state() -> str | None:
    """None where there is no fabric; else what nvidia-smi calls its state."""
    if not has_fabric(node.scenario()):
        return None
    path = node.VIEW / "fabric.json"
    return "Completed" if path.exists() and json.loads(path.read_text()) else "In Progress"

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the kernel counts of errors since the boot: of PCIe, by the cards, the NVSwitches, the network adapters and the bridges above them,
and of the memory, by its controllers.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Set, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.smi import document

#: Devices and memory controllers that are told; the largest machines have some hundred bridges.
MOST_DEVICES = 400
MOST_CONTROLLERS = 64

_DEVICES = "/sys/bus/pci/devices/"
_CONTROLLERS = "/sys/devices/system/edac/mc"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NVIDIA = "0x10de"
# PCI classes (pci.ids): display controllers; bridge "other", as which an NVSwitch shows; network controllers.
_DISPLAY, _SWITCH, _NETWORK = "0x03", "0x0680", "0x02"
# Documentation/ABI/testing/sysfs-bus-pci-devices-aer of Linux: a line for each kind of error, the sum in the last one.
_COUNT = re.compile(r"(\w{1,40}) ([0-9]{1,18})")
_SUM = "TOTAL_ERR_"
_FILE = 4096


class Device(TypedDict):
    """A device on the way to a card or an adapter, and what was counted there; None where the kernel counts nothing.

    ``role``: card, switch, network or bridge. ``errors``: the kinds that were counted. ``lanes`` and ``speed_gts``: the widest and fastest
    link that it can have.
    """

    bus_id: str
    role: str
    correctable: Optional[int]
    nonfatal: Optional[int]
    fatal: Optional[int]
    errors: str
    lanes: Optional[int]
    speed_gts: Optional[float]


class Memory(TypedDict):
    """A memory controller as EDAC counts it; None where it says no number."""

    controller: str
    corrected: Optional[int]
    uncorrected: Optional[int]


class Hardware(TypedDict):
    """What :func:`read` returns. ``uptime``: seconds since the boot. ``..._unread``: why something that is there could not be read."""

    devices: List[Device]
    devices_unread: Optional[str]
    memory: List[Memory]
    memory_unread: Optional[str]
    uptime: Optional[float]


def read(host: Host) -> Hardware:
    """The counts of this machine."""
    devices, memory = _devices(host), _memory(host)
    return {
        "devices": devices,
        "devices_unread": _unread(host, _DEVICES),
        "memory": memory,
        "memory_unread": _unread(host, _CONTROLLERS),
        "uptime": _uptime(host),
    }


def _unread(host: Host, below: str) -> Optional[str]:
    """Why something below a path could not be read; a host notes it by its path."""
    return next((reason for fact, reason in host.unknown_facts.items() if fact.startswith(below)), None)


def _devices(host: Host) -> List[Device]:
    roles: Dict[str, str] = {}
    bridges: Set[str] = set()
    for address in host.names(_DEVICES):
        role = _role(host, address)
        if role is not None:
            roles[address] = role
            # /sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0: what is above a device is above it in its path.
            bridges.update(_ADDRESS.findall(host.realpath(_DEVICES + address)))
    roles.update(dict.fromkeys(sorted(bridges - set(roles)), "bridge"))
    return [_device(host, address, roles[address]) for address in sorted(roles)][:MOST_DEVICES]


def _role(host: Host, address: str) -> Optional[str]:
    """What a device is to this machine; None for what nobody asks for, and for parts of a card that are lent to virtual machines."""
    path = _DEVICES + address
    device_class = host.line(path + "/class") or ""
    if host.link(path + "/physfn"):
        return None
    if device_class.startswith(_NETWORK):
        return "network"
    if host.line(path + "/vendor") != _NVIDIA:
        return None
    if device_class.startswith(_DISPLAY):
        return "card"
    return "switch" if device_class.startswith(_SWITCH) else None


def _device(host: Host, address: str, role: str) -> Device:
    path = _DEVICES + address
    counts = {kind: _counts(host, f"{path}/aer_dev_{kind}") for kind in ("correctable", "nonfatal", "fatal")}
    named = [f"{name} {count}" for kind in counts.values() for name, count in (kind or {}).items() if count]
    speed = re.match(r"([0-9]{1,4}(?:\.[0-9]{1,2})?) ?GT/s", host.line(path + "/max_link_speed") or "")
    lanes = host.line(path + "/max_link_width") or ""
    return {
        "bus_id": document.normalise_bus_id(address),
        "role": role,
        "correctable": _sum(counts["correctable"]),
        "nonfatal": _sum(counts["nonfatal"]),
        "fatal": _sum(counts["fatal"]),
        "errors": ", ".join(each for each in named if not each.startswith(_SUM))[:400],
        "lanes": int(lanes) if re.match(r"[1-9][0-9]?\Z", lanes) else None,
        "speed_gts": float(speed[1]) if speed else None,
    }


def _counts(host: Host, path: str) -> Optional[Dict[str, int]]:
    """The counts of one file by their names; None where there is no such file, or nothing in it is a count."""
    text = host.read(path, limit=_FILE)
    matches = [_COUNT.fullmatch(line.strip()) for line in (text or "").splitlines()]
    return {match[1]: int(match[2]) for match in matches if match} or None


def _sum(counts: Optional[Dict[str, int]]) -> Optional[int]:
    if counts is None:
        return None
    return next((count for name, count in counts.items() if name.startswith(_SUM)), sum(counts.values()))


def _memory(host: Host) -> List[Memory]:
    names = [name for name in host.names(_CONTROLLERS) if re.match(r"mc[0-9]{1,4}\Z", name)][:MOST_CONTROLLERS]
    return [
        {
            "controller": name,
            "corrected": _number(host, f"{_CONTROLLERS}/{name}/ce_count"),
            "uncorrected": _number(host, f"{_CONTROLLERS}/{name}/ue_count"),
        }
        for name in names
    ]


def _number(host: Host, path: str) -> Optional[int]:
    text = (host.read(path, limit=_FILE) or "").strip()
    return int(text) if re.match(r"[0-9]{1,18}\Z", text) else None


def _uptime(host: Host) -> Optional[float]:
    found = re.match(r"[0-9]{1,12}(?:\.[0-9]{1,4})? ", host.read("/proc/uptime", limit=_FILE) or "")
    return float(found[0]) if found else None

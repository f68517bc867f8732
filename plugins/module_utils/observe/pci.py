# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Devices on the PCI bus: GPUs, NVSwitches, the management ports of NVLink 5 fabrics."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import foreign

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        NvSwitch,
        OtherGpu,
        Pci,
        PciGpu,
        ReservedGpu,
    )

_DEVICES = "/sys/bus/pci/devices/"
_NVIDIA, _AMD, _INTEL, _MELLANOX = "10de", "1002", "8086", "15b3"
# PCI classes (pci.ids): VGA and 3D controller; any display; processing accelerator; bridge "other"; InfiniBand.
_GPU_CLASSES = ("0300", "0302")
_ACCELERATOR = "1200"
_NVSWITCH = "0680"
_INFINIBAND = "0207"
_ETHERNET = "0200"
# Text in the VPD of the InfiniBand functions that manage an NVLink 5 fabric (HGX B200/B300 show no NVSwitch).
_FABRIC_MARK = b"SW_MNG"

# Where rules of udev are; the first of a name counts (udev(7)). One that takes cards off is written by a switch of hybrid graphics, beside
# those of their audio and USB (github bayasdev/envycontrol, issue 54).
_RULES = (
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
)
_REMOVES = re.compile(
    r'^(?=[^#\n]*ATTR\{vendor\}=="0x10de")(?=[^#\n]*ATTR\{remove\}="1")'
    r'(?![^\n]*ATTR\{class\}=="0x0(?!3))[ \t]*[^#\n]',
    re.MULTILINE,
)
_MOST_RULES = 20


def bus_id(address: str) -> str:
    """NVIDIA's writing of an address: "0000:3b:00.0" is "00000000:3B:00.0"."""
    domain, _colon, rest = address.partition(":")
    return domain.rjust(8, "0").upper() + ":" + rest.upper()


def _number(host: Host, path: str) -> str | None:
    """A number of sysfs without its 0x."""
    text = host.line(path)
    return text[2:].lower() if text and text.startswith("0x") else text


def _gpu(host: Host, address: str, device_class: str) -> PciGpu:
    path = _DEVICES + address
    return {
        "bus_id": bus_id(address),
        "vendor": _NVIDIA,
        "device": _number(host, path + "/device"),
        "class": device_class,
        "revision": _number(host, path + "/revision"),
        "driver": foreign.bound_to(host, path),
    }


def _named(host: Host, address: str) -> OtherGpu:
    """A device that is only named; `name` is filled in where the system has a list of names."""
    vendor, device = (_number(host, _DEVICES + address + "/" + name) for name in ("vendor", "device"))
    return {"vendor": vendor, "device": device, "bus_id": bus_id(address), "name": None}


def _nvlink5(host: Host, ports: list[str]) -> bool | None:
    """Whether an InfiniBand function manages an NVLink fabric. Its VPD can be read by root only."""
    unseen = None
    for address in ports:
        path = _DEVICES + address + "/vpd"
        if not host.exists(path):
            continue
        try:
            with open(host.at(path), "rb") as stream:
                if _FABRIC_MARK in stream.read(4096):
                    return True
        except OSError as exc:
            unseen = f"{path} could not be read: {exc.strerror or exc}"
    if unseen:
        host.unknown("pci.nvlink5", unseen)
        return None
    return False


def _sort(host: Host, address: str) -> str | None:
    """What a device is to this system: gpu, function, reserved, switch, other, port (InfiniBand), ethernet (Mellanox's);
    None for what nobody asks for.
    """
    path = _DEVICES + address
    device_class = (_number(host, path + "/class") or "")[:4]
    if device_class[:2] != "03" and device_class not in (_ACCELERATOR, _NVSWITCH, _INFINIBAND, _ETHERNET):
        return None
    vendor = _number(host, path + "/vendor")
    shows = device_class[:2] == "03" or device_class == _ACCELERATOR
    if vendor in (_AMD, _INTEL):
        return "other" if shows else None
    if vendor == _MELLANOX:
        return {_INFINIBAND: "port", _ETHERNET: "ethernet"}.get(device_class)
    return _sort_nvidia(host, path, device_class) if vendor == _NVIDIA else None


def _sort_nvidia(host: Host, path: str, device_class: str) -> str | None:
    if host.link(path + "/physfn"):
        return "function"
    if foreign.bound_to(host, path) in foreign.FOR_MACHINES:
        return "reserved" if device_class in _GPU_CLASSES else None
    if device_class in _GPU_CLASSES:
        return "gpu"
    return "switch" if device_class == _NVSWITCH else None


def _class(host: Host, address: str) -> str:
    return (_number(host, _DEVICES + address + "/class") or "")[:4]


def removed_by(host: Host) -> list[str]:
    """The rules of udev that take NVIDIA's cards off the bus."""
    rules: dict[str, str] = {}
    for path in (path for place in _RULES for path in host.glob(place + "/*.rules")):
        rules.setdefault(os.path.basename(path), path)
    return [path for _name, path in sorted(rules.items()) if _REMOVES.search(host.read(path) or "")][:_MOST_RULES]


def observe(host: Host) -> Pci:
    """The part `pci`. `reserved` are cards held for a virtual machine, not this system's to drive; `virtual_functions` counts
    the parts of a card that its own driver made for virtual machines (SR-IOV).
    """
    addresses = host.names(_DEVICES, "pci")
    if not addresses and not host.isdir(_DEVICES):
        host.unknown("pci", f"there is no {_DEVICES}: this system shows no PCI bus")
    found: dict[str | None, list[str]] = {}
    for address in addresses:
        found.setdefault(_sort(host, address), []).append(address)
    gpus = [_gpu(host, address, _class(host, address)) for address in found.get("gpu", ())]
    switches: list[NvSwitch] = [
        {"bus_id": bus_id(address), "device": _number(host, _DEVICES + address + "/device")}
        for address in found.get("switch", ())
    ]
    others = [_named(host, address) for address in found.get("other", ())]
    reserved: list[ReservedGpu] = [
        {**_named(host, address), "driver": foreign.bound_to(host, _DEVICES + address)}
        for address in found.get("reserved", ())
    ]
    named: list[OtherGpu | ReservedGpu] = [*others, *reserved]
    titles = foreign.names(host, named)
    for device in named:
        device["name"] = titles.get((device["vendor"], device["device"]))
    # The fabric question is asked only where it can be answered with yes: reading a VPD takes long.
    nvlink5 = _nvlink5(host, found.get("port", [])) if gpus and not switches else False
    removing = removed_by(host)
    seen: Pci = {
        "gpus": sorted(gpus, key=lambda gpu: gpu["bus_id"]),
        "nvswitches": switches,
        "other_gpus": others,
        "reserved": reserved,
        "virtual_functions": len(found.get("function", ())),
        "nvlink5": nvlink5,
        # Only a virtual machine is asked for them.
        "vgpus": [],
        # Mellanox's: InfiniBand, and Ethernet that may speak RoCE.
        "network_adapters": sorted(bus_id(address) for sort in ("port", "ethernet") for address in found.get(sort, ())),
    }
    if removing:
        seen["removed_by"] = removing
    return seen

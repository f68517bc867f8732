# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is on a machine and is not this system's to manage: virtual GPUs, the driver of Windows or of a container's host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterable

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Driver,
        Environment,
        OtherGpu,
        PciGpu,
        ReservedGpu,
        Smi,
        VirtualGpu,
    )

#: Drivers that hold a PCI device for a virtual machine.
FOR_MACHINES = ("vfio-pci", "pci-stub", "xen-pciback", "pciback")

# Where a PCI device keeps what (PCI Local Bus Specification 3.0, 6.1 and 6.7).
_STATUS, _HAS_CAPABILITIES, _FIRST_CAPABILITY, _VENDOR_SPECIFIC = 0x06, 0x10, 0x34, 0x09
# A virtual GPU signs its vendor-specific capability "VF"; records of one byte kind, one byte length follow. The record of
# kind 0 has the version and the branch of the hypervisor's driver, ten bytes each (NVIDIA's k8s-device-plugin, internal/vgpu).
_SIGNATURE, _RECORDS, _HOST_DRIVER, _TEXT = b"VF", 5, 0, 10

_PCI_IDS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")


def vgpus(host: Host, gpus: Iterable[PciGpu]) -> list[VirtualGpu]:
    """Those of a virtual machine's GPUs that are virtual ones, with what their hypervisor's driver is, as far as they tell.

    The configuration space beyond 64 bytes is root's to read; where it ends before it tells, `pci.vgpus` is unknown.
    """
    found: list[VirtualGpu] = []
    for gpu in gpus:
        data = host.read_bytes("/sys/bus/pci/devices/{}/config".format(gpu["bus_id"][4:].lower())) or b""
        capability = _vendor_capability(data)
        if capability is None:
            host.unknown("pci.vgpus", "the PCI configuration space is only read by root")
        elif capability[3:5] == _SIGNATURE:
            found.append({"bus_id": gpu["bus_id"], "host_driver": _hypervisor(capability)})
    return found


def _vendor_capability(data: bytes) -> bytes | None:
    """The vendor-specific capability; empty where there is none, None where the list of capabilities was not read to its end."""
    if len(data) <= _FIRST_CAPABILITY or not data[_STATUS] & _HAS_CAPABILITIES:
        return b""
    place, seen = data[_FIRST_CAPABILITY], set()
    while place and place not in seen:
        seen.add(place)
        if place + 2 >= len(data):
            return None
        if data[place] == _VENDOR_SPECIFIC:
            return data[place : place + data[place + 2]]
        place = data[place + 1]
    return b""


def _hypervisor(capability: bytes) -> str | None:
    """Version of the hypervisor's driver; None where the capability is cut short."""
    place = _RECORDS
    while place + 2 <= len(capability):
        kind, length = capability[place], capability[place + 1]
        if kind == _HOST_DRIVER and length >= 2 + 2 * _TEXT:
            text = capability[place + 2 :][:_TEXT]
            return text.split(b"\0")[0].decode("ascii", "replace") or None
        if kind == _HOST_DRIVER or length < 2:
            break
        place += length
    return None


def cards_of_windows(smi: Smi | None) -> list[PciGpu]:
    """The cards that nvidia-smi names inside WSL, as devices of a bus that only Windows sees."""
    cards: list[PciGpu] = []
    data = smi["data"] if smi else None
    for row in data["gpus"] if data else ():
        vendor, _colon, device = (row["pci_id"] or "10de:").partition(":")
        cards.append(
            {
                "bus_id": row["pci_bus_id"],
                "vendor": vendor,
                "device": device or None,
                "class": "0302",
                "revision": None,
                "driver": None,
            }
        )
    return cards


def name_owner(host: Host, where: Environment, owned: Driver) -> None:
    """Say "host" of a driver that no package of this system brought, where it comes from Windows or the container's host."""
    if where["kind"] in ("wsl", "container") and owned["owner"] == "unknown" and owned["libcuda"]:
        owned["owner"] = "host"
        host.unknown_facts.pop("driver.owner", None)
        # The libraries of Windows' driver bear no version; nvidia-smi tells it.
        if owned["libcuda"].startswith("/usr/lib/wsl/"):
            host.unknown_facts.pop("driver.user_version", None)


def names(host: Host, devices: Iterable[OtherGpu | ReservedGpu]) -> dict[tuple[str | None, str | None], str]:
    """What the system's list of PCI ids calls devices, by vendor and device; nothing where there is no such list.

    The file is read only where there is something to look up: it has 1.4 MB.
    """
    wanted = {(device["vendor"], device["device"]) for device in devices}
    path = next((path for path in _PCI_IDS if host.exists(path)), None) if wanted else None
    found: dict[tuple[str | None, str | None], str] = {}
    if path is None:
        return found
    vendor = ""
    with open(host.at(path), encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line[:1] not in ("\t", "#", "\n"):
                vendor = line[:4]
            elif line[:1] == "\t" and line[1:2] != "\t" and (vendor, line[1:5]) in wanted:
                found[(vendor, line[1:5])] = line[5:].strip()
    return found


def bound_to(host: Host, path: str) -> str | None:
    """Name of the driver that a device of sysfs is bound to."""
    target = host.link(path + "/driver")
    return os.path.basename(target) if target else None

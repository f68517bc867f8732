"""The hardware as files: what a kernel shows of it under /sys and /proc.

Used at every boot of a simulated node (the tree is then mounted over the real one) and for trees without a node that unit
tests and the benchmark read through the option ``root`` of ``node_facts``. Pure: files are written below BASE only.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

Gpu = dict[str, Any]

_TRANSFERS = {
    1: "2.5 GT/s PCIe",
    2: "5.0 GT/s PCIe",
    3: "8.0 GT/s PCIe",
    4: "16.0 GT/s PCIe",
    5: "32.0 GT/s PCIe",
    6: "64.0 GT/s PCIe",
}

# Neighbours that every server has, so that nobody may take "a PCI device" for "a GPU".
_OTHER_DEVICES: tuple[dict[str, Any], ...] = (
    {"bus_id": "0000:00:00.0", "vendor": "8086", "device": "3258", "class": "060000", "driver": None},
    {"bus_id": "0000:02:00.0", "vendor": "8086", "device": "1563", "class": "020000", "driver": "ixgbe"},
    {"bus_id": "0000:03:00.0", "vendor": "1a03", "device": "2000", "class": "030000", "driver": "ast"},
    {"bus_id": "0000:04:00.0", "vendor": "144d", "device": "a80a", "class": "010802", "driver": "nvme"},
)

_SECURE_BOOT_VARIABLE = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_EFI_ATTRIBUTES = b"\x06\x00\x00\x00"


def write_pci(
    base: Path, gpus: list[Gpu], driver: str | None, narrow: int | None = None, others: list[Gpu] | None = None
) -> None:
    """sys/bus/pci below BASE: the cards, bound to DRIVER or to what holds them, OTHERS (hardware.beside), and a few more devices;
    card NARROW has a link of 4 lanes.
    """
    devices = base / "sys/bus/pci/devices"
    # Emptied, not removed: on a node the folder itself is mounted at its real place.
    for part in ("devices", "drivers", "slots"):
        shutil.rmtree(base / "sys/bus/pci" / part, ignore_errors=True)
    for device in (*_OTHER_DEVICES, *(others or ())):
        _device(devices / str(device["bus_id"]), device)
    for index, gpu in enumerate(gpus):
        width = 4 if index == narrow else gpu["pcie_width"]
        folder = devices / gpu["bus_id"]
        _device(folder, {**gpu, "driver": gpu.get("bound") or driver})
        write(folder / "numa_node", str(gpu.get("numa", 0)))
        write(folder / "boot_vga", "1" if gpu.get("boot_vga") else "0")
        write(folder / "current_link_speed", _TRANSFERS[gpu["pcie_gen"]])
        write(folder / "max_link_speed", _TRANSFERS[gpu["pcie_gen"]])
        write(folder / "current_link_width", str(width))
        write(folder / "max_link_width", str(gpu["pcie_width"]))
    (base / "sys/bus/pci/slots").mkdir(parents=True, exist_ok=True)


def _device(folder: Path, device: dict[str, Any]) -> None:
    vendor, number, class_code = device["vendor"], device["device"], device["class"]
    subsystem_vendor, subsystem_device = (device.get("subsystem") or f"{vendor}:0000").split(":")
    write(folder / "vendor", f"0x{vendor}")
    write(folder / "device", f"0x{number}")
    write(folder / "class", f"0x{class_code}")
    write(folder / "revision", "0xa1" if vendor == "10de" else "0x01")
    write(folder / "subsystem_vendor", f"0x{subsystem_vendor}")
    write(folder / "subsystem_device", f"0x{subsystem_device}")
    write(folder / "numa_node", "-1")
    write(folder / "irq", "16")
    write(folder / "enable", "1")
    write(folder / "resource", "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13))
    write(folder / "uevent", f"PCI_ID={vendor}:{number}".upper())
    write(
        folder / "modalias", f"pci:v0000{vendor}d0000{number}sv0000{subsystem_vendor}sd0000{subsystem_device}".upper()
    )
    (folder / "config").write_bytes(
        _configuration_space(vendor, number, class_code, subsystem_vendor, subsystem_device)
    )
    if device.get("vpd"):
        (folder / "vpd").write_bytes(device["vpd"])
    if device.get("driver"):
        drivers = folder.parents[1] / "drivers" / device["driver"]
        drivers.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(f"../../drivers/{device['driver']}")


def _configuration_space(
    vendor: str, device: str, class_code: str, subsystem_vendor: str, subsystem_device: str
) -> bytes:
    """The first 64 bytes that a PCI device shows, as far as `lspci` reads them."""
    head = struct.pack("<HHHH", int(vendor, 16), int(device, 16), 0x0406, 0x0010)
    code = int(class_code, 16)
    head += bytes((0xA1 if vendor == "10de" else 1, code & 0xFF, code >> 8 & 0xFF, code >> 16 & 0xFF)) + bytes(4)
    return (head + bytes(28) + struct.pack("<HH", int(subsystem_vendor, 16), int(subsystem_device, 16))).ljust(
        64, b"\0"
    )


def write_modules(base: Path, modules: dict[str, dict[str, Any]]) -> None:
    """sys/module and proc/modules below BASE: one entry per loaded module."""
    folder = base / "sys/module"
    folder.mkdir(parents=True, exist_ok=True)
    for entry in list(folder.iterdir()):
        shutil.rmtree(entry)
    lines = []
    for name, info in modules.items():
        write(folder / name / "initstate", "live")
        write(folder / name / "refcnt", "0")
        write(folder / name / "taint", "OE" if name.startswith("nvidia") else "")
        if info.get("version"):
            write(folder / name / "version", info["version"])
        lines.append(f"{name} 16384 0 - Live 0x0000000000000000")
    write(base / "proc/modules", "\n".join(lines))


def write_driver(base: Path, gpus: list[Gpu], module: dict[str, Any] | None) -> None:
    """proc/driver/nvidia below BASE, as the loaded MODULE shows itself; nothing when none is loaded."""
    folder = base / "proc/driver"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "nvidia", ignore_errors=True)
    if module is None:
        return
    version = module["version"]
    built = "Release Build  (gpuwright@simulation)  Fri Nov 20 12:00:00 UTC 2026"
    name = "Open Kernel Module for x86_64" if module["open"] else "x86_64 Kernel Module"
    when = built if module["open"] else "Fri Nov 20 12:00:00 UTC 2026"
    write(
        folder / "nvidia/version",
        f"NVRM version: NVIDIA UNIX {name}  {version}  {when}\nGCC version:  gcc version 14.2.0 (Debian 14.2.0-19)",
    )
    for minor, gpu in enumerate(gpus):
        write(
            folder / "nvidia/gpus" / gpu["bus_id"] / "information",
            f"Model: \t\t {gpu['name']}\nIRQ:   \t\t 16\nGPU UUID: \t {gpu['uuid']}\nVideo BIOS: \t {gpu['vbios']}\n"
            f"Bus Type: \t PCIe\nDMA Size: \t 52 bits\nBus Location: \t {gpu['bus_id']}\nDevice Minor: \t {minor}\nGPU Excluded:\t No",
        )


def write_machine(base: Path, scenario: dict[str, Any], kernel: str, boot_id: str) -> None:
    """What does not change until the next boot: firmware, screens, identity of the machine and of the kernel."""
    write(base / "proc/sys/kernel/osrelease", kernel)
    write(base / "proc/sys/kernel/random/boot_id", boot_id)
    write(
        base / "proc/version",
        f"Linux version {kernel} (builder@simulation) ({scenario['kernel']['compiler']}, GNU ld (GNU Binutils) 2.44)"
        " #1 SMP PREEMPT_DYNAMIC",
    )
    write(
        base / "proc/cmdline",
        f"BOOT_IMAGE=/boot/vmlinuz-{kernel} root=/dev/vda1 ro quiet {scenario.get('cmdline', '')}".strip(),
    )
    if scenario.get("secure_boot") is not None:
        variable = base / "sys/firmware/efi/efivars" / _SECURE_BOOT_VARIABLE
        variable.parent.mkdir(parents=True, exist_ok=True)
        variable.write_bytes(_EFI_ATTRIBUTES + (b"\x01" if scenario["secure_boot"] else b"\x00"))
        write(base / "sys/firmware/efi/fw_platform_size", "64")
    else:
        (base / "sys/firmware").mkdir(parents=True, exist_ok=True)
    virtual = scenario.get("machine", "bare") != "bare"
    dmi = base / "sys/class/dmi/id"
    write(dmi / "sys_vendor", "QEMU" if virtual else "Simulated Systems")
    write(dmi / "product_name", "Standard PC (Q35 + ICH9, 2009)" if virtual else "GPU Server 4U (simulated)")
    write(dmi / "board_vendor", "QEMU" if virtual else "Simulated Systems")
    write(dmi / "bios_vendor", "SeaBIOS" if virtual else "Simulated Systems")
    write(dmi / "chassis_type", "1" if virtual else "23")
    _write_screens(base, scenario)


def write_efi_variable(base: Path, name: str, content: bytes | None) -> None:
    """One of shim's variables below BASE; none where CONTENT is None."""
    path = base / f"sys/firmware/efi/efivars/{name}-605dab50-e046-4300-abb6-3dd810dd8b23"
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _write_screens(base: Path, scenario: dict[str, Any]) -> None:
    drm = base / "sys/class/drm"
    drm.mkdir(parents=True, exist_ok=True)
    desktop = scenario.get("desktop")
    if not desktop:
        return
    gpu = scenario["gpus"][desktop.get("gpu", 0)]
    card, connector = "card0", desktop.get("connector", "HDMI-A-1")
    folder = drm / f"{card}-{connector}"
    write(folder / "status", "connected")
    write(folder / "enabled", "enabled")
    (folder / "device").symlink_to(f"../{card}")
    (drm / card).mkdir()
    (drm / card / "device").symlink_to(f"../../../bus/pci/devices/{gpu['bus_id']}")


def write(path: Path, text: str) -> None:
    """One file of the tree, with the line end that the kernel's files have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n" if text else "")

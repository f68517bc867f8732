# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines whose driver or cards are somebody else's: Windows', JetPack's, a container's host's, a hypervisor's, AMD's, Intel's.

Pure functions over what ``node_facts`` returned and the rules in ``compat/hosts.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from . import Row, Rules

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Card,
        Driver,
        Facts,
        Kernel,
        OtherGpu,
        Pci,
        PciGpu,
        ReservedGpu,
        SmiData,
    )


#: How to have systemd in WSL: it is off in distributions that were installed before it became the default.
SYSTEMD_IN_WSL = (
    "put the lines [boot] and systemd=true into /etc/wsl.conf, run 'wsl --shutdown' in Windows, open the distribution "
    "and run again"
)
WINDOWS_DRIVER = (
    "install or update NVIDIA's driver in Windows, and see that its driver model is WDDM, not TCC (nvidia-smi, and "
    "nvidia-smi -dm 0, there); then run 'wsl --shutdown' there; no driver is installed inside WSL"
)
#: Windows gives its cards to WSL 2, from these on (NVIDIA's guide, "CUDA on WSL").
CARDS_FOR_WSL = (
    "in Windows: be on 11, or on 10 from 21H2 on, install NVIDIA's driver, run 'wsl --update' and 'wsl --shutdown', and see by 'wsl -l -v' "
    "that the distribution is of version 2 ('wsl --set-version NAME 2'); no driver is installed inside WSL"
)
_OWN_KERNEL = (
    "take kernel= out of .wslconfig in Windows, which brings Microsoft's kernel back, and run 'wsl --shutdown'; else "
)
# "5.15.167.4-microsoft-standard-WSL2" (github microsoft/WSL2-Linux-Kernel).
_KERNEL_OF_WSL = lazy(r"\d+(?:\.\d+){2,3}-microsoft-standard(?:-WSL2)?\Z")
_MODPROBE = "/etc/modprobe.d/"
_VENDORS = {"1002": "AMD", "8086": "Intel", "10de": "NVIDIA"}
# A vGPU's name ends in its profile: GRID P40-24Q, NVIDIA A100-1-5C, GRID M60-1B4, NVIDIA H100L-1-12CME.
_PROFILE = lazy(r"-\d+[ABCQ](?:ME|\d)?$")
# WSL 1 has no kernel of its own and so no GPU: 4.4.0-22621-Microsoft.
_WSL_1 = lazy(r"^4\.4\.0-\d+-Microsoft$")
# The first line of /etc/nv_tegra_release: "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic ...".
_L4T = lazy(r"^#\s*R(?P<major>\d+)\s*\(release\)(?:,\s*REVISION:\s*(?P<rest>\d+(?:\.\d+)*))?")


@dataclass(frozen=True)
class Foreign:
    """What of a machine is not gpuwright's.

    windows_driver is the number that WSL shows ("582.53"), wsl is 1 or 2 there. l4t is the release of a Jetson's Linux
    ("36.4.3"). vgpu: the cards are virtual; host_driver is the hypervisor's where that tells. reserved are cards that are
    held for virtual machines, others those of other vendors, both in words. hypervisor: cards are shared with machines.
    removed_by: rules of udev that take cards off the bus.
    """

    windows_driver: str | None = None
    wsl: int | None = None
    l4t: str | None = None
    vgpu: bool = False
    host_driver: str | None = None
    reserved: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    hypervisor: bool = False
    removed_by: tuple[str, ...] = ()


def from_facts(facts: Facts) -> Foreign:
    """Take from an observation what is not gpuwright's."""
    where, bus = kind_of(facts), cast("Pci", _part(facts, "pci"))
    data = cast("SmiData", _part(_part(facts, "smi"), "data"))
    virtual = list(bus.get("vgpus") or ())
    detail = str(_part(facts, "environment").get("detail") or "")
    return Foreign(
        windows_driver=data.get("driver_version") if where == "wsl" else None,
        wsl=(1 if _WSL_1.match(detail) else 2) if where == "wsl" else None,
        l4t=l4t(detail) if where == "jetson" else None,
        vgpu=bool(virtual) or any(_is_virtual(gpu) for gpu in data.get("gpus") or ()),
        host_driver=next((entry["host_driver"] for entry in virtual if entry["host_driver"]), None),
        reserved=tuple(f"{named(entry)}, on {entry['driver']}" for entry in bus.get("reserved") or ()),
        others=tuple(named(entry) for entry in bus.get("other_gpus") or ()),
        hypervisor=bool(bus.get("virtual_functions")) or "nvidia_vgpu_vfio" in _part(_part(facts, "kernel"), "loaded"),
        removed_by=tuple(bus.get("removed_by") or ()),
    )


def _part(facts: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return a part of an observation; an empty one where nobody could look."""
    part = facts.get(name)
    return part if isinstance(part, Mapping) else {}


def kind_of(facts: Facts) -> str | None:
    """Return bare, vm, container, wsl or jetson; None where it is not known."""
    kind = _part(facts, "environment").get("kind")
    return None if kind is None else str(kind)


def driver_of(facts: Facts) -> Driver:
    """Return the part `driver` of an observation; without any key where nobody could look."""
    return cast("Driver", _part(facts, "driver"))


def cards_of(facts: Facts) -> Sequence[PciGpu]:
    """Return the NVIDIA GPUs of an observation."""
    return cast("Pci", _part(facts, "pci")).get("gpus") or ()


def _is_virtual(gpu: Card) -> bool:
    """Say whether nvidia-smi calls a card virtual: by its mode, or by the profile in its name."""
    return gpu.get("virtualization_mode") == "VGPU" or bool(_PROFILE.search(str(gpu.get("name") or "")))


def named(device: OtherGpu | ReservedGpu) -> str:
    """Return a device as a person calls it: vendor, name where the system has a list of names, PCI id and place."""
    vendor = _VENDORS.get(str(device["vendor"]), "unknown vendor")
    name = f" {device['name']}" if device.get("name") else " GPU"
    return f"{vendor}{name} ({device['vendor']}:{device['device']}, {device['bus_id']})"


def l4t(first_line: str) -> str | None:
    """Return the release of a Jetson's Linux ("36.4.3") from the first line of /etc/nv_tegra_release."""
    found = _L4T.match(first_line)
    if not found:
        return None
    numbers = [found["major"], *(found["rest"] or "").split(".")]
    while len(numbers) > 1 and numbers[-1] in ("", "0"):
        numbers.pop()
    return ".".join(numbers)


def jetpack(release: str | None, rules: Rules) -> Row | None:
    """Return the row of the JetPack that a release of L4T is part of."""
    return next((row for row in rules["hosts"]["jetpack"] if row["l4t"] == release), None)


def windows_branch(version: str | None, rules: Rules) -> Row | None:
    """Return the row of the branch that a Windows driver (582.53) belongs to: the last one that begins at or below its number."""
    number = re.match(r"\d+", version or "")
    if number is None:
        return None
    rows = [row for row in rules["hosts"]["windows_drivers"] if int(row["first"]) <= int(number[0])]
    return rows[-1] if rows else None


def kind(name: str, rules: Rules) -> Row:
    """Return the row with what is said of a kind of machine."""
    row: Row = next(row for row in rules["hosts"]["kinds"] if row["kind"] == name)
    return row


def with_others(sentence: str, facts: Facts) -> str:
    """Return a sentence about cards that are not there, and after it what is there instead."""
    found = from_facts(facts)
    words = [sentence]
    if found.reserved:
        words.append(f"held for virtual machines and left alone: {'; '.join(found.reserved)}")
    if found.others:
        words.append(f"nothing is set up for {'; '.join(found.others)}")
    if found.removed_by:
        words.append(f"a rule of udev takes NVIDIA's cards off the bus: {', '.join(found.removed_by)}")
    return "; ".join(words)


def has_gpu_off_the_bus(facts: Facts) -> bool:
    """Say whether a machine has its GPU elsewhere than on a PCI bus: a Jetson."""
    return kind_of(facts) == "jetson"


def windows_trouble(facts: Facts) -> str | None:
    """Return why the cards of Windows cannot be seen inside WSL although its driver is there; None where they can, or none is there."""
    program = driver_of(facts).get("nvidia_smi")
    if kind_of(facts) != "wsl" or cards_of(facts) or not program:
        return None
    error = _part(facts, "smi").get("error") or "it names no card"
    kernel = _part(facts, "kernel").get("running") or ""
    other = f"; the kernel here, {kernel}, is not Microsoft's own and may lack what reaches them (dxgkrnl)"
    return (
        f"Windows has an NVIDIA driver, and {program} cannot see its cards: {error}{'' if _is_of_wsl(facts) else other}"
    )


def without_windows(facts: Facts) -> str | None:
    """Why WSL has no card although somebody wants one there; None where it has the driver of Windows, or nobody is seen to want it."""
    if kind_of(facts) != "wsl" or driver_of(facts).get("libcuda"):
        return None
    if from_facts(facts).wsl == 1:
        return "this is WSL 1, which has no kernel of its own and reaches no card"
    if not _part(facts, "cuda").get("toolkits"):
        return None
    return "CUDA is installed, and Windows shows WSL no NVIDIA driver: /usr/lib/wsl/lib has no libcuda.so.1"


def windows_remedy(facts: Facts) -> str:
    """What to do about cards of Windows that cannot be seen."""
    return WINDOWS_DRIVER if _is_of_wsl(facts) else _OWN_KERNEL + WINDOWS_DRIVER


def _is_of_wsl(facts: Facts) -> bool:
    """Whether the kernel is the one that comes with WSL 2, or is not known."""
    kernel = str(_part(facts, "kernel").get("running") or "")
    return not kernel or _KERNEL_OF_WSL.match(kernel) is not None


def missing_remedy(facts: Facts, else_: str) -> str:
    """Return what to do about cards that are expected and not there: to take out what takes them off, or give those back that are held for
    virtual machines.
    """
    found = from_facts(facts)
    if found.removed_by:
        kept = cast("Kernel", _part(facts, "kernel")).get("kept_out") or ()
        files = " ".join(
            (*found.removed_by, *dict.fromkeys(each["file"] for each in kept if each["file"].startswith(_MODPROBE)))
        )
        return (
            f"sudo rm {files} (or, where EnvyControl is there, sudo envycontrol -s hybrid, whose mode of the integrated graphics writes "
            "them), make the initramfs again (update-initramfs -u, or dracut --force), and reboot"
        )
    if not found.reserved:
        return else_
    return "correct gpuwright_gpus_expected, or give the cards that are held for virtual machines back to the host's driver"


def linux_packages(facts: Facts) -> Sequence[str]:
    """Return the driver packages for Linux that are installed where the driver is the one of Windows or of a container's host."""
    if kind_of(facts) not in ("wsl", "container"):
        return ()
    return sorted(driver_of(facts).get("packages") or {})

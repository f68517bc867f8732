# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge what is particular to a machine whose driver or cards are somebody else's: WSL, Jetson, container, virtual GPU, passthrough."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..rules import hosts

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts


#: For a virtual card, in the virtual machine.
GUEST_DRIVER = (
    "install the guest driver of the vGPU release that the hypervisor runs (NVIDIA's licensing portal), and reboot"
)
_WHOSE = {"wsl": "the driver is Windows' own", "jetson": "the driver is part of the board's own system image"}
_ELSEWHERE = {
    "container": "on the container's host: gpuwright up; nothing of a driver is changed inside a container",
    "vgpu": GUEST_DRIVER,
}
# The switches stay with the host of virtual machines (NVIDIA's Fabric Manager User Guide, chapters on shared NVSwitch and vGPU).
_FABRIC_OF_HOST = (
    "in this virtual machine there is nothing to start: on its host run nvidia-fabricmanager in the mode of virtual "
    "machines (FABRIC_MODE 1, of vGPU 2), and activate the partition of this guest's cards before it starts"
)
# Who has a virtual machine alone opens no case (github QubesOS/qubes-issues, issue 8783; NVIDIA/kubevirt-gpu-device-plugin, issue 2).
_OF_HOST = "power this virtual machine off and on; where it comes again see on its host to the {} and the host's log"
_CARD_OF_HOST = _OF_HOST.format("card") + (
    ", to the room for the card's addresses (above 4G decoding, resizable BAR, 64-bit MMIO of the hypervisor), and hide the "
    "hypervisor (kvm hidden) from a driver before 465 with a GeForce"
)
_OTHERS_OF_HOST = {"kernel.disk": _OF_HOST.format("disk"), "kernel.network": _OF_HOST.format("network adapter")}
_OPENS_A_CASE = re.compile(r"\b(?:re)?seat(?:ing)?\b|\briser\b|every power connector|all power cables")
_GIVE_CARDS = (
    "start it with its cards: docker run --gpus all, podman run --device nvidia.com/gpu=all, in Kubernetes the limit "
    "nvidia.com/gpu"
)


def outside(facts: Facts) -> list[Check]:
    """The driver of a machine whose cards are on no bus that it sees: WSL's and a Jetson's."""
    kind = str(hosts.kind_of(facts))
    result = [checks.skipped("driver.loaded", _WHOSE[kind])]
    if kind == "wsl":
        result += _linux_driver(facts, "hide the driver of Windows", "wsl --shutdown in Windows")
        trouble = hosts.windows_trouble(facts)
        if trouble:
            rest: checks.Rest = {"action": "install", "remedy": hosts.windows_remedy(facts)}
            result.append(checks.failed("host.windows_driver", "critical", reason=trouble, **rest))
        elif hosts.without_windows(facts):
            reason = hosts.without_windows(facts)
            rest = {"action": "configure", "remedy": hosts.CARDS_FOR_WSL}
            result.append(checks.failed("host.windows_driver", "critical", reason=reason, **rest))
        elif not hosts.driver_of(facts).get("libcuda"):
            reason = "Windows shows no NVIDIA driver to WSL: /usr/lib/wsl/lib has no libcuda.so.1"
            result.append(checks.skipped("host.windows_driver", reason))
    else:
        release = hosts.from_facts(facts).l4t
        reason = "JetPack's own" if release is None else f"JetPack's own, L4T {release}"
        result.append(checks.skipped("host.jetpack", reason, measured=release))
    return result


def beside(facts: Facts) -> list[Check]:
    """What is named and left alone, and what a container lacks."""
    found = hosts.from_facts(facts)
    result = []
    if found.reserved:
        reason = f"held for virtual machines and left alone: {'; '.join(found.reserved)}"
        result.append(checks.skipped("gpu.reserved", reason, measured=len(found.reserved)))
    if found.others:
        reason = f"nothing is set up for {'; '.join(found.others)}"
        result.append(checks.skipped("gpu.other", reason, measured=len(found.others)))
    if _in_container(facts) and hosts.cards_of(facts):
        result += _linux_driver(facts, "hide the driver of the container's host", "start the container again")
        if not hosts.driver_of(facts).get("libcuda"):
            reason = (
                "the machine has NVIDIA cards, and this container was started without them: there is no libcuda.so.1"
            )
            rest: checks.Rest = {"action": "configure", "remedy": _GIVE_CARDS}
            result.append(checks.failed("host.container_gpus", "critical", reason=reason, **rest))
    return result


def addressed(facts: Facts, found: Sequence[Check]) -> list[Check]:
    """The checks of the driver, the cards and the fabric, with the remedy addressed to whose they are."""
    found = of_guest(facts, found)
    if hosts.kind_of(facts) == "vm" and not facts["pci"]["nvswitches"] and not facts["pci"]["nvlink5"]:
        found = [_of_host(check, "fabric.", _FABRIC_OF_HOST) for check in found]
    kind = "container" if _in_container(facts) else "vgpu" if hosts.from_facts(facts).vgpu else None
    if kind is None:
        return list(found)
    return [_of_host(check, ("driver.", "fabricmanager"), _ELSEWHERE[kind]) for check in found]


def of_guest(facts: Facts, found: Sequence[Check]) -> list[Check]:
    """The checks as they are told in a virtual machine, which has no case: its host has."""
    if hosts.kind_of(facts) != "vm":
        return list(found)
    return [_of_guest(check) for check in found]


def _of_guest(check: Check) -> Check:
    """A check whose remedy ends where its words would open a case; what goes before them holds in a guest too."""
    steps = (check["remedy"] or "").split("; ")
    kept = list(itertools.takewhile(lambda step: not _OPENS_A_CASE.search(step), steps))
    if kept == steps:
        return check
    return {**check, "remedy": "; ".join([*kept, _OTHERS_OF_HOST.get(check["id"], _CARD_OF_HOST)])}


def _of_host(check: Check, ids: str | tuple[str, ...], remedy: str) -> Check:
    """A check whose remedy is somebody else's to carry out."""
    if check["status"] != "fail" or not check["id"].startswith(ids):
        return check
    return {**check, "remedy": remedy, "action": "none"}


def _in_container(facts: Facts) -> bool:
    """A simulated node is a container that plays bare metal."""
    return hosts.kind_of(facts) == "container" and not facts.get("simulated")


def _linux_driver(facts: Facts, harm: str, then: str) -> list[Check]:
    names = hosts.linux_packages(facts)
    if not names:
        return []
    rest: checks.Rest = {"measured": list(names), "expected": [], "action": "configure"}
    reason = f"packages of a driver for Linux are installed and {harm}: {', '.join(names)}"
    remedy = f"sudo apt-get remove {' '.join(names)}, then {then}"
    return [checks.failed("host.linux_driver", "critical", reason=reason, remedy=remedy, **rest)]

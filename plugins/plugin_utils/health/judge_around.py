# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge what is around a driver: what programs find of it, what builds it, what is between its cards, and how names are found."""

from __future__ import annotations

import ipaddress
import re
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version, words
from ansible_collections.gpuwright.node.plugins.module_utils.observe import own_units

from ..components.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Card,
        DeviceNode,
        FoundLibrary,
        LeadingLibrary,
    )

#: Where the toolkit of Debian and Ubuntu is; its nvcc is in /usr/bin (github 0xShug0/audio.cpp, pull request 72).
_PACKAGED_TOOLKIT = "/usr/lib/cuda"
#: Machines whose device nodes are their own driver's to make.
_OWN_NODES = ("bare", "vm")
# Own rules: a driver at rest takes less of a card.
_HELD_MIB = 2048
_HELD_SHARE = 0.1
#: PCI class of cards without a display output: those of data centres. They alone speak to each other over PCIe.
_CONTROLLER_3D = "0302"
_NODES_REMEDY = (
    "sudo nvidia-modprobe -c N -u makes it (N: the number of the card); nvidia-persistenced does at each boot"
)

_UVM_REMEDY = (
    "install nvidia-modprobe; or sudo modprobe nvidia-uvm now, and at each boot by a line nvidia-uvm in "
    "/etc/modules-load.d/nvidia-uvm.conf"
)

#: Units for the cards that no other check is about. Of gpuwright's own those of a boot, which neither a timer nor a socket starts.
_UNITS = (
    "nvidia-persistenced.service",
    "nvidia-imex.service",
    "nvidia-powerd.service",
    *(
        unit
        for unit in own_units.UNITS
        if unit.endswith(".service")
        and not {unit.replace(".service", kind) for kind in (".timer", ".socket")} & set(own_units.UNITS)
    ),
)
#: How a unit's file stands that something starts: static ones are started by udev or another unit.
_STARTED = ("enabled", "enabled-runtime", "static", "indirect", "generated", "linked")
#: Why a unit fails where the driver is well. Packages from 560 on make no user for the daemon (github ComputeCanada/puppet-magic_castle,
#: pull request 383); IMEX ends without its nodes.
_WHY_FAILED = {
    "nvidia-persistenced.service": "where its journal has no user nvidia-persistenced: make it (sudo useradd --system --no-create-home "
    "--shell /usr/sbin/nologin nvidia-persistenced), or take --user out of a unit of your own",
    "nvidia-imex.service": "where its journal tells of its nodes: write their addresses into /etc/nvidia-imex/nodes_config.cfg",
    # Packages enable it everywhere (github canonical/nvidia-graphics-drivers, pull request 74).
    "nvidia-powerd.service": "where its journal says that the SBIOS has no support (NVPCF), sudo systemctl disable --now "
    "nvidia-powerd ends it: it is for laptops that have Dynamic Boost, and no other machine needs it",
}


def judge_cards(view: View) -> list[Check]:
    """What is around the cards of this machine."""
    return [_library(view), _nodes(view), _units(view), *_compiler(view), *_peers(view), *_held_memory(view)]


# What programs left


def _held_memory(view: View) -> Iterator[Check]:
    """No memory of a card is held where no program computes: one that was killed by halves, or whose place of processes is another."""
    if view.environment not in ("bare", "vm"):
        return
    for card in (view.get("smi.data") or {}).get("gpus") or ():
        used, total = card.get("memory_used_mib"), card["memory_total_mib"]
        unseen = not card["processes"] and not card["mig"]["current"]
        # The memory of superchips is the system's as well: its files and programs lie there too.
        shared = re.search(r"G[HB]\d+", str(card["name"]))
        if not used or not total or not unseen or shared or card["errors"]:
            continue
        held = used > max(_HELD_MIB, total * _HELD_SHARE)
        yield checks.judged(
            "gpu.memory_held",
            not held,
            "warning",
            gpu=f"{card['index']} ({card['pci_bus_id']})",
            measured=used,
            expected=0,
            unit="MiB",
            reason=f"{used} of {total} MiB of the card's memory are held{_busy(card)}, and no program on it is seen: one ended by halves "
            "holds it"
            if held
            else None,
            action="restart_app",
            remedy="sudo fuser -v /dev/nvidia* names what has it open: end these programs (kill -9 PID), or restart the containers and "
            "services that they are of; where none is left reset the card, or reboot",
        )


def _busy(card: Card) -> str:
    """That a card is kept busy too: a kernel without end goes on where its program is gone."""
    return f" and it is {card['utilization_percent']} % busy" if card["utilization_percent"] else ""


# What runs beside it


def _units(view: View) -> Check:
    """No unit that starts at boot for the cards has failed."""
    name, services = "driver.units", view.get("services")
    if not services:
        return checks.skipped(name, view.why_unknown("services") or "no unit of systemd is known here")
    failed = [
        unit
        for unit in _UNITS
        if unit in services and services[unit]["active"] == "failed" and services[unit]["enabled"] in _STARTED
    ]
    why = "; ".join(_WHY_FAILED[unit] for unit in failed if unit in _WHY_FAILED)
    return checks.judged(
        name,
        not failed,
        "warning",
        measured=failed,
        reason=f"{', '.join(failed)} failed" if failed else None,
        action="configure",
        remedy=f"systemctl status {' '.join(failed)} says why{f'; {why}' if why else ''}; then sudo systemctl restart {' '.join(failed)}",
    )


# What programs find


def judge_toolkits(view: View) -> Iterator[Check]:
    """The compiler that programs find first is NVIDIA's, where that is there beside the distribution's, which lies in /usr/bin."""
    found = view.get("cuda.toolkits") or ()
    packaged = next((each for each in found if each["path"] == _PACKAGED_TOOLKIT), None)
    own = [each for each in found if each["path"].startswith("/usr/local/")]
    if packaged is None or not own:
        return
    # They come by their versions.
    newest = own[-1]
    hidden = packaged["version"] != newest["version"] and not view.get("cuda.on_path")
    link = "/usr/local/cuda" if view.get("cuda.default.kind") else newest["path"]
    yield checks.judged(
        "cuda.path",
        not hidden,
        "warning",
        measured=packaged["version"],
        expected=newest["version"],
        reason=f"the distribution's CUDA {packaged['version']} (nvidia-cuda-toolkit, /usr/bin/nvcc) is found before {newest['version']} in "
        f"{newest['path']}, and compiles the programs of whoever has no other PATH"
        if hidden
        else None,
        action="configure",
        remedy=f"sudo apt-get remove nvidia-cuda-toolkit; or put the other one first for all users: echo 'export PATH={link}/bin:$PATH' | "
        "sudo tee /etc/profile.d/cuda.sh, and log in again",
    )


def judge_visible(view: View) -> Iterator[Check]:
    """What every login has in CUDA_VISIBLE_DEVICES names cards that are there: CUDA shows those before the first that is none."""
    cards = (view.get("smi.data") or {}).get("gpus") or ()
    said = view.get("cuda.visible") if cards else None
    for each in said or ():
        places = [place.strip() for place in each["value"].split(",")]
        shown = list(takewhile(partial(_names_a_card, cards=cards), places))
        found = f"CUDA shows programs {len(shown)} of {words.count(len(cards), 'cards')}"
        there = ",".join(str(number) for number in range(len(cards)))
        yield checks.judged(
            "cuda.visible",
            shown == places,
            "warning",
            measured=each["value"],
            reason=f"{found}: {each['file']} sets CUDA_VISIBLE_DEVICES={each['value']} for every login, and the numbers there are {there}",
            action="configure",
            remedy=f"take CUDA_VISIBLE_DEVICES out of {each['file']}, or name cards that are there, and log in again; where logins are "
            "meant to have no card, as beside a scheduler, nothing",
        )


def judge_leading(view: View) -> Iterator[Check]:
    """Frameworks load the libraries of their own wheels, and none that every login has before them (pytorch/pytorch, issue 119989)."""
    found = [each for each in view.get("cuda.leading") or () if _is_in_the_way(each, view)]
    titles = {"libcudnn": "cuDNN", "libnccl": "NCCL", "libnvJitLink": "nvJitLink"}
    for directory in dict.fromkeys(each["path"].rpartition("/")[0] for each in found):
        there = [each for each in found if each["path"].rpartition("/")[0] == directory]
        names = list(dict.fromkeys(each["path"].rpartition("/")[2] for each in there))
        files = ", ".join(dict.fromkeys(each["file"] for each in there))
        what = " and ".join(dict.fromkeys(titles[name.partition(".")[0]] for name in names))
        yield checks.failed(
            "cuda.library_path",
            "warning",
            measured=[each["path"] for each in there],
            reason=f"LD_LIBRARY_PATH of every login has {directory} ({files}), whose {what} ({', '.join(names)}) PyTorch and its like load "
            "in place of that of their wheels: in another version it ends with an undefined symbol or a mismatch",
            action="configure",
            remedy=f"take {directory} out of LD_LIBRARY_PATH in {files}, and log in again; start what needs it with it alone",
        )


def _is_in_the_way(library: LeadingLibrary, view: View) -> bool:
    """Whether wheels were made beside another library; a toolkit's nvJitLink is in the way only where it is older than an environment's."""
    name = library["path"].rpartition("/")[2]
    if not name.startswith("libnvJitLink.") or "/cuda" not in library["path"]:
        return True
    version = library.get("version") or ""
    beside = [
        env["packages"].get(f"nvidia-nvjitlink-cu{name.rpartition('.')[2]}")
        for env in (view.get("environments") or {}).values()
    ]
    return bool(version) and any(each and not numeric_version.at_least(version, each) for each in beside)


def _names_a_card(place: str, cards: Sequence[Card]) -> bool:
    """Whether a place of CUDA_VISIBLE_DEVICES is a card: its number, the beginning of its UUID, or an instance of MIG."""
    if place.isdecimal():
        return int(place) < len(cards)
    return place.startswith("MIG-") or (
        place.startswith("GPU-") and any(str(card["uuid"]).startswith(place) for card in cards)
    )


def _library(view: View) -> Check:
    """The libcuda.so.1 that programs get is the driver's own."""
    name, found = "driver.libcuda", view.get("driver.loader")
    own = view.get("driver.user_version") or view.get("driver.loaded_version")
    if not found:
        return checks.skipped(name, "the loader knows no libcuda.so.1")
    first: FoundLibrary = found[0]
    rest: checks.Rest = {"measured": first["path"], "expected": own}
    wrong = _foreign(first, own, contained=view.environment == "container")
    return checks.judged(
        name,
        wrong is None,
        reason=f"programs load {first['path']} before the driver's library: {wrong}" if wrong else None,
        action="configure",
        remedy="take its directory out of LD_LIBRARY_PATH (/etc/environment, /etc/profile.d) and out of /etc/ld.so.conf.d, or remove "
        "that copy; then ldconfig, and log in again",
        **rest,
    )


def _foreign(library: FoundLibrary, own: str | None, *, contained: bool) -> str | None:
    """Why a library is none to compute with; None where it is the driver's."""
    if "/stubs/" in library["path"] or "/stubs/" in library["file"]:
        return "a stub, to link programs with, finds no card"
    version = library["version"]
    if not version or not own or version == own or (contained and "/compat/" in library["file"]):
        return None
    return f"it is of {version}, and the driver is {own}"


def _nodes(view: View) -> Check:
    """Every card has its device node, which users may open."""
    name = "driver.nodes"
    cards = (view.get("smi.data") or {}).get("gpus") or ()
    numbers = [card["minor_number"] for card in cards if card.get("minor_number") is not None]
    if view.environment not in _OWN_NODES or not numbers or view.get("driver.nodes") is None:
        return checks.skipped(name, "no driver with device nodes runs here")
    found: dict[str, DeviceNode] = {node["path"]: node for node in view.get("driver.nodes")}
    wanted = ["/dev/nvidiactl", *(f"/dev/nvidia{number}" for number in sorted(numbers))]
    lost = [path for path in wanted if path not in found]
    if lost:
        reason = f"there is no {', '.join(lost)}: programs do not open what nvidia-smi shows"
        return checks.failed(name, measured=lost, reason=reason, action="configure", remedy=_NODES_REMEDY)
    files = [path for path, node in found.items() if not node["device"]]
    if files:
        reason = f"{', '.join(files)} is no device: something made a file in its place"
        remedy = f"remove it; {_NODES_REMEDY}"
        return checks.failed(name, measured=files, reason=reason, action="configure", remedy=remedy)
    closed = [path for path, node in found.items() if not _open(node)]
    if not closed and _lacks_unified_memory(view):
        reason = (
            "nvidia-uvm is not loaded, and there is no nvidia-modprobe that loads it for programs of users: CUDA fails "
            "with an unknown error"
        )
        return checks.failed(name, measured=["/dev/nvidia-uvm"], reason=reason, action="configure", remedy=_UVM_REMEDY)
    return checks.judged(
        name,
        not closed,
        "warning",
        measured=closed or None,
        reason=f"only root may open {', '.join(closed)}" if closed else None,
        action="configure",
        remedy="take NVreg_DeviceFileMode and NVreg_ModifyDeviceFiles out of /etc/modprobe.d, and what udev's rules say of these nodes; "
        "then load the driver again or reboot",
    )


def _lacks_unified_memory(view: View) -> bool:
    """Whether CUDA of a user finds no /dev/nvidia-uvm, and nothing makes it for him."""
    return "nvidia_uvm" not in (view.get("kernel.loaded") or {}) and view.get("driver.makes_nodes") is False


def _open(node: DeviceNode) -> bool:
    """Whether users may open it: all, or those of a group."""
    return node["mode"] & 0o006 == 0o006 or (node["group"] != 0 and node["mode"] & 0o060 == 0o060)


# What builds it


def _compiler(view: View) -> Iterator[Check]:
    """The compiler that builds the module knows the options that the kernel was built with."""
    built_with, there = view.get("kernel.compiler.built_with"), view.get("kernel.compiler.available")
    family, _space, version = str(built_with or "").partition(" ")
    # DKMS brings a compiler: where none is seen, it has another name.
    if not (view.get("dkms.kernels") or view.get("dkms.failed")) or family != "gcc" or not version or there is None:
        return
    old = int(numeric_version.major(there)) < int(numeric_version.major(version))
    reason = f"kernel {view.get('kernel.next')} was built with {built_with}, and the compiler here is gcc {there}"
    yield checks.judged(
        "driver.compiler",
        not old,
        "warning",
        measured=f"gcc {there}",
        expected=built_with,
        reason=f"{reason}: DKMS does not build the module for it" if old else None,
        action="install",
        remedy=f"install gcc-{numeric_version.major(version)}, which DKMS takes where it is there",
    )


# What is between the cards


def _peers(view: View) -> Iterator[Check]:
    """What the cards of a machine say to each other over PCIe takes the short way."""
    cards = [card for card in view.gpus if card.get("class") == _CONTROLLER_3D]
    peers = view.get("pci.peers")
    # Who hands cards to virtual machines needs both.
    if len(cards) < 2 or view.environment != "bare" or view.get("pci.reserved") or not peers:
        return
    told, remedies = [], []
    if peers["redirecting"]:
        bridges = ", ".join(peers["redirecting"][:4])
        told.append(f"bridges send it through the processor (ACS: {bridges})")
        remedies.append("switch ACS off in the firmware (BIOS)")
    linked = view.get("pci.nvswitches") or view.get("pci.nvlink5")
    if not linked and any(kind.startswith("DMA") for kind in peers["iommu"]):
        told.append(f"the IOMMU translates it ({', '.join(peers['iommu'])})")
        words = str(view.get("boot.cmdline") or "")
        said = " in place of what it says of it now" if "iommu" in words else ""
        remedies.append(f"put iommu=pt on the kernel's command line{said}, or switch the IOMMU off in the firmware")
    yield checks.judged(
        "pcie.peers",
        not told,
        "warning",
        measured=peers["redirecting"] + peers["iommu"] if told else None,
        reason=f"what one card says to another over PCIe is slow or hangs (P2P, NCCL): {'; '.join(told)}"
        if told
        else None,
        action="configure",
        remedy=f"{'; '.join(remedies)}; then reboot" if remedies else None,
    )


# How names are found


def judge_names(view: View) -> list[Check]:
    """The package sources can be found by their names."""
    names = view.get("names")
    if not names:
        return []
    unknown = sorted(_sources(view) - set(names["hosts"]))
    if not names["problem"] or not unknown:
        return [checks.passed("host.names", "warning", measured=names["servers"])]
    return [
        checks.failed(
            "host.names",
            "warning",
            measured=names["servers"],
            reason=f"nothing tells where {', '.join(unknown[:3])} is (DNS): {names['problem']}",
            action="configure",
            remedy="systemctl enable --now systemd-resolved where /etc/resolv.conf leads to it; else put a line 'nameserver ADDRESS' there",
        )
    ]


def _sources(view: View) -> set[str]:
    """The hosts that packages come from, those that are named."""
    rows = [row for row in view.get("packages.sources") or () if row["enabled"]]
    found = (urlsplit(uri) for row in rows for uri in row["uris"])
    return {
        each.hostname
        for each in found
        if each.scheme in ("http", "https") and each.hostname and not _address(each.hostname)
    }


def _address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True

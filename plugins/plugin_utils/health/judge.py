# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge a host by its observation alone: what ``doctor`` does, and a warm ``up``.

Pure functions over what ``node_facts`` returns. Nothing is measured here, so nothing is proven; but whatever is known to be
wrong is said. A fact that could not be seen makes its check *incomplete*, with the reason that the observation gave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fabric_judge, node_judge
from ansible_collections.gpuwright.node.plugins.module_utils.measure.node_judge import Expected

from ..components.nvidia_driver import kept_out, runfile, secure_boot, version_hold
from ..components.registry import COMPONENTS, wishes_of_cards
from ..components.view import UP, View, unknown
from ..resolver import systems
from ..rules import hosts
from ..wish.wish import WORDS
from . import (
    hidden,
    judge_around,
    judge_builds,
    judge_datacentre,
    judge_disks,
    judge_hosts,
    judge_sources,
    mixed_sources,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Facts,
        LoadedModule,
        PciGpu,
    )

    from ..model import plan
    from ..model.stack import Stack


def judge(facts: Facts, stack: Stack | None = None, expected: Expected | plan.Expected | None = None) -> list[Check]:
    """Every check that an observation allows.

    Args:
        facts: what ``node_facts`` returned under ``facts``.
        stack: what the host should have, as resolved; ``None`` when nothing was resolved.
        expected: as for :func:`smi_judge.judge`, and ``ignore`` (bus ids or models that are left alone), ``proof_max_age`` (seconds),
            ``seals`` (``False`` leaves the seals out: they are being rewritten), ``proof`` (``False`` leaves the proof out),
            ``gpus`` (``False``: cards are not looked at, as when a machine is prepared before they are put in).
    """
    view = View(facts)
    wanted: Expected = cast("Expected", dict(expected or {}))
    wished: Stack = stack or {}
    wanted["settings"] = wishes_of_cards(wished)
    result: list[Check] = []
    if wanted.get("gpus") is not False:
        result += judge_cards(view, wished, wanted)
    result += judge_packages(view)
    result += judge_sources.judge_sources(view) + mixed_sources.judge_mixed(view)
    result += hidden.judge_hidden(view, wished)
    result += judge_builds.judge_records(view) + judge_builds.judge_builds(view)
    result += judge_disks.judge_disks(view) + judge_around.judge_names(view)
    result += [*judge_around.judge_toolkits(view), *judge_around.judge_visible(view), *judge_around.judge_leading(view)]
    for component in COMPONENTS.values():
        result += component.judge(view, wished)
    if wanted.get("seals") is not False:
        result += node_judge.of_seals(view, _away(stack))
    if wanted.get("proof") is not False:
        result += node_judge.of_proof(view, wanted)
    return result


def _away(stack: Stack | None) -> dict[str, str]:
    """The components that are not wished, each with what wishes it: `up` does nothing for them. None where nothing was resolved."""
    words = {each.component: each for each in WORDS}
    return {
        name: f"gpuwright up --want {words[name].want}"
        if words[name].want
        else f"gpuwright up with {words[name].variables[0]}"
        for name, component in COMPONENTS.items()
        if name in words and stack and not any(part in stack for part in component.parts)
    }


_GIVE_BACK = (
    "where this machine is to use it: take vfio-pci out of /etc/modprobe.d, the initramfs and the kernel's command line (vfio-pci.ids=), "
    "make the initramfs again, and reboot; where it is meant for virtual machines, nothing"
)
#: What helps where no card is seen: on a machine of its own, and on a virtual one.
_NO_CARD = {
    False: "power the host off, reseat the card and its power cables, and see that the firmware (BIOS) has its slot on; a laptop: choose "
    "hybrid or discrete graphics there, or 'prime-select on-demand'; lspci -nn | grep 10de shows whether it is back",
    True: "the hypervisor or cloud gives this machine no card: choose a type with one, or pass it through, then power it off and on",
}
_TO_COMPILE = (
    "run it on a node that has cards, of a cluster in a job and not on its login node: libcuda.so.1 comes with the driver there, and the "
    "libcuda.so among CUDA's stubs is for linkers alone; where no card is meant to be here, nothing"
)
_DATABASE = "rpm's database does not answer"
_REBUILD = "copy /var/lib/rpm, then sudo rpm --rebuilddb; look for a full disk and for errors of it first, which are what damages it"
_UNFINISHED = re.compile(r"packages left unfinished: (.+)\Z")
# "nvidia-firmware-535-server-535.54.03", and how packages of the driver's flavours are called beside it (nvidia-dkms-535-server-open).
# Each flavour's firmware has the same files (github canonical/nvidia-graphics-drivers, pull request 59).
_FIRMWARE = re.compile(r"nvidia-firmware-(\d+)(-server)?-\d+\.\S+\Z")
_OF_FLAVOUR = re.compile(r"\bnvidia-(?:driver|dkms|kernel-common|kernel-source|firmware)-(\d+)(-server)?")


# --------------------------------------------------------------------------------------------------------------------
# Cards and their driver
# --------------------------------------------------------------------------------------------------------------------


def judge_cards(view: View, stack: Stack, expected: Expected) -> list[Check]:
    """The cards and the driver; one skipped check on a host that has no card and should have none."""
    reason = view.why_unknown("pci.gpus") if not view.gpus else None
    if reason and view.environment != "wsl":
        return [checks.incomplete("gpu.on_bus", "the PCI bus could not be read: " + reason, remedy="run with become")]
    if view.environment in ("wsl", "jetson"):
        outside = judge_hosts.outside(view.facts)
        return outside + node_judge.of_smi(view, stack.get("driver"), expected, foreign_driver=True)
    count = node_judge.expected_count(expected)
    if not view.gpus and not count:
        return [_without_cards(view)]
    tell = partial(hosts.with_others, facts=view.facts)
    remedy = hosts.missing_remedy(view.facts, node_judge.NOT_ON_BUS)
    result = [node_judge.on_bus(view, expected, tell, remedy)]
    if view.gpus:
        result += [step(view, stack) for step in _DRIVER_STEPS]
        result.append(judge_nouveau(view, node_judge.counted(view, expected)))
        result += node_judge.of_smi(view, stack.get("driver"), expected)
        result += judge_around.judge_cards(view)
        result += fabric_judge.judge_fabric(view) + judge_datacentre.judge_peermem(view, stack)
    return judge_hosts.addressed(view.facts, result) + judge_hosts.beside(view.facts)


def lacks_its_card(view: View) -> bool:
    """Whether somebody brought a driver for a card, and none is there. Where gpuwright did, it knows whether one is to come."""
    brought = view.get("driver.owner") in ("packages", "runfile") and view.environment in ("bare", "vm")
    return brought and not view.gpus and not view.why_unknown("pci.gpus") and not view.get("seals.nvidia_driver")


def only_compiles(view: View) -> bool:
    """Whether somebody brought CUDA to a machine without a card, such as a login node. Where gpuwright did, it knows why."""
    foreign = view.get("cuda.toolkits") and not view.get("seals.cuda") and view.environment in ("bare", "vm")
    return bool(foreign) and not view.gpus and not view.why_unknown("pci.gpus")


def _without_cards(view: View) -> Check:
    """That no card is there: a fault only where somebody installed a driver for one."""
    lacking = "there is no NVIDIA GPU on the PCI bus"
    if only_compiles(view) and not lacks_its_card(view):
        return checks.failed(
            "gpu.on_bus",
            "info",
            measured=0,
            reason=hosts.with_others(
                f"{lacking}, and CUDA is installed: it compiles here, and nothing of it runs", view.facts
            ),
            action="none",
            remedy=_TO_COMPILE,
        )
    if not lacks_its_card(view):
        return checks.skipped(
            "gpu.on_bus", hosts.with_others(f"{lacking}, and none is expected", view.facts), measured=0
        )
    found = hosts.from_facts(view.facts)
    held, removed = found.reserved, found.removed_by
    alone = "a card is held for virtual machines (vfio-pci), and no other one is there for the driver that is installed"
    return checks.failed(
        "gpu.on_bus",
        "warning",
        measured=0,
        reason=hosts.with_others(alone if held else f"{lacking}, and a driver for one is installed", view.facts),
        action="configure" if held or removed else "check_hardware",
        remedy=_GIVE_BACK
        if held and not removed
        else hosts.missing_remedy(view.facts, _NO_CARD[view.environment == "vm"]),
    )


def judge_driver_loaded(view: View, _stack: Stack) -> Check:
    """The kernel module is loaded; where it is not, the nearest cause is named."""
    return node_judge.driver_loaded(view, partial(_why_not_loaded, view))


def _why_not_loaded(view: View, loaded: Mapping[str, LoadedModule]) -> dict[str, str]:
    if "nouveau" in loaded:
        return {
            "reason": "nouveau holds the card",
            "action": "reboot",
            "remedy": f"{UP}, which blacklists nouveau, and reboot",
        }
    kept = view.get("kernel.kept_out")
    if kept:
        return kept_out.told(kept)
    available = view.get("kernel.available.nvidia")
    same = view.get("kernel.next") == view.get("kernel.running")
    if available and not same:
        return {
            "reason": f"the module is built for the kernel that boots next, {view.get('kernel.next')}, and another one runs",
            "action": "reboot",
            "remedy": "reboot the host",
        }
    rejected = secure_boot.unaccepted(view.get("kernel.available.nvidia"), view.get("boot.signing_key"))
    if rejected:
        return rejected
    if available and view.get("boot.secure_boot") and not available.get("signer"):
        return {
            "reason": "Secure Boot is on and the module is not signed",
            "action": "configure",
            "remedy": f"{UP}, which takes signed modules where the distribution has them; else enrol the signing key (mokutil)",
        }
    if available:
        return {
            "reason": "the module is there and is not loaded",
            "action": "reboot",
            "remedy": "read the kernel log for NVRM messages (a card that needs the open modules, a failed initialisation); "
            "'modprobe nvidia', or reboot",
        }
    if view.get("kernel.unlisted"):
        return _unlisted(view)
    if view.get("driver.owner") in (None, "none", "unknown"):
        return {"reason": "no NVIDIA driver is installed", "action": "install", "remedy": UP}
    return {
        "reason": f"the driver is installed, and no module is built for the kernel {view.get('kernel.next')}",
        "action": "install",
        "remedy": f"{UP}, which {_brings(view)} it; 'dkms status' shows what failed",
    }


def _unlisted(view: View) -> dict[str, str]:
    """What is told of a module that depmod did not see (github NVIDIA/yum-packaging-precompiled-kmod, pull request 11)."""
    kernel = view.get("kernel.next")
    return {
        "reason": f"{view.get('kernel.unlisted')} is there, and the list of the modules of {kernel} does not name it",
        "action": "configure",
        "remedy": f"depmod -a {kernel}; then modprobe nvidia, or reboot",
    }


def _brings(view: View) -> str:
    """How a module comes to the kernel that boots next, by what is there of it."""
    return (
        "builds" if view.get("kernel.next") in (view.get("kernel.headers") or ()) else "installs its headers and builds"
    )


def judge_version_match(view: View, _stack: Stack) -> Check:
    """Kernel module and libraries are of one version: they differ after an upgrade under a loaded module."""
    return node_judge.version_match(view)


def judge_nouveau(view: View, cards: Sequence[PciGpu]) -> Check:
    """No other driver holds a card. ``cards``: those that are not left alone."""
    loaded = view.get("kernel.loaded")
    if loaded is None:
        return unknown("driver.nouveau_absent", view, "kernel.loaded", "which kernel modules are loaded")
    others = sorted(name for name in loaded if name == "nouveau" or name.startswith("nova"))
    alone = [
        card for card in view.gpus if card not in cards and (card.get("driver") or "").startswith(("nouveau", "nova"))
    ]
    if others and alone and all(card.get("driver") == "nvidia" for card in cards):
        reason = "it holds no card but those that are left alone"
        return checks.passed("driver.nouveau_absent", measured=others, reason=reason)
    return checks.judged(
        "driver.nouveau_absent",
        not others,
        measured=others,
        expected=[],
        reason=f"{', '.join(others)} is loaded and holds the card" if others else None,
        action="reboot",
        remedy=f"{UP}, which blacklists it and rebuilds the initramfs, and reboot",
    )


def judge_modules(view: View, stack: Stack) -> Check:
    """The open or the proprietary modules, as resolved for the cards of this host."""
    found, driver = view.get("driver.loaded_modules"), stack.get("driver")
    wanted = driver["modules"] if driver else None
    rest: checks.Rest = {"measured": found, "expected": wanted}
    if found is None:
        return checks.skipped("driver.modules", "the driver is not loaded", **rest)
    if driver is None or driver["adopted"]:
        return checks.passed("driver.modules", reason="nothing else was wished", **rest)
    if view.get("driver.user_version") not in (None, view.get("driver.loaded_version")):
        return checks.skipped(
            "driver.modules", "the driver is of two versions, and which of them stays is open", **rest
        )
    answered = len((view.get("smi.data") or {}).get("gpus") or ())
    severity = "warning" if answered >= len(view.gpus) else "critical"
    flavour = runfile.flavour_of(view.get("kernel.available.nvidia.license"))
    return checks.judged(
        "driver.modules",
        found == wanted,
        severity,
        reason=None if found == wanted else f"the {found} modules are loaded where the {wanted} ones are wanted",
        action="install",
        # What is on disk comes with the next boot, and a plan has nothing to do for it.
        remedy="reboot the host" if flavour == wanted else f"{UP}, and reboot if it says so",
        **rest,
    )


def judge_secure_boot(view: View, _stack: Stack) -> Check:
    """Secure Boot does not keep the module out."""
    if view.environment == "container":
        return checks.skipped("driver.secure_boot", "the kernel is that of the container's host")
    state, loaded = view.get("boot.secure_boot"), view.get("driver.loaded_version")
    available = view.get("kernel.available.nvidia") or {}
    if state is False:
        return checks.passed("driver.secure_boot", measured="off")
    if loaded:
        return checks.passed(
            "driver.secure_boot", measured="on" if state else None, reason="the kernel accepted the module"
        )
    if state is None:
        return unknown("driver.secure_boot", view, "boot.secure_boot", "whether Secure Boot is on")
    signer = available.get("signer")
    if not available:
        return checks.skipped("driver.secure_boot", "there is no module yet that could be signed", measured="on")
    rejected = secure_boot.unaccepted(view.get("kernel.available.nvidia"), view.get("boot.signing_key"))
    if rejected:
        return checks.failed("driver.secure_boot", measured=signer or "not signed", **rejected)
    return checks.judged(
        "driver.secure_boot",
        bool(signer),
        measured=signer or "not signed",
        reason=None if signer else "Secure Boot is on and the module is not signed",
        action="configure",
        remedy=f"{UP}, which takes signed modules where the distribution has them; else enrol the signing key (mokutil --import)",
    )


def judge_next_kernel(view: View, _stack: Stack) -> Check:
    """The kernel that boots next has a module, and of the version of the libraries."""
    if view.environment == "container":
        return checks.skipped("driver.next_kernel", "the kernel is that of the container's host")
    kernel, available = view.get("kernel.next"), view.get("kernel.available")
    if kernel is None or available is None:
        path = "kernel.next" if kernel is None else "kernel.available"
        return unknown("driver.next_kernel", view, path, "whether the next kernel has a module")
    if view.get("driver.owner") == "none":
        return checks.skipped("driver.next_kernel", "no NVIDIA driver is installed")
    user = view.get("driver.user_version")
    module = (available.get("nvidia") or {}).get("version")
    rest: checks.Rest = {"measured": module, "expected": user, "evidence": kernel}
    if "nvidia" not in available and view.get("kernel.unlisted"):
        return checks.failed("driver.next_kernel", **_unlisted(view), **rest)
    if "nvidia" not in available:
        return checks.failed(
            "driver.next_kernel",
            reason=f"the kernel that boots next, {kernel}, has no NVIDIA module: after a reboot there is no driver",
            action="install",
            remedy=f"{UP}, which {_brings(view)} the module, before the next reboot",
            **rest,
        )
    ok = user is None or module is None or module == user
    by_file = "bring both to one version: run NVIDIA's file again, with its modules; or have it replaced (driver-source=nvidia)"
    return checks.judged(
        "driver.next_kernel",
        ok,
        reason=None if ok else f"the module for {kernel} is {module} and the libraries are {user}",
        action="install",
        remedy=by_file if view.get("driver.owner") == "runfile" else f"{UP}, before the next reboot",
        **rest,
    )


def judge_headers(view: View, stack: Stack) -> Check:
    """The headers from which DKMS builds the module for the next kernel, or the next build of the driver."""
    driver = stack.get("driver")
    named = driver["headers"] if driver and driver.get("build") == "dkms" else None
    if not named or view.get("driver.owner") in (None, "none", "unknown"):
        return checks.skipped("driver.headers", "no driver is built on this machine")
    installed = view.get("packages.installed")
    if installed is None:
        return unknown("driver.headers", view, "packages.installed", "whether the kernel's headers are there")
    ok = named in installed or systems.headers_alone(named, view.get("kernel.next")) in installed
    return checks.judged(
        "driver.headers",
        ok,
        "warning",
        expected=named,
        reason=None
        if ok
        else f"{named} is gone: DKMS builds no module for a kernel that comes, and after a boot there is no driver",
        action="install",
        remedy=UP,
    )


def judge_lock(view: View, stack: Stack) -> Check:
    """Nothing but gpuwright moves the driver: the whole set is locked, and on a full look apt itself says that it is."""
    driver = stack.get("driver")
    if not driver:
        return checks.skipped("driver.lock", "no driver was resolved for this host")
    if driver["adopted"]:
        return checks.skipped("driver.lock", "the driver is adopted: whoever installed it keeps it")
    if view.get("driver.owner") in (None, "none", "unknown"):
        return checks.skipped("driver.lock", "no NVIDIA driver is installed")
    if not isinstance(view.get("packages"), Mapping) or view.why_unknown("packages.installed"):
        return unknown("driver.lock", view, "packages.installed", "whether the driver's packages are locked")
    if view.why_unknown("driver.would_move"):
        return unknown("driver.lock", view, "driver.would_move", "what an upgrade of everything would move")
    found, moving = version_hold.differences(view.facts, driver["pin"]), version_hold.moving(view.facts)
    if moving:
        found.append(f"apt-get dist-upgrade would move {', '.join(moving)}")
    kind = version_hold.of(view.facts, driver["pin"]).kind
    return checks.judged(
        "driver.lock",
        not found,
        measured=kind if not found else "broken",
        expected=kind,
        reason="; ".join(found) or None,
        action="configure",
        remedy=f"{UP}, which locks the whole set again; until then no '{view.get('packages.manager')} upgrade'",
    )


_DRIVER_STEPS: tuple[Callable[[View, Stack], Check], ...] = (
    judge_driver_loaded,
    judge_version_match,
    judge_modules,
    judge_secure_boot,
    judge_next_kernel,
    judge_headers,
    judge_lock,
)


# --------------------------------------------------------------------------------------------------------------------
# The host
# --------------------------------------------------------------------------------------------------------------------


def judge_packages(view: View) -> list[Check]:
    """No installation was cut off, and none is running."""
    if view.get("packages.manager") is None and not view.why_unknown("packages"):
        return [checks.skipped("packages.interrupted", "there is no package manager that is known here")]
    interrupted, busy = view.get("packages.interrupted"), view.get("packages.busy")
    run = node_judge.at_work(view)
    result = []
    if interrupted and run:
        result.append(checks.incomplete("packages.interrupted", run, action="none", remedy=node_judge.WAIT))
    elif interrupted is None:
        result.append(
            unknown("packages.interrupted", view, "packages.interrupted", "whether an installation was cut off")
        )
    else:
        result.append(
            checks.judged(
                "packages.interrupted",
                not interrupted,
                evidence=view.get("packages.interrupted_detail"),
                reason=_cut_off(view) if interrupted else None,
                action="install",
                remedy=_mend(view),
            )
        )
    result.append(
        checks.judged(
            "packages.busy",
            not busy,
            "info",
            measured=busy,
            reason="another program is installing packages now" if busy else None,
            action="none",
            remedy="wait until it is done",
        )
    )
    return result


def _mend(view: View) -> str:
    if _is_damaged(view):
        return _REBUILD
    in_the_way = _of_another_flavour(view)
    if in_the_way:
        return f"sudo dpkg --remove --force-depends {' '.join(in_the_way)}, then sudo apt-get --fix-broken install"
    return f"{UP}, which repairs it first (as 'dpkg --configure -a' does)"


def _is_damaged(view: View) -> bool:
    """Whether rpm cannot read its own database, as it says itself (module_utils/observe/rpm.py)."""
    return str(view.get("packages.interrupted_detail") or "").startswith(_DATABASE)


def _cut_off(view: View) -> str:
    """That an installation was cut off, which packages it left, and what stands in their way."""
    if _is_damaged(view):
        return "rpm's database of the installed packages cannot be read: nothing can be installed or removed"
    named = _UNFINISHED.match(str(view.get("packages.interrupted_detail") or ""))
    in_the_way = _of_another_flavour(view)
    return (
        "an installation of packages was cut off"
        + (f" ({named[1]})" if named else "")
        + (
            f": {', '.join(in_the_way)}, of the driver's other flavour, has the files of what is to be installed"
            if in_the_way
            else ""
        )
    )


def _of_another_flavour(view: View) -> list[str]:
    """Packages of firmware of the branch of those that were left unfinished, and of another flavour: dpkg writes over no file of theirs."""
    found = _OF_FLAVOUR.findall(str(view.get("packages.interrupted_detail") or ""))
    named = [(name, _FIRMWARE.match(name)) for name in view.get("packages.installed") or ()]
    return [
        name
        for name, parts in named
        if parts and any(branch == parts[1] and server != (parts[2] or "") for branch, server in found)
    ]

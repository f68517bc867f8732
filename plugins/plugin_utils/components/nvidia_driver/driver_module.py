# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module that the next kernel will load: what decides, whatever the package manager ended with, and what DKMS says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypedDict

from ...model.plan import Plan
from ..base import Context
from . import runfile

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, KernelModule
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

#: Modules of other drivers that hold the cards.
_FOREIGN = ("nouveau", "nova", "nova_core", "nova_drm", "nova-core", "nova-drm")
#: The upstream version in that of a package: epoch and revision off, and only what looks like a driver version (three digits and a point),
#: because a pinning package or a kernel's module package counts differently.
_BUILD = re.compile(r"(?:\d+:)?(\d{3,}\.\d+(?:\.\d+)*)")
#: Packages that have the source of the module.
_SOURCE_PACKAGE = re.compile(r"(?:kmod-)?nvidia-.*dkms")
_SOURCE = re.compile(r"(.+)-([0-9.]+)")
#: NVIDIA's rpm packages keep nouveau away by the kernel's command line when they are installed, whether the module was built or not.
_NOUVEAU_OFF = "nvidia-kmod-common"


class DkmsModule(TypedDict):
    """A module as DKMS names it."""

    name: str
    version: str


class Build(TypedDict):
    """What is missing of the module that DKMS builds for a kernel. ``patterns``: how its source is called below /usr/src; ``reinstall``:
    what brings back a source that somebody deleted; ``versions`` are those of the wished driver.
    """

    kernel: str | None
    versions: list[str]
    patterns: list[str]
    reinstall: list[str]


class Fault(TypedDict):
    """The words of a message about a module that is not the wished one."""

    wished: str
    kernel: str | None
    found: str
    screen: str


class Loading(TypedDict):
    """Kernel modules to load, as modprobe takes them; ``first`` tells whether the running kernel has them at all."""

    first: str
    missing: list[str]
    all: str


def of_next(facts: Facts) -> KernelModule | None:
    """NVIDIA's module for the kernel that boots next."""
    return facts["kernel"]["available"].get("nvidia")


def version(facts: Facts) -> str:
    """Its version; empty where there is none. One that depmod still lists and whose file is gone has no version."""
    module = of_next(facts)
    return (module["version"] if module else None) or ""


def foreign(facts: Facts) -> list[str]:
    """Loaded modules of other drivers that hold the cards."""
    return [name for name in _FOREIGN if name in (facts["kernel"]["loaded"] or {})]


def cards_present(plan: Plan) -> bool:
    """Whether there is a card that something can be loaded or started for."""
    return not plan["provision_only"] and bool(plan["gpus"])


def loaded_version(facts: Facts) -> str:
    """The version of the loaded module; empty where none is loaded, or where it has none."""
    loaded = (facts["kernel"]["loaded"] or {}).get("nvidia")
    return (loaded["version"] if loaded else None) or ""


def runs(context: Context, plan: Plan) -> bool:
    """Whether the module that is installed is the one that is loaded. Nothing of the fabric can start before."""
    return cards_present(plan) and loaded_version(context.facts) == (version(context.facts) or "none")


def wished_versions(context: Context, driver: DriverStack) -> list[str]:
    """The version that was wished, else those that the installed packages of the driver have."""
    if driver["version"]:
        return [driver["version"]]
    found = (
        _BUILD.match(text)
        for name, text in (context.facts["packages"]["installed"] or {}).items()
        if name in driver["packages"]
    )
    return list(dict.fromkeys(match[1] for match in found if match))


def faults(context: Context, driver: DriverStack) -> list[str]:
    """What is wrong with the module of the next kernel; empty where it is the wished one."""
    there, wished = version(context.facts), wished_versions(context, driver)
    if not there:
        return ["there is no NVIDIA module for it"]
    found = []
    if wished and there not in wished:
        found.append(f"its module has version {there} instead of {' or '.join(wished)}")
    flavour = runfile.flavour(context.facts) or "proprietary"
    if driver["modules"] in ("open", "proprietary") and flavour != driver["modules"]:
        found.append(f"its module is the {flavour} one instead of the {driver['modules']} one")
    return found


def fault(context: Context, driver: DriverStack) -> Fault | None:
    """The words for a module that is not the wished one."""
    found = faults(context, driver)
    if not found:
        return None
    versions = wished_versions(context, driver) or [f"of branch {driver['branch'] or '?'}"]
    return {
        "wished": f"the {driver['modules']} NVIDIA module {' or '.join(versions)}",
        "kernel": context.facts["kernel"]["next"],
        "found": "; ".join(found),
        "screen": screen(context.facts),
    }


def screen(facts: Facts) -> str:
    """Whether nouveau still comes where the module was not built."""
    if _NOUVEAU_OFF in (facts["packages"]["installed"] or {}):
        return (
            f"The package {_NOUVEAU_OFF} keeps nouveau away from the next boot already, which then has no driver for the screen: correct "
            "what follows, or remove that package, before you boot."
        )
    return "The screen is safe: nouveau has not been blacklisted by this run."


def build(context: Context, driver: DriverStack) -> Build | None:
    """What DKMS is asked for once more: rpm runs on where a module did not build, or could not because the headers came later."""
    if driver.get("build") != "dkms" or version(context.facts):
        return None
    versions = wished_versions(context, driver)
    packages = source_packages(context.facts)
    again = {
        "apt": ["apt-get", "--yes", "--quiet", "--no-remove", "--reinstall", "install"],
        "dnf": ["dnf", "--assumeyes", "--quiet", "--disableplugin=versionlock", "reinstall"],
    }
    command = again.get(context.facts["packages"]["manager"] or "", [])
    return {
        "kernel": context.facts["kernel"]["next"],
        "versions": versions,
        "patterns": [f"nvidia*-{each}" for each in versions],
        "reinstall": [*command, *packages] if command and packages else [],
    }


def source_packages(facts: Facts) -> list[str]:
    """The installed packages that have the source of the module."""
    return sorted(name for name in facts["packages"]["installed"] or {} if _SOURCE_PACKAGE.match(name))


def dkms_sources(paths: Iterable[str]) -> list[DkmsModule]:
    """The modules whose sources are in these directories (/usr/src/NAME-VERSION)."""
    found = (_SOURCE.fullmatch(PurePosixPath(path).name) for path in paths)
    return [{"name": match[1], "version": match[2]} for match in found if match]


def dkms_installed(status: str, kernel: str, versions: Sequence[str]) -> list[DkmsModule]:
    """NVIDIA's modules that DKMS takes for installed for a kernel, in a version of the driver: nvidia-fs is NVIDIA's too, has versions of
    its own, and is no module of the driver. ``status``: lines as ``nvidia/580.95.05, KERNEL, x86_64: installed``, with a comma for the
    slash in DKMS 2.8.
    """
    line = re.compile(rf"^(nvidia[\w-]*)(?:/|, )([\w.]+), {re.escape(kernel)}, \S+: installed", re.MULTILINE)
    return [{"name": name, "version": each} for name, each in line.findall(status) if each in versions]


def loading(context: Context, plan: Plan, driver: DriverStack) -> Loading | None:
    """What is loaded now. Without a reboot only where nothing is in the way: no nouveau, no module of another version, and no key that
    waits for somebody at the console. Everywhere else the role reboot decides.
    """
    facts, there = context.facts, version(context.facts)
    if (
        not cards_present(plan)
        or foreign(facts)
        or key_waits(facts, driver)
        or loaded_version(facts) not in ("", there)
    ):
        return None
    # Debian calls its modules nvidia-current(-open) and nvidia-current(-open)-uvm; loaded they are nvidia and nvidia_uvm everywhere.
    first = driver.get("kernel_module") or "nvidia"
    names = {"nvidia": first, "nvidia_uvm": f"{first}-uvm"}
    missing = [name for loaded, name in names.items() if loaded not in (facts["kernel"]["loaded"] or {})]
    return {"first": first, "missing": missing, "all": " and ".join(names.values())} if missing else None


def key_waits(facts: Facts, driver: DriverStack) -> bool:
    """Whether the kernel rejects modules that were built here until their key is enrolled."""
    key = facts["boot"]["signing_key"]
    return bool(key and key["state"] == "pending") and driver.get("build") == "dkms"

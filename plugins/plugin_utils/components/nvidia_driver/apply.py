# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NVIDIA driver: its package source, packages, lock, and the module for the kernel that boots next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import words
from ansible_collections.gpuwright.node.plugins.module_utils.base.numeric_version import upstream

from ...model import index_answer, sections
from ...model.errors import StepRefused
from ...model.in_use import Disturbance
from ...resolver import systems
from ...rules import Rules
from ...wish.wish import Wish
from .. import busy
from ..base import Component, Context, Finding, Manages, Step, missing_packages, repository_files, repository_findings
from ..demand import Demand, continues
from . import exchange, fabric, installed, places, returning, runfile, secure_boot, signed_modules, version_hold, work

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

    from ...model.plan import Brings, Change, Plan
    from ...model.stack import Stack


NAME = "nvidia_driver"
SOURCES = places.SOURCES
#: Headers follow the kernel and not the driver.
HEADERS = ("linux-headers-", "proxmox-headers-", *systems.DEVELS)
#: How the versions of the driver's packages begin; a kernel's module package counts differently.
_DRIVER_VERSION = re.compile(r"(\d+:)?\d{3,}\.\d")
PERSISTENCE_SERVICE = places.PERSISTENCE_SERVICE
PERSISTENCE_KEEPER = places.PERSISTENCE_KEEPER
PERSISTENCE_FILES = places.PERSISTENCE_FILES
KERNEL_HOOKS = places.KERNEL_HOOKS
STEPS: Mapping[str, Step] = {
    "begin": work.begin,
    "uninstalled": returning.uninstalled,
    "restored": returning.restored,
    "returned": returning.returned,
    "installed": installed.installed,
    "built": installed.built,
    "verified": installed.verified,
    "ready": installed.ready,
}
#: What its role changes.
TOUCHES = frozenset({"driver", "packages", "services", "initramfs"})


def wanted(context: Context) -> bool:
    return "driver" in context.stack


def findings(context: Context) -> list[Finding]:
    driver = context.stack["driver"]
    if driver["adopted"]:
        return []
    found = repository_findings(context, SOURCES.get(driver["source"], ()))
    found += runfile.displaced(driver) + _stream_findings(context, driver)
    found += runfile.findings(context, driver) if driver["source"] == "runfile" else _package_findings(context, driver)
    if not found:
        found += _lock_findings(context, driver) + _module_findings(context, driver) + _service_findings(context)
        found += fabric.findings(context, driver)
    return found + _stray_findings(context)


def manages(context: Context) -> Manages:
    driver = context.stack["driver"]
    if driver["source"] == "preinstalled":
        return Manages()  # its owner changes it when it likes
    if driver["adopted"]:
        return Manages(packages=sorted(context.facts["driver"]["packages"] or {}))
    named = [name for name in driver["packages"] if not name.startswith(HEADERS)]
    locked = version_hold.of(context.facts, driver["pin"])
    return Manages(
        files=[
            *repository_files(context, SOURCES.get(driver["source"], ())),
            *KERNEL_HOOKS.get(context.facts["os"]["family"], []),
            *version_hold.files(context.facts, driver["pin"]),
            *fabric.files(driver),
            *(PERSISTENCE_FILES if _persistence_is_static(context) else ()),
        ],
        packages=[*named, *(name for name in locked.holds if name not in named)],
        services=[*_persistence_services(context), *fabric.services(context, driver)],
    )


def inputs(context: Context) -> Mapping[str, object]:
    driver = context.stack["driver"]
    keys = ("branch", "modules", "source", "set", "pin", "adopted")
    chosen: dict[str, object] = {key: driver.get(key) for key in keys}
    chosen["packages"] = [name for name in driver["packages"] if not name.startswith(HEADERS)]
    chosen |= {key: driver.get(key) for key in ("fabric", "peermem") if driver.get(key)}
    return {**chosen, "version": driver["version"] if not driver["adopted"] else None}


def target_driver(context: Context) -> Brings:
    """The driver that the stack leads to: version, modules and source, and the kernel that it is for."""
    driver = context.stack["driver"]
    named = [
        context.versions[name] for name in driver["packages"] if _DRIVER_VERSION.match(context.versions.get(name, ""))
    ]
    of_packages = upstream(named[0]) if named and driver["source"] != "runfile" else None
    return {
        "version": of_packages or driver["version"],
        "modules": driver["modules"],
        "source": driver["source"],
        "kernel": context.facts["kernel"]["next"],
    }


def load_needed(context: Context) -> bool:
    """The installed module is not the one that runs, and only a load or a reboot brings it in."""
    if not context.runs_here or "driver" not in context.stack:
        return False
    return context.facts["driver"]["loaded_version"] is None or _loaded_is_stale(context)


def reboot_reason(context: Context) -> str | None:
    """Why the node has to boot again before the driver can be proven, or None.

    Another driver holds the card (nouveau, nova), or another version of the NVIDIA module is loaded than the one
    that is or will be installed: a loaded module cannot be exchanged under a running user space.
    """
    if not (context.cards_missing or context.runs_here) or "driver" not in context.stack:
        return None
    if context.stack["driver"]["source"] == "preinstalled":
        return None  # what its owner did not load is theirs to mend
    loaded = context.facts["kernel"]["loaded"] or {}
    other = [name for name in ("nouveau", "nova_core", "nova_drm", "nova") if name in loaded]
    if other and not context.beside_nouveau:
        return f"{other[0]} holds the card; the NVIDIA module can only take it over after a boot"
    console = secure_boot.waits_for_console(context.facts, context.stack["driver"])
    if console:
        return console
    if _loaded_is_stale(context):
        return "another version of the NVIDIA module is loaded than the one that is installed"
    if _repair_may_load_another(context):
        return "the repair of the package manager may load another version of the NVIDIA module than the one that is installed after it"
    kernel = context.facts["kernel"]
    if context.facts["driver"]["loaded_version"] is None and kernel["running"] != kernel["next"]:
        return f"kernel {kernel['running']} runs, and the module is made for {kernel['next']}, which boots next"
    return None


def may_boot(context: Context) -> bool:
    """Whether the machine may be rebooted when the driver needs it."""
    return bool(context.variables.get(NAME, {}).get("nvidia_driver_reboot", True))


def _loaded_is_stale(context: Context) -> bool:
    loaded = context.facts["driver"]["loaded_version"]
    if loaded is None:
        return False
    installed = context.facts["driver"]["user_version"]
    if installed is not None and installed != loaded:
        return True
    wished = _wished_version(context)
    return wished is not None and not context.stack["driver"]["adopted"] and not wished.startswith(loaded)


def _repair_may_load_another(context: Context) -> bool:
    """Whether packages of a driver wait to be configured before the plan brings another one: they build a module, and their service loads
    it. The role looks again before it boots.
    """
    if not context.facts["packages"]["interrupted"] or context.facts["driver"]["loaded_version"] is not None:
        return False
    # One that was cut off while it was unpacked counts as not there.
    there, coming = context.installed, context.versions
    return any(coming.get(name, there.get(name)) != there.get(name) for name in carriers(context.stack["driver"]))


def _wished_version(context: Context) -> str | None:
    """The version that this plan would install, where it is another one than what is there."""
    if context.stack["driver"]["source"] == "runfile":
        return str(context.stack["driver"]["version"])
    if context.stack["driver"].get("displaces"):
        return _target(context, context.stack["driver"])
    for name in carriers(context.stack["driver"]):
        version = context.versions.get(name, "")
        # Another branch may come by packages of other names, which are not there yet.
        if _DRIVER_VERSION.match(version) and context.installed.get(name) != version:
            return upstream(version)
    return None


def _stream_findings(context: Context, driver: DriverStack) -> list[Finding]:
    """The module stream decides which branch dnf sees at all."""
    name, _colon, wished = (driver["pin"].get("stream") or "").partition(":")
    found = (context.facts["packages"].get("streams") or {}).get(name)
    if found == (wished or None):
        return []
    return [Finding("configure", f"the module stream {name} is {found or 'not enabled'}", found, wished)]


def members(context: Context) -> list[str]:
    """The packages of the driver's set that are there and that nobody named: what those that are named depend on."""
    lock = context.facts["driver"]["lock"]
    return [name for name in lock["set"] if name not in context.stack["driver"]["packages"]]


def left_behind(context: Context, index: PackageIndex) -> list[str]:
    """Members of the set that the index has in the driver's new version too, and that nothing would bring there: what depends on them
    takes any version. The lock, which is over all of the set, would not hold.
    """
    found, driver = index_answer.candidates(index), context.stack["driver"]
    leads = [upstream(found[name]) for name in versioned_packages(driver) if name in found]
    going = {row["name"] for row in index["install"]}
    if not leads or not going.intersection(driver["packages"]):
        return []
    offered = {name: set(map(upstream, versions)) for name, versions in index["others"].items()}
    # The repair before it may bring any of them to any version.
    settled = not context.facts["packages"]["interrupted"]
    return [
        name
        for name in members(context)
        if name not in going
        and leads[0] in offered.get(name, ())
        and not (settled and upstream(context.installed.get(name, "")) == leads[0])
    ]


def preferred(context: Context, kept: str | None) -> str | None:
    """How versions begin that apt has to be told to prefer while it installs the driver; None where it does not.

    ``kept``: the branch or build that the driver is held to, None where none of its packages changes. The packages that are named have
    exact versions, what they depend on has lower bounds only (nvidia-persistenced, nvidia-modprobe, those of cuda-drivers-580), and
    NVIDIA's pinning package leaves the builds of its branch free.
    """
    return kept if context.facts["packages"]["manager"] == "apt" else None


def _package_findings(context: Context, driver: DriverStack) -> list[Finding]:
    packages = [*driver["packages"], *context.companions]
    missing = missing_packages(context, driver["packages"])
    replaced = exchange.replaced(context.facts, driver)
    if missing or replaced:
        before = context.facts["driver"]["user_version"] or context.facts["driver"]["loaded_version"]
        reason = (
            exchange.reason(context.facts, driver)
            if replaced
            else f"{len(missing)} of its packages {words.verb(len(missing), 'are')} missing: {', '.join(missing)}"
        )
        after = f"{_target(context, driver)} ({driver['modules']} modules)"
        services = [PERSISTENCE_SERVICE] if persistence_asked(context) else []
        services += fabric.services(context, driver)
        return [Finding("install", reason, before, after, packages, services=services, leaves=context.leaves)]
    twice = sorted(
        set(context.facts["driver"]["packages"] or {}) & set(context.facts["packages"].get("duplicates") or ())
    )
    if twice:
        # The repair keeps the newer of two versions; the set goes to the version that is wished.
        reason = f"an interrupted update left two versions of {', '.join(twice)}"
        return [Finding("repair", reason, after=_target(context, driver), packages=packages)]
    wrong = [
        name for name in versioned_packages(driver) if not continues(context.installed[name], version_prefix(driver))
    ]
    if wrong:
        reason = f"{wrong[0]} is {context.installed[wrong[0]]}, wished is {_target(context, driver)}"
        return [Finding("upgrade", reason, context.installed[wrong[0]], _target(context, driver), packages=packages)]
    return []


def _stray_findings(context: Context) -> list[Finding]:
    strays = context.facts["driver"].get("strays")
    if not strays:
        return []
    reason = (
        f"an interrupted installation of another build left {', '.join(strays)}: no package has it, and programs would find it first;"
        " it is removed"
    )
    return [Finding("repair", reason, files=strays)]


def versioned_packages(driver: DriverStack) -> list[str]:
    """The packages that carry the driver's own version. NVIDIA's repository versions them all alike, a distribution
    does not (Debian 13 pairs driver 550 with a persistence daemon of 535): its own are looked at where a version is wished.
    """
    if driver["source"] == "runfile" or (driver["source"] != "nvidia" and not driver.get("version")):
        return []
    return carriers(driver)


def carriers(driver: DriverStack) -> list[str]:
    """The named packages that are of the driver's own branch."""
    others: tuple[str, ...] = ("nvidia-driver-pinning-", "python3-", "linux-", "kernel-", "nvlsm", "infiniband-")
    if driver["source"] != "nvidia":
        others += ("firmware-", "nvidia-persistenced")
    return [name for name in driver["packages"] if not name.startswith(others)]


def version_prefix(driver: DriverStack) -> str:
    """What the version of those packages starts with: the exact version where one was wished, else the branch."""
    return f"{driver['version']}-" if driver.get("version") else f"{driver['branch']}."


def _target(context: Context, driver: DriverStack) -> str:
    for name in versioned_packages(driver) or driver["packages"]:
        if name in context.versions and not name.startswith(HEADERS):
            return str(context.versions[name])
    return str(driver.get("version") or f"branch {driver['branch']}")


def _lock_findings(context: Context, driver: DriverStack) -> list[Finding]:
    files = version_hold.files(context.facts, driver["pin"])
    return [
        Finding("configure", reason, files=[path for path in files if reason.startswith(path)])
        for reason in version_hold.differences(context.facts, driver["pin"])
    ]


def _module_findings(context: Context, driver: DriverStack) -> list[Finding]:
    """The module must exist for the kernel that boots next, in the version of the packages; package state proves nothing."""
    kernel = context.facts["kernel"]
    module = (kernel["available"] or {}).get("nvidia")
    if module is None:
        return [Finding("repair", f"there is no module {driver['kernel_module']} for the next kernel {kernel['next']}")]
    expected = context.facts["driver"]["user_version"]
    if expected and module["version"] != expected:
        return [
            Finding(
                "repair", f"the module for kernel {kernel['next']} is {module['version']}, the libraries are {expected}"
            ),
        ]
    if load_needed(context) and reboot_reason(context) is None:
        return [Finding("configure", "the driver is installed but not loaded")]
    return []


def persistence_asked(context: Context) -> bool:
    """Only where cards are present: in an image that is being built the daemon would only fail."""
    return installed.persistence_wished(context) and context.runs_here


def _persistence_wanted(context: Context) -> bool:
    return persistence_asked(context) and PERSISTENCE_SERVICE in (context.facts["services"] or {})


def _persistence_is_static(context: Context) -> bool:
    """Whether enabling the daemon's own unit would do nothing."""
    return _persistence_wanted(context) and context.facts["services"][PERSISTENCE_SERVICE]["enabled"] == "static"


def _persistence_services(context: Context) -> list[str]:
    if not _persistence_wanted(context):
        return []
    # The keeper first: who takes the services away in this order is not undone by it.
    return [*([PERSISTENCE_KEEPER] if _persistence_is_static(context) else []), PERSISTENCE_SERVICE]


def _keeper_is_left(context: Context) -> bool:
    """Whether the unit of ours is there without what it is for: another driver's daemon is enabled, or none is wished."""
    if sections.service(context.facts, PERSISTENCE_KEEPER)["enabled"] in (None, "not-found"):
        return False
    static = sections.service(context.facts, PERSISTENCE_SERVICE)["enabled"] == "static"
    return not (static and installed.persistence_wished(context))


def _service_findings(context: Context) -> list[Finding]:
    if _keeper_is_left(context):
        left = f"{PERSISTENCE_KEEPER} is left from a driver whose persistence daemon nothing enabled"
        return [Finding("configure", left, files=[*PERSISTENCE_FILES], services=[PERSISTENCE_KEEPER])]
    if not _persistence_wanted(context):
        return []
    if context.facts["services"][PERSISTENCE_SERVICE]["enabled"] == "disabled":
        return [Finding("configure", "the persistence daemon is not enabled", services=[PERSISTENCE_SERVICE])]
    reason = _static_reason(context) if _persistence_is_static(context) else None
    if reason is None:
        return []
    return [Finding("configure", reason, files=[*PERSISTENCE_FILES], services=_persistence_services(context))]


def _static_reason(context: Context) -> str | None:
    """Why a daemon that nothing enables has to be seen to; None where it is kept running."""
    services = context.facts["services"]
    if sections.service(context.facts, PERSISTENCE_KEEPER)["enabled"] != "enabled":
        return "the persistence daemon is started by udev alone, and without persistence mode"
    if context.facts["driver"]["loaded_version"] and services[PERSISTENCE_SERVICE]["active"] in ("inactive", "failed"):
        return "the persistence daemon does not run"
    return None


def refuse(context: Context, plan: Plan) -> None:
    """Raise StepRefused where the driver is to be replaced by a file without a checksum, or for a kernel that does not boot next any
    more.
    """
    changes = _replacing(plan)
    kernel = sections.another_kernel(context.facts, plan["brings"]) if changes else None
    if kernel and plan["brings"]:
        raise StepRefused(
            f"Expected {plan['brings']['kernel']} as the kernel that boots next, for which the driver was planned. Found {kernel}, which "
            "came since then. What to do: run again, which plans for it; nothing was changed."
        )
    driver = context.stack.get("driver")
    file = driver.get("runfile") if driver else None
    if changes and file and not file.get("sha256"):
        raise StepRefused(
            f"Expected a checksum of the driver's file, because it has to be run again ({'; '.join(row['reason'] for row in changes)}). "
            "Found none in the rules and none given. What to do: set nvidia_driver_runfile_sha256."
        )


def disturbs(context: Context, plan: Plan) -> list[Disturbance]:
    """The cards, where the driver is replaced or goes, or the fabric manager is restarted."""
    if _replacing(plan):
        return [Disturbance("idle cards", "the driver changes", busy.cards(context.facts))]
    driver = context.stack.get("driver")
    if driver and NAME in plan["components"] and fabric.restarts(context, driver):
        return [Disturbance("idle cards", f"{fabric.MANAGER} is restarted", busy.cards(context.facts))]
    return []


def _replacing(plan: Plan) -> list[Change]:
    """The changes that replace the driver: one that is adopted or as it was is not replaced."""
    stays = ("adopt", "configure")
    return [row for row in plan["changes"] if row["component"] == NAME and row["action"] not in stays]


def demands(stack: Stack, _wish: Wish) -> list[Demand]:
    """Return the driver as the package index has to have it."""
    driver = stack.get("driver")
    if driver is None or driver["adopted"]:
        return []
    start = version_prefix(driver)
    of_branch = [] if driver["source"] == "runfile" else carriers(driver)
    of_next = signed_modules.package_of_next(stack)
    # The pinning package of an exact build carries the build in its name.
    first = [name for name in driver["packages"] if name in of_branch]
    names = [
        *first,
        *(
            name
            for name in driver["packages"]
            if name not in of_branch and not name.startswith(HEADERS) and name != of_next
        ),
    ]
    version, fixed = driver.get("version"), bool(driver.get("version"))
    return [
        Demand(
            "driver",
            version or driver["branch"],
            names,
            lambda name, found: name not in of_branch or continues(found, start),
            fixed,
            branch=driver["branch"] if driver["source"] == "distro" else None,
            of=lambda name: not name.startswith("cuda-toolkit-"),
        )
    ]


def _also(stack: Stack, rules: Rules) -> list[str]:
    """Return the names of the driver's packages in other branches: old drivers carry theirs in the name."""
    driver = stack.get("driver")
    if not driver or driver["adopted"]:
        return []
    branches = [row["branch"] for row in rules["driver_branches"]["rows"]]
    return [
        each
        for name in driver["packages"]
        if not name.startswith(("linux-", "kernel-", "python3-", "nvidia-driver-pinning-"))
        for each in _of_branches(name, driver["branch"], branches)
    ]


def _of_branches(name: str, branch: str, branches: Iterable[str]) -> list[str]:
    """Return a driver package's names in other branches: libnvidia-compute-580 gives libnvidia-compute-570 and libnvidia-compute."""
    if f"-{branch}" not in name:
        return [f"{name}-{other}" for other in branches]
    return [name.replace(f"-{branch}", ""), *(name.replace(f"-{branch}", f"-{other}") for other in branches)]


def _adoption(context: Context) -> Finding | None:
    driver = context.stack.get("driver")
    if driver is None or not driver["adopted"]:
        return None
    reason = "a working driver is there and satisfies the wish"
    return Finding("adopt", reason, after=context.facts["driver"]["user_version"])


def _versioned(context: Context) -> list[str]:
    return versioned_packages(context.stack["driver"])


def _branch(stack: Stack) -> str:
    return str(stack["driver"]["branch"])


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    adoption=_adoption,
    parts=("driver",),
    touches=TOUCHES,
    units=(places.PERSISTENCE_KEEPER,),
    refuse=refuse,
    disturbs=disturbs,
    versioned=_versioned,
    members=members,
    security="driver",
    branch=_branch,
    demands=demands,
    also=_also,
    steps=STEPS,
)

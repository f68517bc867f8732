# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the role does after the packages are there, as data: build, lock, prove the module, load it, and bring up what is beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypedDict, cast

from ...model import sections
from ...model.plan import Plan
from .. import busy
from ..base import Context
from . import driver_module, fabric, kernels, places, runfile, version_hold

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

    from ...model.work import File, Unit


class Given(TypedDict):
    """``kernels``: those that were there before. ``upgrade``: what an upgrade of everything would move, as apt says it."""

    kernels: list[str]
    upgrade: Mapping[str, object]


class Installed(TypedDict):
    """``more``: whether anything rare has to be done before the set is locked: ``runfile``, NVIDIA's file is run; ``build``, the module is
    built once more.
    """

    more: bool
    runfile: bool
    build: driver_module.Build | None
    lock: version_hold.Locking


class Hooks(TypedDict):
    """The kernel hook: where it goes, and the one place that is called by hand; all empty where there is none."""

    directories: list[str]
    places: list[str]
    call: list[str]


class Static(TypedDict):
    """What keeps a persistence daemon running that nothing enables. ``asks``: whether the cards can say already that it does."""

    directory: str
    files: list[File]
    unit: Unit
    asks: bool


class Back(TypedDict):
    """What takes that back. ``restart``: whether the daemon runs by now."""

    keeper: str
    unit_file: str
    drop_in: str
    directory: str
    restart: bool


class Fabric(TypedDict):
    """Modules and services beside the driver's own. ``peermem_missing``: nvidia-peermem is wished, and the next kernel has none."""

    files: list[File]
    peermem_missing: bool
    kernel: str | None
    modules: list[str]
    services: list[Unit]
    names: str
    driver: str


class Ready(TypedDict):
    """What comes after the module is loaded. ``rare``: whether there is anything but ``units``."""

    rare: bool
    daemon: str
    static: Static | None
    back: Back | None
    fabric: Fabric | None
    absent: list[str]
    units: list[Unit]


class Verified(TypedDict):
    """The module of the next kernel: what is wrong with it, else what keeps it true and loads it. ``strays``: libraries of another build
    that no package has now.
    """

    strays: list[str]
    fault: driver_module.Fault | None
    hooks: Hooks
    load: driver_module.Loading | None
    ready: Ready


class OnlyReady(TypedDict):
    """The last part alone, where something changed since it was decided."""

    ready: Ready


def installed(context: Context, plan: Plan) -> Installed:
    """What is missing of the installation, and what locks it. Raises StepRefused where a kernel came unasked, which is told once there is
    nothing left to build.
    """
    driver = _driver(plan)
    build = driver_module.build(context, driver)
    file = bool(driver.get("runfile")) and not runfile.is_there(context.facts, driver)
    if build is None:
        return _completed(context, plan, file=file)
    return {"more": True, "runfile": file, "build": build, "lock": version_hold.work(context.facts, driver)}


def built(context: Context, plan: Plan) -> Installed:
    """What locks the set, whatever became of the module. Raises StepRefused where a kernel came unasked."""
    return _completed(context, plan, file=False)


def _completed(context: Context, plan: Plan, *, file: bool) -> Installed:
    kernels.came(cast("Given", plan["given"])["kernels"], context)
    lock = version_hold.work(context.facts, _driver(plan))
    return {"more": bool(file or lock["pin"] or lock["absent"]), "runfile": file, "build": None, "lock": lock}


def verified(context: Context, plan: Plan) -> Verified:
    """Whether the next kernel has the module. Raises StepRefused where the lock has no effect."""
    driver = _driver(plan)
    if not (driver["adopted"] or plan["restore"]):
        version_hold.judge(context.facts, driver, cast("Given", plan["given"])["upgrade"])
    return {
        "strays": list(context.facts["driver"].get("strays") or ()),
        "fault": driver_module.fault(context, driver),
        "hooks": _hooks(context, driver),
        "load": driver_module.loading(context, plan, driver),
        **ready(context, plan),
    }


def ready(context: Context, plan: Plan) -> OnlyReady:
    """The persistence daemon and the fabric."""
    driver = _driver(plan)
    static, back = _static(context, plan, driver), _back(context, driver)
    beside = _fabric(context, plan, driver)
    # The file lists nothing else.
    absent = [fabric.MODULES_FILE] if not fabric.modules(driver) and context.facts["fabric"]["modules_at_boot"] else []
    return {
        "ready": {
            "rare": bool(static or back or beside or absent),
            "daemon": places.PERSISTENCE_SERVICE,
            "static": static,
            "back": back,
            "fabric": beside,
            "absent": absent,
            "units": _daemon(context, plan),
        }
    }


def _driver(plan: Plan) -> DriverStack:
    driver: DriverStack = plan["stack"]["driver"]
    return driver


def _hooks(context: Context, driver: DriverStack) -> Hooks:
    """A kernel that comes later must not take the driver away at its first boot."""
    where = [] if driver["adopted"] else places.KERNEL_HOOKS.get(context.facts["os"]["family"], [])
    directories = dict.fromkeys(str(PurePosixPath(path).parent) for path in where)
    # An earlier run may have left an older kernel the default, because the newest one had no module then.
    return {"directories": list(directories), "places": list(where), "call": where[:1]}


# --- the persistence daemon -------------------------------------------------------------------------------------------


def persistence_wished(context: Context) -> bool:
    """Whether the persistence daemon is to run: it is, unless nvidia_driver_persistence says otherwise."""
    return bool(context.variables.get("nvidia_driver", {}).get("nvidia_driver_persistence", True))


def _daemon_state(context: Context) -> str:
    return sections.service(context.facts, places.PERSISTENCE_SERVICE)["enabled"] or ""


def _is_static(context: Context, driver: DriverStack) -> bool:
    """Whether a unit of ours keeps the daemon running. Where persistence is not wished or the driver is somebody else's, nothing does."""
    return persistence_wished(context) and not driver["adopted"] and _daemon_state(context) == "static"


def _unit(context: Context, name: str) -> Unit:
    """A unit that is enabled, and started once the driver is loaded."""
    unit: Unit = {"name": name, "enabled": True}
    if "nvidia" in (context.facts["kernel"]["loaded"] or {}):
        unit["state"] = "started"
    return unit


def _static(context: Context, plan: Plan, driver: DriverStack) -> Static | None:
    """Ubuntu's unit has no [Install]: to enable it does nothing. udev starts it, with --no-persistence-mode, when the driver takes a card,
    and an upgrade of its package stops it until the next boot.
    """
    if not driver_module.cards_present(plan) or not _is_static(context, driver):
        return None
    return {
        "directory": str(PurePosixPath(places.PERSISTENCE_FILES[0]).parent),
        "files": places.persistence(),
        "unit": _unit(context, places.PERSISTENCE_KEEPER),
        "asks": driver_module.runs(context, plan),
    }


def _back(context: Context, driver: DriverStack) -> Back | None:
    """The drop-in names a program and a user that another driver may not have, and the unit would go on starting the daemon."""
    keeper = sections.service(context.facts, places.PERSISTENCE_KEEPER)["enabled"]
    if keeper in (None, "", "not-found") or _is_static(context, driver):
        return None
    drop_in, unit_file = places.PERSISTENCE_FILES
    return {
        "keeper": places.PERSISTENCE_KEEPER,
        "unit_file": unit_file,
        "drop_in": drop_in,
        "directory": str(PurePosixPath(drop_in).parent),
        "restart": sections.service(context.facts, places.PERSISTENCE_SERVICE)["active"] == "active",
    }


def _daemon(context: Context, plan: Plan) -> list[Unit]:
    """Only where cards are present: in an image that is being built, or on a machine without a card, the daemon would only fail."""
    wished = driver_module.cards_present(plan) and persistence_wished(context)
    if not wished or _daemon_state(context) in ("", "not-found", "masked", "static"):
        return []
    return [_unit(context, places.PERSISTENCE_SERVICE)]


# --- boards with NVSwitches, NVLink 5 fabrics and RDMA ----------------------------------------------------------------


def _fabric(context: Context, plan: Plan, driver: DriverStack) -> Fabric | None:
    """The order matters: the driver, then the modules beside it, then the fabric manager, which refuses to start without a driver of
    exactly its version.
    """
    seen, wished = context.facts["fabric"], fabric.modules(driver)
    services = list(fabric.part(driver).get("services", ())) if driver_module.cards_present(plan) else []
    if not (wished or services):
        return None
    running = driver_module.runs(context, plan)
    # What began to compute since the plan was made is not ended: the next run finds the manager as this one did.
    stale = bool(seen["manager_stale"]) and (plan["allow_busy"] or busy.cards(context.facts).state == "idle")
    names = [name.replace(fabric.PEERMEM, seen["peermem_module"] or fabric.PEERMEM) for name in wished]
    late = [name for name in names if _loaded_as(name) not in seen["modules_loaded"]]
    return {
        "files": [places.boot_modules(fabric.MODULES_FILE, names)] if names else [],
        "peermem_missing": fabric.PEERMEM in wished and not seen["peermem_module"],
        "kernel": context.facts["kernel"]["next"],
        "modules": late if running else [],
        "services": [_service(name, running=running, stale=stale) for name in services],
        "names": " and ".join(services),
        "driver": driver_module.version(context.facts) or "?",
    }


def _service(name: str, *, running: bool, stale: bool) -> Unit:
    """A service of the fabric. It is restarted where its program was replaced under it: what runs is then of another version than the
    driver.
    """
    if not running:
        return {"name": name, "enabled": True}
    return {"name": name, "enabled": True, "state": "restarted" if stale else "started"}


def _loaded_as(name: str) -> str:
    """The name that a module has once it is loaded."""
    return name.replace("-", "_").replace("nvidia_current", "nvidia")

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A boot, where the driver can only take over after one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from ...model import sections
from ...model.errors import StepRefused
from ...model.in_use import Disturbance
from .. import busy, resume
from ..base import Component, Context, Finding, Step
from ..nvidia_driver import apply as nvidia_driver
from ..nvidia_driver import driver_module

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

    from ...model.plan import Brings, Plan

NAME = "reboot"
#: Modules of other drivers that hold the cards until the next boot.
_OTHERS = ("nouveau", "nova", "nova_core", "nova_drm")
#: Asked of each kernel and module: it must not only be there, modprobe has to find every module that it depends on as well.
_ASK = (
    "while [ $# -gt 1 ]; do"
    ' said=$(modprobe --dry-run --set-version="$1" "$2" 2>&1) || echo "modprobe cannot load it for kernel $1: $said"; shift 2;'
    " done"
)


class Given(TypedDict):
    """What the role knows. ``allowed``: nvidia_driver_reboot; ``check``: nothing is changed; ``resume``: what the command line prepared, or
    why it did not.
    """

    allowed: bool
    no_reboot: bool
    local: bool
    check: bool
    resume: resume.Prepared | dict[str, str]


class Waited(TypedDict):
    """``before``: id of the boot before; ``wait``: the seconds that the driver has."""

    before: str
    wait: int


class Boot(TypedDict, total=False):
    """What the role does before the boot.

    ``next``: what follows: a boot, one with the lines shown before it that help at a black screen, or what is left to the user.
    ``ask``: prints the kernels that could not load the module, which have to be none; ``expected``: of which kernels that is expected;
    ``another_kernel``: whether one boots next that came after the plan, which is no fault of the driver's.
    ``boot``: id of the boot that there is. ``resume``: what goes on after a boot that somebody makes; empty where nothing does.
    """

    needed: bool
    next: Literal["boot", "shown", "left"]
    reason: str
    ask: list[str]
    expected: str
    another_kernel: bool
    boot: str | None
    resume: resume.Resume


class Booted(TypedDict, total=False):
    """What is there after the boot. ``msg``: why the driver is not loaded, where it is not."""

    needed: bool
    msg: str


#: What its role changes: a driver answers for what it loads as.
TOUCHES = frozenset({"driver"})


def wanted(context: Context) -> bool:
    return nvidia_driver.reboot_reason(context) is not None


def findings(context: Context) -> list[Finding]:
    reason = nvidia_driver.reboot_reason(context)
    return [Finding("configure", f"reboot: {reason}")] if reason else []


def boot(context: Context, plan: Mapping[str, object]) -> Boot:
    """Whether the machine is booted now, or by its user, and what comes before it. ``plan["given"]``: :class:`Given`.

    Raises StepRefused where a kernel may boot next that has no such driver: the last look before the screen goes dark.
    """
    given, removed = cast("Given", plan["given"]), bool(plan["remove"])
    if not _needed(context, removed=removed):
        return {"needed": False, "ask": [], "boot": context.facts["boot"]["id"]}
    ask: list[str] = []
    if not given["check"] and not removed:
        faults = _faults(context)
        if faults:
            raise StepRefused(
                f"Expected {_expected(context)}. Found: {'; '.join(faults)}."
                " What to do: run the role nvidia_driver again; its message says what the build of the module lacks."
            )
        ask = _question(context)
    allowed = given["allowed"] and not given["no_reboot"] and not given["local"] and not _waits_for_console(context)
    # What began since the plan was made is not ended; and it is no fault of the driver, which a failure would take back.
    use = Disturbance("an idle host", "it is rebooted", busy.host(context.facts))
    begun = allowed and not plan["allow_busy"] and use.use.state != "idle"
    return {
        "needed": True,
        "next": ("shown" if plan["rescue"] else "boot") if allowed and not begun else "left",
        "reason": _reason(context, removed=removed) + (f" ({busy.text(use)})" if begun else ""),
        "ask": ask,
        "expected": _expected(context),
        "another_kernel": sections.another_kernel(context.facts, cast("Brings | None", plan["brings"])) is not None,
        "boot": context.facts["boot"]["id"],
        "resume": {} if allowed else _resume(given),
    }


def booted(context: Context, plan: Mapping[str, object]) -> Booted:
    """Whether the driver is loaded. ``plan["given"]``: :class:`Waited`. Raises StepRefused where this is no other boot."""
    given, now, removed = cast("Waited", plan["given"]), context.facts["boot"]["id"], bool(plan["remove"])
    if _needed(context, removed=removed):
        return {
            "needed": True,
            "msg": f"Expected the driver to be loaded within {given['wait']} seconds after the boot."
            f" Found: {_reason(context, removed=removed)}. What to do: read the kernel log (dmesg | grep -iE 'nvidia|nouveau');"
            " a machine without a picture boots with nomodeset on the kernel's line.",
        }
    if not now or now == given["before"]:
        raise StepRefused(
            f"Expected another boot than {given['before']}. Found boot {now or 'of unknown id'}."
            " What to do: look who keeps the machine from shutting down (systemd-inhibit --list, systemctl list-jobs), reboot it, and run"
            " again."
        )
    return {"needed": False}


STEPS: Mapping[str, Step] = {"boot": boot, "booted": booted}


def _in_the_way(context: Context) -> list[str]:
    """Loaded modules of other drivers. Beside a driver that is left as it is and holds cards, they hold those that are left alone."""
    driver, cards = _driver(context), context.facts["pci"]["gpus"]
    if driver and driver["adopted"] and any(card.get("driver") == "nvidia" for card in cards):
        return []
    return [name for name in context.facts["kernel"]["loaded"] or {} if name in _OTHERS]


def _driver(context: Context) -> DriverStack | None:
    return context.stack.get("driver")


def _needed(context: Context, *, removed: bool) -> bool:
    """Whether a boot is needed now; after a removal, where a module without its packages runs on.

    A machine without cards (an image that is being built), or for the CPU only, needs no driver in its kernel. Where cards should be there
    and are not, the kernel that has the module is booted without nouveau, so that the module itself can say what it finds.
    """
    loaded, available = driver_module.loaded_version(context.facts), driver_module.version(context.facts)
    kernel = context.facts["kernel"]
    if removed:
        return bool(loaded) and loaded != available
    if not _driver(context) or context.cpu_only or (context.provision_only and not context.cards_missing):
        return False
    if context.cards_missing:
        return bool(_in_the_way(context)) or kernel["running"] != kernel["next"]
    return bool(_in_the_way(context)) or not loaded or loaded != available


def _waits_for_console(context: Context) -> bool:
    """Whether a boot without anybody at the console would let the request for the key lapse."""
    facts, driver = context.facts, _driver(context)
    return driver is not None and driver_module.key_waits(facts, driver) and not driver_module.loaded_version(facts)


def _reason(context: Context, *, removed: bool) -> str:
    """Why a boot is needed, for a person."""
    loaded, available = driver_module.loaded_version(context.facts), driver_module.version(context.facts)
    if _waits_for_console(context):
        return (
            "the key that signs the modules waits to be enrolled, which somebody at the console has to do (Enroll MOK)"
        )
    if removed:
        return f"driver {loaded} stays in the kernel until the next boot"
    if _in_the_way(context):
        return f"{', '.join(_in_the_way(context))} still has the cards"
    return f"driver {loaded or 'none'} is loaded and {available or 'none'} is installed"


def _flavour(context: Context) -> str:
    """The modules that the plan wants; nothing where it takes what there is."""
    driver = _driver(context)
    modules = driver["modules"] if driver and not driver["adopted"] else None
    return modules if modules in ("open", "proprietary") else ""


def _expected(context: Context) -> str:
    module = " ".join(
        filter(None, ("the", _flavour(context), "NVIDIA module", context.facts["driver"]["user_version"]))
    )
    kernels = ", ".join(context.facts["kernel"]["may_boot"])
    return f"{module} for every kernel that may boot next ({kernels}), so the machine is not rebooted"


def _faults(context: Context) -> list[str]:
    """What is wrong with the module of each kernel that may boot with nobody at the menu."""
    kernels, libraries, wished = (
        context.facts["kernel"]["may_boot"],
        context.facts["driver"]["user_version"],
        _flavour(context),
    )
    if not kernels:
        return ["nobody can tell which kernel boots next"]
    faults = []
    for release, module in kernels.items():
        flavour = "open" if module and "GPL" in (module["license"] or "") else "proprietary"
        if not module:
            faults.append(f"kernel {release} has none")
        elif libraries and module["version"] != libraries:
            faults.append(f"kernel {release} has {module['version']}")
        elif wished and flavour != wished:
            faults.append(f"kernel {release} has the {flavour} one")
    return faults


def _question(context: Context) -> list[str]:
    """The program that asks modprobe for each kernel that may boot."""
    kernels = context.facts["kernel"]["may_boot"].items()
    return [
        "sh",
        "-c",
        _ASK,
        "sh",
        *(word for release, module in kernels if module for word in (release, module["name"])),
    ]


def _resume(given: Given) -> resume.Resume:
    """What goes on after the boot of the machine one sits at."""
    prepared = given["resume"]
    if not given["local"] or given["no_reboot"] or "command" not in prepared:
        return {}
    return resume.resume(cast("resume.Prepared", prepared))


# A boot leaves nothing that could be sealed: the proof names its boot id instead.
def disturbs(context: Context, plan: Plan) -> list[Disturbance]:
    """The host, where this run boots it."""
    allowed = plan["boots"] and nvidia_driver.may_boot(context)
    boots = NAME in plan["components"] and allowed and not _waits_for_console(context)
    return [Disturbance("an idle host", "it is rebooted", busy.host(context.facts))] if boots else []


COMPONENT = Component(NAME, wanted, findings, touches=TOUCHES, disturbs=disturbs, steps=STEPS)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The in-tree drivers nouveau and nova kept away from the cards, in modprobe.d and inside the initramfs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ...model.errors import StepRefused
from ...model.plan import Plan, Removes
from ...model.work import File, Work
from ..base import Component, Context, Finding, Manages, Step, not_known
from ..view import UP, View, unknown

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, Kernel
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

    from ...model.stack import Stack

BLACKLIST = "/etc/modprobe.d/gpuwright-nouveau.conf"
#: dracut takes the machine's modprobe.d only where it is told to, in every initramfs from then on.
DRACUT = "/etc/dracut.conf.d/gpuwright-nouveau.conf"

#: Variables of the role, with their defaults.
MODULES = ("nouveau", "nova", "nova_core", "nova_drm")

_INSIDE = "kernel.initramfs.blacklist_inside"
_WRITTEN = "# Written by gpuwright (role nouveau_blacklist). A change here is overwritten by the next run.\n"
#: A file of one of the drivers in a listing. In an initramfs that holds every driver it does no harm beside the blacklist.
_DRIVER_FILE = r"[/](nouveau|nova[_-]?(core|drm)?)\.ko"
#: What lists an initramfs, by the program that makes it.
_LISTS: Mapping[str, str] = {"update-initramfs": "lsinitramfs", "dracut": "lsinitrd"}
#: Words of the kernel's command line by which nouveau is not loaded, or is and drives no card (nouveau_drm_init of
#: drivers/gpu/drm/nouveau/nouveau_drm.c; man dracut.cmdline, man modprobe.d, Documentation/admin-guide/kernel-parameters.txt).
_KEPT_AWAY = re.compile(
    r"(?:^|\s)(?:(?:modprobe\.|rd\.driver\.|module_)blacklist=(?:\S*,)?nouveau(?:,\S*)?|nouveau\.modeset=0|nomodeset)(?!\S)"
)
#: What its role changes.
TOUCHES = frozenset({"driver", "initramfs"})


class Image(TypedDict):
    """The initramfs of the kernel that boots next: what rebuilds it and lists it, and what the listing has to hold.

    ``stale``: the blacklist is not inside as it is on disk. ``inside``: words that name it; ``drivers``: a pattern for what it is against.
    """

    kernel: str
    path: str
    stale: bool
    rebuild: list[str]
    list: list[str]
    inside: str
    drivers: str


class Given(TypedDict, total=False):
    """``check``: whether the run is in check mode."""

    check: bool


def wanted(context: Context) -> bool:
    """Not where another one looks after the driver: then the initramfs is theirs too. Nor where a driver that is left as it is works beside
    nouveau, which drives a card that is left alone.
    """
    driver = context.stack.get("driver")
    if driver is None or driver["source"] == "preinstalled":
        return False
    return not context.beside_nouveau


def findings(context: Context) -> list[Finding]:
    initramfs = context.facts["kernel"]["initramfs"]
    if initramfs["path"] is None:
        return []
    if _sealed(context):
        return []
    if initramfs["blacklist_inside"]:
        return []
    reason = f"nouveau and nova are not blacklisted inside {initramfs['path']}"
    if _INSIDE in context.facts["unknown"]:
        reason = not_known(
            context.facts, _INSIDE, f"whether nouveau and nova are blacklisted inside {initramfs['path']}"
        )
    return [Finding("configure", reason, files=[BLACKLIST, *_of_dracut(context), initramfs["path"]])]


def manages(context: Context) -> Manages:
    path = context.facts["kernel"]["initramfs"]["path"]
    return Manages(files=[BLACKLIST, *_of_dracut(context)], light_files=[path] if path else [])


def _of_dracut(context: Context) -> list[str]:
    return [DRACUT] if context.facts["kernel"]["initramfs"]["tool"] == "dracut" else []


def inputs(context: Context) -> Mapping[str, object]:
    return {"kernel": context.facts["kernel"]["next"]}


def _sealed(context: Context) -> bool:
    """A good seal covers the initramfs by size and time, so its content was not unpacked again to look."""
    seal = (context.facts["seals"] or {}).get("nouveau_blacklist")
    return bool(seal and seal["state"] == "good")


def judge(view: View, stack: Stack) -> list[Check]:
    """The next boot does not load nouveau from the initramfs, where it comes before what the disk says."""
    return [_judge(view, stack)] if view.gpus else []


def _judge(view: View, stack: Stack) -> Check:
    name, nouveau = "kernel.initramfs", "kernel.initramfs.nouveau_inside"
    path, inside = view.get("kernel.initramfs.path"), view.get(nouveau)
    skipped, kept_away = _out_of_the_way(view), _kept_away(view)
    if skipped:
        return checks.skipped(name, skipped)
    if kept_away or inside is False:
        return checks.passed(name, reason=kept_away)
    if inside is None:
        return unknown(name, view, nouveau, f"whether {path} holds nouveau")
    return checks.failed(
        name,
        reason=f"{path} holds nouveau and nothing that keeps it from being loaded: at the next boot it takes the cards before the NVIDIA "
        "driver can",
        action="configure",
        remedy=_remedy(view.facts["kernel"], stack.get("driver")),
    )


def _out_of_the_way(view: View) -> str | None:
    """Why nobody has to ask whether nouveau comes at the next boot."""
    if view.environment == "container":
        return "the kernel is that of the container's host"
    if view.get("kernel.initramfs.path") is None:
        return "there is no initramfs"
    if "nouveau" in (view.get("kernel.loaded") or ()):
        return "nouveau is loaded now: see driver.nouveau_absent"
    if not view.get("kernel.available.nvidia"):
        return "the kernel that boots next has no NVIDIA module that nouveau could be in the way of"
    return None


def _kept_away(view: View) -> str | None:
    """What keeps nouveau from the cards at the next boot, wherever it lies."""
    path = view.get("kernel.initramfs.path")
    if view.get(_INSIDE):
        return f"it is blacklisted inside {path}"
    if view.get("seals.nouveau_blacklist.state") == "good":
        return f"{path} is as it was when the blacklist was found inside"
    if _KEPT_AWAY.search(view.get("boot.cmdline") or ""):
        return "the kernel's command line keeps it away"
    return None


def _remedy(kernel: Kernel, driver: DriverStack | None) -> str:
    if driver is not None and driver["source"] != "preinstalled":
        return f"{UP}, which blacklists nouveau and makes the initramfs again, before the next reboot"
    written = "write 'blacklist nouveau' into a file *.conf of /etc/modprobe.d"
    if kernel["initramfs"]["tool"] == "dracut":
        written += ", 'omit_drivers+=\" nouveau \"' into one of /etc/dracut.conf.d"
    by = f"'{' '.join(rebuild(kernel))}'" if rebuild(kernel) else "by the tool that made it"
    return f"{written}, and make the initramfs again ({by}), before the next reboot"


# The work of the role


def begin(context: Context, plan: Plan) -> Work:
    """The blacklist, and what brings it into each initramfs that dracut makes."""
    modules = cast(
        "Sequence[str]", context.variables.get("nouveau_blacklist", {}).get("nouveau_blacklist_modules", MODULES)
    )
    files = [File(path=BLACKLIST, content=blacklist(modules), mode="0644")]
    files += [File(path=path, content=for_dracut(modules), mode="0644") for path in _of_dracut(context)]
    return {"files": files}


def verified(context: Context, plan: Plan) -> Mapping[str, Image | None]:
    """``image``: the initramfs that has to hold the blacklist; None where there is none, and in check mode, where the driver of this same
    plan is not installed.

    Raises StepRefused where the kernel that boots next has no module of NVIDIA, so that a cut never leaves a screen without a driver, and
    where nothing is known that rebuilds the initramfs.
    """
    if cast("Given", plan["given"]).get("check"):
        return {"image": None}
    kernel = context.facts["kernel"]
    module = kernel["available"].get("nvidia")
    if not (module and module["version"]):
        raise StepRefused(
            f"Expected an NVIDIA module for kernel {kernel['next']}, which boots next, before nouveau is taken from it. Found none, so "
            "that the screen would stay dark after a boot. What to do: install the driver first (role nvidia_driver); its message says "
            "what its build lacks."
        )
    if kernel["initramfs"]["path"] is None:
        return {"image": None}
    return {"image": _image(context)}


STEPS: Mapping[str, Step] = {"begin": begin, "verified": verified}


def blacklist(modules: Sequence[str]) -> str:
    """What modprobe reads."""
    lines = ["# These drivers would claim the cards before the NVIDIA driver can."]
    lines += [f"blacklist {module}" for module in modules]
    lines += ["options nouveau modeset=0"] if "nouveau" in modules else []
    return _WRITTEN + "".join(f"{line}\n" for line in lines)


def for_dracut(modules: Sequence[str]) -> str:
    """What dracut reads."""
    omitted = 'omit_drivers+=" nouveau "\n' if "nouveau" in modules else ""
    return f'{_WRITTEN}install_items+=" {BLACKLIST} "\n{omitted}'


def rebuild(kernel: Kernel) -> list[str]:
    """The program that makes the initramfs of the kernel that boots next anew; nothing where none is known."""
    release, initramfs = str(kernel["next"]), kernel["initramfs"]
    if initramfs["tool"] == "dracut":
        # Named, because dracut's own choice of a name is not the one that Ubuntu's boot loader looks for.
        return ["dracut", "--force", "--kver", release, *([initramfs["path"]] if initramfs["path"] else [])]
    return ["update-initramfs", "-u", "-k", release] if initramfs["tool"] == "update-initramfs" else []


def _image(context: Context) -> Image:
    kernel = context.facts["kernel"]
    initramfs = kernel["initramfs"]
    path, lists = str(initramfs["path"]), _LISTS.get(initramfs["tool"] or "")
    if lists is None:
        raise StepRefused(
            f"Expected one of {', '.join(_LISTS)} to rebuild {path}. Found none of them. What to do: install initramfs-tools "
            "or dracut, or rebuild it by your own tool, then run again."
        )
    # The outcome, and not "was the file changed": a run that was cut off between file and initramfs leaves the file right and the initramfs
    # wrong. Under a good seal nobody looked inside, since nothing has changed.
    stale = not initramfs["blacklist_current"] and not (initramfs["blacklist_current"] is None and _sealed(context))
    return {
        "kernel": str(kernel["next"]),
        "path": path,
        "stale": stale,
        "rebuild": rebuild(kernel),
        "list": [lists, path],
        "inside": BLACKLIST[1:],
        "drivers": _DRIVER_FILE,
    }


def _removes(_facts: Facts, files: Sequence[str]) -> Removes:
    return {"initramfs": BLACKLIST in files}


COMPONENT = Component(
    "nouveau_blacklist", wanted, findings, inputs, manages, touches=TOUCHES, judge=judge, removes=_removes, steps=STEPS
)

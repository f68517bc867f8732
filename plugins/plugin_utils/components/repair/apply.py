# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An interrupted package manager: nothing else can work before it is mended."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ...model.errors import StepRefused
from ...model.in_use import Disturbance
from .. import busy
from ..base import Component, Context, Finding, Step

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, FailedBuild

    from ...model.plan import Plan
    from ...model.work import File

NAME = "repair"
#: Unfinished packages that the repair may have services restarted by; dpkg's journal does not tell which it has, and of many the
#: observation names the first.
_OF_DRIVER = re.compile(r"nvidia|libcuda|cuda-drivers|fabricmanager")
_OF_ENGINE = re.compile(r"docker|containerd|moby|runc")
_STEPS, _MOST_TOLD = "unfinished steps", 9
#: What its role changes.
TOUCHES = frozenset({"packages"})


def wanted(context: Context) -> bool:
    return bool(context.facts["packages"]["interrupted"])


def findings(context: Context) -> list[Finding]:
    detail = context.facts["packages"].get("interrupted_detail")
    builds = [_build(context, build) for build in unbuildable(context.facts)]
    reason = f"the package manager was interrupted: {detail or 'unfinished packages'}"
    return [
        Finding("repair", "; ".join([reason, *builds]), files=[_setting(build) for build in unbuildable(context.facts)])
    ]


def unbuildable(facts: Facts) -> list[FailedBuild]:
    """Builds of the module that failed for a kernel that does not run, where another kernel has a module and can go on booting."""
    dkms = facts["dkms"]
    kernel = facts["kernel"]
    return [
        build
        for build in dkms["failed"]
        if not build["transient"]
        and build["kernel"] != kernel["running"]
        and build["kernel"] not in dkms["kernels"]
        and dkms["kernels"]
    ]


def kernel_kept(facts: Facts) -> str | None:
    """The kernel that the repair makes the one that boots next; None where it leaves that as it is."""
    builds = unbuildable(facts) if facts["packages"]["interrupted"] else []
    if facts["kernel"]["next"] not in [build["kernel"] for build in builds]:
        return None
    return str(facts["dkms"]["kernels"][-1])


def _build(context: Context, build: FailedBuild) -> str:
    kernel, kept = build["kernel"], context.facts["dkms"]["kernels"][-1]
    return (
        f"{build['module']} {build['version']} did not build for kernel {kernel};"
        f" {kernel} is left out of its builds{'' if build['compiler'] else ' where it fails again'}"
        f" and {kept}, which has the module, boots next. Ways out: --want driver-modules=proprietary where the card allows it, a driver"
        f" that knows {kernel}, or the older kernel"
    )


def _setting(build: FailedBuild) -> str:
    return f"/etc/dkms/{build['module']}-{build['version']}-{build['kernel']}.conf"


#: From this version on a module that is left out for a kernel does not fail DKMS's hooks of that kernel.
_DKMS_SKIPS = "3.0.11"
#: What makes the newest kernel with a module the default of the boot menu; the kernel hook of the driver writes it too.
BOOT_SETTING = "/etc/default/grub.d/gpuwright.cfg"


class Repair(TypedDict):
    """What is known before the first task. ``uncompilable``: the compiler refused the source of a module, and would again: packages are
    not configured before it is left out, for a build takes minutes. ``duplicates``: packages that dnf left in two versions.
    """

    interrupted: bool
    uncompilable: bool
    duplicates: list[str]


class Next(TypedDict):
    """What is left to do. ``files`` are written; then ``configure`` says that dpkg goes on, and ``kernels`` are the words with which the
    role's script does that, where DKMS counts what is left out as failed. ``kept``: the kernel that is made the default of the boot menu.
    ``more``: whether the node has to be looked at again.
    """

    files: list[File]
    configure: bool
    kernels: str
    kept: str
    more: bool


class Given(TypedDict):
    """``done``: what was said the last time, empty the first time. What ``dkms`` said of its version, and what dnf ``said``."""

    done: Next | dict[str, str]
    dkms: str
    said: str


_NOTHING: Next = {"files": [], "configure": False, "kernels": "", "kept": "", "more": False}


def begin(context: Context, plan: Mapping[str, object]) -> Repair:
    """What the plan's own look at the node tells."""
    del plan
    return {
        "interrupted": bool(context.facts["packages"]["interrupted"]),
        "uncompilable": any(build["compiler"] for build in unbuildable(context.facts)),
        "duplicates": list(context.facts["packages"].get("duplicates") or ()),
    }


def look(context: Context, plan: Mapping[str, object]) -> Next:
    """What is left to do, once the package manager has tried.

    A new kernel may have come for which the driver's module does not build, and DKMS's failure left its packages half configured. DKMS is
    told to leave this version of the module out for this kernel alone, so that the packages can be finished (the next version is tried
    again by itself); then the kernel that has a module is made the one that boots next, and that is verified.

    ``plan["given"]``: :class:`Given`. Raises StepRefused where dnf has left something half done, or the boot menu cannot be made to
    choose that kernel.
    """
    facts, given = context.facts, cast("Given", plan["given"])
    if facts["packages"]["manager"] == "dnf":
        _all_done(facts, given["said"])
        return _NOTHING
    builds, done = unbuildable(facts), given["done"]
    kept = done.get("kept")
    if kept:
        _verify(facts, str(kept))
    elif builds and not done:
        skips = _dkms_skips(given["dkms"])
        kernels = dict.fromkeys(build["kernel"] for build in builds)
        return {
            **_NOTHING,
            "files": [_left_out(build) for build in builds],
            "configure": skips,
            "kernels": "" if skips else shlex.join(kernels),
            "more": True,
        }
    elif builds and facts["kernel"]["next"] not in facts["dkms"]["kernels"]:
        return {**_NOTHING, "files": [_menu(facts)], "kept": facts["dkms"]["kernels"][-1], "more": True}
    return _NOTHING


STEPS: Mapping[str, Step] = {"begin": begin, "look": look}


def _all_done(facts: Facts, said: str) -> None:
    """Raise StepRefused where dnf has left something half done. ``said``: its words."""
    packages = facts["packages"]
    if packages["interrupted"]:
        raise StepRefused(
            f"Expected the package manager to finish its interrupted work. Found: {packages['interrupted_detail']}. {said}"
            " What to do: correct what is named (dnf check tells more; dnf remove --duplicates shows what would go), then run again."
        )


def _dkms_skips(said: str) -> bool:
    version = re.search(r"[0-9.]+", said)
    return version is not None and numeric_version.at_least(version[0], _DKMS_SKIPS)


def _left_out(build: FailedBuild) -> File:
    """What makes DKMS leave a build out."""
    text = (
        f"# Written by gpuwright (role repair): {build['module']} {build['version']} does not build for kernel {build['kernel']}, and its"
        " failure would\n# leave packages half configured. DKMS reads this for that version and that kernel alone; without this file it"
        ' tries again.\nBUILD_EXCLUSIVE_KERNEL="^$"\n'
    )
    return {"path": _setting(build), "content": text, "mode": "0644"}


def _menu(facts: Facts) -> File:
    """What makes the newest kernel that has a module the default of the boot menu."""
    kept, entries = facts["dkms"]["kernels"][-1], facts["dkms"]["boot_entries"]
    if kept not in entries:
        raise StepRefused(
            f"Expected an entry for kernel {kept}, which has the NVIDIA module, in GRUB's menu, so that it can boot next instead of"
            f" {facts['kernel']['next']}, for which the module does not build. Found: {', '.join(entries) or 'none'}."
            f" What to do: make {kept} the default of this machine's boot loader, then run again."
        )
    text = (
        "# Written by gpuwright (role repair): the newest kernel has no NVIDIA module. Without this file the newest one boots.\n"
        f'if [ -e "/boot/vmlinuz-{kept}" ]; then GRUB_DEFAULT="{entries[kept]}"; fi\n'
    )
    return {"path": BOOT_SETTING, "content": text, "mode": "0644"}


def _verify(facts: Facts, kept: str) -> None:
    """Raise StepRefused where another kernel boots next than the one that was made the default."""
    kernel = facts["kernel"]
    if kernel["next"] != kept:
        raise StepRefused(
            f"Expected kernel {kept}, which has the NVIDIA module, to boot next. Found {kernel['next']} ({kernel['next_source']})."
            " What to do: look for what else sets GRUB_DEFAULT in /etc/default/grub.d, then run again."
        )


def disturbs(context: Context, plan: Plan) -> list[Disturbance]:
    """The cards and Docker, where packages of theirs may be among the unfinished ones: their scripts restart services."""
    if NAME not in plan["components"]:
        return []
    facts = context.facts
    detail = facts["packages"]["interrupted_detail"] or ""
    untold = _STEPS in detail or detail.count(",") >= _MOST_TOLD
    because = "the package manager goes on with packages that may be {}"
    driver = Disturbance("idle cards", because.format("the driver's"), busy.cards(facts))
    engine = Disturbance("nothing to run in Docker", because.format("Docker's"), busy.docker(facts))
    return [
        *([driver] if untold or _OF_DRIVER.search(detail) else []),
        *([engine] if untold or _OF_ENGINE.search(detail) else []),
    ]


COMPONENT = Component(NAME, wanted, findings, mends=True, touches=TOUCHES, disturbs=disturbs, steps=STEPS)

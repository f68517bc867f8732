# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The in-tree drivers nouveau and nova kept away from the cards, in modprobe.d and inside the initramfs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .base import Component, Context, Finding, Manages, not_known

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

BLACKLIST = "/etc/modprobe.d/gpuwright-nouveau.conf"
#: dracut takes the machine's modprobe.d only where it is told to, in every initramfs from then on.
DRACUT = "/etc/dracut.conf.d/gpuwright-nouveau.conf"

_INSIDE = "kernel.initramfs.blacklist_inside"


def wanted(context: Context) -> bool:
    """Not where another one looks after the driver: then the initramfs is theirs too."""
    return "driver" in context.stack and context.stack["driver"]["source"] != "preinstalled"


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


def _removes(_facts: Facts, files: Sequence[str]) -> dict[str, bool]:
    return {"initramfs": BLACKLIST in files}


COMPONENT = Component("nouveau_blacklist", wanted, findings, inputs, manages, boot=True, removes=_removes)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What seals carry of a plan, and which are written after an apply."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..components.base import Context, Finding
from ..components.nvidia_driver import apply as nvidia_driver
from ..components.reboot import apply as reboot
from ..components.registry import COMPONENTS
from ..model import sections
from .draft import Draft

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

    from ..model.plan import Mark, Plan


def marks(plan: Plan, context: Context, replaced: Mapping[str, str]) -> dict[str, Mark]:
    """What stands in the seals' place while components are changed, see module_utils/records/seals.py and exchange.py."""
    cards_now = card_ids(context.facts)
    found: dict[str, Mark] = {}
    for name in plan["digests"]:
        if name in plan["components"]:
            stack = stack_part(name, context.stack)
            if name == nvidia_driver.NAME and replaced:
                stack = {**context.stack["driver"], "replaces": replaced}
            found[name] = {"stack": stack, "gpus": cards_now, "manages": plan["manages"][name]}
    return found


def stack_part(name: str, stack: Mapping[str, object]) -> object:
    """A component's part of the stack, as its seal carries it."""
    return COMPONENTS[name].stack_part(stack)


def card_ids(facts: Facts) -> list[str]:
    """The cards on the bus as vendor:device, one each."""
    return [f"{card['vendor']}:{card['device']}" for card in facts["pci"]["gpus"] or ()]


def unmet(drafted: Draft) -> list[Finding]:
    """After an apply: what is still not as wished (the second plan must be empty). A pending boot is not a failure."""
    return [finding for name, found in drafted.findings.items() if name != reboot.NAME for finding in found]


def of_driver(drafted: Draft, begun: Plan) -> bool:
    """Whether what is still not as wished after an apply is the driver's, and for the kernel that the run brought it for."""
    names = [name for name, found in drafted.findings.items() if found and name != reboot.NAME]
    touched = any("driver" in COMPONENTS[name].touches for name in names)
    return touched and sections.another_kernel(drafted.context.facts, begun["brings"]) is None


def to_seal(plan: Plan, begun: Sequence[str], facts: Facts) -> list[str]:
    """After an apply: the components whose seals are written, of those that are right. ``begun``: those that the run set out to change.

    Another one, whose seal was good then, is among them where the run has made a file again that is sealed by its time alone: EPEL's DKMS
    makes every initramfs anew after a build.
    """
    seals = facts["seals"] or {}

    def made_again(name: str) -> bool:
        seal = seals.get(name)
        changed = [f"{path} changed" for path in plan["manages"][name]["light_files"]]
        return seal is not None and seal["state"] == "broken" and seal["reason"] in changed

    return [name for name in plan["digests"] if name in begun or made_again(name)]


def done(begun: Sequence[str], failed: str) -> list[str]:
    """After a failure: the components that the run had come to the end of, in their order. ``failed``: the one in which it ended, or what
    else did: then none is known to be done.
    """
    return list(itertools.takewhile(lambda name: name != failed, begun)) if failed in begun else []

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sections of the facts that need not be there: what is in them, and nothing where they are not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card, Facts, Service, SmiData, User
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack, History, Seal

    from .plan import Brings


def user(facts: Facts) -> User | None:
    """Return the user who works without root; None where it is root's look, or one at root's things."""
    return facts.get("user")


def smi_data(facts: Facts) -> SmiData | None:
    """Return the document of nvidia-smi; None where it was not asked or did not answer."""
    answer = facts["smi"]
    return answer["data"] if answer else None


def cards(facts: Facts) -> list[Card]:
    """Return the cards as nvidia-smi described them; none where it was not asked."""
    data = smi_data(facts)
    return data["gpus"] if data else []


def parted(facts: Facts) -> bool:
    """Whether a card is parted (MIG): a program sees one instance then, however many there are."""
    return any(card["mig"]["current"] for card in cards(facts))


def instances(facts: Facts) -> Mapping[str, list[str]] | None:
    """Return the MIG profiles by the UUID of each card that is parted; None where nobody could list them."""
    answer = facts["smi"]
    listed = answer.get("mig_devices") if answer else None
    return listed if listed is not None or parted(facts) else {}


def seal(facts: Facts, component: str) -> Seal | None:
    """Return the seal of a component; None where there is none, or nobody could look."""
    return (facts["seals"] or {}).get(component)


def sealed_stack(facts: Facts, component: str) -> Mapping[str, Any]:
    """Return the part of the stack in the seal of a component; empty where there is none."""
    found = seal(facts, component)
    return (found["stack"] if found else None) or {}


def sealed_stacks(facts: Facts) -> Mapping[str, Mapping[str, object]]:
    """Return the parts of the stack in all seals, by component."""
    return {name: sealed_stack(facts, name) for name in facts["seals"] or {}}


def sealed_driver(facts: Facts) -> DriverStack:
    """Return the driver's part of the stack in its seal, or in the mark that a run left in its place; empty where there is none."""
    return cast("DriverStack", sealed_stack(facts, "nvidia_driver"))


def history(facts: Facts) -> History:
    """Return what the node keeps to find its way back; an empty record where there is none, or nobody could look."""
    return facts["history"] or {"drivers": [], "failed": []}


def service(facts: Facts, unit: str) -> Service:
    """Return the state of a unit; an unknown one where nobody could ask for it."""
    return (facts["services"] or {}).get(unit) or {"active": None, "enabled": None}


def another_kernel(facts: Facts, brings: Brings | None) -> str | None:
    """Return the kernel that boots next where it came after the plan of a run, which brings the driver for another one; else None."""
    there = facts["kernel"]["next"]
    return there if brings and brings["kernel"] and there and there != brings["kernel"] else None

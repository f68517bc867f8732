# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MIG layout of the cards, and the service that brings it back after every boot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import mig_layout

from ..model import sections
from ..model.plan import WholeCard
from ..model.stack import Mig, MigCard, Stack
from .base import Component, Context, Finding, Manages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card, Facts

NAME = "mig"
SERVICE = "gpuwright-mig.service"
LAYOUT = "/etc/gpuwright/mig.json"
PROGRAM = "/usr/local/libexec/gpuwright/mig_layout.py"
UNIT = f"/etc/systemd/system/{SERVICE}"


def wanted(context: Context) -> bool:
    return "mig" in context.stack


def findings(context: Context) -> list[Finding]:
    return [*_layout_findings(context), *_service_findings(context)]


def manages(context: Context) -> Manages:
    return Manages(files=[LAYOUT, PROGRAM, UNIT], services=[SERVICE] if _runs_here(context) else [])


def inputs(context: Context) -> Mapping[str, object]:
    return {"cards": context.stack["mig"]["cards"]}


def wrong_cards(facts: Facts, stack: Stack) -> list[tuple[str, str, str]]:
    """Cards that are not parted as wished: place, what is there, what is wished. A card whose mode waits for a reset is none: only
    a boot helps it. Nothing where nvidia-smi was not asked.
    """
    layout = stack.get("mig")
    return parted_otherwise(facts, layout["cards"] if layout else ())


def parted_otherwise(facts: Facts, cards: Sequence[MigCard | WholeCard]) -> list[tuple[str, str, str]]:
    """Cards that are not parted as their layout says."""
    rows = {row["pci_bus_id"]: row for row in sections.cards(facts)}
    listed = (facts["smi"].get("mig_devices") if facts["smi"] else None) or {}
    wrong = []
    for card in cards:
        bus_id = card["bus_id"] or ""
        row = rows.get(bus_id)
        if row is None or waits(row, bool(card["profiles"])):
            continue
        profiles = listed.get(row["uuid"] or "", [])
        if not mig_layout.is_right({**row["mig"], "profiles": profiles}, card["profiles"]):
            there = ", ".join(profiles) or ("no instances" if row["mig"]["current"] else "MIG is off")
            wrong.append((bus_id, there, ", ".join(card["profiles"]) or "MIG off"))
    return wrong


def waits(row: Card, on: bool) -> bool:
    """The mode is set as wished and takes effect with a reset or a boot."""
    mig = row["mig"]
    return mig["pending"] is on and mig["current"] is not None and mig["current"] is not on


def _runs_here(context: Context) -> bool:
    return context.cards_present and not context.provision_only


def _layout_findings(context: Context) -> list[Finding]:
    return [
        Finding("configure", f"the card {bus_id} has {there}, wished is {wished}", there, wished, services=[SERVICE])
        for bus_id, there, wished in wrong_cards(context.facts, context.stack)
    ]


def _service_findings(context: Context) -> list[Finding]:
    """Without it the layout is gone after the next boot."""
    if not _runs_here(context):
        return []
    if sections.service(context.facts, SERVICE)["enabled"] == "enabled":
        return []
    reason = "no service brings the MIG layout back after a boot"
    return [Finding("configure", reason, files=[LAYOUT, PROGRAM, UNIT], services=[SERVICE])]


def take_back(facts: Facts) -> list[Finding]:
    """The cards that gpuwright parted and that are not whole again."""
    parted = parted_otherwise(facts, _whole(facts))
    return [Finding("remove", f"{bus_id} is parted", there, wished) for bus_id, there, wished in parted]


def _whole(facts: Facts) -> list[WholeCard]:
    """The layout in which the cards that gpuwright parted are whole again."""
    stack = cast("Mig", sections.sealed_stack(facts, NAME))
    return [{"bus_id": card["bus_id"], "profiles": []} for card in stack.get("cards") or () if card["bus_id"]]


def _removes(facts: Facts, _files: Sequence[str]) -> dict[str, object]:
    return {"mig": _whole(facts)}


COMPONENT = Component(NAME, wanted, findings, inputs, manages, parts=("mig",), services=True, removes=_removes)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of each card: what was wished, held against what the card offers as far as a driver tells it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.measure.card_wishes import Settings, SettingsCard

from ...resolver.log import Entry, Log, Unresolved, conflict
from ...resolver.machine import Card, Machine
from ...resolver.part import HostPart
from ...wish.wish import Wish
from ..mig import resolve as mig
from .model import GpuSettings

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Card as Board

_FACTS = "what nvidia-smi says of the card"
#: Settings in the order in which they are told.
_TITLES = {
    "power_limit": "power limit",
    "clocks": "clocks",
    "application_clocks": "application clocks",
    "ecc": "ECC",
    "compute_mode": "compute mode",
    "persistence": "persistence mode",
}


def choose(machine: Machine, wish: Wish, log: Log) -> GpuSettings | None:
    """Return None without a wish, else the cards that it speaks of, each with its settings.

    What is said of one card counts before what is said of its model, and that before what is said of all, setting by setting.
    Raises Unresolved with a reason for each card that cannot have one of them.
    """
    if not wish.gpu_settings:
        return None
    entries = _strangers(machine, wish)
    cards: list[SettingsCard] = []
    for index, card in machine.numbered:
        settings = _wished(index, card, machine, wish)
        if not settings:
            continue
        board = machine.boards.get(card.bus_id or "")
        entries += [each for each in _obstacles(card, settings, board) if each not in entries] if board else []
        cards.append({"index": index, "bus_id": card.bus_id, "name": card.name, "settings": settings})
    if entries:
        raise Unresolved(*entries)
    for text in dict.fromkeys(f"{card['name']}: {told(card['settings'])}" for card in cards):
        log.decided("gpu-settings", f"{text}: asked for", "the wish")
    return {"cards": cards}


def told(settings: Settings) -> str:
    """Return settings as a person reads them."""
    values: Mapping[str, object] = cast("Mapping[str, object]", settings)
    return ", ".join(f"{title} {_value(name, values[name])}" for name, title in _TITLES.items() if name in values)


def _value(name: str, value: object) -> str:
    if value is None:
        return "of delivery"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return f"{' to ' if name == 'clocks' else ' and '}".join(str(each) for each in value) + " MHz"
    return f"{value:g} W" if isinstance(value, float) else str(value)


def _wished(index: int, card: Card, machine: Machine, wish: Wish) -> Settings:
    found: Settings = {}
    for rank in range(3):
        for selector, settings in wish.gpu_settings.items():
            if _rank(selector, index, card, machine) == rank:
                found |= settings
    return found


def _rank(selector: str, index: int, card: Card, machine: Machine) -> int | None:
    """How near a selector is to a card: 0 speaks of all, 1 of its model, 2 of itself; None does not mean it."""
    if selector == "all":
        return 0
    if mig.means(selector, index, card, machine):
        return 2
    named = re.search(rf"(?<!\w){re.escape(selector)}(?!\w)", card.name, re.IGNORECASE)
    return 1 if named and not selector.isdecimal() else None


def _strangers(machine: Machine, wish: Wish) -> list[Entry]:
    """Return a conflict for each selector that no card answers to."""
    places = machine.numbered
    known = ", ".join(dict.fromkeys(card.name for card in machine.cards))
    return [
        conflict(
            "gpu-settings.card",
            f"gpu_settings_cards names the card {selector}, which is not there",
            "the machine's facts",
            f"name one of {known}, an index, a bus id, a UUID (known once the driver runs), or all",
        )
        for selector in wish.gpu_settings
        if all(_rank(selector, index, card, machine) is None for index, card in places)
    ]


def _obstacles(card: Card, settings: Settings, board: Board) -> list[Entry]:
    """Return why a card cannot have its settings."""
    found = []
    limit, low, high = settings.get("power_limit"), board["power_min_limit_w"], board["power_max_limit_w"]
    if isinstance(limit, float) and low is not None and high is not None and not low <= limit <= high:
        text = f"the power limit of the {card.name} can be {low:g} to {high:g} W, and not {limit:g}"
        found.append(conflict("gpu-settings.power-limit", text, _FACTS, f"write one between {low:g} and {high:g}"))
    clocks, highest = settings.get("clocks"), board["clocks"]["sm_max_mhz"]
    if isinstance(clocks, list) and highest is not None and clocks[1] > highest:
        text = f"the clocks of the {card.name} end at {highest} MHz, {clocks[1]} is above"
        found.append(conflict("gpu-settings.clocks", text, _FACTS, f"write clocks up to {highest}"))
    if isinstance(settings.get("application_clocks"), list) and board["clocks"]["application_sm_mhz"] is None:
        text = f"the {card.name} has no application clocks with this driver"
        found.append(conflict("gpu-settings.clocks", text, _FACTS, "lock the clocks instead (clocks: 210,1410)"))
    ecc = board["ecc"]
    if settings.get("ecc") is not None and ecc["mode"] is None and "ecc_mode/current_ecc" not in board["errors"]:
        text = f"the memory of the {card.name} has no ECC to switch"
        found.append(conflict("gpu-settings.ecc", text, _FACTS, "leave ecc out for this card"))
    return found


HOST_PART = HostPart("gpu_settings", "", lambda machine, wish, _system, _stack, log: choose(machine, wish, log))

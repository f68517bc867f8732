# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What was wished of single cards, as the judge of nvidia-smi takes it: no check warns of what somebody asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, TypedDict, cast

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.smi_judge import Expected


class Settings(TypedDict, total=False):
    """Settings of a card. An absent one is left as it is, None is the default of the card.

    Attributes:
        power_limit: W.
        clocks: lowest and highest clock of the multiprocessors (MHz).
        application_clocks: clocks of the memory and of the multiprocessors (MHz).
        compute_mode: as nvidia-smi calls it.
    """

    power_limit: Optional[float]
    clocks: Optional[List[int]]
    application_clocks: Optional[List[int]]
    ecc: Optional[bool]
    compute_mode: Optional[str]
    persistence: Optional[bool]


class SettingsCard(TypedDict):
    """Settings of one card of a machine."""

    index: int
    bus_id: Optional[str]
    name: str
    settings: Settings


def expected(cards: Sequence[SettingsCard]) -> Dict[str, Expected]:
    """What each card is held to, by bus id. A card's default is expected by itself."""
    return {card["bus_id"]: _of_card(card["settings"]) for card in cards if card["bus_id"]}


def sealed(facts: Facts) -> Dict[str, Expected]:
    """What each card is held to by the seals of a node."""
    stacks = [seal["stack"] or {} for seal in (facts["seals"] or {}).values()]
    return expected([card for stack in stacks for card in stack.get("cards", ()) if "settings" in card])


def _of_card(settings: Settings) -> Expected:
    wished = {
        "power_limit_w": settings.get("power_limit"),
        "compute_mode": settings.get("compute_mode"),
        "ecc": settings.get("ecc"),
        "persistence": settings.get("persistence"),
        "clocks_set": bool(settings.get("clocks") or settings.get("application_clocks")) or None,
    }
    return cast("Expected", {name: value for name, value in wished.items() if value is not None})

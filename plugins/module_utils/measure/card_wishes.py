# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What was wished of single cards, as the judge of nvidia-smi takes it: no check warns of what somebody asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Sequence, cast

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.smi_judge import Expected


def expected(cards: Sequence[Mapping[str, Any]]) -> Dict[str, Expected]:
    """What each card is held to, by bus id. ``cards``: those of the stack of ``gpu_settings``. A card's default is expected by itself."""
    return {card["bus_id"]: _of_card(card["settings"]) for card in cards if card["bus_id"]}


def _of_card(settings: Mapping[str, Any]) -> Expected:
    wished = {
        "power_limit_w": settings.get("power_limit"),
        "compute_mode": settings.get("compute_mode"),
        "ecc": settings.get("ecc"),
        "persistence": settings.get("persistence"),
        "clocks_set": any(settings.get(name) for name in ("clocks", "application_clocks")) or None,
    }
    return cast("Expected", {name: value for name, value in wished.items() if value is not None})

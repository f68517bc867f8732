# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is said of cards that are left alone: a driver is the whole machine's, and a screen must not be lost for another card's sake."""

from __future__ import annotations

from collections.abc import Sequence

from .log import Entry, conflict
from .machine import Card, Machine

#: Rule of the conflict of a driver that a screen would be lost by.
SCREEN = "driver.screen"
_MOVE = "connect the screen to another card, or to the graphics of the processor"


def dark(card: Card, why: str, source: str) -> Entry:
    """Return the conflict of a driver that a screen on an unmanaged card would be lost by. ``why``: what keeps the driver from the card."""
    text = (
        f"{why}; it is left unmanaged and drives a screen, and no other driver stays for it: nouveau is blacklisted for the whole machine, "
        "so that the screen would be dark after the boot"
    )
    return conflict(SCREEN, text, source, f"{_MOVE}, and run again; or take the {card.name} out")


def remedy(cards: Sequence[Card], machine: Machine) -> str:
    """Return how one of these cards is left alone. One with a screen is offered only once the screen is on another card."""
    free = [card for card in cards if card.bus_id not in machine.screens]
    held = [card for card in cards if card not in free]
    which = ", or ".join(f"[{_handle(card)}]" for card in free)
    ways = (
        [f"leave {'the' if len(cards) == 1 else 'one'} card unmanaged: gpuwright_gpus_ignore: {which}"] if free else []
    )
    ways += [f"{_MOVE} before the {' or the '.join(card.name for card in held)} is left unmanaged"] if held else []
    return "; or ".join(ways)


def _handle(card: Card) -> str:
    return f"'{card.bus_id}'" if card.bus_id else f"'{card.name}'"

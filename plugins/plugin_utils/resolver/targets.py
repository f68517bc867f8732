# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which code runs on which card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..rules import Row, Rules, remembered
from .machine import Card

_TEGRA = frozenset(("5.3", "6.2", "7.2", "8.7", "11.0"))


def wheel_runs(capability: str, carried: Iterable[str]) -> bool:
    """Say whether a wheel with code for these capabilities runs on a card.

    Code for X.y runs on X.z with z not below y; an entry with +PTX is compiled at load for everything newer. Code for
    desktop cards is not for Tegra: there the exact capability has to be carried.
    """
    wanted = numeric_version.key(capability)
    for entry in carried:
        base = numeric_version.key(entry.removesuffix("+PTX"))
        if base == wanted:
            return True
        if capability in _TEGRA:
            continue
        if base[0] == wanted[0] and base <= wanted:
            return True
        if entry.endswith("+PTX") and base <= wanted:
            return True
    return False


@remembered
def toolkit_targets(cuda: str, rules: Rules) -> Row | None:
    """Return the row with the compute capabilities that a toolkit (12.8) compiles for.

    For a toolkit whose targets were not read the row of the one before it answers: what that one dropped is gone.
    """
    rows: list[Row] = rules["cuda"]["targets"]  # oldest first, as a test holds them
    return next((row for row in reversed(rows) if numeric_version.at_least(cuda, row["cuda"])), None)


def toolkit_lacks(cuda: str, cards: Sequence[Card], rules: Rules) -> list[Card]:
    """Return the cards that a toolkit has no code for."""
    row = toolkit_targets(cuda, rules)
    if row is None:
        return []
    return [card for card in cards if card.compute_capability and card.compute_capability not in row["targets"]]


def toolkits_for(cards: Sequence[Card], rules: Rules) -> list[str]:
    """Return the toolkits (12.8, oldest first) that have code for every card, of those whose targets were read."""
    wanted = frozenset(card.compute_capability for card in cards if card.compute_capability)
    return list(_toolkits_for(wanted, rules))


@remembered
def _toolkits_for(capabilities: frozenset[str], rules: Rules) -> tuple[str, ...]:
    return tuple(row["cuda"] for row in rules["cuda"]["targets"] if capabilities.issubset(row["targets"]))

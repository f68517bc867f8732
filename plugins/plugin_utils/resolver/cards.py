# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a card demands: branches that drive it, kernel modules that bind to it."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils import dotted

from ..rules import Row, Rules
from ..situation import Card, card_of_row

TURING = "7.5"


def from_row(row: Row) -> Card:
    """Make a card of a row of the rules."""
    return card_of_row(row)


def flavours(card: Card, rules: Rules) -> list[str]:
    """Return the kernel module flavours that bind to a card, the preferred one first.

    Below compute capability 7.5 there is no GSP, which the open modules need; from Blackwell on (and on Grace Hopper)
    only the open ones exist.
    """
    if card.open_only or card.architecture is None:
        return ["open"]
    row = architecture(card, rules)
    return list(row["flavours"]) if row else ["open", "proprietary"]


def architecture(card: Card, rules: Rules) -> Row | None:
    """Return the row of a card's architecture."""
    rows: list[Row] = rules["gpus"]["architectures"]
    return next((row for row in rows if row["architecture"] == card.architecture), None)


def served(card: Card, branch: Row, rules: Rules) -> bool:
    """Say whether a branch drives a card: old enough a card, new enough a branch, and none that skipped it."""
    if card.compute_capability and not dotted.at_least(card.compute_capability, branch["min_compute_capability"]):
        return False
    listed = first_builds(card, rules)
    if listed:
        if branch["branch"] in listed.get("absent", ()):
            return False
        return int(branch["branch"]) >= min(int(dotted.major(build)) for build in listed["first"])
    row = architecture(card, rules)
    return row is None or int(branch["branch"]) >= int(row["first_branch"])


def first_builds(card: Card, rules: Rules) -> Row | None:
    """Return the row that lists the first build of each branch for a card."""
    rows: list[Row] = rules["driver_branches"]["first_builds"]
    return next((row for row in rows if row["pci"] == card.pci), None)


def first_build(card: Card, branch: str, rules: Rules) -> tuple[str, Row] | None:
    """Return the lowest build of a branch that drives a card, with its row; None where every build does."""
    row = first_builds(card, rules)
    for build in row["first"] if row else ():
        if dotted.major(build) == branch and row is not None:
            return build, row
    return None

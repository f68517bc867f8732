# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a card demands: branches that drive it, kernel modules that bind to it."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..rules import Row, Rules, remembered
from .machine import Card, card_of_row

# Where the column first_driver of the cards was read, as a row of the driver branches cites it.
_NVIDIAS_LIST: Row = {"source": ["open_modules"]}


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
    return _architecture(card.architecture, rules)


@remembered
def _architecture(name: str | None, rules: Rules) -> Row | None:
    rows: list[Row] = rules["gpus"]["architectures"]
    return next((row for row in rows if row["architecture"] == name), None)


def served(card: Card, branch: Row, rules: Rules) -> bool:
    """Say whether a branch drives a card: old enough a card, new enough a branch, and none that skipped it.

    What is read of the single card goes before what holds for its architecture.
    """
    if card.compute_capability and not numeric_version.at_least(
        card.compute_capability, branch["min_compute_capability"]
    ):
        return False
    listed = first_builds(card, rules)
    if listed:
        if branch["branch"] in listed.get("absent", ()):
            return False
        return int(branch["branch"]) >= _first_branch(card.pci, rules)
    if card.first_driver:
        return branch["branch"] not in card.absent and int(branch["branch"]) >= int(
            numeric_version.major(card.first_driver)
        )
    row = architecture(card, rules)
    return row is None or int(branch["branch"]) >= int(row["first_branch"])


def last_branch(card: Card, rules: Rules) -> str | None:
    """Return the newest branch with packages that drives a card; None where none does."""
    rows: list[Row] = rules["driver_branches"]["rows"]
    driving = (row["branch"] for row in reversed(rows) if row["latest"] and served(card, row, rules))
    return next(driving, None)


def first_builds(card: Card, rules: Rules) -> Row | None:
    """Return the row that lists the first build of each branch for a card."""
    return _first_builds(card.pci, rules)


@remembered
def _first_builds(pci: str | None, rules: Rules) -> Row | None:
    rows: list[Row] = rules["driver_branches"]["first_builds"]
    return next((row for row in rows if row["pci"] == pci), None)


@remembered
def _first_branch(pci: str | None, rules: Rules) -> int:
    row = _first_builds(pci, rules)
    return min(int(numeric_version.major(build)) for build in row["first"]) if row else 0


def first_build(card: Card, branch: str, rules: Rules) -> tuple[str, Row] | None:
    """Return the lowest build of a branch that drives a card, with its row; None where every build does."""
    row = first_builds(card, rules)
    for build in row["first"] if row else ():
        if numeric_version.major(build) == branch and row is not None:
            return build, row
    if row is None and card.first_driver and numeric_version.major(card.first_driver) == branch:
        return card.first_driver, _NVIDIAS_LIST
    return None

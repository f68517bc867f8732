# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cards that a node is expected to have, and what its observation is judged against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import words

from ..components.base import Context
from ..model import sections
from ..model.plan import Expectations, Expected
from ..rules import hosts
from ..wish.wish import Wish

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

    from ..model.plan import Expectations, Expected
    from .request import Request


def expected(wish: Wish, facts: Facts) -> Expected:
    """Expected cards: the inventory or --gpu, else what the last seal saw, else nothing. With the PCIe lanes that the inventory says are
    right for their slots.
    """
    wished, lanes = wish.gpus_expected, dict(wish.gpus_pcie_lanes)
    if isinstance(wished, int):
        return {"count": wished, "names": None, "from": "the inventory", "pcie_lanes": lanes}
    if wished:
        return {"count": len(wished), "names": list(wished), "from": "the inventory", "pcie_lanes": lanes}
    seal = sections.seal(facts, "nvidia_driver")
    if seal and seal["gpus"]:
        return {"count": len(seal["gpus"]), "names": None, "from": "the last seal", "pcie_lanes": lanes}
    return {"count": None, "names": None, "from": None, "pcie_lanes": lanes}


def missing_cards(facts: Facts, wish: Wish) -> str | None:
    """Why fewer cards are on the bus than are expected; None where none is missing."""
    known = expected(wish, facts)
    found = len(facts["pci"]["gpus"] or ())
    if known["count"] is None or found >= known["count"]:
        return None
    return hosts.with_others(
        f"{words.count(known['count'], 'cards', 'are')} expected by {known['from']}, {found} {words.verb(found, 'are')} on the bus",
        facts,
    )


def expectations(wish: Wish, context: Context, request: Request) -> Expectations:
    """What the observation is judged against. Cards that are yet to come, and that nobody says are there, are not looked for."""
    cards = expected(wish, context.facts)
    known: Expectations = {
        "count": cards["count"],
        "names": cards["names"],
        "from": cards["from"],
        "pcie_lanes": cards["pcie_lanes"],
        "ignore": list(wish.gpus_ignore),
        "proof_max_age": request.proof_max_age,
    }
    if context.provision_only and not context.cards_missing:
        known["gpus"] = False
    return known

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA DALI: a package for each CUDA version it is built with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.dali import ABOUT

from ....resolver.log import Entry, Log, conflict
from ....resolver.machine import Card
from ....rules import Row, Rules
from ....wish import specifiers
from ....wish.wish import FrameworkWish, Wish
from ..model import Contents
from .offer import Offer, Platform

__all__ = ["ABOUT", "card_reasons", "contents", "offers"]


def offers(wish: FrameworkWish, rules: Rules, *, cpu: bool) -> Iterator[list[Offer]]:
    """Yield the variants of each release that has wheels and answers a wish, the newest release first."""
    del cpu
    for row in reversed(rules["libraries"]["dali"]):
        if row["real"] and specifiers.matches(row["version"], wish.specifier):
            yield [_offer(row, each) for each in row["wheels"] if wish.variant in (None, each)]


def card_reasons(offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return an architecture without wheels, and the cards that a build has no code for."""
    carried = offer.row["wheels"][offer.variant]
    if arch not in carried:
        text = f"{offer.title} has no wheels for {arch}, only for {', '.join(carried)}"
        return [conflict("frameworks.arch", text, log.cite("libraries", offer.row), "use another release")]
    entries = []
    for card, row in _outside(offer, cards, arch, log.rules, confirmed=True):
        text = f"{offer.title} does not run on the {card.name} (compute capability {card.compute_capability}): {row['text']}"
        entries.append(conflict("frameworks.card", text, log.cite("libraries", row), "use another variant"))
    return entries


def contents(offer: Offer, platform: Platform, wish: Wish, log: Log) -> Contents:
    """Return what is installed, from the host's own index."""
    del wish
    for card, row in _outside(offer, platform.cards, platform.arch, log.rules, confirmed=False):
        text = f"what is known of {offer.title} on the {card.name} is not confirmed: {row['text']}"
        log.warn("frameworks.unconfirmed", text, log.cite("libraries", row))
    pin = f"nvidia-dali-{offer.variant}=={offer.version}"
    found: Contents = {"requirements": [pin], "constraints": [pin], "cudnn": None}
    return found


def _outside(
    offer: Offer, cards: Sequence[Card], arch: str, rules: Rules, *, confirmed: bool
) -> Iterator[tuple[Card, Row]]:
    """Yield the cards outside what a build has code for, each with the limit that says so."""
    for row in rules["libraries"]["limits"]:
        if row["library"] != "dali" or row["confirmed"] != confirmed:
            continue
        if row["variant"] in (None, offer.variant) and row.get("arch") in (None, arch) and _within(offer.version, row):
            yield from ((card, row) for card in cards if not _spans(row, card.compute_capability))


def _within(version: str, row: Row) -> bool:
    after = row["from_version"] is None or numeric_version.at_least(version, row["from_version"])
    return after and (row["to_version"] is None or numeric_version.at_least(row["to_version"], version))


def _spans(row: Row, capability: str | None) -> bool:
    lowest, highest = row["min_compute_capability"], row["max_compute_capability"]
    if capability is None:
        return True
    return (not lowest or numeric_version.at_least(capability, lowest)) and (
        not highest or numeric_version.at_least(highest, capability)
    )


def _offer(row: Row, variant: str) -> Offer:
    number = variant.removeprefix("cuda")
    return Offer(
        title=f"dali {row['version']}+{variant}",
        version=row["version"],
        variant=variant,
        pythons=tuple(row["python"]),
        table="libraries",
        release_row=row,
        row=row,
        confirmed=row["confirmed"],
        cuda=f"{number[:-1]}.{number[-1]}",
    )

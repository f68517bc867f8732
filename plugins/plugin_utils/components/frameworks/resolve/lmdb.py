# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LMDB: data sets in mapped memory, on the processor, whatever cards there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import CPU
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.lmdb import ABOUT

from ....resolver.log import Entry, Log
from ....resolver.machine import Card
from ....rules import Rules
from ....wish import specifiers
from ....wish.wish import FrameworkWish, Wish
from ..model import Contents
from .offer import Offer, Platform

__all__ = ["ABOUT", "card_reasons", "contents", "offers"]


def offers(wish: FrameworkWish, rules: Rules, *, cpu: bool) -> Iterator[list[Offer]]:
    """Yield each release that answers a wish, the newest first."""
    del cpu
    for row in reversed(rules["lmdb"]["releases"]):
        if not row["yanked"] and specifiers.matches(row["version"], wish.specifier):
            yield [
                Offer(
                    title=f"lmdb {row['version']}",
                    version=row["version"],
                    variant=CPU,
                    pythons=tuple(row["python"]),
                    table="lmdb",
                    release_row=row,
                    row=row,
                    confirmed=row["confirmed"],
                )
            ]


def card_reasons(offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return nothing: no card is used, and there are wheels for each architecture."""
    del offer, cards, arch, log
    return []


def contents(offer: Offer, platform: Platform, wish: Wish, log: Log) -> Contents:
    """Return what is installed, from the host's own index; it needs nothing else."""
    del platform, wish, log
    pin = f"lmdb=={offer.version}"
    found: Contents = {"requirements": [pin], "constraints": [pin], "cudnn": None}
    return found

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CuPy: a package for each CUDA major version, which compiles kernels at run time with the NVRTC that its extra brings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.cupy import ABOUT

from ....resolver import targets
from ....resolver.log import Entry, Log, conflict
from ....resolver.machine import Card
from ....rules import Row, Rules
from ....wish import specifiers
from ....wish.wish import FrameworkWish, Wish
from ..model import Contents
from . import pins
from .offer import Offer, Platform

__all__ = ["ABOUT", "card_reasons", "contents", "offers"]


def offers(wish: FrameworkWish, rules: Rules, *, cpu: bool) -> Iterator[list[Offer]]:
    """Yield the variants of each release that answers a wish, the newest release first."""
    del cpu
    for row in reversed(rules["cupy"]["releases"]):
        if not row["yanked"] and specifiers.matches(row["version"], wish.specifier):
            offered = [_offer(row, build) for build in _builds(row, rules) if wish.variant in (None, build["variant"])]
            if offered:
                yield offered


def card_reasons(offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return an architecture without wheels, and the cards that a build has no code for."""
    carried = offer.release_row["wheels"][offer.variant]
    if arch not in carried:
        text = f"{offer.title} has no wheels for {arch}, only for {', '.join(carried)}"
        return [conflict("frameworks.arch", text, log.cite("cupy", offer.release_row), "use another release")]
    entries = []
    for card in cards:
        if card.compute_capability and not targets.wheel_runs(card.compute_capability, offer.row["targets"][arch]):
            text = f"{offer.title} has no code for the {card.name} (compute capability {card.compute_capability})"
            entries.append(conflict("frameworks.card", text, log.cite("cupy", offer.row), "use another variant"))
    return entries


def contents(offer: Offer, platform: Platform, wish: Wish, log: Log) -> Contents:
    """Return what is installed, from the host's own index."""
    del wish
    major = offer.row["cuda_major"]
    toolkit = pins.toolkit(major, platform.cards, log.rules)
    text = (
        f"{offer.title} compiles its kernels with the NVRTC of its environment, which its extra [ctk] brings: {toolkit}"
    )
    log.decided("frameworks.nvrtc", text, log.cite("cupy", offer.release_row))
    found: Contents = {
        "requirements": [f"cupy-{offer.variant}x[ctk]=={offer.version}"],
        "constraints": [toolkit, f"numpy{offer.release_row['numpy']}"],
        "cudnn": None,
    }
    return found


def _builds(release: Row, rules: Rules) -> list[Row]:
    """Return the rows with the code in the wheels of a release; a package whose code was not read has none."""
    version = release["version"]
    return [
        row
        for row in rules["cupy"]["builds"]
        if row["variant"] in release["wheels"]
        and numeric_version.at_least(version, row["from_version"])
        and numeric_version.at_least(row["to_version"], version)
    ]


def _offer(row: Row, build: Row) -> Offer:
    return Offer(
        title=f"cupy {row['version']}+{build['variant']}",
        version=row["version"],
        variant=build["variant"],
        pythons=tuple(row["python"]),
        table="cupy",
        release_row=row,
        row=build,
        confirmed=row["confirmed"] and build["confirmed"],
        cuda=build["cuda"],
    )

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""vLLM: each release asks for exactly one torch, in the build of the Python index, and runs where both have code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.vllm import ABOUT

from ....resolver import targets
from ....resolver.log import Entry, Log, conflict
from ....resolver.machine import Card
from ....rules import Row, Rules
from ....wish import specifiers
from ....wish.wish import FrameworkWish, Wish
from ..model import Contents
from . import pytorch
from .offer import Offer, Platform

__all__ = ["ABOUT", "card_reasons", "contents", "offers"]


def offers(wish: FrameworkWish, rules: Rules, *, cpu: bool) -> Iterator[list[Offer]]:
    """Yield each release that answers a wish, the newest first; one whose torch or code is not known is none."""
    del cpu
    for row in reversed(rules["vllm"]["releases"]):
        if row["yanked"] or not specifiers.matches(row["version"], wish.specifier):
            continue
        code, torch = _code(row, rules), pytorch.of_index(row["torch"], rules)
        if code and torch:
            yield [_offer(row, code, torch)]


def card_reasons(offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return an architecture without CUDA code, the cards that a release has no code for, and those that its torch does not serve."""
    carried, source = offer.row["targets"].get(arch), log.cite("vllm", offer.row)
    if not carried:
        text = f"{offer.title} has no CUDA for {arch}, only for {', '.join(offer.row['targets'])}"
        return [conflict("frameworks.arch", text, source, "use another release")]
    entries = []
    for card in cards:
        if card.compute_capability and not targets.wheel_runs(card.compute_capability, carried):
            text = f"{offer.title} has no code for the {card.name} (compute capability {card.compute_capability})"
            entries.append(conflict("frameworks.card", text, source, "use another release"))
    torch = pytorch.of_index(offer.release_row["torch"], log.rules)
    return entries or (pytorch.card_reasons(torch, cards, arch, log) if torch else [])


def contents(offer: Offer, platform: Platform, wish: Wish, log: Log) -> Contents:
    """Return what is installed, from the host's own index, its torch too."""
    del platform, wish
    found: Contents = {"requirements": [f"vllm=={offer.version}"], "constraints": [], "cudnn": None}
    torch = pytorch.of_index(offer.release_row["torch"], log.rules)
    if torch:
        text = f"{offer.title} brings {torch.title} and takes no other: it has an environment of its own"
        log.decided("frameworks.torch", text, log.cite("vllm", offer.release_row))
        found["constraints"] = [f"torch=={torch.version}", *pytorch.constraints(torch, log.rules)]
        found["cudnn"] = torch.row["cudnn"]
    return found


def _code(release: Row, rules: Rules) -> Row | None:
    """Return the row with the code in the wheels of a release; None where it was not read."""
    version = release["version"]
    for row in rules["vllm"]["code"]:
        first, last = row["from_version"], row["to_version"]
        if numeric_version.at_least(version, first) and numeric_version.at_least(last, version):
            found: Row = row
            return found
    return None


def _offer(row: Row, code: Row, torch: Offer) -> Offer:
    return Offer(
        title=f"vllm {row['version']}",
        version=row["version"],
        variant=torch.variant,
        pythons=tuple(each for each in row["python"] if each in torch.pythons),
        table="vllm",
        release_row=row,
        row=code,
        confirmed=row["confirmed"] and code["confirmed"] and torch.confirmed,
        cuda=torch.cuda,
    )

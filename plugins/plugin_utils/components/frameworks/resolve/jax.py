# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""JAX: pure Python that finds its CUDA through a plugin of its own, one for each CUDA major version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import CPU
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.jax import ABOUT

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
    requirements = {row["variant"]: row for row in rules["jax"]["requirements"]}
    plugins = {(row["variant"], row["version"]): row for row in rules["jax"]["plugins"]}
    for release in reversed(rules["jax"]["releases"]):
        if release["yanked"] or not specifiers.is_version(release["version"]):
            continue
        if not specifiers.matches(release["version"], wish.specifier):
            continue
        if cpu:
            yield [_offer(release, None, None)]
            continue
        variants = [each for each in release["extras"] if each in requirements and wish.variant in (None, each)]
        yield [_offer(release, plugins[each, release["plugins"][each]], requirements[each]) for each in variants]


def card_reasons(offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return why a variant does not run: its architecture, a card below its floor or unknown to it, its cuDNN."""
    needs, source = offer.extra_rows["requirement"], log.cite("jax", offer.row)
    if arch not in offer.row["arch"]:
        text = f"{offer.title} has no wheels with CUDA code for {arch}, only for {', '.join(offer.row['arch'])}"
        return [conflict("frameworks.arch", text, source, "use another release")]
    entries = []
    for card, row in _limited(offer, cards, log.rules, confirmed=True):
        text = f"{offer.title} does not run on the {card.name} (compute capability {card.compute_capability}): {row['text']}"
        entries.append(conflict("frameworks.card", text, log.cite("jax", row), "use another release"))
    for card in cards:
        capability, floor = card.compute_capability, needs["min_compute_capability"]
        if capability and not numeric_version.at_least(capability, floor):
            text = f"{offer.title} needs compute capability {floor}, the {card.name} has {capability}"
            entries.append(conflict("frameworks.card", text, log.cite("jax", needs), "use another variant"))
        elif capability and not pins.compiles_for(needs["cuda_major"], [card], log.rules):
            who = f"the {card.name} (compute capability {capability})"
            text = f"{offer.title} compiles with CUDA {needs['cuda_major']}, which has no code for {who}"
            entries.append(conflict("frameworks.card", text, source, "use another variant"))
    if not entries:
        spec = offer.row["requires"].get("cudnn", "")
        entries += pins.cudnn_reasons(offer.title, spec, needs["cuda_major"], cards, arch, log)
    return entries


def contents(offer: Offer, platform: Platform, wish: Wish, log: Log) -> Contents:
    """Return what is installed, from the host's own index.

    JAX itself takes a plugin of several versions, and works with one: that is pinned with its other half.
    """
    del wish
    release = offer.release_row
    found: Contents = {
        "requirements": [f"jax=={offer.version}", f"jaxlib=={release['jaxlib']}"],
        "constraints": [],
        "cudnn": None,
    }
    if offer.cuda:
        plugin, major = offer.row, offer.extra_rows["requirement"]["cuda_major"]
        found["requirements"] = [
            f"jax[{offer.variant}]=={offer.version}",
            f"jaxlib=={release['jaxlib']}",
            f"{plugin['package']}=={plugin['version']}",
            f"{plugin['pjrt']}=={plugin['version']}",
        ]
        spec = plugin["requires"].get("cudnn", "")
        found["constraints"] = pins.constraints(plugin["requires"], major, platform, log.rules)
        source = log.cite("jax", plugin)
        for card, row in _limited(offer, platform.cards, log.rules, confirmed=False):
            text = f"what is known of {offer.title} on the {card.name} is not confirmed: {row['text']}"
            log.warn("frameworks.unconfirmed", text, log.cite("jax", row))
        found["cudnn"] = pins.explain_cudnn(offer.title, spec, major, platform, source, log)
    return found


def _limited(offer: Offer, cards: Sequence[Card], rules: Rules, *, confirmed: bool) -> Iterator[tuple[Card, Row]]:
    """Yield the cards that a release was built before, with what is known of it there.

    The compiler beside it knows them; that alone does not help a release that makes code for the newest card it knows.
    """
    for row in rules["jax"]["limits"]:
        if row["variant"] != offer.variant or row["confirmed"] != confirmed:
            continue
        if numeric_version.at_least(offer.version, row["from_version"]) and numeric_version.at_least(
            row["to_version"], offer.version
        ):
            yield from ((card, row) for card in cards if card.compute_capability in row["compute_capabilities"])


def _offer(release: Row, plugin: Row | None, requirement: Row | None) -> Offer:
    version = release["version"]
    variant = plugin["variant"] if plugin else CPU
    return Offer(
        title=f"jax {version}[{variant}]" if plugin else f"jax {version}",
        version=version,
        variant=variant,
        pythons=tuple(each for each in release["python"] if not plugin or each in plugin["python"]),
        table="jax",
        release_row=release,
        row=plugin or release,
        confirmed=release["confirmed"] and (plugin is None or plugin["confirmed"]),
        cuda=requirement["cuda"] if requirement else None,
        extra_rows={"requirement": requirement} if requirement else {},
    )

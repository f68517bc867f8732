# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PyTorch: each release in several CUDA variants, from an index of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import CPU
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.pytorch import ABOUT

from ....resolver import targets, upstreams
from ....resolver.log import Entry, Log, conflict
from ....resolver.machine import Card
from ....rules import Row, Rules
from ....wish import specifiers
from ....wish.wish import FrameworkWish, Wish
from ...cuda.resolve import cudnn
from ..model import Contents
from .offer import Offer, Platform

__all__ = ["ABOUT", "card_reasons", "constraints", "contents", "of_index", "offers"]

_STATUS = {"default": 0, "stable": 1, "legacy": 2, "experimental": 3, "unsupported": 4}


def offers(wish: FrameworkWish, rules: Rules, *, cpu: bool) -> Iterator[list[Offer]]:
    """Yield the variants of each release that answers a wish, the newest release first."""
    variants: dict[str, list[Row]] = {}
    for row in rules["pytorch"]["variants"]:
        variants.setdefault(row["release"], []).append(row)
    for release in reversed(rules["pytorch"]["releases"]):
        if not specifiers.matches(release["version"], wish.specifier):
            continue
        if cpu:
            yield [_offer(release, None, rules)]
            continue
        rows = variants.get(".".join(release["version"].split(".")[:2]), ())
        yield [_offer(release, row, rules) for row in rows if wish.variant in (None, row["variant"])]


def of_index(version: str, rules: Rules) -> Offer | None:
    """Return a release in the one variant that the Python index has of it; None where the rules do not know it."""
    for release in rules["pytorch"]["releases"]:
        if release["version"] == version:
            wish = FrameworkWish(ABOUT.name, f"=={version}", _default(release))
            return next((offer for some in offers(wish, rules, cpu=False) for offer in some), None)
    return None


def _default(release: Row) -> str:
    """Return the variant that the Python index has of a release, for the architectures that it has CUDA for."""
    return f"cu{release['default_cuda'].replace('.', '')}"


def card_reasons(offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return why the wheels do not run: no code for the architecture or a card, or a cuDNN that does not serve it."""
    source = log.cite("pytorch", offer.row)
    carried = offer.row["targets"].get(arch)
    if not carried:
        text = f"{offer.title}: no wheel with CUDA code for {arch} is known"
        return [conflict("frameworks.arch", text, source, "use another release")]
    entries = []
    for card in cards:
        if card.compute_capability and not targets.wheel_runs(card.compute_capability, carried):
            text = f"{offer.title} has no code for the {card.name} (compute capability {card.compute_capability})"
            entries.append(conflict("frameworks.card", text, source, "use a release that has it: gpuwright gpus"))
    return entries + _cudnn_reasons(offer, cards, log)


def contents(offer: Offer, platform: Platform, wish: Wish, log: Log) -> Contents:
    """Return what is installed, from the index of the variant, or from the Python index, which has one variant under no name."""
    public = upstreams.in_python_index(ABOUT.name, wish)
    variant = "" if public else f"+{offer.variant}"
    found: Contents = {
        "requirements": [f"torch=={offer.version}{variant}", *_partners(offer, platform.python, log)],
        "constraints": constraints(offer, log.rules),
        "cudnn": offer.row["cudnn"] if offer.cuda else None,
    }
    if not public:
        found["index_url"] = f"{upstreams.url('pytorch', wish, log.rules)}/{offer.variant}"
    for row in cudnn.limits(
        [], [numeric_version.major(offer.cuda)] if offer.cuda else [], log.rules["cudnn"]["ceilings"]
    ):
        log.decided("frameworks.cudnn", f"its cuDNN stays at {found['cudnn']}", log.cite("cudnn", row))
    return found


def _offer(release: Row, variant: Row | None, rules: Rules) -> Offer:
    version, tag = release["version"], variant["variant"] if variant else CPU
    return Offer(
        title=f"torch {version}+{tag}",
        version=version,
        variant=tag,
        pythons=tuple(release["python"]),
        table="pytorch",
        release_row=release,
        row=variant or release,
        confirmed=release["confirmed"] and (variant is None or variant["confirmed"]),
        cuda=variant["cuda"] if variant else None,
        rank=_STATUS[variant["status"]] if variant else 0,
        public=_public(version, tag, release, rules) if variant else None,
    )


def _public(version: str, variant: str, release: Row, rules: Rules) -> tuple[str, ...]:
    """Return the architectures for which the Python index has a variant."""
    if variant != _default(release):
        return ()
    rows = rules["pytorch"]["python_index"]
    return tuple(str(row["arch"]) for row in rows if numeric_version.at_least(version, row["first"]))


def _cudnn_reasons(offer: Offer, cards: Sequence[Card], log: Log) -> list[Entry]:
    """Return the cards that the cuDNN inside the wheels does not serve, though torch has code for them."""
    version = offer.row["cudnn"]
    row = _matrix(version, log.rules) if version else None
    entries = []
    for card in cards if row else ():
        capability = card.compute_capability
        if row and capability and not numeric_version.at_least(capability, row["min_compute_capability"]):
            text = f"{offer.title} carries cuDNN {version}, which does not serve the {card.name} (compute capability {capability})"
            entries.append(conflict("frameworks.cudnn", text, log.cite("cudnn", row), "use an older release"))
    return entries


def _matrix(version: str, rules: Rules) -> Row | None:
    """Return the row of cuDNN's support matrix that holds a version."""
    minor = numeric_version.key(version)[:3]
    for row in rules["cudnn"]["rows"]:
        first, last = numeric_version.key(row["first"]), numeric_version.key(row["last"])
        if first <= minor[: max(len(first), 2)] and minor[: len(last)] <= last:
            found: Row = row
            return found
    return None


def _partners(offer: Offer, python: str, log: Log) -> list[str]:
    """Return the pins of torchvision and torchaudio, of those that have wheels for the variant and the Python.

    pip cannot find a mismatch of theirs by itself: the newer ones do not name the torch they were built for.
    """
    pins = []
    for package in ("torchvision", "torchaudio"):
        version = offer.release_row[package]
        lacking = _lacking(package, version, offer.variant, python, log)
        if lacking:
            what, row = lacking
            text = f"{package} {version} has no wheels for {what}: it is left out"
            log.warn("frameworks.partner", text, log.cite("pytorch", row))
            continue
        pins.append(f"{package}=={version}")
    return pins


def partner_of(package: str, version: str, rules: Rules) -> list[str]:
    """Return the releases of torch that a release of a partner was made for; none of any other package."""
    return [row["version"] for row in rules["pytorch"]["releases"] if row.get(package) == version]


def _lacking(package: str, version: str, variant: str, python: str, log: Log) -> tuple[str, Row] | None:
    """Return what a partner has no wheels for, with the row that says so; None where it has them."""
    tables = log.rules["pytorch"]
    for row in _of_package(tables["partners"], package, version):
        if variant not in row["variants"]:
            return f"the variant {variant}", row
    for row in _of_package(tables["partner_pythons"], package, version):
        if python not in row["python"]:
            return f"Python {python}", row
    return None


def _of_package(rows: Sequence[Row], package: str, version: str) -> list[Row]:
    return [row for row in rows if (row["package"], row["version"]) == (package, version)]


def constraints(offer: Offer, rules: Rules) -> list[str]:
    """Return what holds the libraries that a build was made with, and what a release does not say that it needs."""
    found = []
    if offer.cuda:
        suffix = f"cu{numeric_version.major(offer.cuda)}"
        found += [f"nvidia-{name}-{suffix}=={offer.row[name]}" for name in ("cudnn", "nccl") if offer.row[name]]
    for row in rules["pytorch"]["constraints"]:
        if not numeric_version.at_least(offer.version, row["below"]):
            found.append(row["constraint"])
    return found

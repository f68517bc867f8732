# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""TensorFlow: one build a release; the extra [and-cuda] brings the CUDA that it was built for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import CPU
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.tensorflow import ABOUT

from ....resolver.log import Entry, Log, conflict
from ....resolver.machine import Card
from ....rules import Row, Rules
from ....wish import specifiers
from ....wish.wish import FrameworkWish, Wish
from ..model import Contents
from . import pins
from .offer import Offer, Platform

__all__ = ["ABOUT", "card_reasons", "contents", "offers"]

# The first release that runs with NumPy 2; what is older does not always say so.
_NUMPY_2 = "2.18"


def offers(wish: FrameworkWish, rules: Rules, *, cpu: bool) -> Iterator[list[Offer]]:
    """Yield each release that answers a wish, the newest first."""
    broken = {row["version"]: row for row in rules["tensorflow"]["broken"]}
    for row in reversed(rules["tensorflow"]["releases"]):
        if row["yanked"] or not specifiers.is_version(row["version"]):
            continue
        if specifiers.matches(row["version"], wish.specifier):
            yield [_offer(row, None if cpu else broken.get(row["version"]), cpu=cpu)]


def card_reasons(offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return why a release does not run: its architecture, a CUDA that it does not bring, its limits, its cuDNN."""
    row, source = offer.release_row, log.cite("tensorflow", offer.release_row)
    entries = []
    if arch not in row["arch"]:
        text = f"{offer.title} has no wheels with CUDA code for {arch}, only for {', '.join(row['arch'])}"
        entries.append(conflict("frameworks.arch", text, source, "use a container of NVIDIA, or another framework"))
    if not row["extra"]:
        libraries = f"CUDA {row['cuda']} and its cuDNN"
        text = f"{offer.title} brings no CUDA: it needs {libraries} from the system (the extra [and-cuda] begins with 2.14)"
        entries.append(conflict("frameworks.system-cuda", text, source, "use tensorflow>=2.14"))
    broken = offer.extra_rows.get("broken")
    if broken and not broken["python"]:
        text = f"pip cannot install {offer.title} with its CUDA: {broken['text']}"
        entries.append(conflict("frameworks.broken", text, log.cite("tensorflow", broken), f"use {broken['instead']}"))
    entries += _limits(offer, cards, log)
    spec = row["requires"].get("cudnn", "")
    if not entries and spec:
        entries += pins.cudnn_reasons(offer.title, spec, row["cuda_major"], cards, arch, log)
    return entries


def contents(offer: Offer, platform: Platform, wish: Wish, log: Log) -> Contents:
    """Return what is installed, from the host's own index."""
    del wish
    row = offer.release_row
    extra = f"[{row['extra']}]" if offer.cuda else ""
    constraints, pinned = [], None
    if offer.cuda:
        spec, major = row["requires"].get("cudnn", ""), row["cuda_major"]
        constraints = pins.constraints(row["requires"], major, platform, log.rules)
        pinned = pins.explain_cudnn(offer.title, spec, major, platform, log.cite("tensorflow", row), log)
    found: Contents = {
        "requirements": [f"tensorflow{extra}=={offer.version}"],
        "constraints": [*constraints, *_numpy(row)],
        "cudnn": pinned,
    }
    return found


def _offer(row: Row, broken: Row | None, *, cpu: bool) -> Offer:
    return Offer(
        title=f"tensorflow {row['version']}",
        version=row["version"],
        variant=CPU if cpu else "and-cuda",
        pythons=tuple(each for each in row["python"] if not broken or each not in broken["python"]),
        python_note=broken["text"] if broken and broken["python"] else "",
        table="tensorflow",
        release_row=row,
        row=row,
        confirmed=row["confirmed"],
        cuda=None if cpu else row["cuda"],
        extra_rows={"broken": broken} if broken else {},
    )


def _limits(offer: Offer, cards: Sequence[Card], log: Log) -> list[Entry]:
    """Return the cards outside what a release has working code for."""
    entries = []
    for row in log.rules["tensorflow"]["limits"]:
        if not numeric_version.at_least(offer.version, row["from_version"]):
            continue
        if row["to_version"] and not numeric_version.at_least(row["to_version"], offer.version):
            continue
        for card in cards:
            if card.compute_capability and _outside(card.compute_capability, row):
                text = f"{offer.title} does not run on the {card.name} (compute capability {card.compute_capability}): {row['text']}"
                source = log.cite("tensorflow", row)
                entries.append(conflict("frameworks.card", text, source, "use another release, or another framework"))
    return entries


def _outside(capability: str, row: Row) -> bool:
    lowest, highest = row["min_compute_capability"], row["max_compute_capability"]
    below = bool(lowest) and not numeric_version.at_least(capability, lowest)
    above = bool(highest) and not numeric_version.at_least(highest, capability)
    return below or above


def _numpy(row: Row) -> list[str]:
    """Return the range of NumPy, ended before version 2 where a release was built for version 1 and does not say so."""
    parts = [row["numpy"]] if row["numpy"] else []
    if not numeric_version.at_least(row["version"], _NUMPY_2) and not specifiers.upper_bound(row["numpy"] or ""):
        parts.append("<2")
    return [f"numpy{','.join(parts)}"] if parts else []

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ONNX Runtime: one package for the processor and one with CUDA, which takes CUDA and cuDNN from two extras of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import CPU
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks.onnxruntime import ABOUT

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
    """Yield each release that answers a wish, the newest first; not every one has both packages."""
    broken = {row["version"]: row for row in rules["onnxruntime"]["broken"]}
    for row in reversed(rules["onnxruntime"]["releases"]):
        if (row["variant"] == CPU) is not cpu or row["yanked"]:
            continue
        if specifiers.matches(row["version"], wish.specifier):
            yield [_offer(row, _code(row, rules), None if cpu else broken.get(row["version"]))]


def card_reasons(offer: Offer, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return why a release does not run: its architecture, a CUDA that it does not bring, cards without code, its cuDNN."""
    row, code = offer.release_row, offer.row
    source = log.cite("onnxruntime", row)
    if arch not in row["arch"]:
        text = f"{offer.title} has no wheels with CUDA code for {arch}, only for {', '.join(row['arch'])}"
        return [conflict("frameworks.arch", text, source, "use another release")]
    broken = offer.extra_rows.get("broken")
    if broken:
        text = f"pip cannot install {offer.title} with its CUDA: {broken['text']}"
        return [conflict("frameworks.broken", text, log.cite("onnxruntime", broken), f"use {broken['instead']}")]
    entries = []
    for card in cards:
        if card.compute_capability and not targets.wheel_runs(card.compute_capability, code["targets"].get(arch, ())):
            text = f"{offer.title} has no code for the {card.name} (compute capability {card.compute_capability})"
            entries.append(conflict("frameworks.card", text, log.cite("onnxruntime", code), "use another release"))
    spec = row["requires"].get("cudnn", "")
    return entries or pins.cudnn_reasons(offer.title, spec, row["cuda_major"], cards, arch, log)


def contents(offer: Offer, platform: Platform, wish: Wish, log: Log) -> Contents:
    """Return what is installed, from the host's own index."""
    row = offer.release_row
    found: Contents = {"requirements": [f"onnxruntime=={offer.version}"], "constraints": [], "cudnn": None}
    if offer.cuda:
        major, source = row["cuda_major"], log.cite("onnxruntime", row)
        text = f"{offer.title} finds the CUDA of its environment after onnxruntime.preload_dlls()"
        log.decided("frameworks.preload", text, log.cite("onnxruntime", offer.row))
        for each in wish.frameworks:
            if each.name == ABOUT.name and each.origin and not each.variant:
                plain = f"{each.text} is the build for the processor alone: onnxruntime-gpu takes its place"
                log.decided("frameworks.for-cards", plain, source)
        found["requirements"] = [f"onnxruntime-gpu[{','.join(row['extras'])}]=={offer.version}"]
        found["constraints"] = pins.constraints(row["requires"], major, platform, log.rules)
        found["cudnn"] = pins.explain_cudnn(offer.title, row["requires"]["cudnn"], major, platform, source, log)
    return found


def _code(release: Row, rules: Rules) -> Row | None:
    """Return the row with the code in the wheels of a release; None for a package without any."""
    for row in rules["onnxruntime"]["code"] if release["cuda"] else ():
        first, last = row["from_version"], row["to_version"]
        if numeric_version.at_least(release["version"], first) and numeric_version.at_least(last, release["version"]):
            found: Row = row
            return found
    return None


def _offer(row: Row, code: Row | None, broken: Row | None) -> Offer:
    gpu = row["variant"] != CPU
    return Offer(
        title=f"onnxruntime{'-gpu' if gpu else ''} {row['version']}",
        version=row["version"],
        variant=row["variant"],
        pythons=tuple(row["python"]),
        table="onnxruntime",
        release_row=row,
        row=code or row,
        confirmed=row["confirmed"] and (code is None or code["confirmed"]),
        cuda=row["cuda"],
        extra_rows={"broken": broken} if broken else {},
    )

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ranges that a framework leaves open, closed: pip takes the newest of a range, whatever the card can do.

cuDNN and NCCL are pinned to one version; of CUDA's other parts the major version is, and the compiler stays at what has
code for the card.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import targets
from ....resolver.log import Entry, Log, conflict
from ....resolver.machine import Card
from ....rules import Row, Rules, remembered
from ....wish import specifiers
from ...cuda.resolve import cudnn
from .offer import Offer, Platform

Requires = Mapping[str, str]

# The names of the packages; from CUDA 13 on those of the toolkit's parts have no suffix.
_WITH_SUFFIX = {"cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl"}
_PARTS = {"runtime": "nvidia-cuda-runtime", "nvcc": "nvidia-cuda-nvcc"}


def sealed_of(path: str, distribution: str) -> str:
    """Return what says, among the versions that are known to be there, which one an environment was sealed with."""
    return f"{path} {distribution}"


def constraints(requires: Requires, major: str, platform: Platform, rules: Rules) -> list[str]:
    """Return the constraints for what a framework requires of NVIDIA's packages for a CUDA major version."""
    found, cards = [], platform.cards
    for name, package in _WITH_SUFFIX.items():
        if name in requires:
            version = _pinned(name, requires[name], major, platform, rules)
            rest = f"=={version}" if version else _closed(requires[name])
            found.append(f"{package}-cu{major}{rest}")
    for name, package in _PARTS.items():
        if name in requires:
            suffix = f"-cu{major}" if int(major) < 13 else ""
            floor = _compiler_floor(major, cards, rules) if name == "nvcc" else None
            found.append(f"{package}{suffix}{_within(requires[name], major, floor)}")
    return found


def _pinned(name: str, spec: str, major: str, platform: Platform, rules: Rules) -> str | None:
    """Return the newest version of a library that is known for a range, and that the Python index has, as far as that was asked. Where it
    has none of these, it is the newest that is known.
    """
    of = {"cudnn": cudnn_of, "nccl": nccl_of}[name]
    there = platform.there.get(f"{_WITH_SUFFIX[name]}-cu{major}")
    found = of(spec, major, platform.cards, platform.arch, rules, tuple(there)) if there else None
    return found or of(spec, major, platform.cards, platform.arch, rules)


def open_range(offer: Offer, distribution: str) -> str | None:
    """Return the range that a release itself has for what is pinned here; None where it pins it by itself, or says nothing."""
    requires: Requires = offer.row.get("requires") or offer.release_row.get("requires") or {}
    return next(
        (
            requires[name]
            for name, package in _WITH_SUFFIX.items()
            if distribution.startswith(f"{package}-cu") and name in requires
        ),
        None,
    )


def is_unknown(offer: Offer, distribution: str) -> bool:
    """Say whether a release pins a library by itself, and nobody knows which one."""
    names = [name for name, package in _WITH_SUFFIX.items() if distribution.startswith(f"{package}-cu")]
    return any(name in offer.row and offer.row[name] is None for name in names)


def toolkit(major: str, cards: Sequence[Card], rules: Rules) -> str:
    """Return the constraint for CUDA's toolkit as wheels: its major version, from the first that compiles for every card."""
    known = compiles_for(major, cards, rules)
    floor = f">={known[0]}," if known else ""
    return f"cuda-toolkit{floor}<{int(major) + 1}"


def cudnn_of(
    spec: str, major: str, cards: Sequence[Card], arch: str, rules: Rules, there: tuple[str, ...] | None = None
) -> str | None:
    """Return the newest cuDNN of a range that serves the CUDA major version and every card; None where none does. there: the versions that
    it may be.
    """
    return _cudnn_of(spec, major, frozenset(_capabilities(cards)), arch, there, rules)


@remembered
def _cudnn_of(
    spec: str, major: str, capabilities: frozenset[str], arch: str, there: tuple[str, ...] | None, rules: Rules
) -> str | None:
    ceilings = cudnn.limits(capabilities, [major], rules["cudnn"]["ceilings"])
    floors = [row for row in rules["cudnn"]["floors"] if _needs(row, major, capabilities)]
    for row in reversed(rules["cudnn"]["versions"]):
        version = row["version"]
        if row.get("yanked") or ".post" in version or major not in row["cuda_majors"] or arch not in row["arch"]:
            continue
        if not specifiers.matches(version, spec) or (there is not None and version not in there):
            continue
        if all(numeric_version.at_least(each["last"], version) for each in ceilings) and all(
            numeric_version.at_least(version, each["first"]) for each in floors
        ):
            return str(version)
    return None


def nccl_of(
    spec: str, major: str, cards: Sequence[Card], arch: str, rules: Rules, there: tuple[str, ...] | None = None
) -> str | None:
    """Return the newest NCCL of a range for the CUDA major version and the architecture; None where none is known."""
    del cards
    for row in reversed(rules["libraries"]["nccl"]):
        if there is not None and row["version"] not in there:
            continue
        if arch in row["variants"].get(f"cu{major}", ()) and specifiers.matches(row["version"], spec):
            return str(row["version"])
    return None


def explain_cudnn(title: str, spec: str, major: str, platform: Platform, source: str, log: Log) -> str | None:
    """Return the cuDNN that a framework's range is pinned to, and remember why it is that one."""
    version = _pinned("cudnn", spec, major, platform, log.rules)
    if specifiers.is_pin(spec) or version is None:
        return version
    capabilities = _capabilities(platform.cards)
    last = next((row for row in cudnn.limits(capabilities, [major], log.rules["cudnn"]["ceilings"])), None)
    why = ", the last that serves every card" if last else ""
    if version != cudnn_of(spec, major, platform.cards, platform.arch, log.rules):
        why = ", the newest that is known and that the Python index has"
    text = f"cuDNN is pinned to {version}{why}: {title} leaves it open ({spec})"
    log.decided("frameworks.cudnn", text, log.cite("cudnn", last) if last else source)
    return version


def cudnn_reasons(title: str, spec: str, major: str, cards: Sequence[Card], arch: str, log: Log) -> list[Entry]:
    """Return why no cuDNN of a range serves the cards; empty where one does."""
    if not spec or cudnn_of(spec, major, cards, arch, log.rules):
        return []
    blamed = [card for card in cards if not cudnn_of(spec, major, [card], arch, log.rules)] or list(cards)
    row = _limit(major, blamed, log.rules) or log.rules["cudnn"]["versions"][-1]
    entries = []
    for card in blamed:
        text = f"{title} needs cuDNN {spec}, of which no version serves the {card.name} (compute capability {card.compute_capability})"
        entries.append(conflict("frameworks.cudnn", text, log.cite("cudnn", row), "use another release"))
    return entries


def compiles_for(major: str, cards: Sequence[Card], rules: Rules) -> list[str]:
    """Return the toolkits of a CUDA major version that compile for every card, oldest first."""
    return [cuda for cuda in targets.toolkits_for(cards, rules) if numeric_version.major(cuda) == major]


def _capabilities(cards: Iterable[Card]) -> list[str]:
    return [card.compute_capability for card in cards if card.compute_capability]


def _needs(floor: Row, major: str, capabilities: Collection[str]) -> bool:
    above = floor.get("from_compute_capability")
    return floor.get("cuda_major") == major or bool(
        above and any(numeric_version.at_least(each, above) for each in capabilities)
    )


def _limit(major: str, cards: Sequence[Card], rules: Rules) -> Row | None:
    capabilities = _capabilities(cards)
    found = cudnn.limits(capabilities, [major], rules["cudnn"]["ceilings"])
    found += [row for row in rules["cudnn"]["floors"] if _needs(row, major, capabilities)]
    return found[0] if found else None


def _compiler_floor(major: str, cards: Sequence[Card], rules: Rules) -> str | None:
    """Return the first compiler that knows the cards, where it is not the first of its major version."""
    known = compiles_for(major, cards, rules)
    first = next((row["cuda"] for row in rules["cuda"]["targets"] if numeric_version.major(row["cuda"]) == major), None)
    return known[0] if known and known[0] != first else None


def _within(spec: str, major: str, floor: str | None) -> str:
    """Return a range of a toolkit's part that ends with its major version, and begins at the floor where one is given."""
    parts = [part for part in spec.split(",") if part]
    if not specifiers.upper_bound(spec):
        parts.append(f"<{int(major) + 1}")
    if floor and not specifiers.is_pin(spec):
        lower = [part for part in parts if part.startswith(">=")]
        if not any(numeric_version.at_least(part.lstrip(">= "), floor) for part in lower):
            parts = [*(part for part in parts if part not in lower), f">={floor}"]
    return ",".join(parts)


def _closed(spec: str) -> str:
    """Return a range that ends before the next major version of what it begins with."""
    if specifiers.upper_bound(spec):
        return spec
    lowest = next((part.lstrip(">= ") for part in spec.split(",") if part.startswith(">")), None)
    return f"{spec},<{int(numeric_version.major(lowest)) + 1}" if lowest else spec

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the records of hosts have that can be compared with that of their like, and how it is shown. Pure.

A check is compared where its unit says which direction is bad (health/outliers.py), so a new measurement needs no line here. What
nvidia-smi says of a card at rest (``temp.…``) is left out: it tells what ran before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..health import outliers
from ..health.outliers import Comparison, Value

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.report import Record

_AT_REST = ("temp",)
#: A setting or a version of a card, by its place in what nvidia-smi says (facts, Card), with its unit.
_OF_CARD: tuple[tuple[str, str, str], ...] = (
    ("VBIOS", "vbios", ""),
    ("power limit", "power_limit_w", " W"),
    ("highest SM clock", "clocks.sm_max_mhz", " MHz"),
    ("highest memory clock", "clocks.memory_max_mhz", " MHz"),
    ("application SM clock", "clocks.application_sm_mhz", " MHz"),
    ("application memory clock", "clocks.application_memory_mhz", " MHz"),
    ("highest PCIe generation", "pcie.gen_max", ""),
    ("most PCIe lanes", "pcie.width_max", ""),
    ("compute mode", "compute_mode", ""),
    ("persistence mode", "persistence_mode", ""),
    ("ECC", "ecc.mode", ""),
    ("MIG", "mig.current", ""),
)
_OF_HOST = ("driver", "kernel")
#: Outliers that the page tells, the worst first; outliers.json has all.
MOST_TOLD = 50
#: Strips that are drawn, those with the worst outliers first.
MOST_STRIPS = 24
_LONGEST = 100
_WIDTH = 300
_EDGE = 6


class Strip(TypedDict):
    """A group's figures on a line: places from 0 to 300."""

    group: str
    what: str
    text: str
    dots: list[int]
    bad: list[int]
    usual: int
    limit: int


class Shown(TypedDict):
    """What the page shows of a comparison."""

    statistic: str
    outliers: list[outliers.Outlier]
    more: int
    strips: list[Strip]
    compared: int
    not_compared: int
    left_out: int


def values(record: Record, cards_of_plan: object = None) -> list[Value]:
    """What a host and its cards have that can be compared. ``cards_of_plan``: where the record of a plan has none."""
    told_cards: object = record["gpus"] or cards_of_plan
    every = told_cards if isinstance(told_cards, list) else []
    cards = [card for card in every if isinstance(card, Mapping) and isinstance(card.get("name"), str)]
    labels = [_label(card) for card in cards]
    found = [
        Value(record["host"], label, _model(card), what, setting)
        for label, card in zip(labels, cards, strict=True)
        for what, path, unit in _OF_CARD
        if (setting := _at(card, path, unit)) is not None
    ]
    like = _like(cards)
    told: object = record["summary"]
    if like and isinstance(told, Mapping):
        found += [Value(record["host"], None, like, what, _plain(told.get(what))) for what in _OF_HOST]
    models = {label: _model(card) for label, card in zip(labels, cards, strict=True)}
    return found + [value for check in record["checks"] if (value := _of_check(record, check, models, like))]


def _of_check(record: Record, check: Check, models: Mapping[str, str], like: str | None) -> Value | None:
    """The figure of a check; None where it has none that can be compared, or nobody knows what is like it."""
    if not outliers.compares(check["unit"]) or check["status"] in ("skip", "incomplete"):
        return None
    if checks.group(check) in _AT_REST:
        return None
    card = None
    if checks.group(check) == "fio":
        group = _disk_class(record, check)
    elif check["gpu"] is None:
        group = like
    else:
        card = _labelled(str(check["gpu"]), models)
        group = models.get(card)
    if group is None:
        return None
    return Value(record["host"], card, group, check["id"], _plain(check["measured"]), check["unit"])


def _disk_class(record: Record, check: Check) -> str | None:
    """The class of the disk that fio measured, or what its checks are held against, which is the same for a class."""
    name = record["measurements"].get("disk_class")
    if isinstance(name, str) and name:
        return f"disk of class {name}"
    expected = check["expected"]
    nominal = expected.get("nominal") if isinstance(expected, Mapping) else None
    return None if nominal is None else f"disk of a class that promises {nominal} {check['unit']}"


def _model(card: Mapping[str, object]) -> str:
    return str(card["name"])[:_LONGEST]


def _label(card: Mapping[str, object]) -> str:
    """A card as the checks of nvidia-smi call it."""
    return f"{card.get('index')} ({card.get('pci_bus_id') or 'no bus id'})"


def _labelled(told: str, models: Mapping[str, str]) -> str:
    """The card that a check speaks of, by its whole label, its index or its place on the bus."""
    for label in models:
        index, _blank, place = label.partition(" ")
        if told in (label, index, place.strip("()")):
            return label
    return told


def _like(cards: Sequence[Mapping[str, object]]) -> str | None:
    """The hosts that are like this one: those with the same cards."""
    counts = Counter(_model(card) for card in cards)
    return "host with " + ", ".join(f"{number} × {name}" for name, number in sorted(counts.items())) if counts else None


def _at(card: Mapping[str, object], path: str, unit: str) -> str | None:
    value: object = card
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}{unit}" if isinstance(value, (int, float)) else value if isinstance(value, str) else None


def _plain(value: object) -> object:
    return value if isinstance(value, (int, float, str)) else None


# --------------------------------------------------------------------------------------------------------------------
# What is written and shown
# --------------------------------------------------------------------------------------------------------------------


def document(found: Sequence[Comparison]) -> dict[str, object]:
    """The comparison as JSON: all outliers, the worst first, and what was held against what."""
    return {
        "statistic": outliers.STATISTIC,
        "outliers": outliers.outliers(found),
        "compared": [
            {
                "group": each.group,
                "what": each.what,
                "unit": each.unit,
                "members": len(each.values),
                "left_out": each.left_out,
                "usual": each.usual,
                "limit": each.limit,
                "why_not": each.why_not,
            }
            for each in found
        ],
    }


def shown(found: Sequence[Comparison]) -> Shown | None:
    """What the page shows; None where nothing could be compared."""
    compared = [each for each in found if each.why_not is None]
    if not compared:
        return None
    figures = [each for each in compared if each.unit is not None]
    every = outliers.outliers(compared)
    return {
        "statistic": outliers.STATISTIC,
        "outliers": every[:MOST_TOLD],
        "more": len(every) - len(every[:MOST_TOLD]),
        "strips": [_strip(each) for each in figures[:MOST_STRIPS]],
        "compared": len(compared),
        "not_compared": len(found) - len(compared),
        "left_out": sum(each.left_out for each in compared),
    }


def _strip(comparison: Comparison) -> Strip:
    numbers = {(row.host, row.card or ""): outliers.number_of(row) or 0.0 for row in comparison.values}
    bad = {(outlier["host"], "".join(outlier["cards"])) for outlier in comparison.outliers}
    usual, limit = float(comparison.usual or 0), float(comparison.limit or 0)
    low, high = min(*numbers.values(), limit, usual), max(*numbers.values(), limit, usual)

    def places(wanted: Iterable[float]) -> list[int]:
        # Many machines are at the same place, and one dot is enough there.
        scale = (_WIDTH - 2 * _EDGE) / (high - low) if high > low else 0.0
        return sorted({round(_EDGE + (number - low) * scale) for number in wanted})

    text = f"{len(numbers)} from {outliers.shown(min(numbers.values()))} to {outliers.shown(max(numbers.values()))} {comparison.unit}"
    return {
        "group": comparison.group,
        "what": comparison.what,
        "text": f"{text}, median {outliers.shown(usual)}",
        "dots": places(number for key, number in numbers.items() if key not in bad),
        "bad": places(number for key, number in numbers.items() if key in bad),
        "usual": places([usual])[0],
        "limit": places([limit])[0],
    }

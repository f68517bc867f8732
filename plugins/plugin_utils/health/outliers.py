# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which host or card is out of line with its like: slower or hotter than the others of its group, or with another version or setting.

Pure. What is compared is in groups of like (cards of one model, hosts with the same cards, disks of one class), since a figure means little
beside one of another kind.

A figure is an outlier by its modified z-score, 0.6745 times its distance from the group's median over the median absolute deviation (MAD),
if that is more than 3.5 in the direction that is bad (Iglewicz and Hoaglin, How to Detect and Handle Outliers, ASQC, 1993; NIST/SEMATECH
e-Handbook of Statistical Methods, 1.3.5.17). Median and MAD are not moved by the outliers themselves, as mean and standard deviation are.
Among machines that are nearly equal the MAD is nearly nothing, and differences of no weight would be outliers: so a figure must be away
from the median by a least distance too, whatever its score. What is faster or cooler than its like is none.

A version or a setting is out of line where more than half of the group agree on another one.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypedDict

STATISTIC = "modified z-score by the median absolute deviation (Iglewicz and Hoaglin, 1993), more than 3.5, in the direction that is bad"
CUTOFF = 3.5
_SIGMAS = 0.6745
"""The 0.75 quantile of the standard normal distribution: the MAD of normal values is so many standard deviations."""
FEWEST = 3
"""Of two that differ nobody knows which one is right."""
_LONGEST = 200


class Direction(NamedTuple):
    """What is bad of a figure with some unit."""

    more_is_better: bool
    least: float
    """The least distance from the median: a share of it, or degrees."""
    relative: bool
    remedy: str


_SLOW_CARD = (
    "compare its clocks, power limit, temperature and PCIe link under load with those of its like; look for Xid in the kernel log and for "
    "programs that use it, then move the card to another slot: what moves with it is the card"
)
_SLOW_DISK = "compare its model, firmware, link, wear and fill level with those of its like, and look whether something else uses it"
_HOT = "compare fans, dust, airflow and the temperature of the air at the inlet with those of its like, and reseat its heat sink"
_LATE = "compare the path (PCIe slot, NUMA node, network) and what else runs with those of its like"

#: Shares and degrees are `assumed`: healthy cards of one model are within a few percent, disks of one class are of many models.
_CARD = Direction(True, 0.05, True, _SLOW_CARD)
_DISK = Direction(True, 0.20, True, _SLOW_DISK)
_TEMPERATURE = Direction(False, 10.0, False, _HOT)
_LATENCY = Direction(False, 0.20, True, _LATE)
_DIRECTIONS: Mapping[str, Direction] = {
    **dict.fromkeys(("TFLOPS", "GFLOPS", "TOPS", "GB/s", "GiB/s", "Gbit/s", "MHz"), _CARD),
    **dict.fromkeys(("IOPS", "MB/s", "MiB/s"), _DISK),
    "°C": _TEMPERATURE,
    **dict.fromkeys(("ns", "µs", "us", "ms"), _LATENCY),
}
_OTHER_NAME = (
    "bring it to what its like have, unless it is so on purpose: "
    "a version by the vendor's tool or gpuwright up, a setting by the role gpu_settings"
)


class Value(NamedTuple):
    """Something of a host or of one of its cards that can be compared."""

    host: str
    card: str | None
    """The card as checks name it; None for the host."""
    group: str
    """The like of it, in words: ``NVIDIA H100 80GB HBM3``."""
    what: str
    """What it is: the id of a check, or a name such as ``VBIOS``."""
    value: object
    unit: str | None = None
    """The unit of a figure; None for a version or a setting."""


class Outlier(TypedDict):
    """Something that is out of line."""

    host: str
    cards: list[str]
    group: str
    what: str
    value: float | str
    unit: str | None
    usual: float | str
    percent: float | None
    score: float | None
    text: str
    remedy: str


class Comparison(NamedTuple):
    """A figure, a version or a setting within a group."""

    group: str
    what: str
    unit: str | None
    values: Sequence[Value]
    """Those that could be compared."""
    left_out: int
    """How many of the group have none, or one that is no number."""
    usual: float | str | None
    """The median, or what more than half have; None where there is none."""
    limit: float | None
    """Of a figure: where outliers begin."""
    why_not: str | None
    """Why nothing was compared; None where it was."""
    outliers: Sequence[Outlier]


def compares(unit: str | None) -> bool:
    """Whether it is known which direction is bad of a figure with this unit."""
    return unit in _DIRECTIONS


def compare(values: Iterable[Value]) -> list[Comparison]:
    """Each figure, version and setting within each group, those with the worst outliers first. The order of the values does not matter."""
    rows = sorted(values, key=_order)
    members: dict[str, set[tuple[str, str | None]]] = {}
    by_what: dict[tuple[str, str, str | None], list[Value]] = {}
    for row in rows:
        members.setdefault(row.group, set()).add((row.host, row.card))
        by_what.setdefault((row.group, row.what, row.unit), []).append(row)
    found = [_compared(*key, same, len(members[key[0]])) for key, same in by_what.items()]
    return sorted(found, key=lambda each: (-_worst(each), each.group, each.what, each.unit or ""))


def outliers(found: Iterable[Comparison]) -> list[Outlier]:
    """All that are out of line, the worst first; versions and settings, which have no score, after the figures."""
    every = [outlier for comparison in found for outlier in comparison.outliers]
    return sorted(every, key=lambda each: (-(each["score"] or 0.0), each["what"], each["host"], each["cards"]))


def _order(row: Value) -> tuple[str, str, str, str, str, str]:
    return row.group, row.what, row.unit or "", row.host, row.card or "", repr(row.value)


def _worst(comparison: Comparison) -> float:
    return max((outlier["score"] or 0.0 for outlier in comparison.outliers), default=-1.0)


def _compared(group: str, what: str, unit: str | None, rows: Sequence[Value], members: int) -> Comparison:
    usable = _one_each([row for row in rows if _is_usable(row)])
    why_not = None if len(usable) >= FEWEST else f"too few to compare: {len(usable)} of at least {FEWEST}"
    empty = Comparison(group, what, unit, usable, members - len(usable), None, None, why_not, ())
    if why_not:
        return empty
    return _figures(empty, _DIRECTIONS[unit]) if unit is not None else _names(empty)


def number_of(row: Value) -> float | None:
    """A figure as a number; None for what is none, or one that no card can have."""
    value = row.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # A whole number beyond all floats overflows on the way to one; what is not a number is not between two.
    return float(value) if 0 <= value <= 1e18 else None


def _is_usable(row: Value) -> bool:
    if row.unit is None:
        return isinstance(row.value, str) and bool(row.value.strip())
    return compares(row.unit) and number_of(row) is not None


def _one_each(rows: Sequence[Value]) -> list[Value]:
    """The worst one of several of the same card: the same check was made more than once."""
    found: dict[tuple[str, str | None], Value] = {}
    for row in rows:
        known = found.get((row.host, row.card))
        if known is None or _is_worse(row, known):
            found[row.host, row.card] = row
    return list(found.values())


def _is_worse(row: Value, known: Value) -> bool:
    if row.unit is None:
        return False
    lower = (number_of(row) or 0.0) < (number_of(known) or 0.0)
    return lower is _DIRECTIONS[row.unit].more_is_better


def _figures(comparison: Comparison, direction: Direction) -> Comparison:
    numbers = [number_of(row) or 0.0 for row in comparison.values]
    median = statistics.median(numbers)
    if not median:
        return comparison._replace(why_not="half of the group measured nothing")
    deviation = statistics.median(abs(number - median) for number in numbers)
    least = direction.least * median if direction.relative else direction.least
    # Further away than this is a score of more than the cutoff, and the least distance.
    distance = max(CUTOFF * deviation / _SIGMAS, least)
    found = []
    for row, number in zip(comparison.values, numbers, strict=True):
        short = median - number if direction.more_is_better else number - median
        if short > distance:
            found.append(_outlying_figure(comparison, row, number, median, CUTOFF * short / distance, direction.remedy))
    limit = median - distance if direction.more_is_better else median + distance
    return comparison._replace(usual=median, limit=limit, outliers=found)


def _outlying_figure(
    comparison: Comparison, row: Value, number: float, median: float, score: float, remedy: str
) -> Outlier:
    percent = 100 * (number - median) / median
    away = (
        f"{number - median:+.0f} °C"
        if row.unit == "°C"
        else f"{abs(percent):.1f} % {'less' if percent < 0 else 'more'}"
    )
    like = f"the median of {len(comparison.values)} like it ({comparison.group}) is {shown(median)} {row.unit}"
    return {
        "host": row.host,
        "cards": [row.card] if row.card is not None else [],
        "group": row.group,
        "what": row.what,
        "value": number,
        "unit": row.unit,
        "usual": median,
        "percent": round(percent, 1),
        "score": round(score, 2),
        "text": f"{_whose(row.host, [row.card])}: {row.what} is {shown(number)} {row.unit}, and {like}: {away}",
        "remedy": remedy,
    }


def _names(comparison: Comparison) -> Comparison:
    """Who differs from what more than half agree on. The cards of a host that have the same are one outlier."""
    counts = Counter(_name(row) for row in comparison.values)
    usual, number = counts.most_common(1)[0]
    if 2 * number <= len(comparison.values):
        return comparison._replace(why_not=f"no majority: {len(counts)} different ones")
    others: dict[tuple[str, str], list[Value]] = {}
    for row in comparison.values:
        if _name(row) != usual:
            others.setdefault((row.host, _name(row)), []).append(row)
    like = f"{number} of {len(comparison.values)} like it ({comparison.group}) have {usual}"
    found: list[Outlier] = [
        {
            "host": host,
            "cards": [row.card for row in rows if row.card is not None],
            "group": comparison.group,
            "what": comparison.what,
            "value": name,
            "unit": None,
            "usual": usual,
            "percent": None,
            "score": None,
            "text": f"{_whose(host, [row.card for row in rows])}: {comparison.what} is {name}, and {like}",
            "remedy": _OTHER_NAME,
        }
        for (host, name), rows in others.items()
    ]
    return comparison._replace(usual=usual, outliers=found)


def _name(row: Value) -> str:
    return str(row.value).strip()[:_LONGEST]


def _whose(host: str, cards: Sequence[str | None]) -> str:
    named = [card for card in cards if card is not None]
    if len(named) > 1:
        # Where each of them is plugged in stands beside; the index is enough in a sentence.
        return f"{host}, cards {', '.join(card.partition(' ')[0] for card in named)}"
    return f"{host}, card {named[0]}" if named else host


def shown(number: float) -> str:
    """A figure as people read it: three digits that count, and all of those before the point."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"

"""A day of the log of the cards as plots of braille dots: a plot for each value, a colour for each card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotille
from rich.text import Text

from gpuwright import braille

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuwright.card_looks import Day

#: As far from each other as a terminal has them, the readable ones first.
_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red", "bright_green", "bright_cyan", "bright_magenta")
#: What stands for a card where there are no colours.
_MARKS = "0123456789abcdefghijklmnopqrstuvwxyz"
# Columns beside the dots: the numbers, and the end of the axis.
_BESIDE = 20
#: Every ten columns have an hour below them; in these widths a whole one.
_WIDTHS = (120, 80, 60, 40)
#: Minutes between two values that have none between them: the log has one a minute, and a late one is no gap.
_GAP = 2.5
_DAY = 24 * 60

#: Minutes since midnight, and the value then.
Point = tuple[float, float]


@dataclass(frozen=True)
class _Plot:
    """A value of the log. `top`: what the scale ends with at least."""

    title: str
    column: str
    unit: str
    top: float
    scale: float = 1


_PLOTS = (
    _Plot("utilization", "utilization.gpu [%]", "%", 100),
    _Plot("memory", "memory.used [MiB]", "GiB", 1, 1 / 1024),
    _Plot("temperature", "temperature.gpu [C]", "°C", 60),
    _Plot("power", "power.draw [W]", "W", 50),
)


def draw(day: Day, width: int, *, colours: bool) -> Iterator[Text]:
    """The parts of the page: who is who, then the plots."""
    names = cards(day)
    marks = {card: _MARKS[number % len(_MARKS)] for number, card in enumerate(names)} if len(names) > 1 else {}
    looks = {
        card: (_COLOURS[number % len(_COLOURS)] if colours else None, None if colours else marks.get(card))
        for number, card in enumerate(names)
    }
    yield _text(
        *(
            plotille.color(f"⠤{mark or ''}⠤ {_label(card, names[card])}", fg=colour, no_color=not colours)
            for card, (colour, mark) in looks.items()
        )
    )
    for plot in _PLOTS:
        series = {card: _series(day, card, plot) for card in names}
        yield _text(*_drawn(plot, series, looks, width))


def gaps(points: list[Point]) -> Iterator[list[Point]]:
    """The parts of a line without a gap in them."""
    part: list[Point] = []
    for point in points:
        if part and point[0] - part[-1][0] > _GAP:
            yield part
            part = []
        part.append(point)
    if part:
        yield part


def cards(day: Day) -> dict[float, str]:
    """The cards of the day by their index."""
    at, name = day.columns.index("index"), day.columns.index("name") if "name" in day.columns else None
    found: dict[float, str] = {}
    for row in day.rows:
        index = row[at]
        if isinstance(index, (int, float)):
            said = row[name] if name is not None else None
            found[index] = str(said) if said else found.get(index, "")
    return dict(sorted(found.items()))


def _text(*lines: str) -> Text:
    """Lines in plotille's colours. The names in them are those of a clean log."""
    return Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")


def _label(card: float, name: str) -> str:
    return f"{card:g} {name}".rstrip()


def _series(day: Day, card: float, plot: _Plot) -> list[Point]:
    if plot.column not in day.columns:
        return []
    index, value = day.columns.index("index"), day.columns.index(plot.column)
    found = []
    for row in day.rows:
        minute, told = _minute(str(row[0])), row[value]
        if row[index] == card and minute is not None and isinstance(told, (int, float)):
            found.append((minute, told * plot.scale))
    return sorted(found)


def _minute(timestamp: str) -> float | None:
    """Minutes since midnight, of a timestamp like 2026-11-27T06:49:46Z."""
    clock = timestamp[11:19].split(":")
    if len(clock) != 3 or not all(part.isdecimal() for part in clock):
        return None
    return int(clock[0]) * 60 + int(clock[1]) + int(clock[2]) / 60


def _drawn(
    plot: _Plot,
    series: Mapping[float, list[Point]],
    looks: Mapping[float, tuple[str | None, str | None]],
    width: int,
) -> list[str]:
    values = [value for points in series.values() for _minute, value in points]
    if not values:
        return [f"{plot.title}: no card told it on this day"]
    top = braille.scale_end(max(plot.top, *values))
    across = braille.Axis(_DAY, "h", lambda minute: f"{int(minute) // 60:02d}:{int(minute) % 60:02d}")
    up = braille.Axis(top, plot.unit, lambda value: f"{round(value, 2):g}")
    lines = [braille.Line(part, *looks[card]) for card, points in series.items() for part in gaps(points)]
    columns = next((each for each in _WIDTHS if each + _BESIDE <= width), _WIDTHS[-1])
    return [plot.title, *braille.drawn(lines, across, up, columns)]

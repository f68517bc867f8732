"""Lines of braille dots between two axes with round numbers, as a terminal and a ticket show them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import plotille

#: Rows of a plot; its scale has a number at each of them.
HEIGHT = 10
#: Columns of the numbers beside the dots; every ten columns of dots have a number below them.
_BESIDE = 10
#: What the steps of a scale are, times a power of ten.
_STEPS = (1, 2, 2.5, 4, 5, 8, 10)


@dataclass(frozen=True)
class Axis:
    """From 0 to its end: what it is called, and how a number of it is written."""

    end: float
    name: str
    tick: Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """Points that are joined: x and y. Without colours a character marks its points."""

    points: Sequence[tuple[float, float]]
    colour: str | None = None
    mark: str | None = None


def scale_end(top: float) -> float:
    """Where a scale ends that holds the value, so that each of its steps is a round number."""
    size = 10 ** math.floor(math.log10(top / HEIGHT))
    return next(HEIGHT * step * size for step in _STEPS if HEIGHT * step * size >= top)


def drawn(lines: Iterable[Line], across: Axis, up: Axis, width: int) -> list[str]:
    """The rows of a plot, so many columns of dots wide.

    plotille's own figure would load numpy wherever that is installed, which takes longer than all the rest.
    """
    import plotille

    canvas = plotille.Canvas(width, HEIGHT, xmax=across.end, ymax=up.end)
    for line in lines:
        _draw(canvas, line)
    numbers = [up.tick(up.end * row / HEIGHT)[:_BESIDE].rjust(_BESIDE) for row in reversed(range(HEIGHT + 1))]
    # Blank dots to the right of all that is drawn are no part of it.
    rows = [row.rstrip(" \u2800") for row in canvas.plot(linesep="\n").split("\n")]
    left = (_BESIDE - len(up.name) - 2) // 2
    return [
        f"{' ' * left + f'({up.name})':<{_BESIDE}} ^",
        f"{numbers[0]} |",
        *(f"{number} | {row}".rstrip() for number, row in zip(numbers[1:], rows, strict=True)),
        f"{'-' * (_BESIDE + 1)}|-{'|---------' * (width // 10)}|{'-' * (width % 10)}-> ({across.name})",
        f"{' ' * (_BESIDE + 1)}| {_below(across, width)}".rstrip(),
    ]


def _draw(canvas: plotille.Canvas, line: Line) -> None:
    """The points of a line with their marks, and dots between them."""
    before = line.points[0]
    canvas.point(*before, color=line.colour, marker=line.mark)
    for point in line.points[1:]:
        canvas.point(*point, color=line.colour, marker=line.mark)
        canvas.line(*before, *point, color=line.colour)
        before = point


def _below(across: Axis, width: int) -> str:
    """The numbers below the dots."""
    return " ".join(across.tick(across.end * at * 10 / width)[:9].ljust(9) for at in range(width // 10 + 1))

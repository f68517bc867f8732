"""How far a shape that was assumed from a number of parameters may be from the real one: as far as the models of that size are."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gpuwright.sizing import architecture, config, tables
from gpuwright.sizing.figures import Range, exactly

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwright.sizing.architecture import Architecture

#: Models of a size: their parameters are within this factor.
_NEAR = 1.5
#: Tokens of a sequence whose cache is compared.
_CONTEXT = 4096
#: Of so many models the one with most, and the one with least, is left out.
_ODD = 10


def of_cache(shape: Architecture) -> Range:
    """What the KV cache of a token may be of the assumed one, as factors; exactly 1 where the shape was told."""
    return _alike(shape.told, _cache) if shape.told else exactly(1.0)


def of_activations(shape: Architecture) -> Range:
    """The same of what the layers keep for the backward pass, by the width of all of them together."""
    return _alike(shape.told, _widths) if shape.told else exactly(1.0)


def _cache(shape: Architecture) -> float:
    return architecture.kept(shape, _CONTEXT)


def _widths(shape: Architecture) -> float:
    return shape.layers * shape.hidden


@cache
def _alike(told: float, measure: Callable[[Architecture], float]) -> Range:
    """Of real models of that size, against the typical shape of each; the typical one is among them."""
    found = sorted(measure(real) / measure(architecture.typical(real.name, size)) for real, size in _near(told))
    odd = len(found) // _ODD
    ends = found[odd : len(found) - odd] or [1.0]
    return Range(min(ends[0], 1.0), 1.0, max(ends[-1], 1.0))


def _near(told: float) -> list[tuple[Architecture, float]]:
    rows = [(row, float(row["parameters"] or row["rounded"])) for row in tables.models() if row.get("config")]
    near = [(row, size) for row, size in rows if told / _NEAR <= size <= told * _NEAR]
    shapes = ((config.read(row["config"], row["name"]), size) for row, size in near)
    # Who gives a number alone means layers that attend, as the assumed shape has. What was tuned from a model is no further shape.
    found: dict[tuple[int, ...], tuple[Architecture, float]] = {}
    for shape, size in shapes:
        if shape.kind == "decoder" and shape.trained:
            found.setdefault(
                (shape.layers, shape.hidden, shape.kv_heads, shape.head_dim, shape.intermediate), (shape, size)
            )
    return list(found.values())

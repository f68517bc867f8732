#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Print what compat/sizing/assumptions.yaml has of training and of engines, from the runs of compat/sizing/runs.yaml that judge nothing.

What is held apart, tests/unit/sizing/published.py says: `python tools/calibrate.py` does not look at it.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from gpuwright.sizing import architecture, engines, timing  # noqa: E402 - from this checkout, whatever is installed

#: A row that is further off counts no more than one that is so far off (a logarithm): an odd run decides little.
_ODD = 0.25
#: A whole run, with its restarts and all that stood still, counts as so many trials of some steps: there are fewer of them.
_RUN = 2.0
#: So many of the rows lie in the range that is printed.
_WITHIN = 0.93
#: What an engine may reach, and the step by which a better figure is looked for.
_ENDS = {
    "reads": (0.5, 0.95),
    "caches": (0.4, 0.95),
    "computes": (0.2, 0.9),
    "launch": (1e-4, 2e-3),
    "gap": (1e-6, 3e-4),
    "sequence": (1e-6, 5e-4),
    "expert": (1e-6, 5e-4),
    "newer": (0.2, 1.0),
    "unpacks": (0.2, 1.0),
}
#: Of an engine that copies keys and values many times in a step.
_COPIES = (0.1, 0.95)
_STEPS = (1.3, 1.1, 1.03)


def _published() -> Any:
    """The tests' module that reads the runs and splits them."""
    spec = importlib.util.spec_from_file_location("published", ROOT / "tests/unit/sizing/published.py")
    if spec is None or spec.loader is None:
        raise SystemExit("tests/unit/sizing/published.py is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules["published"] = module
    spec.loader.exec_module(module)
    return module


# training ---------------------------------------------------------------------------------------------


def training(published: Any) -> dict[str, float]:
    """The figures of `training`, by their names, and the spread."""
    rows, _apart = published.split(published.timed())
    points = [(_features(published, row), math.log(_busy(published, row))) for row in rows]
    found = _least_squares(points, [_RUN if row["kind"] == "run" else 1.0 for row in rows])
    rest = sorted(value - sum(found[name] * size for name, size in features.items()) for features, value in points)
    edge = round(len(rest) * (1 - _WITHIN) / 2)
    figures = {
        name: round(value if name in ("small", "cards") else math.exp(value), 3) for name, value in found.items()
    }
    return figures | {
        "spread low": round(math.exp(rest[edge]), 2),
        "spread high": round(math.exp(rest[-1 - edge]), 2),
    }


def _busy(published: Any, row: Any) -> float:
    """The share of its peak that a card of a run kept busy."""
    job = published.job(row)
    flops = timing.hardware_flops(published.shape(row), job)
    return float(published.tokens_a_second(row) * flops / published.card(row).peak(job.scheme.precision))


def _features(published: Any, row: Any) -> dict[str, float]:
    """What decides it, each with its weight in the sum of logarithms."""
    job, shape = published.job(row), published.shape(row)
    precision = "fp8" if job.scheme.precision == "fp8" else "16"
    found = {f"{published.generation(row)} {precision}": 1.0}
    if shape.experts:
        found[f"moe_{precision}"] = 1.0
    if job.kind == "qlora":
        found["qlora"] = 1.0
    found["small"] = min(math.log(architecture.active(shape) / 7e9), 0.0)
    found["cards"] = math.log(max(published.gpus(row) / 8, 1.0))
    return found


def _least_squares(points: list[tuple[dict[str, float], float]], worth: list[float]) -> dict[str, float]:
    """The weights that come nearest to all points by their worth, where odd ones count little (Huber)."""
    names = sorted({name for features, _value in points for name in features})
    found = dict.fromkeys(names, 0.0)
    counts = worth
    for _turn in range(30):
        found = _solve(names, points, counts)
        off = [abs(value - sum(found[name] * size for name, size in features.items())) for features, value in points]
        counts = [each * min(1.0, _ODD / max(far, 1e-9)) for each, far in zip(worth, off, strict=True)]
    return found


def _solve(names: list[str], points: list[tuple[dict[str, float], float]], counts: list[float]) -> dict[str, float]:
    """The normal equations, by elimination."""
    matrix = [[0.0] * (len(names) + 1) for _ in names]
    for (features, value), count in zip(points, counts, strict=True):
        for row, one in enumerate(names):
            if one in features:
                for column, other in enumerate(names):
                    matrix[row][column] += count * features[one] * features.get(other, 0.0)
                matrix[row][-1] += count * features[one] * value
    for at in range(len(names)):
        best = max(range(at, len(names)), key=lambda row: abs(matrix[row][at]))
        matrix[at], matrix[best] = matrix[best], matrix[at]
        for row in range(len(names)):
            if row != at and matrix[row][at]:
                times = matrix[row][at] / matrix[at][at]
                matrix[row] = [own - times * other for own, other in zip(matrix[row], matrix[at], strict=True)]
    return {name: matrix[at][-1] / matrix[at][at] for at, name in enumerate(names)}


# engines ----------------------------------------------------------------------------------------------


def of_engines(published: Any) -> dict[str, engines.Engine]:
    """Each engine with the figures under which its rates come out best, from those that it has."""
    rows, _apart = published.split(published.rated())
    by_engine: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_engine[published.generating(row)[1].engine].append(row)
    now = {name: engines.called(name) for name in engines.NAMES}
    engines.called = lambda name: now[name]  # type: ignore[assignment]
    for name, own in by_engine.items():
        _improve(now, name, lambda rows=own: _off(published, rows))  # type: ignore[misc]
    return now


def _off(published: Any, rows: Iterable[Any]) -> float:
    """How far the rates are off, together; an odd one counts little."""
    off = (abs(math.log(published.rate(row).value / row["tokens_per_second"])) for row in rows)
    return sum(each**2 if each < _ODD else 2 * _ODD * each - _ODD**2 for each in off)


def _improve(now: dict[str, engines.Engine], name: str, off: Callable[[], float]) -> None:
    """Change one figure after the other as long as it gets better."""
    best = off()
    for step in _STEPS:
        better = True
        while better:
            better = False
            for figure, ends in _ENDS.items():
                value = getattr(now[name], figure)
                least, most = _COPIES if figure == "caches" and now[name].repeats else ends
                # What is told to be nothing, or all, stays.
                for other in (value * step, value / step) if least <= value != 1 else ():
                    before = now[name]
                    now[name] = replace(before, **{figure: min(max(other, least), most)})
                    found = off()
                    if found < best - 1e-6:
                        best, better = found, True
                    else:
                        now[name] = before


def main() -> int:
    """Print them."""
    published = _published()
    for name, value in training(published).items():
        print(f"{name}: {value}")
    for name, engine in of_engines(published).items():
        figures = ", ".join(f"{figure}: {getattr(engine, figure):.3g}" for figure in _ENDS)
        print(f"{name}: {figures}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

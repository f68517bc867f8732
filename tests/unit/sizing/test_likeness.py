"""How far an assumed shape may be from real ones: those of its size are looked at, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwright.sizing import likeness, models, tables
from gpuwright.sizing.figures import Range, exactly


@pytest.mark.parametrize("told", [7e9, 32e9, 70e9])
def test_models_of_a_size_are_within_a_factor_of_it(told: float) -> None:
    found = likeness._near(told)
    assert all(told / 1.5 <= size <= told * 1.5 for _shape, size in found)
    # All of them that write text and attend in every layer, those that are alike but once.
    sizes = [row["parameters"] or row["rounded"] for row in tables.models() if row.get("config")]
    assert 5 < len(found) <= sum(told / 1.5 <= size <= told * 1.5 for size in sizes)
    assert all(shape.kind == "decoder" and shape.trained for shape, _size in found)
    widths = [
        (shape.layers, shape.hidden, shape.kv_heads, shape.head_dim, shape.intermediate) for shape, _size in found
    ]
    assert len(set(widths)) == len(widths)


def test_what_was_told_is_exact_and_what_was_assumed_has_a_range() -> None:
    for measured in (likeness.of_cache, likeness.of_activations):
        assert measured(models.named("llama-3.1-8b").shape) == exactly(1.0)
        assumed = measured(models.named("7B").shape)
        assert assumed.low < 1.0 <= assumed.high


@pytest.mark.parametrize(
    ("ratios", "low", "high"),
    [
        # Of twenty the two least and the two most are left out, of nine none; the assumed shape itself is always within.
        (range(1, 21), 0.3, 1.8),
        (range(1, 10), 0.1, 1.0),
        (range(12, 21), 1.0, 2.0),
        (range(1, 12), 0.2, 1.0),
        ([], 1.0, 1.0),
    ],
)
def test_of_ten_models_the_oddest_at_both_ends_are_left_out(
    ratios: range | list[int], low: float, high: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their layers, as tenths of those of the typical shape, which are ten."""
    real = models.find("llama-3.1-8b")
    monkeypatch.setattr(likeness, "_near", lambda _told: [(replace(real, layers=each), 1e9) for each in ratios])
    found = likeness._alike(1e9, lambda shape: 10.0 if shape.told else shape.layers)
    assert found == Range(low, 1.0, high)

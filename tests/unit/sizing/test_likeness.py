"""How far an assumed shape may be from real ones: those of its size are looked at, and no others."""

from __future__ import annotations

import pytest

from gpuwright.sizing import likeness, models
from gpuwright.sizing.figures import exactly


@pytest.mark.parametrize("told", [7e9, 32e9, 70e9])
def test_models_of_a_size_are_within_a_factor_of_it(told: float) -> None:
    found = [size for _shape, size in likeness._near(told)]
    assert found
    assert all(told / likeness._NEAR <= size <= told * likeness._NEAR for size in found)


def test_what_was_told_is_exact_and_what_was_assumed_has_a_range() -> None:
    for measured in (likeness.of_cache, likeness.of_activations):
        assert measured(models.named("llama-3.1-8b").shape) == exactly(1.0)
        assumed = measured(models.named("7B").shape)
        assert assumed.low < 1.0 <= assumed.high

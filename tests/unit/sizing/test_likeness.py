"""How far an assumed shape may be from real ones: those of its size are looked at, and no others."""

from __future__ import annotations

import pytest

from gpuwright.sizing import likeness


@pytest.mark.parametrize("told", [7e9, 32e9, 70e9])
def test_models_of_a_size_are_within_a_factor_of_it(told: float) -> None:
    found = [size for _shape, size in likeness._near(told)]
    assert found
    assert all(told / likeness._NEAR <= size <= told * likeness._NEAR for size in found)

"""What tells slow work from a slow machine."""

from __future__ import annotations

import pytest

from tests.unit import quick


def test_work_in_its_time_has_its_outcome() -> None:
    assert quick.quickly(lambda: 7) == 7


def test_work_that_takes_too_long_at_any_load_is_told() -> None:
    with pytest.raises(AssertionError, match=r"the sum took 0\.\d s, as if nothing else ran, and 0\.0 s are the most"):
        quick.quickly(lambda: sum(range(5_000_000)), 0.0001, "the sum")


def test_on_a_slow_machine_the_same_work_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "AT_REST", quick.AT_REST / 10_000)
    assert quick.quickly(lambda: sum(range(5_000_000)), 0.0001) == sum(range(5_000_000))

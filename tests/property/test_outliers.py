"""Outliers over any fleet: who is compared first does not matter, a slow one among its like is found, and equals are never outliers."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpuwright.node.plugins.plugin_utils.health import outliers
from ansible_collections.gpuwright.node.plugins.plugin_utils.health.outliers import Value

FIGURES = st.floats(0.1, 1e9)
NO_FIGURES = st.one_of(
    st.just(float("nan")),
    st.just(float("inf")),
    st.floats(max_value=-1e-9),
    st.none(),
    st.text(),
    st.booleans(),
    st.integers(min_value=10**19),
)
UNITS = st.sampled_from(("TFLOPS", "GB/s", "IOPS", "MB/s", "MHz", "°C", "ms"))


def fleet(numbers: list[object], unit: str) -> list[Value]:
    return [Value(f"n{place}", None, "model", "figure", number, unit) for place, number in enumerate(numbers)]


def out(values: list[Value]) -> list[str]:
    return [found["host"] for found in outliers.outliers(outliers.compare(values))]


@given(st.lists(st.one_of(FIGURES, NO_FIGURES), max_size=30), UNITS, st.randoms(use_true_random=False))
def test_the_order_of_hosts_does_not_matter(numbers: list[object], unit: str, chance: random.Random) -> None:
    values = fleet(numbers, unit)
    mixed = list(values)
    chance.shuffle(mixed)
    assert repr(outliers.compare(values)) == repr(outliers.compare(mixed))


@given(st.integers(4, 60), FIGURES, st.lists(st.floats(-0.008, 0.008), min_size=60, max_size=60), st.floats(0.0, 0.9))
def test_a_slow_host_of_four_or_more_is_found_and_no_other(
    number: int, speed: float, noise: list[float], share: float
) -> None:
    numbers: list[object] = [speed * (1 + each) for each in noise[:number]]
    numbers[number // 2] = speed * share
    assert out(fleet(numbers, "TFLOPS")) == [f"n{number // 2}"]


@given(st.integers(4, 60), FIGURES, st.floats(1.1, 1e6), UNITS)
def test_a_better_host_is_never_out_of_line(number: int, usual: float, factor: float, unit: str) -> None:
    less_is_better = unit in ("°C", "ms")
    numbers: list[object] = [usual] * number
    numbers[0] = usual / factor if less_is_better else usual * factor
    assert out(fleet(numbers, unit)) == []


@given(st.integers(0, 60), FIGURES, UNITS)
def test_equal_hosts_are_never_out_of_line(number: int, usual: float, unit: str) -> None:
    assert out(fleet([usual] * number, unit)) == []


@given(st.lists(FIGURES, max_size=20), st.lists(NO_FIGURES, max_size=20), UNITS)
def test_what_is_no_figure_is_left_out_counted_and_changes_nothing(
    numbers: list[object], odd: list[object], unit: str
) -> None:
    values = fleet([*numbers, *odd], unit)
    for found in outliers.compare(values):
        assert (len(found.values), found.left_out) == (len(numbers), len(odd))
        json.dumps([found.usual, found.limit, found.outliers], allow_nan=False)
    assert out(values) == out(fleet(list(numbers), unit))


@given(st.lists(st.one_of(st.sampled_from(("a", "b")), st.text(), st.none(), st.integers()), max_size=30))
def test_only_who_differs_from_more_than_half_is_named(told: list[object]) -> None:
    values = [Value(f"n{place}", None, "model", "name", value) for place, value in enumerate(told)]
    for found in outliers.compare(values):
        assert 2 * sum(len(outlier["cards"]) or 1 for outlier in found.outliers) < max(len(found.values), 1)
        assert all(outlier["value"] != found.usual for outlier in found.outliers)

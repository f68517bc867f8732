"""What the numbers of a size have in common: nothing is less than one of it, and no message bears more than a line."""

from __future__ import annotations

import pytest

from gpuwright.sizing.units import at_least_one, count, excerpt


@pytest.mark.parametrize(("number", "least"), [(-3, 1), (0, 1), (1, 1), (2, 2), (64, 64)])
def test_there_is_no_less_than_one(number: int, least: int) -> None:
    assert at_least_one(number) == least


@pytest.mark.parametrize(
    ("found", "said"), [(7, "'7'"), ("a" * 40, repr("a" * 40)), ("a" * 41, repr("a" * 40)), (None, "'None'")]
)
def test_a_message_bears_forty_characters_of_what_is_wrong(found: object, said: str) -> None:
    assert excerpt(found) == said


@pytest.mark.parametrize(("text", "number"), [("1.3B", 1_300_000_000), ("1.5", 1.5), ("7e9", 7e9), ("2.5k", 2500)])
def test_a_count_is_the_whole_number_that_people_mean_and_a_half_stays_one(text: str, number: float) -> None:
    assert count(text, "the number of parameters") == number

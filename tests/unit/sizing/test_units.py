"""What the numbers of a size have in common: nothing is less than one of it, and no message bears more than a line."""

from __future__ import annotations

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing.units import MOST, amount, at_least_one, count, excerpt, sequences, share


@pytest.mark.parametrize(("number", "least"), [(-3, 1), (0, 1), (1, 1), (2, 2), (64, 64)])
def test_there_is_no_less_than_one(number: int, least: int) -> None:
    assert at_least_one(number) == least


@pytest.mark.parametrize(
    ("found", "said"), [(7, "'7'"), ("a" * 40, repr("a" * 40)), ("a" * 41, repr("a" * 40)), (None, "'None'")]
)
def test_a_message_bears_forty_characters_of_what_is_wrong(found: object, said: str) -> None:
    assert excerpt(found) == said


@pytest.mark.parametrize(
    ("text", "number"), [("1.3B", 1_300_000_000), ("8.03B", 8_030_000_000), ("1.5", 1.5), ("7e9", 7e9), ("2.5k", 2500)]
)
def test_a_count_is_the_whole_number_that_people_mean_and_a_half_stays_one(text: str, number: float) -> None:
    assert count(text, "the number of parameters") == number


def test_one_sequence_is_one_and_two_are_several() -> None:
    assert [sequences(number) for number in (1, 2)] == ["1 sequence", "2 sequences"]


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("100%", 1), ("40%", 0.4), ("0.4", 0.4), ("0", None), ("1.01", None), ("101%", None)]
)
def test_a_share_is_above_nothing_and_up_to_all(text: str, number: float | None) -> None:
    if number is None:
        with pytest.raises(BadInput, match="a share above 0 and up to 1"):
            share(text, "the share")
    else:
        assert share(text, "the share") == number


@pytest.mark.parametrize(
    ("text", "least", "number"),
    [
        ("0", 0, 0),
        ("0.5", 0, 0.5),
        ("1", 1, 1),
        ("0.5", 1, None),
        ("1e18", 0, MOST),
        ("1.1e18", 0, None),
        ("8k", 0, None),
    ],
)
def test_an_amount_is_a_plain_number_from_the_least_to_the_most(text: str, least: float, number: float | None) -> None:
    if number is None:
        with pytest.raises(BadInput, match=f"has to be a number from {least:g} on"):
            amount(text, "the amount", least=least)
    else:
        assert amount(text, "the amount", least=least) == amount(text, "the amount") == number


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("0.9", None), ("1e18", MOST), ("1000001T", None)])
def test_a_count_is_one_at_least_and_no_slip_of_the_finger(text: str, number: float | None) -> None:
    if number is None:
        with pytest.raises(BadInput, match="at least 1 and at most 1e\\+18"):
            count(text, "the count")
    else:
        assert count(text, "the count") == number

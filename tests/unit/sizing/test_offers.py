"""Which of the cards that a job fits on an answer is about, and in which order they are listed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpuwright.sizing import offers


def offer(
    cards: int = 2, million: float | None = 1.0, hour: float | None = 1.0, fits: str = "yes", memory: float = 80
) -> Any:
    """Cards that a job fits on, with what an hour of them and a million tokens cost; as fast as they are large."""
    price = None if hour is None else {"usd_hour": hour, "usd_million": million, "how": ""}
    return SimpleNamespace(fits=fits, card=SimpleNamespace(memory=memory, bandwidth=memory)), {
        "cards": cards,
        "price": price,
    }


@pytest.mark.parametrize(
    ("named", "better", "worse"),
    [
        # Of cards that are named the fewest; of those what fits with room to spare; and of those the smallest. No price changes that.
        (True, {"cards": 1, "fits": "tight"}, {"cards": 2}),
        (True, {"memory": 80}, {"memory": 40, "fits": "tight"}),
        (True, {"memory": 40, "million": 9.0}, {"memory": 80, "million": 1.0}),
        (True, {"memory": 40, "hour": None}, {"memory": 80}),
        # Of others one with a price of a token goes before one with that of an hour, and this before one with none.
        (False, {"cards": 4}, {"cards": 1, "million": None}),
        (False, {"cards": 4, "million": None}, {"cards": 1, "hour": None}),
        # Then the fewest, what has room to spare, the cheapest, and the smallest.
        (False, {"cards": 1, "million": 9.0}, {"cards": 2, "million": 1.0}),
        (False, {"million": 9.0}, {"million": 1.0, "fits": "tight"}),
        (False, {"million": 1.0, "memory": 80}, {"million": 2.0, "memory": 40}),
        (False, {"memory": 40}, {"memory": 80}),
        (False, {"hour": None, "memory": 40}, {"hour": None, "memory": 80}),
        # Where nobody counts tokens it is the cheapest bandwidth.
        (False, {"million": None, "hour": 3.0, "memory": 80}, {"million": None, "hour": 2.0, "memory": 40}),
        (False, {"million": None, "hour": 1.0, "memory": 40}, {"million": None, "hour": 3.0, "memory": 80}),
    ],
)
def test_of_two_offers_the_better_is_chosen(named: bool, better: dict[str, Any], worse: dict[str, Any]) -> None:
    first, second = offer(**better), offer(**worse)
    for each in ([first, second], [second, first]):
        assert offers.chosen(each, named=named) is first[0]
    assert offers.chosen([], named=named) is None


def test_offers_are_listed_by_their_tokens_then_their_hours_and_without_a_price_by_their_number() -> None:
    listed = [
        offer(8, 1.0),
        offer(1, 2.0),
        offer(2, 2.0),
        offer(8, None, 1.0),
        offer(1, None, 2.0),
        offer(1, hour=None),
        offer(2, hour=None),
    ]
    cells = [each for _found, each in listed]
    worst_first = cells[::-1]
    assert sorted(worst_first, key=offers.rank) == cells

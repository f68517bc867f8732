"""The cards that a job fits on, with what they cost: which are chosen, and in which order they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from gpuwright.sizing import costing, speeds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.fitting import Found
    from gpuwright.sizing.speeds import Asked


class Price(TypedDict):
    """USD of an hour of all cards and of a million tokens, at the least, and how that is had."""

    usd_hour: float
    usd_million: float | None
    how: str


class Option(TypedDict):
    """Cards that the job fits on; `price` is null where nobody says what they cost."""

    gpu: str
    cards: int
    layout: str
    bytes_per_card: float
    room_per_card: float
    fits: str
    price: Price | None


def option(shape: Architecture, asked: Asked, found: Found) -> Option:
    """Cards as the answer lists them."""
    return {
        "gpu": found.card.name,
        "cards": found.layout.cards,
        "layout": found.layout.words(),
        "bytes_per_card": found.memory.value,
        "room_per_card": found.card.room,
        "fits": found.fits,
        "price": price(shape, asked, found),
    }


def price(shape: Architecture, asked: Asked, found: Found) -> Price | None:
    """What an hour of the cards costs at the least, and a million tokens; None where the tables have no price."""
    hour = costing.hourly(found.card.name, found.layout.cards)
    if hour is None:
        return None
    rate = speeds.rate(shape, asked, found)
    return {
        "usd_hour": hour.usd,
        "usd_million": hour.usd / (rate.value * 3600) * 1e6 if rate else None,
        "how": hour.how,
    }


def chosen(offers: Iterable[tuple[Found, Option]], *, named: bool) -> Found | None:
    """The cards that the answer is about: the fewest, and of those what fits with room to spare.

    Of what is left the smallest where a person named them; else that with the cheapest token, and none of which nobody says a price where
    there is another.

    Args:
        offers: cards that the job fits on.
        named: whether a person named them.
    """

    def order(offer: tuple[Found, Option]) -> tuple[int, int, bool, float, float]:
        found, cells = offer
        unknown, usd, number = rank(cells)
        if named:
            return 0, number, found.fits != "yes", 0.0, found.card.memory
        # Where nobody counts tokens the memory is what is paid for: by the hour alone the slowest card would be chosen.
        worth = usd / (number * found.card.bandwidth) if unknown else usd
        return unknown, number, found.fits != "yes", worth, found.card.memory

    best = min(offers, key=order, default=None)
    return best[0] if best else None


def rank(cells: Option) -> tuple[int, float, int]:
    """What has a price goes first, of that the cheapest token (where nobody counts them, the cheapest hour), and the fewest cards."""
    found = cells["price"]
    if found is None:
        return 2, 0.0, cells["cards"]
    if found["usd_million"] is None:
        return 1, found["usd_hour"], cells["cards"]
    return 0, found["usd_million"], cells["cards"]

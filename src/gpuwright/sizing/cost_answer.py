"""The answer to a question of cost, as `cost --json` prints it: renting and owning, and from when on owning pays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from gpuwright.errors import BadInput
from gpuwright.sizing import costing, tables
from gpuwright.sizing.costing import HOURS_A_YEAR
from gpuwright.sizing.figures import Figure, Range, figure

if TYPE_CHECKING:
    from datetime import date

    from gpuwright.sizing.costing import Own, Rent


class Rented(TypedDict):
    """A way to rent."""

    provider: str
    instance: str
    region: str | None
    kind: str
    instances: int
    usd_hour: float
    job: Figure
    term: Figure
    date: str
    age_days: int
    source: str


class Owned(TypedDict):
    """Machines that are bought, over the years that are asked for."""

    what: str
    count: int
    price: Figure
    parts: list[Figure]
    total: Figure
    usd_card_hour: float
    date: str
    age_days: int
    source: str
    break_even: list[BreakEven]


class BreakEven(TypedDict):
    """From when on owning has cost less than a way to rent."""

    against: str
    years: float | None
    hours: float | None


class CostAnswer(TypedDict):
    """The JSON of `cost`."""

    ok: bool
    gpu: str
    cards: int
    hours: Figure
    years: float
    share: Figure
    rent: list[Rented]
    own: list[Owned]
    plot: list[Line]
    warnings: list[dict[str, str]]
    updated: str


class Line(TypedDict):
    """USD over months."""

    name: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Asked:
    """What is asked.

    Attributes:
        card: the card, as the tables call it.
        cards: how many.
        hours: that the job takes on all of them, or the use of a year; with what it may be as well.
        years: that machines are kept.
        share: of the hours that owned machines compute.
        own_rates: rates of the person, by name.
        cloud: prices of the person to rent.
        owning: prices of the person to buy.
        today: the day that prices are old by.
    """

    card: str
    cards: int
    hours: Range
    years: float
    share: Range
    today: date
    own_rates: dict[str, float] = field(default_factory=dict)
    cloud: tuple[tables.Row, ...] = ()
    owning: tuple[tables.Row, ...] = ()


def cost(asked: Asked) -> CostAnswer:
    """Answer it.

    Raises:
        BadInput: no price is known for the card.
    """
    prices = tables.load()["prices"]
    rented = costing.rents([*asked.cloud, *prices["cloud"]], asked.card, asked.cards)
    rows = [*asked.owning, *prices["owning"]]
    cheapest = min((row["price_usd"] for row in rows if row["card"] == asked.card), default=0.0)
    bought = costing.owned(
        rows, asked.card, asked.cards, costing.standard_rates(asked.own_rates, cheapest * asked.cards)
    )
    if not rented and not bought:
        known = sorted({row["card"] for table in ("cloud", "owning") for row in prices[table]})
        raise BadInput(
            f"no price of {asked.card} is known",
            [f"known: {', '.join(known)}", "or give your own in a file: --prices FILE"],
        )
    return {
        "ok": True,
        "gpu": asked.card,
        "cards": asked.cards,
        "hours": figure("hours", asked.hours, "h", f"on {asked.cards} cards"),
        "years": asked.years,
        "share": figure("share of the hours", asked.share, "", "that owned machines compute"),
        "rent": [_rented(each, asked) for each in rented],
        "own": [_owned(each, rented, asked) for each in bought],
        "plot": _plot(rented, bought, asked),
        "warnings": list(_warnings(rented, bought, asked)),
        "updated": tables.load()["generated"],
    }


def _rented(rent: Rent, asked: Asked) -> Rented:
    low, value, high = (rent.total(hours) for hours in (asked.hours.low, asked.hours.value, asked.hours.high))
    year = rent.total(HOURS_A_YEAR * asked.years * asked.share.value)
    return {
        "provider": rent.row["provider"],
        "instance": rent.row["instance"],
        "region": rent.row.get("region"),
        "kind": rent.kind,
        "instances": rent.instances,
        "usd_hour": rent.rate,
        "job": figure("job", Range(low.low, value.value, high.high), "USD", _why(rent)),
        "term": figure("term", year, "USD", f"{asked.years:g} years at {asked.share.value:.0%} of the hours"),
        "date": rent.day,
        "age_days": rent.age(asked.today),
        "source": _source(rent.row),
    }


def _why(rent: Rent) -> str:
    if rent.years:
        return f"paid for {rent.years} years whether it computes or not"
    return "with what interruptions make it compute again" if rent.kind == "spot" else "by the hour"


def _owned(own: Own, rented: list[Rent], asked: Asked) -> Owned:
    total = own.total(asked.years, asked.share.value)
    used = HOURS_A_YEAR * asked.years * asked.share.value * asked.cards
    return {
        "what": own.row["what"],
        "count": own.count,
        "price": figure("price", own.price, "USD", "with cables, switches and racks"),
        "parts": [figure(name, found, "USD", text) for name, found, text in own.parts(asked.years, asked.share.value)],
        "total": figure("total", total, "USD", f"{asked.years:g} years at {asked.share.value:.0%} of the hours"),
        "usd_card_hour": total.value / used,
        "date": own.row["date"],
        "age_days": max((asked.today - costing.day(own.row["date"])).days, 0),
        "source": _source(own.row),
        "break_even": [_break_even(own, rent, asked) for rent in _compared(rented)],
    }


def _break_even(own: Own, rent: Rent, asked: Asked) -> BreakEven:
    years = costing.break_even(own, rent, asked.share.value, asked.years)
    name = f"{rent.row['provider']} {rent.row['instance']} {rent.kind}"
    return {
        "against": name,
        "years": years,
        "hours": None if years is None else years * HOURS_A_YEAR * asked.share.value,
    }


def _compared(rented: list[Rent]) -> list[Rent]:
    """What owning is held against: the cheapest of each kind."""
    kinds = dict.fromkeys(each.kind for each in rented if not each.years)
    found = [next(each for each in rented if each.kind == kind) for kind in kinds]
    return found + [each for each in rented if each.years][:1]


def _plot(rented: list[Rent], bought: list[Own], asked: Asked) -> list[Line]:
    """What has been paid by each month: the cheapest ways to rent and to own."""
    months = range(round(asked.years * 12) + 1)
    lines: list[Line] = [
        {
            "name": f"{each.row['provider']} {each.kind}",
            "points": [
                (month, each.rate * month / 12 * HOURS_A_YEAR * (1 if each.years else asked.share.value))
                for month in months
            ],
        }
        for each in _compared(rented)
    ]
    if bought:
        lines.append(
            {
                "name": bought[0].row["what"],
                "points": [(month, bought[0].spent(month / 12, asked.share.value)) for month in months],
            }
        )
    return lines


def _warnings(rented: list[Rent], bought: list[Own], asked: Asked) -> list[dict[str, str]]:
    found = []
    old = sum(each.age(asked.today) > costing.OLD for each in rented)
    if old:
        found.append(
            {"rule": "prices", "text": f"{old} of {len(rented)} prices to rent are older than {costing.OLD} days"}
        )
    aged = sum((asked.today - costing.day(each.row["date"])).days > costing.OLD for each in bought)
    if aged:
        found.append(
            {"rule": "prices", "text": f"{aged} of {len(bought)} prices to buy are older than {costing.OLD} days"}
        )
    if not rented:
        found.append({"rule": "prices", "text": f"no price to rent {asked.card} is known"})
    if not bought:
        found.append({"rule": "prices", "text": f"no price to buy {asked.card} is known"})
    return found


def _source(row: tables.Row) -> str:
    return tables.cite("prices", row) if "source" in row else "your own file of prices"

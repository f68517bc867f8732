"""The answer to a question of cost, as `cost --json` prints it: renting and owning over the same time, and from when on owning pays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NotRequired, TypedDict

from gpuwright import console
from gpuwright.errors import BadInput
from gpuwright.sizing import costing, tables
from gpuwright.sizing.costing import MONTHS_A_YEAR
from gpuwright.sizing.figures import Figure, Range, figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import date

    from gpuwright.sizing.answer import Answer
    from gpuwright.sizing.costing import Own, Rent

    #: USD that have been paid by the end of so many months, at a share of their hours.
    Paid = Callable[[int, float], Range]


class Way(TypedDict):
    """What every way to have the cards says: USD over the months, of an hour that computes, and of what else is asked."""

    total: Figure
    usd_hour_used: float
    job: NotRequired[Figure]
    usd_million: NotRequired[Figure]
    date: str
    age_days: int
    source: str


class Rented(Way):
    """A way to rent."""

    provider: str
    instance: str
    system: str | None
    region: str | None
    kind: str
    instances: int
    usd_hour: float


class Owned(Way):
    """Machines that are bought."""

    what: str
    count: int
    price: Figure
    parts: list[Figure]
    break_even: list[BreakEven]


class BreakEven(TypedDict):
    """From which month on no more has been paid for owning than for a way to rent; null: not within the months that are asked for."""

    against: str
    months: int | None
    within: int
    hours: float | None


class Line(TypedDict):
    """USD that have been paid by the end of each month."""

    name: str
    points: list[tuple[int, float]]


class CostAnswer(TypedDict):
    """The JSON of `cost`."""

    ok: bool
    verdict: str
    pays: bool | None
    gpu: str
    cards: int
    months: int
    share: Figure
    size: tables.Row | None
    hours: Figure | None
    tokens_second: Figure | None
    rent: list[Rented]
    own: list[Owned]
    plot: list[Line]
    warnings: list[dict[str, str]]
    updated: str


@dataclass(frozen=True)
class Asked:
    """What is asked.

    Attributes:
        card: the card, as the tables call it.
        cards: how many.
        months: that they are used.
        share: of the hours of these months that they compute.
        today: the day that prices are old by.
        odd: what is odd about the card that is named; nothing where nothing is.
        hours: that a job takes on all of them; None where none is asked.
        speed: tokens that all of them compute in a second; None where no model is named.
        sized: the answer of `size` for the model; None where none is named.
        own_rates: rates of the person, by name.
        cloud: prices of the person to rent.
        owning: prices of the person to buy.
        alone: whether the tables' prices are left out.
        named: options of the person that a price to buy has to be known for.
    """

    card: str
    cards: int
    months: int
    share: Range
    today: date
    odd: str = ""
    hours: Range | None = None
    speed: Figure | None = None
    sized: Answer | None = None
    own_rates: dict[str, float] = field(default_factory=dict)
    cloud: tuple[tables.Row, ...] = ()
    owning: tuple[tables.Row, ...] = ()
    alone: bool = False
    named: tuple[str, ...] = ()

    @property
    def used(self) -> float:
        """Hours that are computed in all."""
        return self.share.value * costing.hours(self.months)

    @property
    def tokens(self) -> Range | None:
        """The same without words."""
        return Range(self.speed["low"], self.speed["value"], self.speed["high"]) if self.speed else None

    @property
    def term(self) -> str:
        """The time that every row covers."""
        return f"{period(self.months)} at {self.share.value:.0%} of the hours"


def period(months: int) -> str:
    """So many months, in years where they are whole."""
    years, rest = divmod(months, MONTHS_A_YEAR)
    return console.counted(months, "months") if rest else console.counted(years, "years")


def cost(asked: Asked) -> CostAnswer:
    """Answer it.

    Raises:
        BadInput: no price is known for the card.
    """
    prices = {"cloud": [], "owning": []} if asked.alone else tables.load()["prices"]
    card, cards = asked.card, asked.cards
    rented = [*costing.rents(asked.cloud, card, cards), *costing.rents(prices["cloud"], card, cards)]
    rented.sort(key=lambda each: each.total(asked.months, asked.share.value).value)
    bought = [
        each for rows in (asked.owning, prices["owning"]) for each in costing.owned(rows, card, cards, asked.own_rates)
    ]
    bought.sort(key=lambda each: each.price.value)
    if not rented and not bought:
        raise BadInput(
            f"no price of {asked.card} is known",
            [f"known: {', '.join(sorted(costing.priced()))}", "or give your own in a file: --prices FILE"],
        )
    renting = {each.name: _by_month(each.paid, asked) for each in _compared(rented)}
    owning = [_by_month(each.paid, asked) for each in bought]
    return {
        "ok": True,
        "verdict": _verdict(rented, bought, asked),
        "pays": _pays(rented, bought, asked),
        "gpu": asked.card,
        "cards": asked.cards,
        "months": asked.months,
        "share": figure("share of the hours", asked.share, "", "that the cards compute"),
        "size": _sized(asked),
        "hours": figure("hours", asked.hours, "h", f"on {console.counted(asked.cards, 'cards')}")
        if asked.hours
        else None,
        "tokens_second": asked.speed,
        "rent": [_rented(each, asked) for each in rented],
        "own": [_owned(each, line, renting, asked) for each, line in zip(bought, owning, strict=True)],
        "plot": [_line(name, line) for name, line in renting.items()]
        + [_line(f"own {each.row['what']}", line) for each, line in zip(bought, owning, strict=True)],
        "warnings": list(_warnings(rented, bought, asked)),
        "updated": tables.load()["generated"],
    }


def _sized(asked: Asked) -> tables.Row | None:
    """What `size` says of the model: what is counted, and on what."""
    if asked.sized is None:
        return None
    keys = ("model", "job", "assumed", "fits", "layout", "needed", "room", "options")
    return {key: asked.sized[key] for key in keys}  # type: ignore[literal-required]


# ways -------------------------------------------------------------------------------------------------


def _way(total: Range, asked: Asked) -> dict[str, object]:
    """What every way says of its cost over the months."""
    hour = total.times(1 / asked.used)
    found: dict[str, object] = {"total": figure("total", total, "USD", asked.term), "usd_hour_used": hour.value}
    if asked.hours:
        taken = asked.hours
        job = Range(hour.low * taken.low, hour.value * taken.value, hour.high * taken.high)
        found["job"] = figure("the job", job, "USD", "its part of the months")
    if asked.tokens:
        found["usd_million"] = figure("a million tokens", million(hour, asked.tokens), "USD", "while they compute")
    return found


def million(hour: Range, tokens: Range) -> Range:
    """USD for a million tokens, of what an hour costs and how many come in a second."""
    ends = ((hour.low, tokens.high), (hour.value, tokens.value), (hour.high, tokens.low))
    return Range(*(usd / (rate * 3600) * 1e6 for usd, rate in ends))


def _rented(rent: Rent, asked: Asked) -> Rented:
    return {
        "provider": rent.row["provider"],
        "instance": rent.row["instance"],
        "system": rent.row.get("system"),
        "region": rent.row.get("region"),
        "kind": rent.kind,
        "instances": rent.instances,
        "usd_hour": rent.rate,
        "date": rent.day,
        "age_days": costing.age(rent.day, asked.today),
        "source": _source(rent.row),
        **_way(rent.total(asked.months, asked.share.value), asked),  # type: ignore[typeddict-item]
    }


def _owned(own: Own, line: list[float], renting: dict[str, list[float]], asked: Asked) -> Owned:
    parts = own.parts(asked.months, asked.share.value)
    return {
        "what": own.row["what"],
        "count": own.count,
        "price": figure("price", own.price, "USD", "with cables, switches and racks"),
        "parts": [figure(name, found, "USD", text) for name, found, text in parts],
        "date": own.row["date"],
        "age_days": costing.age(own.row["date"], asked.today),
        "source": _source(own.row),
        "break_even": [_break_even(line, name, theirs, asked) for name, theirs in renting.items()],
        **_way(own.total(asked.months, asked.share.value), asked),  # type: ignore[typeddict-item]
    }


def _break_even(own: list[float], name: str, rent: list[float], asked: Asked) -> BreakEven:
    months = costing.break_even(own, rent)
    return {
        "against": name,
        "months": months,
        "within": asked.months,
        "hours": None if months is None else asked.share.value * costing.hours(months),
    }


def _compared(rented: list[Rent]) -> list[Rent]:
    """What owning is held against: the cheapest of each kind, and of the commitments."""
    first: dict[str, Rent] = {}
    for each in rented:
        first.setdefault("commitment" if each.years else each.kind, each)
    return list(first.values())


def _by_month(paid: Paid, asked: Asked) -> list[float]:
    """What has been paid by the end of each month: what is plotted, and what says when owning pays."""
    return [paid(month, asked.share.value).value for month in range(asked.months + 1)]


def _line(name: str, paid: list[float]) -> Line:
    return {"name": name, "points": list(enumerate(paid))}


# the verdict ------------------------------------------------------------------------------------------


def best(rented: list[Rent]) -> Rent | None:
    """The cheapest way to rent that nobody takes away; spot where there is no other."""
    return next((each for each in rented if not each.interrupted), rented[0] if rented else None)


def _pays(rented: list[Rent], bought: list[Own], asked: Asked) -> bool | None:
    """Whether the months cost less owned than rented; None where one of both has no price."""
    rent = best(rented)
    if rent is None or not bought:
        return None
    return _least(bought, asked).total(asked.months, asked.share.value).value < _paid_in_all(rent, asked)


def _least(bought: list[Own], asked: Asked) -> Own:
    return min(bought, key=lambda each: each.total(asked.months, asked.share.value).value)


def _paid_in_all(rent: Rent, asked: Asked) -> float:
    return rent.total(asked.months, asked.share.value).value


def _verdict(rented: list[Rent], bought: list[Own], asked: Asked) -> str:
    """Yes or no, on what, for how much: in one line."""
    cards = f"{asked.cards} × {asked.card}"
    if asked.sized is not None:
        fits = "fits" if asked.sized["fits"] == "yes" else "fits only just"
        return f"yes: {asked.sized['model']['name']} {fits} on {cards}, {_for_how_much(rented, bought, asked)}"
    rent, pays = best(rented), _pays(rented, bought, asked)
    if rent is None:
        total = usd(_least(bought, asked).total(asked.months, asked.share.value).value)
        return f"buy {cards}: {total} for {asked.term}; no price to rent it is known"
    renting = f"{usd(_paid_in_all(rent, asked))} rented ({rent.name})"
    if not bought:
        return f"rent {cards}: {renting} for {asked.term}; no price to buy it is known"
    owning = f"{usd(_least(bought, asked).total(asked.months, asked.share.value).value)} bought"
    return f"{'yes, buy' if pays else 'no, do not buy'} {cards}: {owning}, {renting}, {asked.term}"


def _for_how_much(rented: list[Rent], bought: list[Own], asked: Asked) -> str:
    """The least that the job costs without a commitment, or of a million tokens; owned where nobody rents the card."""
    rent = next((each for each in rented if each.kind == "on demand"), best(rented))
    if rent is None:
        own = _least(bought, asked)
        way, total = f"owned, {own.row['what']}", own.total(asked.months, asked.share.value)
    else:
        way, total = rent.name, rent.total(asked.months, asked.share.value)
    hour = total.times(1 / asked.used)
    parts = [f"{usd(hour.value)} an hour"]
    if asked.tokens:
        parts.append(f"{usd(million(hour, asked.tokens).value)} a million tokens")
    if asked.hours:
        parts.append(f"{usd(hour.value * asked.hours.value)} {'a run' if _trained(asked) else 'for the job'}")
    return f"{', '.join(parts)} ({way})"


def _trained(asked: Asked) -> bool:
    return asked.sized is not None and asked.sized["job"]["kind"] != "inference"


def usd(value: float) -> str:
    """An amount without false precision: three digits that count."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.2f} M USD"
    if abs(value) >= 1e4:
        return f"{value / 1e3:,.1f} k USD"
    if abs(value) >= 100:
        return f"{value:,.0f} USD"
    return f"{value:,.2f} USD" if abs(value) >= 1 else f"{value:.3g} USD"


# warnings ---------------------------------------------------------------------------------------------


def _warnings(rented: list[Rent], bought: list[Own], asked: Asked) -> Iterator[dict[str, str]]:
    if asked.odd:
        yield {"rule": "card", "text": asked.odd}
    if asked.sized is not None:
        yield from asked.sized["warnings"]
    old = sum(costing.age(each.day, asked.today) > costing.OLD for each in rented)
    if old:
        yield _warn(f"{old} of {len(rented)} prices to rent are older than {costing.OLD} days")
    aged = sum(costing.age(each.row["date"], asked.today) > costing.OLD for each in bought)
    if aged:
        yield _warn(f"{aged} of {len(bought)} prices to buy are older than {costing.OLD} days")
    if not rented:
        yield _warn(f"no price to rent {asked.card} is known")
    if not bought:
        without = f": {', '.join(asked.named)} changes nothing" if asked.named else ""
        yield _warn(f"no price to buy {asked.card} is known{without}")
    theirs = [*asked.cloud, *asked.owning]
    if theirs and not any(row["card"] == asked.card for row in theirs):
        yield _warn(f"your file of prices has none of {asked.card}")


def _warn(text: str) -> dict[str, str]:
    return {"rule": "prices", "text": text}


def _source(row: tables.Row) -> str:
    return tables.cite("prices", row) if "source" in row else "your own file of prices"

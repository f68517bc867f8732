"""What cards cost: rented by the hour, and owned for years. USD, hours and years."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from gpuwright.sizing import tables
from gpuwright.sizing.cards import IN_A_MACHINE
from gpuwright.sizing.figures import Range, exactly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuwright.sizing.tables import Row

#: Days after which a price is told to be old.
OLD = 180
HOURS_A_YEAR = 8760
#: Percent of instances that are taken away in a month where nobody says (AWS's middle bands), and hours until another one computes.
_BAND = (5, 20)
_RESTART = 0.5


@dataclass(frozen=True)
class Rent:
    """A way to rent, for all cards of the job.

    Attributes:
        row: the price.
        kind: `on demand`, `spot`, or what a commitment is called.
        rate: USD an hour of all instances.
        instances: how many.
        years: that are paid for whether they are used or not; 0 without a commitment.
        day: of the price.
    """

    row: Row
    kind: str
    rate: float
    instances: int
    years: int
    day: str

    def total(self, hours: float) -> Range:
        """USD for so many hours of use: spot has what is computed twice, a commitment all of its hours."""
        if self.kind == "spot":
            return self._again().times(self.rate * hours)
        paid = max(hours, self.years * HOURS_A_YEAR)
        return exactly(self.rate * paid)

    def _again(self) -> Range:
        """How often everything is computed: whatever instance is taken away, the job goes back to its last checkpoint."""
        rows = tables.load()["prices"]["interruptions"]
        bands = [row for row in rows if row["instance"] == self.row["instance"]]
        low = min((row["low"] for row in bands), default=_BAND[0])
        high = max((row["high"] for row in bands), default=_BAND[1])
        back = tables.rule("checkpoint_interval")["value"] / 2 + _RESTART
        each = self.instances * back / rate("hours_month").value / 100
        return Range(1 + low * each, 1 + (low + high) / 2 * each, 1 + high * each)

    def age(self, today: date) -> int:
        """Days since the price was read."""
        return max((today - day(self.day)).days, 0)


def rents(rows: Sequence[Row], card: str, cards: int) -> list[Rent]:
    """Every way to rent so many of a card, cheapest first."""
    return sorted(
        (each for row in rows if row["card"] == card for each in _ways(row, cards)), key=lambda each: each.rate
    )


def _ways(row: Row, cards: int) -> Iterator[Rent]:
    count = math.ceil(cards / row["gpus"])
    if row.get("on_demand"):
        yield Rent(row, "on demand", row["on_demand"] * count, count, 0, row["date"])
    if row.get("spot"):
        yield Rent(row, "spot", row["spot"] * count, count, 0, row.get("spot_date") or row["date"])
    for each in row.get("commitments") or ():
        name = f"{each['name']}, {each['years']} year{'s' if each['years'] > 1 else ''}"
        yield Rent(row, name, each["usd_hour"] * count, count, each["years"], each.get("date") or row["date"])


@dataclass(frozen=True)
class Own:
    """Machines that are bought.

    Attributes:
        row: the price of one, or of several.
        count: how many times that.
        rates: what everything around it costs, by name.
    """

    row: Row
    count: int
    rates: dict[str, Range]

    @property
    def bare(self) -> bool:
        """Whether the price is that of a card alone: what it is put into comes on top."""
        return int(self.row["cards"]) == 1

    @property
    def price(self) -> Range:
        """USD for the machines, and for cables, switches and racks."""
        value = self.row["price_usd"] * self.count
        low, high = (
            float(self.row.get(key) or self.row["price_usd"]) * self.count for key in ("price_low", "price_high")
        )
        around = rate("server_price_to_cards") if self.bare else Range(1, 1, 1)
        more = self.rates["extras"]
        return _product(Range(low, value, high), around, Range(1 + more.low, 1 + more.value, 1 + more.high))

    @property
    def kilowatts(self) -> float:
        """The most that the machines draw."""
        around = tables.rule("server_power_to_cards")["value"] if self.bare else 1
        return float(self.row["power_w"]) * self.count * around / 1000

    def parts(self, years: float, share: float) -> list[tuple[str, Range, str]]:
        """What so many years cost, computing this share of the hours: name, USD, why."""
        price, rates = self.price, self.rates
        kilowatts = self.kilowatts
        power = _product(rates["draw"], rates["pue"], rates["electricity"]).times(
            kilowatts * HOURS_A_YEAR * years * share
        )
        space = rates["space"].times(kilowatts * 12 * years)
        back = price.times(rates["resale"].value ** years)
        return [
            ("machines", price, self._bought()),
            (
                "resale",
                Range(-back.high, -back.value, -back.low),
                f"{rates['resale'].value:.3g} of its value each year",
            ),
            # Half of the price is tied up on average.
            (
                "interest",
                _product(price, rates["interest"]).times(years / 2),
                f"{rates['interest'].value:.1%} a year on half of the price",
            ),
            (
                "support",
                _product(price, rates["support"]).times(years),
                f"{rates['support'].value:.1%} of the price a year",
            ),
            (
                "power",
                power,
                f"{kilowatts:.1f} kW at most, PUE {rates['pue'].value:g}, {rates['electricity'].value:g} USD a kWh",
            ),
            ("space", space, f"{rates['space'].value:g} USD a kW and month"),
            (
                "people",
                rates["people"].times(self._machines * years),
                f"{rates['people'].value:,.0f} USD a machine and year",
            ),
        ]

    @property
    def _machines(self) -> int:
        return math.ceil(self.count / IN_A_MACHINE) if self.bare else int(self.row.get("machines", 1)) * self.count

    def _bought(self) -> str:
        whole = f", and {self._machines} machine{'s' if self._machines > 1 else ''} around" if self.bare else ""
        return f"{self.count} × {self.row['what']}{whole}"

    def total(self, years: float, share: float) -> Range:
        """USD of all parts."""
        return _sum(found for _name, found, _text in self.parts(years, share))

    def spent(self, years: float, share: float) -> float:
        """USD that have been paid by then: nobody sells the machines to see whether they paid."""
        return _sum(found for name, found, _text in self.parts(years, share) if name != "resale").value


def owned(rows: Sequence[Row], card: str, cards: int, rates: dict[str, Range]) -> list[Own]:
    """Every way to buy so many of a card, cheapest first; whole machines of several cards before single ones."""
    found = [
        Own(row, math.ceil(cards / row["cards"]), rates) for row in rows if row["card"] == card and row.get("power_w")
    ]
    return sorted(found, key=lambda each: each.price.value)


def standard_rates(given: dict[str, float], price: float) -> dict[str, Range]:
    """What surrounds a machine: the tables' rates, or a person's own. A machine at home needs neither people nor a rack."""
    home = price < HOME
    rates = {
        "electricity": Range(rate("electricity_us_industrial").value, rate("electricity_us_commercial").value, 0.25),
        "pue": Range(1.0, 1.0, 1.2) if home else rate("pue_survey"),
        "draw": Range(rate("draw_of_maximum").low, rate("draw_of_maximum").value, 1.0),
        "space": Range(0.0, 0.0, 0.0) if home else rate("colocation_kw_month"),
        "interest": rate("interest"),
        "support": Range(0.0, 0.0, 0.05) if home else rate("support_year"),
        "people": Range(0.0, 0.0, 0.0) if home else _people(),
        "extras": Range(0.0, 0.0, 0.1) if home else rate("extras_price"),
        "resale": rate("card_value_by_year"),
    }
    return {**rates, **{name: exactly(value) for name, value in given.items()}}


#: USD below which a machine stands in an office: nobody is paid for it, and no rack is rented.
HOME = 30_000


def _people() -> Range:
    cost, each = rate("admin_usd_year"), rate("hosts_per_admin")
    return Range(cost.low / each.high, cost.value / each.value, cost.high / each.low)


def rate(name: str) -> Range:
    """A rate of the tables; where nobody says the least or the most, the usual is both."""
    row = next(row for row in tables.load()["prices"]["rates"] if row["name"] == name)
    low, high = (row["value"] if row[key] is None else row[key] for key in ("low", "high"))
    return Range(low, row["value"], high)


def break_even(own: Own, rent: Rent, share: float, years: float) -> float | None:
    """Years of use after which less has been paid for owning than for renting by the hour; None where it is not by the end."""
    steps = max(round(years * 12), 1)
    for month in range(1, steps + 1):
        after = month / 12
        if own.spent(after, share) <= rent.rate * after * share * HOURS_A_YEAR:
            return after
    return None


def _sum(ranges: Iterable[Range]) -> Range:
    every = list(ranges)
    return Range(sum(each.low for each in every), sum(each.value for each in every), sum(each.high for each in every))


def _product(*ranges: Range) -> Range:
    ends = [(each.low, each.value, each.high) for each in ranges]
    low, value, high = (math.prod(column) for column in zip(*ends, strict=True))
    return Range(low, value, high)


def day(text: str) -> date:
    """The day of a price."""
    return date.fromisoformat(text)

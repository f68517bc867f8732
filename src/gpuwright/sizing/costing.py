"""What cards cost, rented and owned. USD, hours, and months of use; a share is that of the hours in which the cards compute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import TYPE_CHECKING

from gpuwright.sizing import tables
from gpuwright.sizing.cards import IN_A_MACHINE
from gpuwright.sizing.figures import Range, exactly
from gpuwright.sizing.units import at_least_one

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuwright.sizing.tables import Row

#: Days after which a price is told to be old.
OLD = 180
HOURS_A_YEAR = 8760
MONTHS_A_YEAR = 12
#: Months that machines are kept where nobody says.
KEPT = 36
#: Percent of instances that are taken away in a month where nobody says (AWS's middle bands), and hours until another one computes.
_BAND = (5, 20)
_RESTART = 0.5


def hours(months: float) -> float:
    """The hours of so many months."""
    return months * HOURS_A_YEAR / MONTHS_A_YEAR


@dataclass(frozen=True)
class Rent:
    """A way to rent, for all cards that are asked for.

    Attributes:
        row: the price.
        kind: `on demand`, `spot`, or what a commitment is called.
        rate: USD an hour of all instances.
        instances: how many.
        years: of the commitment, which is paid for whether it is used or not; 0 without one.
        day: of the price.
        upfront: whether the commitment is paid at its beginning.
    """

    row: Row
    kind: str
    rate: float
    instances: int
    years: int
    day: str
    upfront: bool = False

    @property
    def name(self) -> str:
        """What it is called beside others."""
        return f"{self.row['provider']} {self.row['instance']}, {self.kind}"

    @property
    def interrupted(self) -> bool:
        """Whether instances are taken away."""
        return self.kind == "spot"

    def paid(self, months: int, share: float) -> Range:
        """USD that have been paid by the end of so many months."""
        if not self.years:
            return self.again.times(self.rate * share * hours(months))
        return self._terms(months) if self.upfront else exactly(self.rate * hours(months))

    def total(self, months: int, share: float) -> Range:
        """USD that so many months cost: of a commitment all that was begun."""
        return self._terms(months) if self.years else self.paid(months, share)

    def _terms(self, months: int) -> Range:
        term = MONTHS_A_YEAR * self.years
        return exactly(self.rate * hours(term) * at_least_one(math.ceil(months / term)))

    @property
    def again(self) -> Range:
        """How often everything is computed: whatever instance is taken away, the job goes back to its last checkpoint."""
        if not self.interrupted:
            return exactly(1)
        bands = self._bands()
        low = min((row["low"] for row in bands), default=_BAND[0])
        high = max((row["high"] for row in bands), default=_BAND[1])
        back = tables.rule("checkpoint_interval")["value"] / 2 + _RESTART
        each = self.instances * back / rate("hours_month").value / 100
        return Range(1 + low * each, 1 + (low + high) / 2 * each, 1 + high * each)

    def _bands(self) -> list[Row]:
        """How often such an instance is taken away: in its region where that was read, else anywhere."""
        rows = tables.load()["prices"]["interruptions"]
        known = [row for row in rows if row["instance"] == self.row["instance"]]
        return [row for row in known if row["region"] == self.row.get("region")] or known


def rents(rows: Iterable[Row], card: str, cards: int) -> list[Rent]:
    """Every way to rent so many of a card, cheapest by the hour first.

    Left out are those who do not rent so many together, and instances of more cards than are wanted where there are smaller ones.
    """
    known = [row for row in rows if row["card"] == card and cards <= row.get("most", cards)]
    fitting = [row for row in known if row["gpus"] <= cards] or known
    return sorted((each for row in fitting for each in _ways(row, cards)), key=lambda each: each.rate)


def _ways(row: Row, cards: int) -> Iterator[Rent]:
    count = math.ceil(cards / row["gpus"])
    if row.get("on_demand"):
        yield Rent(row, "on demand", row["on_demand"] * count, count, 0, row["date"])
    if row.get("spot"):
        yield Rent(row, "spot", row["spot"] * count, count, 0, row.get("spot_date") or row["date"])
    for each in row.get("commitments") or ():
        name = f"{each['name']}, {each['years']} year{'s' if each['years'] > 1 else ''}"
        read = each.get("date") or row["date"]
        yield Rent(row, name, each["usd_hour"] * count, count, each["years"], read, each.get("upfront", False))


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
        around = rate("server_price_to_cards") if self.bare else exactly(1)
        more = self.rates["extras"]
        return _product(Range(low, value, high), around, Range(1 + more.low, 1 + more.value, 1 + more.high))

    @property
    def kilowatts(self) -> float:
        """The most that the machines draw."""
        around = tables.rule("server_power_to_cards")["value"] if self.bare else 1
        return float(self.row["power_w"]) * self.count * around / 1000

    def parts(self, months: int, share: float) -> list[tuple[str, Range, str]]:
        """What so many months cost: name, USD, why."""
        price, rates, years = self.price, self.rates, months / MONTHS_A_YEAR
        kilowatts, left = self.kilowatts, rates["resale"]
        power = _product(self._draw(share), rates["pue"], rates["electricity"]).times(kilowatts * hours(months))
        back = _product(price, Range(left.low**years, left.value**years, left.high**years))
        return [
            ("machines", price, self._bought()),
            ("resale", Range(-back.high, -back.value, -back.low), f"{left.value:.3g} of its value each year"),
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
            ("power", power, self._why_power()),
            ("space", rates["space"].times(kilowatts * months), f"{rates['space'].value:g} USD a kW and month"),
            (
                "people",
                rates["people"].times(self._machines * years),
                f"{rates['people'].value:,.0f} USD a machine and year",
            ),
        ]

    def _draw(self, share: float) -> Range:
        """The draw of all hours, of the most: those that compute, and those in which the machine is on and idle."""
        busy, idle = self.rates["draw"], self.rates["idle"]
        ends = ((busy.low, idle.low), (busy.value, idle.value), (busy.high, idle.high))
        return Range(*(share * one + (1 - share) * other for one, other in ends))

    def _why_power(self) -> str:
        rates = self.rates
        return (
            f"{self.kilowatts:.1f} kW at most, {rates['draw'].value:.0%} of it computing and {rates['idle'].value:.0%} idle, "
            f"PUE {rates['pue'].value:g}, {rates['electricity'].value:g} USD a kWh"
        )

    @property
    def _machines(self) -> int:
        return math.ceil(self.count / IN_A_MACHINE) if self.bare else int(self.row.get("machines", 1)) * self.count

    def _bought(self) -> str:
        whole = f", and {self._machines} machine{'s' if self._machines > 1 else ''} around" if self.bare else ""
        return f"{self.count} × {self.row['what']}{whole}"

    def total(self, months: int, share: float) -> Range:
        """USD of all parts."""
        return _sum(found for _name, found, _text in self.parts(months, share))

    def paid(self, months: int, share: float) -> Range:
        """USD that have been paid by the end of so many months: nobody sells the machines to see whether they paid."""
        return _sum(found for name, found, _text in self.parts(months, share) if name != "resale")


def owned(rows: Sequence[Row], card: str, cards: int, given: dict[str, float]) -> list[Own]:
    """Every way to buy so many of a card, cheapest first: a machine of more cards than are wanted only where there is no other.

    Args:
        rows: prices of machines and cards.
        card: the card.
        cards: how many.
        given: rates of the person, by name.
    """
    known = [row for row in rows if row["card"] == card and row.get("power_w")]
    found = []
    for row in [row for row in known if row["cards"] <= cards] or known:
        count = math.ceil(cards / row["cards"])
        found.append(Own(row, count, standard_rates(given, row["price_usd"] * count)))
    return sorted(found, key=lambda each: each.price.value)


def standard_rates(given: dict[str, float], price: float) -> dict[str, Range]:
    """What surrounds a machine: the tables' rates, or a person's own. A machine at home needs neither people nor a rack."""
    home = price < HOME
    rates = {
        "electricity": Range(rate("electricity_us_industrial").value, rate("electricity_us_commercial").value, 0.25),
        "pue": Range(1.0, 1.0, 1.2) if home else rate("pue_survey"),
        "draw": Range(rate("draw_of_maximum").low, rate("draw_of_maximum").value, 1.0),
        "idle": rate("idle_of_maximum"),
        "space": exactly(0) if home else rate("colocation_kw_month"),
        "interest": rate("interest"),
        "support": Range(0.0, 0.0, 0.05) if home else rate("support_year"),
        "people": exactly(0) if home else _people(),
        "extras": Range(0.0, 0.0, 0.1) if home else rate("extras_price"),
        "resale": _resale(),
    }
    return {**rates, **{name: exactly(value) for name, value in given.items()}}


#: USD below which a machine stands in an office: nobody is paid for it, and no rack is rented.
HOME = 30_000


def _people() -> Range:
    cost, each = rate("admin_usd_year"), rate("hosts_per_admin")
    return Range(cost.low / each.high, cost.value / each.value, cost.high / each.low)


def _resale() -> Range:
    """What is left of the value each year, by what is left after three."""
    left = rate("resale_3_years")
    return Range(left.low ** (1 / 3), left.value ** (1 / 3), left.high ** (1 / 3))


def rate(name: str) -> Range:
    """A rate of the tables; where nobody says the least or the most, the usual is both."""
    row = next(row for row in tables.load()["prices"]["rates"] if row["name"] == name)
    low, high = (row["value"] if row[key] is None else row[key] for key in ("low", "high"))
    return Range(low, row["value"], high)


def priced() -> set[str]:
    """The cards of which the tables have a price."""
    return {row["card"] for table in ("cloud", "owning") for row in tables.load()["prices"][table]}


@dataclass(frozen=True)
class Hourly:
    """The cheapest hour of so many cards that nobody takes away and that binds nobody: USD, and how."""

    usd: float
    how: str


@cache
def hourly(card: str, cards: int) -> Hourly | None:
    """What an hour of so many of a card costs at the least, on demand or owned as long and as busily as usual; None without a price."""
    prices, share = tables.load()["prices"], rate("utilisation_owned").value
    ways = [Hourly(each.rate, each.name) for each in rents(prices["cloud"], card, cards) if each.kind == "on demand"]
    for each in owned(prices["owning"], card, cards, {}):
        used = share * hours(KEPT)
        ways.append(Hourly(each.total(KEPT, share).value / used, f"owned, {each.row['what']}"))
    return min(ways, key=lambda each: each.usd, default=None)


def break_even(own: Sequence[float], rent: Sequence[float]) -> int | None:
    """The month from which on no more has been paid for owning than for renting, to the last one; None where there is none.

    Args:
        own: USD that have been paid by the end of each month, from 0 on, as they are plotted.
        rent: the same of renting.
    """
    found = None
    for month in reversed(range(len(own))):
        if own[month] > rent[month]:
            break
        found = month
    return found


def _sum(ranges: Iterable[Range]) -> Range:
    every = list(ranges)
    return Range(sum(each.low for each in every), sum(each.value for each in every), sum(each.high for each in every))


def _product(*ranges: Range) -> Range:
    ends = [(each.low, each.value, each.high) for each in ranges]
    low, value, high = (math.prod(column) for column in zip(*ends, strict=True))
    return Range(low, value, high)


def age(day: str, today: date) -> int:
    """Days since a price was read."""
    return max((today - date.fromisoformat(day)).days, 0)

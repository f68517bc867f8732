"""A person's own file of prices: rows as compat/sizing/prices.yaml has them, reduced to what is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from gpuwright.errors import BadInput
from gpuwright.sizing.costing import standard_rates
from gpuwright.sizing.units import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwright.sizing.tables import Row

_EXAMPLE = (
    "for example `cloud: [{provider: us, instance: rack 3, card: H100, gpus: 8, on_demand: 20.0, date: 2026-11-01}]`"
)
#: No price is higher than this.
_MOST = 1e12
#: What a row needs, and what it may say.
_CLOUD = ({"provider", "instance", "card", "gpus"}, {"on_demand", "spot", "commitments", "system", "region", "date"})
_OWNING = ({"what", "card", "cards", "price_usd", "power_w"}, {"price_low", "price_high", "machines", "date"})
_NUMBERS = ("gpus", "cards", "on_demand", "spot", "price_usd", "price_low", "price_high", "power_w", "machines")
_WHOLE = ("gpus", "cards", "machines")


@dataclass(frozen=True)
class Prices:
    """What a file says.

    Attributes:
        cloud: prices to rent.
        owning: prices to buy.
        rates: what surrounds a machine, by name.
        alone: whether the tables' prices are left out (`only: true`).
    """

    cloud: tuple[Row, ...] = ()
    owning: tuple[Row, ...] = ()
    rates: dict[str, float] = field(default_factory=dict)
    alone: bool = False


def read(document: dict[str, object], card_called: Callable[[str], str], today: date) -> Prices:
    """The prices of a file.

    Args:
        document: what the file holds.
        card_called: the tables' name of a card, as a person writes it.
        today: the day of a price that has none.

    Raises:
        BadInput: a key is not known, a row lacks something, or a number is none.
    """
    _keys("the file of prices", document, (set(), {"cloud", "owning", "rates", "only"}))
    return Prices(
        cloud=tuple(
            _row(f"cloud[{at}]", row, _CLOUD, card_called, today) for at, row in enumerate(_list(document, "cloud"))
        ),
        owning=tuple(
            _row(f"owning[{at}]", row, _OWNING, card_called, today) for at, row in enumerate(_list(document, "owning"))
        ),
        rates=_rates(document.get("rates") or {}),
        alone=_truth("only", document.get("only")),
    )


def _list(document: dict[str, object], name: str) -> list[object]:
    rows = document.get(name) or []
    if not isinstance(rows, list):
        raise BadInput(f"{name} in the file of prices has to be a list of rows", [_EXAMPLE])
    return rows


def _row(
    place: str, row: object, keys: tuple[set[str], set[str]], card_called: Callable[[str], str], today: date
) -> Row:
    if not isinstance(row, dict):
        raise BadInput(f"{place} in the file of prices has to be a row", [_EXAMPLE])
    _keys(place, row, keys)
    found: Row = {**row, "card": card_called(str(row["card"])), "date": _day(place, row.get("date"), today)}
    for name in _NUMBERS:
        if row.get(name) is not None:
            found[name] = _number(f"{place}: {name}", row[name], whole=name in _WHOLE)
    low, high = (found.get(name) or found.get("price_usd", 0.0) for name in ("price_low", "price_high"))
    if not low <= found.get("price_usd", 0.0) <= high:
        raise BadInput(f"{place}: price_usd has to be from price_low to price_high")
    commitments = row.get("commitments") or []
    if not isinstance(commitments, list):
        raise BadInput(f"{place}: commitments has to be a list", [_EXAMPLE])
    found["commitments"] = [_commitment(f"{place}: commitments[{at}]", each) for at, each in enumerate(commitments)]
    if not any(found.get(name) for name in ("on_demand", "spot", "commitments", "price_usd")):
        raise BadInput(f"{place} has no price", [_EXAMPLE])
    return found


def _commitment(place: str, row: object) -> Row:
    if not isinstance(row, dict):
        raise BadInput(f"{place} has to be a row", ["for example {years: 1, usd_hour: 12.5, name: reserved}"])
    _keys(place, row, ({"years", "usd_hour"}, {"name", "upfront"}))
    years = _number(f"{place}: years", row["years"], whole=True)
    return {
        "years": years,
        "usd_hour": _number(f"{place}: usd_hour", row["usd_hour"]),
        "name": str(row.get("name") or "commitment"),
        "upfront": _truth(f"{place}: upfront", row.get("upfront")),
    }


def _rates(rates: object) -> dict[str, float]:
    names = set(standard_rates({}, 1e9))
    if not isinstance(rates, dict):
        raise BadInput(
            "rates in the file of prices has to be names with numbers", [f"known: {', '.join(sorted(names))}"]
        )
    _keys("rates", rates, (set(), names))
    return {str(name): _number(f"rates: {name}", value, zero=True) for name, value in rates.items()}


def _keys(place: str, row: dict[str, object], keys: tuple[set[str], set[str]]) -> None:
    needed, more = keys
    unknown, missing = set(map(str, row)) - needed - more, needed - set(row)
    if unknown:
        raise BadInput(
            f"{place} has {', '.join(sorted(unknown))}, which is not known",
            [f"known: {', '.join(sorted(needed | more))}"],
        )
    if missing:
        raise BadInput(f"{place} lacks {', '.join(sorted(missing))}", [_EXAMPLE])


def _number(place: str, value: object, *, whole: bool = False, zero: bool = False) -> float:
    right = (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and (0 < value <= _MOST or (zero and value == 0))
    )
    if not right or (whole and value != int(value)):  # type: ignore[call-overload]
        raise BadInput(f"{place} has to be a {'whole ' if whole else ''}number above 0, found {excerpt(value)}")
    return int(value) if whole else float(value)  # type: ignore[call-overload, arg-type]


def _truth(place: str, value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise BadInput(f"{place} has to be true or false, found {excerpt(value)}")
    return bool(value)


def _day(place: str, value: object, today: date) -> str:
    if value is None:
        return today.isoformat()
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise BadInput(f"{place}: date has to be a day, found {excerpt(value)}", ["for example 2026-11-01"]) from None

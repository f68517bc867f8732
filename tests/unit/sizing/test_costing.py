"""Prices: the guides' own arithmetic, each part of owning, and a person's own file."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing import cards, costing, prices, tables
from gpuwright.sizing.costing import HOURS_A_YEAR, Own, Rent
from gpuwright.sizing.figures import Range

TODAY = date(2026, 11, 27)
PRICES: dict[str, Any] = tables.load()["prices"]
GUIDES = next(row for row in PRICES["owning"] if "the guides" in row["what"])
P4D = next(row for row in PRICES["cloud"] if row["source"] == ["guides"])
#: What the guides count and no more: power at its most, and upkeep.
PLAIN = {
    "electricity": GUIDES["electricity_usd_kwh"],
    "pue": 1.0,
    "draw": 1.0,
    "space": 0.0,
    "interest": 0.0,
    "support": GUIDES["upkeep_usd_year"] / GUIDES["price_usd"],
    "people": 0.0,
    "extras": 0.0,
    "resale": 0.0,
}


def rates(**given: float) -> dict[str, Range]:
    return costing.standard_rates({**PLAIN, **given}, 1e6)


def own(**given: float) -> Own:
    return Own(GUIDES, 1, rates(**given))


def rent(kind: str) -> Rent:
    return next(each for each in costing.rents([P4D], "A100 SXM4 40GB", 80) if each.kind.startswith(kind))


# the guides' figures ----------------------------------------------------------------------------------


def test_ten_instances_cost_by_the_hour_what_the_guides_say() -> None:
    assert [round(rent(kind).rate / 10, 3) for kind in ("on demand", "spot", "savings plan")] == [32.784, 9.835, 22.949]


def test_a_year_of_owning_is_what_the_guides_count() -> None:
    """1.25 M to buy; 80 kW at 0.12 USD for 8760 hours are 84,096; and 20,000."""
    parts = {name: found.value for name, found, _text in own().parts(1, 1.0)}
    assert parts["machines"] == 1_250_000
    assert parts["power"] == pytest.approx(84_096)
    assert parts["support"] == pytest.approx(20_000)
    assert own().total(1, 1.0).value == pytest.approx(1_354_096)


def test_owning_pays_after_so_many_months() -> None:
    """Ten instances cost 327.84 an hour, 239,323 a month; owning 1,250,000 and 8,675 a month: 5.42 months, so the sixth."""
    assert costing.break_even(own(), rent("on demand"), 1.0, 3) == pytest.approx(6 / 12)
    # Spot at 98.35 an hour: 71,796 a month, 1,250,000 / 63,121 = 19.8.
    assert costing.break_even(own(), rent("spot"), 1.0, 3) == pytest.approx(20 / 12)


def test_owning_that_computes_seldom_never_pays() -> None:
    assert costing.break_even(own(), rent("spot"), 0.05, 3) is None


def test_the_guides_tflops_of_an_h100_are_sparse_and_ours_dense() -> None:
    assert cards.known()["H100 SXM5 80GB"].peak("bf16") == pytest.approx(1979e12 / 2, rel=0.001)


# parts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"pue": 1.5}, 0.5 * 84_096),
        ({"draw": 0.5}, -0.5 * 84_096),
        ({"electricity": 0.24}, 84_096),
        ({"interest": 0.08}, 0.04 * 1_250_000),
        ({"space": 200.0}, 200 * 80 * 12),
        ({"people": 1000.0}, 10_000),
        ({"extras": 0.1}, 125_000 + 0.1 * 20_000),
        ({"resale": 0.7}, -0.7 * 1_250_000),
    ],
)
def test_each_rate_changes_the_total_by_its_own_part(given: dict[str, float], more: float) -> None:
    assert own(**given).total(1, 1.0).value - own().total(1, 1.0).value == pytest.approx(more)


def test_a_price_of_a_card_alone_has_a_machine_around_it() -> None:
    row = {"what": "a card", "card": "x", "cards": 1, "price_usd": 1000.0, "power_w": 300.0, "date": "2026-01-01"}
    one = Own(row, 8, rates())
    assert one.price.value == pytest.approx(8000 * 1.64)
    assert one.kilowatts == pytest.approx(2.4 * 1.82)


def test_at_home_nobody_is_paid_and_no_rack_is_rented() -> None:
    small, large = (costing.standard_rates({}, price) for price in (2_000, 2_000_000))
    assert (small["people"].value, small["space"].value, small["pue"].value) == (0, 0, 1)
    assert large["people"].value > 1000
    assert large["pue"].value > 1.1


def test_every_range_of_the_tables_is_one() -> None:
    for found in costing.standard_rates({}, 1e6).values():
        assert found.low <= found.value <= found.high


def test_a_commitment_is_paid_for_whether_it_computes_or_not() -> None:
    plan = rent("savings plan")
    assert plan.total(10).value == plan.total(HOURS_A_YEAR).value == pytest.approx(plan.rate * HOURS_A_YEAR)
    assert plan.total(2 * HOURS_A_YEAR).value == pytest.approx(plan.rate * 2 * HOURS_A_YEAR)


def test_spot_goes_back_to_the_last_checkpoint_as_often_as_an_instance_is_taken_away() -> None:
    """Ten instances, of which 5 to 20 % go in a month of 730 hours; each time half of three hours, and half an hour to begin again."""
    row = {"provider": "x", "instance": "x", "card": "x", "gpus": 8, "spot": 1.0, "date": "2026-11-01"}
    (spot,) = costing.rents([row], "x", 80)
    found = spot.total(100)
    assert found.low == pytest.approx(1000 * (1 + 0.05 * 10 * 2 / 730))
    assert found.high == pytest.approx(1000 * (1 + 0.20 * 10 * 2 / 730))
    assert found.low < found.value < found.high


def test_an_instance_that_is_known_to_be_taken_often_costs_more() -> None:
    row = {"provider": "aws", "card": "x", "gpus": 8, "spot": 1.0, "date": "2026-11-01"}
    often, seldom = (
        costing.rents([{**row, "instance": name}], "x", 8)[0].total(100).high for name in ("p3.2xlarge", "of nobody")
    )
    assert often > seldom


def test_a_price_is_old_by_the_day_that_it_was_read() -> None:
    assert rent("on demand").age(TODAY) == (TODAY - date(2025, 5, 31)).days > costing.OLD


def test_whole_instances_are_rented() -> None:
    assert [each.instances for each in costing.rents([P4D], "A100 SXM4 40GB", 9)] == [2, 2, 2]
    assert costing.rents([P4D], "H100 PCIe", 9) == []


# a person's own file ----------------------------------------------------------------------------------

CLOUD = {"provider": "us", "instance": "rack 3", "card": "h100", "gpus": 8, "on_demand": 20.0}
OWNING = {"what": "our servers", "card": "h100", "cards": 8, "price_usd": 250_000, "power_w": 10_000}


def read(document: dict[str, Any]) -> prices.Prices:
    return prices.read(document, str.upper, TODAY)


def test_a_file_of_prices_is_read_and_its_card_is_named_as_the_tables_do() -> None:
    commitment = {"years": 1, "usd_hour": 12.5}
    found = read(
        {"cloud": [{**CLOUD, "commitments": [commitment]}], "owning": [OWNING], "rates": {"pue": 1.2, "people": 0}}
    )
    assert [each.rate for each in costing.rents(found.cloud, "H100", 16)] == [25.0, 40.0]
    assert found.owning[0]["card"] == "H100"
    assert found.cloud[0]["date"] == "2026-11-27"
    assert found.rates == {"pue": 1.2, "people": 0.0}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"clouds": []}, "has clouds, which is not known"),
        ({"cloud": {}}, None),
        ({"cloud": 3}, "has to be a list"),
        ({"cloud": [3]}, r"cloud\[0\] in the file of prices has to be a row"),
        ({"cloud": [{**CLOUD, "price": 3}]}, r"cloud\[0\] has price, which is not known"),
        ({"cloud": [{key: value for key, value in CLOUD.items() if key != "gpus"}]}, r"cloud\[0\] lacks gpus"),
        ({"cloud": [{**CLOUD, "gpus": 0}]}, "gpus has to be a whole number above 0"),
        ({"cloud": [{**CLOUD, "gpus": 1.5}]}, "gpus has to be a whole number above 0"),
        ({"cloud": [{**CLOUD, "on_demand": -1}]}, "on_demand has to be a number above 0"),
        ({"cloud": [{**CLOUD, "on_demand": "20"}]}, "on_demand has to be a number above 0"),
        ({"cloud": [{**CLOUD, "on_demand": float("nan")}]}, "on_demand has to be a number above 0"),
        ({"cloud": [{**CLOUD, "on_demand": 1e300}]}, "on_demand has to be a number above 0"),
        ({"cloud": [{**CLOUD, "date": "yesterday"}]}, "date has to be a day"),
        ({"cloud": [{**CLOUD, "commitments": 3}]}, "commitments has to be a list"),
        ({"cloud": [{**CLOUD, "commitments": [{"years": 1}]}]}, "lacks usd_hour"),
        ({"owning": [{**OWNING, "power_w": True}]}, "power_w has to be a number above 0"),
        ({"rates": {"colour": 1}}, "rates has colour, which is not known"),
        ({"rates": {"pue": -1}}, "rates: pue has to be a number above 0"),
        ({"rates": [1]}, "names with numbers"),
    ],
)
def test_what_a_file_says_wrongly_is_told_by_its_place(document: dict[str, Any], said: str | None) -> None:
    if said is None:
        assert read(document) == prices.Prices(rates={})
        return
    with pytest.raises(BadInput, match=said):
        read(document)

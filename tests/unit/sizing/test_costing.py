"""Prices: the guides' own arithmetic, each part of owning over three years on two machines, and a person's own file."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuwright.errors import BadInput
from gpuwright.sizing import cards, cost_answer, costing, prices, tables
from gpuwright.sizing.costing import HOURS_A_YEAR, Own, Rent
from gpuwright.sizing.figures import Range, exactly

TODAY = date(2026, 11, 30)
ROOT = Path(__file__).resolve().parents[3]
A100 = "A100 SXM4 40GB"


def documented() -> dict[str, Any]:
    """The file of prices of docs/sizing.md: the guides' figures."""
    (text,) = re.findall(r"```yaml\n(---\n.*?)```", (ROOT / "docs/sizing.md").read_text(encoding="utf-8"), re.DOTALL)
    content: dict[str, Any] = yaml.safe_load(text)
    return content


GUIDES = prices.read(documented(), str, TODAY)
#: What the guides count and no more: power at its most, and upkeep.
PLAIN = {**GUIDES.rates, "idle": 0.0}
#: What is asked of most tests: three years at 60 %.
MONTHS, SHARE = 36, 0.6
USED = 3 * HOURS_A_YEAR * 0.6


def rates(**given: float) -> dict[str, Range]:
    return costing.standard_rates({**PLAIN, **given}, 1e6)


def own(**given: float) -> Own:
    """Two machines: a million each, 10 kW each."""
    row = {"what": "a machine", "card": "x", "cards": 8, "price_usd": 1e6, "power_w": 10_000, "date": "2026-01-01"}
    return Own(row, 2, rates(**{"electricity": 0.1, "support": 0.0, **given}))


def guides() -> Own:
    return Own(GUIDES.owning[0], 1, rates())


def rent(kind: str) -> Rent:
    return next(each for each in costing.rents(GUIDES.cloud, A100, 80) if each.kind.startswith(kind))


def way(rate: float = 10.0, **more: Any) -> Rent:
    """A way to rent at so much an hour."""
    row = {"provider": "x", "instance": "x", "card": "x", "gpus": 8}
    return Rent(
        **{"row": row, "kind": "on demand", "rate": rate, "instances": 1, "years": 0, "day": "2026-01-01", **more}
    )


# the guides' figures ----------------------------------------------------------------------------------


def test_ten_instances_cost_by_the_hour_what_the_guides_say() -> None:
    assert [round(rent(kind).rate / 10, 3) for kind in ("on demand", "spot", "savings plan")] == [32.784, 9.835, 22.949]


def test_a_year_of_owning_is_what_the_guides_count() -> None:
    """1.25 M to buy; 80 kW at 0.12 USD for 8760 hours are 84,096; and 20,000."""
    parts = {name: found.value for name, found, _text in guides().parts(12, 1.0)}
    assert parts["machines"] == 1_250_000
    assert parts["power"] == pytest.approx(84_096)
    assert parts["support"] == pytest.approx(20_000)
    assert guides().total(12, 1.0).value == pytest.approx(1_354_096)


def by_month(found: Own | Rent, share: float = 1.0, months: int = 36) -> list[float]:
    return [found.paid(month, share).value for month in range(months + 1)]


def test_owning_pays_after_so_many_months() -> None:
    """Ten instances cost 327.84 an hour, 239,323 a month; owning 1,250,000 and 8,675 a month: 5.42 months, so the sixth."""
    assert costing.break_even(by_month(guides()), by_month(rent("on demand"))) == 6
    # The savings plan at 229.49: 167,528 a month, 1,250,000 / 158,853 = 7.87.
    assert costing.break_even(by_month(guides()), by_month(rent("savings plan"))) == 8
    # Spot at 98.35 an hour: 71,796 a month, and 1.4 % computed again: 1,250,000 / 64,148 = 19.5.
    assert costing.break_even(by_month(guides()), by_month(rent("spot"))) == 20


def test_owning_that_computes_seldom_never_pays() -> None:
    assert costing.break_even(by_month(guides(), 0.05), by_month(rent("spot"), 0.05)) is None


def test_the_guides_tflops_of_an_h100_are_sparse_and_ours_dense() -> None:
    assert cards.known()["H100 SXM5 80GB"].peak("bf16") == pytest.approx(1979e12 / 2, rel=0.001)


# owning -----------------------------------------------------------------------------------------------

#: Two machines of 10 kW over three years at 60 %, at 0.1 USD a kWh: 20 kW x 15,768 h.
POWER = 20 * USED * 0.1


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({}, 0.0),
        ({"pue": 1.5}, 0.5 * POWER),
        ({"draw": 0.5}, -0.5 * POWER),
        # Idle hours are the other 40 %.
        ({"idle": 0.3}, 0.3 * 20 * 3 * HOURS_A_YEAR * 0.4 * 0.1),
        ({"electricity": 0.2}, POWER),
        ({"interest": 0.08}, 0.08 * 1e6 * 3),
        ({"support": 0.1}, 0.1 * 2e6 * 3),
        ({"space": 200.0}, 200 * 20 * 36),
        ({"people": 1000.0}, 1000 * 2 * 3),
        ({"extras": 0.1}, 0.1 * 2e6),
        ({"resale": 0.7}, -(0.7**3) * 2e6),
    ],
)
def test_each_rate_changes_the_total_by_its_own_part(given: dict[str, float], more: float) -> None:
    """Three years at 60 %, two machines: so that no year, no share and no machine is forgotten."""
    assert own().total(MONTHS, SHARE).value == pytest.approx(2e6 + POWER)
    assert own(**given).total(MONTHS, SHARE).value - own().total(MONTHS, SHARE).value == pytest.approx(more)


def test_what_is_paid_is_all_but_the_resale() -> None:
    found = own(resale=0.7, interest=0.08, support=0.1)
    assert found.paid(MONTHS, SHARE).value == pytest.approx(found.total(MONTHS, SHARE).value + 0.7**3 * 2e6)
    assert found.paid(0, SHARE).value == pytest.approx(2e6)


def test_the_least_of_owning_is_of_the_least_of_each_part_and_the_most_of_the_most() -> None:
    row = {
        "what": "a machine",
        "card": "x",
        "cards": 8,
        "price_usd": 1e6,
        "price_low": 0.9e6,
        "price_high": 1.2e6,
        "power_w": 1e4,
    }
    given = rates(electricity=0.1) | {
        "draw": Range(0.5, 0.75, 1.0),
        "idle": Range(0.1, 0.2, 0.3),
        "resale": Range(0.6, 0.7, 0.8),
        "extras": Range(0.0, 0.1, 0.2),
        "support": exactly(0),
    }
    parts = {name: found for name, found, _text in Own(row, 2, given).parts(24, 0.6)}
    machines = parts["machines"]
    assert (machines.low, machines.value, machines.high) == pytest.approx((1.8e6, 2.2e6, 2.88e6))
    resale = parts["resale"]
    assert (resale.low, resale.value, resale.high) == pytest.approx((-2.88e6 * 0.64, -2.2e6 * 0.49, -1.8e6 * 0.36))
    kwh = 20 * 2 * HOURS_A_YEAR * 0.1
    power = parts["power"]
    draws = (0.6 * 0.5 + 0.4 * 0.1, 0.6 * 0.75 + 0.4 * 0.2, 0.6 * 1.0 + 0.4 * 0.3)
    assert (power.low, power.value, power.high) == pytest.approx(tuple(kwh * draw for draw in draws))
    total = Own(row, 2, given).total(24, 0.6)
    assert total.low == pytest.approx(sum(found.low for found in parts.values()))
    assert total.high == pytest.approx(sum(found.high for found in parts.values()))


def test_a_price_of_a_card_alone_has_a_machine_around_it() -> None:
    row = {"what": "a card", "card": "x", "cards": 1, "price_usd": 1000.0, "power_w": 300.0, "date": "2026-01-01"}
    nine = Own(row, 9, rates(people=1000))
    assert nine.price.value == pytest.approx(9000 * 1.64)
    assert nine.kilowatts == pytest.approx(2.7 * 1.82)
    # Eight cards to a machine: two of them.
    parts = {name: (found.value, text) for name, found, text in nine.parts(MONTHS, SHARE)}
    assert parts["people"][0] == pytest.approx(1000 * 2 * 3)
    assert parts["machines"][1] == "9 × a card, and 2 machines around"
    assert Own(row, 8, rates()).parts(MONTHS, SHARE)[0][2] == "8 × a card, and 1 machine around"
    assert "4.9 kW at most, 100% of it computing and 0% idle, PUE 1, 0.12 USD a kWh" in parts["power"][1]


def test_each_part_says_what_it_is_counted_with() -> None:
    row = {"what": "a machine", "card": "x", "cards": 8, "price_usd": 1e6, "power_w": 10_000}
    texts = {name: text for name, _found, text in Own(row, 2, costing.standard_rates({}, 2e6)).parts(MONTHS, SHARE)}
    assert texts == {
        "machines": "2 × a machine",
        "resale": "0.669 of its value each year",
        "interest": "8.0% a year on half of the price",
        "support": "10.0% of the price a year",
        "power": "20.0 kW at most, 75% of it computing and 22% idle, PUE 1.54, 0.1354 USD a kWh",
        "space": "200 USD a kW and month",
        "people": "2,700 USD a machine and year",
    }


def test_a_row_of_several_machines_is_as_many() -> None:
    found = Own(GUIDES.owning[0], 2, rates(people=1000))
    assert next(part.value for name, part, _text in found.parts(MONTHS, SHARE) if name == "people") == 1000 * 20 * 3


def test_at_home_nobody_is_paid_and_no_rack_is_rented() -> None:
    small, large = (costing.standard_rates({}, price) for price in (29_999, 30_000))
    assert [small[name].value for name in ("people", "space", "support", "extras", "pue")] == [0, 0, 0, 0, 1]
    people = large["people"]
    assert (people.low, people.value, people.high) == pytest.approx((95_000 / 200, 135_000 / 50, 200_000 / 20))
    assert [large[name].value for name in ("space", "support", "extras", "pue")] == [200, 0.1, 0.125, 1.54]
    assert small["extras"] == Range(0, 0, 0.1)
    assert small["support"] == Range(0, 0, 0.05)
    assert small["pue"] == Range(1, 1, 1.2)
    assert small["electricity"] == large["electricity"] == Range(0.0871, 0.1354, 0.25)


def test_each_machine_is_at_home_or_not_by_its_own_price() -> None:
    rows = [
        {"what": "a card", "card": "x", "cards": 1, "price_usd": 2000.0, "power_w": 300.0, "date": "2026-01-01"},
        {"what": "a server", "card": "x", "cards": 4, "price_usd": 40_000.0, "power_w": 3000.0, "date": "2026-01-01"},
    ]
    cheap, dear = costing.owned(rows, "x", 4, {})
    assert (cheap.row["what"], cheap.rates["people"].value) == ("a card", 0)
    assert dear.row["what"] == "a server"
    assert dear.rates["people"].value == pytest.approx(2700)
    # Fifteen cards are 30,000 USD: no longer at home.
    assert [each.count for each in costing.owned(rows, "x", 15, {})] == [15, 4]
    assert all(each.rates["people"].value for each in costing.owned(rows, "x", 15, {}))


def test_nobody_buys_eight_cards_to_have_one_unless_there_is_no_other() -> None:
    row = {"card": "x", "price_usd": 2000.0, "power_w": 300.0, "date": "2026-01-01"}
    one, eight = {**row, "what": "one", "cards": 1}, {**row, "what": "eight", "cards": 8}
    assert [each.row["what"] for each in costing.owned([one, eight], "x", 7, {})] == ["one"]
    assert {each.row["what"] for each in costing.owned([one, eight], "x", 8, {})} == {"one", "eight"}
    assert [each.row["what"] for each in costing.owned([eight], "x", 7, {})] == ["eight"]
    assert costing.owned([one], "y", 1, {}) == []
    # What may become dearer than another is not dearer as it is.
    wide, sure = {**one, "what": "wide", "price_high": 9000.0}, {**one, "what": "sure", "price_usd": 2100.0}
    assert [each.row["what"] for each in costing.owned([sure, wide], "x", 1, {})] == ["wide", "sure"]


def test_a_person_s_own_rates_go_before_the_tables() -> None:
    found = costing.standard_rates({"pue": 1.1, "resale": 0.5}, 1e6)
    assert (found["pue"], found["resale"]) == (exactly(1.1), exactly(0.5))


def test_a_machine_is_sold_after_three_years_for_what_the_tables_say() -> None:
    left = costing.standard_rates({}, 1e6)["resale"]
    assert (left.low**3, left.value**3, left.high**3) == pytest.approx((0.25, 0.3, 0.35))


def test_every_range_of_the_tables_is_one() -> None:
    for found in costing.standard_rates({}, 1e6).values():
        assert found.low <= found.value <= found.high


# renting ----------------------------------------------------------------------------------------------


def test_by_the_hour_the_hours_that_compute_are_paid() -> None:
    assert way().paid(MONTHS, SHARE) == way().total(MONTHS, SHARE)
    assert way().paid(MONTHS, SHARE).low == way().paid(MONTHS, SHARE).high == pytest.approx(10 * USED)
    assert way().paid(0, SHARE).value == 0


def test_a_commitment_is_paid_for_whether_it_computes_or_not() -> None:
    plan = way(years=1, kind="reserved")
    assert plan.paid(MONTHS, SHARE).value == plan.paid(MONTHS, 0.01).value == pytest.approx(10 * 3 * HOURS_A_YEAR)
    assert plan.paid(6, SHARE).value == pytest.approx(10 * HOURS_A_YEAR / 2)
    # What was begun is paid to its end.
    assert [plan.total(months, SHARE).value for months in (6, 12, 13)] == pytest.approx(
        [10 * HOURS_A_YEAR, 10 * HOURS_A_YEAR, 20 * HOURS_A_YEAR]
    )


def test_all_upfront_is_paid_at_once_and_again_when_the_next_term_begins() -> None:
    plan = way(years=1, kind="reserved", upfront=True)
    year = 10 * HOURS_A_YEAR
    assert [plan.paid(months, SHARE).value / year for months in (0, 1, 12, 13, 24, 25, 36)] == [1, 1, 1, 2, 2, 3, 3]
    assert way(years=3, upfront=True).paid(0, SHARE).value == pytest.approx(3 * year)


def test_a_table_says_which_commitment_is_paid_at_once() -> None:
    rows = [{"provider": "x", "instance": "x", "card": "x", "gpus": 8, "date": "2026-11-01",
             "commitments": [{"years": 1, "usd_hour": 3.0, "name": "plan, all upfront", "upfront": True},
                             {"years": 3, "usd_hour": 2.0, "name": "plan", "date": "2026-10-01"}]}]  # fmt: skip
    later, once = costing.rents(rows, "x", 16)
    assert (once.upfront, once.kind, once.rate, once.day) == (True, "plan, all upfront, 1 year", 6.0, "2026-11-01")
    assert (later.upfront, later.kind, later.rate, later.day) == (False, "plan, 3 years", 4.0, "2026-10-01")


def test_spot_goes_back_to_the_last_checkpoint_as_often_as_an_instance_is_taken_away() -> None:
    """Ten instances, of which 5 to 20 % go in a month of 730 hours; each time half of three hours, and half an hour to begin again."""
    row = {"provider": "x", "instance": "x", "card": "x", "gpus": 8, "spot": 1.0, "date": "2026-11-01"}
    (spot,) = costing.rents([row], "x", 80)
    found = spot.total(MONTHS, SHARE)
    assert found.low == pytest.approx(10 * USED * (1 + 0.05 * 10 * 2 / 730))
    assert found.value == pytest.approx(10 * USED * (1 + 0.125 * 10 * 2 / 730))
    assert found.high == pytest.approx(10 * USED * (1 + 0.20 * 10 * 2 / 730))


def test_the_day_of_a_spot_price_is_its_own() -> None:
    row = {
        "provider": "x",
        "instance": "x",
        "card": "x",
        "gpus": 8,
        "spot": 1.0,
        "on_demand": 2.0,
        "date": "2026-11-01",
    }
    assert [each.day for each in costing.rents([{**row, "spot_date": "2026-07-01"}], "x", 8)] == [
        "2026-07-01",
        "2026-11-01",
    ]
    assert [each.day for each in costing.rents([row], "x", 8)] == ["2026-11-01", "2026-11-01"]


def test_an_instance_is_taken_as_often_as_in_its_own_region() -> None:
    row = {"provider": "aws", "instance": "p5.48xlarge", "card": "x", "gpus": 8, "spot": 1.0, "date": "2026-11-01"}

    def again(region: str) -> Range:
        (spot,) = costing.rents([{**row, "region": region}], "x", 8)
        return spot.again

    assert again("us-east-1").low == pytest.approx(1 + 0.20 * 2 / 730)
    assert again("us-east-2").high == pytest.approx(1 + 0.10 * 2 / 730)
    # Where nobody looked, it may be as anywhere.
    assert (again("eu-west-1").low, again("eu-west-1").high) == pytest.approx((1 + 0.05 * 2 / 730, 1 + 2 / 730))


def test_a_price_is_old_by_the_day_that_it_was_read() -> None:
    assert costing.age(rent("on demand").day, TODAY) == (TODAY - date(2025, 5, 31)).days == 548 > costing.OLD
    for today, days in ((TODAY, 548), (date(2025, 1, 1), 0)):
        found = ask(today=today)
        assert {row["age_days"] for row in [*found["rent"], *found["own"]]} == {days}


def test_whole_instances_are_rented() -> None:
    assert [each.instances for each in costing.rents(GUIDES.cloud, A100, 9)] == [2, 2, 2]
    assert costing.rents(GUIDES.cloud, "H100 PCIe", 9) == []


def test_nobody_rents_eight_cards_to_have_one_unless_there_is_no_other() -> None:
    row = {"provider": "x", "card": "x", "on_demand": 1.0, "date": "2026-11-01"}
    one, eight = {**row, "instance": "one", "gpus": 1}, {**row, "instance": "eight", "gpus": 8}
    assert [each.row["instance"] for each in costing.rents([one, eight], "x", 7)] == ["one"]
    assert {each.row["instance"] for each in costing.rents([one, eight], "x", 8)} == {"one", "eight"}
    assert [each.row["instance"] for each in costing.rents([eight], "x", 7)] == ["eight"]


def test_what_is_rented_card_by_card_is_not_a_cluster() -> None:
    row = {"provider": "x", "instance": "x", "card": "x", "gpus": 1, "most": 8, "on_demand": 1.0, "date": "2026-11-01"}
    assert len(costing.rents([row], "x", 8)) == 1
    assert costing.rents([row], "x", 9) == []


def test_owning_has_paid_from_the_month_from_which_on_no_more_is_paid() -> None:
    assert costing.break_even([5, 5, 5, 5], [0, 4, 5, 9]) == 2
    assert costing.break_even([5, 5, 5, 5], [5, 6, 7, 8]) == 0
    assert costing.break_even([5, 5, 5, 5], [0, 6, 4, 6]) == 3
    assert costing.break_even([5, 5, 5, 5], [0, 6, 6, 4]) is None


def test_the_cheapest_hour_is_rented_on_demand_or_owned() -> None:
    found = costing.hourly("L4", 2)
    assert found is not None
    assert found.usd == pytest.approx(2 * 0.49)
    assert found.how == "runpod L4, secure, on demand"
    # Nobody of the tables rents it: 329 USD, 170 W, a machine around it, for three years at half of the hours.
    alone = costing.hourly("GeForce RTX 3060 12GB", 1)
    (bought,) = costing.owned(tables.load()["prices"]["owning"], "GeForce RTX 3060 12GB", 1, {})
    assert alone is not None
    assert alone.usd == pytest.approx(bought.total(36, 0.5).value / (3 * HOURS_A_YEAR * 0.5))
    assert alone.how == "owned, GeForce RTX 3060 12GB"
    assert costing.hourly("Tesla K80", 1) is None


# the answer -------------------------------------------------------------------------------------------


def ask(**more: Any) -> cost_answer.CostAnswer:
    asked = {"card": A100, "cards": 80, "months": MONTHS, "share": exactly(SHARE), "today": TODAY, "alone": True,
             "cloud": GUIDES.cloud, "owning": GUIDES.owning, "own_rates": GUIDES.rates}  # fmt: skip
    return cost_answer.cost(cost_answer.Asked(**{**asked, **more}))


def figure(name: str, value: float) -> Any:
    return {"name": name, "low": value / 2, "value": value, "high": value * 2, "unit": "", "text": ""}


def test_every_row_covers_the_same_time() -> None:
    found = ask()
    totals = {row["kind"]: row["total"]["value"] for row in found["rent"]}
    assert totals["on demand"] == pytest.approx(327.84 * USED)
    assert totals["savings plan, 1 year"] == pytest.approx(229.49 * 3 * HOURS_A_YEAR)
    assert found["own"][0]["total"]["value"] == pytest.approx(guides_at(MONTHS, SHARE))
    assert {row["total"]["text"] for row in [*found["rent"], *found["own"]]} == {"3 years at 60% of the hours"}
    assert [row["total"]["value"] for row in found["rent"]] == sorted(totals.values())


def guides_at(months: int, share: float) -> float:
    return Own(GUIDES.owning[0], 1, costing.standard_rates(GUIDES.rates, 1e6)).total(months, share).value


def test_an_hour_that_computes_costs_what_all_hours_cost_by_those_that_compute() -> None:
    found = ask()
    hour = {row["kind"]: row["usd_hour_used"] for row in found["rent"]}
    assert hour["on demand"] == pytest.approx(327.84)
    assert hour["savings plan, 1 year"] == pytest.approx(229.49 / SHARE)
    assert found["own"][0]["usd_hour_used"] == pytest.approx(guides_at(MONTHS, SHARE) / USED)
    spot = next(row for row in found["rent"] if row["kind"] == "spot")
    assert spot["total"]["low"] < spot["total"]["value"] < spot["total"]["high"]
    assert spot["usd_hour_used"] == pytest.approx(spot["total"]["value"] / USED)


def test_the_tables_prices_are_there_unless_they_are_left_out() -> None:
    asked = cost_answer.Asked("L4", 1, MONTHS, exactly(SHARE), TODAY)
    assert {row["provider"] for row in cost_answer.cost(asked)["rent"]} >= {"aws", "gcp", "runpod"}


def test_a_job_and_a_million_tokens_cost_their_part_of_the_hours() -> None:
    found = ask(hours=Range(50, 100, 200), speed=figure("tokens a second", 1000.0))
    by_the_hour = next(row for row in found["rent"] if row["kind"] == "on demand")
    job, million = by_the_hour["job"], by_the_hour["usd_million"]
    assert (job["low"], job["value"], job["high"]) == pytest.approx((16392, 32784, 65568))
    # 3.6 million tokens an hour.
    assert million["value"] == pytest.approx(327.84 / 3.6)
    assert (million["low"], million["high"]) == pytest.approx((327.84 / 7.2, 327.84 / 1.8))
    spot = next(row for row in found["rent"] if row["kind"] == "spot")
    hours = [spot["total"][key] / USED for key in ("low", "value", "high")]
    assert [spot["job"][key] for key in ("low", "value", "high")] == pytest.approx(
        [hours[0] * 50, hours[1] * 100, hours[2] * 200]
    )
    assert [spot["usd_million"][key] for key in ("low", "value", "high")] == pytest.approx(
        [hours[0] / 7.2, hours[1] / 3.6, hours[2] / 1.8]
    )
    assert found["hours"] is not None
    assert found["hours"]["text"] == "on 80 cards"
    assert "job" not in ask()["rent"][0]
    assert ask()["hours"] is ask()["tokens_second"] is None


def test_the_break_even_is_where_the_plotted_lines_cross() -> None:
    found = ask(months=24)
    lines = {line["name"]: dict(line["points"]) for line in found["plot"]}
    bought = lines["own 10 DGX A100"]
    assert [len(points) for points in lines.values()] == [25] * 4
    for even in found["own"][0]["break_even"]:
        renting, months = lines[even["against"]], even["months"]
        assert even["within"] == 24
        if months is None:
            assert bought[24] > renting[24]
            continue
        assert even["hours"] == pytest.approx(months / 12 * HOURS_A_YEAR * SHARE)
        assert all(bought[month] <= renting[month] for month in range(months, 25))
        assert bought[months - 1] > renting[months - 1]
    assert {even["months"] for even in found["own"][0]["break_even"]} == {None, 8, 10}


def test_the_line_of_owning_has_no_resale_and_the_total_has() -> None:
    (own,) = ask(own_rates={**GUIDES.rates, "resale": 0.5})["own"]
    line = dict(ask(own_rates={**GUIDES.rates, "resale": 0.5})["plot"][-1]["points"])
    assert line[MONTHS] == pytest.approx(own["total"]["value"] + 0.5**3 * 1_250_000)
    assert line[0] == 1_250_000


def test_owning_is_held_against_the_cheapest_of_each_kind_and_of_the_commitments() -> None:
    more = {**GUIDES.cloud[0], "instance": "dearer", "on_demand": 99.0, "spot": 88.0,
            "commitments": [{"years": 3, "usd_hour": 77.0, "name": "other"}]}  # fmt: skip
    names = [line["name"] for line in ask(cloud=(more, *GUIDES.cloud))["plot"]]
    assert names == [
        "aws p4d.24xlarge, spot",
        "aws p4d.24xlarge, on demand",
        "aws p4d.24xlarge, savings plan, 1 year",
        "own 10 DGX A100",
    ]


def test_the_verdict_says_whether_to_buy_and_for_how_much() -> None:
    yes = ask()
    assert yes["pays"] is True
    assert yes["verdict"] == (
        "yes, buy 80 × A100 SXM4 40GB: 1.48 M USD bought, 5.17 M USD rented (aws p4d.24xlarge, on demand), 3 years at 60% of the hours"
    )
    no = ask(share=exactly(0.1))
    assert no["pays"] is False
    assert no["verdict"].startswith("no, do not buy 80 × A100 SXM4 40GB: 1.39 M USD bought, 861.6 k USD rented")
    only_rent = ask(owning=())
    assert (only_rent["pays"], only_rent["own"]) == (None, [])
    assert only_rent["verdict"].startswith("rent 80 × A100 SXM4 40GB: 5.17 M USD rented")
    only_own = ask(cloud=())
    assert (only_own["pays"], only_own["rent"]) == (None, [])
    assert only_own["verdict"].startswith("buy 80 × A100 SXM4 40GB: 1.48 M USD for 3 years at 60% of the hours")


SIZED: dict[str, Any] = {
    "model": {"name": "m"},
    "job": {"kind": "full"},
    "fits": "yes",
    "warnings": [{"rule": "shape", "text": "assumed"}],
    **dict.fromkeys(("assumed", "layout", "needed", "room", "options")),
}


def test_the_verdict_of_a_model_says_what_an_hour_a_million_tokens_and_a_run_cost() -> None:
    speed = figure("tokens a second", 1000.0)
    more = {"sized": SIZED, "speed": speed, "hours": Range(50, 100, 200)}
    assert ask(**more)["verdict"] == (
        "yes: m fits on 80 × A100 SXM4 40GB, 328 USD an hour, 91.07 USD a million tokens, 32.8 k USD a run (aws p4d.24xlarge, on demand)"
    )
    answers = {**SIZED, "job": {"kind": "inference"}, "fits": "tight"}
    assert ask(**{**more, "sized": answers})["verdict"] == (
        "yes: m fits only just on 80 × A100 SXM4 40GB, 328 USD an hour, 91.07 USD a million tokens, 32.8 k USD for the job "
        "(aws p4d.24xlarge, on demand)"
    )
    # Where nobody rents the card, of what it costs to own: 1.48 M USD for 15,768 hours.
    owned = ask(sized=SIZED, cloud=())
    assert owned["verdict"] == "yes: m fits on 80 × A100 SXM4 40GB, 94.09 USD an hour (owned, 10 DGX A100)"
    assert {"rule": "shape", "text": "assumed"} in owned["warnings"]
    assert owned["size"] is not None
    assert set(owned["size"]) == {"model", "job", "assumed", "fits", "layout", "needed", "room", "options"}
    # A commitment binds: the first line takes what is rented by the hour.
    plan = {**GUIDES.cloud[0], "commitments": [{"years": 1, "usd_hour": 0.01, "name": "plan"}]}
    assert "on demand" in ask(sized=SIZED, cloud=(plan,))["verdict"]


@pytest.mark.parametrize("more", [{}, {"cloud": ()}, {"owning": ()}, {"sized": SIZED}, {"sized": SIZED, "cloud": ()}])
def test_a_share_that_may_be_more_or_less_counts_as_what_it_usually_is(more: dict[str, Any]) -> None:
    exact, usual = ask(**more), ask(**more, share=Range(0.3, SHARE, 0.9))
    assert {**usual, "share": None} == {**exact, "share": None}
    assert (usual["share"]["low"], usual["share"]["high"]) == (0.3, 0.9)


def test_the_cheapest_comes_first_by_what_is_likely_and_is_what_the_verdict_takes() -> None:
    """Ten spot instances compute 0.34 % again, at the most 0.55 %: at 0.996 of the price on demand they are likely cheaper."""
    near = {**GUIDES.cloud[0], "instance": "other", "on_demand": 10.0, "spot": 9.96, "commitments": []}
    assert [row["kind"] for row in ask(cloud=(near,))["rent"]] == ["spot", "on demand"]
    # A dearer machine that draws next to nothing costs less in all.
    bought = ({**GUIDES.owning[0], "what": "frugal", "price_usd": 1_260_000, "power_w": 1000}, *GUIDES.owning)
    found = ask(owning=bought, own_rates={**GUIDES.rates, "electricity": 0.5})
    assert [row["what"] for row in found["own"]] == ["10 DGX A100", "frugal"]
    assert "1.33 M USD bought" in found["verdict"]
    between = {**GUIDES.cloud[0], "on_demand": 10.0, "spot": None, "commitments": []}
    # 1.58 M USD rented: less than the one, more than the other.
    assert ask(owning=bought, own_rates={**GUIDES.rates, "electricity": 0.5}, cloud=(between,))["pays"] is True
    assert ask(own_rates={**GUIDES.rates, "electricity": 0.5}, cloud=(between,))["pays"] is False


def test_the_verdict_takes_spot_only_where_there_is_nothing_else() -> None:
    spot = {key: value for key, value in GUIDES.cloud[0].items() if key not in ("on_demand", "commitments")}
    assert "rented (aws p4d.24xlarge, spot)" in ask(cloud=(spot,))["verdict"]


def test_what_changes_nothing_is_told() -> None:
    def texts(**more: Any) -> list[str]:
        return [row["text"] for row in ask(**more)["warnings"]]

    # Of 31 May 2025: after 180 days they are not old, and after 181 they are.
    assert texts(today=date(2025, 6, 1)) == texts(today=date(2025, 11, 27)) == []
    assert len(texts(today=date(2025, 11, 28))) == 2
    assert texts() == [
        "3 of 3 prices to rent are older than 180 days",
        "1 of 1 prices to buy are older than 180 days",
    ]
    assert texts(owning=(), named=("--kwh", "rates"), today=date(2025, 6, 1)) == [
        "no price to buy A100 SXM4 40GB is known: --kwh, rates changes nothing",
    ]
    assert texts(cloud=(), today=date(2025, 6, 1)) == ["no price to rent A100 SXM4 40GB is known"]
    # A file of another card.
    assert "your file of prices has none of L4" in texts(card="L4", cards=1, alone=False)


def test_a_card_without_a_price_is_bad_input_that_names_those_with_one() -> None:
    with pytest.raises(BadInput, match="no price of L4 is known") as told:
        ask(card="L4")
    assert "H100 SXM5 80GB" in told.value.suggestions[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (1.5e6, "1.50 M USD"),
            (1e6, "1.00 M USD"),
            (123_456_789_012, "123,456.79 M USD"),
            (1e4, "10.0 k USD"),
            (-1.5e6, "-1.50 M USD"),
            (-250, "-250 USD"),
            (999_999, "1,000.0 k USD"),
            (12_345, "12.3 k USD"),
            (9_999, "9,999 USD"),
            (100, "100 USD"),
        ),
        *((99.5, "99.50 USD"), (1, "1.00 USD"), (0.0924, "0.0924 USD"), (-729_000, "-729.0 k USD")),
    ],
)
def test_an_amount_has_no_false_precision(value: float, text: str) -> None:
    assert cost_answer.usd(value) == text


@pytest.mark.parametrize(("months", "text"), [(12, "1 year"), (36, "3 years"), (18, "18 months"), (3, "3 months")])
def test_years_that_are_whole_are_said_as_years(months: int, text: str) -> None:
    assert cost_answer.period(months) == text


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
    assert found.cloud[0]["date"] == "2026-11-30"
    assert found.rates == {"pue": 1.2, "people": 0.0}
    assert not found.alone


def test_a_file_may_stand_alone_and_say_what_is_paid_at_once() -> None:
    plans = [{"years": 1, "usd_hour": 12.5, "upfront": True, "name": "plan"}, {"years": 3, "usd_hour": 10}]
    found = read({"only": True, "cloud": [{**CLOUD, "commitments": plans, "system": "windows", "region": "eu"}]})
    assert found.alone
    assert [(each["upfront"], each["name"]) for each in found.cloud[0]["commitments"]] == [
        (True, "plan"),
        (False, "commitment"),
    ]
    assert (found.cloud[0]["system"], found.cloud[0]["region"]) == ("windows", "eu")
    assert read({"cloud": [{**CLOUD, "date": date(2026, 1, 2)}]}).cloud[0]["date"] == "2026-01-02"
    assert read({"owning": [{**OWNING, "price_usd": 1e12}]}).owning[0]["price_usd"] == 1e12


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
        ({"cloud": [{**CLOUD, "on_demand": None}]}, r"cloud\[0\] has no price"),
        ({"cloud": [CLOUD, {**CLOUD, "spot": 0}]}, r"cloud\[1\]: spot has to be a number above 0"),
        (
            {"cloud": [{**CLOUD, "commitments": [{"years": 1, "usd_hour": 3, "upfront": 1}]}]},
            "upfront has to be true or false",
        ),
        ({"cloud": [{**CLOUD, "commitments": [{"years": 1.5, "usd_hour": 3}]}]}, "years has to be a whole number"),
        ({"cloud": [{**CLOUD, "commitments": [{"years": 1, "usd_hour": 0}]}]}, "usd_hour has to be a number above 0"),
        ({"cloud": [{**CLOUD, "commitments": [3]}]}, r"commitments\[0\] has to be a row"),
        ({"only": "yes"}, "only has to be true or false"),
        ({"owning": [{**OWNING, "price_low": 300_000}]}, "from price_low to price_high"),
        ({"owning": [{**OWNING, "price_high": 200_000}]}, "from price_low to price_high"),
        ({"owning": [{**OWNING, "price_usd": 1e13}]}, "price_usd has to be a number above 0"),
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

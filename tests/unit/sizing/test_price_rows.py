"""The rows of compat/sizing/prices.yaml: each says of what it is, and none jumps out of its family."""

from __future__ import annotations

import itertools
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests import tables

ROOT = Path(__file__).resolve().parents[3]
PRICES: dict[str, Any] = tables.read(ROOT / "compat/sizing/prices.yaml")
CLOUD: list[dict[str, Any]] = PRICES["cloud"]
#: How much dearer a card may be in one size of instance than in another: Lambda asks 7.5 % more for one H100 than for each of eight.
JUMP = 1.12
#: What makes two prices of a card comparable: as many vCPUs for each card, within this.
LIKE = 1.1
#: USD an hour that Azure asks for Windows on a vCPU.
WINDOWS = 0.046


def family(row: dict[str, Any]) -> tuple[Any, ...]:
    """Sizes of one offer: the same card at one provider and place, for one system; RunPod's two clouds are two offers."""
    tier = row["instance"].rpartition(", ")[2] if row["provider"] == "runpod" else ""
    return row["provider"], row["card"], row["system"], row["region"], tier


def jumps(rows: list[dict[str, Any]]) -> list[tuple[str, str, float]]:
    """Pairs of instances of a family that cost differently for a card although each card has as many vCPUs."""
    found = []
    asked = [row for row in rows if row["on_demand"] and row["vcpus"]]
    for one, other in itertools.combinations(sorted(asked, key=lambda row: row["on_demand"] / row["gpus"]), 2):
        cores = sorted(row["vcpus"] / row["gpus"] for row in (one, other))
        ratio = (other["on_demand"] / other["gpus"]) / (one["on_demand"] / one["gpus"])
        if family(one) == family(other) and cores[1] <= cores[0] * LIKE and ratio > JUMP:
            found.append((one["instance"], other["instance"], round(ratio, 2)))
    return found


def test_no_size_of_a_family_costs_more_for_a_card_than_the_others() -> None:
    assert jumps(CLOUD) == []


@pytest.mark.parametrize("name", ["Standard_NC48ads_A100_v4", "Standard_NC96ads_A100_v4", "Standard_NC80adis_H100_v5"])
def test_the_price_of_windows_in_a_row_of_linux_is_found(name: str) -> None:
    """As three rows had it until November 2026: 4.777 USD a card where one card alone is 3.673."""
    rows = [
        {**row, "on_demand": row["on_demand"] + WINDOWS * row["vcpus"]} if row["instance"] == name else row
        for row in CLOUD
    ]
    assert {other for _one, other, _ratio in jumps(rows)} == {name}


def test_azures_sizes_cost_the_same_for_a_card() -> None:
    found = {
        row["instance"]: row["on_demand"] / row["gpus"]
        for row in CLOUD
        if row["provider"] == "azure" and row["on_demand"]
    }
    assert (
        found["Standard_NC48ads_A100_v4"]
        == found["Standard_NC96ads_A100_v4"]
        == found["Standard_NC24ads_A100_v4"]
        == 3.673
    )
    assert found["Standard_NC80adis_H100_v5"] == found["Standard_NC40ads_H100_v5"] == 6.98


def test_each_row_says_its_system_its_place_and_its_day() -> None:
    for row in CLOUD:
        assert row["system"] == "linux", row
        assert row["region"], row
        assert date(2025, 1, 1) <= date.fromisoformat(row["date"]) <= date.fromisoformat(PRICES["updated"]), row


def test_what_is_paid_at_the_beginning_says_so() -> None:
    for row in CLOUD:
        for each in row["commitments"]:
            assert ("all upfront" in each["name"]) == each.get("upfront", False), each


def test_each_price_is_of_one_offer() -> None:
    names = [(row["provider"], row["instance"], row["region"]) for row in CLOUD]
    assert len(names) == len(set(names))
    bought = [row["what"] for row in PRICES["owning"]]
    assert len(bought) == len(set(bought))

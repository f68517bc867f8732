"""Settings of the cards: what may be wished, for which cards, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import BadInput, Wish
from tests.unit.plan import nodes

from .conftest import FACTS, TODAY, Resolve

BOARD: dict[str, Any] = {
    "power_min_limit_w": 200.0,
    "power_max_limit_w": 700.0,
    "clocks": {"sm_max_mhz": 1980, "application_sm_mhz": 1980},
    "ecc": {"mode": True},
    "errors": {},
}


def asked(cards: Any) -> Wish:
    return Wish.from_variables({"gpuwright_want": ["driver"], "gpu_settings_cards": cards})


def settled(resolve: Resolve, names: str | list[str], cards: Any) -> Any:
    """The settings of each card that has some, by its index."""
    answer = resolve(names, "ubuntu-24.04", wish={"gpu_settings_cards": cards})
    assert answer["ok"], answer
    return [{card["index"]: card["settings"]} for card in answer["stack"].get("gpu_settings", {}).get("cards", ())]


def refused(rules: dict[str, Any], cards: Any, **board: Any) -> Any:
    """The only conflict of a host whose cards nvidia-smi describes so."""
    facts = copy.deepcopy(FACTS)
    rows = [{"pci_bus_id": card["bus_id"], **BOARD, **board} for card in facts["pci"]["gpus"]]
    facts["smi"] = nodes.smi(*rows)
    where = machine.machine_from_facts(facts, Wish(), rules, today=TODAY)
    answer = resolver.resolve(where, asked(cards), rules)
    assert not answer["ok"], answer["stack"]
    (entry,) = answer["conflicts"]
    return entry


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"power_limit": 350}, {"power_limit": 350.0}),
        ({"power_limit": "312.5 W"}, {"power_limit": 312.5}),
        ({"clocks": "210,1410"}, {"clocks": [210, 1410]}),
        ({"clocks": [210, 1410]}, {"clocks": [210, 1410]}),
        ({"clocks": 1410}, {"clocks": [1410, 1410]}),
        ({"application_clocks": "1593,1275"}, {"application_clocks": [1593, 1275]}),
        ({"ecc": "off", "persistence": True}, {"ecc": False, "persistence": True}),
        ({"compute_mode": "exclusive-process"}, {"compute_mode": "Exclusive_Process"}),
        (
            dict.fromkeys(("power_limit", "clocks", "ecc"), "default"),
            {"power_limit": None, "clocks": None, "ecc": None},
        ),
        ({"compute_mode": None, "application_clocks": "default"}, {"compute_mode": None, "application_clocks": None}),
    ],
)
def test_settings_are_read_as_people_write_them(written: Any, read: Any) -> None:
    assert asked({"all": written}).gpu_settings == {"all": read}


@pytest.mark.parametrize(
    ("want", "limit"), [("power-limit=350", 350.0), ("power-limit=312.5W", 312.5), ("power-limit=default", None)]
)
def test_a_power_limit_for_all_cards_is_a_want(want: str, limit: float | None) -> None:
    assert Wish.from_wants([want]).gpu_settings == {"all": {"power_limit": limit}}


@pytest.mark.parametrize("want", ["power-limit", "power-limit=", "power-limit=much", "power-limit[x]=350"])
def test_a_want_that_is_no_power_is_refused(want: str) -> None:
    with pytest.raises(BadInput):
        Wish.from_wants([want])


@pytest.mark.parametrize("nothing", [None, "", "auto", {}])
def test_nothing_wished_leaves_the_cards_as_they_are(resolve: Resolve, nothing: Any) -> None:
    assert settled(resolve, "H100", nothing) == []


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ("350", "has to map cards to their settings"),
        ({"all": 350}, "write settings such as power_limit: 350"),
        ({"all": {}}, "write settings such as"),
        ({"": {"ecc": True}}, "is no card"),
        ({"all": {"fan": 30}}, "there is no setting 'fan'"),
        ({"all": {"power_limit": "much"}}, "is no power in watts"),
        ({"all": {"power_limit": True}}, "is no power in watts"),
        ({"all": {"clocks": "1410,210"}}, "is no range of clocks"),
        ({"all": {"clocks": "fast"}}, "is no range of clocks"),
        ({"all": {"application_clocks": 1275}}, "is not memory's and multiprocessors' clock"),
        ({"all": {"ecc": "perhaps"}}, "expected true, false or default"),
        ({"all": {"compute_mode": "exclusive_thread"}}, "there is no compute mode"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_can(cards: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words) as error:
        asked(cards)
    assert error.value.suggestions


def test_what_is_said_of_one_card_counts_before_its_model_and_that_before_all(resolve: Resolve) -> None:
    cards = {
        "1": {"power_limit": 300},
        "H100": {"power_limit": 400, "ecc": True},
        "all": {"power_limit": 350, "compute_mode": "prohibited"},
    }
    assert settled(resolve, ["H100", "H100", "L40S"], cards) == [
        {0: {"power_limit": 400.0, "compute_mode": "Prohibited", "ecc": True}},
        {1: {"power_limit": 300.0, "compute_mode": "Prohibited", "ecc": True}},
        {2: {"power_limit": 350.0, "compute_mode": "Prohibited"}},
    ]


def test_the_settings_of_each_card_are_told_as_a_person_reads_them(resolve: Resolve) -> None:
    cards = {
        "0": {"power_limit": 350, "clocks": "210,1410", "ecc": False},
        "1": {"application_clocks": "1593,1275", "persistence": True},
    }
    answer = resolve(["H100", "L40S"], "ubuntu-24.04", wish={"gpu_settings_cards": cards})
    assert [entry["text"] for entry in answer["why"] if entry["rule"] == "gpu-settings"] == [
        "H100 SXM5 80GB: power limit 350 W, clocks 210 to 1410 MHz, ECC off: asked for",
        "L40S: application clocks 1593 and 1275 MHz, persistence mode on: asked for",
    ]


def test_a_card_that_nothing_names_is_left_as_it_is(resolve: Resolve) -> None:
    assert settled(resolve, ["H100", "L40S"], {"l40s": {"power_limit": 300}}) == [{1: {"power_limit": 300.0}}]


@pytest.mark.parametrize("selector", ["A100", "7", "H10", "0000:ff:00.0"])
def test_a_card_that_is_not_there_is_a_conflict(resolve: Resolve, selector: str) -> None:
    answer = resolve("H100", "ubuntu-24.04", wish={"gpu_settings_cards": {selector: {"power_limit": 300}}})
    (entry,) = answer["conflicts"]
    assert (entry["rule"], selector in entry["text"]) == ("gpu-settings.card", True)


@pytest.mark.parametrize(
    ("settings", "board", "rule", "words"),
    [
        ({"power_limit": 800}, {}, "gpu-settings.power-limit", "can be 200 to 700 W, and not 800"),
        ({"power_limit": 100}, {}, "gpu-settings.power-limit", "can be 200 to 700 W, and not 100"),
        ({"clocks": "210,2100"}, {}, "gpu-settings.clocks", "end at 1980 MHz, 2100 is above"),
        (
            {"application_clocks": "2619,1980"},
            {"clocks": {"sm_max_mhz": 1980, "application_sm_mhz": None}},
            "gpu-settings.clocks",
            "has no application clocks with this driver",
        ),
        ({"ecc": False}, {"ecc": {"mode": None}}, "gpu-settings.ecc", "has no ECC to switch"),
    ],
)
def test_what_a_card_does_not_offer_is_a_conflict_with_what_it_does(
    rules: dict[str, Any], settings: Any, board: Any, rule: str, words: str
) -> None:
    entry = refused(rules, {"all": settings}, **board)
    assert (entry["rule"], words in entry["text"]) == (rule, True)
    assert entry["remedy"]


def test_what_no_driver_has_told_is_no_reason_to_refuse(resolve: Resolve) -> None:
    assert settled(resolve, "H100", {"all": {"power_limit": 800}}) == [{0: {"power_limit": 800.0}}]

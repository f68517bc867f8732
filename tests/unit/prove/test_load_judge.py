"""What cards are under load: healthy machines of many kinds do not alarm, and each fault is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import load_judge, load_watch, smi_judge
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from ansible_collections.gpuwright.node.plugins.module_utils.smi.run import SmiError

Parsed = Callable[[str], Any]

H100, GEFORCE, V100, MIG = "h100_580.xml", "geforce_595.xml", "v100_418.xml", "mig_580.xml"
#: As a card of a data centre works: what the fixtures, which are at rest, do not have.
WORKING: dict[str, Any] = {"performance_state": "P0", "utilization_percent": 100, "throttle": []}


def changed(gpu: Any, changes: dict[str, Any]) -> Any:
    """A card with other values; one of a group by ``group.value``."""
    result = {**gpu}
    for name, value in changes.items():
        group, _dot, key = name.rpartition(".")
        if group:
            assert key in result[group], name
            result[group] = {**result[group], key: value}
        else:
            assert name in result, name
            result[name] = value
    return result


def judge(before: Any, looks: list[Any], after: Any = None, cards: int = 1, **expected: Any) -> dict[str, Check]:
    loaded = load_judge.Loaded(before, after or before, looks)
    found = load_judge.judge_card(loaded, expected, cards)  # type: ignore[arg-type] # an expectation of each test
    return {check["id"]: check for check in reversed(checks.worst_first(found))}


def loud(found: dict[str, Check]) -> dict[str, str]:
    return {name: check["status"] for name, check in found.items() if check["status"] not in ("pass", "skip")}


# Own numbers (assumed), in the shape in which such cards have them: which values they tell, and which reasons they give.
HEALTHY: dict[str, tuple[str, dict[str, Any], int]] = {
    "an H100 SXM that its power limit holds": (
        H100,
        {
            "clocks.sm_mhz": 1410,
            "power_draw_w": 698.0,
            "temperature_c": 64,
            "temperature_margin_c": 22,
            "throttle": ["sw_power_cap"],
        },
        8,
    ),
    "an HGX H200 at full clocks": (
        H100,
        {"name": "NVIDIA H200", "clocks.sm_mhz": 1980, "temperature_c": 58, "temperature_memory_c": 79},
        8,
    ),
    "a B200 with a newer link than its host": (
        H100,
        {
            "name": "NVIDIA B200",
            "clocks.sm_max_mhz": 1965,
            "clocks.sm_mhz": 1850,
            "pcie.gen_device_max": 6,
            "pcie.gen_host_max": 5,
            "pcie.gen": 5,
            "power_draw_w": 985.0,
        },
        8,
    ),
    "an A100 SXM": (
        H100,
        {
            "name": "NVIDIA A100-SXM4-80GB",
            "clocks.sm_max_mhz": 1410,
            "clocks.sm_mhz": 1275,
            "temperature_margin_c": None,
            "temperature_slow_c": 92,
            "temperature_c": 66,
            "pcie.gen": 4,
            "pcie.gen_max": 4,
            "pcie.gen_device_max": 4,
            "pcie.gen_host_max": 4,
        },
        8,
    ),
    "a V100 with an old driver": (V100, {"clocks.sm_mhz": 1530, "temperature_c": 71, "throttle": ["sw_power_cap"]}, 4),
    "an L4 without a fan, far below its highest clocks": (
        H100,
        {
            "name": "NVIDIA L4",
            "clocks.sm_max_mhz": 2040,
            "clocks.sm_mhz": 930,
            "power_draw_w": 71.9,
            "temperature_c": 78,
            "temperature_margin_c": 9,
            "temperature_memory_c": None,
            "throttle": ["sw_power_cap"],
            "fan_percent": None,
        },
        4,
    ),
    "a T4 of which clouds give eight lanes": (
        H100,
        {
            "name": "Tesla T4",
            "clocks.sm_max_mhz": 1590,
            "clocks.sm_mhz": 1005,
            "throttle": ["sw_power_cap"],
            "pcie.gen": 3,
            "pcie.gen_max": 3,
            "pcie.gen_device_max": 3,
            "pcie.gen_host_max": 3,
            "pcie.width": 8,
            "temperature_margin_c": None,
            "temperature_slow_c": 96,
            "temperature_c": 74,
        },
        4,
    ),
    "a GeForce that computes in P2": (
        GEFORCE,
        {
            "performance_state": "P2",
            "clocks.sm_mhz": 2520,
            "temperature_c": 69,
            "temperature_margin_c": 14,
            "pcie.gen": 5,
        },
        1,
    ),
    "a GeForce below a highest clock that it never reaches": (
        GEFORCE,
        {"performance_state": "P2", "clocks.sm_mhz": 2400, "clocks.sm_max_mhz": 3105, "pcie.gen": 5},
        1,
    ),
    "a laptop that its power limit holds": (
        GEFORCE,
        {
            "name": "NVIDIA GeForce RTX 4070 Laptop GPU",
            "performance_state": "P0",
            "clocks.sm_mhz": 1245,
            "clocks.sm_max_mhz": 3105,
            "power_draw_w": 54.8,
            "power_limit_w": 55.0,
            "temperature_c": 77,
            "temperature_margin_c": 10,
            "throttle": ["sw_power_cap"],
            "pcie.gen": 4,
            "pcie.gen_max": 4,
            "pcie.gen_device_max": 4,
            "pcie.gen_host_max": 4,
            "pcie.width": 8,
            "pcie.width_max": 8,
        },
        1,
    ),
    "a workstation's RTX A6000": (
        GEFORCE,
        {
            "name": "NVIDIA RTX A6000",
            "brand": "NVIDIA RTX",
            "performance_state": "P2",
            "clocks.sm_mhz": 1740,
            "clocks.sm_max_mhz": 2100,
            "temperature_margin_c": None,
            "temperature_slow_c": 95,
            "temperature_c": 84,
            "pcie.gen": 4,
            "pcie.gen_device_max": 4,
            "pcie.gen_host_max": 4,
        },
        1,
    ),
    "an RTX PRO of a server": (
        H100,
        {
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "performance_state": "P1",
            "clocks.sm_mhz": 2100,
            "clocks.sm_max_mhz": 2430,
        },
        8,
    ),
    "a card parted by MIG": (MIG, {"utilization_percent": None, "clocks.sm_mhz": 1980, "temperature_c": 52}, 1),
    "a virtual GPU": (
        H100,
        {
            "name": "NVIDIA A40-8Q",
            "clocks.sm_mhz": None,
            "clocks.sm_max_mhz": None,
            "temperature_c": None,
            "temperature_margin_c": None,
            "temperature_memory_c": None,
            "power_draw_w": None,
            "performance_state": "P0",
            "pcie.gen": None,
            "pcie.width": None,
            "throttle": None,
            "ecc.volatile_uncorrected": None,
            "ecc.volatile_corrected": None,
            "pcie.replays": None,
            "recovery_action": None,
        },
        1,
    ),
    "a card inside WSL": (
        GEFORCE,
        {
            "performance_state": "P2",
            "clocks.sm_mhz": 2610,
            "pcie.gen": 5,
            "processes": [],
            "fan_percent": 61,
            "recovery_action": None,
        },
        1,
    ),
    "a card whose owner locked its clocks": (
        H100,
        {"clocks.sm_mhz": 1200, "throttle": ["applications_clocks_setting"]},
        8,
    ),
    "a card that braked for a moment": (H100, {"clocks.sm_mhz": 1980}, 8),
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_machine_does_not_alarm(parsed: Parsed, kind: str) -> None:
    fixture, changes, cards = HEALTHY[kind]
    # What a card does not tell while it works it does not tell before either.
    untold = {name: value for name, value in changes.items() if value is None}
    before = changed(parsed(fixture)["gpus"][0], untold)
    look = changed(before, {**WORKING, **changes})
    looks = [look] * 6
    if "for a moment" in kind:
        looks[2] = changed(look, {"throttle": ["hw_slowdown", "hw_power_brake_slowdown"]})
    assert loud(judge(before, looks, cards=cards)) == {}


# What a look at an H100 has, what the card has after it, and what is told.
FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "heat that the hardware answers": (
        {"throttle": ["hw_slowdown", "hw_thermal_slowdown"]},
        {},
        {"load.throttle_hw": "fail"},
    ),
    "a power brake that lasts": (
        {"throttle": ["hw_slowdown", "hw_power_brake_slowdown"]},
        {},
        {"load.throttle_hw": "fail"},
    ),
    "heat that the driver answers": ({"throttle": ["sw_thermal_slowdown"]}, {}, {"load.throttle_sw_thermal": "warn"}),
    "a card near where it slows down": (
        {"temperature_c": 86, "temperature_margin_c": 2},
        {},
        {"load.temp_gpu": "warn"},
    ),
    "a card near where it switches off": (
        {"temperature_c": 95, "temperature_margin_c": -8},
        {},
        {"load.temp_gpu": "fail"},
    ),
    "hot memory": ({"temperature_memory_c": 103}, {}, {"load.temp_mem": "warn"}),
    "a link of an older generation": ({"pcie.gen": 3}, {}, {"load.pcie_gen": "warn"}),
    "a link with few lanes": ({"pcie.width": 4}, {}, {"load.pcie_width": "fail"}),
    "clocks that are low and nobody says why": ({"clocks.sm_mhz": 900}, {}, {"load.clocks": "warn"}),
    "a card that stays in a low performance state": (
        {"performance_state": "P8", "clocks.sm_mhz": 210},
        {},
        {"load.performance_state": "warn", "load.clocks": "warn"},
    ),
    "power that cannot be read": (
        {"power_draw_w": None, "errors": {"gpu_power_readings/instant_power_draw": "[Unknown Error]"}},
        {},
        {"load.power_read": "warn", "load.gpu_readable": "fail"},
    ),
    "a card that is lost": ({"errors": {"product_name": "GPU is lost"}}, {}, {"load.gpu_lost": "fail"}),
    "a reset that the driver asks for": ({"recovery_action": "GPU Reset"}, {}, {"load.gpu_recovery_action": "fail"}),
    "memory errors that were not corrected": ({}, {"ecc.volatile_uncorrected": 1}, {"load.ecc_volatile_unc": "fail"}),
    "very many corrected memory errors": ({}, {"ecc.volatile_corrected": 20_000_000}, {"load.ecc_corrected": "warn"}),
    "packets that were sent again": ({}, {"pcie.replays": 500}, {"load.pcie_replay": "warn"}),
    "a counter that was set back": ({}, {"ecc.volatile_uncorrected": None}, {"load.ecc_volatile_unc": "incomplete"}),
    "clocks that somebody set meanwhile": (
        {},
        {"clocks.application_sm_mhz": 1200, "clocks.application_memory_mhz": 2619},
        {"load.settings": "warn"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_and_nothing_else(parsed: Parsed, fault: str) -> None:
    during, later, told = FAULTS[fault]
    before = changed(
        parsed(H100)["gpus"][0], {"clocks.application_sm_mhz": 1980, "clocks.application_memory_mhz": 2619}
    )
    look = changed(before, {**WORKING, "clocks.sm_mhz": 1900, **during})
    found = judge(before, [look] * 6, changed(before, later), cards=8)
    # A card that works low for a reason is told by the reason; that its clocks are low goes with it.
    assert {name: status for name, status in loud(found).items() if name in told or name != "load.clocks"} == told
    for name in told:
        assert found[name]["gpu"] == "0 (00000000:1B:00.0)"
        assert found[name]["status"] == "incomplete" or (found[name]["reason"] and found[name]["remedy"])


def test_every_check_that_is_told_of_a_fault_is_one_that_a_good_card_passes(parsed: Parsed) -> None:
    before = parsed(H100)["gpus"][0]
    found = judge(before, [changed(before, {**WORKING, "clocks.sm_mhz": 1900})] * 2)
    expected = {name for _during, _later, told in FAULTS.values() for name in told} - {"load.gpu_lost"}
    assert expected <= set(found)


@pytest.fixture
def looks(parsed: Parsed) -> Callable[..., list[Any]]:
    """Looks at a working H100, each with one other value."""

    def build(name: str, *values: Any) -> list[Any]:
        gpu = changed(parsed(H100)["gpus"][0], {**WORKING, "clocks.sm_mhz": 1900})
        return [changed(gpu, {name: value}) for value in values]

    return build


def test_one_look_in_which_the_link_or_the_clocks_were_low_is_no_fault(looks: Any) -> None:
    for name, low, high in (("pcie.gen", 1, 5), ("clocks.sm_mhz", 345, 1900), ("performance_state", "P8", "P0")):
        found = looks(name, low, high, high, high)
        assert loud(judge(found[0], found)) == {}, name


def test_one_look_in_which_the_card_was_too_hot_is_one(looks: Any) -> None:
    found = looks("temperature_margin_c", 30, 1, 30, 30)
    assert loud(judge(found[0], found)) == {"load.temp_gpu": "warn"}


def test_hardware_that_slows_down_once_counts_and_a_brake_that_passes_does_not(looks: Any) -> None:
    heat, brake = ["hw_slowdown", "hw_thermal_slowdown"], ["hw_slowdown", "hw_power_brake_slowdown"]
    none: list[str] = []
    for reasons, status in (
        ([none, heat, none, none], "fail"),
        ([none, brake, brake, none], "pass"),
        ([none, brake, none, brake, brake, brake], "fail"),
        ([brake, brake], "fail"),
        ([none, brake], "pass"),
        ([brake, [*heat, *brake], none, none], "fail"),
    ):
        found = looks("throttle", *reasons)
        assert judge(found[0], found)["load.throttle_hw"]["status"] == status, reasons


def test_a_limit_of_the_inventory_counts_in_place_of_the_cards_own(looks: Any) -> None:
    found = looks("temperature_c", 70, 70)
    assert loud(judge(found[0], found, max_temperature_c=65)) == {"load.temp_gpu": "warn"}
    found = looks("pcie.width", 4, 4)
    assert loud(judge(found[0], found, pcie_lanes={"all": 4})) == {}


def test_a_card_that_was_seen_once_is_not_judged_by_it(looks: Any) -> None:
    found = looks("temperature_margin_c", 1)
    assert loud(judge(found[0], found)) == {"load.watched": "incomplete"}


def test_looks_before_and_after_the_load_do_not_count(parsed: Parsed) -> None:
    data = parsed(H100)
    ran = checks.passed("smi.runs")
    taken = [load_watch.Look(at, at + 1.0, data, ran) for at in range(0, 20, 2)]
    card = load_watch.identity(data["gpus"][0])
    assert len(load_watch.under_load(taken, card, 3.0, 13.5)) == 4
    assert load_watch.under_load(taken, "GPU-of-another", 3.0, 13.5) == []
    assert load_watch.under_load(taken, card, 0.0, 0.0) == []


def test_the_summary_has_what_there_was(looks: Any) -> None:
    found = load_watch.summary(looks("clocks.sm_mhz", 1500, None, 1900, 1700))
    assert (found["looks"], found["sm_mhz"]) == (4, {"min": 1500, "median": 1700, "max": 1900})
    assert (found["states"], found["reasons"]) == ({"P0": 4}, {})
    assert load_watch.summary([])["power_w"] is None


def test_every_real_card_can_be_judged(samples: Callable[[str], list[Path]]) -> None:
    judged = 0
    for path in samples("nvidia-smi-xml"):
        try:
            gpus = parse_xml(path.read_bytes())["gpus"]
        except SmiError:
            continue
        for gpu in gpus:
            found = judge(gpu, [gpu] * 3, cards=len(gpus))
            assert "load.gpu_lost" in found or {"load.clocks", "load.performance_state", "load.throttle_hw"} <= set(
                found
            )
            judged += 1
    assert judged > 10


def test_errors_of_instances_grow_too(parsed: Parsed) -> None:
    before = parsed(MIG)["gpus"][0]
    devices = [{**device, "uncorrected": 3 * number} for number, device in enumerate(before["mig"]["devices"])]
    after = changed(before, {"mig.devices": devices})
    found = judge(before, [], after)
    assert found["load.ecc_volatile_unc"]["status"] == "fail"


LISTED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa0000-1111-2222-3333-444455556666)
  MIG 3g.20gb     Device  0: (UUID: MIG-bbbb0000-1111-2222-3333-444455556666)
  MIG 1c.3g.20gb  Device  1: (UUID: MIG-GPU-aaaa0000-1111-2222-3333-444455556666/2/0)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa0000-1111-2222-3333-444455556667)
"""


def test_instances_are_listed_below_their_card() -> None:
    assert load_watch.parse_instances(LISTED) == {
        "GPU-aaaa0000-1111-2222-3333-444455556666": [
            "MIG-bbbb0000-1111-2222-3333-444455556666",
            "MIG-GPU-aaaa0000-1111-2222-3333-444455556666/2/0",
        ],
        "GPU-aaaa0000-1111-2222-3333-444455556667": [],
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found",
        "\x00\x1b[31m",
        "  MIG 1g Device 0: (UUID: MIG-1)",
        "GPU 0: x (UUID: MIG-1)",
        "  MIG x\n" * 9999,
    ],
)
def test_what_lists_no_instance_gives_none(text: str) -> None:
    assert load_watch.parse_instances(text) == {}


def test_the_generation_is_held_against_what_card_and_host_both_have(parsed: Parsed) -> None:
    gpu = changed(
        parsed(H100)["gpus"][0], {"pcie.gen": 4, "pcie.gen_max": 4, "pcie.gen_device_max": 5, "pcie.gen_host_max": 5}
    )
    (check,) = smi_judge._judge_pcie_generation_only(gpu, {"under_load": True})
    assert (check["status"], check["expected"]) == ("warn", 5)

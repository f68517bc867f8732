"""How the cards are loaded for a proof: nothing by itself, and by profile within its time."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import loading, measurements
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.measurements import Measurements
from tests.unit.plan.nodes import bare, smi
from tests.unit.roles.test_measurements import PYTORCH, measured

NODE = {"repository": "archive", "adopted": None}
DCGM = {"gpu": {"dcgm": {"version": "4.6.0"}}, "node": NODE}
STANDARD = {"validate_profile": "standard"}


def loaded(variables: dict[str, Any], facts: Any = None, stack: Any = None, **changes: Any) -> Measurements:
    """What is measured of two H100 where these variables are set for the role."""
    given = measurements.asked({"validate": variables}, (), pending=False)
    return measured(facts, stack, given, **changes)


def burn_in(seconds: int) -> dict[str, Any]:
    return {"validate_profile": "burn-in", "validate_seconds": seconds}


def parted() -> Any:
    facts = bare()
    facts["smi"] = smi({"uuid": "GPU-1", "mig": {"current": True, "pending": True}})
    return facts


def test_by_itself_a_proof_loads_nothing() -> None:
    for found in (measured(), loaded({}), loaded({"validate_profile": "quick"})):
        assert (found["diagnostic"], found["load"], found["framework_loads"]) == (None, None, [])
    with_dcgm = loaded({}, stack={"monitoring_exporters": DCGM})
    assert with_dcgm["diagnostic"] == {"level": 1, "required": True, "expected_gpus": 2}
    assert (with_dcgm["load"], with_dcgm["framework_loads"], with_dcgm["takes"]) == (None, [], {})


def test_how_long_each_load_takes_goes_with_it_by_its_module() -> None:
    assert loaded({})["takes"] == {}
    assert loaded(STANDARD)["takes"] == {"gpu_load": 45, "framework_load": 90}
    half_a_day = loaded(burn_in(43_200), stack={"monitoring_exporters": DCGM})
    assert half_a_day["takes"] == {"dcgm_diag": 5400, "gpu_load": 33_480, "framework_load": 4320}
    assert sum(half_a_day["takes"].values()) == 43_200
    two = [PYTORCH, {**PYTORCH, "name": "pytorch", "path": "/opt/gpuwright/research"}]
    assert loaded(STANDARD, stack={"frameworks": two})["takes"]["framework_load"] == 180
    assert loaded({**STANDARD, "validate_busy": True}, parted())["takes"] == {"gpu_load": 45, "framework_load": 90}
    assert loaded(STANDARD, stack={"frameworks": []})["takes"] == {"gpu_load": 45}


def test_standard_loads_by_the_driver_and_through_pytorch() -> None:
    found = loaded(STANDARD)
    assert found["load"] == {"seconds": 45, "busy": False, "ignore": []}
    (load,) = found["framework_loads"]
    assert (load["python"], load["expect_cuda"], load["busy"]) == ("/opt/gpuwright/pytorch/bin/python", True, False)
    assert [row["bus_id"] for row in load["expected"]] == ["00000000:18:00.0", "00000000:2A:00.0"]
    assert load["expected"][0]["tflops"]["bf16"] > 100
    assert found["diagnostic"] is None, "DCGM is neither wished nor there"


def test_through_a_framework_that_nothing_is_loaded_by_nothing_is_loaded() -> None:
    jax = {**PYTORCH, "name": "jax", "path": "/opt/gpuwright/jax"}
    assert loaded(STANDARD, stack={"frameworks": [jax]})["framework_loads"] == []


@pytest.mark.parametrize("number", [1, 2, 8])
def test_standard_takes_at_most_five_minutes_a_host(number: int) -> None:
    facts = bare()
    (card, *_rest) = facts["pci"]["gpus"]
    facts["pci"]["gpus"] = [{**card, "bus_id": f"00000000:{bus:02X}:00.0"} for bus in range(number)]
    found = loaded(STANDARD, facts, {"monitoring_exporters": DCGM})
    (load,) = found["framework_loads"]
    together = {"peer", "collectives", "ddp"}
    turns = len(set(load["what"]) - together) * number + len(set(load["what"]) & together)
    assert bool(set(load["what"]) & together) is (number > 1)
    assert found["load"]
    assert load["seconds"] * turns + found["load"]["seconds"] + 150 <= 300


def test_dcgm_looks_where_it_is_wished_or_there_and_not_at_parted_cards() -> None:
    wished = loaded(STANDARD, stack={"monitoring_exporters": DCGM})["diagnostic"]
    assert wished == {"level": 2, "required": True, "expected_gpus": 2}
    facts = bare()
    facts["packages"]["installed"] = {"datacenter-gpu-manager-4-core": "1:4.6.0-1"}
    there = loaded(STANDARD, facts)["diagnostic"]
    assert there == {"level": 2, "required": False, "expected_gpus": 2}
    assert loaded(STANDARD, parted(), {"monitoring_exporters": DCGM})["diagnostic"] is None
    without = {"monitoring_exporters": {"gpu": {"dcgm": None}, "node": NODE}}
    assert loaded(STANDARD, stack=without)["diagnostic"] is None


@pytest.mark.parametrize(("seconds", "level"), [(600, 2), (3599, 2), (3600, 3), (10_799, 3), (10_800, 4), (86_400, 4)])
def test_the_longer_a_burn_in_the_deeper_dcgm_looks_and_all_of_it_is_used(seconds: int, level: int) -> None:
    given = loading.asked(burn_in(seconds))
    with_dcgm, without = (loading.time_of(given, diagnostic=there) for there in (True, False))
    assert with_dcgm.level == level
    assert without.driver + without.framework == seconds
    takes = {2: 150, 3: 1200, 4: 5400}[level]
    assert with_dcgm.driver + with_dcgm.framework + takes == seconds


def test_a_short_burn_in_is_shared_out_too() -> None:
    for there in (True, False):
        found = loading.time_of(loading.asked(burn_in(30)), diagnostic=there)
        assert (found.driver >= 10, found.framework) == (True, 10)


def test_a_burn_in_takes_an_hour_where_nothing_is_said() -> None:
    for said in ({"validate_profile": "burn-in"}, burn_in(0)):
        found = loading.time_of(loading.asked(said), diagnostic=False)
        assert found.driver + found.framework == 3600


def test_busy_cards_are_loaded_only_where_it_is_said() -> None:
    for said, busy in ((True, True), ("yes", True), (False, False), ("no", False)):
        found = loaded({**STANDARD, "validate_busy": said})
        assert found["load"]
        assert found["load"]["busy"] is busy
        assert found["framework_loads"][0]["busy"] is busy


def test_a_card_with_a_screen_keeps_half_of_its_memory() -> None:
    facts = bare()
    facts["display"]["nvidia_screens"] = ["00000000:18:00.0"]
    found = loaded(STANDARD, facts)["load"]
    assert found
    assert found["memory_share"] == 0.5


def test_ignored_cards_and_narrow_slots_go_with_the_load() -> None:
    given = {**measurements.asked({"validate": STANDARD}, ["T4"], pending=False)}
    expected = {"count": 2, "names": None, "from": "the inventory", "pcie_lanes": {"all": 8}}
    found = measured(given=given, expected_gpus=expected)["load"]
    assert found
    assert (found["ignore"], found["pcie_lanes"]) == (["T4"], {"all": 8})


def test_where_the_log_is_another_kernels_the_load_does_not_read_it() -> None:
    facts = bare()
    facts["environment"]["kind"] = "wsl"
    found = loaded(STANDARD, facts)["load"]
    assert found
    assert found["log"] is False


def test_without_a_card_the_processor_is_loaded_and_nothing_else() -> None:
    found = loaded(STANDARD, stack={"frameworks": [{**PYTORCH, "cuda": None}]}, cpu_only=True)
    assert (found["diagnostic"], found["load"]) == (None, None)
    (load,) = found["framework_loads"]
    assert (load["expect_cuda"], load["expected"], load["what"]) == (
        False,
        [],
        ["tflops", "train", "collectives", "ddp"],
    )


@pytest.mark.parametrize("changes", [{"provision_only": True}, {"given": {"pending": True}}])
def test_cards_that_are_not_there_yet_are_not_loaded(changes: dict[str, Any]) -> None:
    given = {**measurements.asked({"validate": STANDARD}, (), pending=False), **changes.pop("given", {})}
    found = measured(given=given, **changes)
    assert (found["diagnostic"], found["load"], found["framework_loads"], found["takes"]) == (None, None, [], {})


def test_earlier_boots_are_read_where_it_is_asked() -> None:
    assert loaded({"validate_boots": 3})["log"] == {"boots": 3}

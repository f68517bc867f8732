"""Healthy machines of many kinds do not alarm, neither at rest nor under load; and how many faults and machines the proof is held against.

The models, their links and their limits of power are those of NVIDIA's data sheets; what a card does under load is `assumed`, and so is
that it tells the values of the fixture that it begins with.
"""

from __future__ import annotations

import csv
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.measure import dcgm_errors, smi_judge
from tests.unit.prove import test_judge, test_kernel_faults, test_load_judge
from tests.unit.prove.conftest import FIXTURES
from tests.unit.prove.test_load_judge import Parsed, changed, judge, loud

MACHINES = list(csv.DictReader((FIXTURES / "healthy_cards.csv").read_text(encoding="utf-8").splitlines()))
#: What the proof is held against at least: machines without an alarm, and faults with their check and what a person does.
LEAST_MACHINES, LEAST_FAULTS = 40, 60


def of_model(card: Any, row: dict[str, str]) -> Any:
    """A card at rest."""
    return changed(
        card,
        {
            "name": row["name"],
            # As gpuwright leaves it, and without the pages that the fixture of the V100 has lost.
            "persistence_mode": True,
            "retired_pages": card["retired_pages"] and {"single_bit": 0, "double_bit": 0, "pending": False},
            "ecc.pending": card["ecc"]["mode"],
            "clocks.sm_max_mhz": int(row["sm_max_mhz"]),
            "power_limit_w": float(row["limit_w"]),
            "pcie.gen_device_max": int(row["pcie_gen"]),
            "pcie.gen_host_max": int(row["host_gen"]),
            "pcie.gen_max": min(int(row["pcie_gen"]), int(row["host_gen"])),
            "pcie.gen": 1,
            "pcie.width": int(row["lanes"]),
            "pcie.width_max": int(row["lanes"]),
        },
    )


def at_work(card: Any, row: dict[str, str]) -> Any:
    return changed(
        card,
        {
            "performance_state": row["state"],
            "utilization_percent": 100,
            "clocks.sm_mhz": int(row["sm_mhz"]),
            "power_draw_w": float(row["draw_w"]),
            "temperature_c": int(row["temperature_c"]),
            "throttle": row["reasons"].split(),
            "pcie.gen": card["pcie"]["gen_max"],
        },
    )


@pytest.mark.parametrize("row", MACHINES, ids=lambda row: row["machine"])
def test_it_does_not_alarm(parsed: Parsed, row: dict[str, str]) -> None:
    document = parsed(row["base"])
    before = of_model(document["gpus"][0], row)
    cards = int(row["cards"])
    several = [{**before, "pci_bus_id": f"00000000:{0x1B + number:02X}:00.0"} for number in range(cards)]
    seen = changed(document, {"gpus": several, "attached_gpus": cards})
    rest = smi_judge.judge(seen, {"count": cards})
    assert [check for check in rest if check["status"] not in ("pass", "skip")] == []
    assert loud(judge(before, [at_work(before, row)] * 6, cards=cards)) == {}


@pytest.mark.parametrize("row", MACHINES, ids=lambda row: row["machine"])
def test_the_same_machine_with_a_fault_does(parsed: Parsed, row: dict[str, str]) -> None:
    before = of_model(parsed(row["base"])["gpus"][0], row)
    slow = changed(at_work(before, row), {"throttle": ["hw_slowdown", "hw_thermal_slowdown"]})
    assert loud(judge(before, [slow] * 6, cards=int(row["cards"])))["load.throttle_hw"] == "fail"


def test_there_are_so_many_machines_and_faults() -> None:
    machines = {*(row["machine"] for row in MACHINES), *test_load_judge.HEALTHY}
    assert len(machines) >= LEAST_MACHINES
    assert len({row["name"] for row in MACHINES}) >= LEAST_MACHINES - 5
    (at_rest,) = (
        mark.args[1]
        for mark in test_judge.test_each_fault_is_found_by_its_check.pytestmark
        if mark.name == "parametrize"
    )
    faults = [*test_load_judge.FAULTS, *test_kernel_faults.FAULTS, *(row for row in at_rest if row[3] != "pass")]
    assert len(faults) >= LEAST_FAULTS
    # Each number of DCGM's diagnostic is another one (tests/unit/prove/test_dcgm_diag.py).
    assert len(dcgm_errors.ERRORS) >= LEAST_FAULTS

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.sim import scenario
from tests.sim.onnode.gpuwright_sim import smi
from tests.sim.shell import SimulationError

SCENARIOS = sorted(path.stem for path in (Path(scenario.__file__).parent / "scenarios").glob("*.yaml"))
CARDS = ("h100", "h200", "a100", "v100", "t4", "l40s", "rtx4090", "rtx5090", "b200", "gtx1080ti")


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_can_be_read(name: str) -> None:
    loaded = scenario.load(name)
    assert loaded["kernel"]["running"] in loaded["kernel"]["installed"]


def test_a_word_that_no_scenario_knows_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SimulationError, match=r"gpu_count.*known are.*gpus"):
        scenario.expand({"gpu_count": 2}, "x")


def test_a_card_that_is_not_described_is_refused_with_the_described_ones() -> None:
    with pytest.raises(SimulationError, match=r"h1000.*h100"):
        scenario.expand({"gpus": [{"card": "h1000"}]}, "x")


def test_the_cards_of_a_node_differ_in_place_and_identity() -> None:
    gpus = scenario.expand({"gpus": [{"card": "h100"}] * 8}, "x")["gpus"]
    assert len({gpu["bus_id"] for gpu in gpus}) == len({gpu["uuid"] for gpu in gpus}) == 8
    assert all(re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0", gpu["bus_id"]) for gpu in gpus)


def xml_of(card: str, **faults: int) -> ET.Element:
    gpus = scenario.expand({"gpus": [{"card": card}, {"card": card}]}, "x")["gpus"]
    conditions: dict[str, int | None] = {kind.replace("_", "-"): index for kind, index in faults.items()}
    text = smi.xml(gpus, "580.178.04", conditions, "Fri Nov 20 12:00:00 2026")
    return ET.fromstring(text)  # noqa: S314 (the text was made in the line above)


@pytest.mark.parametrize("card", CARDS)
def test_the_stand_in_nvidia_smi_writes_xml_for_every_card(card: str) -> None:
    log = xml_of(card)
    assert log.findtext("attached_gpus") == "2"
    assert [gpu.findtext("minor_number") for gpu in log.findall("gpu")] == ["0", "1"]


@pytest.mark.parametrize("card", CARDS)
def test_the_project_reads_what_the_stand_in_writes(card: str) -> None:
    from ansible_collections.gpuwright.node.plugins.module_utils.smi import document as reader

    gpus = scenario.expand({"gpus": [{"card": card}]}, "x")["gpus"]
    data = reader.parse_xml(smi.xml(gpus, "580.178.04", {}, "now"))
    assert data["gpus"][0]["memory_total_mib"] == gpus[0]["memory_mib"]
    assert data["gpus"][0]["pci_id"] == f"{gpus[0]['vendor']}:{gpus[0]['device']}"
    assert data["gpus"][0]["errors"] == {}


def test_a_fault_strikes_only_the_card_it_is_meant_for() -> None:
    log = xml_of("h100", ecc=1)
    counts = [gpu.findtext("ecc_errors/volatile/dram_uncorrectable") for gpu in log.findall("gpu")]
    assert counts == ["0", "3"]


def test_a_hot_card_says_that_it_slows_down() -> None:
    first = xml_of("h100", throttling=0).find("gpu")
    assert first is not None
    assert first.findtext("clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown") == "Active"


def test_csv_with_an_unknown_field_fails_as_a_whole() -> None:
    gpus = scenario.expand({"gpus": [{"card": "t4"}]}, "x")["gpus"]
    with pytest.raises(smi.Refusal, match='"nonsense" is not a valid field') as refused:
        smi.csv(gpus, "name,nonsense", {"csv"}, "580.178.04")
    assert refused.value.status == 2


def test_csv_leaves_out_header_and_units_when_asked() -> None:
    gpus = scenario.expand({"gpus": [{"card": "t4"}]}, "x")["gpus"]
    assert smi.csv(gpus, "name,memory.total", {"csv", "noheader", "nounits"}, "580.178.04") == "Tesla T4, 15360\n"
    assert smi.csv(gpus, "memory.total", {"csv"}, "580.178.04") == "memory.total [MiB]\n15360 MiB\n"

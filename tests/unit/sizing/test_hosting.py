"""The machine around the cards, figure by figure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwright.sizing import cards, hosting, memory, models

H100, RTX, ORIN = (cards.known()[name] for name in ("H100 SXM5 80GB", "GeForce RTX 4090", "Jetson AGX Orin 64GB"))


def texts(card: cards.Card, count: int) -> dict[str, str]:
    return {need["name"]: need["text"] for need in hosting.machine(card, count)}


def needs(card: cards.Card, count: int) -> dict[str, list[float]]:
    return {need["name"]: [need["low"], need["value"], need["high"]] for need in hosting.machine(card, count)}


def test_eight_h100_need_what_a_dgx_has() -> None:
    """DGX H100's datasheet: 2 TB of memory, 112 cores, 10.2 kW at most."""
    found = needs(H100, 8)
    assert found["host memory"] == [640, 1280, 2560]
    assert found["CPU cores"] == [4 + 8 * 3, 4 + 8 * 3, 4 + 8 * 5]
    assert found["PCIe lanes"] == [64, 128, 128]
    assert found["circuit"][1] * 0.92 == pytest.approx(10_200, rel=0.01)
    assert found["heat"][1] == pytest.approx(10_200 * 3.412, rel=0.01)
    assert found["storage, reading"] == pytest.approx([0.8, 4, 8])


def test_a_workstation_of_one_4090_needs_what_people_build() -> None:
    found = needs(RTX, 1)
    # 450 W of the card, 142 of the CPU, 100 of the rest: 692, with 20 to 30 % more 830 to 900, in steps of 50.
    assert found["power supply"] == [850, 900, 900]
    assert found["host memory"] == [24, 48, 96]
    assert found["PCIe lanes"] == [8, 16, 16]
    assert found["CPU cores"] == [7, 8, 9]
    assert found["circuit"] == pytest.approx([692 / 0.92 * 0.69, 692 / 0.92, 692 / 0.92])


@pytest.mark.parametrize(
    ("count", "supply"),
    [
        # 1,350 W of two cards, one CPU of a workstation and the rest; 2,250 of four; 3,050 of five, with two CPUs of a server.
        (2, [1650, 1700, 1800]),
        (4, [2700, 2850, 2950]),
        (5, [3700, 3850, 4000]),
        # Eight cards of a desktop are no DGX: 8 x 450, two CPUs and the rest are 4,400.
        (8, [5300, 5500, 5750]),
    ],
)
def test_two_cards_take_the_cpu_of_a_workstation_and_five_two_of_a_server(count: int, supply: list[float]) -> None:
    assert needs(RTX, count)["power supply"] == supply


def test_all_power_becomes_heat_and_a_circuit_bears_it_for_hours() -> None:
    found = needs(RTX, 1)
    assert found["heat"] == pytest.approx([692 * 0.69 * 3.412, 692 * 3.412, 692 * 3.412])
    assert (
        texts(RTX, 1)["circuit"]
        == "at the wall; 15 A at 120 V; 20 A at 208 V; 10 A at 230 V; 16 A three-phase at 400 V"
    )
    assert texts(RTX, 1)["heat"] == "all of 692 W becomes heat"
    assert texts(RTX, 1)["power supply"] == "peaks of 692 W and 20 to 30 % more"
    # 11.1 kW at the wall.
    assert texts(H100, 8)["circuit"] == "at the wall; 60 A three-phase at 208 V; 32 A three-phase at 400 V"


def test_what_is_sold_whole_says_so_and_a_card_without_its_power_nothing() -> None:
    laptop = cards.known()["GeForce RTX 4090 Laptop GPU"]
    assert set(needs(laptop, 1)) == {"host memory", "CPU cores", "storage, reading"}
    assert {"power supply", "heat", "circuit"}.isdisjoint(needs(replace(H100, power=0.0), 1))


def test_lanes_beyond_those_of_a_cpu_are_told() -> None:
    """Eight cards are 128 lanes, as a CPU of a server has; the table knows none of more cards in a machine."""
    assert texts(H100, 8)["PCIe lanes"] == "16 for each card"
    assert texts(H100, 1)["host memory"] == "2 to 4 times the 80 GiB of the cards"
    assert needs(H100, 3)["PCIe lanes"] == [24, 48, 48]
    assert needs(H100, 3)["CPU cores"] == [13, 13, 19]
    assert needs(H100, 3)["storage, reading"] == pytest.approx([0.3, 1.5, 3])
    assert texts(H100, 3)["storage, reading"] == "0.5 GB/s for each card that trains"


def test_a_module_has_its_own_supply_and_no_slot() -> None:
    assert set(needs(ORIN, 1)) == {"host memory", "CPU cores", "storage, reading"}


def test_only_several_machines_need_a_network() -> None:
    assert "network" not in needs(H100, 8)
    assert needs(H100, 9)["network"] == [100, 3200, 3200]
    assert (
        texts(H100, 9)["network"] == "between machines: 100 Gb/s and up a machine; 3200 where gradients must not wait"
    )
    assert texts(RTX, 9)["network"] == "between machines: 100 Gb/s and up a machine; 100 where gradients must not wait"
    assert needs(H100, 16)["network"] == [100, 3200, 3200]
    assert needs(RTX, 16)["network"] == [100, 100, 100]
    a100 = cards.known()["A100 SXM4 80GB"]
    assert needs(a100, 16)["network"][1] == 1600


def test_a_machine_has_eight_cards_and_storage_is_read_by_all() -> None:
    assert needs(H100, 64)["host memory"] == needs(H100, 8)["host memory"]
    assert needs(H100, 64)["storage, reading"][1] == pytest.approx(32)


@pytest.mark.parametrize(
    ("watts", "circuits"),
    [(1000, {120: "15 A", 230: "10 A"}), (1500, {120: "20 A", 230: "10 A"}), (11_000, {400: "32 A three-phase"})],
)
def test_the_smallest_circuit_of_each_voltage_is_named(watts: float, circuits: dict[int, str]) -> None:
    found = hosting.circuits(watts, 0.8)
    assert circuits.items() <= found.items()
    assert 120 not in hosting.circuits(11_000, 0.8)


def test_a_circuit_bears_what_it_is_made_for_and_not_a_watt_more() -> None:
    """1,440 W of 120 V and 15 A, by the NEC; of 400 V and 16 A in three phases 8,868 W."""
    assert hosting.circuits(1440, 0.8)[120] == "15 A"
    assert hosting.circuits(1440.1, 0.8)[120] == "20 A"
    assert hosting.circuits(8868, 0.8)[400] == "16 A three-phase"
    assert hosting.circuits(8869, 0.8)[400] == "32 A three-phase"
    # What only a few places have is not told: 100, 200, 240 and 415 V.
    assert set(hosting.circuits(1000, 0.8)) == {120, 208, 230, 400}


def test_a_checkpoint_is_fourteen_bytes_a_parameter_of_what_is_trained() -> None:
    shape = models.find("10B")
    (need,) = hosting.checkpoints(shape, memory.Training())
    assert [need["low"], need["value"], need["high"]] == pytest.approx([120, 140, 160])
    assert need["text"] == "14 bytes a parameter; 2 are kept"
    assert hosting.checkpoints(shape, memory.Training(kind="lora")) == []


def test_every_need_has_its_source() -> None:
    assert all(need["source"].startswith("compat/sizing/machines.yaml: ") for need in hosting.machine(H100, 16))

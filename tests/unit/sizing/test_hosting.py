"""The machine around the cards, figure by figure."""

from __future__ import annotations

import pytest

from gpuwright.sizing import cards, hosting, memory, models

H100, RTX, ORIN = (cards.known()[name] for name in ("H100 SXM5 80GB", "GeForce RTX 4090", "Jetson AGX Orin 64GB"))


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


def test_two_cards_take_the_cpu_of_a_workstation_and_five_two_of_a_server() -> None:
    two, five = needs(RTX, 2)["power supply"], needs(RTX, 5)["power supply"]
    assert two[1] == pytest.approx((2 * 450 + 350 + 100) * 1.25, abs=50)
    assert five[1] == pytest.approx((5 * 450 + 2 * 350 + 100) * 1.25, abs=50)


def test_a_module_has_its_own_supply_and_no_slot() -> None:
    assert set(needs(ORIN, 1)) == {"host memory", "CPU cores", "storage, reading"}


def test_only_several_machines_need_a_network() -> None:
    assert "network" not in needs(H100, 8)
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


def test_a_checkpoint_is_fourteen_bytes_a_parameter_of_what_is_trained() -> None:
    shape = models.find("10B")
    (need,) = hosting.checkpoints(shape, memory.Training())
    assert [need["low"], need["value"], need["high"]] == pytest.approx([120, 140, 160])
    assert hosting.checkpoints(shape, memory.Training(kind="lora")) == []


def test_every_need_has_its_source() -> None:
    assert all(need["source"].startswith("compat/sizing/machines.yaml: ") for need in hosting.machine(H100, 16))

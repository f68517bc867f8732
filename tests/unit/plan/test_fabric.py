"""Who is measured with whom between hosts, and what each is told for it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import fabric, measurements
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.fabric import Member, Round
from tests.unit.plan.nodes import bare, smi
from tests.unit.roles.test_measurements import PYTORCH, measured

ASKED = {"validate_fabric": True}


def member(number: int, ranks: int = 8) -> Member:
    return {
        "python": "/opt/gpuwright/pytorch/bin/python",
        "ranks": ranks,
        "expect_cuda": True,
        "busy": False,
        "address": f"10.0.0.{number}",
        "port": 29500,
        "interface": "",
        "patience": 180,
        "environment": {},
    }


def members(count: int) -> dict[str, Member]:
    return {f"node{number:03d}": member(number % 250) for number in range(count)}


def groups(found: Round) -> set[tuple[str, ...]]:
    return {tuple(part["hosts"]) for part in found["parts"].values()}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8])
def test_of_up_to_eight_hosts_each_pair_is_measured_once(count: int) -> None:
    rounds = fabric.pairs(members(count))
    met = Counter(frozenset(pair) for each in rounds for pair in groups(each))
    assert set(met.values()) == {1}
    assert len(met) == count * (count - 1) // 2


@pytest.mark.parametrize("count", [2, 3, 8, 9, 16, 33, 500])
def test_in_a_round_a_host_is_in_one_pair_and_the_rounds_are_few(count: int) -> None:
    rounds = fabric.pairs(members(count))
    assert len(rounds) <= fabric.MOST_ROUNDS
    for each in rounds:
        every = [host for pair in groups(each) for host in pair]
        assert len(every) == len(set(every)) == len(each["parts"]) == count - count % 2


@pytest.mark.parametrize("count", [9, 16, 33, 500])
def test_of_many_hosts_each_meets_others_than_before_in_every_round(count: int) -> None:
    rounds = fabric.pairs(members(count))
    met = Counter(frozenset(pair) for each in rounds for pair in groups(each))
    assert max(met.values()) == 1
    partners = Counter(host for pair in met for host in pair)
    assert min(partners.values()) >= fabric.MOST_ROUNDS - count % 2


@pytest.mark.parametrize("count", [0, 1])
def test_one_host_is_measured_with_nobody(count: int) -> None:
    assert fabric.pairs(members(count)) == []


def test_a_pair_has_one_listener_its_own_ranks_and_the_same_number_of_all() -> None:
    found = fabric.pairs({"a": member(1, ranks=8), "b": member(2, ranks=4)})
    (each,) = found
    first, second = each["parts"]["a"], each["parts"]["b"]
    assert (first["address"], second["address"]) == ("10.0.0.1", "10.0.0.1")
    assert (first["first_rank"], first["expected_ranks"], second["first_rank"], second["expected_ranks"]) == (
        0,
        8,
        8,
        4,
    )
    assert first["ranks"] == second["ranks"] == 12
    assert first["limit"] > first["patience"] + first["seconds"]


def test_each_round_has_a_port_of_its_own() -> None:
    every = members(4)
    rounds = [*fabric.pairs(every), *fabric.together(every, every)]
    ports = [{part["port"] for part in each["parts"].values()} for each in rounds]
    assert [len(port) for port in ports] == [1, 1, 1, 1]
    assert len(set.union(*ports)) == 4


def test_together_are_those_that_are_able_to_and_two_were_a_pair_already() -> None:
    every = members(4)
    (found,) = fabric.together(every, {"node000", "node001", "node003", "a stranger"})
    assert sorted(found["parts"]) == ["node000", "node001", "node003"]
    assert {part["ranks"] for part in found["parts"].values()} == {24}
    assert fabric.together(every, {"node000", "node001"}) == []


def asked(variables: dict[str, Any], facts: Any = None, stack: Any = None, **changes: Any) -> measurements.Measurements:
    return measured(facts, stack, measurements.asked({"validate": variables}, (), pending=False), **changes)


def reasons(found: measurements.Measurements) -> list[str | None]:
    return [gap["reason"] for gap in found["gaps"] if gap["id"] == "fabric.runs" and gap["status"] == "incomplete"]


def test_nothing_is_measured_between_hosts_unless_it_is_asked() -> None:
    found = asked({})
    assert found["fabric"] is None
    assert not reasons(found)


def test_a_host_brings_its_cards_and_the_environment_with_pytorch() -> None:
    found = asked({**ASKED, "validate_fabric_port": 30000, "validate_fabric_interface": "ib0"})["fabric"]
    assert found == {
        "python": "/opt/gpuwright/pytorch/bin/python",
        "ranks": 2,
        "expect_cuda": True,
        "busy": False,
        "port": 30000,
        "interface": "ib0",
        "patience": 180,
        "environment": {},
    }


def test_a_host_without_cards_brings_one_process_of_its_processor() -> None:
    found = asked(ASKED, stack={"frameworks": [{**PYTORCH, "cuda": None}]}, cpu_only=True)["fabric"]
    assert found is not None
    assert (found["ranks"], found["expect_cuda"]) == (1, False)


def parted() -> Any:
    facts = bare()
    facts["smi"] = smi({"uuid": "GPU-1", "mig": {"current": True, "pending": True}})
    return facts


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (asked(ASKED, stack={"frameworks": [{**PYTORCH, "name": "jax"}]}), "no environment with PyTorch is wished, which brings NCCL"),
        (asked(ASKED, parted()), "NCCL does not work over parted cards (MIG)"),
        (asked(ASKED, provision_only=True), "no card computes yet"),
    ],
)  # fmt: skip
def test_where_nothing_can_be_measured_the_proof_is_not_whole(found: measurements.Measurements, reason: str) -> None:
    assert found["fabric"] is None
    assert reasons(found) == [reason]

"""Cards under load: a healthy node is proven, and each fault that shows only then is found. The stand-in libcuda computes and compares."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node, Run

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="services")]

#: A burn-in of seconds: the driver's own load has two thirds, enough on a busy machine. The disk and DCGM have tests of their own.
_SHORT = ("--profile=burn-in", "-e", "validate_seconds=27", "-e", "validate_storage=false")


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A server with two H100 and its driver."""
    node = make_shared_node("load", "two-h100")
    brought = node.run("up", "--yes", "--want=driver=580")
    assert brought.code == 0, str(brought)
    return node


def proven(machine: Node, *arguments: str) -> tuple[Run, dict[str, set[str]]]:
    """A short burn-in, and the statuses of its checks by their ids."""
    run = machine.run("validate", "--want=driver=580", *(arguments or _SHORT))
    found: dict[str, set[str]] = {}
    for check in run.host["checks"]:
        found.setdefault(check["id"], set()).add(check["status"])
    return run, found


def test_without_a_profile_nothing_is_loaded(machine: Node) -> None:
    run, found = proven(machine, "-e", "validate_storage=false")
    assert run.code == 0, str(run)
    assert [id_ for id_ in found if id_.startswith(("load.", "dcgm.", "nccl.", "train."))] == []


def test_healthy_cards_are_proven_under_load(machine: Node) -> None:
    run, found = proven(machine)
    assert run.code == 0, str(run)
    assert found["load.memory"] == found["load.compute"] == found["load.clocks"] == found["load.pcie_width"] == {"pass"}
    assert not [id_ for id_, statuses in found.items() if id_.startswith("load.") and statuses - {"pass", "skip"}]
    assert machine.shell("pgrep -f '[c]ard_load'", check=False) == ""


@pytest.mark.parametrize(
    ("fault", "id_"),
    [
        ("wrong-memory", "load.memory"),
        ("wrong-results", "load.compute"),
        ("hanging-load", "load.runs"),
        ("crashing-load", "load.runs"),
        ("failing-load", "load.runs"),
        ("throttling-under-load", "load.throttle_hw"),
        ("narrow-pcie-under-load:1", "load.pcie_width"),
        ("ecc-under-load", "load.ecc_volatile_unc"),
        ("lost-under-load", "load.smi"),
    ],
)
def test_what_is_wrong_only_under_load_is_found(machine: Node, fault: str, id_: str) -> None:
    machine.fault(fault)
    try:
        doctor = machine.run("doctor", "--want=driver=580")
        run, found = proven(machine)
    finally:
        machine.fault(fault, clear=True)
    assert (run.code, run.host["verdict"]) == (1, "fail"), str(run)
    assert "fail" in found.get(id_, set()), {key: value for key, value in found.items() if key.startswith("load.")}
    # The last proof may be the one of the fault before.
    assert {check["id"] for check in doctor.host["checks"] if check["status"] == "fail"} <= {"proof.age"}


def test_a_healthy_node_is_proven_again_after_all_of_that(machine: Node) -> None:
    run, _found = proven(machine)
    assert run.code == 0, str(run)

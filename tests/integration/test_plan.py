"""`gpuwright plan` on a simulated node: it says what it would do, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node, gpuwright

pytestmark = pytest.mark.sim


def test_a_plan_of_a_bare_node_changes_no_file(make_node: Callable[..., Node]) -> None:
    machine = make_node("plan")
    before = machine.files()
    run = gpuwright("plan", "-i", machine.inventory, "--json")
    assert run.code == 0, str(run)
    after = machine.files()
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert not changed
    assert {change["component"] for change in run.host["changes"]} >= {
        "nvidia_driver",
        "nouveau_blacklist",
        "cuda",
        "container_toolkit",
        "frameworks",
    }


def test_a_repository_that_somebody_else_signed_is_refused_before_any_change(make_node: Callable[..., Node]) -> None:
    machine = make_node("wrongkey", wrong_key=True)
    before = machine.files()
    run = gpuwright("up", "--yes", "-i", machine.inventory, "--json")
    assert run.code in (1, 3), str(run)
    assert machine.files() == before
    assert "sign" in run.stdout.lower() or "key" in run.stdout.lower()


def test_a_node_without_cards_is_skipped_and_named(make_node: Callable[..., Node]) -> None:
    machine = make_node("nogpu", "no-gpu")
    run = gpuwright("plan", "-i", machine.inventory, "--json")
    assert machine.name in run.json["hosts"]
    assert run.host["changes"] == []

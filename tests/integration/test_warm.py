"""`gpuwright up` on a node that is already right: one look, and nothing else."""

from __future__ import annotations

import pytest

from . import witness
from .conftest import Node

pytestmark = pytest.mark.sim


def test_a_second_up_runs_no_role_and_changes_nothing(ready_node: Node) -> None:
    before = ready_node.tree()
    run = ready_node.up()
    assert run.code == 0, str(run)
    assert run.roles == []
    assert run.changed == 0
    assert run.host["changes"] == []
    assert run.host["verdict"] == "pass"
    assert witness.differences(before, ready_node.tree()) == {}


def test_a_second_up_is_one_command_on_the_node(ready_node: Node) -> None:
    place = witness.journal_cursor(ready_node.name)
    assert ready_node.up().code == 0
    commands = witness.sudo_commands(ready_node.name, place)
    assert len(commands) == 1, commands


def test_the_playbook_alone_is_one_round_trip_too(ready_node: Node) -> None:
    operations, recap = witness.remote_operations(ready_node.inventory)
    assert len(operations) == 1, operations
    assert "changed=0" in recap
    assert "failed=0" in recap


def test_up_full_runs_every_role_and_changes_nothing(ready_node: Node) -> None:
    run = ready_node.up("--full")
    assert run.code == 0, str(run)
    assert run.components == {"nvidia_driver", "nouveau_blacklist", "cuda", "container_toolkit", "frameworks"}
    assert "validate" in run.roles
    assert run.changed == 0
    assert run.host["verdict"] == "pass"

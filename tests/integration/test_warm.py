"""`gpuwright up` on a node that is already right: one look, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.report import html, junit

from . import snapshot
from .conftest import Node, gpuwright

pytestmark = pytest.mark.sim


def test_a_second_up_runs_no_role_and_changes_nothing(ready_node: Node) -> None:
    before = ready_node.tree()
    run = ready_node.up()
    assert run.code == 0, str(run)
    assert run.roles == []
    assert run.changed == 0
    assert run.host["changes"] == []
    assert run.host["verdict"] == "pass"
    assert snapshot.differences(before, ready_node.tree()) == {}


def test_a_host_that_stays_costs_at_most_20_kb(ready_node: Node) -> None:
    run = ready_node.up()
    assert run.report, str(run)
    report = json.loads((run.report / "report.json").read_text())
    empty: Any = {**report, "hosts": {}, "simulated": False}
    sizes = {
        "documents": sum(path.stat().st_size for kind in ("facts", "plans") for path in (run.report / kind).iterdir()),
        "report.json": len(json.dumps(report["hosts"])),
        "report.html": len(html.render(report)) - len(html.render(empty)),
        "junit.xml": len(junit.render(report)) - len(junit.render(empty)),
    }
    assert list((run.report / "hosts").iterdir()) == []
    # Two cards. The documents of eight have a third more, which is beyond it.
    assert sum(sizes.values()) < 20_000, sizes


def test_a_second_up_is_one_command_on_the_node(ready_node: Node) -> None:
    place = snapshot.journal_cursor(ready_node.name)
    assert ready_node.up().code == 0
    commands = snapshot.sudo_commands(ready_node.name, place)
    assert len(commands) == 1, commands


def test_the_playbook_alone_is_one_round_trip_too(ready_node: Node) -> None:
    operations, recap = snapshot.remote_operations(ready_node.inventory)
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


def test_without_root_what_is_sealed_and_proven_is_unknown_and_not_missing(ready_node: Node) -> None:
    plain = ("-e", "ansible_become=false")
    reasons = [change["reason"] for change in ready_node.plan(*plain).host["changes"]]
    assert reasons
    assert all(reason.startswith("it is not known wh") for reason in reasons[:-1]), reasons
    status = gpuwright("status", "-i", ready_node.inventory, "--json", *plain)
    assert (status.code, status.host["state"], status.host["drift"]) == (1, "unknown", []), str(status)
    assert set(status.host["unknown"]) == {"seals", "proof"}
    for verb, rule in (("up", "needs-root"), ("remove", "needs-root"), ("rollback", "rollback-unknown")):
        refused = gpuwright(verb, "--yes", "-i", ready_node.inventory, "--json", *plain)
        assert refused.code == 3, str(refused)
        assert [row["rule"] for row in refused.host["refusals"]] == [rule]
    assert gpuwright("status", "-i", ready_node.inventory, "--json").host["state"] == "ok"


def test_a_node_whose_last_proof_failed_is_not_ok_and_ansible_alone_says_so_too(ready_node: Node) -> None:
    proof = "/var/lib/gpuwright/proof.json"
    ready_node.shell(f'cp -p {proof} /root/proof && sed -i \'s/"verdict": *"pass"/"verdict": "fail"/\' {proof}')
    try:
        status = gpuwright("status", "-i", ready_node.inventory)
        (row,) = [line for line in status.stdout.splitlines() if ready_node.name in line]
        assert (status.code, row.split()[0]) == (1, "fail"), str(status)
        alone = snapshot.playbook("playbooks/status.yml", ready_node.inventory)
        same = row.rpartition(", ")[0]  # the age of the proof may have become a minute
        assert any(line.startswith(same) for line in alone.splitlines()), alone
    finally:
        ready_node.shell(f"mv /root/proof {proof}")

"""Several simulated nodes at once: a canary that fails stops the rest, and everybody is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from .conftest import Node, gpuwright

pytestmark = pytest.mark.sim


def test_a_failing_canary_stops_the_rest_and_everybody_is_named(make_node: Callable[..., Node], tmp_path: Path) -> None:
    machines = [make_node(name) for name in ("a", "b", "c")]
    machines[1].shell("touch /etc/gpuwright-sim/dkms-fails")
    merged = [yaml.safe_load(machine.inventory.read_text())["all"] for machine in machines]
    hosts = {name: entry for inventory in merged for name, entry in inventory["hosts"].items()}
    path = tmp_path / "fleet.yml"
    path.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": {**merged[0]["vars"], "gpuwright_serial": 1}}}))
    run = gpuwright("up", "--yes", "-i", path, "--json")
    assert run.code == 1, str(run)
    verdicts = {name: entry["verdict"] for name, entry in run.json["hosts"].items()}
    assert verdicts[machines[0].name] == "pass"
    assert verdicts[machines[1].name] == "fail"
    assert verdicts.get(machines[2].name) != "pass"


def test_an_unreachable_host_is_named_and_the_others_are_brought_up(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    machine = make_node("here")
    inventory = yaml.safe_load(machine.inventory.read_text())
    inventory["all"]["hosts"]["gone"] = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    path = tmp_path / "half.yml"
    path.write_text(yaml.safe_dump(inventory))
    run = gpuwright("plan", "-i", path, "--json")
    assert run.code == 1, str(run)
    assert "gone" in run.json["unreachable"]
    assert machine.name in run.json["hosts"]

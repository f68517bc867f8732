"""Several simulated nodes at once: a canary that fails stops the rest, and everybody is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.sim import node

from .conftest import Node, gpuwright
from .footprint import footprint

pytestmark = pytest.mark.sim

#: What the simulated DKMS does with this file there: the module of the driver does not build.
_CANNOT_BUILD = "/etc/gpuwright-sim/dkms-fails"


@pytest.fixture(scope="module")
def fleet(container_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Three bare nodes in one inventory, worked on one after another, and a host that is not there. The first one fails."""
    names = [f"it-fleet-{letter}" for letter in "abc"]
    for name in names:
        node.remove(name)
        node.create(name, "two-h100")
    inventory = yaml.safe_load(node.inventory(names))
    inventory["all"]["hosts"]["gone"] = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    inventory["all"]["vars"] |= {"gpuwright_serial": 1, "gpuwright_want": ["driver=580"]}
    path = tmp_path_factory.mktemp("inventory") / "fleet.yml"
    path.write_text(yaml.safe_dump(inventory, sort_keys=False))
    machines = [Node(name, path) for name in names]
    machines[0].shell(f"touch {_CANNOT_BUILD}")
    yield machines
    for name in names:
        node.remove(name)


def test_a_canary_that_fails_stops_the_rest_and_everybody_is_named(fleet: list[Node], tmp_path: Path) -> None:
    canary, *others = fleet
    before = [footprint(machine) for machine in others]
    run = gpuwright("up", "--yes", "-i", canary.inventory, "--json", "--report", tmp_path)
    assert run.code == run.json["exit"] == 1, str(run)
    assert [footprint(machine) for machine in others] == before
    hosts = run.json["hosts"]
    assert {name: entry["verdict"] for name, entry in hosts.items()} == {
        canary.name: "fail",
        **{machine.name: "incomplete" for machine in others},
    }
    failure = hosts[canary.name]["failure"]
    assert failure["component"] == "nvidia_driver"
    assert "Bad return status for module build" in failure["output"]
    assert {hosts[machine.name]["failure"]["message"] for machine in others} == {
        "the run stopped before it came to this host"
    }
    assert run.json["unreachable"].keys() == {"gone"}
    assert run.json["unreachable"]["gone"].startswith("cannot be reached by ssh: ")
    assert run.json["unreachable"]["gone"].endswith("Connection refused")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"] == "fail"
    assert (report["hosts"].keys(), report["not_reached"]) == ({canary.name}, [machine.name for machine in others])
    assert report["unreachable"] == run.json["unreachable"]
    assert canary.shell("ls /run/gpuwright/lock.json", check=False) == "", "the lock is given back"


def test_with_failures_allowed_the_rest_goes_on(fleet: list[Node]) -> None:
    # Ansible stops after a wave in which every host failed, whatever it is allowed: so waves of two.
    waves = ("-e", "gpuwright_serial=2", "-e", "gpuwright_max_fail_percentage=50")
    run = gpuwright("up", "--yes", "--no-reboot", "-i", fleet[0].inventory, *waves, "--json")
    assert run.code == 1, str(run)
    entries = [run.json["hosts"][machine.name] for machine in fleet]
    assert [entry["verdict"] for entry in entries] == ["fail", "incomplete", "incomplete"]
    # What the first run left unfinished is what the second one cannot finish either.
    assert [(entry.get("failure") or {}).get("component") for entry in entries] == ["repair", None, None]
    assert [entry["reboot"] for entry in entries] == [False, True, True]

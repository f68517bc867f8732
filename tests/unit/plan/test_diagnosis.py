"""A diagnosis passes no gate of a change: what would stop one is a finding beside all others."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import DIAGNOSING
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan, proven, wish
from tests.unit.resolve.test_monitoring import listener

#: A node on which nginx has the port of the exporter of cards, and whose driver is of two versions.
TAKEN = {"listeners": [listener(9400, process="nginx", unit="nginx.service", tells=None)], "drop_ins": []}


def node(**changes: Any) -> Any:
    there = {"monitoring": {**TAKEN, "certificate": None}, "driver": {"user_version": "580.1"}}
    return nodes.provisioned(**{**there, **changes})


def asked() -> Wish:
    return Wish.from_variables({"gpuwright_want": ["driver=580", "container-toolkit", "monitoring=smi"]})


def told(planned: Any, name: str) -> list[Any]:
    return [check for check in planned["checks"] if check["id"] == name]


@pytest.mark.parametrize("verb", DIAGNOSING)
def test_a_port_that_is_taken_hides_no_check(verb: str) -> None:
    free = plan(node(monitoring={"listeners": [], "drop_ins": [], "certificate": None}), asked(), verb=verb)
    held = plan(node(), asked(), verb=verb)
    (finding,) = told(held, "wish.conflict")
    assert (finding["status"], finding["measured"]) == ("fail", "monitoring.port")
    assert "is held by nginx" in finding["reason"]
    assert "monitoring_gpu_port" in finding["remedy"]
    assert (held["ok"], held["conflicts"]) == (True, [])
    without = {check["id"] for check in free["checks"] if not check["id"].startswith("monitoring.")}
    assert without < {check["id"] for check in held["checks"]}
    (mismatch,) = told(held, "driver.next_kernel")
    assert mismatch["status"] == "fail"


def test_who_changes_something_is_still_refused() -> None:
    for verb in ("up", "plan"):
        refused = plan(node(), asked(), verb=verb)
        assert [row["rule"] for row in refused["conflicts"]] == ["monitoring.port"]
        assert not refused["ok"]


def test_a_proof_measures_all_and_has_the_finding_among_its_checks() -> None:
    held = plan(node(), asked(), verb="validate")
    work = held["work"]["validate"]
    assert work["smi"]
    assert [check["id"] for check in work["gaps"]][:1] == ["wish.conflict"]
    assert held["why_not"] is None


def test_a_wish_for_a_driver_that_there_is_none_of_leaves_the_checks_of_what_is_there() -> None:
    impossible = Wish.from_variables({"gpuwright_want": ["driver=390"]})
    assert plan(node(), impossible)["conflicts"]
    looked = plan(node(), impossible, verb="doctor")
    assert told(looked, "wish.conflict")
    assert {"driver.loaded", "driver.version_match", "disk.space"} <= {check["id"] for check in looked["checks"]}


@pytest.mark.parametrize("verb", DIAGNOSING)
def test_what_only_stands_against_a_change_is_a_warning(verb: str) -> None:
    newer: Any = {
        "cuda": {"state": "newer", "reason": None, "gpuwright": "9.0", "stack": {}, "packages": {}, "gpus": []}
    }
    made = plan(nodes.provisioned(seals=newer), wish(), verb=verb)
    (finding,) = told(made, "wish.refused")
    assert (finding["status"], finding["measured"]) == ("warn", "newer-seal")
    assert "update gpuwright" in finding["remedy"]
    assert (made["ok"], made["refusals"]) == (True, [])


def test_a_proof_goes_on_where_the_look_before_it_found_something_wrong() -> None:
    """All is sealed and proven: nothing is in the plan, and a check fails."""
    done = proven(nodes.provisioned())
    full = nodes.merged(done, {"disks": [{**done["disks"][0], "read_only": True}]})
    assert plan(full, verb="doctor")["components"] == []
    assert plan(full, verb="doctor")["why_not"]
    assert plan(full, verb="validate")["why_not"] is None

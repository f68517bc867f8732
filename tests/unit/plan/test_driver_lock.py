"""The lock over the driver's set: what it has to be, what is missing of it, and what a node drifted by."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverPin
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import version_hold
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import drift, judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.stack import Stack
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan, proven

HOLDS: DriverPin = {"package": "nvidia-driver-pinning-580", "hold": ["nvidia-driver-cuda"]}
KERNEL: DriverPin = {"hold": []}
SET = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms")
#: The pin of a branch has a version of its own, which an upgrade of everything would move: it is held with the set.
BRANCH_PIN = "nvidia-driver-pinning-580"
FILE = "/etc/apt/apt.conf.d/52gpuwright-nvidia-driver"


def facts_with(**lock: Any) -> Any:
    return nodes.provisioned(driver={"lock": lock})


def test_a_whole_lock_has_no_differences() -> None:
    assert version_hold.differences(nodes.provisioned(), HOLDS) == []


@pytest.mark.parametrize(
    ("pin", "kind", "holds", "release", "excluded"),
    [
        (HOLDS, "holds", (*SET, BRANCH_PIN), (), 2),
        (KERNEL, "kernel", (), (*SET, BRANCH_PIN), 2),
    ],
)
def test_each_kind_of_lock_takes_back_what_another_left(
    pin: DriverPin, kind: str, holds: tuple[str, ...], release: tuple[str, ...], excluded: int
) -> None:
    lock = version_hold.of(nodes.provisioned(), pin)
    assert (lock.kind, lock.holds, lock.release, len(lock.excluded)) == (kind, holds, release, excluded)


def test_every_package_of_the_set_has_to_be_held_not_only_the_named_ones() -> None:
    facts = facts_with(set=[*SET, "libcuda1", "libnvidia-ml1"])
    reasons = version_hold.differences(facts, HOLDS)
    assert reasons[0] == "not held against unattended upgrades: libcuda1, libnvidia-ml1"
    assert reasons[1] == f"{FILE} names other packages than those of the set"


def test_on_dnf_every_package_of_the_set_has_to_be_locked_too() -> None:
    facts = nodes.merged(facts_with(set=[*SET, "libnvidia-ml"], held=[], pins={}), {"packages": {"manager": "dnf"}})
    pin: DriverPin = {"hold": ["nvidia-driver-cuda"], "stream": "nvidia-driver:580-open"}
    assert version_hold.of(facts, pin).holds == (*SET, "libnvidia-ml")
    assert version_hold.differences(facts, pin) == ["not held against unattended upgrades: libnvidia-ml"]
    assert version_hold.of(facts, KERNEL).holds == ()


def test_a_missing_exclusion_and_a_missing_pin_file_are_named() -> None:
    path = "/etc/apt/preferences.d/nvidia-driver-pinning-580"
    facts = facts_with(excluded=None, pins={HOLDS["package"]: {"files": [path], "missing": [path]}})
    assert version_hold.differences(facts, HOLDS) == [
        f"{FILE}, which keeps unattended upgrades from the set, is missing",
        f"{path}, the pin of nvidia-driver-pinning-580, is gone",
    ]


def test_patterns_are_anchored_and_exact() -> None:
    assert version_hold.pattern("nvidia-firmware-580-580.126.20") == r"^nvidia-firmware-580-580\.126\.20$"


def test_the_plan_mends_a_broken_lock_and_the_seal_covers_it() -> None:
    facts = proven(nodes.provisioned())
    assert plan(facts)["changes"] == []
    facts["packages"]["holds"] = ["nvidia-driver-cuda", BRANCH_PIN]
    changes = plan(facts)["changes"]
    assert [(row["component"], row["action"]) for row in changes] == [
        ("nvidia_driver", "configure"),
        ("validate", "prove"),
    ]
    assert changes[0]["reason"] == "not held against unattended upgrades: nvidia-kernel-open-dkms"
    stack = plan(facts)["stack"]
    manages = COMPONENTS["nvidia_driver"].sealed(Context(facts=facts_with(set=[*SET, "libcuda1"]), stack=stack))
    assert "libcuda1" in manages.packages
    assert {FILE, "/etc/apt/preferences.d/nvidia-driver-pinning-580"} <= set(manages.files)


def test_a_package_that_was_moved_goes_back_although_it_lost_its_hold_too() -> None:
    facts = sealed()
    facts["packages"]["holds"] = ["nvidia-driver-cuda", BRANCH_PIN]
    facts["packages"]["installed"]["nvidia-kernel-open-dkms"] = "580.1-1"
    reason = f"package nvidia-kernel-open-dkms is 580.1-1 instead of {nodes.DRIVER}-1"
    facts["seals"]["nvidia_driver"] |= {"state": "broken", "reason": reason}
    changes = [row for row in plan(facts)["changes"] if row["component"] == "nvidia_driver"]
    assert [row["reason"] for row in changes] == [
        reason,
        "not held against unattended upgrades: nvidia-kernel-open-dkms",
    ]
    assert changes[0]["packages"], changes


def lock_check(facts: Any, **driver: Any) -> Check:
    stack: Stack = {"driver": nodes.driver_stack(**{"pin": HOLDS, **driver})}
    (check,) = [each for each in judge.judge(facts, stack) if each["id"] == "driver.lock"]
    return check


def test_the_doctor_judges_the_lock() -> None:
    assert lock_check(nodes.provisioned())["status"] == "pass"
    broken = lock_check(facts_with(excluded=None))
    assert (broken["status"], broken["measured"], broken["expected"]) == ("fail", "broken", "holds")
    assert "gpuwright up" in str(broken["remedy"])
    assert lock_check(nodes.provisioned(), adopted=True)["status"] == "skip"
    assert lock_check(nodes.bare())["status"] == "skip"


def test_what_apt_would_move_breaks_a_lock_that_looks_whole() -> None:
    moving = [{"name": "libcuda1", "from": "580.126.20-1", "to": "580.178.04-1"}]
    check = lock_check(facts_with(would_move=moving))
    assert check["status"] == "fail"
    assert check["reason"] == "apt-get dist-upgrade would move libcuda1 580.126.20-1 -> 580.178.04-1"


def test_an_apt_that_did_not_answer_is_incomplete() -> None:
    facts = {**nodes.provisioned(), "unknown": {"driver.would_move": "apt did not answer in 20 s"}}
    assert lock_check(facts)["status"] == "incomplete"


# --- drift ------------------------------------------------------------------------------------------------------------


def told(facts: Any) -> Any:
    return drift.status(facts, plan(facts, verb="status"))


def sealed() -> Any:
    """A proven node whose seal knows the versions of its packages."""
    facts = proven(nodes.provisioned())
    facts["seals"]["nvidia_driver"] |= {
        "packages": {"nvidia-driver-pinning-580": "580-1", **dict.fromkeys(SET, f"{nodes.DRIVER}-1")},
        "stack": plan(facts)["stack"]["driver"],
    }
    return facts


def test_a_proven_node_does_not_drift() -> None:
    facts = sealed()
    status = told(facts)
    assert (status["drift"], status["held"]) == ([], True)
    assert {status["versions"][key] for key in ("kernel", "user", "next", "wanted")} == {nodes.DRIVER}
    assert status["proof"]["verdict"] == "pass"
    assert status["proof"]["age_seconds"] is not None


def test_a_node_that_was_never_proven_is_not_ok() -> None:
    facts = sealed()
    facts["proof"] = None
    status = told(facts)
    assert (status["state"], status["proof"]) == ("incomplete", None)
    facts["unknown"] = {"proof": "only root may read it"}
    assert told(facts)["state"] == "unknown"


def test_a_proof_of_a_day_that_is_yet_to_come_is_not_fresh() -> None:
    facts = sealed()
    facts["proof"]["time"] = "2031-01-01T00:00:00Z"
    status = told(facts)
    assert (status["state"], status["proof"]["age_seconds"]) == ("incomplete", None)
    assert "validate" in plan(facts)["components"]


def test_a_last_proof_that_failed_is_the_state_of_a_host_that_does_not_drift() -> None:
    facts = sealed()
    assert told(facts)["state"] == "ok"
    facts["proof"]["verdict"] = "fail"
    assert (told(facts)["state"], told(facts)["drift"]) == ("fail", [])


def test_what_is_wrong_beside_the_driver_is_no_good_state() -> None:
    facts = sealed()
    facts["seals"]["frameworks"] |= {"state": "broken", "reason": "packages of the environment /opt/e changed"}
    status = told(facts)
    assert (status["state"], status["drift"]) == ("fail", [])
    (environment,) = status["faults"]
    assert environment.endswith("packages of the environment /opt/e changed")
    facts["disks"][0]["read_only"] = True
    facts["seals"]["frameworks"]["reason"] = "service jupyter.service is failed instead of active"
    (disk,) = told(facts)["faults"]
    assert disk.startswith("disk.read_only: "), "what follows from it is silent"


def test_a_proof_of_an_earlier_boot_is_none_of_now() -> None:
    facts = sealed()
    facts["boot"]["id"] = "00000000-0000-4000-8000-000000000000"
    assert told(facts)["state"] == "incomplete"


@pytest.mark.parametrize("living", [True, False])
def test_what_a_run_at_work_changes_is_judged_when_it_has_ended(living: bool) -> None:
    facts = sealed()
    facts["lock"] = {"owner": "ann@desk:7:8:x", "since": "2026-11-20T12:00:00Z", "living": living}
    facts["packages"]["interrupted"] = True
    for seal in facts["seals"].values():
        seal |= {"state": "begun", "reason": "a run that began 2026-11-20T12:00:00Z has not come to its end"}
    status, found = told(facts), {check["id"]: check for check in judge.judge(facts)}
    busy = "a run of ann@desk is at work since 2026-11-20T12:00:00Z"
    assert (status["state"], status["unknown"]) == (("unknown", {"lock": busy}) if living else ("drift", {}))
    for name in ("seals.nvidia_driver", "packages.interrupted"):
        assert found[name]["status"] == ("incomplete" if living else "fail")
        assert (found[name]["reason"] == busy) is living


def test_what_only_root_may_read_is_unknown_and_no_drift() -> None:
    facts = nodes.merged(sealed(), nodes.unseen())
    status = told(facts)
    assert (status["state"], status["drift"]) == ("unknown", [])
    assert set(status["unknown"]) == {"seals", "proof"}
    assert all("Permission denied" in sentence for sentence in status["unknown"].values())


def test_a_node_without_a_driver_drifts_from_the_wish() -> None:
    status = told(nodes.bare())
    assert status["drift"]
    assert status["versions"] == {
        "kernel": None,
        "user": None,
        "next": None,
        "next_kernel": nodes.bare()["kernel"]["next"],
        "wanted": "branch 580",
    }
    assert (status["held"], status["proof"]) == (None, None)


def test_libraries_that_moved_under_the_module_are_drift_and_the_sealed_version_is_wanted() -> None:
    facts = sealed()
    facts["driver"]["user_version"] = "580.200.01"
    facts["kernel"]["available"]["nvidia"]["version"] = "580.200.01"
    facts["seals"]["nvidia_driver"] |= {"state": "broken", "reason": "package libcuda1 is 580.200.01-1 instead of old"}
    status = told(facts)
    assert status["versions"]["wanted"] == nodes.DRIVER
    assert any("580.200.01" in sentence and "a reboot is needed" in sentence for sentence in status["drift"])


def test_a_reason_is_told_once() -> None:
    facts = proven(nodes.provisioned())
    facts["packages"]["holds"] = []
    facts["driver"]["lock"] |= {"excluded": None}
    drifted = told(facts)["drift"]
    assert len(drifted) == 2, drifted
    assert told(facts)["held"] is False


def test_a_host_without_cards_does_not_drift() -> None:
    facts = nodes.bare(pci={"gpus": []})
    assert told(facts)["drift"] == []

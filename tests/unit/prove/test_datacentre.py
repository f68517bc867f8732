"""Checks of the fabric, of nvidia-peermem and of modules that Secure Boot rejects."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver.fabric import MANAGER
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from tests.unit.plan import nodes


def hgx(**changes: Any) -> Any:
    facts = nodes.provisioned(pci={"nvswitches": [{"bus_id": "00000000:60:00.0", "device": "22a3"}]})
    facts["packages"]["installed"]["nvidia-fabricmanager"] = f"{nodes.DRIVER}-1ubuntu1"
    facts["services"][MANAGER] = {"active": "active", "enabled": "enabled"}
    return nodes.merged(facts, changes)


def checks(facts: Any, stack: Any = None) -> Any:
    return {check["id"]: check for check in judge.judge(facts, stack)}


def test_a_fabric_manager_that_runs_at_the_drivers_version_passes() -> None:
    found = checks(hgx())
    assert found["fabricmanager"]["status"] == "pass"
    assert found["fabricmanager.version"]["status"] == "pass"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"active": "failed", "enabled": "enabled"}, "failed"),
        ({"active": "activating", "enabled": "enabled"}, "activating"),
        ({"active": "inactive", "enabled": "not-found"}, "not installed"),
    ],
)
def test_one_that_does_not_run_is_told_with_the_error_that_programs_see(state: dict[str, str], told: str) -> None:
    check = checks(hgx(services={MANAGER: state}))["fabricmanager"]
    assert (check["status"], check["severity"]) == ("fail", "critical")
    assert told in check["reason"]
    assert "802" in check["reason"]


def test_another_version_than_the_loaded_drivers_fails() -> None:
    check = checks(hgx(packages={"installed": {"nvidia-fabricmanager": "580.126.20-1"}}))["fabricmanager.version"]
    assert check["status"] == "fail"
    assert (check["measured"], check["expected"]) == ("580.126.20", nodes.DRIVER)


def test_a_host_behind_nvlink_5_needs_its_transport() -> None:
    behind = {"nvswitches": [], "nvlink5": True}
    assert checks(hgx(pci=behind, fabric={"modules_loaded": []}))["fabric.ib_umad"]["status"] == "fail"
    assert checks(hgx(pci=behind, fabric={"modules_loaded": ["ib_umad"]}))["fabric.ib_umad"]["status"] == "pass"


def test_a_host_without_a_fabric_is_not_asked_for_one() -> None:
    assert not [name for name in checks(nodes.provisioned()) if name.startswith("fabric")]


@pytest.mark.parametrize(("active", "told"), [("failed", ["fabricmanager"]), ("active", []), ("inactive", [])])
def test_a_fabric_manager_that_failed_where_there_is_no_nvswitch_is_not_needed(active: str, told: list[str]) -> None:
    seen = nodes.merged(
        nodes.provisioned(),
        {"pci": {"nvlink5": False}, "services": {MANAGER: {"active": active, "enabled": "enabled"}}},
    )
    found = checks(seen)
    assert [name for name in found if name.startswith("fabric")] == told
    assert not told or (found["fabricmanager"]["status"], "disable" in found["fabricmanager"]["remedy"]) == (
        "warn",
        True,
    )
    assert not [name for name in checks(nodes.merged(seen, {"pci": {"nvswitches": None}})) if name.startswith("fabric")]


def test_peermem_is_named_where_it_could_be_of_use_and_judged_where_it_is_wished() -> None:
    adapters = {"network_adapters": ["00000000:78:00.0"]}
    assert checks(hgx(pci=adapters))["driver.peermem"]["status"] == "skip"
    assert "driver.peermem" not in checks(hgx())
    wished = {"driver": nodes.driver_stack(modules=None, peermem=True)}
    missed = checks(hgx(fabric={"modules_loaded": []}), wished)["driver.peermem"]
    assert (missed["status"], "wished and not loaded" in str(missed["reason"])) == ("warn", True)
    there = checks(hgx(fabric={"modules_loaded": ["nvidia_peermem"]}), wished)["driver.peermem"]
    assert (there["status"], there["reason"]) == ("pass", None)


@pytest.mark.parametrize(("state", "action"), [("pending", "reboot"), ("not-enrolled", "configure")])
def test_a_module_whose_key_is_not_accepted_is_no_pass_for_being_signed(state: str, action: str) -> None:
    facts = hgx(boot={"secure_boot": True, "signing_key": {"path": "/var/lib/dkms/mok.pub", "state": state}})
    facts["driver"]["loaded_version"] = None
    facts["kernel"]["loaded"] = {}
    facts["kernel"]["available"]["nvidia"] |= {
        "signer": "DKMS module signing key",
        "path": "/lib/modules/6/updates/dkms/nvidia.ko",
    }
    found = checks(facts)
    for name in ("driver.secure_boot", "driver.loaded"):
        assert found[name]["status"] == "fail"
        assert found[name]["action"] == action
        assert "/var/lib/dkms/mok.pub" in found[name]["reason"]

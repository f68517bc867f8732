"""The fabric's part of the driver: exactly the driver's version from the index, services after it, modules at boot."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import secure_boot
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import index_query, sealing
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes

REQUEST = Request(host="node", today=date(2026, 11, 20))
SWITCHES = {"nvswitches": [{"bus_id": "00000000:60:00.0", "device": "22a3"}]}
MANAGER = "nvidia-fabricmanager.service"
EXACT = ("nvidia-fabricmanager", "libnvidia-nscq")


def wish(**variables: Any) -> Wish:
    return Wish.from_variables({"gpuwright_want": ["driver=580"], **variables})


def drafted(facts: Any, asked: Wish | None = None) -> Draft:
    draft = make_draft(facts, asked or wish(), load_rules(), REQUEST)
    assert isinstance(draft, Draft), draft
    return draft


def reasons(facts: Any, asked: Wish | None = None) -> list[str]:
    return [
        finding.reason
        for finding in drafted(facts, asked).findings.get("nvidia_driver", ())
        if finding.action != "adopt"
    ]


def index(draft: Draft, **versions: list[str]) -> Any:
    """An answer in which every package has the driver's version, but those that are named with _ for -; the first is the candidate."""
    named = {name.replace("_", "-"): each for name, each in versions.items()}
    rows = {name: named.get(name, [f"{nodes.DRIVER}-1"]) for name in draft.packages}
    return nodes.index(packages={name: {"candidate": each[0], "versions": each} for name, each in rows.items()})


@pytest.fixture
def hgx() -> Any:
    """A host with NVSwitches on which everything is right."""
    facts = nodes.provisioned(pci=SWITCHES)
    facts["packages"]["installed"] |= dict.fromkeys(EXACT, f"{nodes.DRIVER}-1")
    facts["services"] |= {MANAGER: {"active": "active", "enabled": "enabled"}}
    facts["fabric"] = {
        "manager_stale": False,
        "modules_loaded": [],
        "modules_at_boot": [],
        "peermem_module": "nvidia-peermem",
    }
    # Ours, and not adopted: a seal says so.
    stack = nodes.driver_stack()
    facts["seals"] = {"nvidia_driver": {"state": "good", "digest": "other", "stack": stack, "gpus": [], "packages": {}}}
    return facts


def test_a_host_that_is_right_has_nothing_to_say(hgx: Any) -> None:
    assert reasons(hgx) == ["its inputs changed since it was sealed"]


def test_another_version_beside_the_driver_is_named(hgx: Any) -> None:
    hgx["packages"]["installed"]["nvidia-fabricmanager"] = "580.126.20-1"
    (reason,) = reasons(hgx)
    assert "nvidia-fabricmanager is 580.126.20-1, the driver is 580.178.04" in reason
    assert "802" in reason


def test_the_revision_of_the_package_is_no_difference(hgx: Any) -> None:
    hgx["packages"]["installed"]["nvidia-fabricmanager"] = f"{nodes.DRIVER}-1ubuntu1"
    assert not any("exactly" in reason for reason in reasons(hgx))


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"active": "active", "enabled": "disabled"}, "not enabled"),
        ({"active": "failed", "enabled": "enabled"}, "failed"),
        ({"active": "inactive", "enabled": "enabled"}, "inactive"),
    ],
)
def test_a_service_that_does_not_run_is_named(hgx: Any, state: dict[str, str], told: str) -> None:
    hgx["services"][MANAGER] = state
    (reason,) = reasons(hgx)
    assert MANAGER in reason
    assert told in reason


def test_a_manager_whose_program_was_replaced_is_restarted(hgx: Any) -> None:
    hgx["fabric"]["manager_stale"] = True
    assert reasons(hgx) == [f"{MANAGER} runs with a program that was replaced since"]


def test_before_the_driver_runs_nothing_is_asked_of_the_service_but_to_be_enabled(hgx: Any) -> None:
    hgx["driver"]["loaded_version"] = None
    hgx["kernel"]["loaded"] = {}
    hgx["services"][MANAGER] = {"active": "inactive", "enabled": "enabled"}
    assert not any(MANAGER in reason for reason in reasons(hgx))


def test_without_cards_no_service_is_enabled(hgx: Any) -> None:
    """An image that is built for cards that come later."""
    hgx["pci"]["gpus"] = []
    hgx["services"][MANAGER] = {"active": "inactive", "enabled": "disabled"}
    asked = wish(gpuwright_provision_for=["H100"])
    draft = drafted(hgx, asked)
    named = [unit for found in draft.findings.values() for finding in found for unit in finding.services]
    assert MANAGER not in named
    assert "nvidia-persistenced.service" not in named
    managed = finish(draft, None)["manages"]["nvidia_driver"]["services"]
    assert managed == []


def test_a_module_that_no_file_loads_at_boot_is_named(hgx: Any) -> None:
    hgx["pci"] |= {"nvswitches": [], "nvlink5": True}
    hgx["packages"]["installed"] |= {"nvlsm": "2025.10.11-1", "infiniband-diags": "56.1-1"}
    assert reasons(hgx) == ["not loaded at boot: ib_umad"]
    hgx["fabric"]["modules_at_boot"] = ["ib_umad"]
    assert reasons(hgx) == ["not loaded: ib_umad"]


def test_peermem_is_asked_for_and_then_missed(hgx: Any) -> None:
    assert "not loaded at boot: nvidia_peermem" in reasons(hgx, wish(nvidia_driver_peermem=True))


# --- the index --------------------------------------------------------------------------------------------------------


def test_the_index_is_held_to_the_drivers_version_where_that_is_there(hgx: Any) -> None:
    hgx["packages"]["installed"]["nvidia-fabricmanager"] = "580.126.20-1"
    assert drafted(hgx).keep["nvidia-fabricmanager"] == f"{nodes.DRIVER}-"


def test_a_newer_fabric_manager_is_asked_for_again_at_the_drivers_version() -> None:
    draft = drafted(nodes.bare(pci=SWITCHES))
    answer = index(draft, nvidia_fabricmanager=["580.190.01-1", f"{nodes.DRIVER}-1"])
    again = index_query.tightened(draft, answer)
    assert again is not None
    assert again.keep["nvidia-fabricmanager"] == f"{nodes.DRIVER}-"
    assert index_query.tightened(again, answer) is None


def test_versions_that_agree_are_asked_for_once() -> None:
    draft = drafted(nodes.bare(pci=SWITCHES))
    assert index_query.tightened(draft, index(draft, nvidia_fabricmanager=[f"{nodes.DRIVER}-1ubuntu1"])) is None


def test_a_fabric_manager_that_lags_behind_is_refused_with_the_version_that_all_have() -> None:
    draft = drafted(nodes.bare(pci=SWITCHES))
    older = "580.126.20-1"
    answer = index(draft, nvidia_fabricmanager=[older], **{name.replace("-", "_"): [f"{nodes.DRIVER}-1", older] for name in (
        "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libnvidia-nscq")})  # fmt: skip
    assert index_query.tightened(draft, answer) is None
    (refusal,) = finish(draft, answer)["refusals"]
    assert refusal["rule"] == "fabric-version"
    assert "driver=580.126.20" in str(refusal["remedy"])


# --- Secure Boot ------------------------------------------------------------------------------------------------------


def secured(state: str | None, **changes: Any) -> Any:
    key = {"path": "/var/lib/dkms/mok.pub", "state": state}
    return nodes.bare(boot={"secure_boot": True, "signing_key": key}, **changes)


def made(facts: Any) -> Any:
    draft = drafted(facts)
    return finish(draft, index(draft))


@pytest.mark.parametrize("state", ["absent", "not-enrolled"])
def test_a_key_that_the_firmware_rejects_is_refused_with_the_steps(state: str) -> None:
    plan = made(secured(state))
    (refusal,) = plan["refusals"]
    assert refusal["rule"] == "secure-boot-key"
    steps = refusal["remedy"]
    assert "mokutil --import /var/lib/dkms/mok.pub" in steps
    assert "Enroll MOK" in steps
    assert ("dkms generate_mok" in steps) == (state == "absent")
    # Debian signs no modules of its own.
    assert "driver-source=distro" not in steps


@pytest.mark.parametrize(
    ("system", "version"), [("ubuntu", "24.04"), ("linuxmint", "22.1"), ("rocky", "9.6"), ("almalinux", "10.1")]
)
def test_the_signed_modules_of_the_distribution_are_a_way_out(system: str, version: str) -> None:
    facts = secured("not-enrolled", os={"id": system, "version": version})
    refusal = secure_boot.refusal(facts, nodes.driver_stack(build="dkms"))
    assert refusal
    assert "driver-source=distro" in refusal[1]


@pytest.mark.parametrize("state", ["enrolled", "pending", None])
def test_a_key_that_is_or_may_be_accepted_is_not_refused(state: str | None) -> None:
    assert made(secured(state))["refusals"] == []


def test_a_module_that_the_kernel_took_is_never_refused() -> None:
    facts = nodes.provisioned(boot={"secure_boot": True, "signing_key": {"path": "/k", "state": "not-enrolled"}})
    assert finish(drafted(facts), None)["refusals"] == []


def test_a_key_that_waits_needs_a_boot_at_the_console() -> None:
    facts = nodes.provisioned(boot={"secure_boot": True, "signing_key": {"path": "/k", "state": "pending"}})
    facts["driver"]["loaded_version"] = None
    facts["kernel"]["loaded"] = {}
    draft = drafted(facts)
    plan = finish(draft, index(draft) if draft.packages else None)
    assert "Enroll MOK" in str(plan["reboot_reason"])
    assert sealing.unmet(draft) == [] or all("loaded" not in finding.reason for finding in sealing.unmet(draft))

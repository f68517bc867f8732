"""The planner: which components change, why, and what stops a run before its first change."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from ansible_collections.gpuwright.node.plugins.action.seal import ActionModule
from ansible_collections.gpuwright.node.plugins.module_utils.base.versions import EVERY_PACKAGE
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import apply as nvidia_driver
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS, SEALED
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document, index_query, removal, sealing
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import WORDS, Wish
from tests.unit.plan import nodes

ROOT = Path(__file__).resolve().parents[3]
TODAY = date(2026, 11, 20)
#: Components that every host wishes for itself, so that a lock says nothing of them.
OF_HOSTS = {words.component for words in WORDS if words.variables and set(words.variables) == set(words.of_host)}
#: Components that every node has; the others are there where they were asked for.
USUAL = [name for name in SEALED if name not in OF_HOSTS]


def wish(**variables: Any) -> Wish:
    return Wish.from_variables(variables).with_defaults()


def request(**changes: Any) -> Request:
    return Request(**{"host": "node", "today": TODAY, **changes})


def index_of(drafted: Draft, **versions: str | None) -> Any:
    """What package_index answers when every package is there; ``versions`` overrides by name with _ for -."""
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    candidates = {name: named.get(name, f"{nodes.DRIVER}-1") for name in drafted.packages}
    rows = [
        {"name": name, "version": version, "from": None, "download_bytes": 1000, "installed_bytes": 5000}
        for name, version in candidates.items()
        if version
    ]
    comes = {name: version for name, version in candidates.items() if version}
    leaves = sorted(set(drafted.replaced) - set(comes))
    return nodes.index(
        exchange={"comes": comes, "leaves": leaves} if drafted.replaced else None,
        packages={
            name: {"candidate": version, "versions": [version] if version else []}
            for name, version in candidates.items()
        },
        install=rows,
        download_bytes=1000 * len(rows),
        disk_bytes=5000 * len(rows),
    )


def plan(facts: Any, asked: Wish | None = None, **changes: Any) -> Any:
    drafted = make_draft(facts, asked or wish(), load_rules(), request(**changes))
    if isinstance(drafted, dict):
        return drafted
    return finish(drafted, index_of(drafted) if drafted.packages else None)


def proven(facts: Any, asked: Wish | None = None) -> Any:
    """The same node with good seals of these very inputs and a fresh proof."""
    made = plan(facts, asked)
    seals = {
        name: {
            "state": "good",
            "reason": None,
            "digest": made["digests"][name],
            "gpuwright": "0.1.0",
            "stack": sealing.stack_part(name, made["stack"]),
            "gpus": ["10de:2330", "10de:2330"],
            "packages": {},
        }
        for name in made["digests"]
    }
    proof = {
        "verdict": "pass",
        "time": "2026-11-20T11:00:00+00:00",
        "boot_id": facts["boot"]["id"],
        "driver": facts["driver"]["loaded_version"],
        "stack_digest": made["stack_digest"],
        "gpus": [],
    }
    return nodes.merged(facts, {"seals": seals, "proof": proof})


@pytest.fixture
def done() -> Any:
    """A node on which everything was brought about, sealed and proven."""
    return proven(nodes.provisioned())


def test_a_bare_node_needs_every_component_in_order_and_a_boot() -> None:
    made = plan(nodes.bare())
    assert made["components"] == [
        "nvidia_driver",
        "nouveau_blacklist",
        "cuda",
        "container_toolkit",
        "frameworks",
        "reboot",
        "validate",
    ]
    assert made["reboot"]
    assert "nouveau" in made["reboot_reason"]
    assert made["rescue"] == []
    assert made["refusals"] == []


def test_a_workstation_reads_what_helps_with_a_black_screen_only_before_a_boot() -> None:
    screen = {"nvidia_screens": ["00000000:18:00.0"]}
    assert any("nomodeset" in line for line in plan(nodes.bare(display=screen))["rescue"])
    assert plan(nodes.provisioned(display=screen))["rescue"] == []


def test_the_marks_of_what_changes_name_what_it_manages() -> None:
    made = plan(nodes.bare(), verb="up")
    assert made["begin"]
    for name, mark in made["begin"].items():
        assert mark["manages"] == made["manages"][name]
    assert any(mark["manages"]["files"] for mark in made["begin"].values())


def test_a_plan_whose_packages_bring_another_kernel_is_refused() -> None:
    drafted = make_draft(nodes.bare(), wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    index = index_of(drafted)
    row = {"name": "linux-image-6.12.107+deb13-amd64", "version": "6.12.107-1", "from": None, "download_bytes": 1}
    (refusal,) = finish(drafted, index | {"install": [*index["install"], row]})["refusals"]
    assert refusal["rule"] == "kernel-unasked"


@pytest.mark.parametrize("known", [True, False])
def test_headers_that_would_bring_another_kernel_are_taken_of_the_kernel_alone(known: bool) -> None:
    drafted = make_draft(nodes.bare(), wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    alone = f"linux-headers-{nodes.bare()['kernel']['next']}"
    assert alone in drafted.also
    index = index_of(drafted)
    row = {"name": "linux-image-6.12.107+deb13-amd64", "version": "6.12.107-1", "from": None, "download_bytes": 1}
    more = {alone: {"candidate": "6.12.94-1", "versions": ["6.12.94-1"]}} if known else {}
    index |= {"install": [*index["install"], row], "packages": index["packages"] | more}
    absent = index_query.absent(drafted, index)
    assert absent == ({"headers=linux-headers-amd64": [alone]} if known else {})
    again = make_draft(nodes.bare(), wish(), load_rules(), replace(request(), absent=absent))
    assert isinstance(again, Draft)
    assert (alone in again.packages) == known
    assert index_query.absent(again, index) == {}


def test_the_wish_is_held_against_the_kernel_that_the_repair_keeps() -> None:
    """Who called update-grub by hand after the failure made the kernel without a module the one that boots next."""
    old, new = "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"
    facts = nodes.bare()
    facts["kernel"] |= {"running": old, "next": new, "installed": [old, new]}
    failed = {"module": "nvidia-current-open", "version": "550.163.01", "kernel": new, "transient": False, "compiler": False,
              "left_out": False, "errors": [], "end": [], "log": "/var/lib/dkms/make.log"}  # fmt: skip
    facts["dkms"] |= {"failed": [failed], "kernels": [old], "boot_entries": {}}
    asked = wish(gpuwright_want=["driver-source=distro", "driver-modules=open"])
    assert plan(facts, asked)["conflicts"]
    facts["packages"] |= {"interrupted": True, "interrupted_detail": "linux-image-amd64"}
    made = plan(facts, asked)
    assert made["conflicts"] == []
    assert made["components"][0] == "repair"


def test_the_plan_names_packages_with_the_versions_of_the_index() -> None:
    made = plan(nodes.bare())
    driver = next(change for change in made["changes"] if change["component"] == "nvidia_driver" and change["packages"])
    versions = {row["name"]: row["version"] for row in driver["packages"]}
    assert versions["nvidia-kernel-open-dkms"] == f"{nodes.DRIVER}-1"
    assert made["download_bytes"] == 1000 * len(made["install"])


def test_where_the_toolkit_does_not_know_the_module_its_unit_is_told() -> None:
    """Debian's own open modules: the toolkit's unit would never write the CDI specification."""
    setting = "/etc/systemd/system/nvidia-cdi-refresh.service.d/gpuwright.conf"
    asked = {"nvidia_driver_source": "distro", "container_toolkit_version": "1.20.0"}
    files = {}
    for modules in ("open", "proprietary"):
        made = plan(nodes.bare(), wish(**asked, nvidia_driver_modules=modules))
        rows = [row["files"] for row in made["changes"] if row["component"] == "container_toolkit"]
        files[modules] = [path for row in rows for path in row]
    assert (setting in files["open"], setting in files["proprietary"]) == (True, False)


def test_the_plan_names_the_services_and_files_that_follow_from_an_installation() -> None:
    installed = {change["component"]: change for change in plan(nodes.bare())["changes"] if change["packages"]}
    assert installed["nvidia_driver"]["services"] == ["nvidia-persistenced.service"]
    links = "gpuwright-device-links.service"
    assert installed["container_toolkit"]["services"] == ["docker.service", links]
    assert installed["container_toolkit"]["files"] == ["/etc/docker/daemon.json", f"/etc/systemd/system/{links}"]


def test_without_an_answer_in_time_the_versions_are_unverified_and_the_plan_says_so() -> None:
    drafted = make_draft(nodes.bare(), wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    slow = nodes.index(problems=[{"kind": "timeout", "text": "no answer in 90 s", "remedy": "-"}])
    made = finish(drafted, slow)
    assert not made["versions_verified"]
    assert made["ok"]
    assert any("no answer in 90 s" in row["text"] for row in made["warnings"])


def test_versions_that_the_index_gave_are_not_told_as_unverified() -> None:
    made = plan(nodes.bare())
    assert made["versions_verified"]
    assert "versions-unverified" not in {row["rule"] for row in made["warnings"]}


def test_a_wrong_key_is_a_refusal() -> None:
    drafted = make_draft(nodes.bare(), wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    problem = {"kind": "wrong-key", "text": "expected A, found B", "remedy": "ask the owner"}
    made = finish(drafted, nodes.index(problems=[problem]))
    assert not made["ok"]
    assert made["why_not"] == "expected A, found B -> ask the owner"


def test_what_a_repository_without_an_answer_would_offer_is_not_complained_of_too() -> None:
    drafted = make_draft(nodes.bare(), wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    lost = {"kind": "unreachable", "text": "http://mirror could not be reached", "remedy": "check the network"}
    rows = [lost, *({"kind": "no-such-package", "text": f"no {name}", "remedy": "-"} for name in drafted.packages)]
    made = finish(drafted, nodes.index(problems=rows))
    assert [row["text"] for row in made["refusals"]] == ["http://mirror could not be reached"]


def test_a_sealed_and_proven_node_needs_nothing(done: Any) -> None:
    made = plan(done)
    assert made["changes"] == []
    assert made["components"] == []
    assert made["why_not"] is None or "proof" not in made["why_not"]


@pytest.mark.parametrize(
    ("proof", "asked", "changed"),
    [
        ({}, [], []),
        (None, ["fio"], [("fio", f"{nodes.DRIVER}-1")]),
        ({"boot_id": "boot-0"}, ["fio"], [("fio", f"{nodes.DRIVER}-1")]),
        ({"verdict": "fail"}, ["fio"], [("fio", f"{nodes.DRIVER}-1")]),
    ],
)
def test_the_index_is_asked_for_the_tools_of_a_due_proof_and_for_none_where_a_proof_holds(
    done: Any, proof: dict[str, str] | None, asked: list[str], changed: list[tuple[str, str]]
) -> None:
    del done["packages"]["installed"]["fio"]
    done["proof"] = None if proof is None else {**done["proof"], **proof}
    drafted = make_draft(done, wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    assert drafted.packages == asked
    rows = [row for change in plan(done)["changes"] for row in change["packages"]]
    assert [(row["name"], row["version"]) for row in rows] == changed


@pytest.mark.parametrize(
    ("state", "reasons"),
    [
        ({"active": "active", "enabled": "enabled"}, []),
        ({"active": "active", "enabled": "disabled"}, ["Docker is not enabled at boot"]),
        ({"active": "inactive", "enabled": "enabled"}, ["Docker is inactive"]),
        ({"active": "failed", "enabled": "disabled"}, ["Docker is not enabled at boot", "Docker is failed"]),
        (None, []),
    ],
)
def test_an_engine_that_does_not_run_or_would_not_after_a_boot_is_put_right(
    done: Any, state: dict[str, str] | None, reasons: list[str]
) -> None:
    done["services"] = {"docker.service": state} if state else None
    rows = [row for row in plan(done)["changes"] if row["component"] == "container_toolkit"]
    assert [row["reason"] for row in rows] == reasons
    assert all(row["services"] == ["docker.service"] for row in rows)


@pytest.mark.parametrize("component", USUAL)
def test_a_broken_seal_brings_just_its_component_and_the_proof(done: Any, component: str) -> None:
    broken = {"state": "broken", "reason": "/etc/x changed"}
    made = plan(nodes.merged(done, {"seals": {component: broken}}))
    assert made["components"] == [component, "validate"]
    assert made["changes"][0]["reason"] == "/etc/x changed"


@pytest.mark.parametrize("component", USUAL)
def test_a_run_that_was_cut_off_is_healed(done: Any, component: str) -> None:
    mark = {"state": "begun", "reason": "a run that began has not come to its end"}
    made = plan(nodes.merged(done, {"seals": {component: mark}}))
    assert made["components"] == [component, "validate"]


@pytest.mark.parametrize("component", USUAL)
def test_what_a_role_used_alone_did_is_taken_over_and_sealed(done: Any, component: str) -> None:
    mark = {"state": "alone", "reason": "a role of gpuwright was used alone at 2026-11-23T08:00:00Z"}
    made = plan(nodes.merged(done, {"seals": {component: mark}}))
    assert made["components"] == [component, "validate"]
    assert (made["changes"][0]["action"], made["changes"][0]["reason"]) == ("adopt", mark["reason"])


def test_a_moved_package_goes_back_to_its_sealed_version(done: Any) -> None:
    sealed = {"state": "broken", "reason": "package nvidia-driver-cuda is 580.95.05-1 instead of 580.178.04-1"}
    sealed["packages"] = {"nvidia-driver-cuda": "580.178.04-1"}  # type: ignore[assignment]
    moved = nodes.merged(done, {"seals": {"nvidia_driver": sealed}})
    moved["packages"]["installed"]["nvidia-driver-cuda"] = "580.95.05-1"
    drafted = make_draft(moved, wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    assert drafted.packages == ["nvidia-driver-cuda"]
    assert drafted.keep[EVERY_PACKAGE] == "580.178.04-1"


def test_a_pin_that_an_upgrade_took_away_before_it_was_cut_off_does_not_come_back(done: Any) -> None:
    """It conflicts with the pin of the branch, which the upgrade brought: with both no transaction can be solved."""
    mark: Any = {"state": "begun", "reason": "a run that began has not come to its end"}
    mark["packages"] = {"nvidia-driver-cuda": "580.95.05-1", "nvidia-driver-pinning-580.95.05": "580.95.05-1"}
    drafted = make_draft(nodes.merged(done, {"seals": {"nvidia_driver": mark}}), wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    assert drafted.packages == ["nvidia-driver-cuda"]


def test_a_changed_input_makes_the_seal_stale(done: Any) -> None:
    made = plan(done, inputs={"container_toolkit": {"container_toolkit_restart_docker": True}})
    assert made["components"] == ["container_toolkit", "validate"]
    assert "inputs changed" in made["changes"][0]["reason"]


def test_a_default_runtime_that_is_wished_and_not_there_is_told(done: Any) -> None:
    made = plan(done, inputs={"container_toolkit": {"container_toolkit_default_runtime": True}})
    assert made["changes"][0]["reason"] == "Docker's default-runtime is not as wished"


def test_full_looks_at_everything_again(done: Any) -> None:
    assert plan(done, full=True)["components"] == [*USUAL, "validate"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"boot": {"id": "boot-2"}}, "booted"),
        ({"time": "2026-12-20T12:00:00Z"}, "from 2026-11-20"),
        ({"proof": {"verdict": "fail"}}, "was fail"),
        ({"proof": None}, "never proven"),
    ],
)
def test_a_stale_proof_is_renewed_and_no_role_runs(done: Any, change: Any, reason: str) -> None:
    made = plan(nodes.merged(done, change))
    assert made["components"] == ["validate"]
    assert reason in made["changes"][0]["reason"]


PYTORCH = "/opt/gpuwright/pytorch"


def test_a_damaged_environment_is_built_anew_although_pip_finds_all_that_it_asks_for(done: Any) -> None:
    assert plan(done)["rebuild"] == []
    broken = nodes.merged(done, {"environments": {PYTORCH: {"damage": ["torch is gone", "2 more"]}}})
    made = plan(broken)
    assert (made["components"], made["rebuild"]) == (["frameworks", "validate"], [PYTORCH])
    assert made["changes"][0]["reason"] == f"{PYTORCH} is damaged: torch is gone, 2 more"
    assert made["changes"][0]["action"] == "repair"
    looked = plan(broken, verb="doctor")
    assert (looked["verdict"], looked["why_not"] is not None) == ("fail", True)
    (check,) = [check for check in looked["checks"] if check["id"] == "framework.files"]
    assert check["status"] == "fail"
    assert PYTORCH in check["reason"]


@pytest.mark.parametrize(
    "named", [{"id": "framework.import", "expected": PYTORCH}, {"id": "framework.files", "evidence": PYTORCH}]
)
def test_an_environment_that_failed_in_the_last_proof_is_built_anew_once(done: Any, named: dict[str, str]) -> None:
    failed = {"status": "fail", "action": "install", **named}
    made = plan(nodes.merged(done, {"proof": {"verdict": "fail", "checks": [failed]}}))
    assert (made["components"], made["rebuild"]) == (["frameworks", "validate"], [PYTORCH])
    assert made["changes"][0]["reason"] == f"{PYTORCH} failed in the last proof"
    other = {**failed, "action": "reboot"}  # it broke off: not the environment is to blame
    made = plan(nodes.merged(done, {"proof": {"verdict": "fail", "checks": [other]}}))
    assert (made["components"], made["rebuild"]) == (["validate"], [])
    # The look after the apply still reads the proof of before.
    after = nodes.merged(done, {"proof": {"verdict": "fail", "checks": [failed]}})
    assert "frameworks" not in plan(after, applied={})["components"]


def test_an_interrupted_package_manager_is_repaired_first() -> None:
    facts = nodes.bare(packages={"interrupted": True, "interrupted_detail": "libc6 is half-configured"})
    made = plan(facts)
    assert made["components"][0] == "repair"
    assert "libc6" in made["changes"][0]["reason"]


def test_a_working_driver_of_another_owner_is_adopted_and_left_alone() -> None:
    facts = nodes.provisioned(packages={"sources": nodes.bare()["packages"]["sources"]})
    facts["driver"] |= {"owner": "runfile", "source": "runfile", "packages": {}}
    facts["packages"]["installed"] = {}
    made = plan(facts, wish(gpuwright_want=["driver"]))
    driver = next(change for change in made["changes"] if change["component"] == "nvidia_driver")
    assert driver["action"] == "adopt"
    assert driver["packages"] == []
    assert made["manages"]["nvidia_driver"]["packages"] == []


def test_fewer_cards_than_were_sealed_is_a_failure_and_changes_nothing(done: Any) -> None:
    made = plan(nodes.merged(done, {"pci": {"gpus": []}}))
    assert made["changes"] == []
    assert made["verdict"] == "fail"
    assert any(check["status"] == "fail" and "2" in str(check["reason"]) for check in made["checks"])


def test_a_remote_host_without_cards_is_skipped_and_named() -> None:
    made = plan(nodes.bare(pci={"gpus": []}))
    assert made["skipped"]
    assert made["verdict"] == "skip"
    assert made["components"] == []
    assert (made["download_bytes"], made["disk_bytes"]) == (0, 0)
    assert document.describe(made) == "nothing to do\n"


def test_the_machine_one_sits_at_gets_frameworks_for_the_cpu() -> None:
    made = plan(nodes.bare(pci={"gpus": []}), local=True)
    assert made["cpu_only"]
    assert "has no NVIDIA GPU" in made["warnings"][0]["text"]
    assert made["components"] == ["frameworks", "validate"]
    assert made["stack"]["frameworks"][0]["index_url"].endswith("/cpu")


def test_cards_that_are_yet_to_come_are_provisioned_for_without_a_boot() -> None:
    made = plan(nodes.bare(pci={"gpus": []}), wish(gpuwright_provision_for=["H100"]))
    assert made["provision_only"]
    assert "not there yet" in made["warnings"][0]["text"]
    assert "nvidia_driver" in made["components"]
    assert "reboot" not in made["components"]
    assert not any(check["id"] == "gpu.count" and check["status"] == "fail" for check in made["checks"])


def test_cards_that_the_inventory_says_are_there_are_provisioned_for_booted_for_and_missed() -> None:
    expected = wish(gpuwright_provision_for=["H100"], gpuwright_gpus_expected=1)
    made = plan(nodes.bare(pci={"gpus": []}), expected)
    assert made["provision_only"]
    assert made["cards_missing"]
    assert "nvidia_driver" in made["components"]
    assert made["reboot_reason"].startswith("nouveau holds")
    (bus,) = [check for check in made["checks"] if check["id"] == "gpu.on_bus"]
    assert (bus["status"], bus["measured"], bus["expected"]) == ("fail", 0, 1)


def test_what_the_inventory_says_of_the_slots_is_what_the_cards_are_held_against() -> None:
    facts = nodes.provisioned()
    card = parse_xml((ROOT / "tests/unit/prove/fixtures/geforce_595.xml").read_text(encoding="utf-8"))["gpus"][0]
    card["pcie"].update({"width": 4, "width_max": 16})
    data = {"driver_version": nodes.DRIVER, "cuda_version": "13.0", "attached_gpus": 1, "notes": [], "errors": {}}
    facts["smi"] = {"rc": 0, "seconds": 0.1, "error": None, "data": {**data, "gpus": [card]}}

    def width(**variables: Any) -> tuple[str, Any]:
        made = plan(facts, wish(**variables))
        (found,) = [check["status"] for check in made["checks"] if check["id"] == "pcie.width"]
        return found, made["expected_gpus"]["pcie_lanes"]

    assert width() == ("warn", {})
    assert width(gpuwright_gpus_pcie_lanes=4) == ("pass", {"all": 4})
    assert width(gpuwright_gpus_pcie_lanes={card["pci_bus_id"]: 8}) == ("fail", {card["pci_bus_id"]: 8})


def test_cards_that_were_sealed_and_are_gone_are_missed_even_where_a_card_is_named(done: Any) -> None:
    made = plan(nodes.merged(done, {"pci": {"gpus": []}}), wish(gpuwright_provision_for=["H100"]))
    assert made["cards_missing"]
    assert made["verdict"] == "fail"


def _stuck(**build: Any) -> Any:
    """A node whose kernel update was cut short by a module that does not build."""
    log = {
        "module": "nvidia-current-open",
        "version": "550.163.01",
        "kernel": "6.8.0-200-generic",
        "log": "/var/lib/dkms/x/make.log",
        "errors": ["nv-pci.c:292: error: too few arguments"],
        "end": ["# exit code: 2"],
        "transient": False,
        "compiler": False,
        "left_out": False,
    }
    facts = nodes.provisioned(
        packages={"interrupted": True, "interrupted_detail": "packages left unfinished: half-configured: linux-headers"}
    )
    facts["dkms"] |= {"failed": [{**log, **build}], "kernels": [facts["kernel"]["running"]], "boot_entries": {}}
    return facts


def test_a_kernel_for_which_the_module_does_not_build_is_named_with_what_is_done_and_the_ways_out() -> None:
    made = plan(_stuck())
    (change,) = [change for change in made["changes"] if change["component"] == "repair"]
    assert "did not build for kernel 6.8.0-200-generic" in change["reason"]
    assert "driver-modules=proprietary" in change["reason"]
    assert change["files"] == ["/etc/dkms/nvidia-current-open-550.163.01-6.8.0-200-generic.conf"]


@pytest.mark.parametrize("compiler", [True, False])
def test_a_build_that_the_compiler_did_not_refuse_is_tried_again_before_it_is_left_out(compiler: bool) -> None:
    (change,) = [change for change in plan(_stuck(compiler=compiler))["changes"] if change["component"] == "repair"]
    assert "is left out of its builds" in change["reason"]
    assert ("where it fails again" in change["reason"]) is not compiler


@pytest.mark.parametrize(
    "build",
    [{"transient": True}, {"kernel": nodes.provisioned()["kernel"]["running"]}],
    ids=["no room", "the running one"],
)
def test_a_build_that_may_yet_go_well_is_not_left_out(build: Any) -> None:
    (change,) = [change for change in plan(_stuck(**build))["changes"] if change["component"] == "repair"]
    assert change["files"] == []


def test_an_ordinary_user_is_refused_a_change_but_not_a_plan() -> None:
    facts = nodes.bare(privileged=False)
    assert plan(facts, verb="plan")["ok"]
    refused = plan(facts, verb="up")
    assert [row["rule"] for row in refused["refusals"]] == ["needs-root"]


def test_what_only_root_may_read_is_not_known_and_neither_missing_nor_fine(done: Any) -> None:
    seen = nodes.merged(done, nodes.unseen())
    reasons = [change["reason"] for change in plan(seen, verb="plan")["changes"]]
    assert len(reasons) == len(USUAL) + 1
    assert all(reason.startswith("it is not known wh") for reason in reasons[:-1]), reasons
    assert all("Permission denied" in reason for reason in reasons[:-1])
    assert "not yet sealed" not in str(reasons)
    assert [row["rule"] for row in plan(seen, verb="up")["refusals"]] == ["needs-root"]
    checks = {check["id"]: check["status"] for check in plan(seen, verb="doctor")["checks"]}
    assert (checks["seals"], checks["proof.age"]) == ("incomplete", "incomplete")


@pytest.mark.parametrize(("verb", "rule"), [("remove", "needs-root"), ("rollback", "rollback-unknown")])
def test_a_way_back_that_cannot_be_read_is_not_taken_for_none(done: Any, verb: str, rule: str) -> None:
    seen = nodes.merged(done, nodes.unseen())
    asked = request(verb=verb)
    made = removal.take_back(seen, asked) if verb == "remove" else plan(seen, verb=verb)
    assert [row["rule"] for row in made["refusals"]] == [rule]
    assert made["verdict"] == "fail"


def test_without_root_nothing_else_is_complained_of() -> None:
    drafted = make_draft(nodes.bare(privileged=False), wish(), load_rules(), request(verb="up"))
    assert isinstance(drafted, Draft)
    lost = {"kind": "unreachable", "text": "http://mirror could not be reached", "remedy": "check the network"}
    made = finish(drafted, nodes.index(problems=[lost]))
    assert [row["rule"] for row in made["refusals"]] == ["needs-root"]


def test_a_tree_that_is_not_the_running_machine_is_refused_a_change() -> None:
    refused = plan(nodes.bare(root="/srv/image"), verb="up")
    assert [row["rule"] for row in refused["refusals"]] == ["needs-live-root"]


@pytest.mark.parametrize("mount", ["/", "/boot"])
def test_too_little_room_is_refused_with_the_file_system_and_the_sizes(mount: str) -> None:
    facts = nodes.bare()
    facts["disks"].append({**facts["disks"][0], "mount": "/boot"})
    for disk in facts["disks"]:
        if disk["mount"] == mount:
            disk["free_bytes"] = 50 * 1024**2
    refusals = plan(facts)["refusals"]
    assert [row["rule"] for row in refusals] == ["no-space"]
    assert refusals[0]["text"].startswith(f"{mount} has 50 MiB free")


def with_volume(mount: str, **volume: Any) -> Any:
    """A bare node with room everywhere but on a volume of its own."""
    facts = nodes.bare()
    facts["disks"] = [
        {**facts["disks"][0], "places": ["/"], "free_files": 10**7},
        {**facts["disks"][0], "mount": mount, "places": [], "free_files": 10**7, **volume},
    ]
    return facts


@pytest.mark.parametrize(
    "mount",
    ["/var/cache/apt", "/var/cache/apt/archives", "/var", "/usr", "/usr/local", "/opt", "/opt/gpuwright", "/boot"],
)
def test_room_is_looked_for_where_the_files_go(mount: str) -> None:
    refusals = plan(with_volume(mount, free_bytes=10 * 1024**2))["refusals"]
    assert [(row["rule"], row["text"].split(" has ")[0]) for row in refusals] == [("no-space", mount)]
    assert plan(with_volume(mount, free_bytes=10**12))["refusals"] == []


#: What the role preflight asks for, in MiB: the plan asks for as much.
ROOM = yaml.safe_load((ROOT / "roles/preflight/defaults/main.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("mount", "needed"),
    [
        ("/var/cache/apt", 3000 + ROOM["preflight_disk_reserve_mib"]),
        ("/usr", 1000 + ROOM["preflight_disk_reserve_mib"]),
        ("/usr/local", 9000 + ROOM["preflight_disk_reserve_mib"]),
        ("/opt/gpuwright", ROOM["preflight_framework_mib"] + ROOM["preflight_disk_reserve_mib"]),
        ("/boot", ROOM["preflight_boot_free_mib"]),
    ],
)
def test_a_volume_has_to_hold_what_goes_there_and_nothing_of_what_goes_elsewhere(mount: str, needed: int) -> None:
    """Of 10 000 MiB that are installed 9000 are a toolkit's, which lies below /usr/local."""
    mib = 1024**2
    for short in (0, 1):
        facts = with_volume(mount, free_bytes=needed * mib - short)
        if mount == "/usr":
            facts["disks"].append({**facts["disks"][0], "mount": "/usr/local", "places": []})
        drafted = make_draft(facts, wish(), load_rules(), request())
        assert isinstance(drafted, Draft)
        index = index_of(drafted) | {"download_bytes": 3000 * mib, "disk_bytes": 10_000 * mib}
        index["install"] = [{**nodes.coming("cuda-toolkit-13-0", "13.0.3-1"), "installed_bytes": 9000 * mib}]
        told = [row["text"] for row in finish(drafted, index)["refusals"]]
        assert told == [f"{mount} has {needed - 1} MiB free, {needed} MiB are needed"] * short


def test_what_a_cut_build_takes_is_room_for_the_next_one() -> None:
    needed = (ROOM["preflight_framework_mib"] + ROOM["preflight_disk_reserve_mib"]) * 1024**2
    assert plan(with_volume("/opt/gpuwright", free_bytes=needed - 1000, reclaimed_bytes=1000))["refusals"] == []
    told = plan(with_volume("/opt/gpuwright", free_bytes=needed - 1001, reclaimed_bytes=1000))["refusals"]
    assert [row["rule"] for row in told] == ["no-space"]


def test_a_small_directory_beside_a_large_volume_in_it_is_no_shortage() -> None:
    facts = with_volume("/opt", free_bytes=10 * 1024**2)
    facts["disks"].append({**facts["disks"][0], "mount": "/opt/gpuwright", "places": ["/opt/gpuwright"]})
    assert plan(facts)["refusals"] == []


def test_room_is_looked_for_behind_a_link() -> None:
    # /var/cache/apt/archives leads to the volume.
    facts = with_volume("/data", free_bytes=10 * 1024**2, places=["/var/cache/apt/archives"])
    assert [row["text"].split(" has ")[0] for row in plan(facts)["refusals"]] == ["/data"]


def test_a_volume_without_inodes_or_one_that_cannot_be_written_is_refused() -> None:
    (few,) = plan(with_volume("/opt/gpuwright", free_files=100))["refusals"]
    assert (few["rule"], "takes 100 more files" in few["text"]) == ("no-space", True)
    (shut,) = plan(with_volume("/usr/local", read_only=True))["refusals"]
    assert (shut["rule"], shut["text"]) == (
        "read-only",
        "/usr/local is mounted read-only, and /usr/local is written to",
    )


def test_a_seal_of_a_newer_gpuwright_is_not_overwritten(done: Any) -> None:
    made = plan(nodes.merged(done, {"seals": {"cuda": {"state": "newer", "gpuwright": "9.0", "reason": "newer"}}}))
    assert [row["rule"] for row in made["refusals"]] == ["newer-seal"]
    assert "9.0" in made["refusals"][0]["text"]


def test_a_conflict_ends_the_plan_with_its_remedy() -> None:
    made = plan(nodes.bare(), wish(gpuwright_want=["driver=580", "driver-modules=proprietary", "cuda=11.8"]))
    if made["ok"]:
        pytest.fail("CUDA 11.8 is in no repository of Debian 13")
    assert all(row["remedy"] for row in made["conflicts"])


def test_what_the_index_lacks_is_named_so_that_the_rules_can_choose_again() -> None:
    drafted = make_draft(nodes.bare(), wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    newer = index_of(drafted, nvidia_driver_cuda="595.112.07-1", cuda_toolkit_13_0=None)
    lacking = index_query.absent(drafted, newer)
    assert lacking == {"driver=580": ["595.112.07"], "cuda=13.0": []}
    again = make_draft(nodes.bare(), wish(), load_rules(), request(absent=lacking))
    assert isinstance(again, Draft)
    assert again.context.stack["driver"]["branch"] != "580"


def test_after_an_apply_a_missing_seal_is_no_reason_and_a_wrong_outcome_is() -> None:
    applied = plan(nodes.bare())["stack"]
    good = make_draft(nodes.provisioned(), wish(), load_rules(), request(applied=applied))
    assert isinstance(good, Draft)
    assert sealing.unmet(good) == []
    unloaded = nodes.provisioned(kernel={"initramfs": {"blacklist_inside": False}})
    bad = make_draft(unloaded, wish(), load_rules(), request(applied=applied))
    assert isinstance(bad, Draft)
    assert [finding.action for finding in sealing.unmet(bad)] == ["configure"]


def test_a_change_that_only_the_index_decided_leaves_the_seal_alone(done: Any) -> None:
    """A newer build in the index is no reason to move: only `upgrade` does that."""
    assert plan(done)["digests"] == plan(nodes.merged(done, {}))["digests"]
    assert plan(done)["components"] == []


def test_the_same_observation_gives_the_same_plan() -> None:
    assert plan(nodes.bare()) == plan(nodes.bare())


def test_every_component_has_a_name_that_a_role_can_have() -> None:
    assert set(SEALED) <= set(COMPONENTS)
    assert list(COMPONENTS).index("nouveau_blacklist") > list(COMPONENTS).index("nvidia_driver")


def test_a_plan_as_the_result_of_a_task_has_no_key_that_ansible_takes_out() -> None:
    made = plan(nodes.bare())
    result = records.as_result(made)
    assert not {"warnings", "skipped"} & result.keys()


def test_the_result_of_the_task_has_everything_that_roles_and_playbooks_read_of_the_plan() -> None:
    result = records.as_result(plan(nodes.bare())) | {"owner": "o", "takes_over": None}  # the action adds these two
    texts = [path.read_text() for place in ("roles", "playbooks") for path in (ROOT / place).rglob("*.yml")]
    read = {name for text in texts for name in re.findall(r"\bgpuwright_plan\.(\w+)", text)}
    assert {"components", "stack", "begin"} <= read
    assert read <= result.keys()


def test_a_host_that_is_left_alone_is_so_in_the_result_of_its_task_too() -> None:
    result = records.as_result(plan(nodes.bare(pci={"gpus": []})))
    assert "no NVIDIA GPU" in str(result["left_alone"])


def test_a_wished_version_of_the_container_toolkit_is_held_to_in_the_index() -> None:
    asked = wish(container_toolkit_version="1.19.1")
    drafted = make_draft(nodes.bare(), asked, load_rules(), request())
    assert isinstance(drafted, Draft)
    assert drafted.keep["nvidia-container-toolkit"] == "1.19.1-"
    newer = index_of(drafted, nvidia_container_toolkit="1.20.0-1")
    refused = finish(drafted, newer)
    assert [row["rule"] for row in refused["refusals"]] == ["index-version"]
    assert "nvidia-container-toolkit 1.20.0-1" in refused["refusals"][0]["text"]


def test_a_wished_cudnn_is_held_to_in_the_index() -> None:
    asked = wish(gpuwright_want=["cuda", "cudnn=9.20.0.48"])
    drafted = make_draft(nodes.bare(), asked, load_rules(), request())
    assert isinstance(drafted, Draft), drafted
    kept = {name: start for name, start in drafted.keep.items() if "cudnn" in name}
    assert set(kept.values()) == {"9.20.0.48"}


def test_the_playbook_applies_the_components_in_the_order_of_the_plan() -> None:
    """One task each: a loop would be merged over the hosts of a wave, in the order in which they answer."""
    plays = yaml.safe_load((Path(__file__).parents[3] / "playbooks/site.yml").read_text(encoding="utf-8"))
    block = plays[1]["tasks"][0]["block"]
    included = {
        task["ansible.builtin.include_role"]["name"].rpartition(".")[2]: task
        for task in block
        if "ansible.builtin.include_role" in task
    }
    assert list(included) == ["preflight", *COMPONENTS]
    for name, task in included.items():
        assert task["ansible.builtin.include_role"]["apply"]["tags"] == [name], "that is how a failure knows its step"
        assert task.get("when", f"'{name}' in gpuwright_plan.components") == f"'{name}' in gpuwright_plan.components"
        assert ("when" in task) == (name in COMPONENTS)
        if name in COMPONENTS:
            held = block[block.index(task) - 1]
            assert held["gpuwright.node.node_seal"]["state"] == "held", "another run may have had the node meanwhile"
            assert held["when"] == task["when"]


def test_an_initramfs_that_the_run_made_again_is_sealed_with_what_it_changed(done: Any) -> None:
    """EPEL's DKMS makes every initramfs anew after a build; the next run would take that for somebody's change."""
    made = plan(done)
    (initramfs,) = made["manages"]["nouveau_blacklist"]["light_files"]
    (blacklist, *_others) = made["manages"]["nouveau_blacklist"]["files"]
    assert sealing.to_seal(made, ["nvidia_driver"], done) == ["nvidia_driver"]
    for reason, sealed in (
        (f"{initramfs} changed", True),
        (f"{initramfs} is gone", False),
        (f"{blacklist} changed", False),
    ):
        seals = {"nouveau_blacklist": {**done["seals"]["nouveau_blacklist"], "state": "broken", "reason": reason}}
        seen = nodes.merged(done, {"seals": seals})
        assert ("nouveau_blacklist" in sealing.to_seal(made, ["nvidia_driver"], seen)) == sealed, reason


class Looked:
    """What an action sees of a node on which a run failed, and what it has the node keep."""

    def __init__(self, facts: Any, begun: Any, *, answers: bool = True) -> None:
        self.seen, self.begun, self.answers = facts, begun, answers
        self.kept: list[Any] = []

    def facts(self) -> Any:
        if not self.answers:
            raise AnsibleActionFail("no answer")
        return self.seen

    def draft(self, facts: Any, *, only: list[str], applied: Any, absent: Any) -> Any:
        return make_draft(facts, wish(), load_rules(), request(applied=applied, absent=absent or {}))

    def keep(self, arguments: Any) -> None:
        self.kept.append(arguments)


def cut(done: Any, **changes: Any) -> Any:
    """A node on which a run set out to change all, and had come to the end of some."""
    mark = {"state": "begun", "reason": "a run that began has not come to its end"}
    return nodes.merged(done, {"seals": dict.fromkeys(USUAL, mark), **changes})


@pytest.mark.parametrize(
    ("failed", "sealed"),
    [(name, USUAL[:number]) for number, name in enumerate(USUAL)] + [("lock", []), ("hold", []), ("preflight", [])],
)
def test_what_a_run_that_failed_had_come_to_the_end_of_is_sealed(done: Any, failed: str, sealed: list[str]) -> None:
    begun = plan(cut(done)) | {"owner": "a@one:1"}
    assert begun["components"] == [*USUAL, "validate"]
    look: Any = Looked(cut(done), begun)
    ActionModule.__new__(ActionModule)._seal_done(look, begun, failed)
    assert [sorted(each["seals"]) for each in look.kept] == ([sorted(sealed)] if sealed else [])
    assert all((each["state"], each["owner"]) == ("sealed", "a@one:1") for each in look.kept)
    for each in look.kept:
        for name, seal in each["seals"].items():
            assert seal["digest"] == begun["digests"][name]


def test_what_is_not_right_at_the_second_look_keeps_its_mark(done: Any) -> None:
    begun = plan(cut(done)) | {"owner": "a@one:1"}
    look: Any = Looked(cut(done, kernel={"modules": {"nouveau": {"loaded": True}}}), begun)
    look.seen["packages"]["installed"].pop("nvidia-driver-cuda")
    ActionModule.__new__(ActionModule)._seal_done(look, begun, "frameworks")
    (kept,) = look.kept
    assert "nvidia_driver" not in kept["seals"]
    assert "cuda" in kept["seals"]


def test_a_node_that_answers_no_more_after_a_failure_keeps_its_marks(done: Any) -> None:
    begun = plan(cut(done)) | {"owner": "a@one:1"}
    look: Any = Looked(cut(done), begun, answers=False)
    ActionModule.__new__(ActionModule)._seal_done(look, begun, "frameworks")
    assert look.kept == []


@pytest.mark.parametrize(("ignored", "blacklisted"), [((), True), (("00000000:18:00.0",), False)])
def test_nouveau_stays_for_a_card_that_is_left_alone_beside_a_driver_that_works(
    ignored: tuple[str, ...], blacklisted: bool
) -> None:
    """The driver is somebody else's and stays as it is: it works beside nouveau already."""
    facts = nodes.provisioned()
    old, new = (
        {**card, "driver": name} for card, name in zip(facts["pci"]["gpus"], ("nouveau", "nvidia"), strict=True)
    )
    facts["pci"]["gpus"] = [old, new]
    adopted: Any = {"driver": nodes.driver_stack(adopted=True)}
    context = Context(facts=facts, stack=adopted, unmanaged=ignored)
    assert COMPONENTS["nouveau_blacklist"].wanted(context) is blacklisted
    facts["kernel"]["loaded"]["nouveau"] = {"version": None}
    assert (nvidia_driver.reboot_reason(context) is not None) is blacklisted
    own: Any = {"driver": nodes.driver_stack()}
    ours = Context(facts=facts, stack=own, unmanaged=ignored)
    assert COMPONENTS["nouveau_blacklist"].wanted(ours)

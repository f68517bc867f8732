"""Going back to a driver that worked, and taking everything back: what is planned, and what is refused."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.observe import driver_set
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import base, daemon_json
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import registry as components
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import cdi, containerd
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.container_toolkit import docker as docker_engine
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import apply as nvidia_driver
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import (
    rollback,
    runfile,
    version_hold,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.model import sections
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document, removal, removal_work, sealing
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes

from .test_planner import index_of, proven, request, wish

OLD = "580.126.20"
#: What NVIDIA's file is run with.
OPTIONS: dict[str, list[str]] = {"arguments": ["--silent"], "with_nouveau": [], "with_session": []}


def at(version: str) -> dict[str, str]:
    return {"nvidia-driver-cuda": f"{version}-1", "libcuda1": f"{version}-1"}


def state(version: str = OLD, **changes: Any) -> Any:
    stack = {**proven(nodes.provisioned())["seals"]["nvidia_driver"]["stack"]}
    return {
        "version": version, "modules": "open", "source": "nvidia", "packages": at(version), "holds": [], "stack": stack, "arch": "amd64",
        "kernel": "6.12.94+deb13-amd64", "proven": True, "time": "2026-11-01T10:00:00Z", **changes,
    }  # fmt: skip


def node(*states: Any, copies: tuple[str, ...] = (), **history: Any) -> Any:
    facts = proven(nodes.provisioned())
    packages = {**at(nodes.DRIVER), "nvidia-new": f"{nodes.DRIVER}-1"}
    return nodes.merged(
        facts,
        {
            "driver": {"packages": packages},
            "smi": nodes.smi(),
            "history": {
                "states": list(states),
                "copies": list(copies),
                "original": None,
                "brought": [],
                "recorded": True,
                **history,
            },
        },
    )


def rolled_back(facts: Any, **versions: str | None) -> Any:
    drafted = make_draft(facts, wish(), load_rules(), request(verb="rollback"))
    if isinstance(drafted, dict):
        return drafted
    named = {name.replace("-", "_"): version for name, version in at(OLD).items()} | versions
    return finish(drafted, index_of(drafted, **named) if drafted.packages else None)


def test_the_driver_that_works_is_remembered_with_all_its_packages() -> None:
    remembered = rollback.working(node())
    assert remembered is not None
    assert remembered["version"] == nodes.DRIVER
    assert remembered["packages"]["libcuda1"] == f"{nodes.DRIVER}-1"
    assert remembered["proven"] is True
    assert remembered["stack"]["branch"] == "580"


@pytest.mark.parametrize(
    "changes",
    [
        {"smi": nodes.smi(rc=9)},
        {"driver": {"user_version": "1.2"}},
        {"driver": {"loaded_version": None}},
        {"driver": {"owner": "runfile"}},
    ],
)
def test_a_driver_that_does_not_work_is_not_remembered(changes: Any) -> None:
    assert rollback.working(nodes.merged(node(), changes)) is None


BRINGS: Any = {"version": "580.200.01", "modules": "open", "source": "nvidia", "kernel": "6.12.94+deb13-amd64"}


def test_a_failing_driver_can_give_way_where_another_one_worked() -> None:
    facts = node()
    assert rollback.is_there(facts, rollback.working(facts), BRINGS, None)
    assert not rollback.is_there(facts, None, None, None)
    assert rollback.is_there(nodes.merged(facts, {"history": {"drivers": [OLD]}}), None, None, None)
    assert not rollback.is_there(nodes.merged(facts, {"history": {"drivers": [nodes.DRIVER]}}), None, None, None)


def test_a_driver_that_was_proven_does_not_give_way_because_a_later_proof_fails() -> None:
    record = {"drivers": [OLD], "proven": nodes.DRIVER}
    assert not rollback.is_there(nodes.merged(node(), {"history": record}), None, None, None)
    assert rollback.is_there(nodes.merged(node(), {"history": {**record, "proven": OLD}}), None, None, None)


@pytest.mark.parametrize("answered", [True, False])
def test_a_lost_hold_is_no_change_of_driver_to_go_back_from(answered: bool) -> None:
    facts = node()
    pins = [name for name in facts["packages"]["installed"] if "pinning" in name]
    assert pins
    lost = {name: version for name, version in facts["packages"]["installed"].items() if name not in pins}
    facts["packages"]["installed"] = lost
    drafted = make_draft(facts, wish(), load_rules(), request())
    assert isinstance(drafted, Draft)
    made = finish(drafted, index_of(drafted) if answered else None)
    assert "nvidia_driver" in made["components"]
    assert made["remember"] is not None
    assert made["way_back"] is False


# --- a rollback stays -------------------------------------------------------------------------------------------------


def after_a_rollback(asked: Any, **driver: Any) -> Any:
    """The node as a rollback from 595 to 580 leaves it, for a wish that asked for 595."""
    facts = node(state())
    drafted = make_draft(facts, asked, load_rules(), request(verb="rollback"))
    assert isinstance(drafted, Draft), document.why_not(drafted)
    stack = {**drafted.context.stack["driver"], **driver}
    return nodes.merged(facts, {"seals": {"nvidia_driver": {"stack": stack}}})


def drafted_for(facts: Any, asked: Any, **changes: Any) -> Draft:
    drafted = make_draft(facts, asked, load_rules(), request(**changes))
    assert isinstance(drafted, Draft), document.why_not(drafted)
    return drafted


def rules_told(drafted: Draft) -> list[str]:
    made = finish(drafted, index_of(drafted) if drafted.packages else None)
    return [row["text"] for row in made["warnings"] if row["rule"] == "rolled-back"]


@pytest.mark.parametrize("verb", ["up", "plan", "status", "doctor", "validate"])
def test_a_rollback_stays_although_the_inventory_wishes_another_branch(verb: str) -> None:
    asked = wish(nvidia_driver_branch="595")
    drafted = drafted_for(after_a_rollback(asked), asked, verb=verb)
    assert drafted.context.stack["driver"]["branch"] == "580"
    assert not [f for f in drafted.findings.get("nvidia_driver", ()) if f.action in ("install", "upgrade")]
    (text,) = rules_told(drafted)
    assert f"rolled back to driver {nodes.DRIVER}: it stays there until the wish for a driver changes" in text


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        ({"nvidia_driver_branch": "590"}, {}),
        ({"nvidia_driver_version": "595.112.07"}, {}),
        ({"nvidia_driver_branch": "595"}, {"verb": "upgrade"}),
    ],
)
def test_another_wish_or_an_upgrade_moves_on_and_says_so(other: Any, changes: Any) -> None:
    facts = after_a_rollback(wish(nvidia_driver_branch="595"))
    drafted = drafted_for(facts, wish(**other), **changes)
    assert drafted.context.stack["driver"]["branch"] != "580"
    assert drafted.context.stack["driver"].get("stays") is None
    (text,) = rules_told(drafted)
    assert "moves on" in text


def test_what_a_run_goes_back_to_by_itself_does_not_stay() -> None:
    facts = node()
    begun = rollback.working(facts)
    drafted = drafted_for(facts, wish(), verb="rollback", begun={"remember": begun, "brings": None})
    assert drafted.context.stack["driver"].get("stays") is None


def test_the_look_after_a_rollback_keeps_what_it_led_to() -> None:
    asked = wish(nvidia_driver_branch="595")
    facts = after_a_rollback(asked)
    led_to = drafted_for(facts, asked).context.stack
    for verb in ("rollback", "up"):
        assert drafted_for(facts, asked, verb=verb, applied=led_to).context.stack["driver"] == led_to["driver"]


def test_no_path_of_the_controller_comes_from_the_seal_of_a_node_that_stays() -> None:
    asked = wish()
    file = {
        "name": "x.run",
        "sha256": "0" * 64,
        "addresses": ["/etc/shadow", "https://mirror.example/x.run"],
        **OPTIONS,
    }
    facts = after_a_rollback(asked, source="runfile", runfile=file)
    staying = rollback.staying(facts, asked)
    assert staying is not None
    assert staying["runfile"]
    assert staying["runfile"]["addresses"] == ["https://mirror.example/x.run"]


# --- what the way back is judged by -----------------------------------------------------------------------------------


@pytest.mark.parametrize("applied", [False, True])
def test_a_driver_that_is_back_is_not_judged_by_what_the_run_had_not_come_to(applied: bool) -> None:
    asked = wish(cuda_versions=["13.1"])
    facts = node(state())
    begun: Any = {"remember": {**state(), "time": "2026-11-02T10:00:00Z"}, "brings": None}
    forward = drafted_for(facts, asked)
    assert "cuda" in forward.findings
    stack = {"driver": forward.context.stack["driver"]} if applied else None
    back = drafted_for(facts, asked, verb="rollback", begun=begun, applied=stack)
    assert "cuda" not in back.findings
    assert "cuda" not in back.context.stack
    assert set(finish(back, index_of(back) if back.packages else None)["digests"]) & {"cuda"} == set()


def test_rollback_leads_to_exactly_what_was_there() -> None:
    made = rolled_back(node(state()))
    assert made["ok"], document.why_not(made)
    (change,) = [row for row in made["changes"] if row["component"] == "nvidia_driver"]
    assert (change["from"], change["to"]) == (nodes.DRIVER, OLD)
    assert made["restore"]["install"] == [f"libcuda1={OLD}-1", f"nvidia-driver-cuda={OLD}-1"]
    assert "nvidia-new" in made["restore"]["remove"]
    assert not set(made["restore"]["remove"]) & set(at(OLD))
    assert made["stack"]["driver"]["branch"] == "580"
    assert "validate" in made["components"]


def test_a_kept_package_needs_no_index() -> None:
    made = rolled_back(node(state(), copies=(f"libcuda1_{OLD}-1_amd64.deb",)), nvidia_driver_cuda=f"{OLD}-1")
    assert made["ok"], document.why_not(made)
    assert f"/var/lib/gpuwright/packages/libcuda1_{OLD}-1_amd64.deb" in made["restore"]["install"]


def dnf(*states: Any, stream: str, **more: Any) -> Any:
    """A node with dnf, its driver of one module stream."""
    facts = node(*states, **more)
    facts["seals"]["nvidia_driver"]["stack"]["pin"] = {
        "hold": ["nvidia-driver-cuda"],
        "stream": f"nvidia-driver:{stream}",
    }
    streams = {"nvidia-driver": stream, "postgresql": "16"}
    return nodes.merged(facts, {"packages": {"manager": "dnf", "streams": streams}})


def test_on_dnf_the_module_stream_is_remembered_and_comes_back_and_no_other() -> None:
    old = dnf(stream="580-open")
    remembered = rollback.working(old)
    assert remembered is not None
    assert (remembered["manager"], remembered["arch"]) == ("dnf", "x86_64")
    now = dnf(remembered, stream="595-open")
    now["packages"]["streams"]["postgresql"] = "17"
    assert rollback.work(remembered, now)["streams"] == {"nvidia-driver": "580-open"}
    assert rollback.work(remembered, dnf(stream="580-open"))["streams"] == {}


def test_on_dnf_a_removal_leaves_the_stream_that_nobody_had_enabled() -> None:
    assert taken_back(dnf(stream="580-open", streams={}))["remove"]["streams"] == {"nvidia-driver": ""}
    before = {"nvidia-driver": "570-dkms"}
    assert taken_back(dnf(stream="580-open", streams=before))["remove"]["streams"] == before


def test_on_dnf_two_versions_of_a_package_are_repaired_before_the_return() -> None:
    now = dnf(state(manager="dnf"), stream="580-open")
    now = nodes.merged(
        now, {"packages": {"interrupted": True, "interrupted_detail": "two versions are installed of x"}}
    )
    assert rolled_back(now)["components"][0] == "repair"


def test_what_is_neither_kept_nor_in_the_index_is_refused_by_name() -> None:
    made = rolled_back(node(state()), libcuda1="999-1")
    assert not made["ok"]
    (row,) = made["refusals"]
    assert row["rule"] == "rollback-packages"
    assert f"libcuda1 {OLD}-1" in row["text"]


@pytest.mark.parametrize("states", [[], ["present"]])
def test_without_an_earlier_driver_there_is_no_way_back(states: list[str]) -> None:
    facts = node()
    facts["history"]["states"] = [state(packages=dict(facts["driver"]["packages"])) for _ in states]
    made = rolled_back(facts)
    assert not made["ok"]
    assert [row["rule"] for row in made["refusals"]] == ["rollback-nowhere"]
    assert "gpuwright remove" in made["refusals"][0]["remedy"]


def test_the_wish_for_a_driver_does_not_hold_a_rollback_back() -> None:
    asked = rollback.without_driver(wish(nvidia_driver_branch="595", nvidia_driver_modules="proprietary"))
    assert (asked.driver_branch, asked.driver_modules) == (None, None)


def test_a_driver_of_somebody_else_is_adopted_again() -> None:
    made = rolled_back(node(state(stack={})))
    assert made["stack"]["driver"]["adopted"] is True
    assert made["stack"]["driver"]["version"] == OLD


def test_an_interrupted_package_manager_is_mended_by_the_return_itself() -> None:
    facts = nodes.merged(node(state()), {"packages": {"interrupted": True, "interrupted_detail": "half-configured"}})
    assert "repair" not in rolled_back(facts)["components"]


# --- a driver of NVIDIA's file ----------------------------------------------------------------------------------------

FILE = {
    "name": f"NVIDIA-Linux-x86_64-{OLD}.run",
    "sha256": "ab" * 32,
    "addresses": ["https://example.org/it.run"],
    **OPTIONS,
}
#: A build whose checksum the rules have.
CHECKED = "580.95.05"


def of_file(version: str = OLD, **changes: Any) -> Any:
    stack = {
        **state()["stack"],
        "source": "runfile",
        "version": version,
        "modules": "open",
        "packages": [],
        "pin": {},
        "runfile": FILE,
    }
    return state(version, source="runfile", packages={}, stack=stack, **changes)


def with_file(*states: Any, **history: Any) -> Any:
    """A node whose driver came from NVIDIA's file."""
    facts = nodes.merged(
        node(*states, **history), {"driver": {"owner": "runfile", "source": "runfile", "loaded_modules": "open"}}
    )
    facts["driver"]["packages"] = {}
    facts["seals"]["nvidia_driver"]["stack"] = of_file(nodes.DRIVER)["stack"]
    return facts


def test_a_driver_of_a_file_is_remembered_with_the_file() -> None:
    remembered = rollback.working(with_file())
    assert remembered is not None
    assert (remembered["source"], remembered["packages"]) == ("runfile", {})
    assert rollback.file_of(remembered) == FILE


@pytest.mark.parametrize(
    "changes", [{"version": "1.2"}, {"modules": "proprietary"}, {"runfile": {**FILE, "sha256": None}}]
)
def test_a_file_that_brought_another_driver_or_has_no_checksum_is_no_way_back(changes: Any) -> None:
    facts = with_file()
    facts["seals"]["nvidia_driver"]["stack"] |= changes
    assert rollback.working(facts) is None


def without_its_file(source: str) -> Any:
    """A node without a driver, whose record has one of NVIDIA's file and does not say which file."""
    kept = of_file(CHECKED)
    del kept["stack"]["runfile"]
    kept |= {"source": source, "packages": at(CHECKED) if source == "nvidia" else {}}
    absent = {"owner": "none", "source": None, "user_version": None, "loaded_version": None, "loaded_modules": None}
    facts = nodes.merged(node(kept), {"driver": absent})
    facts["driver"]["packages"] = {}
    return facts


def test_a_record_that_does_not_say_which_file_brought_a_driver_is_refused() -> None:
    made = rolled_back(without_its_file("runfile"))
    assert [row["rule"] for row in made["refusals"]] == ["rollback-file"]
    assert CHECKED in document.why_not(made)


def test_packages_come_back_where_their_record_speaks_of_a_file_and_does_not_say_which() -> None:
    made = rolled_back(without_its_file("nvidia"), nvidia_driver_cuda=f"{CHECKED}-1", libcuda1=f"{CHECKED}-1")
    assert made["ok"], document.why_not(made)
    assert made["restore"]["packages"] == at(CHECKED)
    assert (made["stack"]["driver"]["source"], made["stack"]["driver"]["adopted"]) == ("nvidia", True)


def test_rollback_leads_from_one_file_to_the_other() -> None:
    made = rolled_back(with_file(of_file(nodes.DRIVER), of_file()))
    assert made["ok"], document.why_not(made)
    (change,) = [row for row in made["changes"] if row["component"] == "nvidia_driver"]
    assert (change["from"], change["to"], change["files"]) == (nodes.DRIVER, OLD, [FILE["name"]])
    assert (made["restore"]["source"], made["restore"]["install"], made["restore"]["remove"]) == ("runfile", [], [])
    assert made["stack"]["driver"]["runfile"] == FILE


def test_rollback_leads_from_packages_to_a_file_and_from_a_file_to_packages() -> None:
    to_file = rolled_back(node(of_file()))
    assert to_file["ok"], document.why_not(to_file)
    assert (to_file["restore"]["source"], to_file["restore"]["install"]) == ("runfile", [])
    assert "libcuda1" in to_file["restore"]["remove"]
    to_packages = rolled_back(with_file(state()))
    assert to_packages["ok"], document.why_not(to_packages)
    assert (to_packages["restore"]["source"], to_packages["stack"]["driver"]["source"]) == ("nvidia", "nvidia")
    assert to_packages["restore"]["install"] == [f"libcuda1={OLD}-1", f"nvidia-driver-cuda={OLD}-1"]


def test_the_return_of_a_failed_run_leads_to_the_driver_before_it_also_where_nothing_had_changed_yet() -> None:
    facts = node()
    begun = rollback.working(facts)
    facts["history"]["states"] = [begun, state()]
    drafted = make_draft(
        facts, wish(), load_rules(), request(verb="rollback", begun={"remember": begun, "brings": None})
    )
    assert isinstance(drafted, Draft)
    assert drafted.state is not None
    assert drafted.state["version"] == nodes.DRIVER


# --- a driver that failed before --------------------------------------------------------------------------------------


def failed(**changes: Any) -> Any:
    facts = proven(nodes.provisioned())
    return {
        "version": "580.178.04", "modules": "open", "source": "nvidia", "kernel": facts["kernel"]["next"], "reason": "Stop: no module",
        "time": "2026-11-02T10:00:00Z", "log": "/var/lib/gpuwright/failed/x.log", **changes,
    }  # fmt: skip


def upgraded(row: Any, **changes: Any) -> Any:
    facts = nodes.merged(proven(nodes.provisioned()), {"history": {"drivers": [], "failed": [row]}})
    drafted = make_draft(
        facts, wish(nvidia_driver_version="580.178.04"), load_rules(), request(verb="upgrade", **changes)
    )
    assert isinstance(drafted, Draft), document.why_not(drafted)
    versions = dict.fromkeys((name.replace("-", "_") for name in drafted.packages), "580.178.04-1")
    return finish(drafted, index_of(drafted, **versions))


def test_a_driver_that_failed_on_this_kernel_is_not_tried_again_unasked() -> None:
    made = upgraded(failed())
    (row,) = [each for each in made["refusals"] if each["rule"] == "driver-failed-before"]
    assert "Stop: no module" in row["text"]
    assert "/var/lib/gpuwright/failed/x.log" in row["remedy"]
    assert "gpuwright_retry=true" in row["remedy"]


@pytest.mark.parametrize(
    "other", [{"kernel": "6.1"}, {"version": "580.1"}, {"modules": "proprietary"}, {"source": "runfile"}]
)
def test_another_driver_or_another_kernel_is_tried(other: Any) -> None:
    assert "driver-failed-before" not in {row["rule"] for row in upgraded(failed(**other))["refusals"]}


def test_it_is_tried_again_where_that_is_asked_for() -> None:
    assert "driver-failed-before" not in {row["rule"] for row in upgraded(failed(), retry=True)["refusals"]}


def test_only_a_driver_that_came_to_be_installed_has_failed() -> None:
    facts = node()
    begun: Any = {
        "remember": rollback.working(facts),
        "brings": {key: failed()[key] for key in ("version", "modules", "source", "kernel")},
    }
    assert rollback.rolled_back_from(facts, begun) is None
    # The pin was moved, and then apt refused the packages.
    pinned = nodes.merged(facts, {"driver": {"packages": {"nvidia-driver-pinning-580.178.04": "580.178.04-1"}}})
    assert rollback.rolled_back_from(pinned, begun) is None
    half = nodes.merged(facts, {"driver": {"owner": "none", "user_version": "580.200.01"}})
    found = rollback.rolled_back_from(half, begun)
    assert found is not None
    assert (found["version"], found["time"]) == ("580.178.04", facts["time"])


def test_a_kernel_that_came_meanwhile_is_not_held_against_the_driver() -> None:
    half = nodes.merged(node(), {"driver": {"owner": "none", "user_version": "580.200.01"}})
    brings = {key: failed()[key] for key in ("version", "modules", "source", "kernel")}
    begun: Any = {"remember": None, "brings": brings}
    assert rollback.rolled_back_from(half, begun) is not None
    arrived = nodes.merged(half, {"kernel": {"next": "6.12.99+deb13-amd64"}})
    assert rollback.rolled_back_from(arrived, begun) is None
    assert sections.another_kernel(arrived, begun["brings"]) == "6.12.99+deb13-amd64"
    unknown = nodes.merged(half, {"kernel": {"next": None}})
    assert sections.another_kernel(unknown, begun["brings"]) is None


@pytest.mark.parametrize(
    ("component", "arrived", "of_driver"),
    [("nvidia_driver", False, True), ("container_toolkit", False, False), ("nvidia_driver", True, False)],
)
def test_what_is_left_after_an_apply_is_the_drivers_only_where_it_is_of_it(
    component: str, arrived: bool, of_driver: bool
) -> None:
    facts = node()
    brings = {**BRINGS, "kernel": facts["kernel"]["next"]}
    seen = nodes.merged(facts, {"kernel": {"next": "6.99"}}) if arrived else facts
    left: Any = SimpleNamespace(
        findings={component: [base.Finding("install", "it is not there")]}, context=SimpleNamespace(facts=seen)
    )
    begun: Any = {"brings": brings}
    assert sealing.of_driver(left, begun) is of_driver


def test_what_did_not_pass_before_the_driver_changed_is_kept_with_it() -> None:
    """Of the observation before the change, and of the last proof where it was of the driver that gives way."""
    checks: Any = [
        {"id": "gpu.count", "status": "fail"},
        {"id": "gpu.readable", "status": "incomplete"},
        {"id": "smi.runs", "status": "pass"},
    ]
    proof = {"checks": [{"id": "cuda.init", "status": "fail"}], "driver": nodes.DRIVER}
    facts = nodes.merged(node(), {"proof": proof})
    assert rollback.failing(facts, checks, changes=True) == ["cuda.init", "gpu.count", "gpu.readable"]
    other = nodes.merged(facts, {"proof": {"driver": "570.1"}})
    assert rollback.failing(other, checks, changes=True) == ["gpu.count", "gpu.readable"]


def test_after_a_boot_the_record_tells_what_failed_before_the_change() -> None:
    checks: Any = [{"id": "driver.loaded", "status": "fail"}]
    record = {"drivers": [nodes.DRIVER, OLD], "failing": {OLD: ["cuda.init"]}}
    facts = nodes.merged(node(), {"history": record})
    assert rollback.failing(facts, checks, changes=False) == ["cuda.init"]
    older = nodes.merged(node(), {"history": {"drivers": [OLD], "failing": {}}})
    assert rollback.failing(older, checks, changes=False) is None
    assert rollback.failing(nodes.merged(node(), {"history": {"drivers": []}}), checks, changes=False) is None


def test_a_plan_that_changes_the_driver_carries_what_failed_before() -> None:
    gone = nodes.merged(node(), {"seals": {"nvidia_driver": {"gpus": ["10de:2330"] * 9}}})
    drafted = make_draft(gone, wish(nvidia_driver_version="580.178.04"), load_rules(), request(verb="upgrade"))
    assert isinstance(drafted, Draft), document.why_not(drafted)
    versions = dict.fromkeys((name.replace("-", "_") for name in drafted.packages), "580.178.04-1")
    made = finish(drafted, index_of(drafted, **versions))
    assert made["failing"] is not None
    assert {"gpu.on_bus", "gpu.count"} <= set(made["failing"])
    assert made["remember"] is not None
    assert made["remember"]["failing"] == made["failing"]


@pytest.mark.parametrize(("build", "held"), [({}, False), ({"transient": False}, True), ({"version": "580.1"}, True)])
def test_a_build_that_had_no_room_is_not_held_against_the_driver(build: Any, held: bool) -> None:
    failed_build = {"transient": True, "version": "580.178.04", **build}
    facts = nodes.merged(
        node(), {"driver": {"owner": "none", "user_version": "580.200.01"}, "dkms": {"failed": [failed_build]}}
    )
    begun: Any = {
        "remember": None,
        "brings": {key: failed()[key] for key in ("version", "modules", "source", "kernel")},
    }
    assert (rollback.rolled_back_from(facts, begun) is not None) == held


_SCRIPT = " installed nvidia-kernel-open-dkms package post-installation script subprocess returned error exit status 10"
_GONE = "dpkg: error: cannot access archive '/var/cache/apt/archives/libcuda1.deb': No such file or directory"


@pytest.mark.parametrize(
    ("program", "said", "held"),
    [
        ("apt-get", f"dpkg: error processing package nvidia-kernel-open-dkms (--configure):\n{_SCRIPT}\nErrors", True),
        ("apt-get", " subprocess installed post-installation script returned error exit status 10", True),
        ("apt-get", _GONE, False),
        ("apt-get", "E: Sub-process /usr/bin/dpkg exited unexpectedly", False),
        ("apt-get", f"{_SCRIPT}\ncp: error writing '/boot/initrd.img': No space left on device", False),
        ("dnf", "Error: Transaction failed", False),
        ("dnf", "error: %prein(kmod-nvidia-open-dkms) scriptlet failed, exit status 1", True),
        ("modprobe", "could not insert 'nvidia': Exec format error", True),
        (None, "", True),
    ],
)
def test_a_package_manager_that_was_stopped_is_not_held_against_the_driver(
    program: str | None, said: str, held: bool
) -> None:
    facts = nodes.merged(node(), {"driver": {"owner": "none", "user_version": "580.200.01"}})
    begun: Any = {
        "remember": None,
        "brings": {key: failed()[key] for key in ("version", "modules", "source", "kernel")},
    }
    message = "'/usr/bin/apt-get install' failed: E: Sub-process /usr/bin/dpkg returned an error code (1)"
    failure: Any = {"task": "Install", "message": message, "program": program and {"name": program, "said": said}}
    assert (rollback.rolled_back_from(facts, begun, failure) is not None) == held


def test_the_reason_that_is_remembered_is_the_beginning_of_what_failed() -> None:
    """A package manager's message begins with its cause (test_package_call.py); its command comes after it."""
    facts = nodes.merged(node(), {"driver": {"owner": "none", "user_version": "580.200.01"}})
    begun: Any = {
        "remember": None,
        "brings": {key: failed()[key] for key in ("version", "modules", "source", "kernel")},
    }
    failure: Any = {
        "task": "Install",
        "message": f"{_SCRIPT.strip()} ('apt-get {'name ' * 200}' failed)",
        "program": {"name": "apt-get", "said": f"a\n{_SCRIPT}\nb"},
    }
    found = rollback.rolled_back_from(facts, begun, failure)
    assert found is not None
    assert found["reason"].startswith(f"Install: {_SCRIPT.strip()} ('apt-get")
    assert len(found["reason"]) <= 400


# --- taking everything back -------------------------------------------------------------------------------------------


def taken_back(facts: Any) -> Any:
    return removal.take_back(facts, request(verb="remove"))


def test_what_nobody_can_say_that_gpuwright_brought_stays_and_is_told() -> None:
    facts = node(brought=["fio"], unproven=["dkms", "libcuda1"], components=["cuda"])
    made = taken_back(facts)
    assert made["remove"]["packages"] == ["fio"]
    (told,) = made["warnings"]
    assert told["text"].endswith("they stay: dkms, libcuda1")
    check = removal.check(nodes.merged(facts, {"history": {"brought": [], "components": []}}), [])
    assert (check["status"], "dkms, libcuda1" in str(check["reason"])) == ("incomplete", True)
    assert taken_back(node(brought=["fio"]))["warnings"] == []


def test_what_gpuwright_brought_goes_by_name() -> None:
    brought = ["libcuda1", "dkms", "fio"]
    files = ["/etc/modprobe.d/gpuwright-nouveau.conf", "/etc/docker/daemon.json"]
    made = taken_back(node(brought=brought, files=files, environments=["/opt/gpuwright/pytorch"], components=["cuda"]))
    assert sorted(made["remove"]["packages"]) == sorted(brought)
    assert made["remove"]["files"] == files[:1]
    assert made["remove"]["initramfs"] is True
    assert {row["component"] for row in made["changes"]} == {"nvidia_driver", "packages", "frameworks", "files"}
    assert all(row["action"] == "remove" for row in made["changes"])
    assert made["components"] == ["remove", "reboot"]
    assert made["work"]["remove"]["ask"]["commands"][-1][-3:] == made["remove"]["packages"]


def test_the_units_of_a_toolkit_that_goes_are_switched_off_and_those_of_one_that_stays_are_not() -> None:
    made = taken_back(node(brought=["nvidia-container-toolkit-base"], services=["docker.service"]))
    assert made["remove"]["services"] == ["docker.service", "nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"]
    assert taken_back(node(services=["docker.service"]))["remove"]["services"] == ["docker.service"]


@pytest.mark.parametrize(
    "name",
    [
        "linux-image-6.12.107+deb13-amd64",
        "linux-image-amd64",
        "grub-pc",
        "kernel-core",
        "kernel-64k-core",
        "kernel-64k-modules-core",
        "kernel-rt-5.14.0-611.el9.x86_64",
        "kernel-core-5.14-1.el9.x86_64",
        "shim-signed",
    ],
)
def test_what_the_machine_boots_from_stays_whoever_brought_it(name: str) -> None:
    assert removal.packages(node(brought=[name, "fio"])) == ["fio"]


def test_modules_of_the_driver_for_a_kernel_are_no_kernel() -> None:
    assert removal.packages(node(brought=["linux-modules-nvidia-580-generic"])) == ["linux-modules-nvidia-580-generic"]


@pytest.mark.parametrize("name", ["kernel-devel", "kernel-64k-devel-matched", "kernel-rt-devel-5.14.0-611.el9.x86_64"])
def test_headers_of_a_kernel_are_no_kernel(name: str) -> None:
    assert removal.packages(node(brought=[name])) == [name]


def test_a_node_without_anything_of_gpuwright_is_right_as_it_is() -> None:
    made = taken_back(nodes.merged(nodes.bare(), {"history": node()["history"]}))
    assert (made["components"], made["verdict"], made["why_not"]) == ([], "pass", None)


SOURCE = "/etc/apt/sources.list.d/gpuwright-nvidia-cuda.sources"


def without_record(**history: Any) -> Any:
    """A node that gpuwright provisioned and whose record was lost."""
    facts = node(**{"recorded": False, **history})
    source = {
        "file": SOURCE,
        "types": ["deb"],
        "uris": [],
        "suites": [],
        "components": [],
        "signed_by": None,
        "enabled": True,
    }
    return nodes.merged(facts, {"packages": {"sources": [source], "holds": ["libcuda1", "hello"]}})


def test_without_its_record_a_removal_names_what_stays_and_does_not_pass() -> None:
    made = taken_back(without_record())
    assert made["verdict"] == "incomplete"
    (check,) = made["checks"]
    for word in ("libcuda1", "nvidia-driver-cuda", "1 of them held", SOURCE):
        assert word in check["reason"]
    assert "apt-get purge" in check["remedy"]


def test_the_sources_of_packages_that_stay_for_want_of_a_record_stay_too() -> None:
    key = "/usr/share/keyrings/gpuwright-nvidia-cuda.gpg"
    nouveau = "/etc/modprobe.d/gpuwright-nouveau.conf"
    made = taken_back(without_record(files=[SOURCE, key, nouveau], components=["cuda"]))
    assert made["remove"]["files"] == [nouveau]
    assert removal.left(without_record(files=[SOURCE, key], components=[]), ()) == ""
    # With the record all of them go.
    recorded = taken_back(without_record(files=[SOURCE, key, nouveau], components=["cuda"], recorded=True))
    assert recorded["remove"]["files"] == [SOURCE, key, nouveau]


def test_the_driver_that_somebody_else_had_comes_back_and_its_packages_stay() -> None:
    made = taken_back(node(original=state(stack={}), brought=["libcuda1", "fio"], components=["nvidia_driver"]))
    assert made["restore"]["version"] == OLD
    assert made["remove"]["packages"] == ["fio"]


def test_a_driver_of_a_file_goes_by_its_own_uninstaller_where_gpuwright_ran_the_file() -> None:
    made = taken_back(with_file(components=["nvidia_driver"]))
    assert made["remove"]["runfile"] is True
    assert next(row for row in made["changes"] if row["component"] == "nvidia_driver")["files"] == [
        "/usr/bin/nvidia-uninstall"
    ]
    assert "reboot" in made["components"]
    assert "uninstaller" in removal.left(with_file(), ())
    somebody_elses = with_file(components=["nvidia_driver"])
    somebody_elses["seals"]["nvidia_driver"]["stack"] = {"adopted": True, "version": nodes.DRIVER, "source": "runfile"}
    assert taken_back(somebody_elses)["remove"]["runfile"] is False


@pytest.mark.parametrize("owner", ["packages", "unknown", "host", "none"])
def test_no_uninstaller_is_run_where_the_driver_that_is_there_is_of_no_file_any_more(owner: str) -> None:
    facts = nodes.merged(with_file(components=["nvidia_driver"]), {"driver": {"owner": owner}})
    assert taken_back(facts)["remove"]["runfile"] is False


def test_cards_that_gpuwright_parted_are_whole_again_before_the_driver_goes() -> None:
    facts = node(brought=["libcuda1"])
    row = {"pci_bus_id": "00000000:18:00.0", "uuid": "GPU-1", "mig": {"current": True, "pending": True}}
    facts["smi"] = nodes.smi(row, mig_devices={"GPU-1": ["3g.40gb"]})
    facts["seals"]["mig"] = {
        "state": "good",
        "stack": {"cards": [{"bus_id": "00000000:18:00.0", "profiles": ["3g.40gb"]}]},
    }
    made = taken_back(facts)
    assert made["remove"]["mig"] == [{"bus_id": "00000000:18:00.0", "profiles": []}]
    assert [(each["from"], each["to"]) for each in made["changes"] if each["component"] == "mig"] == [
        ("3g.40gb", "MIG off")
    ]
    facts["smi"] = nodes.smi({**row, "mig": {"current": False, "pending": False}}, mig_devices={})
    assert [each for each in taken_back(facts)["changes"] if each["component"] == "mig"] == []


def test_what_is_left_after_a_removal_is_told() -> None:
    assert removal.left(node(), ()) == ""
    assert "1 package " in removal.left(node(brought=["fio"]), ())
    assert removal.left(node(brought=["docker.io"]), ["docker.io"]) == ""
    assert "/etc/x" in removal.left(node(files=["/etc/x"]), ())


# --- a record that names a file of the controller ---------------------------------------------------------------------

SHADOW = "/etc/shadow"


def returned(facts: Any, begun: Any = None, **variables: Any) -> Any:
    """The plan of a return in a run with these variables."""
    drafted = make_draft(facts, wish(**variables), load_rules(), request(verb="rollback", begun=begun))
    return drafted if isinstance(drafted, dict) else finish(drafted, index_of(drafted))


def naming(path: str, **changes: Any) -> Any:
    """A remembered driver whose file, says the node, lies at a path of the controller."""
    remembered = of_file(**changes)
    remembered["stack"] = {**remembered["stack"], "runfile": {**FILE, "addresses": [path]}}
    return remembered


def test_no_path_of_the_controller_is_taken_from_a_record() -> None:
    made = returned(with_file(naming(SHADOW)))
    assert SHADOW not in str(made)
    assert made.get("from_controller") is None
    assert [row["rule"] for row in made["refusals"]] == ["rollback-file"]
    assert "-e nvidia_driver_runfile=PATH" in made["refusals"][0]["remedy"]


def test_what_the_node_says_it_kept_brings_no_path_of_the_controller_either() -> None:
    made = returned(with_file(naming(SHADOW), copies=[FILE["name"]]))
    assert made["ok"], document.why_not(made)
    assert (made["stack"]["driver"]["runfile"]["addresses"], made.get("from_controller")) == ([], None)
    assert SHADOW not in str(made)


def test_a_return_in_a_run_takes_none_from_the_seal_of_the_node() -> None:
    facts = with_file()
    facts["seals"]["nvidia_driver"]["stack"]["runfile"] = {**FILE, "addresses": [SHADOW]}
    remembered = rollback.working(facts)
    made = returned(facts, begun={"remember": remembered, "brings": None, "components": []})
    assert SHADOW not in str(made["stack"])
    assert made.get("from_controller") is None


def test_a_path_that_this_run_names_too_is_taken() -> None:
    made = returned(with_file(naming("/srv/it.run")), nvidia_driver_runfile="/srv/it.run")
    assert made["ok"], document.why_not(made)
    assert made["from_controller"] == "/srv/it.run"


def test_another_path_of_this_run_is_not_the_file_of_the_record() -> None:
    made = returned(with_file(naming("/srv/it.run")), nvidia_driver_runfile="/srv/other.run")
    assert [row["rule"] for row in made["refusals"]] == ["rollback-file"]


# --- a record that names what is not ours -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("files", "/etc/passwd"),
        ("files", "/home/alice/thesis"),
        ("files", "/etc/kernel/postinst.d/zz-gpuwright/../../../tmp/evil"),
        ("files", "/etc/modprobe.d/gpuwright-nouveau.conf\n/etc/passwd"),
        ("files", "/etc/gpuwright/../passwd"),
        ("files", "/etc/gpuwright/.."),
        ("files", "etc/modprobe.d/gpuwright-nouveau.conf"),
        ("environments", "/"),
        ("environments", "/etc"),
        ("environments", "/home/alice"),
        ("environments", "/home/pytorch"),
        ("environments", "/usr/pytorch"),
        ("environments", "/etc/x/pytorch"),
        ("environments", "/opt/gpuwright/../../home/alice/pytorch"),
        ("environments", "/opt/gpuwright"),
        ("environments", "/pytorch"),
        ("services", "ssh.service"),
        ("services", "--root=/x"),
        ("brought", "-oDPkg::Pre-Invoke::=id"),
        ("brought", "lib*"),
        ("streams", "*"),
        ("streams", "../../x"),
    ],
)
def test_a_record_that_names_what_no_role_writes_removes_nothing_and_says_which(key: str, named: str) -> None:
    value: Any = {named: None} if key == "streams" else [named]
    made = taken_back(node(**{"brought": ["fio"], "components": ["cuda"], key: value}))
    assert made["ok"] is False
    (refusal,) = made["refusals"]
    assert refusal["rule"] == "record-foreign"
    assert repr(named) in refusal["text"]
    assert "nothing was removed" in refusal["remedy"]


def test_all_that_the_components_manage_may_be_removed_again() -> None:
    for facts in (node(), nodes.merged(nodes.bare(), {})):
        drafted = make_draft(facts, wish(), load_rules(), request())
        assert not isinstance(drafted, dict)
        plan = finish(drafted, index_of(drafted) if drafted.packages else None)
        for manages in plan["manages"].values():
            record = {
                "files": manages["files"],
                "environments": manages["environments"],
                "services": manages["services"],
            }
            assert removal.foreign(nodes.bare(history=record)) == []


def _paths(value: Any) -> Iterator[str]:
    """The absolute paths in a constant of a module."""
    if isinstance(value, str) and value.startswith("/"):
        yield value
    elif isinstance(value, dict):
        yield from _paths(list(value.values()))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _paths(each)


def _named() -> set[str]:
    """Every path that a component's module names in a constant, apart from what no seal holds: the uninstaller of NVIDIA's file, and where
    the host's own files are put aside, the toolkit's program, where Docker has its data, device nodes, and directories that go with their
    files.
    """
    rooms = (version_hold, cdi, containerd, docker_engine)
    package = components.__name__.rpartition(".")[0]
    modules = [*rooms, *(importlib.import_module(f"{package}.{name}") for name in _modules())]
    found = {
        path
        for module in modules
        for name, value in vars(module).items()
        if name.strip("_").isupper()
        for path in _paths(value)
        if not path.startswith("/dev/")
    }
    others = {containerd.PROGRAM, daemon_json.ORIGINAL, docker_engine.DATA_ROOT}
    directories = {path for component in components.COMPONENTS.values() for path in component.directories}
    return found - {runfile.UNINSTALLER, paths.BACKUP, *others} - directories


def _modules() -> Iterator[str]:
    """What is common to all components, and the work of each."""
    folder = Path(components.__file__).parent
    yield from (path.stem for path in folder.glob("*.py"))
    yield from (f"{path.parent.name}.apply" for path in folder.glob("*/apply.py"))


NAMED = _named()


def test_the_constants_of_every_component_are_looked_through() -> None:
    assert {cdi.SETTING, driver_set.UNATTENDED_FILE, *removal.MERGED} <= NAMED
    assert {*nvidia_driver.PERSISTENCE_FILES, *nvidia_driver.KERNEL_HOOKS["redhat"]} <= NAMED


def test_a_drop_in_directory_that_a_component_made_goes_with_it() -> None:
    parents = {PurePosixPath(path).parent for path in NAMED}
    made = {str(each) for each in parents if each.name == "gpuwright" or each.match("systemd/system/*.d")}
    own = {path for component in components.COMPONENTS.values() for path in component.directories}
    assert made | own == set(removal_work.DIRECTORIES)


@pytest.mark.parametrize("system", [row["os"] for row in load_rules()["systems"]["rows"]])
def test_the_files_of_the_package_sources_are_ours_on_every_system(system: str) -> None:
    rules = load_rules()
    found: set[str] = set()
    for source in ("nvidia", "distro"):
        # RHEL 8's own engine, Podman 4.9, cannot read what the toolkit writes.
        wants = ["driver", "cuda", *([] if system.endswith("-8") else ["container-toolkit"])]
        asked = wish(nvidia_driver_source=source, gpuwright_want=wants)
        where = machine.machine_from_options(["H100"], system, "x86_64", {}, rules)
        stack = resolver.resolve(where, asked, rules).get("stack") or {}
        names = [row["name"] for row in stack.get("repositories") or ()]
        found.update(base.repository_files(Context(facts=nodes.bare(), stack=stack, variables={}), names))
    assert found
    assert removal.foreign(nodes.bare(history={"files": sorted(found)})) == []


def test_the_setting_that_debians_own_open_modules_need_is_taken_back() -> None:
    facts = nodes.bare()
    facts["packages"]["sources"][0]["components"] = ["main", "contrib", "non-free"]
    asked = wish(gpuwright_want=["driver", "container-toolkit"], nvidia_driver_source="distro")
    drafted = make_draft(facts, asked, load_rules(), request())
    assert isinstance(drafted, Draft), document.why_not(drafted)
    files = finish(drafted, index_of(drafted))["manages"]["container_toolkit"]["files"]
    assert cdi.SETTING in files
    made = taken_back(node(files=files, components=["container_toolkit"]))
    assert made["ok"], document.why_not(made)
    assert cdi.SETTING in made["remove"]["files"]


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("files", "/etc/apt/sources.list.d/gpuwright-nvidia-cuda.sources"),
        ("files", "/usr/share/keyrings/gpuwright-nvidia-cuda.gpg"),
        ("files", "/etc/yum.repos.d/gpuwright-nvidia-cuda.repo"),
        ("files", "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpuwright-nvidia-cuda"),
        ("files", "/etc/apt/apt.conf.d/52gpuwright-nvidia-driver"),
        ("files", "/etc/apt/preferences.d/nvidia-driver-pinning-580"),
        ("files", "/etc/dkms/nvidia-580.1-6.12.94+deb13-amd64.conf"),
        ("files", "/etc/default/grub.d/gpuwright.cfg"),
        *(("files", path) for path in sorted(NAMED)),
        ("environments", "/opt/gpuwright/pytorch"),
        ("environments", "/data/envs/2026/jax"),
        ("environments", "/usr/local/dl/tensorflow"),
        ("services", "nvidia-fabricmanager.service"),
        ("services", "nvidia-persistenced.service"),
        ("brought", "libnvidia-ml1:i386"),
        ("brought", "gpg-pubkey-d42d0685-62589a51"),
        ("brought", "kernel-headers-5.14.0-1.el9.x86_64"),
        ("brought", "nvidia-open-1:580.1~rc1-1"),
    ],
)
def test_what_the_roles_write_and_bring_is_ours(key: str, named: str) -> None:
    assert removal.foreign(nodes.bare(history={key: [named]})) == []


# --- what the return takes away -------------------------------------------------------------------------------------------------


def test_the_package_manager_is_asked_what_the_whole_return_takes_away() -> None:
    facts = node(state(), copies=(f"libcuda1_{OLD}-1_amd64.deb",))
    drafted = make_draft(facts, wish(), load_rules(), request(verb="rollback"))
    assert isinstance(drafted, Draft)
    assert drafted.beside == {
        "files": {"libcuda1": f"/var/lib/gpuwright/packages/libcuda1_{OLD}-1_amd64.deb"},
        "leaves": ["nvidia-driver-pinning-580", "nvidia-kernel-open-dkms", "nvidia-new"],
    }
    index = index_of(drafted, nvidia_driver_cuda=f"{OLD}-1")
    gone = [{"name": "nvidia-new", "version": f"{nodes.DRIVER}-1"}, {"name": "company-vpn", "version": "7.1"}]
    index["removes"] = gone
    made = finish(drafted, index)
    assert [(row["name"], row["because"]) for row in made["takes"]] == [("nvidia-new", "ours"), ("company-vpn", None)]
    assert "takes-away" in [row["rule"] for row in made["refusals"]]


@pytest.mark.parametrize("changes", [{"begun": {"remember": state(), "brings": None}}, {}])
def test_what_no_trial_can_say_is_left_to_the_one_right_before_the_call(changes: Any) -> None:
    """A driver that has just failed, or a package manager that was interrupted."""
    facts = nodes.merged(node(state()), {"packages": {"interrupted": not changes}})
    drafted = make_draft(facts, wish(), load_rules(), request(verb="rollback", **changes))
    assert isinstance(drafted, Draft)
    assert drafted.beside == {"files": {}, "leaves": []}

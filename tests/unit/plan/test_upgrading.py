"""What `upgrade` moves, and what `upgrade --security` leaves where it is."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.versions import EVERY_PACKAGE
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import index_query, security_floors
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes

from .test_driver_sources import FILE, with_file
from .test_driver_sources import plan as plan_of
from .test_planner import index_of, plan, proven, request, wish

RULES = load_rules()
NEWER = "580.999.01"


def warm(version: str | None = None) -> Any:
    """A proven node; with ``version`` its driver packages have that one."""
    facts = proven(nodes.provisioned())
    if version:
        names = facts["seals"]["nvidia_driver"]["stack"]["packages"]
        moved = {name: f"{version}-1" for name in names if name in facts["packages"]["installed"]}
        module = {"nvidia": {**facts["kernel"]["available"]["nvidia"], "version": version}}
        driver = {"user_version": version, "loaded_version": version}
        facts = nodes.merged(
            facts, {"packages": {"installed": moved}, "driver": driver, "kernel": {"available": module}}
        )
    return facts


def drafted(facts: Any, **changes: Any) -> Draft:
    made = make_draft(facts, wish(), RULES, request(**{"verb": "upgrade", **changes}))
    assert isinstance(made, Draft)
    return made


def offering(draft: Draft, *versions: str) -> Any:
    """An index that has these builds of the driver, and of all else what is installed."""
    index = index_of(draft)
    start = draft.keep.get(EVERY_PACKAGE, "")
    ours = draft.context.stack["driver"]["packages"]
    for name, row in index["packages"].items():
        row["candidate"] = draft.context.installed.get(name, row["candidate"])
        row["versions"] = [row["candidate"]]
        if name in ours and not name.startswith("linux-"):
            row["versions"] = [f"{version}-1" for version in sorted(versions, reverse=True)]
            row["candidate"] = next((each for each in row["versions"] if each.startswith(start)), None)
    return index


def test_up_leaves_a_node_where_it_is_though_the_index_has_newer() -> None:
    assert plan(warm())["changes"] == []


def test_upgrade_moves_the_driver_to_the_newest_build_of_its_branch() -> None:
    draft = drafted(warm())
    made = finish(draft, offering(draft, NEWER, nodes.DRIVER))
    change = next(row for row in made["changes"] if row["component"] == "nvidia_driver")
    assert (change["action"], change["from"], change["to"]) == ("upgrade", f"{nodes.DRIVER}-1", f"{NEWER}-1")
    assert "validate" in made["components"]


def test_an_upgrade_may_move_the_driver_that_our_own_holds_keep_where_it_is() -> None:
    """That the driver moves is known by the answer of the index, and not before."""
    facts = warm()
    held = sorted(facts["driver"]["packages"])
    draft = drafted(nodes.merged(facts, {"packages": {"holds": held}}))
    there = facts["packages"]["installed"]
    moves = [{"name": name, "from": there[name], "version": f"{NEWER}-1", "download_bytes": 1} for name in held]
    index = offering(draft, NEWER, nodes.DRIVER)
    index["install"] = moves
    made = finish(draft, index)
    assert made["ok"], made["refusals"]
    assert {row["because"] for row in made["takes"]} == {"ours"}
    assert {row["name"] for row in made["takes"]} == set(held)


def test_upgrade_of_a_node_that_has_the_newest_changes_nothing() -> None:
    draft = drafted(warm())
    assert finish(draft, offering(draft, nodes.DRIVER))["changes"] == []


def test_an_index_that_has_only_older_builds_moves_nothing_back() -> None:
    draft = drafted(warm())
    assert finish(draft, offering(draft, "580.65.06"))["changes"] == []


@pytest.mark.parametrize(
    ("installed", "expected"), [("580.126.20", "580.159.03"), ("580.159.03", None), (nodes.DRIVER, None)]
)
def test_security_goes_to_the_lowest_build_above_the_floor_and_no_further(installed: str, expected: str | None) -> None:
    draft = drafted(warm(installed), security=True)
    offer = ("580.126.20", "580.159.03", "580.173.02", NEWER)
    aimed = security_floors.to_the_floor(draft, offering(draft, *offer), RULES)
    made = finish(aimed, offering(aimed, *offer, installed))
    moved = [row["to"] for row in made["changes"] if row["component"] == "nvidia_driver"]
    assert moved == ([f"{expected}-1"] if expected else [])
    assert made["refusals"] == []


@pytest.mark.parametrize("offer", ["580.126.20", "580.159.03"])
def test_what_is_above_its_floor_stays_though_the_index_has_only_older_builds(offer: str) -> None:
    draft = drafted(warm(), security=True)
    aimed = security_floors.to_the_floor(draft, offering(draft, offer), RULES)
    index = offering(aimed, offer)
    for name, row in index["packages"].items():
        row["candidate"] = aimed.context.installed.get(name)  # apt prefers what is there, which no source has any more
    made = finish(aimed, index)
    assert (made["changes"], made["refusals"]) == ([], [])


def test_what_has_no_published_vulnerability_stays_where_it_is() -> None:
    none: Any = {**RULES, "security": {**RULES["security"], "rows": []}}
    draft = drafted(warm("580.126.20"), security=True)
    aimed = security_floors.to_the_floor(draft, offering(draft, NEWER, "580.126.20"), none)
    made = finish(aimed, offering(aimed, NEWER, "580.126.20"))
    assert "nvidia_driver" not in made["components"]
    assert made["refusals"] == []


def test_a_floor_that_the_index_does_not_reach_is_refused_with_what_is_there() -> None:
    draft = drafted(warm("580.126.20"), security=True)
    aimed = security_floors.to_the_floor(draft, offering(draft, "580.126.20"), RULES)
    made = finish(aimed, offering(aimed, "580.126.20"))
    assert not made["ok"]
    (row,) = made["refusals"]
    assert row["rule"] == "security-floor"
    assert "580.159.03" in row["text"]
    assert "580.126.20" in row["text"]


@pytest.mark.parametrize(
    ("version", "ours", "remedy"),
    [
        ("580.126.20", True, "nvidia_driver_runfile_sha256"),
        ("580.126.20", False, "move it with what installed it"),
        (nodes.DRIVER, True, None),
        (nodes.DRIVER, False, None),
    ],
)
def test_a_driver_below_the_floor_that_no_index_moves_is_refused(version: str, ours: bool, remedy: str | None) -> None:
    facts = with_file(version)
    if ours:
        stack = plan_of(nodes.bare(), **{**FILE, "nvidia_driver_version": version})["stack"]["driver"]
        facts["seals"] = {"nvidia_driver": {"state": "good", "digest": None, "gpus": None, "stack": stack}}
    draft = drafted(facts, security=True)
    assert draft.context.stack["driver"]["source"] == "runfile"
    assert draft.context.stack["driver"]["adopted"] is not ours
    refusals = [row for row in finish(draft, index_of(draft))["refusals"] if row["rule"] == "security-floor"]
    assert [remedy in str(row["remedy"]) for row in refusals if remedy] == ([True] if remedy else [])
    assert bool(refusals) is bool(remedy)


@pytest.mark.parametrize(("today", "branch"), [(date(2026, 3, 1), "595"), (date(2027, 12, 1), "580")])
def test_an_upgrade_leaves_a_branch_that_has_ended(today: date, branch: str) -> None:
    facts = warm()
    seal = facts["seals"]["nvidia_driver"]
    facts["seals"]["nvidia_driver"] = {**seal, "stack": {**seal["stack"], "branch": "595"}}
    kept = make_draft(facts, wish(), RULES, request(today=today))
    moved = make_draft(facts, wish(), RULES, request(today=today, verb="upgrade"))
    assert isinstance(kept, Draft)
    assert isinstance(moved, Draft)
    assert kept.context.stack["driver"]["branch"] == "595"
    assert moved.context.stack["driver"]["branch"] == branch


def test_another_branch_is_told_as_that_and_with_the_reason() -> None:
    facts = nodes.provisioned()
    older = {
        name: version.replace("580.178.04", "570.86.15") for name, version in facts["packages"]["installed"].items()
    }
    older["nvidia-driver-pinning-570"] = older.pop("nvidia-driver-pinning-580")
    facts["packages"]["installed"] = older
    facts["driver"] |= {"user_version": "570.86.15", "loaded_version": "570.86.15"}
    draft = make_draft(facts, wish(nvidia_driver_branch="580"), RULES, request(verb="plan"))
    assert isinstance(draft, Draft)
    made = finish(draft, index_of(draft))
    (moved,) = [row for row in made["changes"] if row["component"] == "nvidia_driver" and row["packages"]]
    assert moved["from"] == "570.86.15"
    assert str(moved["to"]).startswith("580.")
    assert moved["reason"] == "the driver leaves branch 570 for 580 (branch 580: asked for)"


def test_after_an_upgrade_nothing_is_said_of_an_index_that_was_not_asked() -> None:
    draft = drafted(warm(), applied=drafted(warm()).context.stack)
    assert "versions-unverified" not in {row["rule"] for row in finish(draft, None)["warnings"]}
    asked = finish(drafted(warm()), None)
    assert "versions-unverified" in {row["rule"] for row in asked["warnings"]}


# --- the set goes as one ----------------------------------------------------------------------------------------------


def test_what_nothing_takes_along_is_named_so_that_the_whole_set_moves() -> None:
    facts = warm("580.126.20")
    facts["packages"]["installed"] |= {"nvidia-modprobe": "580.126.20-1", "nvidia-settings": "580.126.20-1"}
    facts["driver"]["lock"]["set"] = [*facts["driver"]["lock"]["set"], "nvidia-modprobe", "nvidia-settings"]
    facts["seals"]["nvidia_driver"]["packages"] = {"nvidia-modprobe": facts["packages"]["installed"]["nvidia-modprobe"]}
    wanted = wish(gpuwright_want=[f"driver={nodes.DRIVER}"])
    draft = make_draft(facts, wanted, RULES, request())
    assert isinstance(draft, Draft)
    assert {"nvidia-modprobe", "nvidia-settings"} <= set(draft.also)
    index = index_of(draft)
    index["others"] = {
        "nvidia-modprobe": [f"{nodes.DRIVER}-1", "580.126.20-1"],
        "nvidia-settings": ["580.126.20-1"],
    }
    again = index_query.tightened(draft, index)
    assert again is not None
    assert set(again.packages) - set(draft.packages) == {"nvidia-modprobe"}
    # Not even what was sealed of it stays.
    assert "nvidia-modprobe" not in again.keep
    made = finish(again, index_of(again))
    (change,) = [row for row in made["changes"] if row["component"] == "nvidia_driver"]
    assert {"name": "nvidia-modprobe", "version": f"{nodes.DRIVER}-1", "download_bytes": 1000} in change["packages"]
    assert index_query.tightened(again, index) is None

    # A repair may bring what has the right version now to another one.
    there = nodes.merged(facts, {"packages": {"installed": {"nvidia-modprobe": f"{nodes.DRIVER}-1"}}})
    for interrupted, companions in ((False, set()), (True, {"nvidia-modprobe"})):
        there["packages"] |= {
            "interrupted": interrupted,
            "interrupted_detail": "half-configured" if interrupted else None,
        }
        draft_there = make_draft(there, wanted, RULES, request())
        assert isinstance(draft_there, Draft)
        again = index_query.tightened(draft_there, index) or draft_there
        assert set(again.packages) - set(draft_there.packages) == companions

    # An upgrade asks for all of the set, and names what goes to the driver's version.
    moving = make_draft(facts, wanted, RULES, request(verb="upgrade"))
    assert isinstance(moving, Draft)
    assert {"nvidia-modprobe", "nvidia-settings"} <= set(moving.packages)
    made = finish(moving, index_of(moving, nvidia_settings="580.126.20-1"))
    (change,) = [row for row in made["changes"] if row["component"] == "nvidia_driver"]
    assert {row["name"] for row in change["packages"]} & {"nvidia-modprobe", "nvidia-settings"} == {"nvidia-modprobe"}

    # A dependency takes it along.
    index["install"].append({"name": "nvidia-modprobe", "version": f"{nodes.DRIVER}-1", "download_bytes": 1000})
    assert index_query.tightened(draft, index) is None


def test_an_interrupted_move_is_followed_by_a_boot_where_its_repair_may_load_another_version() -> None:
    nothing_loaded = {"driver": {"loaded_version": None}, "kernel": {"loaded": {}}}
    interrupted = {"packages": {"interrupted": True, "interrupted_detail": "nvidia-driver-cuda is unpacked"}}
    facts = nodes.merged(warm(), {**nothing_loaded, **interrupted})
    draft = drafted(facts)
    made = finish(draft, offering(draft, NEWER))
    assert [name for name in made["components"] if name in ("repair", "reboot")] == ["repair", "reboot"]
    assert "the repair of the package manager may load another version" in str(made["reboot_reason"])

    # What the repair finishes is what the node stays with, or nothing was interrupted.
    assert "reboot" not in finish(draft, offering(draft, nodes.DRIVER))["components"]
    draft = drafted(nodes.merged(warm(), nothing_loaded))
    assert "reboot" not in finish(draft, offering(draft, NEWER))["components"]


def test_apt_is_told_the_versions_whenever_it_installs_the_driver() -> None:
    facts = warm()
    facts["seals"]["nvidia_driver"]["packages"] = {"nvidia-driver-cuda": f"{nodes.DRIVER}-1"}
    del facts["packages"]["installed"]["nvidia-driver-cuda"]
    draft = drafted(facts, verb="up")
    index = offering(draft, NEWER, nodes.DRIVER)
    made = finish(draft, index)
    assert made["packages"]["nvidia-driver-cuda"] == f"{nodes.DRIVER}-1"
    assert made["prefer"] == f"{nodes.DRIVER}-1"

    # Dependencies with a lower bound alone would else be of the newest branch.
    draft = drafted(nodes.bare(), verb="up")
    assert finish(draft, offering(draft, "999.1.1", nodes.DRIVER))["prefer"] == "580."
    assert finish(drafted(warm(), verb="up"), None)["prefer"] is None


def test_another_branch_by_packages_of_other_names_needs_a_boot() -> None:
    facts = warm()
    renamed = {f"{name}-other": version for name, version in facts["packages"]["installed"].items() if "nvidia" in name}
    facts["packages"]["installed"] = {**renamed, "linux-headers-amd64": "1", "dkms": "1"}
    draft = drafted(facts)
    versions = dict.fromkeys((name.replace("-", "_") for name in draft.packages), f"{NEWER}-1")
    made = finish(draft, index_of(draft, **versions))
    assert "reboot" in made["components"], made["changes"]
    assert "another version of the NVIDIA module is loaded" in str(made["reboot_reason"])
    same = finish(draft, index_of(draft))
    assert "reboot" not in same["components"], same["changes"]

"""What a transaction takes away: told in the plan, refused before the first change, allowed by name alone."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import package_calls
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import index_of, request, wish

VPN = {"name": "company-vpn", "version": "7.1"}
LIBRARY: Any = {**nodes.coming("libfoo", "1.0"), "from": "2.0"}


def planned(facts: Any = None, answer: Any = None, **changes: Any) -> Any:
    """The plan of a bare node, whose package manager says so."""
    drafted = make_draft(facts or nodes.bare(), wish(), load_rules(), request(**changes))
    assert isinstance(drafted, Draft)
    index = index_of(drafted)
    given = answer or {}
    whole: Any = {**index, **given, "install": [*index["install"], *given.get("install", ())]}
    return finish(drafted, whole)


@pytest.mark.parametrize("verb", ["up", "plan", "upgrade"])
def test_a_package_of_somebody_elses_that_would_go_is_told_and_refused(verb: str) -> None:
    made = planned(answer={"removes": [VPN]}, verb=verb)
    assert made["takes"] == [{"name": "company-vpn", "does": "remove", "from": "7.1", "to": None, "because": None}]
    (refusal,) = made["refusals"]
    assert refusal["rule"] == "takes-away"
    assert refusal["text"].endswith("Found that for this plan it removes company-vpn 7.1")
    assert "--allow-remove company-vpn" in refusal["remedy"]
    assert "gpuwright_allow_remove: [company-vpn]" in refusal["remedy"]
    assert not made["ok"]


def test_so_are_a_downgrade_and_a_held_package_that_changes() -> None:
    facts = nodes.bare(packages={"holds": ["libfoo"]})
    made = planned(facts, {"install": [LIBRARY], "downgrades": ["libfoo"]})
    assert [(row["does"], row["from"], row["to"]) for row in made["takes"]] == [
        ("downgrade", "2.0", "1.0"),
        ("change-held", "2.0", "1.0"),
    ]
    (refusal,) = made["refusals"]
    assert "downgrades libfoo 2.0 -> 1.0; changes, though it is on hold, libfoo 2.0 -> 1.0" in refusal["text"]


def test_what_is_allowed_by_name_goes_and_is_told_all_the_same() -> None:
    made = planned(answer={"removes": [VPN]}, allow_remove=["company-vpn"])
    assert made["ok"], document.why_not(made)
    assert [row["because"] for row in made["takes"]] == ["allowed"]
    assert "removes company-vpn 7.1 (allowed by name)" in document.describe(made)
    told = package_calls.of_plan(made, ["a"])
    assert told["takes"] is True
    assert "company-vpn" in told["may_take"]


def test_another_name_allows_nothing() -> None:
    assert not planned(answer={"removes": [VPN]}, allow_remove=["company"])["ok"]


def test_a_plan_that_takes_nothing_has_the_package_manager_remove_nothing() -> None:
    made = planned()
    assert made["takes"] == []
    assert package_calls.of_plan(made, ["a"])["takes"] is False


@pytest.mark.parametrize(
    "records",
    [
        {"history": {"drivers": [], "failed": [], "brought": ["company-vpn"]}},
        {"seals": {"cuda": {"state": "good", "reason": None, "digest": "0" * 64, "gpuwright": "0.1.0", "stack": {}, "gpus": [],
                            "packages": {"company-vpn": "7.1"}}}},
    ],
)  # fmt: skip
def test_what_the_records_say_is_ours_may_go(records: Any) -> None:
    made = planned(nodes.bare(**records), {"removes": [VPN]})
    assert made["ok"], document.why_not(made)
    assert [row["because"] for row in made["takes"]] == ["ours"]
    assert "company-vpn" in made["may_take"]


def test_a_hold_on_what_is_ours_is_a_persons_word_all_the_same() -> None:
    """Of our own holds there are those of the driver alone."""
    facts = nodes.bare(packages={"holds": ["libfoo"]}, history={"drivers": [], "failed": [], "brought": ["libfoo"]})
    assert not planned(facts, {"install": [LIBRARY]})["ok"]
    facts["driver"]["packages"] = {"libfoo": "2.0"}
    assert planned(facts, {"install": [LIBRARY]})["ok"]


def test_what_the_repair_would_take_is_refused_before_it_begins() -> None:
    interrupted = {"interrupted": True, "interrupted_detail": "packages left unfinished: unpacked: company-vpn"}
    made = planned(nodes.bare(packages={**interrupted, "repair_removes": [VPN]}))
    assert [row["rule"] for row in made["refusals"]] == ["takes-away"]
    assert planned(nodes.bare(packages={**interrupted, "repair_removes": [VPN]}), allow_remove=["company-vpn"])["ok"]


@pytest.mark.parametrize("verb", ["doctor", "validate"])
def test_who_only_looks_is_refused_nothing(verb: str) -> None:
    assert "takes-away" not in [row["rule"] for row in planned(answer={"removes": [VPN]}, verb=verb)["refusals"]]

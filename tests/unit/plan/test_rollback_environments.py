"""Going back to the build of an environment that was in use before, and staying there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import returning
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.wish import Project, Requirement
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import FrameworkWish, Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import index_of, proven, request, wish
from tests.unit.plan.test_rollback import node, state

RULES = load_rules()
PATH = "/opt/gpuwright/pytorch"
WHEN = "2026-11-10T10:00:00Z"


def kept(version: str = "2.13.0+cu130", when: str | None = WHEN) -> Any:
    """A build with what the rules have for a release."""
    made = make_draft(nodes.bare(), Wish.from_wants([f"torch=={version}"]), RULES, request())
    assert isinstance(made, Draft)
    pins = dict(pin.split("==") for pin in made.context.stack["frameworks"][0]["requirements"])
    return {"python": "3.13.5", "packages": pins, "loader_path": None, "gave_way": when}


def upgraded(facts: Any | None = None, build: Any | None = None) -> Any:
    """A node on which an environment was upgraded."""
    facts = facts or proven(nodes.provisioned())
    facts["environments"][PATH]["kept"] = build or kept()
    return facts


def drafted(facts: Any, asked: Wish | None = None, **changes: Any) -> Any:
    return make_draft(facts, asked or wish(), RULES, request(**changes))


def planned(facts: Any, asked: Wish | None = None, **changes: Any) -> Any:
    draft = drafted(facts, asked, **changes)
    return finish(draft, index_of(draft) if draft.packages else None)


def rolled_back(facts: Any, asked: Wish | None = None) -> Any:
    """A node after a rollback of its environment: sealed with what the plan said of it."""
    plan = planned(facts, asked, verb="rollback")
    environment = facts["environments"][PATH]
    before = {**environment["packages"]}
    environment["packages"] = dict(environment["kept"]["packages"])
    environment["kept"] = {**environment["kept"], "packages": before}
    facts["seals"]["frameworks"]["stack"] = plan["stack"]["frameworks"]
    facts["seals"]["frameworks"]["digest"] = plan["digests"]["frameworks"]
    return facts


def version(plan: Any) -> str:
    return str(plan["stack"]["frameworks"][0]["version"])


def test_the_build_that_was_in_use_before_comes_back_and_nothing_is_built() -> None:
    plan = planned(upgraded(), verb="rollback")
    (change,) = [row for row in plan["changes"] if row["component"] == "frameworks"]
    assert (change["action"], change["to"], change["files"]) == ("return", "pytorch 2.13.0", [PATH])
    assert plan["ok"]
    assert plan["restore"] is None
    assert version(plan) == "2.13.0"


def test_nothing_comes_back_where_it_is_not_known_whether_the_driver_gave_way_later() -> None:
    plan = drafted(nodes.merged(upgraded(), nodes.unseen()), verb="rollback")
    assert [row["rule"] for row in plan["refusals"]] == ["rollback-unknown"]


def test_it_stays_there_and_the_plan_says_so() -> None:
    facts = rolled_back(upgraded())
    plan = planned(facts)
    assert version(plan) == "2.13.0"
    assert [row for row in plan["changes"] if row["component"] == "frameworks"] == []
    assert [row["text"] for row in plan["warnings"] if row["rule"] == "rolled-back"] == [
        f"{PATH} was rolled back to pytorch 2.13.0: it stays there until the wish for pytorch changes, or gpuwright upgrade is asked for"
    ]


@pytest.mark.parametrize("how", ["an upgrade", "another wish", "an exact wish"])
def test_it_moves_on_where_that_is_wished(how: str) -> None:
    facts = rolled_back(upgraded())
    wants = {"another wish": "pytorch>=2.7", "an exact wish": "pytorch==2.14.1"}.get(how)
    asked = Wish.from_wants([wants]) if wants else None
    plan = planned(facts, asked, verb="upgrade" if how == "an upgrade" else "up")
    assert version(plan) == "2.14.1"
    assert not plan["stack"]["frameworks"][0].get("stays")
    # It is kept, so nothing is built.
    assert [row["action"] for row in plan["changes"] if row["component"] == "frameworks"] == ["return"]


def test_what_was_applied_is_what_the_second_look_expects() -> None:
    facts = upgraded()
    applied = planned(facts, verb="rollback")["stack"]
    facts["environments"][PATH]["packages"] = dict(facts["environments"][PATH]["kept"]["packages"])
    again = planned(facts, verb="rollback", applied=applied)
    assert version(again) == "2.13.0"
    assert [row for row in again["changes"] if row["component"] == "frameworks"] == []


@pytest.mark.parametrize(
    ("driver", "environment"),
    [("2026-11-09T10:00:00Z", "return"), (WHEN, "both"), ("2026-11-11T10:00:00Z", "driver")],
    ids=["the environment", "one run changed both", "the driver"],
)
def test_what_gave_way_last_comes_back(driver: str, environment: str) -> None:
    draft = drafted(upgraded(node(state(time=driver))), verb="rollback")
    assert (draft.state is not None) == (environment in ("driver", "both"))
    assert (draft.context.stack["frameworks"][0]["version"] == "2.13.0") == (environment in ("return", "both"))


def test_without_anything_that_is_kept_it_is_refused() -> None:
    plan = drafted(proven(nodes.provisioned()), verb="rollback")
    (refusal,) = plan["refusals"]
    assert refusal["rule"] == "rollback-nowhere"
    assert "no build of an environment is kept" in refusal["text"]


PROJECT = "/opt/gpuwright/research"


def project(*texts: str) -> Wish:
    """A project's wish for an environment of its own: PyTorch, and what it requires besides."""
    required = tuple(Requirement(text, "requirements.txt, line 2") for text in texts)
    frameworks = (FrameworkWish("pytorch", environment="research"),)
    return replace(wish(), frameworks=frameworks, projects=(Project("research", required),))


def of_project(now: Any, before: Any, asked: Wish) -> Any:
    """A node with that environment, in which only packages of the project changed; both builds are what some wish was."""
    made = make_draft(nodes.bare(), asked, RULES, request())
    assert isinstance(made, Draft)
    pins = dict(pin.split("==") for pin in made.context.stack["frameworks"][0]["requirements"])
    facts = proven(nodes.provisioned())
    build = {**kept(), "packages": {**pins, **before}}
    facts["environments"] = {
        PROJECT: {"python": "3.13.5", "packages": {**pins, **now}, "loader_path": None, "kept": build}
    }
    return facts


@pytest.mark.parametrize(
    ("now", "before", "asked", "told"),
    [
        ({"pandas": "3.0.1"}, {"pandas": "2.3.3"}, ["pandas"], "pandas 2.3.3 instead of 3.0.1"),
        ({"pandas": "3.0.1"}, {"pandas": "2.3.3"}, ["pandas>=3"], "pandas 2.3.3 instead of 3.0.1"),
        (
            {"pandas": "3.0.1", "numpy": "2.4.0"},
            {"pandas": "3.0.1", "numpy": "2.3.1"},
            ["pandas"],
            "numpy 2.3.1 instead of 2.4.0",
        ),
        ({"pandas": "3.0.1", "polars": "1.9"}, {"pandas": "3.0.1"}, ["pandas", "polars"], "polars gone instead of 1.9"),
    ],
    ids=["a loose wish", "a wish of today", "what a package needs", "one that came"],
)
def test_a_build_in_which_only_a_projects_packages_differ_comes_back_and_stays(
    now: Any, before: Any, asked: list[str], told: str
) -> None:
    facts = of_project(now, before, project(*asked))
    plan = planned(facts, project(*asked), verb="rollback")
    (change,) = [row for row in plan["changes"] if row["component"] == "frameworks"]
    assert (change["action"], change["files"][0]) == ("return", PROJECT)
    assert told in change["reason"]
    assert plan["work"]["frameworks"]["environments"][PROJECT]["restores"] is True
    # What the role did; it is what the second look expects, and stays so until something else is asked for.
    environment = facts["environments"][PROJECT]
    environment["packages"], environment["kept"]["packages"] = environment["kept"]["packages"], environment["packages"]
    again = planned(facts, project(*asked), verb="rollback", applied=plan["stack"])
    assert [row for row in again["changes"] if row["component"] == "frameworks"] == []
    facts["seals"]["frameworks"] |= {
        "stack": again["stack"]["frameworks"],
        "digest": again["digests"]["frameworks"],
    }
    later = planned(facts, project(*asked))
    assert [row for row in later["changes"] if row["component"] == "frameworks"] == []
    assert [row["rule"] for row in later["warnings"] if row["rule"] == "rolled-back"] == ["rolled-back"]
    (moved,) = [row for row in planned(facts, project("pandas>=4"))["changes"] if row["component"] == "frameworks"]
    assert "pandas>=4" in moved["reason"]


def test_a_rollback_that_would_change_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returning, "restored", lambda stack, *_more: stack)
    facts = of_project({"pandas": "3.0.1"}, {"pandas": "2.3.3"}, project("pandas"))
    plan = drafted(facts, project("pandas"), verb="rollback")
    assert [row["rule"] for row in plan["refusals"]] == ["rollback-nowhere"]


@pytest.mark.parametrize(
    ("name", "packages", "specifier", "variant"),
    [
        ("pytorch", {"torch": "2.13.0+cu126"}, "==2.13.0", "cu126"),
        ("dali", {"nvidia-dali-cuda120": "1.50.0"}, "==1.50.0", "cuda120"),
        ("onnxruntime", {"onnxruntime-gpu": "1.23.2"}, "==1.23.2", "gpu"),
        ("tensorflow", {"tensorflow": "2.20.0"}, "==2.20.0", None),
        ("jax", {"jax": "0.10.0", "jaxlib": "0.10.0"}, "==0.10.0", None),
    ],
)
def test_a_build_is_known_by_the_release_in_it(name: str, packages: Any, specifier: str, variant: str | None) -> None:
    asked = Wish(frameworks=(FrameworkWish(name),))
    facts: Any = {"environments": {f"/opt/gpuwright/{name}": {"kept": {"packages": packages, "gave_way": None}}}}
    (found,) = returning.targets(facts, asked).values()
    assert found == ("", FrameworkWish(name, specifier, variant))


@pytest.mark.parametrize("packages", [{}, {"torch": "; rm"}, {"torch": "2.13.0+CU*"}])
def test_what_is_no_release_is_not_returned_to(packages: Any) -> None:
    facts = upgraded(build={**kept(), "packages": packages})
    assert returning.targets(facts, wish()) == {}

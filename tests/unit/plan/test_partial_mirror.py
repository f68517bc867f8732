"""A mirror of the Python index that lacks something: what it has is taken, what works stays, the rest is refused before any change."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_session import NodeSession
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import python_query
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import index_of, request
from tests.unit.plan.test_python_query import Action
from tests.unit.plan.test_users import machine

RULES = load_rules()
JAX, TORCH = "/opt/gpuwright/jax", "/opt/gpuwright/pytorch"
CUDNN = "nvidia-cudnn-cu13"
#: The newest of the tables.
WHOLE = next(
    row["version"]
    for row in reversed(RULES["cudnn"]["versions"])
    if "13" in row["cuda_majors"] and not row.get("yanked")
)
#: What a mirror has of a distribution; of all others it has everything.
Mirror = Mapping[str, list[str]]


def planned(mirror: Mirror, *wants: str, facts: Any = None, **changes: Any) -> Any:
    """The plan, made as often as the session makes it: until the index has what the rules chose, or nothing is left to choose."""
    lacking: dict[str, list[str]] = {}
    for _turn in range(4):
        made = make_draft(
            facts or nodes.provisioned(), Wish.from_wants(wants), RULES, request(absent=dict(lacking), **changes)
        )
        assert isinstance(made, Draft), made["conflicts"] or made["error"]
        answers = [_answer(each, mirror) for each in python_query.demands(made)]
        wheels = python_query.judged(made, {"answers": answers, "trials": []}, RULES)
        more = python_query.absent(made, wheels)
        if not more:
            return finish(made, index_of(made) if made.packages else None, wheels)
        lacking |= more
    raise AssertionError(lacking)


def _answer(demand: Any, mirror: Mirror) -> Any:
    answer = nodes.python_answer(demand.name, demand.version)
    if demand.name in mirror:
        there = mirror[demand.name]
        others = [{"version": each, "requires_python": None} for each in there if each != demand.version]
        answer.update(others=others, **({} if demand.version in there else {"fits": []}))
    return answer


def environment(plan: Any, path: str) -> Any:
    return next(row for row in plan["stack"]["frameworks"] if row["path"] == path)


def there(plan: Any, path: str, **packages: str) -> Any:
    """The node after that plan: the environment has what was pinned, and is sealed."""
    row = environment(plan, path)
    pins = dict(pin.split("==", 1) for pin in [*row["requirements"], *row["constraints"]] if "==" in pin)
    made = {name.partition("[")[0]: version for name, version in pins.items()}
    facts = nodes.provisioned()
    facts["environments"][path] = {"packages": {**made, **packages}, "python": row["interpreter"]}
    seal = {"state": "good", "reason": None, "digest": "x", "gpuwright": "0.1.0", "stack": plan["stack"]["frameworks"]}
    return nodes.merged(facts, {"seals": {"frameworks": {**seal, "gpus": [], "packages": {}}}})


def of(plan: Any, rule: str) -> list[Any]:
    return [row for row in (*plan["refusals"], *plan["warnings"]) if row["rule"] == rule]


# a library that we pin


def test_the_newest_that_the_mirror_has_of_what_the_rules_pin_is_taken() -> None:
    assert environment(planned({}, "jax"), JAX)["cudnn"] == WHOLE
    plan = planned({CUDNN: ["9.12.0.46", "9.20.0.48", "8.9.7.29"]}, "jax")
    assert plan["ok"], plan["refusals"]
    row = environment(plan, JAX)
    assert row["cudnn"] == "9.20.0.48"
    assert f"{CUDNN}==9.20.0.48" in row["constraints"]
    assert [each for each in plan["why"] if "that the Python index has" in each["text"]]
    assert plan["absent"][CUDNN] == ["9.20.0.48", "9.12.0.46", "8.9.7.29"]


def test_what_it_has_none_of_is_refused_with_what_it_has() -> None:
    plan = planned({CUDNN: ["8.9.7.29"]}, "jax")
    (row,) = of(plan, "python-index-version")
    assert f"wanted is {CUDNN}==9." in row["text"]
    assert row["text"].endswith(f"has {CUDNN} 8.9.7.29")
    assert row["remedy"].startswith("have the mirror bring it, or name one that has it")
    (row,) = of(planned({CUDNN: []}, "jax"), "python-index-version")
    assert row["text"].endswith(f"has no wheel of {CUDNN} that fits")


def test_what_a_project_limits_and_nothing_needs_is_not_asked_for() -> None:
    made = make_draft(nodes.provisioned(), Wish.from_wants(["jax"]), RULES, request())
    assert isinstance(made, Draft)
    made.context.stack["frameworks"][0]["constraints"].append("left-pad==1.0")
    names = [each.name for each in python_query.demands(made)]
    assert CUDNN in names
    assert "left-pad" not in names


def test_what_was_taken_stays_and_nothing_drifts() -> None:
    mirror = {CUDNN: ["9.20.0.48"]}
    facts = there(planned(mirror, "jax"), JAX)
    for verb in ("up", "plan", "status", "validate", "doctor"):
        plan = planned({}, "jax", facts=facts, verb=verb)
        assert [row for row in plan["changes"] if row["component"] == "frameworks" and row["files"]] == [], verb
        assert environment(plan, JAX)["cudnn"] == "9.20.0.48"
    moved = planned({}, "jax", facts=facts, verb="upgrade")
    assert environment(moved, JAX)["cudnn"] != "9.20.0.48"
    (change,) = [row for row in moved["changes"] if row["component"] == "frameworks" and row["files"]]
    assert change["action"] == "upgrade"


class Mirrored(Action):
    """An action of a node whose mirror has not everything."""

    def __init__(self, mirror: Mirror) -> None:
        super().__init__("up")
        self.mirror = mirror

    def on_node(self, module: str, arguments: Any, task_vars: Any, **_more: Any) -> Any:
        self.asked.append((module, arguments))
        demands = [SimpleNamespace(**row) for row in arguments["questions"]]
        return {"changed": False, "answers": [_answer(each, self.mirror) for each in demands], "trials": []}


def test_a_session_asks_again_for_what_was_chosen_instead() -> None:
    action = Mirrored({CUDNN: ["9.20.0.48"]})
    given = {"inventory_hostname": "node", "gpuwright_want": ["jax"], "gpuwright_user": True, "gpuwright_local": True}
    plan = NodeSession(cast("Any", action), given).plan(machine(), only=[])
    assert plan["ok"], plan["refusals"]
    asked = [
        row["version"] for _module, arguments in action.asked for row in arguments["questions"] if row["name"] == CUDNN
    ]
    assert asked == [WHOLE, "9.20.0.48"]
    assert plan["absent"] == {CUDNN: ["9.20.0.48"]}


def test_what_one_environment_was_sealed_with_is_not_for_another_one() -> None:
    facts = there(planned({CUDNN: ["9.20.0.48"]}, "jax"), JAX)
    assert environment(planned({}, "jax@other", facts=facts), "/opt/gpuwright/other")["cudnn"] == WHOLE


# a release that it lacks


def older(facts_of: str = "torch==2.13.0+cu130") -> Any:
    return there(planned({}, facts_of), TORCH)


@pytest.mark.parametrize("verb", ["up", "plan", "upgrade"])
def test_what_works_and_is_wished_stays_where_the_mirror_has_not_the_newer_one(verb: str) -> None:
    plan = planned({"torch": ["2.13.0+cu130"]}, "pytorch", facts=older(), verb=verb)
    assert plan["ok"], plan["refusals"]
    assert environment(plan, TORCH)["version"] == "2.13.0"
    assert [row for row in plan["changes"] if row["component"] == "frameworks" and row["files"]] == []
    (row,) = of(plan, "wheels-behind")
    assert "has no torch==2.14.1+cu130: /opt/gpuwright/pytorch keeps pytorch 2.13.0" in row["text"]


def test_where_it_has_the_newer_one_that_is_taken() -> None:
    plan = planned({}, "pytorch", facts=older())
    assert environment(plan, TORCH)["version"] == "2.14.1"
    assert not of(plan, "wheels-behind")


@pytest.mark.parametrize(
    ("want", "packages"), [("torch==2.14.1", {}), ("pytorch", {"torch": "2.12.0+cu130"}), ("torch>=2.14", {})]
)
def test_what_is_not_wished_or_not_whole_does_not_stay(want: str, packages: dict[str, str]) -> None:
    facts = there(planned({}, "torch==2.13.0+cu130"), TORCH, **packages)
    plan = planned({"torch": ["2.13.0+cu130"]}, want, facts=facts)
    assert of(plan, "python-index-version")
    assert not of(plan, "wheels-behind")


def test_one_that_is_damaged_does_not_stay() -> None:
    facts = older()
    facts["environments"][TORCH]["damage"] = ["torch/__init__.py"]
    assert of(planned({"torch": ["2.13.0+cu130"]}, "pytorch", facts=facts), "python-index-version")

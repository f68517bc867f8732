"""Each component answers all that the loop asks, and what is said of components elsewhere is what they say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.observe import services
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Component, Context, Finding, Manages
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS, SEALED
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.view import View
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.stack import Stack
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import document
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import lock
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.parts import HOST_PARTS, PARTS
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import VARIABLES, WORDS, Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import OF_HOSTS, plan, wish
from tools import build_units

ROOT = Path(__file__).parents[3]
EVERY = pytest.mark.parametrize("component", COMPONENTS.values(), ids=list(COMPONENTS))


#: What is wished of a host itself, and by no name for --want that a lock holds.
HOSTS_OWN: Any = {
    "mig_layout": "3g.40gb,3g.40gb",
    "gpu_settings_cards": {"all": {"power_limit": 350}},
    "gpu_log_days": 30,
    "watch_interval": "15m",
    "fabric_firewall": ["10.2.0.0/24"],
    "monitoring_source": "smi",
}


@pytest.fixture(scope="module")
def stack() -> Stack:
    asked = ["driver", "cuda", "cudnn", "container-toolkit", "pytorch", "monitoring-server"]
    made: Any = plan(nodes.bare(), wish(gpuwright_want=asked, **HOSTS_OWN))["stack"]
    return made


@EVERY
def test_a_room_answers_everything_that_the_loop_asks(component: Component, stack: Stack) -> None:
    facts = nodes.bare()
    context = Context(facts=facts, stack=stack)
    component.wanted(context)
    assert isinstance(component.sealed(context), Manages)
    assert dict(component.inputs(context)) == component.inputs(context)
    assert component.adoption(context) is None
    assert set(component.version_prefixes(stack, None)) <= set(component.sealed(context).packages)
    assert set(component.versioned(context)) <= set(component.sealed(context).packages)
    assert set(component.members(context)) <= set(context.installed)
    assert all(demand.packages for demand in component.demands(stack, Wish()))
    assert all(isinstance(name, str) for name in component.also(stack, load_rules()))
    change = document.change(component.name, Finding("install", "it is not there"), {}, {})
    assert all(need.size > 0 for need in component.space(change, context))
    assert all(check["id"] for check in component.judge(View(facts), stack))
    assert all(isinstance(key, str) for key in component.removes(facts, []))
    branch = component.branch(stack)
    assert branch is None or numeric_version.major(branch) == branch


@EVERY
def test_what_a_seal_carries_is_a_part_of_the_stack(component: Component, stack: Stack) -> None:
    assert component.stack_part({}) == {}
    assert component.parts == () or component.stack_part(stack) == stack.get(component.parts[0])


@EVERY
def test_a_new_component_says_three_things(component: Component) -> None:
    """Its name, when it is wanted, and what is not as wished: what is not said has a default."""
    required = [field.name for field in fields(Component) if field.default is field.default_factory]
    assert required == ["name", "wanted", "findings"]
    small = Component(component.name, lambda _context: False, lambda _context: [])
    assert small.demands({}, Wish()) == ()
    assert small.sealed(Context(facts=nodes.bare(), stack={})) == Manages()


def test_components_with_a_seal_are_those_that_manage_something() -> None:
    assert tuple(name for name, component in COMPONENTS.items() if component.manages) == SEALED


def test_parts_of_components_are_those_that_the_resolver_has() -> None:
    of_components = [part for component in COMPONENTS.values() for part in component.parts]
    assert len(of_components) == len(set(of_components))
    assert {part.key for part in (*PARTS, *HOST_PARTS)} == set(of_components)
    assert {part.key for part in HOST_PARTS} == OF_HOSTS


@EVERY
def test_units_of_ours_that_are_sealed_are_those_that_a_room_names(component: Component, stack: Stack) -> None:
    sealed = component.sealed(Context(facts=nodes.bare(), stack=stack)).services
    assert {unit for unit in sealed if unit.startswith("gpuwright-")} <= set(component.units) <= set(services.UNITS)


def test_what_a_node_knows_of_units_is_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build_units.main(["--check"]) == 0, capsys.readouterr().err
    monkeypatch.setattr(build_units, "TARGET", tmp_path / "own_units.py")
    assert build_units.main(["--check"]) == 1
    assert "run 'make rules'" in capsys.readouterr().err
    assert build_units.main([]) == build_units.main(["--check"]) == 0


def test_security_floors_are_of_components() -> None:
    named = {component.security for component in COMPONENTS.values()} - {None}
    assert named
    assert named <= {row["component"] for row in load_rules()["security"]["rows"]}


def test_words_are_of_components_and_of_a_wish() -> None:
    assert {words.component for words in WORDS} <= set(COMPONENTS)
    fields_of_wish = {field.name for field in fields(Wish)}
    assert {part for words in WORDS for part in words.brings} <= fields_of_wish
    assert {part.key for part in (*PARTS, *HOST_PARTS)} <= fields_of_wish
    names = {name for words in WORDS for name in words.readers}
    assert {part.want for part in HOST_PARTS if part.want} <= names
    variables = [variable for words in WORDS for variable in words.variables]
    assert len(variables) == len(set(variables))
    assert {variable for words in WORDS for variable in words.of_host} <= set(lock.HOST_VARIABLES) < set(VARIABLES)

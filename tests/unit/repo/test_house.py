"""What makes the house hard to inherit may only become less: counts, and ids of components that decide outside their room."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks.resolve import FRAMEWORKS
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import COMPONENTS
from tests.unit.repo import floors, literals
from tools import house

EXCEPTED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("house.yaml").read_text())["literals"]


# --- counts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", house.COUNTS, ids=lambda count: count.name)
def test_a_count_only_falls(count: house.Count) -> None:
    if subprocess.run(["git", "rev-parse"], cwd=house.ROOT, capture_output=True, check=False).returncode:
        pytest.skip("not a git checkout")
    taken = count.taken()
    assert taken > 0, "nothing is found any more: does the command still look where it should?"
    assert house.above({count.name: taken}, house.ceilings()) == {}


def test_each_count_has_a_ceiling_and_each_ceiling_a_count() -> None:
    assert list(house.ceilings()) == [count.name for count in house.COUNTS]


def test_a_count_that_grew_and_one_without_a_ceiling_are_above() -> None:
    assert house.above({"a": 5, "b": 4, "c": 1}, {"a": 4, "b": 4}) == {"a": (5, 4), "c": (1, 0)}


def test_ceilings_are_lowered_and_never_raised() -> None:
    text = "ceilings:\n  a: 5\n  b: 7\n  # b: 7\nupward: {}\n"
    assert house.lowered(text, {"a": 3, "b": 9}) == text.replace("a: 5", "a: 3")


def test_a_command_that_fails_is_no_count_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"repository|no-such"):
        house.Count("x", "", "git grep -h x -- no-such", 0).taken(tmp_path)


# --- ids --------------------------------------------------------------------------------------------------------------


def test_the_ids_are_those_of_the_tables() -> None:
    assert set(COMPONENTS) == set(literals.COMPONENTS)
    assert set(FRAMEWORKS) == set(literals.FRAMEWORKS)


def test_no_more_is_decided_by_an_id_outside_its_room() -> None:
    """Ask the component or framework instead: what the loop needs of it, its room answers."""
    grown = {
        f"{module}: {name}": count
        for module, ids in literals.outside().items()
        for name, count in ids.items()
        if count > EXCEPTED.get(module, {"ids": {}})["ids"].get(name, 0)
    }
    assert grown == {}


def test_exceptions_are_of_modules_and_have_reasons() -> None:
    assert set(EXCEPTED) <= set(floors.modules())
    assert all(row["reason"] for row in EXCEPTED.values())


def test_an_exception_that_nothing_needs_any_more_goes() -> None:
    found = literals.outside()
    assert [
        f"{module}: {name}"
        for module, row in EXCEPTED.items()
        for name in row["ids"]
        if name not in found.get(module, {})
    ] == []


@pytest.mark.parametrize(
    "source",
    [
        'if name == "jax": pass',
        'if "jax" != name: pass',
        'if name in ("driver", "jax"): pass',
        'if name in {"jax"}: pass',
        'if "jax" in found: pass',
        'TITLES = {"jax": "JAX"}',
        'NAMES = ("jax", "driver")',
        'match name:\n    case "jax": pass',
        'rules["jax"]["releases"]',
        'rules.get("jax", {})',
    ],
)
def test_every_way_to_decide_is_seen_once(source: str) -> None:
    assert literals.deciding(source) == {"jax": 1}


@pytest.mark.parametrize(
    "source", ['title = "jax"', 'say("jax")', '"""jax"""', 'stack["cuda"]', 'plan.get("reboot")', '("jax", name)']
)
def test_a_word_that_decides_nothing_is_left_alone(source: str) -> None:
    assert literals.deciding(source) == {}


def test_a_room_is_free_to_name_itself() -> None:
    assert "jax" in literals.deciding(
        (floors.ROOT / "plugins/plugin_utils/components/frameworks/resolve/jax.py").read_text()
    )
    assert "jax" not in literals.outside().get("plugin_utils.components.frameworks.resolve.jax", {})

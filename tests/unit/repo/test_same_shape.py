"""What a test leaves out of an answer of a node, as the comparison of two states fills it in."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.unit.plan import nodes
from tools import house, same_questions, same_shape

SHAPE = same_shape.Shape.of_tree(house.ROOT)


def without(facts: Any, *path: str) -> Any:
    *way, last = path
    inner = facts
    for key in way:
        inner = inner[key]
    del inner[last]
    return facts


def test_what_is_whole_stays_as_it_is() -> None:
    facts, index = nodes.bare(), nodes.index(changed=False)
    assert SHAPE.filled("facts", facts) == facts
    assert SHAPE.filled("package_index", index) == index


def test_what_lacks_comes_from_the_model_and_else_from_the_schema() -> None:
    facts = without(without(nodes.bare(), "history"), "kernel", "compiler")
    filled = SHAPE.filled("facts", facts, {"kernel": {"compiler": {"built_with": "gcc 14.2"}}})
    assert filled["history"] is None
    assert filled["kernel"]["compiler"] == {"built_with": "gcc 14.2", "available": None}


PACKAGE = {"version": "1", "from": None, "download_bytes": None, "installed_bytes": None}
SEAL = {
    "reason": None,
    "digest": None,
    "gpuwright": None,
    "stack": None,
    "gpus": None,
    "packages": None,
    "written": None,
}


@pytest.mark.parametrize(
    ("definition", "value", "key", "made"),
    [
        ("package_index", {"install": [{"name": "a"}]}, "install", [{"name": "a", **PACKAGE}]),
        ("package_index", {"packages": {"a": {"candidate": "1"}}}, "packages", {"a": {"candidate": "1", "versions": []}}),
        ("package_index", {}, "exchange", None),
        ("package_index", {"exchange": {}}, "exchange", {"comes": {}, "leaves": []}),
        ("seals", {"cuda": {"state": "good"}}, "cuda", {"state": "good", **SEAL}),
        ("facts", {"pci": "wrong"}, "pci", "wrong"),
        ("facts", {"boot": {"no_such": 1}}, "time", "2026-11-20T12:00:00Z"),
    ],
)  # fmt: skip
def test_every_required_key_is_made(definition: str, value: Any, key: str, made: Any) -> None:
    before = copy.deepcopy(value)
    assert SHAPE.filled(definition, value)[key] == made
    assert value == before


def test_one_of_several_is_the_one_that_has_the_keys() -> None:
    seal = SHAPE.filled("driver_seal", {"stack": {"branch": "580"}})
    assert seal["stack"]["branch"] == "580"
    assert "adopted" in seal["stack"]
    assert SHAPE.filled("driver_seal", {"stack": {}})["stack"] == {}


def test_the_gate_admits_what_is_made_from_nothing() -> None:
    made = {"facts": SHAPE.filled("facts", {}, nodes.bare()), "changed": False}
    assert json.loads(gate.admit("node_facts", json.dumps(made))) == made
    made = SHAPE.filled("package_index", {})
    assert json.loads(gate.admit("package_index", json.dumps(made))) == made


def test_a_tree_without_the_schema_is_asked_for_its_place(tmp_path: Any) -> None:
    with pytest.raises(LookupError, match="SCHEMAS"):
        same_shape.Shape.of_tree(tmp_path)


def test_two_questions_that_are_the_same_when_whole_are_one() -> None:
    entries: dict[str, Any] = {"rules": dict, "wish": dict}
    recorder = same_questions.Recorder(entries.__getitem__, dict, dict, SHAPE.filled)
    for facts in (nodes.bare(), without(nodes.bare(), "boot", "signing_key"), nodes.bare(hostname="other")):
        recorder.add("plan", {"request": {}, "indexes": [{}, SHAPE.filled("package_index", {}), None]}, facts)
    made = recorder.questions()
    assert [row["indexes"] for row in made["rows"].values()] == [[SHAPE.filled("package_index", {}), None]] * 2
    assert {row["facts"] for row in made["rows"].values()} == set(made["facts"])

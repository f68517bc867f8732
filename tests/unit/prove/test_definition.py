"""The one definition of a document: its keys, and what is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model import definition
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.lock import LockStack
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.report import Record

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts


class Inner(TypedDict):
    name: str
    number: NotRequired[int]


class Outer(TypedDict):
    told: bool
    rows: list[Inner]
    facts: Facts
    inner: Inner
    perhaps: Inner | None
    seconds: Annotated[float, definition.Least(0)] | None
    text: str
    either: str | int | None
    any: dict[str, object]
    more: NotRequired[str]


EMPTY = {
    "told": False,
    "rows": [],
    "facts": {},
    "inner": {"name": ""},
    "perhaps": None,
    "seconds": None,
    "text": "",
    "either": None,
    "any": {},
}


def test_what_nobody_said_is_empty() -> None:
    assert definition.shaped(Outer, {}) == EMPTY
    assert list(definition.shaped(Outer, {"more": None, "foreign": 1})) == list(EMPTY)


@pytest.mark.parametrize(
    ("key", "given", "made"),
    [
        ("told", 1, True),
        ("rows", ({"name": "a"}, "b", 5, None), [{"name": "a"}, "b"]),
        ("rows", {"name": "a"}, [{"name": "a"}]),
        ("facts", {"odd": 1}, {"odd": 1}),
        ("facts", "none", {}),
        ("inner", {"name": 5, "odd": 1}, {"name": "5"}),
        ("inner", {"number": 3}, {"name": "", "number": 3}),
        ("perhaps", {}, {"name": ""}),
        ("perhaps", "none", None),
        ("seconds", 3, 3.0),
        ("seconds", 0, 0.0),
        ("seconds", -1, None),
        ("seconds", "long", None),
        ("seconds", float("nan"), None),
        ("text", 5, "5"),
        ("either", 5, 5),
        ("any", {"a": 1}, {"a": 1}),
        ("more", "x", "x"),
    ],
)
def test_a_value_takes_the_shape_of_its_key(key: str, given: object, made: object) -> None:
    assert definition.shaped(Outer, {key: given})[key] == made


@pytest.mark.parametrize("document", [Plan, Record, LockStack])
def test_the_keys_of_a_document_are_those_of_its_type(document: Any) -> None:
    known = definition.keys(document)
    assert list(known) == list(document.__annotations__)
    written = {key for key, each in document.__annotations__.items() if "NotRequired" in str(each)}
    assert {key for key, said in known.items() if not said.required} == written | document.__optional_keys__

"""The one definition of a document: its keys, what is empty, and what of a value is not so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

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


class Strict(TypedDict):
    format: Literal[1]
    name: Annotated[str, definition.Matches("^[a-z]+$")]
    open: str | None
    yes: bool
    count: int
    rows: Annotated[list[Inner], definition.Least(1)]
    more: NotRequired[str]


GOOD: dict[str, Any] = {"format": 1, "name": "a", "open": None, "yes": True, "count": 2, "rows": [{"name": "x"}]}


@pytest.mark.parametrize("change", [{}, {"open": "x"}, {"more": "x"}, {"rows": [{"name": "x", "number": 1}]}])
def test_what_is_as_its_definition_says_has_no_mistake(change: dict[str, Any]) -> None:
    assert list(definition.mistakes(Strict, {**GOOD, **change})) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "a\n"}, "name has to match ^[a-z]+$, found 'a\\n'"),
        ({"name": None}, "name has to be a text, found None"),
        ({"open": 5}, "open has to be a text or null, found 5"),
        ({"yes": 1}, "yes has to be true or false, found 1"),
        ({"count": True}, "count has to be a number, found True"),
        ({"rows": {}}, "rows has to be a list, found dict"),
        ({"rows": []}, "rows has to have 1 at least, found 0"),
        ({"rows": [{"name": "x"}, []]}, "rows[1] has to be a mapping, found list"),
        ({"rows": [{}]}, "rows[0].name is missing"),
        ({"rows": [{"name": "x", "odd": 1}]}, "rows[0] has a key 'odd' that this version does not know"),
        ({"odd": 1}, "it has a key 'odd' that this version does not know"),
        ({"format": 2}, "format has to be 1, found 2"),
        ({"format": True}, "format has to be 1, found True"),
    ],
)
def test_a_mistake_has_its_place(change: dict[str, Any], said: str) -> None:
    assert list(definition.mistakes(Strict, {**GOOD, **change})) == [said]


def test_what_is_missing_is_said_and_no_document_is_one_mistake() -> None:
    assert next(definition.mistakes(Strict, {})) == "format is missing"
    assert list(definition.mistakes(Strict, [])) == ["it has to be a mapping, found list"]


@pytest.mark.parametrize("document", [Plan, Record, LockStack])
def test_the_keys_of_a_document_are_those_of_its_type(document: Any) -> None:
    known = definition.keys(document)
    assert list(known) == list(document.__annotations__)
    written = {key for key, each in document.__annotations__.items() if "NotRequired" in str(each)}
    assert {key for key, said in known.items() if not said.required} == written | document.__optional_keys__

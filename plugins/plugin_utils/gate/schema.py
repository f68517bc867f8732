# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
r"""The part of JSON Schema (2020-12) that answers.json uses, compiled to functions.

A role that is used alone has nothing but ansible-core, so no library is at hand. A property test holds this equal to ``jsonschema``.
A keyword that is not known here, and a text, a list or an object without a limit, is an error when the file is loaded.

``pattern`` is searched with Python's ``re``, so it is written with ``^`` and ``\Z``. ``format`` is only a note, as the standard has it:
of a string without control characters nothing is changed, else those of ``"format": "text"`` keep their lines, and all others become one.

``title`` and ``description`` are notes too, for tools/build_types.py; beside a ``pattern`` the description says what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], Any]
Schema = Mapping[str, Any]

_NOTES = {"title", "description"}
_COMMON = {"type", "enum", "const", "format", "$comment"} | _NOTES
_STRING = {"maxLength", "minLength", "pattern"}
_NUMBER = {"minimum", "maximum"}
_ARRAY = {"items", "maxItems"}
_OBJECT = {"properties", "required", "additionalProperties", "propertyNames", "maxProperties"}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_SHOWN = 80
_MISSING = object()


class SchemaError(ValueError):
    """The file of schemas says something that is not understood here."""


class Mismatch(Exception):
    """A value that its schema does not allow."""

    def __init__(self, found: Any, expected: str) -> None:
        super().__init__()
        self.found = found
        self.expected = expected
        self.path: list[str] = []

    def within(self, key: str | int) -> Mismatch:
        """The same, seen from the container."""
        self.path.insert(0, f"[{key}]" if isinstance(key, int) else f".{cleaned(key)[:_SHOWN]}")
        return self

    def __str__(self) -> str:
        where = "".join(self.path).lstrip(".") or "the answer"
        if self.found is _MISSING:
            return f"{where} is missing"
        found = cleaned(repr(self.found)[: 2 * _SHOWN])
        return f"{where} is {found if len(found) <= _SHOWN else found[: _SHOWN - 1] + '…'}, expected {self.expected}"


def cleaned(text: str, *, multiline: bool = False) -> str:
    """Text that moves no cursor: other kinds of white space are blanks, what does not print is a mark. ``multiline`` keeps its lines."""
    if text.isprintable():
        return text
    kept = "\n\t" if multiline else ""
    plain = text.replace("\r\n", "\n") if multiline else text
    return "".join(
        sign if sign.isprintable() or sign in kept else " " if sign.isspace() else "\ufffd" for sign in plain
    )


def compile_definitions(document: Schema) -> dict[str, Check]:
    """The check of each definition by its name. A check returns the value, with its texts cleaned, or raises Mismatch."""
    made: dict[str, Check] = {}
    for name, schema in document["$defs"].items():
        try:
            made[name] = _compiled(schema, made)
        except SchemaError as error:
            raise SchemaError(f"{name}: {error}") from None
    for name in _referred(document["$defs"]):
        if name not in made:
            raise SchemaError(f"there is no definition {name}")
    return made


def _referred(schema: Any) -> set[str]:
    """Names of the definitions that are referred to."""
    if isinstance(schema, list):
        return {name for each in schema for name in _referred(each)}
    if not isinstance(schema, dict):
        return set()
    own = {_name_of(schema["$ref"])} if isinstance(schema.get("$ref"), str) else set()
    return own | {name for each in schema.values() for name in _referred(each)}


def _name_of(reference: str) -> str:
    if not reference.startswith("#/$defs/"):
        raise SchemaError(f"the reference {reference} leads out of the file")
    return reference.removeprefix("#/$defs/")


def _compiled(schema: Schema, made: dict[str, Check]) -> Check:
    if "$ref" in schema:
        if set(schema) - _NOTES != {"$ref"}:
            raise SchemaError("nothing stands beside a $ref")
        name = _name_of(schema["$ref"])
        return _reference(name, made)
    if "anyOf" in schema:
        if set(schema) - _NOTES != {"anyOf"}:
            raise SchemaError("nothing stands beside an anyOf")
        return _any_of([_compiled(each, made) for each in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return _enumeration(schema)
    return _typed(schema, made)


def _reference(name: str, made: dict[str, Check]) -> Check:
    """The check of a definition, which may not be made yet, or be the one that refers to it."""

    def check(value: Any) -> Any:
        return made[name](value)

    return check


def _any_of(branches: list[Check]) -> Check:
    def check(value: Any) -> Any:
        failed = []
        for branch in branches:
            try:
                return branch(value)
            except Mismatch as error:
                failed.append(error)
        # The branch that came farthest is the one that was meant.
        raise max(failed, key=lambda error: len(error.path))

    return check


def _enumeration(schema: Schema) -> Check:
    _only(schema, {"enum", "const"} | _NOTES)
    allowed = schema["enum"] if "enum" in schema else [schema["const"]]
    if any(not isinstance(each, (str, type(None))) for each in allowed):
        raise SchemaError("an enumeration has texts and null")
    told = ", ".join(each or "nothing" for each in allowed)
    expected = f"one of {told}" if len(allowed) > 1 else told

    def check(value: Any) -> Any:
        if not isinstance(value, (str, type(None))) or value not in allowed:
            raise Mismatch(value, expected)
        return value

    return check


def _typed(schema: Schema, made: dict[str, Check]) -> Check:
    types = schema.get("type")
    types = [types] if isinstance(types, str) else types
    if not types or set(types) - set(_TYPES):
        raise SchemaError(f"a type is one of {', '.join(_TYPES)}, and it is {types}")
    allowed: set[str] = set(_COMMON)
    by_type: dict[type, Check] = {}
    expected = schema["description"] if "pattern" in schema and "description" in schema else " or ".join(types)
    for name in types:
        keywords, one = _of_type(name, schema, made, expected)
        allowed |= keywords
        by_type |= dict.fromkeys(_TYPES[name], one)
    if "integer" in types and "number" in types:
        raise SchemaError("a number is an integer too")
    _only(schema, allowed)

    def check(value: Any) -> Any:
        found = by_type.get(type(value))
        if found is None:
            raise Mismatch(value, expected)
        return found(value)

    return check


def _of_type(name: str, schema: Schema, made: dict[str, Check], expected: str) -> tuple[set[str], Check]:
    """The keywords that a type brings, and its check."""
    if name == "string":
        return _STRING, _string(schema, expected)
    if name in ("integer", "number"):
        return _NUMBER, _number(schema, expected, whole=name == "integer")
    if name == "array":
        return _ARRAY, _array(schema, made, expected)
    if name == "object":
        return _OBJECT, _object(schema, made)
    return set(), lambda value: value


def _string(schema: Schema, expected: str) -> Check:
    least, most = schema.get("minLength", 0), _needed(schema, "maxLength")
    fits = re.compile(schema["pattern"]).search if "pattern" in schema else None
    multiline = schema.get("format") == "text"

    def check(value: str) -> str:
        if not least <= len(value) <= most:
            raise Mismatch(value, f"{expected} of at most {most} characters")
        if fits is not None and not fits(value):
            raise Mismatch(value, expected)
        return value if value.isprintable() else cleaned(value, multiline=multiline)

    return check


def _number(schema: Schema, expected: str, *, whole: bool) -> Check:
    least, most = _needed(schema, "minimum"), _needed(schema, "maximum")

    def check(value: float) -> float:
        if not least <= value <= most or (whole and value != int(value)):
            raise Mismatch(value, f"{expected} from {least} to {most}")
        return value

    return check


def _array(schema: Schema, made: dict[str, Check], expected: str) -> Check:
    most, each = _needed(schema, "maxItems"), _compiled(_needed(schema, "items"), made)

    def check(value: list[Any]) -> list[Any]:
        if len(value) > most:
            raise Mismatch(value, f"{expected} of at most {most} entries")
        for index, item in enumerate(value):
            try:
                value[index] = each(item)
            except Mismatch as error:
                raise error.within(index) from None
        return value

    return check


def _object(schema: Schema, made: dict[str, Check]) -> Check:
    required, most = schema.get("required", []), _most_entries(schema)
    named = _entries(schema, made)

    def check(value: dict[str, object]) -> dict[str, object]:
        if len(value) > most:
            raise Mismatch(value, f"at most {most} entries")
        for key in required:
            if key not in value:
                raise Mismatch(_MISSING, "").within(key)
        for key, item in value.items():
            try:
                value[key] = named(key)(item)
            except Mismatch as error:
                raise error.within(key) from None
        return value if all(map(str.isprintable, value)) else {cleaned(key): item for key, item in value.items()}

    return check


def _most_entries(schema: Schema) -> float:
    if _needed(schema, "additionalProperties") is not False:
        return int(_needed(schema, "maxProperties"))
    if {"propertyNames", "maxProperties"} & set(schema):
        raise SchemaError("an object without other entries has its names and their number already")
    return float("inf")


def _entries(schema: Schema, made: dict[str, Check]) -> Callable[[str], Check]:
    """The check of an entry by its name. Raises Mismatch for a name that may not be there."""
    known = {name: _compiled(each, made) for name, each in schema.get("properties", {}).items()}
    others = schema["additionalProperties"]
    if others is False:
        return lambda key: known.get(key, _unknown)
    rest, names = _compiled(others, made), _compiled(_needed(schema, "propertyNames"), made)

    def named(key: str) -> Check:
        names(key)
        return known.get(key, rest)

    return named


def _unknown(value: Any) -> Any:
    raise Mismatch(value, "nothing of that name")


def _needed(schema: Schema, keyword: str) -> Any:
    if keyword not in schema:
        raise SchemaError(f"{keyword} is missing in {dict(schema)}")
    return schema[keyword]


def _only(schema: Schema, known: set[str]) -> None:
    unknown = set(schema) - known
    if unknown:
        raise SchemaError(f"keywords that are not known here: {', '.join(sorted(unknown))}")

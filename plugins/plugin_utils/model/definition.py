# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a document's one definition, a TypedDict of this folder, says of it: its keys, and what each is where there is nothing.

docs/*.schema.json are written from the same definitions by tools/build_schemas.py. Pure.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import (
    Annotated,
    Literal,
    NamedTuple,
    NotRequired,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)


class Matches(NamedTuple):
    """A text that matches this, as a part of an annotation."""

    pattern: str


class Least(NamedTuple):
    """A number that is at least this, or a list of so many at least, as a part of an annotation."""

    number: int


class OneOf(NamedTuple):
    """A text that is one of these, as a part of an annotation."""

    values: tuple[str, ...]


class Unwritten(NamedTuple):
    """What is in no file, as a part of an annotation: it is told to a person alone."""


Rule = Matches | Least | OneOf | Unwritten


class Kind(NamedTuple):
    """What an annotation says: one type, or several of which a value has one; ``nullable``: or it is None."""

    types: tuple[object, ...]
    nullable: bool
    rule: Rule | None


class Key(NamedTuple):
    """What a definition says of a key. ``annotation``: as it is written."""

    annotation: object
    required: bool


_NAMES: Mapping[object, str] = {str: "a text", int: "a number", bool: "true or false", type(None): "null"}

#: ISO 8601, UTC.
Time = Annotated[str, Matches(r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")]
Count = Annotated[int, Least(0)]


@cache
def keys(document: type) -> Mapping[str, Key]:
    """Return what a definition says of each key. What it takes from another document, for type checkers alone, is a mapping."""
    elsewhere: dict[str, object] = {}
    while True:
        try:
            hints: Mapping[str, object] = get_type_hints(document, localns=elsewhere, include_extras=True)
        except NameError as error:
            elsewhere[str(error.name)] = dict
        else:
            break
    required: frozenset[str] = getattr(document, "__required_keys__", frozenset())
    return {
        key: Key(get_args(hint)[0], False) if get_origin(hint) is NotRequired else Key(hint, key in required)
        for key, hint in hints.items()
    }


def kind(annotation: object) -> Kind:
    """Return an annotation taken apart."""
    rule: Rule | None = None
    if get_origin(annotation) is Annotated:
        annotation, rule = get_args(annotation)[:2]
    several = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    found = tuple(each for each in several if each is not type(None))
    if len(found) == 1 and get_origin(found[0]) is Annotated:
        rule, found = get_args(found[0])[1], get_args(found[0])[:1]
    return Kind(found, len(found) < len(several), rule)


def mistakes(document: type, value: object, place: str = "") -> Iterator[str]:
    """Yield what of a value is not as its definition says, each with its place."""
    if not isinstance(value, Mapping):
        yield f"{place or 'it'} has to be a mapping, found {type(value).__name__}"
        return
    known = keys(document)
    yield from (
        f"{place or 'it'} has a key {key!r} that this version does not know" for key in value if key not in known
    )
    for key, said in known.items():
        below = f"{place}.{key}".lstrip(".")
        if key in value:
            yield from _mistakes(kind(said.annotation), value[key], below)
        elif said.required:
            yield f"{below} is missing"


def _mistakes(said: Kind, value: object, place: str) -> Iterator[str]:
    of, rule = said.types[0], said.rule
    if is_typeddict(of):
        yield from mistakes(cast("type", of), value, place)
    elif get_origin(of) is list:
        if not isinstance(value, list):
            yield f"{place} has to be a list, found {type(value).__name__}"
            return
        if isinstance(rule, Least) and len(value) < rule.number:
            yield f"{place} has to have {rule.number} at least, found {len(value)}"
        for number, each in enumerate(value):
            yield from _mistakes(kind(get_args(of)[0]), each, f"{place}[{number}]")
    elif not (value is None and said.nullable) and not any(_is(value, each) for each in said.types):
        names = [
            _NAMES.get(each) or str(get_args(each)[0])
            for each in (*said.types, *([type(None)] if said.nullable else ()))
        ]
        yield f"{place} has to be {' or '.join(names)}, found {value!r}"
    elif isinstance(rule, Matches) and isinstance(value, str) and not re.fullmatch(rule.pattern, value):
        yield f"{place} has to match {rule.pattern}, found {value[:80]!r}"


def _is(value: object, of: object) -> bool:
    """Say whether a value is of a type; to Python true is a number too. Ansible's texts are a kind of text of their own."""
    if get_origin(of) is Literal:
        return value in get_args(of) and not isinstance(value, bool)
    return isinstance(of, type) and isinstance(value, of) and (of is bool or not isinstance(value, bool))


def shaped(document: type, values: Mapping[str, object]) -> dict[str, object]:
    """Return values in the shape of a document, whatever was handed in: each of its keys, empty where there is nothing, and no other."""
    return {
        key: _shaped(kind(said.annotation), values.get(key))
        for key, said in keys(document).items()
        if said.required or values.get(key) is not None
    }


def _shaped(said: Kind, value: object) -> object:
    if len(said.types) > 1 or (value is None and said.nullable):
        return value
    of = said.types[0]
    origin = get_origin(of) or of
    if origin is list:
        rows = list(value) if isinstance(value, (list, tuple)) else [value]
        return [each for each in rows if isinstance(each, (Mapping, str))]
    if origin is dict or is_typeddict(origin):
        given = value if isinstance(value, Mapping) else None if said.nullable else {}
        return given if given is None or origin is dict else shaped(cast("type", origin), given)
    if origin is float:
        least = said.rule.number if isinstance(said.rule, Least) else float("-inf")
        return float(value) if isinstance(value, (int, float)) and value >= least else None
    if isinstance(origin, type):
        return origin() if value is None else origin(value)
    return value

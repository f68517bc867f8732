#!/usr/bin/env python3
# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the types of what leaves a node, and their documentation, from the schema that the gate holds it against.

plugins/plugin_utils/gate/answers.json is the source. An object with ``title`` becomes a TypedDict of that name, an enumeration with one
an alias of Literal. Written are the modules of ``FILES`` (they are read on nodes too: Python 3.8), docs/facts.md, and the block RETURN of
the module node_facts.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("plugins/plugin_utils/gate/answers.json")
UTILITIES = "ansible_collections.gpuwright.node.plugins.module_utils"
PAGE = Path("docs/facts.md")
MODULE = Path("plugins/modules/node_facts.py")
#: Module: its docstring, and the definitions whose types it has. A type is in the first module that reaches it.
FILES = {
    "check": ("A check, as a node and the report have it.", ["check"]),
    "seal": (
        "What a node keeps of earlier runs, as it answers it: seals, proof, lock, history.",
        ["seals", "proof", "lock", "history"],
    ),
    "facts": ("The observation of a machine.", ["facts"]),
    "index": ("The answers of the package index and of the Python index.", ["package_index", "python_index"]),
}
#: What each answer of a module has, whatever it says; Ansible's, and not of the type.
ENVELOPE = frozenset(("changed", "failed", "msg", "warnings", "deprecations", "invocation", "diff"))
#: Definitions that are a whole answer of a module.
_WHOLE = ("package_index", "python_index")

Schema = dict[str, Any]
_NATIVE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_ANSIBLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}
_WIDTH = 120


class Key(NamedTuple):
    """A key of an object."""

    name: str
    type: str
    required: bool
    description: str


class Type(NamedTuple):
    """A named type: an object with its keys, or an enumeration with its values."""

    name: str
    description: str
    keys: list[Key]
    values: list[str]


class SourceError(ValueError):
    """The schema lacks what a type needs."""


class Types:
    """The named types of definitions, in the order in which they are reached: what a type refers to comes first."""

    def __init__(self, document: Schema) -> None:
        self.definitions: dict[str, Schema] = document["$defs"]
        self.found: dict[str, Type] = {}

    def of(self, schema: Schema, place: str) -> str:
        """The type of a value, as an annotation. ``place``: for errors."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return "Any" if name == "opaque" else self.of(self.definitions[name], name)
        if "anyOf" in schema:
            branches = [each for each in schema["anyOf"] if each.get("$ref") != "#/$defs/nothing"]
            return _union([self.of(each, place) for each in branches])
        if "enum" in schema:
            return self._enumeration(schema, place)
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return _union([self._one(each, schema, place) for each in types])

    def _one(self, kind: str, schema: Schema, place: str) -> str:
        if kind == "null":
            return "None"
        if kind == "array":
            return f"list[{self.of(schema['items'], place)}]"
        if kind != "object":
            return _NATIVE[kind]
        others = schema.get("additionalProperties")
        if isinstance(others, dict) and ("properties" not in schema or others.get("$ref") != "#/$defs/opaque"):
            return f"dict[str, {self.of(others, place)}]"
        return self._object(schema, place)

    def _object(self, schema: Schema, place: str) -> str:
        name = _title(schema, place)
        keys = [
            Key(
                key,
                self.of(each, f"{place}.{key}"),
                key in schema.get("required", ()),
                self.meaning(each, f"{place}.{key}"),
            )
            for key, each in schema["properties"].items()
            if not (place in _WHOLE and key in ENVELOPE)
        ]
        return self._add(Type(name, schema.get("description", ""), keys, []), place)

    def _enumeration(self, schema: Schema, place: str) -> str:
        values = [each for each in schema["enum"] if each is not None]
        name = self._add(Type(_title(schema, place), "", [], values), place)
        return f"{name} | None" if None in schema["enum"] else name

    def _add(self, made: Type, place: str) -> str:
        if self.found.setdefault(made.name, made) != made:
            raise SourceError(f"{place}: there is another type {made.name}")
        return made.name

    def meaning(self, schema: Schema, place: str) -> str:
        """What a value is, from its own description or its definition's."""
        told = schema.get("description")
        if told is None and "$ref" in schema:
            told = self.definitions[schema["$ref"].rpartition("/")[2]].get("description")
        if told is None:
            raise SourceError(f"{place} has no description")
        return str(told)[0].upper() + str(told)[1:]


def _title(schema: Schema, place: str) -> str:
    if "title" not in schema:
        raise SourceError(f"{place} has no title")
    return str(schema["title"])


def _union(types: list[str]) -> str:
    parts = list(dict.fromkeys(part for each in types for part in each.split(" | ")))
    return " | ".join([part for part in parts if part != "None"] + [part for part in parts if part == "None"])


# The modules


def modules(document: Schema) -> dict[Path, str]:
    """Text of each module by its path."""
    types = Types(document)
    home: dict[str, str] = {}
    written = {}
    for module, (title, roots) in FILES.items():
        for root in roots:
            types.of(document["$defs"][root], root)
        own = [each for name, each in types.found.items() if name not in home]
        home |= dict.fromkeys((each.name for each in own), module)
        written[Path(f"plugins/module_utils/{module}.py")] = _module(module, title, own, home)
    return written


def _module(module: str, title: str, own: list[Type], home: dict[str, str]) -> str:
    enumerations_first = sorted(own, key=lambda each: not each.values)
    body = [line for each in enumerations_first for line in _definition(each)]
    named = set(re.findall(r"\w+", " ".join(key.type for each in own for key in each.keys)))
    used = {name: place for name, place in home.items() if place != module and name in named}
    imports = [
        line
        for place in sorted(set(used.values()))
        for line in _import(place, sorted(name for name in used if used[name] == place))
    ]
    typing = ["Any"] * ("Any" in named)
    typing += ["Literal"] * any(each.values for each in own) + ["TypedDict"]
    head = [
        "# Copyright: gpuwright contributors",
        "# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)",
        f'"""{title}',
        "",
        f"Written by tools/build_types.py from {SOURCE.as_posix()}: edit that, then `make rules`.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        f"from typing import {', '.join(typing)}",
        "",
        *imports,
    ]
    return "\n".join(head).rstrip() + "\n\n" + "\n".join(body) + "\n"


def _import(place: str, names: list[str]) -> list[str]:
    line = f"from {UTILITIES}.{place} import {', '.join(names)}"
    return (
        [line]
        if len(line) <= _WIDTH
        else [f"from {UTILITIES}.{place} import (", *(f"    {name}," for name in names), ")"]
    )


def _definition(each: Type) -> list[str]:
    """The lines of a type; two empty ones before that of an object."""
    if each.values:
        line = f"{each.name} = Literal[{', '.join(json.dumps(value) for value in each.values)}]"
        return (
            [line]
            if len(line) <= _WIDTH
            else [f"{each.name} = Literal[", *(f'    "{value}",' for value in each.values), "]"]
        )
    required, rest = [key for key in each.keys if key.required], [key for key in each.keys if not key.required]
    lines: list[str] = []
    base = "TypedDict"
    # Such a type is no class for pylint.
    aside = "" if _plain(required) else "  # pylint: disable=inherit-non-class"
    if required and (rest or not _plain(required)):
        base = f"_{each.name}" if rest else each.name
        lines += _class(
            base, "TypedDict", _doc(each, "keys that are always there" if rest else ""), required, total=True
        )
        if not rest:
            return lines
    return lines + _class(each.name, base, _doc(each), rest or required, total=not rest, aside=aside)


def _doc(each: Type, more: str = "") -> str:
    text = each.description.rstrip(".") or each.name
    return f"{text}{': ' + more if more else ''}."


def _plain(keys: list[Key]) -> bool:
    return all(key.name.isidentifier() and not keyword.iskeyword(key.name) for key in keys)


def _class(name: str, base: str, doc: str, keys: list[Key], *, total: bool, aside: str = "") -> list[str]:
    if not _plain(keys):
        rows = [
            line for key in keys for line in (f"        # {key.description}", f'        "{key.name}": "{key.type}",')
        ]
        return ["", "", f"{name} = TypedDict(", f'    "{name}",', "    {", *rows, "    },", ")", f'"""{doc}"""']
    bases = base if total else f"{base}, total=False"
    rows = [line for key in keys for line in (f"    {key.name}: {key.type}", f'    """{key.description}"""')]
    return ["", "", f"class {name}({bases}):{aside}", f'    """{doc}"""', "", *rows]


# The page


def page(document: Schema) -> str:
    """docs/facts.md."""
    types = Types(document)
    types.of(document["$defs"]["facts"], "facts")
    facts = types.found["Facts"]
    sections = {key.name: _names(key.type, types) for key in facts.keys}
    lines = [
        "# Facts",
        "",
        "What `node_facts` answers of a machine, section by section. Generated from `plugins/plugin_utils/gate/answers.json`: edit that,",
        "then `make rules`. `null` is what could not be seen; `unknown` has the reason. A key in *italics* may be absent.",
        "",
        *_table(facts, types, links=sections),
    ]
    told = {"Facts"}
    for section, names in sections.items():
        for name in names:
            if name not in told:
                lines += [
                    "",
                    f"## {section}" if name == names[0] else f"### {name}",
                    "",
                    *_table(types.found[name], types, links={}),
                ]
                told.add(name)
    return "\n".join(lines) + "\n"


def _names(text: str, types: Types) -> list[str]:
    """Names of the objects that an annotation reaches, itself first."""
    found: list[str] = []
    waiting = [text]
    while waiting:
        for name in re.findall(r"\w+", waiting.pop(0)):
            made = types.found.get(name)
            if made and made.keys and name not in found:
                found.append(name)
                waiting += [key.type for key in made.keys]
    return found


def _table(made: Type, types: Types, links: dict[str, list[str]]) -> list[str]:
    rows = ["| Key | Type | Meaning |", "|---|---|---|"]
    for key in made.keys:
        name = f"`{key.name}`" if key.required else f"*`{key.name}`*"
        name = f"[{name}](#{key.name})" if links.get(key.name) else name
        rows.append(f"| {name} | {_told(key.type, types)} | {key.description} |")
    return rows


def _told(text: str, types: Types) -> str:
    """An annotation for people: enumerations with their values, without Python's words."""
    names = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null", "Any": "any"}

    def word(found: re.Match[str]) -> str:
        name = found.group()
        values = types.found[name].values if name in types.found else []
        return " · ".join(f"`{value}`" for value in values) or names.get(name, name)

    plain = re.sub(r"dict\[str, (.*)\]", r"map of \1", text)
    plain = re.sub(r"list\[(.*)\]", r"list of \1", plain)
    return re.sub(
        r"\b(?:map of|list of)\b|\w+", lambda found: found.group() if " of" in found.group() else word(found), plain
    ).replace(" | ", " · ")


# The module's documentation


def returned(document: Schema) -> str:
    """The block RETURN of the module node_facts: the sections, and the keys of each."""
    types = Types(document)
    facts = document["$defs"]["facts"]
    lines = [
        "facts:",
        "  description: The observation. The collection's docs/facts.md has all keys.",
        "  returned: always",
        "  type: dict",
    ]
    return "\n".join([*lines, "  contains:", *_contained(facts, types, "facts", depth=2)]) + "\n"


def _contained(schema: Schema, types: Types, place: str, depth: int) -> Iterator[str]:
    pad = "    " * (3 - depth)
    for key, each in schema["properties"].items():
        inner = types.definitions[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        yield f"{pad}{key}:"
        yield f"{pad}  description: {json.dumps(types.meaning(each, f'{place}.{key}') + '.', ensure_ascii=False)}"
        yield f"{pad}  returned: {'always' if key in schema.get('required', ()) else 'where it applies'}"
        yield f"{pad}  type: {_ansible_type(inner)}"
        if _ansible_type(inner) == "list":
            items = inner["items"]
            yield f"{pad}  elements: {_ansible_type(types.definitions[items['$ref'].rpartition('/')[2]] if '$ref' in items else items)}"
        if depth > 1 and "properties" in inner and inner["additionalProperties"] is False:
            yield f"{pad}  contains:"
            yield from _contained(inner, types, f"{place}.{key}", depth - 1)


def _ansible_type(schema: Schema) -> str:
    if "enum" in schema or "type" not in schema:
        return "str" if "enum" in schema else "dict"
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return _ANSIBLE[next(each for each in types if each != "null")]


def documented(module: str, document: Schema) -> str:
    """The source of the module with its block RETURN."""
    block = f'RETURN = r"""\n{returned(document)}"""\n'
    return re.sub(r'^RETURN = r"""\n.*?^"""\n', lambda _found: block, module, flags=re.MULTILINE | re.DOTALL)


def build(root: Path) -> dict[Path, str]:
    """Text by path of all that is written."""
    document = json.loads((root / SOURCE).read_text(encoding="utf-8"))
    module = (root / MODULE).read_text(encoding="utf-8")
    return {**modules(document), PAGE: page(document), MODULE: documented(module, document)}


def main(argv: list[str] | None = None) -> int:
    """0, or 1 with --check when a file is not what it should be."""
    parser = argparse.ArgumentParser(
        description="Write the types of facts, checks, seals and the package index from answers.json."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say which files are not up to date")
    arguments = parser.parse_args(argv)
    made = build(ROOT)
    old = [
        path
        for path, text in made.items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text(encoding="utf-8") != text
    ]
    if arguments.check:
        for path in old:
            print(f"{path} is not up to date: run `make rules`", file=sys.stderr)
        return 1 if old else 0
    for path in old:
        (ROOT / path).write_text(made[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the schemas of documents that other programs read, from their definitions in plugins/plugin_utils/model.

    python tools/build_schemas.py [--check]

A TypedDict is an object with its keys and no others; its docstring and those below its keys are the descriptions. What it takes from
another document, under TYPE_CHECKING, is a part that the schema does not look into.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, is_typeddict

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "collections")]

from ansible_collections.gpuwright.node.plugins.plugin_utils.model import definition, lock, report  # noqa: E402 - found by the line above

#: By name: the definition, and what its file is called.
DOCUMENTS: dict[str, type] = {"report": report.Report, "lock": lock.Lock}
_WIDTH = 130
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


@dataclass
class Schema:
    """The schema of one document, with the definitions that it needs."""

    definitions: dict[str, Any] = field(default_factory=dict)

    def of(self, annotation: object) -> dict[str, Any]:
        """What a value of a type is."""
        said = definition.kind(annotation)
        kinds = [self._of(each, said.rule) for each in said.types]
        if said.nullable:
            kinds = [_or_null(kinds[0])] if len(kinds) == 1 else [*kinds, {"type": "null"}]
        if len(kinds) == 1:
            return kinds[0]
        plain = all(each.keys() == {"type"} for each in kinds)
        return {"type": [each["type"] for each in kinds]} if plain else {"oneOf": kinds}

    def _of(self, kind: Any, rule: definition.Rule | None) -> dict[str, Any]:
        origin, inner = get_origin(kind) or kind, get_args(kind)
        if origin is Literal:
            return {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
        if origin is list:
            # Of a part of another document its text may stand for it.
            items = {"type": ["object", "string"]} if inner[0] is dict else self.of(inner[0])
            least = {"minItems": rule.number} if isinstance(rule, definition.Least) else {}
            return {"type": "array", **least, "items": items}
        if origin is dict:
            return {
                "type": "object",
                **({"additionalProperties": below} if (below := self.of((*inner, object, object)[1])) else {}),
            }
        if is_typeddict(kind):
            if kind.__name__ not in self.definitions:
                self.definitions[kind.__name__] = {}
                self.definitions[kind.__name__] = self.object(kind)
            return {"$ref": f"#/$defs/{kind.__name__}"}
        if isinstance(rule, definition.OneOf):
            return {"enum": list(rule.values)}
        return {} if origin in (object, Any) else {"type": _NAMES[kind], **_limits(rule)}

    def object(self, document: type) -> dict[str, Any]:
        """An object with the keys of a definition."""
        own = {key: said for key, said in definition.keys(document).items() if not _is_unwritten(said)}
        told = meanings(document)
        return {
            **_described(told.get("")),
            "type": "object",
            "additionalProperties": False,
            "required": [key for key, said in own.items() if said.required],
            "properties": {key: {**self.of(said.annotation), **_described(told.get(key))} for key, said in own.items()},
        }


def _is_unwritten(said: definition.Key) -> bool:
    return isinstance(definition.kind(said.annotation).rule, definition.Unwritten)


def _limits(rule: definition.Rule | None) -> dict[str, Any]:
    if isinstance(rule, definition.Matches):
        return {"pattern": rule.pattern}
    return {"minimum": rule.number} if isinstance(rule, definition.Least) else {}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return {"oneOf": [{"type": "null"}, schema]}


def _described(text: str | None) -> dict[str, str]:
    return {"description": f"{text.rstrip('.')}."} if text else {}


def meanings(document: type) -> Mapping[str, str]:
    """What the docstrings say of a definition ("") and of its keys, those that it has of others too."""
    return _meanings(document.__module__).get(document.__name__, {})


@cache
def _meanings(module: str) -> Mapping[str, Mapping[str, str]]:
    path = importlib.import_module(module).__file__
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(path or "").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            above = [found[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in found]
            found[node.name] = {key: text for each in [*above, dict(_told(node))] for key, text in each.items()}
    return found


def _told(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    yield "", " ".join((ast.get_docstring(node) or "").split())
    for key, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name) and isinstance(text, ast.Expr):
            yield key.target.id, str(ast.literal_eval(text.value))


def _laid_out(value: Any, indent: str = "") -> str:
    """JSON in which what fits into a line is one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) <= _WIDTH or not isinstance(value, (dict, list)):
        return line
    below = f"{indent}  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(below + _laid_out(each, below) for each in value) + f"\n{indent}]"
    rows = (f"{below}{json.dumps(key)}: {_laid_out(each, below)}" for key, each in value.items())
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def build() -> dict[Path, str]:
    """Text by path of all that is written."""
    made = {}
    for name, document in DOCUMENTS.items():
        schema = Schema()
        whole = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:gpuwright:{name}:1",
            "title": f"gpuwright {name}",
            **schema.object(document),
            "$defs": schema.definitions,
        }
        made[Path(f"docs/{name}.schema.json")] = _laid_out(whole) + "\n"
    return made


def main(argv: list[str] | None = None) -> int:
    """0, or 1 with --check when a file is not what it should be."""
    parser = argparse.ArgumentParser(description="Write the schemas of documents from their definitions.")
    parser.add_argument("--check", action="store_true", help="write nothing; say which files are not up to date")
    arguments = parser.parse_args(argv)
    old = {path: text for path, text in build().items() if (ROOT / path).read_text(encoding="utf-8") != text}
    for path, text in old.items():
        if arguments.check:
            print(f"{path} is not up to date: run `make rules`", file=sys.stderr)
        else:
            (ROOT / path).write_text(text, encoding="utf-8")
    return 1 if old and arguments.check else 0


if __name__ == "__main__":
    raise SystemExit(main())

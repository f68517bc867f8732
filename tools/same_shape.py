# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fill what a test made up of an answer of a node to its whole shape, for the questions of tools/same_answers.py.

A node answers with every key that the schema of answers requires, and the code may rely on it. A test writes down what it is about, often
less. What lacks comes from a model of the same answer where that has it, and else from the schema: null where that is allowed, then
nothing, zero or false. What is there is never changed, however wrong it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Where the schema of answers is in a tree; of several places the first that is there.
SCHEMAS = ("plugins/plugin_utils/gate/answers.json",)
#: What stands for text that is needed, by its definition: "" would be no time and no path.
SAMPLES = {
    "bus_id": "00000000:18:00.0",
    "driver_version": "580.178.04",
    "path": "/",
    "time": "2026-11-20T12:00:00Z",
    "version": "1",
}
_EMPTY: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": []}

Schema = Mapping[str, Any]


class Shape:
    """The definitions of a schema of answers."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self.definitions = definitions

    @classmethod
    def of_tree(cls, tree: Path) -> Shape:
        """The shape that the answers have in a tree."""
        path = next((tree / place for place in SCHEMAS if (tree / place).exists()), None)
        if path is None:
            raise LookupError(
                f"{tree} has none of {', '.join(SCHEMAS)}: add the place to SCHEMAS of {Path(__file__).name}"
            )
        return cls(json.loads(path.read_text(encoding="utf-8"))["$defs"])

    def filled(self, name: str, value: Any, model: Any = None) -> Any:
        """A copy of the value with every key that the definition of this name requires."""
        return self._filled({"$ref": name}, value, model)

    def _filled(self, schema: Schema, value: Any, model: Any) -> Any:
        schema = self._meant(schema, value)
        if isinstance(value, list) and "items" in schema:
            return [self._filled(schema["items"], each, None) for each in value]
        if not isinstance(value, dict) or "object" not in _types(schema):
            return value
        known, others = schema.get("properties") or {}, schema.get("additionalProperties")
        models = model if isinstance(model, dict) else {}
        there = {
            key: self._filled(known.get(key) or others or {}, inner, models.get(key)) for key, inner in value.items()
        }
        lacking = [key for key in schema.get("required", ()) if key not in there]
        return there | {key: self._made(known[key], models.get(key, _NOTHING)) for key in lacking}

    def _meant(self, schema: Schema, value: Any) -> Schema:
        """The schema without references; of several the one with the most of the value's keys and the fewest others."""
        schema = self._direct(schema)
        if "anyOf" not in schema:
            return schema
        keys = set(value) if isinstance(value, dict) else set()

        def fits(branch: Schema) -> tuple[int, int]:
            known = set(branch.get("properties") or ())
            return len(keys & known), -len(known - keys)

        return max((self._meant(each, value) for each in schema["anyOf"]), key=fits)

    def _direct(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            schema = self.definitions[schema["$ref"].rpartition("/")[2]]
        return schema

    def _made(self, schema: Schema, model: Any) -> Any:
        """A value where none was given: as the model has it, or the least that is allowed."""
        if model is not _NOTHING:
            return self._filled(schema, model, None)
        sample = SAMPLES.get(schema.get("$ref", "").rpartition("/")[2])
        direct = self._direct(schema)
        if sample is not None:
            return sample
        if "anyOf" in direct:
            return min(
                (self._made(each, _NOTHING) for each in direct["anyOf"]),
                key=lambda each: (each is not None, bool(each)),
            )
        if "enum" in direct:
            return None if None in direct["enum"] else direct["enum"][0]
        types = _types(direct)
        if "null" in types:
            return None
        return self._filled(direct, {}, None) if types[0] == "object" else _EMPTY[types[0]]


_NOTHING: Any = object()


def _types(schema: Schema) -> list[str]:
    """The types that a schema allows."""
    told = schema.get("type", [])
    return [told] if isinstance(told, str) else list(told)

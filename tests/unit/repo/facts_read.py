"""Every fact that a node tells, with who reads it: `python -m tests.unit.repo.facts_read` prints them.

By the words of the code: who reads a fact names its key, and beside it one of the keys above it or the type of what holds it. So a fact
that somebody reads is never taken for unread, and of keys that many things have (name, version) nothing is proven.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
_SCHEMA = ROOT / "plugins" / "plugin_utils" / "gate" / "answers.json"
_PLACES = (
    "plugins/plugin_utils",
    "plugins/action",
    "plugins/filter",
    "plugins/modules",
    "plugins/module_utils",
    "src/gpuwright",
)
#: What makes facts, says what they are, or takes them in reads none.
_NO_READERS = ("gate",)
_NO_READER = ("facts.py", "node_facts.py", "smi.py")
#: Who observes reads what nvidia-smi says, and makes all else.
_OBSERVERS = "plugins/module_utils/observe/"
_OF_SMI = "smi"
#: The types by which a module has all facts; one that no section holds has no other word beside it.
_WHOLE = {"Facts", "View", "Context"}
#: Longer texts are sentences.
_LONGEST = 80

Path_ = tuple[str, ...]


@cache
def _definitions() -> Any:
    return json.loads(_SCHEMA.read_text(encoding="utf-8"))["$defs"]


def _resolved(node: Any) -> Any:
    while "$ref" in node:
        node = {
            **_definitions()[node["$ref"].rpartition("/")[2]],
            **{key: each for key, each in node.items() if key != "$ref"},
        }
    return node


def _below(node: Any, path: Path_) -> Iterator[tuple[Path_, str | None]]:
    node = _resolved(node)
    if "$comment" in node:  # what a file of the host's holds: shown, and not read
        return
    for key, each in node.get("properties", {}).items():
        yield (*path, key), node.get("title")
        yield from _below(each, (*path, key))
    inside = {"*": node.get("additionalProperties"), "[]": node.get("items")}
    for name, each in inside.items():
        if isinstance(each, dict):
            yield from _below(each, (*path, name))


def facts() -> dict[str, tuple[Path_, str | None]]:
    """Each fact by its dotted path, with its keys and the type of what holds it."""
    return {".".join(path): (path, title) for path, title in _below(_definitions()["facts"], ())}


def _words(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < _LONGEST:
            found |= {node.value, *node.value.split(".")} if " " not in node.value else set()
        elif isinstance(node, ast.Name | ast.Attribute):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.ImportFrom):
            found |= {each.name for each in node.names}
    return found


@cache
def _readers() -> dict[str, set[str]]:
    files = (path for place in _PLACES for path in sorted((ROOT / place).rglob("*.py")))
    return {
        str(path.relative_to(ROOT)): _words(path)
        for path in files
        if path.name not in _NO_READER and not set(path.parts) & set(_NO_READERS)
    }


def readers(path: Path_, title: str | None) -> list[str]:
    """The modules that read a fact."""
    above = {key for key in path[:-1] if key not in ("*", "[]")} | ({title} if title else set())
    return [
        name
        for name, words in _readers().items()
        if path[-1] in words
        and words & (_WHOLE if len(path) == 1 else above)
        and (path[0] == _OF_SMI or not name.startswith(_OBSERVERS))
    ]


def unread() -> list[str]:
    """The facts that nobody reads."""
    return sorted(name for name, fact in facts().items() if not readers(*fact))


if __name__ == "__main__":
    for name, fact in facts().items():
        print(f"{name}: {', '.join(readers(*fact)) or 'nobody'}")

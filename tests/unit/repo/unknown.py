"""Where an answer of a node that did not come is taken for an empty collection: by the name of the answer, how often."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.unit.repo import floors

#: What plans, judges and records decide by; what only shows or reports leads to no change.
DECIDES = (
    "plugin_utils.actions",
    "plugin_utils.components",
    "plugin_utils.model",
    "plugin_utils.plan",
    "plugin_utils.resolver",
    "plugin_utils.rules",
    "module_utils.base",
    "module_utils.observe",
    "module_utils.packages",
    "module_utils.programs",
    "module_utils.records",
    "module_utils.smi",
)
#: The names under which an answer is handed around. The sections of the facts have their own (``facts``).
_ANSWERS = frozenset(("answers", "history", "host", "index", "machine", "record", "result", "said", "seal", "there"))
_MAKERS = frozenset(("dict", "list", "set", "frozenset", "tuple"))


def taken() -> Counter[str]:
    """How often each answer is taken for empty, by its name; of a program that failed by the module."""
    modules = {name: path for name, path in floors.modules().items() if name.startswith(DECIDES)}
    return Counter(
        name for module, path in modules.items() for name in of_source(path.read_text(encoding="utf-8"), module)
    )


def of_source(source: str, module: str) -> Iterator[str]:
    """The names of what one module takes for empty."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and _empty(node.values[-1]):
            yield from _told(node.values[0])
        elif isinstance(node, ast.Call) and _is_get(node) and len(node.args) == 2 and _empty(node.args[1]):
            yield from _told(ast.Call(node.func, node.args[:1], []))
        elif isinstance(node, ast.ExceptHandler):
            returns = (inner for inner in ast.walk(node) if isinstance(inner, ast.Return) and _empty(inner.value))
            yield from (f"failed: {module}" for _each in returns)


def _told(node: ast.expr) -> Iterator[str]:
    """The name of an answer: its place in the facts, or below the name it is handed around by."""
    path = _path(node)
    if "facts" in path:
        path = path[path.index("facts") + 1 :]
        yield ".".join(path) or "facts"
    elif path and path[0] in _ANSWERS:
        yield ".".join(path)


def _path(node: ast.expr) -> list[str]:
    """The steps that lead to a value: names, attributes, keys. A function of the facts is a step of its own name."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    if isinstance(node, ast.Subscript):
        return [*_path(node.value), *_key(node.slice)]
    if isinstance(node, ast.IfExp):
        return _path(node.body)
    if not isinstance(node, ast.Call):
        return []
    if _is_get(node):
        assert isinstance(node.func, ast.Attribute)
        return [*_path(node.func.value), *_key(node.args[0])]
    of_facts = any("facts" in _path(each) for each in node.args)
    return ["facts", *_path(node.func)[-1:]] if of_facts else _path(node.func)[:-1]


def _key(node: ast.expr) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _is_get(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "get"


def _empty(node: ast.AST | None) -> bool:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return not node.elts
    if isinstance(node, ast.Dict):
        return not node.keys
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MAKERS and not node.args

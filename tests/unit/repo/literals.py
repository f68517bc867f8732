"""Where the code decides by the literal id of a component or a framework."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from tests.unit.repo import floors

#: Held equal to COMPONENTS and FRAMEWORKS by a test: this file shall not import what it looks at.
COMPONENTS = tuple(
    sorted(
        path.stem
        for path in (floors.ROOT / "plugins/plugin_utils/components").iterdir()
        if (floors.ROOT / "roles" / path.stem / "tasks/work.yml").is_file()
    )
)
FRAMEWORKS = tuple(
    sorted(
        path.stem
        for path in (floors.ROOT / "plugins/module_utils/frameworks").glob("*.py")
        if path.stem not in ("__init__", "about")
    )
)
IDS = frozenset([*COMPONENTS, *FRAMEWORKS])
#: Ids that are no key of a stack or a plan besides: who looks one up asks for that component or framework.
TELLING = frozenset(["nvidia_driver", "nouveau_blacklist", *FRAMEWORKS])
_LOOKS_UP = ("get", "pop", "setdefault")


def rooms(name: str) -> tuple[str, ...]:
    """The modules that may decide by an id: its component, its framework."""
    return (
        f"plugin_utils.components.{name}",
        f"plugin_utils.components.frameworks.resolve.{name}",
        f"module_utils.frameworks.{name}",
        "plugin_utils.model",
    )


def _literals(nodes: Iterable[ast.AST | None]) -> Iterator[str]:
    """The ids among constants, and among those of tuples, lists and sets of them."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in IDS:
            yield node.value
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            yield from _literals(node.elts)


def _is_all_strings(node: ast.Tuple | ast.List | ast.Set) -> bool:
    return bool(node.elts) and all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in node.elts)


def deciding(source: str) -> Counter[str]:
    """How often each id decides: as a side of a comparison, a key of a dictionary, a member of a list of strings, a case of a match, and
    where it is looked up.
    """
    tree = ast.parse(source)
    found: Counter[str] = Counter()
    counted: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            counted |= set(map(id, sides))
            found.update(_literals(sides))
        elif isinstance(node, ast.Dict):
            found.update(_literals(node.keys))
        elif isinstance(node, ast.MatchValue):
            found.update(_literals([node.value]))
        elif isinstance(node, ast.Subscript):
            found.update(name for name in _literals([node.slice]) if name in TELLING)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKS_UP:
            found.update(name for name in _literals(node.args[:1]) if name in TELLING)
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)) and id(node) not in counted and _is_all_strings(node):
            found.update(_literals([node]))
    return found


#: The table of the components.
_TABLE = "plugin_utils.components"


@cache
def outside() -> dict[str, dict[str, int]]:
    """By module, what decides there that is not at home there."""
    result: dict[str, dict[str, int]] = {}
    for module, path in floors.modules().items():
        for name, count in sorted(deciding(path.read_text(encoding="utf-8")).items()):
            home = rooms(name)
            if module not in (*home, _TABLE) and not module.startswith(tuple(f"{room}." for room in home)):
                result.setdefault(module, {})[name] = count
    return result

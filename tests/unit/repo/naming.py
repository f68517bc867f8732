"""Which files of the house name a component outside its rooms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path

from tests.unit.repo import floors

_GENERATED = "\nWritten by tools/"
#: What Ansible reads of a module is its documentation.
_DOCUMENTATION = ("DOCUMENTATION", "EXAMPLES", "RETURN")
#: The parts of a role that do something.
_OF_ROLES = ("defaults", "vars", "tasks", "handlers")
_UNIT = re.compile(r"gpuwright-([a-z-]+)\.[a-z]+")
#: What a tool writes in a file that is written by hand besides.
_WRITTEN = re.compile(r"# Begin of what tools/.*?# End of what tools/", re.DOTALL)
_TASK = re.compile(r"^\s*- name: .*$|^\s*#.*$", re.MULTILINE)


def in_python(source: str) -> Iterator[str]:
    """What a module names: the modules that it imports, the fields of its classes and of wishes, each text, and a unit's component."""
    tree = ast.parse(source)
    told = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in _DOCUMENTATION)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            paths = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            yield from (part for path in paths for part in path.split("."))
        elif isinstance(node, ast.ClassDef):
            for field in node.body:
                yield from _begins(ast.unparse(field.target)) if isinstance(field, ast.AnnAssign) else ()
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("wish"):
            yield from _begins(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            unit = _UNIT.fullmatch(node.value)
            yield unit[1].replace("-", "_") if unit else node.value


def _begins(field: str) -> Iterator[str]:
    """A field may be one of several that a component has: watch, and watch_settings."""
    yield from accumulate(field.split("_"), "{}_{}".format)


def in_yaml(source: str) -> Iterator[str]:
    """The words of a file of tasks or variables, but for what only a person reads."""
    yield from re.findall(r"\w+", _TASK.sub("", _WRITTEN.sub("", source)))


def files() -> Iterator[Path]:
    """What is written by hand and makes the house: no tests, no documentation, no tools."""
    yield from (path for path in floors.modules().values() if _GENERATED not in path.read_text(encoding="utf-8")[:600])
    yield from (floors.ROOT / "playbooks").rglob("*.yml")
    yield from (path for part in _OF_ROLES for path in (floors.ROOT / "roles").glob(f"*/{part}/**/*.yml"))


@cache
def named() -> dict[str, frozenset[str]]:
    """By file, all that it names."""
    return {
        str(path.relative_to(floors.ROOT)): frozenset(
            (in_python if path.suffix == ".py" else in_yaml)(path.read_text(encoding="utf-8"))
        )
        for path in files()
    }


def is_room(path: str, component: str) -> bool:
    """Whether a file, or a directory that it is in, is called after the component."""
    return any(part == component or part.startswith(f"{component}_") for part in Path(path).with_suffix("").parts)


def outside(component: str) -> list[str]:
    """The files that name a component and are none of its rooms."""
    return sorted(path for path, names in named().items() if component in names and not is_room(path, component))

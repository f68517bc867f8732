# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which files of the tree reach which, by what they import, and which quote a text: what `tools.changed` asks."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Where Python of ours lies, and what a module there is called by.
_TREES = {
    "plugins": "ansible_collections.gpuwright.node.plugins.",
    "src/gpuwright": "gpuwright.",
    "tests": "tests.",
    "tools": "tools.",
}
_WORD = re.compile(r"[a-z0-9_]+")
Pair = tuple[str, str]


def python_files(root: Path = ROOT) -> dict[str, str]:
    """The path of each module of ours by its name."""
    found = {}
    for tree, begin in _TREES.items():
        for path in (root / tree).rglob("*.py"):
            inside = path.relative_to(root / tree).with_suffix("").parts
            name = begin + ".".join(inside[:-1] if inside[-1] == "__init__" else inside)
            found[name.rstrip(".")] = str(path.relative_to(root))
    return found


def imports(root: Path = ROOT) -> dict[str, set[str]]:
    """By the path of each module of ours the paths of those that it imports, late imports and what pytest imports for it too."""
    known = python_files(root)
    return {path: set(_imported(known, name, path, root)) for name, path in known.items()}


def _imported(known: Mapping[str, str], name: str, path: str, root: Path) -> Iterator[str]:
    package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
    source = (root / path).read_text(encoding="utf-8")
    # One of a package by a computed name may be each of them.
    for begin in re.findall(r'import_module\(f"([\w.]+\.)\{', source):
        yield from (target for module, target in known.items() if module.startswith(begin))
    # pytest hands a test what the conftest.py of its folder and of those above it have.
    if path.startswith("tests/"):
        yield from ({f"{folder}/conftest.py" for folder in Path(path).parents} & {*known.values()}) - {path}
    for node in _statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            named = [(alias.name, "") for alias in node.names]
        else:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            named = [(".".join([*above, *filter(None, [node.module])]), alias.name) for alias in node.names]
        for module, taken in named:
            target = known.get(f"{module}.{taken}") or known.get(module)
            if target and target != path:
                yield target


def _statements(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports, found by going through statements alone: expressions are nearly all of a tree."""
    waiting = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node
            elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                waiting.append(node)


def reaching(paths: Iterable[str], graph: Mapping[str, set[str]]) -> set[str]:
    """The paths themselves, and what imports one of them, over any number of modules."""
    importers: dict[str, set[str]] = {}
    for importer, imported in graph.items():
        for path in imported:
            importers.setdefault(path, set()).add(importer)
    found: set[str] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += importers.get(path, ())
    return found


def texts_that_changed(before: str, after: str) -> set[Pair] | None:
    """Where two states of a module differ in texts for people alone: the pairs of words that only the earlier one has.

    None where they differ in more. A text for people has a blank; what has none is a key or a name.
    """
    try:
        trees = ast.parse(before), ast.parse(after)
    except SyntaxError:
        return None
    skeletons, texts = zip(*(_without_texts(tree) for tree in trees), strict=True)
    if skeletons[0] != skeletons[1]:
        return None
    old, new = ({pair for text in found for pair in pairs(text)} for found in texts)
    return old - new


def _without_texts(tree: ast.AST) -> tuple[str, list[str]]:
    tree = copy.deepcopy(tree)
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            texts.append(node.value)
            node.value = ""
    return ast.dump(tree), texts


def pairs(text: str) -> Iterator[Pair]:
    """Each word with the one after it."""
    words = _WORD.findall(text.lower())
    yield from pairwise(words)

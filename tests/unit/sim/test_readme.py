"""What the README says of where packages surprise is held by tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "tests/sim/README.md").read_text()
(SECTION,) = re.findall(r"^## Where packages are not what one expects\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
ROWS = [line.strip("| ").split(" | ") for line in SECTION.strip().splitlines()[2:]]


def functions(path: Path) -> set[str]:
    """The tests of a file."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_surprise_is_there() -> None:
    assert len(ROWS) == 19


@pytest.mark.parametrize(("what", "tests"), ROWS)
def test_a_test_holds_it(what: str, tests: str) -> None:
    named = [name.strip("`").partition("::") for name in tests.split(", ")]
    assert named, what
    for path, _colons, name in named:
        assert name.startswith("test_")
        assert name in functions(ROOT / path), f"{path} has no {name}"

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.observe.trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "root"
    root.mkdir()
    return Tree(root)

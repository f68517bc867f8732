"""Another user, for tests that an ordinary user runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

MALLORY = 4711

Give = Callable[[Path], Path]


@pytest.fixture
def to_mallory(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Make a path look as if it belonged to somebody else: an ordinary user cannot give anything away."""
    taken: set[str] = set()
    real = os.lstat

    def lstat(path: str | Path) -> os.stat_result:
        found = real(path)
        return os.stat_result((*found[:4], MALLORY, *found[5:])) if str(path) in taken else found

    monkeypatch.setattr(os, "lstat", lstat)

    def give(path: Path) -> Path:
        taken.add(str(path))
        return path

    return give

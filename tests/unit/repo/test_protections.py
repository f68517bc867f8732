"""The protections that `make unprotected` takes away are there, each in one place, and so are the tests that have to notice."""

from __future__ import annotations

import pytest

from tools import unprotected


@pytest.mark.parametrize("protection", unprotected.load(), ids=lambda row: row["what"])
def test_a_protection_stands_in_one_place(protection: unprotected.Protection) -> None:
    source = (unprotected.ROOT / protection["file"]).read_text(encoding="utf-8")
    assert unprotected.without(protection, source) != source
    assert all((unprotected.ROOT / test).exists() for test in protection["tests"])

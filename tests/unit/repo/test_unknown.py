"""An answer that did not come is never taken for "none": each place that makes it an empty collection has its reason, and none is added."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.repo import unknown

ALLOWED: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("unknown.yaml").read_text(encoding="utf-8"))
CEILINGS: Counter[str] = Counter()
for row in ALLOWED:
    CEILINGS.update(row["taken"])


def test_no_more_answers_are_taken_for_empty() -> None:
    """Ask `facts["unknown"]` first, and refuse with its reason; where nothing follows from it, say so in unknown.yaml."""
    grown = {name: count for name, count in unknown.taken().items() if count > CEILINGS[name]}
    assert grown == {}


def test_a_row_that_nothing_needs_any_more_goes() -> None:
    assert set(CEILINGS) - set(unknown.taken()) == set()


def test_each_has_one_reason() -> None:
    assert all(row["reason"] for row in ALLOWED)
    names = [name for row in ALLOWED for name in row["taken"]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('facts["packages"]["installed"] or {}', ["packages.installed"]),
        ('context.facts["packages"].get("streams") or {}', ["packages.streams"]),
        ('sections.history(facts).get("brought", ())', ["history.brought"]),
        ('(facts["smi"].get("mig_devices") if facts["smi"] else None) or {}', ["smi.mig_devices"]),
        ("said.get(tuple(question)) or ()", ["said"]),
        ("machine.installed or set()", ["machine.installed"]),
        ("try:\n    x()\nexcept OSError:\n    y = 1\n", []),
        ("def x():\n    try:\n        return y()\n    except OSError:\n        return []\n", ["failed: m"]),
        ('facts["packages"]["installed"] or None', []),
        ("wish.cuda or ()", []),
    ],
)
def test_what_is_found(source: str, names: list[str]) -> None:
    assert list(unknown.of_source(source, "m")) == names

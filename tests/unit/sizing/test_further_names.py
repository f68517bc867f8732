"""A hundred popular names of the hub that nobody had tried before: most are known, and none as another model.

At the first try, on 1 December 2026 in commit c90cc681, 41 were known, one of them as another model (Wan2.2-Animate). What was missing came
then: 99.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, models
from tests import tables

ROWS: list[dict[str, Any]] = tables.read(Path(__file__).with_name("further_names.yaml"))["rows"]
#: Of a hundred.
AT_LEAST = 99


def counted(name: str) -> float | None:
    """Parameters in billions; None where no model is called so."""
    try:
        return architecture.parameters(models.named(name).shape) / 1e9
    except BadInput:
        return None


def test_names_that_nobody_tried_before_are_known() -> None:
    found = {row["name"]: counted(row["name"]) for row in ROWS}
    missing = [name for name, number in found.items() if number is None]
    assert len(ROWS) - len(missing) >= AT_LEAST, missing


def test_no_name_is_known_as_another_model() -> None:
    told = [(row, counted(row["name"])) for row in ROWS if row["parameters"]]
    wrong = {
        row["name"]: number for row, number in told if number and number != pytest.approx(row["parameters"], rel=0.03)
    }
    assert wrong == {}

"""Forty names of models as people typed them in public threads: most are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, formats, models
from tests import tables

_FILE = tables.read(Path(__file__).with_name("typed_names.yaml"))
#: Of forty; at the first run, on 30 November 2026 in commit 72380f41, twelve were right; with the families and models that came then, 35.
AT_LEAST = 38
ROWS: list[dict[str, Any]] = _FILE["rows"]


def wrong(row: dict[str, Any]) -> str:
    """What is wrong in the answer to a name; empty where it is right."""
    try:
        found = models.named(row["name"])
    except BadInput as error:
        return str(error)
    counted = architecture.parameters(found.shape) / 1e9
    if counted != pytest.approx(row["parameters"], rel=0.01):
        return f"{counted:.2f} billion parameters"
    return "" if found.weights == row["weights"] else f"weights in {found.weights or 'no format'}"


def test_names_as_people_type_them_are_right() -> None:
    faults = {row["name"]: fault for row in ROWS if (fault := wrong(row))}
    assert len(ROWS) - len(faults) >= AT_LEAST, faults


def test_every_name_has_its_thread_and_a_format_that_is_known() -> None:
    for row in ROWS:
        assert row["source"].startswith("github ")
        assert not row["weights"] or row["weights"] in formats.FORMATS

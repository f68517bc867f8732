"""What people asked of Python libraries for NVIDIA cards, and what a right answer of `gpuwright resolve` has.

A question is one row of asked.yaml: where it is public, what is right by that source, the words of the command, files that they name, and
what the answer has, as tests/unit/reports/ says it (first, remedy, also, not, exit). The 41 first rows were written before any was asked;
six of them were answered right then. Three asked for what had changed since, or for a system that is not served, and were put right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import tables
from tests.unit.reports import answers
from tests.unit.reports.test_reports import unmet

ASKED: list[dict[str, Any]] = tables.read(Path(__file__).with_name("asked.yaml"))


@pytest.mark.parametrize("asked", ASKED, ids=[row["id"] for row in ASKED])
def test_it_is_answered_right(asked: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answers.of_resolve(asked["resolve"], asked.get("files") or {}, tmp_path, capsys)
    lacking = list(unmet(answer, asked["expect"]))
    said = "\n".join(map(str, answer.said)) or "nothing"
    assert lacking == [], f"Right: {asked['answer']}\nSaid:\n{said}"

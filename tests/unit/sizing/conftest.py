"""What was published of real runs, to hold estimates against: compat/sizing/runs.yaml."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

RUNS = Path(__file__).resolve().parents[3] / "compat/sizing/runs.yaml"


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """The tables of what was published."""
    content: dict[str, Any] = yaml.load(RUNS.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return content

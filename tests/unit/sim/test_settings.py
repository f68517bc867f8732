"""What is cached for all clones."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.sim import settings


def test_what_nobody_needed_for_a_week_is_forgotten(tmp_path: Path) -> None:
    for name, days in {"young": 6, "old": 8}.items():
        (tmp_path / name).touch()
        then = time.time() - days * 86400
        os.utime(tmp_path / name, (then, then))
    assert settings.forgotten(tmp_path.iterdir()) == [tmp_path / "old"]
    settings.used(tmp_path / "old")
    assert settings.forgotten(tmp_path.iterdir()) == []

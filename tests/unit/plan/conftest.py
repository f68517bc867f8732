"""What holds in every test of the planner."""

from __future__ import annotations

import pytest

from tests.property import remedies


@pytest.fixture(autouse=True)
def _refusals_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wish that a refusal proposes is resolved as well, and fails the test where it is refused."""
    remedies.watch(monkeypatch)

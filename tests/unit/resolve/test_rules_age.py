"""How old the rules are, in every answer."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from .conftest import Resolve


def made(rules: dict[str, Any]) -> date:
    return date.fromisoformat(rules["generated"])


@pytest.mark.parametrize(("days", "warned"), [(0, False), (90, False), (91, True), (400, True)])
def test_rules_older_than_90_days_are_warned_of(
    days: int, warned: bool, rules: dict[str, Any], resolve: Resolve
) -> None:
    answer = resolve("RTX 4090", "ubuntu-24.04", today=made(rules) + timedelta(days=days))
    assert answer["rules"] == {"generated": rules["generated"], "age_days": days}
    warnings = {entry["rule"]: entry["text"] for entry in answer["warnings"]}
    assert ("rules.age" in warnings) is warned
    assert not warned or f"{days} days" in warnings["rules.age"]


def test_a_clock_before_the_rules_makes_them_new_not_negative(rules: dict[str, Any], resolve: Resolve) -> None:
    answer = resolve("RTX 4090", "ubuntu-24.04", today=made(rules) - timedelta(days=3))
    assert answer["rules"]["age_days"] == 0


def test_a_refusal_says_how_old_the_rules_are_too(rules: dict[str, Any], resolve: Resolve) -> None:
    answer = resolve("B200", "ubuntu-24.04", "driver=470", today=made(rules) + timedelta(days=5))
    assert not answer["ok"]
    assert answer["rules"] == {"generated": rules["generated"], "age_days": 5}

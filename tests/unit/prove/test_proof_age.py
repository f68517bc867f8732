"""How old a proof is, from the times that a node tells."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.proof import age


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ("2026-11-20T12:00:00Z", "2026-11-22T12:00:01Z", timedelta(days=2, seconds=1)),
        ("2026-11-20T12:00:00+02:00", "2026-11-20T12:00:00Z", timedelta(hours=2)),
        ("2026-11-20T12:00:00", "2026-11-20T12:00:00Z", timedelta(0)),
        ("2026-11-20T12:00:00Z", "2026-11-20", -timedelta(hours=12)),
    ],
)
def test_an_age_is_the_time_between_two_times_and_one_without_a_zone_is_utc(
    then: str, now: str, expected: timedelta
) -> None:
    assert age(then, now) == expected


@pytest.mark.parametrize(
    ("then", "now"),
    [("last Thursday", "2026-11-20T12:00:00Z"), ("2026-11-20T12:00:00Z", ""), ("None", "None")],
)
def test_the_age_is_not_known_where_a_time_cannot_be_read(then: str, now: str) -> None:
    assert age(then, now) is None

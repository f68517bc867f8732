"""What a failed run may say of a host: changed or not, and whether that was a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan


@pytest.mark.parametrize(
    ("component", "changed"), [("preflight", False), ("lock", False), ("nvidia_driver", True), (None, True)]
)
def test_only_what_failed_after_the_first_change_counts_as_changed(component: str | None, changed: bool) -> None:
    made = plan(nodes.bare())
    failure: Any = {"task": "a task", "message": "its message", "component": component}
    record = records.applied(made, "fail", [], failure, reboot=False)
    assert record["changed"] is changed
    assert record["changes"] == (made["changes"] if changed else [])
    assert record["failure"] == failure


def test_the_lock_of_another_run_is_a_failure_and_no_refusal() -> None:
    made = plan(nodes.bare())
    failure: Any = {"task": "a task", "message": "somebody is at work", "component": "lock"}
    assert records.applied(made, "fail", [], failure, reboot=False)["refusals"] == []
    refused = records.applied(made, "fail", [], failure | {"component": "preflight"}, reboot=False)
    assert [row["text"] for row in refused["refusals"]] == ["somebody is at work"]

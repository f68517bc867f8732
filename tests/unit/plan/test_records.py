"""What a failed run may say of a host: changed or not, and whether that was a refusal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.gpuwright.node.plugins.action import seal
from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
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


@pytest.mark.parametrize("failure", [None, {"task": "Load", "message": "no device", "component": "nvidia_driver"}])
def test_the_verb_rollback_says_to_what_it_led(failure: Any) -> None:
    made = plan(nodes.bare())
    assert records.returned(made, "pass", failure) is None, "nothing to go back to"
    said = failure and "Load: no device"
    restored: Any = made | {"restore": {"version": "575.57.08"}}
    assert records.returned(restored, "pass", failure) == {"version": "575.57.08", "failure": said, "verdict": "pass"}
    back = {**made["changes"][0], "component": "frameworks", "action": "return", "files": ["/opt/gpuwright/jax", "/x"]}
    of_both: Any = restored | {"changes": [*made["changes"], back]}
    found = records.returned(of_both, "fail", failure)
    assert found is not None
    assert (found["version"], found["environments"], found["verdict"]) == ("575.57.08", ["/opt/gpuwright/jax"], "fail")
    of_one: Any = made | {"changes": [back]}
    assert records.returned(of_one, "pass", None) == {
        "version": None,
        "failure": None,
        "verdict": "pass",
        "environments": ["/opt/gpuwright/jax"],
    }


def test_the_lock_of_another_run_is_a_failure_and_no_refusal() -> None:
    made = plan(nodes.bare())
    failure: Any = {"task": "a task", "message": "somebody is at work", "component": "lock"}
    assert records.applied(made, "fail", [], failure, reboot=False)["refusals"] == []
    refused = records.applied(made, "fail", [], failure | {"component": "preflight"}, reboot=False)
    assert [row["text"] for row in refused["refusals"]] == ["somebody is at work"]


class Look:
    """A look at a node whose run has a plan; ``kept``: what was written of the host."""

    def __init__(self, verb: str, made: Any) -> None:
        self.verb, self.made = verb, made
        self.kept: dict[str, Any] = {}

    def saved(self, kind: str) -> Any:
        return self.made | ({"restore": None} if kind == "sealed" else {})

    def save(self, kind: str, document: Any) -> None:
        self.kept[kind] = document

    def keep(self, _arguments: Any) -> None:
        """The node's records are not looked at here."""

    def facts(self) -> Any:
        return nodes.bare()


@pytest.mark.parametrize(
    ("verb", "arguments", "returned"),
    [
        ("up", {}, None),
        ("rollback", {}, {"version": "575.57.08", "failure": None, "verdict": "pass"}),
        (
            "rollback",
            {"failure": {"task": "Load", "message": "no device", "component": "nvidia_driver"}},
            {"version": "575.57.08", "failure": "Load: no device", "verdict": "fail"},
        ),
        ("rollback", {"failure": {"task": "Hold", "message": "at work", "component": "lock"}}, None),
        (
            "up",
            {
                "failure": {"task": "Load", "message": "no device", "component": "nvidia_driver"},
                "returned": {"version": "570.1", "failure": None},
            },
            {"version": "570.1", "failure": None, "verdict": "pass"},
        ),
    ],
)
def test_what_is_written_of_a_host_says_whether_it_was_rolled_back(
    monkeypatch: pytest.MonkeyPatch, verb: str, arguments: Any, returned: Any
) -> None:
    action = object.__new__(seal.ActionModule)
    action._task = SimpleNamespace(args={"checks": [checks.passed("smi.runs")], **arguments})
    monkeypatch.setattr(seal.ActionModule, "_seal_done", lambda *_: None)
    look = Look(verb, plan(nodes.bare()) | {"restore": {"version": "575.57.08"}})
    action._prove(cast("Any", look))
    assert look.kept["hosts"]["returned"] == returned

"""The component gpu_log: the wish, what is not as wished, what the role does, and what is told of it."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.gpu_log import apply as gpu_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan import removal
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.draft import Draft, make_draft
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.finish import finish
from ansible_collections.gpuwright.node.plugins.plugin_utils.plan.request import Request
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.plan import nodes
from tests.unit.plan.test_hosts import want, wsl
from tests.unit.plan.test_planner import plan

ON = {"active": "active", "enabled": "enabled"}
OFF = {"active": "inactive", "enabled": "not-found"}
RESTED = {"active": "inactive", "enabled": "static"}


def host(timer: Any = ON, service: Any = RESTED, **changes: Any) -> Any:
    return nodes.provisioned(services={gpu_log.TIMER: timer, gpu_log.SERVICE: service}, **changes)


def made(facts: Any, days: Any = 30) -> Any:
    wish = Wish.from_variables({"gpuwright_want": ["driver=580"], "gpu_log_days": days})
    request = Request(host="node", today=date(2026, 11, 20), only=("gpu_log",))
    draft = make_draft(facts, wish, load_rules(), request)
    assert isinstance(draft, Draft), draft
    return finish(draft, None)


def reasons(facts: Any) -> list[str]:
    return [change["reason"] for change in made(facts)["changes"] if change["component"] == "gpu_log"]


def check(facts: Any) -> Any:
    found = {each["id"]: each for each in judge.judge(facts, made(host())["stack"])}
    return found.get("gpu.log")


@pytest.mark.parametrize(
    ("wish", "days"),
    [
        ({"gpuwright_want": ["gpu-log"]}, "auto"),
        ({"gpuwright_want": ["gpu-log"], "gpu_log_days": 7}, 7),
        ({"gpuwright_want": ["gpu-log=7"]}, 7),
        ({"gpu_log_days": 14}, 14),
        ({"gpu_log_days": "14"}, 14),
        ({"gpu_log_days": ""}, None),
        ({"gpu_log_days": False}, None),
        ({}, None),
    ],
)
def test_how_long_the_log_is_kept_is_wished_by_name_or_by_variable(wish: Any, days: int | str | None) -> None:
    assert Wish.from_variables(wish).gpu_log == days


@pytest.mark.parametrize("days", ["0", "-3", "x", "3.5", "10000", ">=3"])
def test_a_number_of_days_that_is_none_is_refused_with_an_example(days: str) -> None:
    with pytest.raises(BadInput) as refused:
        Wish.from_wants([f"gpu-log{days}" if days.startswith(">") else f"gpu-log={days}"])
    assert "gpu-log=" in str(refused.value.suggestions)
    with pytest.raises(BadInput, match="gpu_log_days: expected a number of days"):
        Wish.from_variables({"gpu_log_days": days})


def test_who_wishes_the_log_alone_gets_nothing_else_but_the_driver_that_it_needs() -> None:
    assert not Wish.from_wants(["gpu-log"]).nothing_wished
    stack = made(host())["stack"]
    assert stack["gpu_log"] == {"days": 30}
    assert "cuda" not in stack


def test_a_timer_that_runs_has_nothing_to_say() -> None:
    assert reasons(host()) == []


@pytest.mark.parametrize(
    "timer", [OFF, {"active": "inactive", "enabled": "enabled"}, {"active": "active", "enabled": "disabled"}]
)
def test_a_timer_that_does_not_run_now_and_after_a_boot_is_named(timer: Any) -> None:
    assert reasons(host(timer)) == ["no timer fills the log of the cards"]


def test_the_units_are_files_of_the_plan_and_the_timer_is_begun() -> None:
    work = made(host(OFF), days=7)["work"]["gpu_log"]
    service, timer = work["files"]
    assert f"ExecStart=/usr/bin/python3 {gpu_log.PROGRAM} --days 7\n" in service["content"]
    assert "OnCalendar=minutely\n" in timer["content"]
    assert work["units"] == [{"name": gpu_log.TIMER, "enabled": True, "state": "started"}]


def test_in_an_image_no_timer_is_begun() -> None:
    planned = made(host(OFF))
    image = Context(facts=host(OFF), stack=planned["stack"], provision_only=True)
    assert gpu_log.begin(image, planned)["units"] == []
    assert gpu_log.findings(image) == []
    assert gpu_log.manages(image).services == []


def test_in_wsl_it_is_kept_where_systemd_runs_and_refused_where_it_does_not() -> None:
    asked = want("gpu-log")
    made = plan(wsl(), asked)
    assert made["work"]["gpu_log"]["units"] == [{"name": gpu_log.TIMER, "enabled": True, "state": "started"}]
    (refusal,) = plan(wsl(systemd=False), asked)["refusals"]
    assert (refusal["rule"], "gpu_log needs systemd" in refusal["text"]) == ("needs-systemd", True)


def test_the_doctor_tells_a_log_that_nobody_fills() -> None:
    assert check(host())["status"] == "pass"
    assert (check(host(OFF))["status"], check(host(OFF))["reason"]) == ("warn", f"{gpu_log.TIMER} does not run")
    failed = check(host(service={"active": "failed", "enabled": "static"}))
    assert (failed["status"], failed["reason"]) == ("warn", f"the last turn of {gpu_log.SERVICE} gave no sample")
    assert check(host(unknown={"services": "systemctl show failed"}))["status"] == "incomplete"
    assert "gpu.log" not in {each["id"] for each in judge.judge(host(), {})}


def test_remove_takes_the_timer_and_its_files_and_leaves_what_was_written() -> None:
    files = [*gpu_log.FILES]
    facts = host(history={"files": files, "services": [gpu_log.TIMER], "components": ["gpu_log"], "failed": []})
    assert removal.foreign(facts) == []
    work = removal.work(facts)
    assert (work["files"], work["services"]) == (files, [gpu_log.TIMER])

"""A sentence is told once: in a run, and a warning that did not change in the next runs no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwright import paths
from gpuwright.commands import runs
from tests.unit.cli.conftest import FakeAnsible, check, plan_record, result_record

OLD = {"rule": "a", "text": "branch 580 ends in 2028", "source": "s"}
NEW = {"rule": "b", "text": "fio is old", "source": "s"}


def test_warnings_that_did_not_change_are_counted_and_new_ones_are_told(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    ansible.plans = {"a": plan_record("a", warnings=[OLD])}
    assert gpuwright("plan").out.count(OLD["text"]) == 1
    ansible.plans = {"a": plan_record("a", warnings=[OLD, NEW])}
    again = gpuwright("plan").out
    assert OLD["text"] not in again
    assert "1 warning as in the last run (-v shows them)" in again
    assert NEW["text"] in again
    assert OLD["text"] in gpuwright("plan", "-v").out
    assert [row["text"] for row in gpuwright("plan", "--json").json["hosts"]["a"]["warnings"]] == [
        OLD["text"],
        NEW["text"],
    ]


def test_a_warning_that_was_gone_is_told_when_it_comes_back(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    for warnings, told in (([OLD], True), ([OLD], False), ([], False), ([OLD], True)):
        ansible.plans = {"a": plan_record("a", warnings=warnings)}
        assert (OLD["text"] in gpuwright("plan").out) is told


def test_what_the_plan_told_the_result_does_not_tell_again(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a", warnings=[OLD])}
    ansible.results = {"a": result_record("a", warnings=[OLD])}
    assert OLD["text"] in gpuwright("plan").out
    assert "1 warning as in the last run" in gpuwright("up", "--yes").out


def test_hosts_are_remembered_each_by_itself(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    ansible.plans = {"a": plan_record("a", warnings=[OLD])}
    gpuwright("plan", "-i", "a,")
    ansible.plans = {host: plan_record(host, warnings=[OLD]) for host in ("a", "b", "c")}
    said = gpuwright("plan", "-i", "a,b,c").out
    assert said.count(OLD["text"]) == 1
    assert "b, c (2 hosts)" in said


@pytest.mark.parametrize("content", ["{", "[]", '{"localhost": 5}', "\x00"])
def test_a_memory_that_is_broken_tells_everything(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, content: str
) -> None:
    ansible.plans = {"localhost": plan_record("localhost", warnings=[OLD])}
    gpuwright("plan")
    memory: Path = paths.state_home() / "gpuwright" / "warnings.json"
    assert list(json.loads(memory.read_text())) == ["localhost"]
    assert memory.stat().st_mode & 0o077 == 0
    memory.write_text(content)
    assert OLD["text"] in gpuwright("plan").out


def test_what_preflight_refused_is_told_once(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    text = "Expected 512 MiB free on /, found 3 MiB."
    refusal = {"rule": "preflight", "text": text, "source": "roles/preflight", "remedy": None}
    failure = {"task": "Refuse", "message": text, "component": "preflight"}
    ansible.results = {"a": result_record("a", verdict="fail", refusals=[refusal, refusal], failure=failure)}
    assert gpuwright("up", "--yes", "-i", "a,").out.count(text) == 1


def test_the_same_check_of_several_cards_is_one_row(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    reason = "the link is narrower than it can be"
    rows = [check("pcie.width", "warn", gpu=gpu, reason=reason, measured=4) for gpu in range(8)]
    rows.append(check("pcie.width", "warn", gpu=8, reason=reason, measured=1))
    ansible.results = {"a": result_record("a", checks=rows)}
    said = gpuwright("validate").out
    assert said.count(reason) == 2
    assert "pcie.width (GPU 0, 1, 2, 3, 4, 5, 6, 7)" in said
    assert "9 warn" in said


def test_why_a_reboot_is_needed_is_told_once(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    row = {"component": "reboot", "action": "configure", "reason": "reboot: nouveau holds the card"}
    ansible.plans = {"a": plan_record("a", changes=[row])}
    said = gpuwright("plan").out
    assert said.count("nouveau holds the card") == 1
    assert "a reboot is needed" in said


def test_a_change_of_version_is_in_the_summary_with_its_reason(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    reason = "the driver leaves branch 570 for 580: branch 580 is long-term"
    row = {"component": "nvidia_driver", "action": "install", "from": "570.1", "to": "580.2-1", "reason": reason}
    ansible.results = {host: result_record(host, changes=[row]) for host in ("a", "b")}
    said = gpuwright("up", "--yes", "-i", "a,b").out
    assert said.count(f"nvidia_driver: 570.1 -> 580.2-1: {reason}") == 1


def test_what_was_repaired_is_in_the_summary_with_its_reason(
    gpuwright: Callable[..., Any], ansible: FakeAnsible
) -> None:
    reason = "/opt/gpuwright/pytorch is damaged: torch is gone"
    row = {"component": "frameworks", "action": "repair", "from": "2.14.1", "to": "pytorch 2.14.1", "reason": reason}
    ansible.results = {"a": result_record("a", changes=[row])}
    said = gpuwright("up", "--yes", "-i", "a,").out
    assert said.count(f"frameworks: repaired: {reason}") == 1
    assert "->" not in said


def test_a_rollback_is_in_the_summary_and_in_the_json(gpuwright: Callable[..., Any], ansible: FakeAnsible) -> None:
    failure = {"task": "Load", "message": "no device", "component": "nvidia_driver"}
    returned = {"version": "575.57.08", "failure": None, "verdict": "pass"}
    ansible.results = {"a": result_record("a", verdict="fail", failure=failure, returned=returned)}
    assert "rolled back to driver 575.57.08: proven again" in gpuwright("up", "--yes", "-i", "a,").out
    assert json.loads(gpuwright("up", "--yes", "-i", "a,", "--json").out)["hosts"]["a"]["returned"] == returned


def test_the_list_of_hosts_of_a_run_names_a_rollback() -> None:
    failure = {"task": "Load", "message": "no device", "component": "nvidia_driver"}
    returned = {"version": "575.57.08", "failure": None, "verdict": "pass"}
    failed: Any = {"verdict": "fail", "failure": failure, "returned": returned, "checks": []}
    assert runs._reason(failed) == "no device; rolled back to driver 575.57.08: proven again"
    assert runs._reason(failed | {"failure": None}) == "rolled back to driver 575.57.08: proven again"
    assert runs._reason(failed | {"returned": None}) == "no device"

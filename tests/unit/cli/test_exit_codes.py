from __future__ import annotations

import pytest

from gpuwright import exits
from tests.unit.cli.conftest import check, plan_record, result_record

REFUSAL = [{"rule": "r", "text": "t", "source": "s", "remedy": "m"}]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0], 0),
        ([0, 4], 4),
        ([0, 4, 3], 3),
        ([4, 3, 1], 1),
        ([0, 4, 3, 1, 2], 2),
        ([], 2),
    ],
)
def test_several_hosts_give_the_first_of_2_1_3_4_0(codes: list[int], expected: int) -> None:
    assert exits.combine(codes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0),
        ({"changes": []}, 0),
        ({"ok": False, "error": "no such card"}, 2),
        ({"ok": False, "conflicts": REFUSAL}, 3),
        ({"ok": False, "refusals": REFUSAL}, 3),
        ({"ok": False, "skipped": "no NVIDIA GPU and none expected"}, 0),
        ({"ok": False}, 1),
    ],
)
def test_a_plan_has_its_exit_code(changes: dict[str, object], expected: int) -> None:
    assert exits.of_plan(plan_record("h", **changes)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0),
        ({"verdict": "skip"}, 0),
        ({"verdict": "fail"}, 1),
        ({"verdict": "incomplete"}, 1),
        ({"verdict": None}, 1),
        ({"verdict": "pass", "failure": {"task": "t", "message": "m", "component": None}}, 1),
        ({"verdict": "incomplete", "reboot": True}, 4),
        ({"verdict": "pass", "reboot": True}, 4),
        ({"verdict": "fail", "reboot": True}, 1),
        ({"verdict": "incomplete", "reboot": True, "failure": {"message": "m"}}, 1),
        ({"verdict": "fail", "refusals": REFUSAL}, 3),
        ({"verdict": "fail", "refusals": REFUSAL, "failure": {"message": "m"}}, 3),
        ({"verdict": "fail", "conflicts": REFUSAL}, 3),
        ({"verdict": "fail", "error": "unknown component"}, 2),
    ],
)
def test_a_result_of_up_has_its_exit_code(changes: dict[str, object], expected: int) -> None:
    assert exits.of_result(result_record("h", **changes)) == expected


@pytest.mark.parametrize(
    ("verdict", "expected"), [("pass", 0), ("skip", 0), ("fail", 1), ("incomplete", 1), (None, 1), ("", 1)]
)
def test_a_judgement_passes_only_with_a_pass(verdict: str | None, expected: int) -> None:
    assert exits.of_judgement(result_record("h", verdict=verdict)) == expected


def test_a_judgement_of_a_wish_that_cannot_be_met_is_a_refusal() -> None:
    finding = {"checks": [check("wish.conflict", "fail")]}
    assert exits.of_judgement(result_record("h", verdict="fail", **finding)) == 3
    assert exits.of_judgement(result_record("h", verdict="pass", checks=[check("wish.refused", "warn")])) == 0
    assert exits.of_judgement(result_record("h", error="unknown component", **finding)) == 2


def test_a_failed_reboot_wish_does_not_hide_a_failed_check() -> None:
    assert exits.of_judgement(result_record("h", verdict="fail", reboot=True)) == 1


@pytest.mark.parametrize(
    ("code", "verdicts", "expected"),
    [
        (0, ["pass"], "pass"),
        (0, ["pass", "skip"], "pass"),
        (0, ["skip"], "incomplete"),
        (0, ["incomplete"], "incomplete"),
        (4, ["pass"], "incomplete"),
        (1, ["pass", "incomplete"], "incomplete"),
        (1, ["pass"], "fail"),
        (1, ["fail", "incomplete"], "fail"),
        (3, ["pass"], "fail"),
        (2, [], "fail"),
    ],
)
def test_the_verdict_of_a_run_is_never_better_than_its_hosts(code: int, verdicts: list[str], expected: str) -> None:
    assert exits.verdict_of(code, verdicts) == expected

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks


def test_a_check_always_has_every_key() -> None:
    assert tuple(checks.make("smi.runs", "pass")) == checks.KEYS
    assert checks.KEYS[:3] == ("id", "status", "severity"), "those that are no keyword of what judges"


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        (["pass", "warn", "skip"], "pass"),
        (["pass", "incomplete"], "incomplete"),
        (["pass", "incomplete", "fail"], "fail"),
        (["skip"], "incomplete"),
        (["warn", "skip"], "incomplete"),
        ([], "incomplete"),
    ],
)
def test_the_verdict_is_never_better_than_what_was_measured(statuses: list[str], verdict: str) -> None:
    assert checks.verdict([checks.make("x.y", status) for status in statuses]) == verdict


def test_a_status_that_nobody_knows_leaves_the_verdict_incomplete() -> None:
    unheard: Any = {"id": "c.d", "status": "splendid"}
    assert checks.verdict([checks.passed("a.b"), unheard]) == "incomplete"


@pytest.mark.parametrize(
    ("severity", "status"), [("info", "warn"), ("warning", "warn"), ("critical", "fail"), ("fatal", "fail")]
)
def test_the_severity_decides_whether_a_missed_check_fails(severity: str, status: str) -> None:
    assert checks.failed("x.y", severity)["status"] == status


@pytest.mark.parametrize("wrong", [{"status": "ok"}, {"severity": "bad"}, {"remmedy": "typo"}, {"action": "pray"}])
def test_words_that_the_contract_does_not_know_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="unknown"):
        checks.make("x.y", **{"status": "pass", **wrong})


def test_a_passing_check_carries_no_remedy() -> None:
    assert checks.judged("x.y", ok=True, remedy="reboot", action="reboot")["remedy"] is None


def test_evidence_cannot_move_a_cursor_and_is_bounded() -> None:
    evidence = checks.make("x.y", "fail", evidence="\x1b[2Jgone\u202e" + "x" * 5000)["evidence"]
    assert evidence is not None
    assert "\x1b" not in evidence
    assert "\u202e" not in evidence
    assert len(evidence) <= checks.EVIDENCE_LIMIT


def test_the_worst_is_told_first() -> None:
    found = [
        checks.passed("a.a"),
        checks.failed("b.b", "warning"),
        checks.incomplete("c.c", "no tool"),
        checks.failed("d.d"),
        checks.failed("e.e", "fatal"),
        checks.skipped("f.f", "no such thing"),
    ]
    assert [check["id"] for check in checks.worst_first(found)] == ["e.e", "d.d", "c.c", "b.b", "a.a", "f.f"]

"""The script that holds two states of the collection against each other, on small trees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import same_answers

PLAN: dict[str, Any] = {
    "changes": [
        {
            "component": "cuda",
            "action": "install",
            "from": None,
            "to": "13.0",
            "reason": "it is missing",
            "packages": [],
        }
    ],
    "stack": {
        "cuda": [{"version": "13.0", "reason": "the newest"}],
        "driver": {"source": "nvidia", "source_reason": "new cards"},
    },
    "reboot": False,
    "refusals": [{"rule": "no-space", "text": "/ is full", "remedy": "make room"}],
    "checks": [{"id": "gpu.count", "status": "pass", "reason": "2 cards"}],
    "error": None,
}


def told(**changes: Any) -> dict[str, Any]:
    return same_answers.plan_told({**PLAN, **changes}, {"plan": 0})


def differing(old: Any, new: Any) -> list[str]:
    return list(same_answers.differences({"one": old}, {"one": new}))


def test_a_sentence_and_what_is_new_are_no_difference() -> None:
    spoken = told(
        changes=[{**PLAN["changes"][0], "reason": "not there yet", "work": {"packages": ["x"]}}],
        stack={"cuda": [{"version": "13.0", "reason": "last"}], "driver": {"source": "nvidia", "source_reason": "so"}, "work": 1},
        refusals=[{"rule": "no-space", "text": "nothing is free on /", "remedy": None}],
        work={"cuda": {}},
    )  # fmt: skip
    assert differing(told(), spoken) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"changes": []}, "-   &component&: &cuda&,"),
        ({"changes": [{**PLAN["changes"][0], "to": "13.1"}]}, "+   &to&: &13.1&"),
        ({"stack": {}}, "-    &version&: &13.0&"),
        ({"reboot": True}, "+ &reboot&: true,"),
        ({"refusals": []}, "-  &no-space&"),
        ({"checks": []}, "-   &gpu.count&,"),
        ({"disk_bytes": 5}, "+ &disk_bytes&: 5,"),
        ({"error": "what?"}, "+ &error&: true,"),
    ],
)
def test_a_difference_is_shown_with_the_name_of_its_question(changes: dict[str, Any], line: str) -> None:
    (shown,) = differing(told(), told(**changes))
    assert shown.startswith("--- old: one\n+++ new: one\n")
    assert line.replace("&", '"') in shown.splitlines()


def test_an_exit_code_is_compared_and_a_question_without_an_answer_is_a_difference() -> None:
    assert differing(told(), same_answers.plan_told(PLAN, {"plan": 3})) != []
    assert list(same_answers.differences({"one": 1}, {})) != []


def test_every_entry_point_is_there() -> None:
    assert [name for name in same_answers.ENTRY_POINTS if not callable(same_answers.entry(name))] == []


def test_an_entry_point_that_moved_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(same_answers.ENTRY_POINTS, "rules", ("json:no_such", "no_such.module:x"))
    with pytest.raises(LookupError, match="ENTRY_POINTS"):
        same_answers.entry("rules")
    monkeypatch.setitem(same_answers.ENTRY_POINTS, "rules", ("no_such.module:x", "json:loads"))
    assert same_answers.entry("rules") is json.loads


# --- the command, on two trees that judge ---------------------------------------------------------------------------------------

_JUDGE = """
def judge(facts, stack, expected):
    if facts["broken"]:
        raise KeyError("os")
    return [{{"id": "gpu.count", "status": "{status}", "reason": "{reason}"}}]
"""


@pytest.fixture
def questions(tmp_path: Path) -> str:
    row = {"kind": "judge", "stack": None, "expected": None}
    asked = {
        "facts": {"f": {"broken": False}, "g": {"broken": True}},
        "rows": {"a": {**row, "facts": "f"}, "b": {**row, "facts": "g"}},
    }
    (tmp_path / "questions.json").write_text(json.dumps(asked))
    return str(tmp_path / "questions.json")


def tree(root: Path, status: str, reason: str) -> str:
    """A tree with nothing but one judge."""
    place = root / "collections/ansible_collections/gpuwright/node/plugins/plugin_utils"
    place.mkdir(parents=True)
    (place / "judge.py").write_text(_JUDGE.format(status=status, reason=reason))
    return str(root)


@pytest.mark.parametrize(("status", "code"), [("pass", 0), ("fail", 1)])
def test_each_tree_answers_with_its_own_code(
    tmp_path: Path, questions: str, capsys: pytest.CaptureFixture[str], status: str, code: int
) -> None:
    old, new = tree(tmp_path / "old", "pass", "as it was"), tree(tmp_path / "new", status, "said anew")
    assert same_answers.main([old, new, "--inputs", questions]) == code
    said = capsys.readouterr().out
    assert "2 questions (2 judge) about 2 observations; 1 are answered by an exception" in said
    assert said.endswith("1 differ\n" if code else "the same\n")
    assert ('-  "pass"' in said) == bool(code)


def test_what_is_no_tree_is_no_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert same_answers.main(["no-such-revision", str(tmp_path)]) == 2
    assert "neither a directory nor a revision" in capsys.readouterr().err

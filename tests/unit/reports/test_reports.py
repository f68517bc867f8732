"""Public reports of machines, drivers, containers and wishes that failed: what a person saw, and what a right answer has.

A report is one entry of a file `*.yaml` beside this one:

    id, source, seen    its name, where it is public, and what the person saw, in one sentence of our own
    date                when that was told there, as far as it is known
    answer              the cause and what helped, by the source and the makers' documents; never by what the product says
    machine             what the machine was while it was well: system, cards, driver, kernels, packages, files; or smi, a document of the
                        proving tests. Without it: the planner's node with everything brought
    change              what the report brings: packages, states, files, modes, links, absent, programs, facts, smi (texts by element), and
                        unloaded: the driver's module is not loaded
    log                 lines of the kernel
    wants, index        what was wished, and versions that the package index has
    resolve, files      or: words of `gpuwright resolve`; FILES in them is where the files lie
    expect              by what was asked (doctor, plan, resolve): each word is a regular expression, whatever its case
                        first   all in what is said first          remedy  all in the remedy of that
                        also    each somewhere, in evidence too     not     in no text and no remedy
                        exit    one of these codes                  has     by a path of the document, what stands there
                        silent  nothing is said that was not said of the machine while it was well

`open.yml` has the questions that are not answered right yet: it may only become shorter, and a row whose question is right has to go.
When the 42 first reports were first tried, on f238c61c, 25 of their 45 questions were answered right. Of 40 more, written down before any
was tried, 18 reports were right by these words on fdf8882b, and 27 by their meaning: of nine the input or a word was written wrongly. Of a
third set of 40, 19 were right by these words on 79f15df1, and 23 by their meaning. Of a fourth set of 40, tried on 17f42537, 23 and 25. Of
a fifth set of 40, tried on c257d2a6, 27 and 29; of a sixth, tried on 32a7a5f7, 25 and 28; of a seventh, tried on 1d573126, 18 and 20; of
an eighth (`asked.yaml`: for each of 40 queries as people type them, about what is most often asked, the first fitting thread, whether its
kind was known or not), tried on 23ac0b68, 28 and 30; of the 37 questions of a ninth, found in the same way by other queries, tried on
683a8511, 24 and 26; of the 40 of a tenth, found so too, tried on 5d1acad4, 23 and 25; of 45 of `mended_kernel.yaml`, tried on 6208d571,
23. Those of `mended.yaml` were written while their kinds were mended: they count as found after, and not as tried first.

The input is written anew and as small as it can be: other addresses and names, versions where they matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tables
from tests.unit.reports import answers, machines
from tests.unit.reports.answers import Answer, Said

HERE = Path(__file__).parent
KEYS = {
    "id",
    "source",
    "date",
    "seen",
    "answer",
    "machine",
    "change",
    "log",
    "wants",
    "index",
    "resolve",
    "files",
    "expect",
}
EXPECTED = {"first", "remedy", "also", "not", "exit", "has", "silent"}
#: What alone would hold for a product that says nothing.
EMPTY = {"not", "exit"}
REPORTS: list[dict[str, Any]] = [report for path in sorted(HERE.glob("*.yaml")) for report in tables.read(path)]
OPEN: list[str] = tables.read(HERE / "open.yml")
QUESTIONS = [(report, asked) for report in REPORTS for asked in report["expect"]]


@pytest.mark.parametrize(("report", "asked"), QUESTIONS, ids=[f"{report['id']}-{asked}" for report, asked in QUESTIONS])
def test_it_is_answered_right(
    report: dict[str, Any], asked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if asked == "resolve":
        answer = answers.of_resolve(report["resolve"], report.get("files") or {}, tmp_path, capsys)
    else:
        about, change = report.get("machine") or {}, report.get("change") or {}
        before = answers.of_machine(asked, machines.healthy(about), {**report, "log": ""})
        after = answers.of_machine(asked, machines.afflicted(tmp_path / "ill", about, change), report)
        answer = after.without(before)
    lacking = list(unmet(answer, report["expect"][asked]))
    said = "\n".join(map(str, answer.said)) or "nothing"
    if f"{report['id']} {asked}" in OPEN:
        assert lacking != [], "it is right now: take its row out of open.yml"
        return
    assert lacking == [], f"{report['seen']}\nRight: {report['answer']}\nSaid:\n{said}"


def test_what_is_open_is_a_question() -> None:
    assert set(OPEN) <= {f"{report['id']} {asked}" for report, asked in QUESTIONS}
    assert len(OPEN) == len(set(OPEN))


def unmet(answer: Answer, expected: dict[str, Any]) -> Iterator[str]:
    """What of a right answer this one lacks, or says too much."""
    texts = [f"{one.name} {one.text} {one.remedy} {one.evidence}" for one in answer.said]
    first = answer.said[0] if answer.said else Said("", "", "")
    yield from (
        f"not first: {word}" for word in expected.get("first", ()) if not found(word, f"{first.name} {first.text}")
    )
    yield from (f"not its remedy: {word}" for word in expected.get("remedy", ()) if not found(word, first.remedy))
    yield from (f"nowhere: {word}" for word in expected.get("also", ()) if not any(found(word, text) for text in texts))
    yield from (
        f"said: {word}"
        for word in expected.get("not", ())
        for one in answer.said
        if found(word, one.text) or found(word, one.remedy)
    )
    if "exit" in expected and answer.exit not in expected["exit"]:
        yield f"exit {answer.exit}"
    yield from (
        f"{path} is {at(answer.document, path)!r}"
        for path, word in expected.get("has", {}).items()
        if not found(word, str(at(answer.document, path)))
    )
    if expected.get("silent") and answer.said:
        yield "not silent"


def found(word: str, text: str) -> bool:
    """Whether a text has what a regular expression asks for."""
    return re.search(word, text, re.IGNORECASE | re.DOTALL) is not None


def at(document: Any, path: str) -> Any:
    """The value at a path such as `stack.frameworks.0.index_url`; None where there is none."""
    for part in path.split("."):
        try:
            document = document[int(part)] if part.isdecimal() else document[part]
        except (KeyError, IndexError, TypeError):
            return None
    return document


# --- the reports themselves, and the judge ------------------------------------------------------------------------------


def test_each_has_a_name_of_its_own_a_public_source_and_an_answer() -> None:
    assert len({report["id"] for report in REPORTS}) == len(REPORTS) >= 40
    for report in REPORTS:
        assert set(report) <= KEYS, report["id"]
        assert report["source"].startswith("https://"), report["id"]
        assert all(report[key] for key in ("seen", "answer", "expect")), report["id"]


@pytest.mark.parametrize(("report", "asked"), QUESTIONS, ids=[f"{report['id']}-{asked}" for report, asked in QUESTIONS])
def test_no_expectation_holds_for_a_product_that_says_nothing(report: dict[str, Any], asked: str) -> None:
    expected = report["expect"][asked]
    assert set(expected) <= EXPECTED
    assert set(expected) - EMPTY
    if not expected.get("silent"):
        assert list(unmet(Answer([], {}), {**expected, "exit": [None]})) != []


SAID = Answer(
    [
        Said("driver.loaded", "fail", "the module is kept out: /etc/x", "take the line out"),
        Said("b", "warn", "reboot soon"),
    ],
    {"stack": {"cuda": [{"version": "12.8"}]}},
    3,
)


@pytest.mark.parametrize(
    "expected",
    [
        {"first": ["kept OUT", "/etc/x"], "remedy": ["line"], "also": ["reboot"], "not": ["reseat"], "exit": [2, 3]},
        {"has": {"stack.cuda.0.version": r"^12\."}},
    ],
)
def test_a_right_answer_lacks_nothing(expected: dict[str, Any]) -> None:
    assert list(unmet(SAID, expected)) == []


@pytest.mark.parametrize(
    ("expected", "lacking"),
    [
        ({"first": ["reboot"]}, "not first: reboot"),
        ({"remedy": ["reboot"]}, "not its remedy: reboot"),
        ({"also": ["reseat"]}, "nowhere: reseat"),
        ({"not": ["reboot"]}, "said: reboot"),
        ({"exit": [0]}, "exit 3"),
        ({"has": {"stack.cuda.1.version": "12"}}, "stack.cuda.1.version is None"),
        ({"silent": True}, "not silent"),
    ],
)
def test_a_wrong_one_is_told_with_what_it_lacks(expected: dict[str, Any], lacking: str) -> None:
    assert list(unmet(SAID, expected)) == [lacking]

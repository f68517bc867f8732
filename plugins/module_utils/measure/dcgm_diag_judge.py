# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge what DCGM's diagnostic said. Pure: from what was printed to checks.

``dcgm.run`` says whether it could be run, ``dcgm.cards`` whether it had all cards, and ``dcgm.<test>`` what each test said of each card.
What a test says is not taken at its word where the errors that it tells of say otherwise: a "Pass" with an error is no pass, since a memory
test that got no memory ends with one (issue 284 of DCGM).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import dcgm_errors, dcgm_json

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result as Ended
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.dcgm_json import Document, Finding, Result

#: The tests that each level adds, in each DCGM from 2.4 on (FillTestVectors of nvvs/src/NvidiaValidationSuite.cpp at v2.4.7, v3.3.9 and
#: 72fa3fe). Others (EUD, NCCL, pulse) depend on the version, the card and the user. One that does not apply to a card is there as skipped.
_OF_LEVEL: Dict[int, Sequence[str]] = {
    2: ("memory", "pcie"),
    3: ("diagnostic", "memory_bandwidth", "targeted_stress", "targeted_power"),
    4: ("memtest",),
}

_NO_ANSWER = dcgm_errors.Ending(
    "no answer", "restart_service", "run 'dcgmi diag -r 1 -j' by hand and read the log of nv-hostengine"
)
#: From the least to the worst.
_ORDER = checks.SEVERITIES


class Question(NamedTuple):
    """What was asked of the diagnostic."""

    level: int
    cards: Sequence[int]
    expected_gpus: Optional[int]


def judge(question: Question, ended: Ended) -> List[Check]:
    """The checks of a run of dcgmi.

    Args:
        question: what was asked.
        ended: how dcgmi ended; its ``error`` where it did not by itself.
    """
    if ended.error is not None:
        return [checks.incomplete("dcgm.run", f"the diagnostic came to no end: {ended.error}", evidence=_said(ended))]
    try:
        document = dcgm_json.parse(ended.out)
    except dcgm_json.DcgmError as exc:
        return [_not_run(ended, f"the answer of dcgmi cannot be read: {exc}")]
    if document.error is not None:
        return [_refused(ended, document.error)]
    found = [_of_result(result) for result in document.results]
    found += _missing(question, document.results)
    return [_ran(ended, document, found), *_all_cards(question, document), *found]


def _said(ended: Ended) -> Optional[str]:
    return "\n".join(filter(None, (ended.out.strip(), ended.err.strip()))) or None


def _not_run(ended: Ended, reason: str, evidence: Optional[str] = None) -> Check:
    """What stands for all tests where dcgmi has no answer, by its exit status."""
    ending = dcgm_errors.ENDINGS.get(ended.rc or 0)
    if ending is None or ended.rc in (205, 226):
        # These two only say that an answer has an error in it, and here is no answer.
        ending = _NO_ANSWER._replace(status="fail", severity="fatal") if ended.rc == 205 else _NO_ANSWER
    else:
        reason = f"{ending.cause} ({reason})"
    return checks.make(
        "dcgm.run",
        ending.status,
        ending.severity,
        measured=ended.rc,
        expected=0,
        unit="exit status",
        reason=reason,
        evidence=evidence or _said(ended),
        action=ending.action,
        remedy=ending.remedy,
    )


def _refused(ended: Ended, error: str) -> Check:
    """The diagnostic says itself why it could not be run."""
    if "MIG" in error:
        # nvvs/src/NvidiaValidationSuite.cpp: one card whose instance is the whole of it can be tested, nothing else in MIG mode.
        return checks.skipped("dcgm.run", "the diagnostic does not test cards in MIG mode", evidence=error)
    return _not_run(ended, "DCGM could not run the diagnostic", error)


def _ran(ended: Ended, document: Document, found: Sequence[Check]) -> Check:
    """Whether the exit status goes with the answer: one that tells of an error which no test tells of hides something."""
    rest: checks.Rest = {
        "measured": ended.rc,
        "expected": 0,
        "unit": "exit status",
        "evidence": f"DCGM {document.version or 'of unknown version'}, driver {document.driver or 'unknown'}, "
        f"{len(document.results)} results in {ended.seconds:.0f} s",
    }
    if not document.results:
        return checks.incomplete("dcgm.run", "the answer of dcgmi has no result of any test", **rest)
    if ended.rc == 0 or any(check["status"] in ("fail", "warn", "incomplete") for check in found):
        return checks.passed("dcgm.run", reason="the diagnostic ran to its end", **rest)
    ending = dcgm_errors.ENDINGS.get(ended.rc or 0)
    cause = ending.cause if ending else "it means nothing that is known"
    return checks.failed(
        "dcgm.run",
        "fatal" if ended.rc == 205 else "critical",
        reason=f"dcgmi ended with status {ended.rc} ({cause}), and no test of its answer says why",
        action=ending.action if ending else _NO_ANSWER.action,
        remedy=ending.remedy if ending else _NO_ANSWER.remedy,
        **rest,
    )


def _all_cards(question: Question, document: Document) -> List[Check]:
    """Whether as many cards were tested as there should be."""
    expected = question.expected_gpus if question.expected_gpus is not None else len(question.cards) or None
    if expected is None:
        return []
    rest: checks.Rest = {"measured": document.cards, "expected": expected, "unit": "cards"}
    if document.cards is None:
        return [checks.incomplete("dcgm.cards", "DCGM does not tell how many cards it tested", **rest)]
    ok = document.cards >= expected
    return [
        checks.judged(
            "dcgm.cards",
            ok,
            reason=None if ok else f"{words.count(expected, 'cards', 'are')} expected and DCGM tested {document.cards}",
            action="check_hardware",
            remedy="compare 'dcgmi discovery -l' with 'nvidia-smi -L' and with the cards on the PCI bus",
            **rest,
        )
    ]


def _missing(question: Question, results: Sequence[Result]) -> List[Check]:
    """The tests of the level that the answer does not have: DCGM leaves out what was not run."""
    there = {result.test for result in results}
    wanted = [name for level, names in _OF_LEVEL.items() if level <= question.level for name in names]
    return [
        checks.incomplete(
            f"dcgm.{name}",
            f"the test belongs to level {question.level} and was not run",
            remedy="look at the tests before it that failed, and whether the package with the tests of DCGM is installed",
        )
        for name in wanted
        if name not in there and results
    ]


def _of_result(result: Result) -> Check:
    """What one test said of one card."""
    check_id = f"dcgm.{result.test}"
    numbers = {finding.number for finding in result.findings}
    errors = [finding for finding in result.findings if finding.number not in dcgm_errors.NOT_APPLICABLE]
    if result.status == "skip" and not [error for error in errors if error.number not in dcgm_errors.NOT_MEASURED]:
        return _skipped(check_id, result)
    if result.status not in ("pass", "fail", "warn", "skip"):
        return checks.incomplete(
            check_id,
            "the test was not run" if result.status in ("not run", "") else f"DCGM says {result.status!r} of it",
            gpu=result.card,
            evidence=_evidence(result),
        )
    if result.status == "pass" and not result.findings and not _without_memory(result):
        return checks.passed(check_id, gpu=result.card, evidence=_evidence(result))
    if (numbers and numbers <= dcgm_errors.NOT_APPLICABLE) and result.status != "fail":
        return _skipped(check_id, result)
    if _measured_nothing(result, errors):
        return checks.incomplete(
            check_id,
            f"DCGM says {result.status}, and the test measured nothing: {_words(errors) or result.info}",
            gpu=result.card,
            evidence=_evidence(result),
            action="restart_app",
            remedy="stop what uses the card and its memory, then prove again",
        )
    return _failed(check_id, result, result.findings if result.status == "fail" else errors)


def _skipped(check_id: str, result: Result) -> Check:
    why = _words(result.findings) or result.info or "DCGM gives no reason; it has no test for this card"
    return checks.skipped(check_id, f"DCGM skipped the test: {why}", gpu=result.card)


def _measured_nothing(result: Result, errors: Sequence[Finding]) -> bool:
    """Whether all that it tells of is that it could not measure. A test that failed for want of memory did fail."""
    if result.status == "fail":
        return bool(errors) and all(error.number in dcgm_errors.NOT_MEASURED - {56, 73} for error in errors)
    return _without_memory(result) or (
        bool(errors) and all(error.number in dcgm_errors.NOT_MEASURED for error in errors)
    )


def _without_memory(result: Result) -> bool:
    """Whether a test tells beside its result that it got no memory (2.x to 3.1 have such words in ``info``)."""
    return not result.findings and dcgm_json.tells_of_no_memory(result.info)


def _failed(check_id: str, result: Result, errors: Sequence[Finding]) -> Check:
    """The worst of its errors decides. Where a test that measures failed, that is critical, however mild the error."""
    known = [dcgm_errors.ERRORS.get(error.number or 1, dcgm_errors.UNKNOWN) for error in errors]
    worst = max(known, key=lambda error: _ORDER.index(dcgm_errors.SEVERITIES[error.grade]), default=dcgm_errors.SILENT)
    severity = dcgm_errors.SEVERITIES[worst.grade]
    if result.status == "fail" and not result.deployment and severity == "warning":
        severity = "critical"
    if result.status != "fail" and (worst is dcgm_errors.SILENT or worst.grade == "unknown"):
        # It passed, and has words that no table knows.
        severity = "warning"
    said = "failed" if result.status == "fail" else f"has the result {result.status} and tells of an error"
    return checks.failed(
        check_id,
        severity,
        gpu=result.card,
        measured=result.status,
        expected="pass",
        reason=f"the test {said}: {_words(errors) or 'DCGM gives no reason'}",
        evidence=_evidence(result),
        action=worst.deed.action,
        remedy=worst.deed.remedy,
    )


def _words(findings: Sequence[Finding]) -> str:
    """The errors as one line, each with its name in DCGM's table."""
    return checks.clean("; ".join(_named(finding) for finding in findings), 300) or ""


def _named(finding: Finding) -> str:
    known = dcgm_errors.ERRORS.get(finding.number or 0) if finding.number else None
    name = f" ({known.name}, DCGM error {finding.number})" if known else ""
    return " ".join(finding.text.split())[:200] + name


def _evidence(result: Result) -> Optional[str]:
    return "\n".join([*(_named(finding) for finding in result.findings), *filter(None, [result.info])]) or None

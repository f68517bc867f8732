# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one shape of a check, and the rule that turns many checks into a verdict.

A check is a plain dictionary, so that it travels unchanged from a node through JSON into the report. All keys are
always there; what has no value is ``None``.

======== ==================================================================================================
key      meaning
======== ==================================================================================================
id       stable name, ``group.what`` (``ecc.mode``); tests, reports and scripts rely on it
status   ``pass``, ``warn``, ``fail``, ``incomplete`` (could not be measured), ``skip`` (does not apply)
severity what a failure of it means: ``info`` < ``warning`` < ``critical`` < ``fatal``
measured what was found            expected  what it was held against          unit  of both
gpu      the card it speaks of (``0``, ``GPU-…`` or a bus id), ``None`` for the host
reason   one sentence: why this status
evidence the text or value that proves it, shortened
action   one of :data:`ACTIONS`    remedy    one sentence: what a person does now
======== ==================================================================================================
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Mapping, Optional, Tuple, TypedDict, Union, cast, get_args

from ansible_collections.gpuwright.node.plugins.module_utils.check import Action, Check, Severity, Status

STATUSES: Tuple[str, ...] = get_args(Status)
SEVERITIES: Tuple[str, ...] = get_args(Severity)
ACTIONS: Tuple[str, ...] = get_args(Action)
KEYS = tuple(Check.__annotations__)
OPTIONAL_KEYS = KEYS[3:]

EVIDENCE_LIMIT = 600
#: Beyond it (or no number at all) a value is told in words.
MOST = 1e18


class Rest(TypedDict, total=False):
    """What a check has beside its name, its status, its severity and its reason."""

    measured: object
    expected: object
    unit: Optional[str]
    gpu: Union[str, int, None]
    evidence: Optional[str]
    action: Optional[str]
    remedy: Optional[str]


def again(what: str) -> str:
    """What a person does where a file of a package is gone or broken: the list of packages does not tell it, so no plan mends it."""
    return (
        f"install the package that brings {what} again (apt-get install --reinstall NAME, or dnf reinstall NAME; dpkg -S and dnf provides "
        "name it)"
    )


# Control characters (but not tab and newline), the C1 block and the marks that turn the direction of text:
# output of a broken program must not move a terminal's cursor nor hide what a report says.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def clean(text: object, limit: int = EVIDENCE_LIMIT) -> Optional[str]:
    """Text as evidence: printable, trimmed and at most ``limit`` characters; ``None`` when nothing is left."""
    if text is None:
        return None
    raw = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    readable = _UNPRINTABLE.sub("\ufffd", raw.replace("\r\n", "\n").replace("\r", "\n")).strip()
    if len(readable) > limit:
        readable = readable[: limit - 1].rstrip() + "…"
    return readable or None


def make(check_id: str, status: str, severity: str = "critical", **rest: object) -> Check:
    """One check with every key.

    Raises:
        ValueError: the status, the severity, the action or a key is not one of the contract's.
    """
    _refuse_unknown("status", status, STATUSES)
    _refuse_unknown("severity", severity, SEVERITIES)
    for key in rest:
        _refuse_unknown("key", key, OPTIONAL_KEYS)
    action = rest.get("action")
    if action is not None:
        _refuse_unknown("action", action, ACTIONS)
    check: Dict[str, object] = dict.fromkeys(KEYS)
    check.update(rest)
    check.update({"id": check_id, "status": status, "severity": severity})
    for key in ("evidence", "reason", "measured"):
        # What a node says goes on to terminals, logs and web pages.
        if isinstance(check[key], (str, bytes)):
            check[key] = clean(check[key])
    measured = check["measured"]
    if isinstance(measured, (int, float)) and not abs(measured) <= MOST:
        # A broken card or disk may measure it, and JSON has no number for it.
        check["measured"] = f"{measured:g}" if isinstance(measured, float) else "beyond any measure"
    return cast("Check", check)


def passed(check_id: str, severity: str = "critical", **rest: object) -> Check:
    """A check whose measurement is what it should be."""
    return make(check_id, "pass", severity, **rest)


def failed(check_id: str, severity: str = "critical", **rest: object) -> Check:
    """A check that is not met: ``warn`` for severity info and warning, ``fail`` for critical and fatal."""
    return make(check_id, "fail" if severity in ("critical", "fatal") else "warn", severity, **rest)


def skipped(check_id: str, reason: str, severity: str = "critical", **rest: object) -> Check:
    """A check that does not apply to this host or card, with the reason."""
    return make(check_id, "skip", severity, reason=reason, **rest)


def incomplete(check_id: str, reason: str, severity: str = "critical", **rest: object) -> Check:
    """A check that could not be made: a missing tool or fact is never *fine*."""
    return make(check_id, "incomplete", severity, reason=reason, **rest)


def judged(check_id: str, ok: bool, severity: str = "critical", **rest: object) -> Check:
    """``passed`` or ``failed``; a passing check carries neither action nor remedy."""
    if ok:
        rest.pop("action", None)
        rest.pop("remedy", None)
        return passed(check_id, severity, **rest)
    return failed(check_id, severity, **rest)


def verdict(checks: Iterable[Check]) -> str:
    """``fail`` if any check failed; ``incomplete`` if any is incomplete or nothing passed; else ``pass``.

    Whatever is not one of the known statuses counts as incomplete: a verdict is never better than what was understood.
    """
    statuses = [check.get("status") for check in checks]
    if "fail" in statuses:
        return "fail"
    if any(status not in ("pass", "warn", "skip") for status in statuses):
        return "incomplete"
    if "pass" not in statuses:
        return "incomplete"
    return "pass"


def with_verdict(answer: Mapping[str, object]) -> Dict[str, object]:
    """The answer of a module that proves something, with the verdict beside its ``checks``."""
    return {**answer, "verdict": verdict(cast("Iterable[Check]", answer["checks"]))}


def counts(checks: Iterable[Check]) -> Dict[str, int]:
    """How many checks have each status; every status is a key, in the order of :data:`STATUSES`."""
    result = dict.fromkeys(STATUSES, 0)
    for check in checks:
        status = check.get("status")
        result[status if status in STATUSES else "incomplete"] += 1
    return result


def worst_first(checks: Iterable[Check]) -> List[Check]:
    """The checks ordered for a reader: failed, incomplete, warned, passed, skipped; fatal before info."""
    order = {"fail": 0, "incomplete": 1, "warn": 2, "pass": 3, "skip": 4}

    def rank(check: Check) -> int:
        severity = check.get("severity")
        weight = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
        return order.get(str(check.get("status")), 1) * 10 - weight

    return sorted(checks, key=rank)


def group(check: Check) -> str:
    """The group of a check: what stands before the first dot of its id."""
    return str(check.get("id")).split(".", 1)[0]


def _refuse_unknown(what: str, value: object, known: Iterable[str]) -> None:
    if value not in tuple(known):
        raise ValueError("unknown {} {!r} of a check; known: {}".format(what, value, ", ".join(known)))

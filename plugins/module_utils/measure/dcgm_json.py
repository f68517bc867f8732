# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what ``dcgmi diag --json`` prints, of each DCGM from 2.x to 4.x.

The shapes are those of dcgmi/Diag.cpp in https://github.com/NVIDIA/DCGM at v2.4.7, v3.1.8, v3.3.9, v4.0.0 and 72fa3fe (4.6.0):

=========== ===================== =========================== ==================================================================
DCGM        key of the document   card of a result            errors of a result (``warnings``)
=========== ===================== =========================== ==================================================================
2.x to 3.1  DCGM GPU Diagnostic   ``gpu_ids`` ``"0"``         one text
3.3         DCGM GPU Diagnostic   ``gpu_id`` ``"0"``          ``[{"warning", "error_id", …}]``; of the deployment tests, whose
                                                              ``gpu_id`` is a number and there only with an error, ``"warnings"``
4.x         DCGM Diagnostic       ``entity_group``,           ``[{"warning", "error_id", …}]``, those of all cards again in
                                  ``entity_id``               ``test_summary``
=========== ===================== =========================== ==================================================================

A result that was not run is left out, in 3.x with ``null`` in its place. What could not begin is ``{KEY: {"version", "runtime_error"}}``.
"""

from __future__ import annotations

import json
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import words

#: Names of the document, the newest first.
_KEYS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
#: More results than 64 cards have in 20 tests are no diagnostic.
MOST_RESULTS = 2_000
_MOST_FINDINGS = 50
_MOST_TEXT = 2_000
#: What 2.x and 3.x call the tests that 4.x calls otherwise.
_NAMES = {"gpu_memory": "memory", "eud_test": "eud"}
#: The errors without a number (2.x to 3.1) that decide whether a test measured anything, by the words of dcgm_errors.h.
_NO_MEMORY = r"(?:couldn't|could not|unable to|cannot) allocate|out of memory"
_PHRASES: Tuple[Tuple[str, int], ...] = ((r"persistence mode .{0,40}disabled", 29), (_NO_MEMORY, 56))


class DcgmError(ValueError):
    """The text is no whole answer of the diagnostic. The words say why."""


class Finding(NamedTuple):
    """An error that the diagnostic tells of."""

    number: Optional[int]
    """DCGM's number of it; None where the answer has none."""
    text: str


class Result(NamedTuple):
    """What one test said of one card."""

    test: str
    """Its name in small letters, as in the id of a check."""
    deployment: bool
    """Whether it looks at the software and measures nothing."""
    card: Optional[str]
    """DCGM's number of the card, ``CPU 0`` for a processor; None for the host."""
    status: str
    """In small letters: ``pass``, ``fail``, ``skip``, ``warn``, ``not run``, or whatever else was there."""
    findings: Sequence[Finding]
    info: str


class Document(NamedTuple):
    """An answer of the diagnostic."""

    version: Optional[str]
    driver: Optional[str]
    cards: Optional[int]
    """How many cards it had; None where it does not tell."""
    error: Optional[str]
    """Why it could not be run; None where it was."""
    results: Sequence[Result]


def parse(text: str) -> Document:
    """The answer in ``text``, which must be one JSON document and nothing else.

    Raises:
        DcgmError: it is none, or not that of a diagnostic.
    """
    if not text.strip():
        raise DcgmError("nothing was printed")
    try:
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError:
        raise DcgmError("it is nested without end") from None
    except ValueError as exc:
        raise DcgmError(f"it is not one JSON document: {exc}") from None
    root = next((document[key] for key in _KEYS if isinstance(document, dict) and key in document), None)
    if not isinstance(root, dict):
        raise DcgmError("it has no {}".format(" or ".join(_KEYS)))
    error = root.get("runtime_error")
    results = _results(root)
    return Document(
        version=_text(_of(document.get("metadata"), "version") or document.get("version") or root.get("version")),
        driver=_text(
            _of(document.get("metadata"), "Driver Version Detected") or document.get("Driver Version Detected")
        ),
        cards=_cards(document, results),
        error=None if error is None else _text(error) or "DCGM does not say why",
        results=results,
    )


def version_of(text: str) -> Optional[str]:
    """The version of DCGM, as a version is written; None where the text has none."""
    try:
        version = parse(text).version
    except DcgmError:
        return None
    return version if version and re.match(r"[A-Za-z0-9][A-Za-z0-9.+:~^_!-]{0,127}\Z", version) else None


def tells_of_no_memory(text: str) -> bool:
    """Whether the words of a test say that it got no memory, on the card or on the host."""
    return re.search(_NO_MEMORY, text, re.IGNORECASE) is not None


def _once(pairs: Sequence[Tuple[str, object]]) -> Dict[str, object]:
    """An object whose keys are there once: the second of two could hide what the first says."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _results(root: Dict[str, object]) -> List[Result]:
    """The results of all tests, in their order; a list that is none is a document that cannot be read."""
    found: List[Result] = []
    for category in _objects(root.get("test_categories"), "test_categories"):
        deployment = str(category.get("category")).strip().lower() == "deployment"
        for test in _objects(category.get("tests"), "tests"):
            found += _of_test(test, deployment)
            if len(found) > MOST_RESULTS:
                raise DcgmError(f"it has more than {MOST_RESULTS} results")
    return found


def _of_test(test: Dict[str, object], deployment: bool) -> List[Result]:
    """The results of a test by card, and what its summary says beyond them, which is of the host."""
    name = _name(test.get("name"))
    found = [_result(name, deployment, entry) for entry in _objects(test.get("results"), "results")]
    told = test.get("test_summary")
    if told is None:
        return found or [Result(name, deployment, None, "not run", (), "")]
    if not isinstance(told, dict):
        raise DcgmError("test_summary is no object")
    summary = _result(name, deployment, told)
    known = {finding for result in found for finding in result.findings}
    rest = tuple(finding for finding in summary.findings if finding not in known)
    statuses = [result.status for result in found]
    if not found or rest or (summary.status not in statuses and summary.status != "pass"):
        found.append(summary._replace(card=None, findings=rest))
    return found


def _result(name: str, deployment: bool, entry: Dict[str, object]) -> Result:
    return Result(
        name,
        deployment,
        _card(entry),
        str(entry.get("status", "")).strip().lower()[:40],
        _findings(entry.get("warnings")),
        _text(entry.get("info")) or "",
    )


def _card(entry: Dict[str, object]) -> Optional[str]:
    group, number = entry.get("entity_group"), entry.get("entity_id")
    if number is None:
        number = entry.get("gpu_id", entry.get("gpu_ids"))
        group = "GPU"
    if number is None:
        number = entry.get("cpu_id")
        group = "CPU"
    if number is None or isinstance(number, (bool, dict, list)):
        return None
    label = str(number).strip()[:20]
    return label if str(group).upper() in ("GPU", "NONE") else f"{str(group)[:20]} {label}"


def _findings(told: object) -> Tuple[Finding, ...]:
    """The errors of a result; ``told`` is a text, a list of texts or a list of objects."""
    entries = told if isinstance(told, list) else [told]
    if len(entries) > _MOST_FINDINGS:
        # The first errors are told, and one that says how many there were: it has no number, so it counts as a grave one.
        more = f"{words.count(len(entries), 'errors')}, of which {_MOST_FINDINGS} are told"
        entries = [*entries[:_MOST_FINDINGS], more]
    return tuple(_finding(entry) for entry in entries if entry not in (None, "", {}))


def _finding(entry: object) -> Finding:
    number = None
    if isinstance(entry, dict):
        number = entry.get("error_id")
        # 3.3 has "warnings" in the place of "warning" where the test is one of deployment.
        entry = entry.get("warning", entry.get("warnings"))
    text = _text(entry) or "no words"
    if isinstance(number, bool) or not isinstance(number, int):
        number = next((found for pattern, found in _PHRASES if re.search(pattern, text, re.IGNORECASE)), None)
    return Finding(number, text)


def _cards(document: Dict[str, object], results: Sequence[Result]) -> Optional[int]:
    """How many cards it had: those that it lists (4.x by entity, 3.3 by device), else those that a result names."""
    for group in _objects(document.get("entity_groups"), "entity_groups"):
        if group.get("entity_group") == "GPU":
            return len(_objects(group.get("entities"), "entities"))
    devices = document.get("GPU Device IDs")
    if isinstance(devices, list) and devices:
        return len(devices)
    named = {card.strip() for result in results for card in (result.card or "").split(",")}
    return len([card for card in named if card.isdigit()]) or None


def _name(told: object) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", str(told or "").lower()).strip("_")[:60]
    return _NAMES.get(name, name) or "unnamed"


def _objects(told: object, what: str) -> List[Dict[str, object]]:
    """The objects of a list. Results of 3.3 that were not run are null; anything else that is no object is not ours to guess at."""
    if told is None:
        return []
    if not isinstance(told, list):
        raise DcgmError(f"{what} is no list")
    found = [entry for entry in told if entry is not None]
    if not all(isinstance(entry, dict) for entry in found):
        raise DcgmError(f"{what} has an entry that is no object")
    return found


def _of(told: object, key: str) -> object:
    return told.get(key) if isinstance(told, dict) else None


def _text(told: object) -> Optional[str]:
    """A text, or a list of texts in one; None for nothing."""
    if isinstance(told, list):
        told = "; ".join(str(entry) for entry in told[:_MOST_FINDINGS])
    return (str(told)[:_MOST_TEXT].strip() or None) if told is not None else None

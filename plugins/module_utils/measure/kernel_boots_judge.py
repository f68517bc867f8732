# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the earlier boots of a machine told that this one does not tell again: pure, from what kernel_boots.py read.

A boot since then has done what most errors ask for, so they are a warning at most. What ends with the hardware is not over: a row of memory
that could not be remapped, or a fatal error that came in more than one boot (github leptonai/gpud
components/accelerator/nvidia/xid/health_state.go asks for an inspection then).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_log_judge, recurrence

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_faults_judge
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_boots import Answer, Boot
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log_judge import Meaning, Tables

CHECK = "kernel.earlier_boots"
# What journalctl says of a boot that it does not have, in the words of its versions.
_NO_BOOT = re.compile(r"specified boot|boot entry|boot ID|no line of the kernel of that boot")
_NOT_KEPT = "the journal does not outlive a boot here"
_KEEP = (
    "set Storage=persistent in /etc/systemd/journald.conf and restart systemd-journald: from then on each boot is kept"
)
_DONE = "the boot since then did what it asks for; where it comes again: "


class _Past(NamedTuple):
    """An error or a fault of earlier boots."""

    meaning: Meaning
    name: str
    place: str
    times: int
    message: str


def events_of(boots: Sequence[Boot]) -> Dict[kernel_log_judge.Key, List[int]]:
    """The boots that each error came in, by what makes it the same."""
    found: Dict[kernel_log_judge.Key, List[int]] = {}
    for boot in boots:
        for event in boot["events"]:
            found.setdefault(kernel_log_judge.key_of(event), []).append(boot["boot"])
    return found


def faults_of(boots: Sequence[Boot]) -> Dict[kernel_faults_judge.Key, List[int]]:
    """The boots that each fault came in, by what makes it the same."""
    found: Dict[kernel_faults_judge.Key, List[int]] = {}
    for boot in boots:
        for fault in boot["faults"]:
            found.setdefault((fault["name"], fault["subject"]), []).append(boot["boot"])
    return found


def judge(answer: Answer, tables: Tables, rows: Mapping[str, kernel_faults_judge.Row]) -> List[Check]:
    """The check :data:`CHECK` for each error that only earlier boots told of, the worst first; one that passes where none is left to do.

    Nothing where no earlier boot was asked for.

    Args:
        answer: what the module kernel_log answers.
        tables: the tables of the numbers.
        rows: the rows of compat/kernel_faults.yaml by their names.
    """
    journal = answer["journal"]
    if not journal["wanted"]:
        return []
    ended = journal["why"] is not None and _NO_BOOT.search(journal["why"]) is not None
    if not journal["boots"]:
        return [_without(answer, ended=ended)]
    past = [*_events(answer, tables), *_faults(answer, rows)]
    bad = [check for one, boots in past for check in _judge(one, boots)]
    if journal["why"] and not ended:
        reason = f"only {len(journal['boots'])} of {words.count(journal['wanted'], 'earlier boots')} could be read"
        bad.append(checks.incomplete(CHECK, reason, evidence=journal["why"]))
    more = sum(boot["more"] + boot["more_faults"] for boot in journal["boots"])
    if bad:
        return kernel_log_judge.limited(checks.worst_first(bad), more)
    if more:
        return [
            checks.incomplete(
                CHECK, f"earlier boots told of {words.count(more, 'errors')} more than could be told apart"
            )
        ]
    fewer = f", the journal has no more of the {journal['wanted']} that were asked for" if ended else ""
    read, over = len(journal["boots"]), len(past)
    reason = (
        f"{words.count(read, 'earlier boots', 'leave')} nothing to do{fewer}; "
        f"{words.count(over, 'errors')} of theirs {words.verb(over, 'are')} over"
    )
    return [checks.passed(CHECK, measured=len(journal["boots"]), unit="boots", reason=reason)]


def _without(answer: Answer, *, ended: bool) -> Check:
    """Why no earlier boot was read."""
    journal = answer["journal"]
    if not journal["kept"]:
        return checks.incomplete(CHECK, _NOT_KEPT, evidence=journal["why"], action="configure", remedy=_KEEP)
    if ended:
        return checks.skipped(CHECK, "the journal has no boot before this one", evidence=journal["why"])
    remedy = "run with become, or see what journalctl --list-boots says"
    return checks.incomplete(CHECK, "the journal cannot be read", evidence=journal["why"], remedy=remedy)


def _events(answer: Answer, tables: Tables) -> List[Tuple[_Past, List[int]]]:
    """The errors that this boot does not tell of, each as its newest boot had it."""
    boots = answer["journal"]["boots"]
    now = {kernel_log_judge.key_of(event) for event in answer["events"]}
    found: Dict[kernel_log_judge.Key, _Past] = {}
    for boot in boots:
        for event in boot["events"]:
            key = kernel_log_judge.key_of(event)
            if key not in now and key not in found:
                meaning, name = kernel_log_judge.meaning_of(event, tables), kernel_log_judge.name_of(event)
                found[key] = _Past(meaning, name + ": ", event["bus_id"], event["count"], event["message"])
    came = events_of(boots)
    return [(one, came[key]) for key, one in found.items()]


def _faults(answer: Answer, rows: Mapping[str, kernel_faults_judge.Row]) -> List[Tuple[_Past, List[int]]]:
    boots = answer["journal"]["boots"]
    now = {(fault["name"], fault["subject"]) for fault in answer["faults"]}
    found: Dict[kernel_faults_judge.Key, _Past] = {}
    for boot in boots:
        for fault in boot["faults"]:
            key = (fault["name"], fault["subject"])
            if key not in now and key not in found:
                found[key] = _Past(rows[fault["name"]], "", fault["subject"], fault["count"], fault["message"])
    came = faults_of(boots)
    return [(one, came[key]) for key, one in found.items()]


def _judge(past: _Past, boots: Sequence[int]) -> List[Check]:
    """The check of what is not over, or may come again; none of what concerned nobody but an application of then."""
    meaning = past.meaning
    if meaning["severity"] not in ("critical", "fatal"):
        return []
    again = meaning["severity"] == "fatal" and len(boots) > 1
    end = again or meaning["action"] == "rma"
    action, remedy = recurrence.stepped_up(meaning["action"], meaning["remedy"], boots[1:])
    if not end and action in recurrence.STEPS[:-1]:
        action, remedy = "none", _DONE + remedy
    return [
        checks.failed(
            CHECK,
            "fatal" if end else "warning",
            gpu=past.place if past.place.count(":") == 2 else None,
            measured=past.times,
            expected=0,
            unit="times",
            reason=f"{past.name}{meaning['meaning']}{f', of {past.place}' if past.place else ''}, in {recurrence.named(boots)}",
            evidence=past.message,
            action=action,
            remedy=remedy,
        )
    ]

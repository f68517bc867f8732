# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the faults of the kernel log and the kernel's own counts mean, by the rows of compat/kernel_faults.yaml: pure, from what
kernel_faults.py and hardware_errors.py read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_log_judge, recurrence
from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log_judge import Meaning

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.hardware_errors import Device
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_boots import Answer
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_faults import Fault
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Event

AER, MCE, MODULE = "kernel.aer", "kernel.mce", "kernel.module"
#: The checks, and what the log names of each where it names nothing.
CHECKS = {
    AER: "no error of PCIe",
    MCE: "no machine check and no error of the memory",
    "kernel.oom": "no program that was ended because memory ran out",
    MODULE: "no trouble with the modules of the driver",
    "kernel.disk": "no error of a disk or a file system",
    "kernel.nfs": "no file server that does not answer",
    "kernel.lockup": "no processor and no program that stands still",
    "kernel.oops": "no fault of the kernel in a module of the driver",
    "kernel.iommu": "no device that the IOMMU stopped",
    "kernel.network": "no trouble with a network adapter of NVIDIA's",
}
#: Corrected errors of a PCIe link a minute that are borne: DCGM's limit for a link of 16 lanes of generation 5, and for all others (github
#: NVIDIA/DCGM nvvs/plugin_src/pcie/Pcie.cpp, GetAERThresholdRate; its 480 are these 32 in its test's 15 minutes).
FAST_LINK_LIMIT, LINK_LIMIT = 32, 16
_FAST_LANES, _FAST_GTS = 16, 32.0
# How the place of a card ends; other subjects of a module are names.
_FUNCTIONS = tuple(f".{number}" for number in range(8))

#: A fault of one thing. The same one in another boot is the same again.
Key = Tuple[str, str]


class _Row(Meaning):
    name: str
    check: str


class Row(_Row, total=False):
    """A row of compat/kernel_faults.yaml. ``explains``: what follows from it: the names of faults, ``init``, a card that could not be
    started, and numbers (``xid 31``). ``beside``: the number without which it is none; ``without``: numbers
    that say more of it.
    """

    explains: Sequence[str]
    beside: str
    without: Sequence[str]


class _Group(NamedTuple):
    """What came of one check: what is wrong, what is only told, and why it may be more; None where nothing was hidden."""

    bad: List[Check]
    notes: List[str]
    hidden: Optional[str] = None


def judge(answer: Answer, rows: Sequence[Row], earlier: Mapping[Key, Sequence[int]]) -> List[Check]:
    """The checks of :data:`CHECKS`: for each thing that is wrong one, the worst first; one that passes where nothing is.

    Args:
        answer: what the module kernel_log answers.
        rows: the table of compat/kernel_faults.yaml.
        earlier: the earlier boots in which a fault came too.
    """
    if answer["why"]:
        remedy = kernel_log_judge.UNREADABLE_REMEDY
        return [
            checks.incomplete(check, kernel_log_judge.UNREADABLE, evidence=answer["why"], remedy=remedy)
            for check in CHECKS
        ]
    if not answer["lines"]:
        return [checks.skipped(check, kernel_log_judge.EMPTY) for check in CHECKS]
    judges = _Judges({row["name"]: row for row in rows}, earlier)
    result: List[Check] = []
    for check in CHECKS:
        told = [fault for fault in answer["faults"] if judges.rows[fault["name"]]["check"] == check]
        result += _checks(check, answer, judges.group(check, answer, told))
    return result


def without_what_follows(answer: Answer, rows: Sequence[Row]) -> Answer:
    """The answer without what follows from another fault of it, which alone has the right remedy, without what is a fault only beside a
    number that did not come, and without what one that came says better. What names no card is of each.
    """
    causes = {row["name"]: row.get("explains", ()) for row in rows}
    explained = {(each, fault["subject"]) for fault in answer["faults"] for each in causes.get(fault["name"], ())}
    numbers = {_name(event) for event in answer["events"]}
    left_out = {
        row["name"]
        for row in rows
        if row.get("beside", "") not in {"", *numbers} or not numbers.isdisjoint(row.get("without", ()))
    }

    def follows(name: str, place: str) -> bool:
        return any(each == name and ("" in (place, of) or of == place) for each, of in explained)

    return {
        **answer,
        "faults": [
            fault
            for fault in answer["faults"]
            if fault["name"] not in left_out and not follows(fault["name"], fault["subject"])
        ],
        "events": [event for event in answer["events"] if not follows(_name(event), event["bus_id"])],
    }


def _name(event: Event) -> str:
    """A number as a row names it, and what has none by its kind."""
    return f"{event['kind']} {event['code']}" if event["code"] else event["kind"]


def _checks(check: str, answer: Answer, group: _Group) -> List[Check]:
    bad = checks.worst_first(group.bad)
    if bad:
        return kernel_log_judge.limited(bad, 0)
    if group.hidden:
        return [checks.incomplete(check, group.hidden)]
    if answer["more_faults"]:
        reason = f"the kernel log tells of {words.count(answer['more_faults'], 'faults')} more than could be told apart"
        return [checks.incomplete(check, reason, remedy="read it: dmesg --level=emerg,alert,crit,err,warn")]
    if check == AER and not group.notes and not any(_counts(device) for device in answer["hardware"]["devices"]):
        reason = "the kernel counts no errors of PCIe here: a virtual machine, or the firmware keeps them for itself"
        return [checks.skipped(check, reason)]
    found = "; ".join([f"the kernel log names {CHECKS[check]}" if not group.notes else "", *group.notes[:5]]).strip(
        "; "
    )
    begin = "" if answer["since_boot"] else "; the log does not go back to the boot any more"
    return [checks.passed(check, measured=0, unit="faults", reason=found + begin)]


def _counts(device: Device) -> bool:
    return (device["correctable"], device["nonfatal"], device["fatal"]) != (None, None, None)


def _limit(device: Optional[Device]) -> int:
    """Corrected errors a minute that a link may have."""
    fast = device is not None and (device["lanes"], device["speed_gts"]) == (_FAST_LANES, _FAST_GTS)
    return FAST_LINK_LIMIT if fast else LINK_LIMIT


class _Judges:
    """Judges faults by the rows."""

    def __init__(self, rows: Mapping[str, Row], earlier: Mapping[Key, Sequence[int]]) -> None:
        self.rows = rows
        self._earlier = earlier

    def group(self, check: str, answer: Answer, told: Sequence[Fault]) -> _Group:
        if check == AER:
            return self._aer(answer, told)
        if check == MCE:
            return self._mce(answer, told)
        return self._of_log(told)

    def _of_log(self, told: Sequence[Fault]) -> _Group:
        bad = [self._failed(fault) for fault in told if self.rows[fault["name"]]["severity"] != "info"]
        notes = [self._note(fault) for fault in told if self.rows[fault["name"]]["severity"] == "info"]
        return _Group(bad, notes)

    def _failed(self, fault: Fault, of: Optional[str] = None, **rest: object) -> Check:
        """The check of a fault; ``of``: its subject in words, where that is more than its name."""
        row, boots = self.rows[fault["name"]], self._earlier.get((fault["name"], fault["subject"]), ())
        action, remedy = recurrence.stepped_up(row["action"], row["remedy"], boots)
        subject = of or fault["subject"]
        values: Dict[str, object] = {
            "gpu": fault["subject"] if row["check"] == MODULE and fault["subject"].endswith(_FUNCTIONS) else None,
            "measured": fault["count"],
            "expected": 0,
            "unit": "times",
            "reason": row["meaning"]
            + (f", of {subject}" if subject else "")
            + (f"; it came in {recurrence.named(boots)} too" if boots else ""),
            "evidence": fault["message"],
            "action": action,
            "remedy": remedy,
        }
        return checks.failed(row["check"], row["severity"], **{**values, **rest})

    def _note(self, fault: Fault) -> str:
        of = f", of {fault['subject']}" if fault["subject"] else ""
        return f"{self.rows[fault['name']]['meaning']}, {words.count(fault['count'], 'times')}{of}"

    def _aer(self, answer: Answer, told: Sequence[Fault]) -> _Group:
        """Errors of PCIe. The kernel's count of a device is whole; its log may lack lines, which it writes more seldom than errors come."""
        hardware = answer["hardware"]
        left = {(fault["name"], fault["subject"]): fault for fault in told}
        bad: List[Check] = []
        notes: List[str] = []
        for device in hardware["devices"]:
            place = device["bus_id"]
            counts = {
                "aer_fatal": device["fatal"],
                "aer_nonfatal": device["nonfatal"],
                "aer_corrected": device["correctable"],
            }
            for name, count in counts.items():
                fault = left.pop((name, place), None)
                if count:
                    message = f"{device['errors']} ({fault['message']})" if fault else device["errors"]
                    fault = {"name": name, "subject": place, "count": count, "message": message}
                if fault:
                    self._one_aer(fault, device, hardware["uptime"], bad, notes)
        for fault in left.values():
            self._one_aer(fault, None, hardware["uptime"], bad, notes)
        hidden = hardware["devices_unread"] or (None if hardware["uptime"] else "the time since the boot is not known")
        return _Group(bad, notes, hidden)

    def _one_aer(
        self, fault: Fault, device: Optional[Device], uptime: Optional[float], bad: List[Check], notes: List[str]
    ) -> None:
        of = f"the {device['role']} {fault['subject']}" if device else fault["subject"]
        rest: Dict[str, object] = {"gpu": fault["subject"] if device and device["role"] == "card" else None}
        if fault["name"] == "aer_corrected":
            minutes = max((uptime or 0) / 60, 1)
            rate, limit = fault["count"] / minutes, _limit(device)
            if rate <= limit:
                notes.append(
                    f"{words.count(fault['count'], 'corrected errors')} of PCIe in {words.count(round(minutes), 'minutes')}, of {of}"
                )
                return
            rest.update({"measured": round(rate, 1), "expected": limit, "unit": "errors a minute since the boot"})
        bad.append(self._failed(fault, of, **rest))

    def _mce(self, answer: Answer, told: Sequence[Fault]) -> _Group:
        """Machine checks, and the errors of the memory as EDAC counts them; its log tells of the same ones."""
        faults = list(told)
        silent = None
        for memory in answer["hardware"]["memory"]:
            place = memory["controller"].upper()
            counts = {"edac_uncorrected": memory["uncorrected"], "edac_corrected": memory["corrected"]}
            for name, count in counts.items():
                if count is None:
                    silent = f"the memory controller {place} does not say what it counted"
                if count:
                    lines = [fault for fault in faults if (fault["name"], fault["subject"]) == (name, place)]
                    message = lines[0]["message"] if lines else f"{count} in EDAC's count of {place}"
                    faults = [fault for fault in faults if fault not in lines]
                    faults.append({"name": name, "subject": place, "count": count, "message": message})
        group = self._of_log(faults)
        return group._replace(hidden=answer["hardware"]["memory_unread"] or silent)

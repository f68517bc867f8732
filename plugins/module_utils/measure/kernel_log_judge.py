# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the errors of the kernel log mean, those with a number by the rows of compat/xid.yaml: pure, from what kernel_log.py read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Mapping, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Event, Seen


class Meaning(TypedDict):
    """What an error means and what a person does."""

    meaning: str
    severity: str
    action: str
    remedy: str


class Row(Meaning):
    """A row of compat/xid.yaml: the same for the Xid of these numbers."""

    codes: List[int]


CHECK = "kernel.xid"
#: Checks that one machine may have; a fault of a fabric writes of every card and switch.
MOST_CHECKS = 40

_RECOVERY_XID = 154
# "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
_RECOVERY = re.compile(r" to 0x[0-9a-fA-F]+ \(([^)]+)\)")

_UNKNOWN: Meaning = {
    "meaning": "a number that these rules do not know",
    "severity": "warning",
    "action": "contact_support",
    "remedy": "look it up in NVIDIA's catalogue of Xid errors, newest edition; where it comes again, send the vendor the output of "
    "nvidia-bug-report.sh",
}
_SXID: Meaning = {
    "meaning": "an error of an NVSwitch",
    "severity": "warning",
    "action": "contact_support",
    "remedy": "read the log of nvidia-fabricmanager; where it comes again, send the vendor the output of nvidia-bug-report.sh",
}
_INIT: Meaning = {
    "meaning": "the driver could not start the card",
    "severity": "critical",
    "action": "check_hardware",
    "remedy": "read the lines before it in the log: a card that needs the open kernel modules (gpuwright up installs them), or memory "
    "that the firmware did not assign (above 4G decoding); else power the host off and on, then reseat the card and check its power",
}
_FATAL = {"severity": "critical", "action": "reboot"}
_NOT_FATAL = ("info", "warning")


def judge(seen: Seen, rows: Sequence[Row]) -> List[Check]:
    """The check :data:`CHECK` for each number of each card, the worst first; one that passes where nothing asks for something.

    Args:
        seen: what the module kernel_log answers.
        rows: the table of compat/xid.yaml.
    """
    if seen["why"]:
        remedy = "run with become, or let this user read the kernel log (kernel.dmesg_restrict)"
        return [checks.incomplete(CHECK, "the kernel log cannot be read", evidence=seen["why"], remedy=remedy)]
    if not seen["lines"]:
        return [checks.skipped(CHECK, "the kernel log is empty")]
    judged = [_judge(event, rows) for event in seen["events"]]
    bad = checks.worst_first(check for check in judged if check["severity"] != "info")
    if not bad and seen["more"]:
        reason = f"the kernel log names what asks for nothing, and {seen['more']} errors more than could be told apart"
        remedy = "read it for them: dmesg | grep -E 'Xid|SXid|fallen off the bus|RmInitAdapter'"
        return [checks.incomplete(CHECK, reason, measured=seen["more"], unit="errors", remedy=remedy)]
    if not bad:
        return [checks.passed(CHECK, measured=0, unit="errors", reason=_nothing(seen, judged))]
    left_out = len(bad[MOST_CHECKS:]) + seen["more"]
    if left_out:
        last = bad[MOST_CHECKS - 1] if len(bad) >= MOST_CHECKS else bad[-1]
        last["reason"] = f"{last['reason']}; {left_out} errors more are in the kernel log"
    return bad[:MOST_CHECKS]


def _nothing(seen: Seen, notes: List[Check]) -> str:
    """Why nothing is wrong, and what was read for it."""
    found = (
        "the kernel log names no error of a card" if not notes else "the kernel log names only what asks for nothing"
    )
    told = "".join(f"; {check['reason']}, {check['measured']} times, of {check['gpu']}" for check in notes[:5])
    earlier = f"; {seen['earlier']} errors came before the driver was loaded last" if seen["earlier"] else ""
    begin = "" if seen["whole"] else "; it does not go back to the boot any more"
    return found + told + earlier + begin


_NAMES = {"xid": "Xid {}", "sxid": "SXid {}", "init": "RmInitAdapter failed"}
_ROWS: Mapping[str, Sequence[Meaning]] = {"sxid": [_SXID], "init": [_INIT]}


def _judge(event: Event, rows: Sequence[Row]) -> Check:
    meaning = _meaning(event, rows)
    name = _NAMES[event["kind"]].format(event["code"])
    unnamed = "" if event["bus_id"] else "; its line names no card"
    return checks.failed(
        CHECK,
        meaning["severity"],
        gpu=event["bus_id"] or None,
        measured=event["count"],
        expected=0,
        unit="times",
        reason=f"{name}: {meaning['meaning']}{unnamed}",
        evidence=event["message"],
        action=meaning["action"],
        remedy=meaning["remedy"],
    )


def _meaning(event: Event, rows: Sequence[Row]) -> Meaning:
    """The row of an error, with what its own words add: that it is fatal, or which recovery the driver asks for."""
    known: Sequence[Meaning] = _ROWS.get(event["kind"]) or [row for row in rows if event["code"] in row["codes"]]
    meaning = known[0].copy() if known else _UNKNOWN.copy()
    if event["fatal"] and meaning["severity"] in _NOT_FATAL:
        meaning["severity"], meaning["action"] = _FATAL["severity"], _FATAL["action"]
    asked = _RECOVERY.search(event["message"]) if (event["kind"], event["code"]) == ("xid", _RECOVERY_XID) else None
    if asked and asked[1] == "None":
        meaning["severity"], meaning["action"] = "info", "none"
        meaning["meaning"] = "the driver asks for no recovery of the card any more"
    elif asked:
        meaning["action"] = "reboot" if "Reboot" in asked[1] else "reset_gpu"
        meaning["meaning"] = f'{meaning["meaning"]}: "{asked[1]}"'
    return meaning

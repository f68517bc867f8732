# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the errors of the kernel log mean, those with a number by the rows of compat/xid.yaml and compat/sxid.yaml: pure, from what
kernel_log.py read.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Tuple, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, words
from ansible_collections.gpuwright.node.plugins.module_utils.measure import recurrence

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Event, Seen


class Meaning(TypedDict):
    """What an error means and what a person does."""

    meaning: str
    severity: str
    action: str
    remedy: str


class _Row(Meaning):
    codes: List[int]


class Row(_Row, total=False):
    """A row of compat/xid.yaml or compat/sxid.yaml: the same for the errors of these numbers. ``program``: mostly its program's fault."""

    program: bool


class Tables(TypedDict):
    """The rows by which errors are judged. Without those of SXid each is an error of an NVSwitch, as bad as its line says."""

    xid: Sequence[Row]
    sxid: Sequence[Row]


#: An error of one thing: kind, number and place. The same one in another boot is the same again.
Key = Tuple[str, int, str]

CHECK = "kernel.xid"
SXID = "kernel.sxid"
UNREADABLE = "the kernel log cannot be read"
UNREADABLE_REMEDY = "run with become, or let this user read the kernel log (kernel.dmesg_restrict)"
EMPTY = "the kernel log is empty"
#: Checks that one machine may have; a fault of a fabric writes of every card and switch.
MOST_CHECKS = 40

_RECOVERY_XID = 154
# "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
_RECOVERY = re.compile(r" to 0x[0-9a-fA-F]+ \(([^)]+)\)")
# What the driver may ask for (nvmlDeviceGpuRecoveryAction_t), by a word of it, and what a person does.
_ASKED = (
    ("node reboot", "reboot the machine: the driver says that a reset of the card is not enough"),
    (
        "drain",
        "let what runs on the card end and start nothing new there, then reset it (nvidia-smi --gpu-reset -i N), or reboot",
    ),
    ("reset", "end what runs on the card and reset it (nvidia-smi --gpu-reset -i N), or reboot"),
)
_CHANNELS_XID = 45
# "Ch 00000001 caused by previous Xid 149"
_PREVIOUS = re.compile(r"\bcaused by previous Xid ([0-9]{1,4})\b")
_AFTER = "; what ran there has to be started again, and where the card does not take it, reset the card or reboot"

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
    "remedy": "read the lines before it in the log: a card that needs the open kernel modules (see the check driver.modules), or memory "
    "that the firmware did not assign (above 4G decoding); else power the host off and on, then reseat the card and check its power",
}
_FATAL = {"severity": "critical", "action": "reboot"}
_FATAL_REMEDY = "end what runs there and reboot, which resets cards and links; it is fatal by its own word: "
_NOT_FATAL = ("info", "warning")


def judge(seen: Seen, tables: Tables, earlier: Mapping[Key, Sequence[int]] = MappingProxyType({})) -> List[Check]:
    """The check :data:`CHECK` for each number of each card and :data:`SXID` for each of an NVSwitch, the worst first; one of :data:`CHECK`
    that passes where nothing of a card asks for something.

    Args:
        seen: what the module kernel_log answers.
        tables: the tables of compat/.
        earlier: the earlier boots in which an error came too.
    """
    if seen["why"]:
        return [checks.incomplete(CHECK, UNREADABLE, evidence=seen["why"], remedy=UNREADABLE_REMEDY)]
    if not seen["lines"]:
        return [checks.skipped(CHECK, EMPTY)]
    of_switches = [_judge(event, tables, earlier) for event in seen["events"] if event["kind"] == "sxid"]
    return [*_of_cards(seen, tables, earlier), *limited(_bad(of_switches), 0)]


def _of_cards(seen: Seen, tables: Tables, earlier: Mapping[Key, Sequence[int]]) -> List[Check]:
    of_cards = [event for event in seen["events"] if event["kind"] != "sxid"]
    of_cards.sort(key=lambda event: bool(_row(event, tables).get("program")))
    told = {key_of(event) for event in of_cards}
    judged = [_judge(event, tables, earlier) for event in of_cards if _key_of_cause(event) not in told]
    bad = _bad(judged)
    if not bad and seen["more"]:
        reason = f"the kernel log names what asks for nothing, and {words.count(seen['more'], 'errors')} more than could be told apart"
        remedy = "read it for them: dmesg | grep -E 'Xid|SXid|fallen off the bus|RmInitAdapter'"
        return [checks.incomplete(CHECK, reason, measured=seen["more"], unit="errors", remedy=remedy)]
    if not bad:
        return [checks.passed(CHECK, measured=0, unit="errors", reason=_nothing(seen, judged))]
    return limited(bad, seen["more"])


def limited(bad: List[Check], more: int) -> List[Check]:
    """At most :data:`MOST_CHECKS` of them; the last one says how many were left out. ``more``: errors that were none of them already."""
    kept, left_out = bad[:MOST_CHECKS], len(bad[MOST_CHECKS:]) + more
    if kept and left_out:
        kept[-1]["reason"] = (
            f"{kept[-1]['reason']}; {words.count(left_out, 'errors')} more {words.verb(left_out, 'are')} in the kernel log"
        )
    return kept


def _bad(judged: Sequence[Check]) -> List[Check]:
    return checks.worst_first(check for check in judged if check["severity"] != "info")


def _nothing(seen: Seen, notes: List[Check]) -> str:
    """Why nothing is wrong, and what was read for it."""
    found = (
        "the kernel log names no error of a card" if not notes else "the kernel log names only what asks for nothing"
    )
    told = "".join(
        f"; {check['reason']}, {words.count(check['measured'], 'times')}, of {check['gpu']}" for check in notes[:5]
    )
    earlier = (
        f"; {words.count(seen['earlier'], 'errors')} came before the driver was loaded last" if seen["earlier"] else ""
    )
    begin = "" if seen["whole"] else "; it does not go back to the boot any more"
    return found + told + earlier + begin


_NAMES = {"xid": "Xid {}", "sxid": "SXid {}", "init": "RmInitAdapter failed"}


def key_of(event: Event) -> Key:
    """What makes an error the same in another boot."""
    return event["kind"], event["code"], event["bus_id"]


def name_of(event: Event) -> str:
    """An error as people call it."""
    return _NAMES[event["kind"]].format(event["code"])


def _judge(event: Event, tables: Tables, earlier: Mapping[Key, Sequence[int]]) -> Check:
    meaning, boots = meaning_of(event, tables), earlier.get(key_of(event), ())
    action, remedy = recurrence.stepped_up(meaning["action"], meaning["remedy"], boots)
    unnamed = "" if event["bus_id"] else "; its line names no card"
    again = f"; it came in {recurrence.named(boots)} too" if boots else ""
    return checks.failed(
        SXID if event["kind"] == "sxid" else CHECK,
        meaning["severity"],
        gpu=event["bus_id"] or None,
        measured=event["count"],
        expected=0,
        unit="times",
        reason=f"{name_of(event)}: {meaning['meaning']}{unnamed}{again}",
        evidence=event["message"],
        action=action,
        remedy=remedy,
    )


def meaning_of(event: Event, tables: Tables) -> Meaning:
    """The row of an error, with what its own words add: that it is fatal, or which recovery the driver asks for."""
    meaning: Meaning = _row(event, tables).copy()
    if event["fatal"] and meaning["severity"] in _NOT_FATAL:
        meaning["severity"], meaning["action"] = _FATAL["severity"], _FATAL["action"]
        meaning["remedy"] = _FATAL_REMEDY + meaning["remedy"]
    asked = _RECOVERY.search(event["message"]) if (event["kind"], event["code"]) == ("xid", _RECOVERY_XID) else None
    if asked and asked[1] == "None":
        meaning["severity"], meaning["action"] = "info", "none"
        meaning["meaning"] = "the driver asks for no recovery of the card any more"
    elif asked:
        meaning["action"] = "reboot" if "Reboot" in asked[1] else "reset_gpu"
        meaning["meaning"] = f'{meaning["meaning"]}: "{asked[1]}"'
        wished = asked[1].lower()
        meaning["remedy"] = next((remedy for word, remedy in _ASKED if word in wished), meaning["remedy"])
    return _with_cause(event, meaning, tables)


def _cause(event: Event) -> Optional[int]:
    """The number of the error that a line names as the reason of its own."""
    found = _PREVIOUS.search(event["message"]) if (event["kind"], event["code"]) == ("xid", _CHANNELS_XID) else None
    return int(found[1]) if found and int(found[1]) != _CHANNELS_XID else None


def _key_of_cause(event: Event) -> Optional[Key]:
    """The error whose line may be in the log as well: then it is told by that alone."""
    code = _cause(event)
    return None if code is None else (event["kind"], code, event["bus_id"])


def _with_cause(event: Event, meaning: Meaning, tables: Tables) -> Meaning:
    """Channels that were torn down, as bad as the error that the line names, which the driver may not have written of that card."""
    code = _cause(event)
    if code is None:
        return meaning
    cause = _row({**event, "code": code}, tables)
    if cause["severity"] == "info":
        return meaning
    return {
        "meaning": f"{meaning['meaning']}, Xid {code} ({cause['meaning']})",
        "severity": cause["severity"],
        "action": cause["action"],
        "remedy": cause["remedy"] + _AFTER,
    }


def _row(event: Event, tables: Tables) -> Meaning:
    if event["kind"] == "init":
        return _INIT
    rows, unknown = (tables["sxid"], _SXID) if event["kind"] == "sxid" else (tables["xid"], _UNKNOWN)
    return next((row for row in rows if event["code"] in row["codes"]), unknown)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the kernel log means, by the tables of compat/. Judged in module_utils/measure/, where nodes judge a part of it too."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    kernel_boots_judge,
    kernel_faults_judge,
    kernel_log_judge,
)
from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log_judge import MOST_CHECKS, SXID

from ..rules import Rules, hosts
from . import judge_hosts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_boots import Answer
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log import Seen
    from ansible_collections.gpuwright.node.plugins.module_utils.measure.kernel_log_judge import Key, Tables

#: Every check that is made of a kernel log, but the one of earlier boots, which is asked for.
IDS = (kernel_log_judge.CHECK, SXID, *kernel_faults_judge.CHECKS)

_NOT_SUPPORTED = "card_not_supported"
_SLEPT = "slept"
_VIRTUAL = "it is a virtual card (vGPU), which the guest driver of NVIDIA's vGPU software supports alone"

__all__ = ["IDS", "MOST_CHECKS", "judge", "numbers"]


def judge(answer: Answer, rules: Rules, facts: Facts | None = None) -> list[Check]:
    """Every check of the kernel log: the numbers of cards and NVSwitches, the other faults, and the earlier boots. ``facts``: what is known
    of the machine beside it.
    """
    found = _judge(_without_sleep(answer, facts), rules)
    if facts is None:
        return found
    found = judge_hosts.of_guest(facts, found)
    return [_of_virtual_card(check, rules) for check in found] if hosts.from_facts(facts).vgpu else found


def _without_sleep(answer: Answer, facts: Facts | None) -> Answer:
    """The answer without what tells of a sleep, where the driver is not known to lose the memory of its cards in it."""
    driver = hosts.driver_of(facts) if facts is not None else None
    if driver and driver.get("keeps_memory") is False:
        return answer
    return {**answer, "faults": [fault for fault in answer["faults"] if fault["name"] != _SLEPT]}


def _of_virtual_card(check: Check, rules: Rules) -> Check:
    """A driver that does not support the card, where that is a virtual one: each ordinary driver refuses it."""
    row = next(row for row in rules["kernel_faults"]["rows"] if row["name"] == _NOT_SUPPORTED)
    if check["id"] != row["check"] or row["meaning"] not in (check["reason"] or ""):
        return check
    return {
        **check,
        "reason": f"{check['reason']}: {_VIRTUAL}",
        "remedy": judge_hosts.GUEST_DRIVER,
        "action": "install",
    }


def _judge(answer: Answer, rules: Rules) -> list[Check]:
    faults = rules["kernel_faults"]["rows"]
    answer = kernel_faults_judge.without_what_follows(answer, faults)
    boots = answer["journal"]["boots"]
    numbered = numbers(answer, rules, kernel_boots_judge.events_of(boots))
    return [
        *numbered,
        *_without_sxid(answer, numbered),
        *kernel_faults_judge.judge(answer, faults, kernel_boots_judge.faults_of(boots)),
        *kernel_boots_judge.judge(answer, _tables(rules), {row["name"]: row for row in faults}),
    ]


def numbers(seen: Seen, rules: Rules, earlier: Mapping[Key, Sequence[int]] = MappingProxyType({})) -> list[Check]:
    """The checks of the numbers of cards and NVSwitches; ``earlier``: the earlier boots in which an error came too."""
    return kernel_log_judge.judge(seen, _tables(rules), earlier)


def _tables(rules: Rules) -> Tables:
    return {"xid": rules["xid"]["rows"], "sxid": rules["sxid"]["rows"]}


def _without_sxid(answer: Answer, numbers: list[Check]) -> list[Check]:
    """The check of NVSwitches where the log tells of nothing that they ask for."""
    if answer["why"]:
        remedy = kernel_log_judge.UNREADABLE_REMEDY
        return [checks.incomplete(SXID, kernel_log_judge.UNREADABLE, evidence=answer["why"], remedy=remedy)]
    if not answer["lines"]:
        return [checks.skipped(SXID, kernel_log_judge.EMPTY)]
    if any(check["id"] == SXID for check in numbers):
        return []
    notes = [event for event in answer["events"] if event["kind"] == "sxid"]
    if not notes and not any(device["role"] == "switch" for device in answer["hardware"]["devices"]):
        return [checks.skipped(SXID, "no NVSwitch is on the PCI bus")]
    reason = "the kernel log names no error of an NVSwitch"
    if notes:
        told = ", ".join(sorted({f"SXid {event['code']}" for event in notes})[:5])
        reason = f"the kernel log names only what asks for nothing: {told}"
    return [checks.passed(SXID, measured=0, unit="errors", reason=reason)]

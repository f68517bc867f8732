"""The earlier boots of the journal: what is over, what is not, and what it means that an error comes again."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    kernel_boots,
    kernel_faults,
    kernel_log,
    recurrence,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge_kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.modules import run_module

from .conftest import log_answer
from .test_kernel_log import FAULT, HANG, OFF

BOOTED = "[    0.000000] node7 kernel: Linux version 6.8.0"
CARD = "00000000:3B:00.0"
NOT_REMAPPED = (
    "NVRM: Xid (PCI:0000:3b:00): 64, pid=7, Row Remapper Error: (0x1) - All reserved rows for bank are remapped"
)
DISK = "EXT4-fs (md0): Remounting filesystem read-only"
#: What journalctl says of a boot that it does not have, in its older and its newer words.
NO_BOOT = [
    "Data from the specified boot (-2) is not available: No such boot ID in journal",
    "No journal boot entry found from the specified boot offset (-2).",
    "No journal boot entry found for the specified boot (-2).",
]


class Journal:
    """A journal with these boots, the newest first; what it says of the next one."""

    def __init__(self, *boots: list[str], said: str = NO_BOOT[1]) -> None:
        self.boots, self.said = boots, said
        self.asked: list[str] = []
        self.limits: list[float] = []

    def __call__(self, argv: list[str], timeout: float) -> run.Result:
        self.asked.append(next(each for each in argv if each.startswith("--boot=")))
        self.limits.append(timeout)
        number = -int(self.asked[-1].removeprefix("--boot="))
        if number > len(self.boots):
            return run.Result(1, "", self.said, 0.1, None)
        return run.Result(0, "\n".join([BOOTED, *self.boots[number - 1]]), "", 0.1, None)


def earlier(root: Path, journal: Journal, wanted: int = 3) -> kernel_boots.Journal:
    return kernel_boots.journal(wanted, *kernel_log.read_earlier(wanted, journal), Host(root=str(root)))


def judged(
    tmp_path: Path, now: list[str], *boots: list[str], wanted: int = 3, kept: bool = True, **how: Any
) -> list[Check]:
    """What is not fine on a machine with this log and these earlier boots, through the gate."""
    if kept:
        (tmp_path / "var/log/journal").mkdir(parents=True, exist_ok=True)
    journal = earlier(tmp_path, Journal(*boots, **how), wanted)
    answer = log_answer(**kernel_log.events(now), **kernel_faults.faults(now), journal=journal)
    found = judge_kernel_log.judge(json.loads(gate.admit("kernel_log", json.dumps(answer))), load_rules())
    return [check for check in found if check["status"] != "pass" and check["id"] != "kernel.sxid"]


def passed(tmp_path: Path, *boots: list[str]) -> str:
    """Why the check of earlier boots passes."""
    (tmp_path / "var/log/journal").mkdir(parents=True, exist_ok=True)
    journal = earlier(tmp_path, Journal(*boots))
    [check] = [
        check
        for check in judge_kernel_log.judge({**log_answer(), "journal": journal}, load_rules())  # type: ignore[typeddict-item]  # an Any
        if check["id"] == "kernel.earlier_boots"
    ]
    assert check["status"] == "pass"
    return str(check["reason"])


def test_only_the_boots_that_are_wanted_are_read() -> None:
    journal = Journal([], [], [])
    logs, why = kernel_log.read_earlier(2, journal)
    assert [log.boot for log in logs] == [-1, -2]
    assert journal.asked == ["--boot=-1", "--boot=-2"]
    assert why is None
    none = Journal([])
    assert kernel_log.read_earlier(0, none) == ([], None)
    assert none.asked == []


def test_an_error_of_an_earlier_boot_is_a_warning_with_the_number_of_the_boot(tmp_path: Path) -> None:
    [check] = judged(tmp_path, [], [], [HANG])
    assert (check["id"], check["status"], check["severity"]) == ("kernel.earlier_boots", "warn", "warning")
    assert str(check["reason"]).startswith("Xid 119: ")
    assert str(check["reason"]).endswith("in boot -2")
    assert (check["gpu"], check["action"]) == ("00000000:9B:00.0", "none"), "a boot came since"
    [check] = judged(tmp_path, [], [DISK])
    assert (check["status"], check["severity"], check["action"]) == ("warn", "warning", "check_hardware")
    assert check["gpu"] is None


def test_what_an_application_did_in_an_earlier_boot_is_over(tmp_path: Path) -> None:
    assert judged(tmp_path, [], [FAULT], [FAULT]) == []
    assert "3 earlier boots" not in passed(tmp_path, [FAULT])
    assert "the journal has no more of the 3" in passed(tmp_path, [FAULT])
    assert "1 error of theirs is over" in passed(tmp_path, [FAULT])


def test_what_ends_with_the_hardware_is_not_over(tmp_path: Path) -> None:
    [check] = judged(tmp_path, [], [], [NOT_REMAPPED])
    assert (check["status"], check["severity"], check["action"]) == ("fail", "fatal", "rma")
    [check] = judged(tmp_path, [], [OFF])
    assert (check["status"], check["action"]) == ("warn", "none")
    [check] = judged(tmp_path, [], [OFF], [], [OFF])
    assert (check["status"], check["severity"], check["action"]) == ("fail", "fatal", "check_hardware")
    assert "in boots -1, -3" in str(check["reason"])
    [check] = judged(tmp_path, [], [HANG], [HANG], [HANG])
    assert (check["status"], check["severity"], check["action"]) == ("warn", "warning", "check_hardware")
    other = OFF.replace("3b:00", "5e:00")
    assert {check["status"] for check in judged(tmp_path, [], [OFF], [other])} == {"warn"}, "two cards, each once"


@pytest.mark.parametrize(
    ("line", "boots", "action"),
    [
        (HANG, 0, "reset_gpu"),
        (HANG, 1, "reboot"),
        (HANG, 2, "check_hardware"),
        (HANG, 3, "check_hardware"),
        (OFF, 0, "reboot"),
        (OFF, 1, "check_hardware"),
        (FAULT, 3, "restart_app"),
        (NOT_REMAPPED, 2, "rma"),
        ("pcieport 0000:00:03.1: AER: device recovery failed", 1, "check_hardware"),
        (DISK, 2, "check_hardware"),
    ],
)
def test_what_comes_again_asks_for_the_next_step(line: str, boots: int, action: str, tmp_path: Path) -> None:
    [check] = judged(tmp_path, [line], *[[line]] * boots, wanted=boots)
    assert check["action"] == action
    assert ("it came in boot" in str(check["reason"])) == (boots > 0)
    stepped = boots > 0 and action in recurrence.STEPS and line != DISK
    assert ("came again" in str(check["remedy"])) == stepped


def test_another_card_does_not_come_again(tmp_path: Path) -> None:
    other = HANG.replace("9b:00", "1b:00")
    now, past = judged(tmp_path, [HANG], [other])
    assert (now["id"], now["action"]) == ("kernel.xid", "reset_gpu")
    assert (past["id"], past["gpu"]) == ("kernel.earlier_boots", "00000000:1B:00.0")


def test_a_journal_that_does_not_outlive_a_boot_is_incomplete_and_says_what_to_do(tmp_path: Path) -> None:
    [check] = judged(tmp_path, [], kept=False)
    assert (check["id"], check["status"], check["action"]) == ("kernel.earlier_boots", "incomplete", "configure")
    assert "Storage=persistent" in str(check["remedy"])


@pytest.mark.parametrize("said", NO_BOOT)
def test_a_machine_that_booted_once_has_no_earlier_boot(said: str, tmp_path: Path) -> None:
    [check] = judged(tmp_path, [], said=said)
    assert (check["status"], check["evidence"]) == ("skip", said)


def test_a_journal_that_cannot_be_read_is_incomplete(tmp_path: Path) -> None:
    said = "No journal files were opened due to insufficient permissions."
    [check] = judged(tmp_path, [], said=said)
    assert (check["status"], check["evidence"]) == ("incomplete", said)
    [check] = judged(tmp_path, [], [], said="journalctl: Bad message")
    assert (check["status"], check["evidence"]) == ("incomplete", "journalctl: Bad message")
    assert "only 1 of 3" in str(check["reason"])


def test_nobody_is_told_of_earlier_boots_who_did_not_ask(tmp_path: Path) -> None:
    assert judged(tmp_path, [], [OFF], [OFF], wanted=0, kept=False) == []


def test_a_journal_that_takes_long_is_given_up_and_what_was_read_counts() -> None:
    now = iter([0.0, 0.0, 100.0, 121.0])
    journal = Journal([], [], [])
    logs, why = kernel_log.read_earlier(3, journal, lambda: next(now))
    assert [log.boot for log in logs] == [-1, -2]
    assert "120 s" in str(why)
    assert journal.limits == [30.0, 20.0]


def test_an_earlier_boot_full_of_errors_keeps_the_answer_small(tmp_path: Path) -> None:
    lines = [f"NVRM: Xid (PCI:0000:{card:02x}:00): 79, {'x' * 1800}" for card in range(190)]
    lines += [f"Out of memory: Killed process 1 (prog{number}) x" for number in range(190)]
    boot = earlier(tmp_path, Journal(lines), 1)["boots"][0]
    assert (len(boot["events"]), boot["more"]) == (kernel_boots.MOST_OF_BOOT, 190 - kernel_boots.MOST_OF_BOOT)
    assert (len(boot["faults"]), boot["more_faults"]) == (kernel_boots.MOST_OF_BOOT, 190 - kernel_boots.MOST_OF_BOOT)
    boots = [{**boot, "boot": -number} for number in range(1, kernel_boots.MOST_BOOTS + 1)]
    answer = log_answer(journal={"wanted": 10, "kept": True, "boots": boots, "why": None})
    assert json.loads(gate.admit("kernel_log", json.dumps(answer)))
    # 50 of the card's and 50 programs (a warning: over) were told; 40 of the former are shown.
    assert "290 errors more" in str(judged(tmp_path, [], lines)[-1]["reason"])


def test_errors_that_could_not_be_told_apart_do_not_pass(tmp_path: Path) -> None:
    notes = [f"NVRM: Xid (PCI:0000:{card:02x}:00): 43, pid=7" for card in range(100)]
    [check] = judged(tmp_path, [], notes)
    assert (check["id"], check["status"]) == ("kernel.earlier_boots", "incomplete")
    assert "50 errors more" in str(check["reason"])


@pytest.mark.parametrize("boots", [-1, 11, 10**9])
def test_the_module_refuses_a_number_of_boots_that_it_would_not_read(boots: int) -> None:
    module = importlib.import_module("ansible_collections.gpuwright.node.plugins.modules.kernel_log")
    answer = run_module(module, boots=boots)
    assert answer["failed"]
    assert answer["msg"] == f"expected boots from 0 to 10, found {boots}"


def test_the_module_answers_as_the_gate_wants_it() -> None:
    module = importlib.import_module("ansible_collections.gpuwright.node.plugins.modules.kernel_log")
    answer = run_module(module, boots=1, check=True)
    assert judge_kernel_log.judge(json.loads(gate.admit("kernel_log", json.dumps(answer))), load_rules())
    assert answer["changed"] is False

"""What NVIDIA's driver numbered in the kernel log, as dmesg and the journal show it, and what the table makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge_kernel_log
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.quick import quickly

from .conftest import log_answer

LOADED = "[    9.1] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05"
#: Own lines in the shapes of real ones (validation.md, section 4: "Line forms met").
HANG = "NVRM: Xid (PCI:0000:9b:00): 119, pid=1, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP!"
OFF = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FAULT = "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS"


def judged(*lines: str, loaded: bool = True, **changes: Any) -> list[Check]:
    """The checks of the numbers in a log of these lines, which come through the gate as a node's answer."""
    log = kernel_log.events([LOADED, *lines] if loaded else lines)
    answer = log_answer(**{"lines": len(lines) + 1, **log, **changes})
    found = judge_kernel_log.judge(json.loads(gate.admit("kernel_log", json.dumps(answer))), load_rules())
    return [check for check in found if check["id"] == "kernel.xid"]


def test_a_log_without_an_error_passes() -> None:
    [check] = judged("[   12.0] nvidia 0000:3b:00.0: enabling device (0000 -> 0002)")
    assert (check["id"], check["status"]) == ("kernel.xid", "pass")


LOST = "NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned from rmStatus"


@pytest.mark.parametrize("lines", [[LOST, LOST], [LOST, OFF, LOST], [OFF, LOST]])
def test_a_card_that_is_lost_by_its_status_is_told_once(lines: list[str]) -> None:
    [check] = judged(*lines)
    assert str(check["reason"]).startswith("Xid 79: ")
    assert check["gpu"] == ("00000000:3B:00.0" if OFF in lines else None)


def test_an_error_that_is_fatal_by_its_own_word_has_a_remedy_that_ends_it() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 145, pid=7, name=x, RLW_REMAP {} XC1 i0 Link 05 (0x02409a82)"
    [fatal], [other] = judged(line.format("Fatal")), judged(line.format("Nonfatal"))
    assert [("reboot" in str(check["remedy"]), check["status"]) for check in (fatal, other)] == [
        (True, "fail"),
        (False, "warn"),
    ]


PREFIXES = [
    "[6781741.548779] ",
    "[Sun Feb 23 16:24:18 2025] ",
    "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ",
    "2024-11-15T12:02:03,470068+00:00 ",
    "Nov 15 12:02:03 node7 kernel: ",
    "[   71.002113] node7 kernel: ",
    "4,1234,567,-;",
    "",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_card_that_fell_off_the_bus_fails_however_the_log_is_shown(prefix: str) -> None:
    [check] = judged(prefix + OFF)
    assert (check["status"], check["severity"], check["gpu"]) == ("fail", "fatal", "00000000:3B:00.0")
    assert str(check["reason"]).startswith("Xid 79: ")
    assert "fallen off the bus" in str(check["evidence"])


#: What the driver says of a card that is gone when it is loaded, as NVIDIA's open kernel modules and users' logs have it.
_OFF = "fallen off the bus and is not responding to commands."
GONE = [
    ["NVRM: The NVIDIA GPU 0000:3b:00.0", "NVRM: (PCI ID: 10de:2330) installed in this system has", f"NVRM: {_OFF}"],
    ["NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330)", f"NVRM: installed in this system has {_OFF}"],
    ["NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330) installed in this", f"NVRM: system has {_OFF}"],
    [f"NVRM: The NVIDIA GPU 0000:3b:00.0 installed in this system has {_OFF}"],
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("said", GONE)
def test_a_card_that_was_gone_when_the_driver_came_fails_however_its_lines_are_broken(
    said: list[str], prefix: str
) -> None:
    for later in (prefix, " " * 15):
        lines = [prefix + said[0], *(later + line for line in said[1:])]
        [check] = judged(*lines, "nvidia 0000:3b:00.0: probe with driver nvidia failed with error -1")
        assert (check["status"], check["severity"], check["gpu"]) == ("fail", "fatal", "00000000:3B:00.0")
        assert check["measured"] == 1
        assert "fallen off the bus" in str(check["evidence"])
    [check] = judged(prefix + "\\x0a".join(said))
    assert (check["severity"], check["gpu"]) == ("fatal", "00000000:3B:00.0")


def test_a_card_that_is_gone_while_the_driver_loads_for_the_others_is_not_taken_for_an_earlier_drivers() -> None:
    begins = "nvidia-nvlink: Nvlink Core is being initialized, major device number 235"
    failed = "NVRM: The NVIDIA probe routine failed for 1 device(s)."
    for said in GONE:
        [check] = judged(begins, *said, failed, LOADED)
        assert (check["severity"], check["gpu"]) == ("fatal", "00000000:3B:00.0")
        [check] = judged(HANG, begins, *said, failed, LOADED, loaded=False)
        assert (check["severity"], check["measured"]) == ("fatal", 1)
        [check] = judged(begins, *said, failed, LOADED, begins, LOADED)
        assert check["status"] == "pass", "it came back"
        [check] = judged(begins, *said, "NVRM: None of the NVIDIA devices were initialized.", begins, LOADED)
        assert check["status"] == "pass", "it came back before the driver was ever loaded"


def test_what_else_the_driver_says_of_a_card_that_it_refuses_puts_none_off_the_bus() -> None:
    other = "NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:1db1)"
    [check] = judged(other, "NVRM: installed in this system requires use of the NVIDIA open kernel modules.")
    assert check["status"] == "pass"
    lines = [other, "NVRM: installed in this system is not supported", *["NVRM: more words"] * 9, GONE[0][2]]
    [check] = judged(*lines)
    assert (check["severity"], check["gpu"]) == ("fatal", None), "the card that is gone is not the one of long ago"


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x22:0x56:1017)", "00000000:3B:00.0"),
        ("NVRM: GPU at 0000:3b:00.0: RmInitAdapter failed! (0x22:0x56:1017)", "00000000:3B:00.0"),
        ("NVRM: GPU at PCI:0000:3b:00: RmInitAdapter failed! (0x26:0xffff:1290)", "00000000:3B:00.0"),
        ("NVRM: GPU-0000:3b:00: RmInitAdapter failed!", "00000000:3B:00.0"),
        ("NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 0", "00000000:3B:00.0"),
        ("NVRM: RmInitAdapter failed! (0x24:0xffff:1211)", None),
        ("NVRM: GPU0 RmInitAdapter failed! (0x24:0xffff:1211)", None),
        ("NVRM: rm_init_adapter failed for device bearing minor number 0", None),
    ],
)
def test_a_card_that_the_driver_could_not_start_fails(line: str, gpu: str | None, prefix: str) -> None:
    [check] = judged(prefix + line)
    assert (check["status"], check["severity"], check["gpu"]) == ("fail", "critical", gpu)
    assert str(check["reason"]).startswith("RmInitAdapter failed")
    assert check["evidence"] == line


def test_a_failure_to_start_that_is_told_twice_is_counted_once_and_gone_with_the_driver() -> None:
    twice = [
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x22:0x56:1017)",
        "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 0",
    ]
    [check] = judged(*twice * 3)
    assert (check["measured"], check["expected"], check["unit"]) == (3, 0, "times")
    assert "0x22:0x56:1017" in str(check["evidence"])
    [first, second] = judged(*twice, *GONE[0])
    assert (first["severity"], second["severity"]) == ("fatal", "critical")
    assert judged(*twice, LOADED)[0]["status"] == "pass"
    assert judged("NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM")[0]["status"] == "pass"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7, Contained: CE User Channel (0x9). RST: No", 94),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:01): 43, pid=7", 43),
        ("NVRM: Xid (PCI:0000:01:00.0): 13, Graphics Exception: ESR 0x546fb0=0x11f000e", 13),
        ("NVRM: Xid (0000:01:00): 13, 0003 00000000", 13),
        ("NVRM: Xid (PCI:0000:01:00): 48", 48),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", 79),
        ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", 79),
        ("NVRM: GPU at PCI:0000:01:00 has fallen off the bus.", 79),
    ],
)
def test_every_shape_of_a_line_is_read(line: str, code: int) -> None:
    [event] = kernel_log.events([line])["events"]
    assert (event["kind"], event["code"], event["bus_id"]) == ("xid", code, "00000000:01:00.0")


def test_the_same_number_is_told_once_for_each_card_with_how_often_it_came() -> None:
    other = HANG.replace("9b:00", "1b:00")
    found = judged(*[HANG] * 5, *[FAULT] * 30, other)
    assert [(str(each["gpu"])[9:11], each["measured"], each["status"]) for each in found] == [
        ("9B", 5, "fail"),
        ("1B", 1, "fail"),
        ("3B", 30, "warn"),
    ]


def test_a_fault_of_the_card_is_told_before_those_of_programs_of_the_same_severity() -> None:
    contained = "NVRM: Xid (PCI:0000:5e:00): 94, pid=9, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
    found = judged(FAULT, contained, FAULT.replace("31", "13"))
    assert [str(check["reason"]).split(":")[0] for check in found] == ["Xid 94", "Xid 31", "Xid 13"]
    assert str(judged(FAULT, contained, OFF)[0]["reason"]).startswith("Xid 79: ")


def test_what_asks_for_nothing_passes_and_is_told() -> None:
    [check] = judged("NVRM: Xid (PCI:0000:3b:00): 43, pid=7", "NVRM: Xid (PCI:0000:3b:00): 43, pid=8")
    assert check["status"] == "pass"
    assert "Xid 43" in str(check["reason"])
    assert "2 times" in str(check["reason"])


def test_a_number_that_nobody_knows_is_a_warning_and_a_failure_where_its_line_says_fatal() -> None:
    [check] = judged("NVRM: Xid (PCI:0000:3b:00): 9917, pid=7, something new")
    assert (check["status"], check["action"]) == ("warn", "contact_support")
    [check] = judged("NVRM: Xid (PCI:0000:3b:00): 9917, pid=7, NEWUNIT Fatal XC0 i0")
    assert check["status"] == "fail"


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=Fatal Frame, Ch 00000008, MMU Fault",
        "NVRM: Xid (PCI:0000:3b:00): 9917, pid=7, NEWUNIT Non-Fatal XC0 i0",
    ],
)
def test_the_word_fatal_counts_where_it_is_the_drivers_and_means_it(line: str) -> None:
    assert judged(line)[0]["status"] == "warn"


@pytest.mark.parametrize(("word", "status"), [("Fatal", "fail"), ("Nonfatal", "warn")])
def test_an_error_of_nvlink_5_is_as_bad_as_its_line_says(word: str, status: str) -> None:
    [check] = judged(
        f"NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  {word}   XC0 i0 Link 03 (0x004505c6 0x00000000)"
    )
    assert (check["status"], check["gpu"]) == (status, "00000018:01:00.0")
    assert "whether it is fatal" not in str(check["remedy"]), "that is read already"


@pytest.mark.parametrize(
    ("asked", "status", "action"),
    [("GPU Reset Required", "fail", "reset_gpu"), ("Node Reboot Required", "fail", "reboot"), ("None", "pass", None)],
)
def test_the_recovery_that_the_driver_asked_for_last_counts(asked: str, status: str, action: str | None) -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 ({})"
    [check] = judged(line.format("Drain and Reset"), line.format(asked))
    assert (check["status"], check["action"]) == (status, action)


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ("GPU Reset Required", "--gpu-reset"),
        ("Node Reboot Required", "a reset of the card is not enough"),
        ("Drain P2P", "start nothing new there"),
        ("Drain and Reset", "start nothing new there"),
    ],
)
def test_a_recovery_is_told_as_what_a_person_does(asked: str, remedy: str) -> None:
    [check] = judged(f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 ({asked})")
    assert remedy in str(check["remedy"])


CHANNELS = "NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=python3, Ch 00000001 caused by previous Xid {}"


def test_channels_that_were_torn_down_are_as_bad_as_the_error_that_their_line_names() -> None:
    [check] = judged(CHANNELS.format(149))
    assert (check["status"], "Xid 149 (an error of NVLink 5)" in str(check["reason"])) == ("warn", True)
    assert "reset the card or reboot" in str(check["remedy"])
    [check] = judged(CHANNELS.format(48))
    assert (check["status"], check["action"]) == ("fail", "reset_gpu")


@pytest.mark.parametrize("code", [45, 163])
def test_channels_that_fell_with_nothing_worth_telling_ask_for_nothing(code: int) -> None:
    assert judged(CHANNELS.format(code))[0]["status"] == "pass"


def test_an_error_that_has_a_line_of_its_own_is_told_by_that_alone() -> None:
    found = judged(
        "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT  Nonfatal XC0 i0 Link 03 (0x0)", CHANNELS.format(149)
    )
    assert ["Xid 149" in str(check["reason"]) and "cleaning" not in str(check["reason"]) for check in found] == [True]
    other = "NVRM: Xid (PCI:0000:5e:00): 149, NETIR_LINK_EVT  Nonfatal XC0 i0 Link 03 (0x0)"
    assert len(judged(other, CHANNELS.format(149))) == 2


def test_errors_of_a_driver_that_was_replaced_do_not_judge_the_one_that_runs() -> None:
    [check] = judged(HANG, HANG, LOADED, loaded=False)
    assert check["status"] == "pass"
    assert "2 errors came before" in str(check["reason"])
    assert judged(LOADED, HANG, loaded=False)[0]["status"] == "fail"


def test_a_log_that_cannot_be_read_is_incomplete_and_an_empty_one_says_nothing() -> None:
    [check] = judged(why="dmesg: read kernel buffer failed: Operation not permitted", lines=0)
    assert check["status"] == "incomplete"
    assert judged(lines=0)[0]["status"] == "skip"


def test_a_fabric_that_fails_everywhere_is_told_within_bounds() -> None:
    lines = [f"NVRM: Xid (PCI:0000:{card:02x}:00): {code}, x" for card in range(100) for code in (13, 31, 79)]
    found = judged(*lines)
    assert len(found) == judge_kernel_log.MOST_CHECKS
    assert found[0]["severity"] == "fatal"
    assert f"{300 - len(found)} errors more" in str(found[-1]["reason"])


def test_notes_in_masses_do_not_hide_an_error_behind_them() -> None:
    notes = [
        f"NVRM: Xid (PCI:0000:{card:02x}:00): {code}, x" for card in range(40) for code in (14, 37, 38, 43, 44, 45)
    ]
    [check] = judged(*notes, OFF)
    assert check["status"] == "incomplete"
    assert "41 errors more" in str(check["reason"])


class Node:
    """A machine with these logs; None for a program that fails."""

    def __init__(self, dmesg: str | None, journal: str | None) -> None:
        self.logs = {"dmesg": dmesg, "journalctl": journal}
        self.asked: list[str] = []

    def __call__(self, argv: list[str], timeout: float) -> run.Result:
        self.asked.append(argv[0])
        log = self.logs[argv[0]]
        return run.Result(0 if log is not None else 1, log or "", "Operation not permitted", 0.1, None)


def test_the_journal_is_asked_only_where_the_ring_of_the_kernel_has_lost_the_boot() -> None:
    whole = Node("[0.0] Linux version 6.8\n[9.0] usb\n", None)
    assert kernel_log.read(whole).whole
    assert whole.asked == ["dmesg"]
    loaded = Node(f"{LOADED}\n", "[0.0] node7 kernel: Linux version 6.8\n[5.0] node7 kernel: usb\n")
    assert kernel_log.read(loaded).whole
    assert loaded.asked == ["dmesg"]
    assert kernel_log.reaches_boot(kernel_log.read(loaded, since_boot=True).lines)
    assert loaded.asked == ["dmesg", "dmesg", "journalctl"]
    lost = Node("[900.0] usb\n", f"[0.0] node7 kernel: Linux version 6.8\n[5.0] node7 kernel: {HANG}\n")
    log = kernel_log.read(lost)
    assert log.whole
    assert len(kernel_log.events(log.lines)["events"]) == 1
    assert not kernel_log.read(Node("[900.0] usb\n", None)).whole


def test_the_journal_adds_what_came_before_the_ring_and_takes_nothing_from_it() -> None:
    ring = f"[900.5] usb\n       goes on\n[950.0] {OFF}\n"
    journal = f"[0.0] node7 kernel: Linux version 6.8\n[5.0] node7 kernel: {HANG}\n[900.5] node7 kernel: usb\n"
    found = kernel_log.read(Node(ring, journal)).lines
    assert [line for line in found if "usb" in line] == ["[900.5] usb"], "a line of both is there once"
    assert {event["code"] for event in kernel_log.events(found)["events"]} == {79, 119}
    stopped = "[0.0] node7 kernel: Linux version 6.8\n" * 500
    assert OFF in kernel_log.read(Node(ring, stopped)).lines[-1], "the newest line although the journal has more lines"
    untimed = Node("usb\n", f"Linux version 6.8\n{HANG}\n")
    assert kernel_log.read(untimed).lines == ["Linux version 6.8", HANG]
    assert kernel_log.read(Node("usb\n", "")).lines == ["usb"]


def test_who_may_not_read_the_log_is_told_so() -> None:
    assert kernel_log.read(Node(None, None)).why == "Operation not permitted"
    assert kernel_log.read(Node(None, "")).why == "Operation not permitted"
    assert kernel_log.read(Node(None, "[9.0] Linux version 6.8")).why is None
    assert kernel_log.read(Node("", None)).why is None


SLOW = [
    "NVRM: The NVIDIA GPU 0000:3b:00.0 " * 50,
    "NVRM: GPU 0000:3b:00.0: RmInitAdapter " * 45,
    "NVRM: " * 300 + "fallen off the bu RmInitAdapter",
    GONE[3][0] * 15,
]


def test_a_log_of_megabytes_is_read_within_a_second() -> None:
    for line in ("NVRM: Xid (PCI:" * 130, "NVRM: GPU " + "PCI:" * 400, FAULT + "x" * 1900, "SXid (" * 300, *SLOW):
        quickly(partial(kernel_log.events, [line] * 20_000), what=line[:20])


def test_the_real_logs_are_read(samples: Callable[[str], list[Path]]) -> None:
    found = {}
    for path in samples("dmesg"):
        events = kernel_log.events(path.read_text(errors="replace").split("\n"))["events"]
        found[path.name] = {(event["kind"], event["code"]) for event in events}
    assert found["requires_open_modules_rtxpro4500.log"] == {("init", 0)}
    assert found["gpud_dmesg_xid119.log"] == {("xid", 119)}
    assert {("xid", 79), ("sxid", 20034)} <= found["gpud_readme_xid79_sxid20034.log"]
    assert {("xid", 48), ("xid", 63), ("xid", 94)} <= found["gpud_dmesg_time_iso.log"]
    assert {("xid", 32), ("xid", 64), ("xid", 69), ("sxid", 12028)} <= found["misc_real_lines.log"]

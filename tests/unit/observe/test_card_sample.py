"""What every card does now: how the answer of nvidia-smi is read, how one that hangs is ended, and what the module says of both."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_log_day
from ansible_collections.gpuwright.node.plugins.module_utils.smi import csv, run
from ansible_collections.gpuwright.node.plugins.modules import card_sample as module
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.unit.modules import run_module

FIRST = "0, NVIDIA H100 80GB HBM3, GPU-5c1e9a2d, 97, 71240, 81559, 61, 642.10, 700.00, 0x0000000000000004"
SECOND = "1, NVIDIA A2, GPU-77aa01bc, 0, 4, 15356, 34, 5.21, 60.00, 0x0000000000000001"
LOST = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error"
UNKNOWN = "1, " + ", ".join(["[Unknown Error]"] * 9)


def answering(*answers: tuple[int, str]) -> tuple[run.Runner, list[str]]:
    """An nvidia-smi that answers one after another, and what it was asked."""
    asked: list[str] = []

    def smi(arguments: Sequence[str]) -> tuple[int, str]:
        asked.append(arguments[0])
        return answers[len(asked) - 1]

    return smi, asked


def test_two_cards_are_read_with_every_value() -> None:
    first, second = csv.parse(f"{FIRST}\n{SECOND}\n")
    assert first == {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-5c1e9a2d",
        "utilization": 97,
        "memory_used": 71240,
        "memory_total": 81559,
        "temperature": 61,
        "power": 642.1,
        "power_limit": 700,
        "throttle": ["sw_power_cap"],
        "problem": None,
    }
    assert (second["index"], second["throttle"], second["problem"]) == (1, ["gpu_idle"], None)


def test_a_lost_card_between_others_has_a_row_that_says_so_once() -> None:
    rows = csv.parse(f"{FIRST}\n{LOST}\n{UNKNOWN}\n{SECOND.replace('1', '2', 1)}\n")
    assert [(row["index"], row["problem"]) for row in rows] == [(0, None), (1, "Unknown Error"), (2, None)]
    assert (rows[1]["name"], rows[1]["temperature"], rows[1]["throttle"]) == (None, None, None)


def test_a_lost_card_without_a_row_is_not_left_out() -> None:
    rows = csv.parse(f"{FIRST}\n{LOST}\n{SECOND}\n")
    assert [row["problem"] for row in rows] == [None, None, "0000:02:00.0: Unknown Error"]
    assert set(rows[2]) == set(rows[0])
    assert rows[2]["index"] is None


def test_a_card_that_has_to_be_reset_says_so() -> None:
    (row,) = csv.parse("0, NVIDIA A100, GPU-1, [GPU requires reset], [GPU requires reset], 1, 1, 1, 1, 0x0")
    assert row["problem"] == "GPU requires reset"


@pytest.mark.parametrize("told", ["[N/A]", "N/A", "[Not Supported]", "[Requested functionality has been deprecated]"])
def test_what_a_card_does_not_tell_is_no_problem(told: str) -> None:
    (row,) = csv.parse(f"0, GeForce GT 1030, GPU-1, {told}, 10, 2000, 40, {told}, {told}, {told}")
    values = (row["utilization"], row["power"], row["power_limit"], row["throttle"], row["problem"])
    assert values == (None, None, None, None, None)
    assert row["memory_used"] == 10


def test_control_characters_are_taken_out() -> None:
    (row,) = csv.parse(FIRST.replace("H100", "H1\x1b[2J00\x00"))
    assert row["name"] == "NVIDIA H1 [2J00  80GB HBM3"


@pytest.mark.parametrize("text", ["", "\n\n", "what is this, then\n", FIRST.rpartition(",")[0], '"' * 5000])
def test_what_is_no_row_is_none(text: str) -> None:
    assert csv.parse(text) == []


def test_a_bit_without_a_name_is_told_as_its_number() -> None:
    assert csv.reasons_of("0x0000000000001068") == [
        "hw_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "0x1000",
    ]
    assert csv.reasons_of("0x0") == []
    assert csv.reasons_of("Active") is None


def test_no_devices_is_what_nvidia_smi_says_of_it() -> None:
    smi, _asked = answering((6, "No devices were found\n"))
    with pytest.raises(run.SmiError, match=r"^No devices were found$"):
        csv.samples(smi)


def test_nothing_at_all_is_told_with_the_status() -> None:
    smi, _asked = answering((127, ""))
    with pytest.raises(run.SmiError, match="status 127 and said nothing"):
        csv.samples(smi)


def test_an_older_driver_is_asked_by_the_older_name() -> None:
    refusal = 'Field "clocks_event_reasons.active" is not a valid field to query.\n\n'
    smi, asked = answering((2, refusal), (0, FIRST))
    assert [row["throttle"] for row in csv.samples(smi)] == [["sw_power_cap"]]
    assert [question.rpartition(",")[2] for question in asked] == [
        "clocks_event_reasons.active",
        "clocks_throttle_reasons.active",
    ]


# --- the call ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """An nvidia-smi of the test's own."""
    monkeypatch.setattr(run, "_PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(body: str) -> None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)

    return write


def test_a_call_has_its_status_and_its_words(program: Callable[[str], None]) -> None:
    program('echo "$1"; echo oops >&2; exit 3')
    assert run.run(["--query"]) == (3, "--query\noops\n")


def test_a_program_that_is_not_there_is_told(program: Callable[[str], None]) -> None:
    with pytest.raises(run.SmiError, match="there is no nvidia-smi"):
        run.run([])


def test_a_call_that_hangs_is_killed_with_what_it_started(program: Callable[[str], None], tmp_path: Path) -> None:
    program(f"sleep 300 & echo $! >{tmp_path}/child; echo $$ >{tmp_path}/own; wait")
    began = time.monotonic()
    with pytest.raises(run.Hung, match=r"did not answer within 0\.5 s") as caught:
        run.run([], seconds=0.5)
    assert time.monotonic() - began < 10
    assert (caught.value.pid, caught.value.started) == (None, None)
    assert gone(tmp_path / "own")
    assert gone(tmp_path / "child")


def test_a_call_is_not_left_behind_by_who_interrupts_it(
    program: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(f"echo $$ >{tmp_path}/own; exec sleep 300")

    def interrupted(process: Any, stdin: None, timeout: float) -> None:
        while not (tmp_path / "own").exists() or not (tmp_path / "own").read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.run([])
    assert gone(tmp_path / "own")


def gone(file: Path) -> bool:
    """Whether the process whose id is in a file has ended."""
    pid = int(file.read_text())
    for _turn in range(100):
        if run.start_of(pid) is None:
            return True
        threading.Event().wait(0.05)
    return False


def test_a_process_is_known_by_its_start() -> None:
    assert run.start_of(os.getpid()) == run.start_of(os.getpid()) is not None
    assert run.start_of(2**22 + 1) is None


@pytest.mark.parametrize(
    ("name", "state", "age", "held"),
    [
        ("nvidia-smi", "D", 60, True),
        ("nvidia-smi", "D", 5, False),
        ("nvidia-smi", "S", 60, False),
        ("nvidia-smi", "Z", 60, False),
        ("a) D (nvidia-smi", "D", 60, True),
        ("python3", "D", 60, False),
    ],
)
def test_only_a_call_that_the_kernel_holds_for_long_keeps_from_asking(
    tmp_path: Path, name: str, state: str, age: int, held: bool
) -> None:
    sleeping(tmp_path, name, state, age)
    assert run.held(str(tmp_path)) == (42 if held else None)


@pytest.mark.parametrize(
    ("program", "mode", "held"),
    [
        ("nvidia-smi", 0o755, True),
        ("nvidia-smi", 0o775, False),
        ("nvidia-smi", 0o757, False),
        ("python3", 0o755, False),
        (None, 0o755, False),
    ],
)
def test_of_another_user_it_counts_by_its_program_and_not_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, mode: int, held: bool
) -> None:
    sleeping(tmp_path, "nvidia-smi", "D", 60)
    monkeypatch.setattr(os, "geteuid", lambda: -1)
    real = os.stat

    def stat(path: Any, **options: Any) -> Any:
        """The process is another user's, and its file root's."""
        found = real(path, **options)
        uid = 0 if str(path).endswith("/exe") else 4711
        return os.stat_result((found.st_mode, 0, 0, 1, uid, uid, 0, 0, 0, 0))

    if program:
        file = tmp_path / program
        file.write_text("")
        file.chmod(mode)
        (tmp_path / "42/exe").symlink_to(file)
    monkeypatch.setattr(os, "stat", stat)
    assert run.held(str(tmp_path)) == (42 if held else None)


def sleeping(tmp_path: Path, name: str, state: str, age: int) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    for pid, said in (
        ("self", ""),
        ("7", "nothing"),
        ("42", f"42 ({name}) {state} {'0 ' * 18}{(1000 - age) * ticks} 0"),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(said)
    (tmp_path / "uptime").write_text("1000.00 1.00\n")


def test_beside_a_call_that_hangs_no_other_one_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "loaded", lambda: True)
    monkeypatch.setattr(run, "held", os.getpid)
    monkeypatch.setattr(run, "run", lambda arguments: pytest.fail("it was asked"))
    with pytest.raises(run.Hung, match="hangs in the kernel") as caught:
        csv.look()
    assert (caught.value.pid, caught.value.started) == (os.getpid(), run.start_of(os.getpid()))


# --- the module -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [False, True])
def test_the_module_answers_what_the_gate_admits(monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    monkeypatch.setattr(run, "loaded", lambda: True)
    monkeypatch.setattr(run, "run", lambda arguments: (0, f"{FIRST}\n{LOST}\n{UNKNOWN}\n"))
    told = run_module(module, check=check)
    assert json.loads(gate.admit("card_sample", json.dumps(told))) == told
    assert (told["changed"], told["problem"], told["log"], len(told["cards"])) == (False, None, None, 2)


def test_without_a_driver_the_module_asks_nothing_and_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "loaded", lambda: False)
    monkeypatch.setattr(run, "run", lambda arguments: pytest.fail("it was asked"))
    told = run_module(module)
    assert (told["cards"], told["problem"], told.get("failed")) == ([], "no NVIDIA driver is loaded", None)


def test_a_day_comes_packed_and_no_card_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"timestamp,index\n" + b"2026-11-26T00:00:03Z,0\n" * 1000
    monkeypatch.setattr(csv, "look", lambda: pytest.fail("it was asked"))
    monkeypatch.setattr(gpu_log_day, "read", lambda day: content)
    told = run_module(module, day="2026-11-26")
    assert json.loads(gate.admit("card_sample", json.dumps(told))) == told
    assert gpu_log_day.unpack(told["log"]) == content


def test_a_day_that_is_none_fails_the_module() -> None:
    told = run_module(module, day="../../etc/passwd")
    assert told["failed"]
    assert "expected a day such as 2026-11-27" in told["msg"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log": "a,b"}, "log"),
        ({"cards": [{}]}, "cards"),
        ({"ansible_facts": {}}, "ansible_facts"),
        ({"time": "now {{ x }}"}, "time"),
    ],
)
def test_what_no_module_of_ours_says_is_refused(changes: dict[str, Any], words: str) -> None:
    said = {"changed": False, "time": "2026-11-27T06:49:46Z", "cards": [], "problem": None, "log": None, **changes}
    with pytest.raises(gate.Refused, match=words):
        gate.admit("card_sample", json.dumps(said))


# --- a day of the log -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "there is no log of the cards of 2026-11-26"),
        (lambda path: path.symlink_to("/etc/passwd"), "cannot be read"),
        (lambda path: path.mkdir(), "is no file"),
        (os.mkfifo, "is no file"),
        (lambda path: path.write_bytes(bytes(gpu_log_day.MOST + 1)), "more than 20 MiB"),
    ],
)
def test_what_is_no_file_of_a_day_is_told(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    make(tmp_path / "gpu-2026-11-26.csv")
    with pytest.raises(gpu_log_day.DayError, match=words):
        gpu_log_day.read("2026-11-26", str(tmp_path))


def test_what_is_packed_never_grows_beyond_a_day() -> None:
    bomb = gpu_log_day.pack(bytes(gpu_log_day.MOST + 1))
    for broken in (bomb, "AAAA", "!", gpu_log_day.pack(b"timestamp" * 1000)[:-8]):
        with pytest.raises(gpu_log_day.DayError, match="broken"):
            gpu_log_day.unpack(broken)


def test_what_does_not_pack_well_is_refused_on_the_node() -> None:
    with pytest.raises(gpu_log_day.DayError, match="at most"):
        gpu_log_day.pack(os.urandom(3_000_000))


def bus(root: Path, **cards: tuple[str, str, str]) -> str:
    """A PCI bus of cards, each with its class, driver and the state of its power."""
    for number, (kind, driver, state) in enumerate(cards.values()):
        device = root / f"devices/0000:0{number}:00.0"
        (device / "power").mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text(f"{kind}\n")
        (device / "power/runtime_status").write_text(f"{state}\n")
        (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(root / "drivers" / driver)
    return str(root / "devices")


GRAPHICS, SOUND = "0x030000", "0x040300"


@pytest.mark.parametrize(
    ("cards", "sleeps"),
    [
        ({"a": (GRAPHICS, "nvidia", "suspended")}, True),
        ({"a": (GRAPHICS, "nvidia", "active")}, False),
        ({"a": (GRAPHICS, "nvidia", "suspended"), "b": ("0x030200", "nvidia", "active")}, False),
        ({"a": (GRAPHICS, "nvidia", "suspended"), "b": (SOUND, "snd_hda_intel", "active")}, True),
        ({"a": (GRAPHICS, "nvidia", "active"), "b": (GRAPHICS, "vfio-pci", "suspended")}, False),
        ({"a": (GRAPHICS, "vfio-pci", "suspended")}, False),
        ({"a": (GRAPHICS, "nvidia", "unsupported")}, False),
        ({}, False),
    ],
)
def test_the_cards_sleep_where_each_of_the_drivers_is_suspended(tmp_path: Path, cards: Any, sleeps: bool) -> None:
    assert run.asleep(bus(tmp_path, **cards)) is sleeps


def test_a_state_that_cannot_be_read_is_no_sleep(tmp_path: Path) -> None:
    devices = bus(tmp_path, a=(GRAPHICS, "nvidia", "suspended"))
    (tmp_path / "devices/0000:00:00.0/power/runtime_status").unlink()
    assert not run.asleep(devices)


def test_nvidia_smi_is_not_begun_where_every_card_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "asleep", lambda: True)
    monkeypatch.setattr(subprocess, "Popen", lambda *_a, **_k: pytest.fail("nvidia-smi was called"))
    with pytest.raises(run.Asleep, match="every card sleeps"):
        run.run(["-L"])

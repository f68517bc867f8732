"""The program that keeps the light log of the cards (gpu_log)."""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_log
from ansible_collections.gpuwright.node.plugins.module_utils.smi import run
from ansible_collections.gpuwright.node.plugins.module_utils.smi.csv import now
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.gpu_log.resolve import MIB_A_CARD_AND_DAY
from tests.sim import bundled

#: The longest that a card says at full load, in the shape of branch 580; the uuid and the name are made up.
_FULL = (
    "{}, NVIDIA RTX 6000 Ada Generation Laptop, GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9, "
    "100, 140112, 143771, 100, 1000.00, 1000.00, 0x00000000000000EC"
)
_IDLE = "0, NVIDIA H100 80GB HBM3, GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9, 0, 4, 81559, 31, 71.25, 700.00, 0x0000000000000001"


def saying(*lines: str, status: int = 0) -> run.Runner:
    """An nvidia-smi that says these lines."""

    def smi(_arguments: Sequence[str]) -> tuple[int, str]:
        return status, "".join(f"{line}\n" for line in lines)

    return smi


def hanging() -> run.Runner:
    """An nvidia-smi that does not answer."""

    def smi(_arguments: Sequence[str]) -> tuple[int, str]:
        raise run.Hung("nvidia-smi did not answer within 20 s")

    return smi


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The directory of the log."""
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def at(moment: str) -> Callable[[], str]:
    return lambda: moment


def turn(log: Path, smi: run.Runner, moment: str = "2026-11-27T06:00:00Z", days: str = "30") -> int:
    return gpu_log.main(["--days", days], smi, str(log), at(moment), lambda: True)


def rows(log: Path, day: str = "2026-11-27") -> list[dict[str, str]]:
    with (log / f"gpu-{day}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def names(log: Path) -> list[str]:
    return sorted(path.name for path in log.iterdir())


def test_each_minute_adds_a_line_for_each_card_below_one_heading(log: Path) -> None:
    assert turn(log, saying(_IDLE, _FULL.format(1))) == 0
    assert turn(log, saying(_IDLE, _FULL.format(1)), "2026-11-27T06:01:00Z") == 0
    found = rows(log)
    assert [(row["timestamp"], row["index"]) for row in found] == [
        ("2026-11-27T06:00:00Z", "0"),
        ("2026-11-27T06:00:00Z", "1"),
        ("2026-11-27T06:01:00Z", "0"),
        ("2026-11-27T06:01:00Z", "1"),
    ]
    assert found[0] == {
        "timestamp": "2026-11-27T06:00:00Z",
        "index": "0",
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
        "utilization.gpu [%]": "0",
        "memory.used [MiB]": "4",
        "memory.total [MiB]": "81559",
        "temperature.gpu [C]": "31",
        "power.draw [W]": "71.25",
        "clocks_event_reasons": "gpu_idle",
        "note": "",
    }


def test_a_clock_that_jumps_takes_no_more_than_one_day_with_it(log: Path) -> None:
    """The newest days that were written stay, whatever day it is; days that are yet to come are none of them."""
    days = [f"2026-11-{number:02}" for number in range(1, 8)]
    for day in days:
        turn(log, saying(_IDLE), f"{day}T12:00:00Z", days="7")
    turn(log, saying(_IDLE), "2099-01-01T00:00:00Z", days="7")
    assert sorted(file.name for file in log.iterdir()) == [f"gpu-{day}.csv" for day in [*days[1:], "2099-01-01"]]
    turn(log, saying(_IDLE), "1970-01-01T00:00:00Z", days="7")
    turn(log, saying(_IDLE), "2026-11-08T00:00:00Z", days="7")
    there = sorted(file.name for file in log.iterdir())
    assert there == [f"gpu-{day}.csv" for day in [*days[1:], "2026-11-08", "2099-01-01"]]


def test_a_day_has_its_own_file_and_old_days_go(log: Path) -> None:
    for day in ("2026-11-24", "2026-11-25", "2026-11-26"):
        turn(log, saying(_IDLE), f"{day}T23:59:00Z", days="9")
    mine = log / "gpu-notes.csv"
    mine.write_text("of a person")
    turn(log, saying(_IDLE), "2026-11-27T00:00:00Z", days="2")
    assert names(log) == ["gpu-2026-11-26.csv", "gpu-2026-11-27.csv", "gpu-notes.csv"]


def test_a_line_that_a_power_cut_left_unfinished_does_not_spoil_the_next_one(log: Path) -> None:
    turn(log, saying(_IDLE))
    path = log / "gpu-2026-11-27.csv"
    path.write_bytes(path.read_bytes()[:-9])
    turn(log, saying(_IDLE), "2026-11-27T06:01:00Z")
    assert [row["timestamp"] for row in rows(log)] == ["2026-11-27T06:00:00Z", "2026-11-27T06:01:00Z"]
    assert rows(log)[1]["power.draw [W]"] == "71.25"


def test_what_a_card_does_not_tell_stays_empty(log: Path) -> None:
    turn(log, saying("0, Tesla M40, GPU-1, [N/A], 4, 11448, 31, [Not Supported], [N/A], [N/A]"))
    (row,) = rows(log)
    assert (row["utilization.gpu [%]"], row["power.draw [W]"], row["clocks_event_reasons"]) == ("", "", "")
    assert (row["temperature.gpu [C]"], row["note"]) == ("31", "")


def test_a_lost_card_has_its_line_and_the_others_have_theirs(log: Path) -> None:
    lost = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error"
    assert turn(log, saying(_IDLE, lost, ", ".join(["[Unknown Error]"] * 10), _FULL.format(2), status=255)) == 0
    assert [(row["index"], row["note"]) for row in rows(log)] == [("0", ""), ("", "Unknown Error"), ("2", "")]


def test_a_minute_without_an_answer_has_a_line_with_the_reason(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95"
    assert turn(log, saying(said, status=18)) == 1
    (row,) = rows(log)
    assert row["note"] == "Failed to initialize NVML: Driver/library version mismatch NVML library version: 580.95"
    assert row["index"] == ""
    assert capsys.readouterr().err.startswith("<4>no sample: Failed to initialize NVML")


def test_a_call_that_the_kernel_holds_is_left_alone_and_no_other_one_is_begun(log: Path) -> None:
    def never(_arguments: Sequence[str]) -> tuple[int, str]:
        raise AssertionError("a second call was begun")

    said = gpu_log.turn(str(log), 30, never, at("2026-11-27T06:01:00Z"), lambda: 4711)
    assert said == "nvidia-smi (process 4711) hangs in the kernel"
    assert [row["note"] for row in rows(log)] == [said]


def test_an_answer_that_does_not_come_has_its_line(log: Path) -> None:
    assert turn(log, hanging()) == 1
    assert [row["note"] for row in rows(log)] == ["nvidia-smi did not answer within 20 s"]


def test_a_log_that_cannot_be_written_is_told(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.rmdir()
    assert turn(log, saying(_IDLE)) == 1
    assert capsys.readouterr().err.startswith("<3>the log cannot be written: ")


def test_a_link_in_place_of_the_log_is_not_followed(log: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine\n")
    (log / "gpu-2026-11-27.csv").symlink_to(tmp_path / "victim")
    assert turn(log, saying(_IDLE)) == 1
    assert (tmp_path / "victim").read_text() == "mine\n"


@pytest.mark.parametrize("arguments", [[], ["--days"], ["--days", "0"], ["--days", "-1"], ["--days", "x"], ["-d", "3"]])
def test_an_option_that_cannot_be_read_writes_nothing(log: Path, arguments: list[str]) -> None:
    assert gpu_log.main(arguments, saying(_IDLE), str(log), at("2026-11-27T06:00:00Z"), lambda: True) == 1
    assert names(log) == []


def test_nothing_is_asked_before_the_driver_is_loaded(log: Path) -> None:
    assert gpu_log.main(["--days", "30"], hanging(), str(log), now, lambda: False) == 0
    assert names(log) == []


def test_a_day_of_a_card_at_full_load_stays_within_the_stated_size(log: Path) -> None:
    for minute in range(60):
        turn(log, saying(*(_FULL.format(card) for card in range(8))), f"2026-11-27T06:{minute:02d}:00Z")
    hour = (log / "gpu-2026-11-27.csv").stat().st_size
    assert hour * 24 / 8 <= MIB_A_CARD_AND_DAY * 2**20


def test_the_program_runs_by_itself_from_its_directory(tmp_path: Path) -> None:
    """As on a node: one file, and nothing of ours to import."""
    replaced = {"/var/log/gpuwright": str(tmp_path), '"/dev/dxg"': '"/dev/null"', '_PATH = "': f'_PATH = "{tmp_path}:'}
    (tmp_path / "gpu_log.py").write_text(bundled.script("gpu_log", replaced))
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\necho '{_IDLE}'\n")
    smi.chmod(0o755)
    ended = subprocess.run(
        ["/usr/bin/python3", str(tmp_path / "gpu_log.py"), "--days", "30"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    assert (tmp_path / f"gpu-{day}.csv").read_text().count("NVIDIA H100") == 1


def test_a_card_that_sleeps_is_not_woken_and_its_sleep_is_told(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def asleep(_arguments: Sequence[str]) -> tuple[int, str]:
        raise run.Asleep

    assert turn(log, asleep) == 0
    assert capsys.readouterr().err == ""
    (row,) = list(csv.DictReader((log / "gpu-2026-11-27.csv").read_text().splitlines()))
    assert row["note"] == run.ASLEEP

"""`gpuwright top`: what the cards do now, of this machine and of an inventory, and a day of their log."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_log, gpu_log_day
from ansible_collections.gpuwright.node.plugins.module_utils.smi import csv, run
from gpuwright import braille, card_looks, console, day_plot, show_top
from tests.unit.cli.conftest import FakeAnsible, event

DAY = "2026-11-26"
NOW = "2026-11-27T06:49:46Z"


def sample(index: int = 0, **changes: Any) -> Any:
    """A card at work."""
    return {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": f"GPU-{index}",
        "utilization": 97.0,
        "memory_used": 40780.0,
        "memory_total": 81559.0,
        "temperature": 61.0,
        "power": 642.1,
        "power_limit": 700.0,
        "throttle": ["sw_power_cap"],
        "problem": None,
        **changes,
    }


LOST: Any = {**dict.fromkeys(sample()), "index": 1, "problem": "Unknown Error"}


def answer(host: str, *cards: Any, **changes: Any) -> Any:
    """What the action leaves in the run directory."""
    return {"host": host, "time": NOW, "cards": list(cards), "problem": None, "log": None, **changes}


def log(*lines: str) -> bytes:
    return "\n".join([",".join(gpu_log.COLUMNS), *lines, ""]).encode()


def line(clock: str, index: int, **changes: Any) -> str:
    cells = gpu_log.row(f"{DAY}T{clock}Z", sample(index, **changes))
    return ",".join("" if cell is None else str(cell) for cell in cells)


class Machine:
    """This machine, whose driver answers what it is told."""

    def __init__(self) -> None:
        self.answers: list[Any] = [[sample()]]
        self.asked = 0

    def look(self) -> Any:
        given = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(given, Exception):
            raise given
        return given


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(csv, "look", made.look)
    monkeypatch.setattr(csv, "now", lambda: NOW)
    return made


class Cards(FakeAnsible):
    """Ansible that leaves samples."""

    def __init__(self) -> None:
        super().__init__()
        self.samples: dict[str, Any] = {}

    def __call__(self, request: Any, on_event: Any) -> tuple[int, str]:
        for host, record in self.samples.items():
            self._write(request.run_dir / "samples" / f"{host}.json", record)
        self.events = self.events or [event("runner_on_ok", host) for host in self.samples]
        return super().__call__(request, on_event)


@pytest.fixture
def hosts(ansible: FakeAnsible, monkeypatch: pytest.MonkeyPatch) -> Cards:
    made = Cards()
    monkeypatch.setattr("gpuwright.runner.backend", made)
    return made


# --- this machine -----------------------------------------------------------------------------------------------------


def test_without_a_terminal_one_sample_is_shown(gpuwright: Callable[..., Any], machine: Machine) -> None:
    machine.answers = [[sample(), sample(1, throttle=["gpu_idle"], utilization=0.0)]]
    done = gpuwright("top")
    assert done.code == 0
    heading, first, second = done.out.splitlines()
    assert heading.split() == ["gpu", "name", "util", "%", "memory", "GiB", "°C", "power", "W", "throttle,", "problem"]
    assert first.split() == ["0", "H100", "80GB", "HBM3", "97", "39.8/79.6", "███░░░", "61", "642/700", "sw_power_cap"]
    assert second.split()[-1] == "642/700", "a card that does nothing is not held back"
    assert machine.asked == 1


def test_a_lost_card_is_a_row_with_its_problem_and_no_success(gpuwright: Callable[..., Any], machine: Machine) -> None:
    machine.answers = [[sample(), LOST]]
    done = gpuwright("top", "--once")
    assert done.code == 1
    assert done.out.splitlines()[2].split() == ["1", "–", "–", "–/–", "–", "–/–", "Unknown", "Error"]


def test_json_is_one_document_with_every_value(gpuwright: Callable[..., Any], machine: Machine) -> None:
    done = gpuwright("top", "--json")
    here = {"time": NOW, "cards": [sample()], "problem": None}
    assert (done.code, done.err) == (0, "")
    assert done.json == {"verdict": "pass", "exit": 0, "hosts": {"localhost": here}, "unreachable": {}}


def test_without_a_driver_it_says_what_to_do(gpuwright: Callable[..., Any], machine: Machine) -> None:
    machine.answers = [run.SmiError(run.NOT_LOADED)]
    done = gpuwright("top")
    assert done.code == 1
    assert "no NVIDIA driver is loaded" in done.err
    assert "gpuwright up" in done.err
    told = gpuwright("top", "--json")
    assert told.code == told.json["exit"] == 1
    assert told.json["verdict"] == "fail"
    assert told.json["hosts"]["localhost"]["problem"] == "no NVIDIA driver is loaded"


def test_a_call_that_hangs_in_the_kernel_is_not_asked_again_and_the_last_sample_stays(machine: Machine) -> None:
    pid = os.getpid()
    hung = run.Hung("nvidia-smi did not answer within 20 s", pid, run.start_of(pid))
    machine.answers = [[sample()], hung, [sample(temperature=40.0)]]
    here = card_looks.Here()
    assert here().whole
    looks = [here().hosts["localhost"] for _turn in range(3)]
    assert machine.asked == 2
    assert looks[0] == looks[2]
    assert looks[2]["cards"] == [sample()]
    said = f"no answer since {NOW}: nvidia-smi did not answer within 20 s (process {pid})"
    assert looks[2]["problem"] == said


def test_what_was_killed_is_asked_again(machine: Machine) -> None:
    hung = run.Hung("nvidia-smi did not answer within 20 s", 2**22 + 1, "1")
    machine.answers = [hung, run.Hung("again"), [sample()]]
    here = card_looks.Here()
    assert not here().whole
    assert here.hangs
    assert not here().whole
    assert here().whole
    assert not here.hangs


def test_on_a_terminal_it_is_refreshed_until_ctrl_c_which_is_no_failure(
    gpuwright: Callable[..., Any], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr("gpuwright.commands.top.time.sleep", sleep)
    monkeypatch.setattr(console, "screen", lambda: screen)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    done = gpuwright("top", "--interval", "5")
    assert (done.code, waited, machine.asked) == (0, [5.0, 5.0, 5.0], 3)
    shown = screen.file.getvalue()  # type: ignore[attr-defined]  # a StringIO, see above
    assert "every 5 s; Ctrl-C ends it" in shown


def test_heat_and_brakes_are_in_a_warning_colour_and_a_lost_card_is_red() -> None:
    hot = sample(throttle=["hw_slowdown", "hw_thermal_slowdown"])
    look = card_looks.Look({"localhost": {"time": NOW, "cards": [hot, sample(), LOST], "problem": None}})
    screen = Console(file=io.StringIO(), force_terminal=True, width=160, color_system="standard", no_color=False)
    screen.print(show_top.table(look))
    shown = screen.file.getvalue()  # type: ignore[attr-defined]  # a StringIO, see above
    assert "\x1b[1;33mhw_slowdown, hw_thermal_slowdown" in shown
    assert "\x1b[31mUnknown Error" in shown
    assert "33msw_power_cap" not in shown


def test_a_name_with_control_characters_moves_no_cursor(gpuwright: Callable[..., Any], machine: Machine) -> None:
    machine.answers = [[sample(name="H100\x1b[2J\nfake")]]
    out = gpuwright("top").out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize("value", ["0", "0.5", "3601", "-1", "two", "1e3", "nan", "²"])
def test_an_interval_that_is_none_is_bad_input(gpuwright: Callable[..., Any], value: str) -> None:
    done = gpuwright("top", f"--interval={value}")
    assert done.code == 2
    assert "expected a number of seconds from 1 to 3600" in done.err


@pytest.mark.parametrize(
    "words", [("-l", "a"), ("-e", "a=1"), ("--vault-password-file", "f"), ("--", "--forks", "3"), ("--want", "cuda")]
)
def test_what_is_for_an_inventory_is_refused_without_one(gpuwright: Callable[..., Any], words: tuple[str, ...]) -> None:
    assert gpuwright("top", *words).code == 2


# --- an inventory -----------------------------------------------------------------------------------------------------


def test_every_host_is_a_row_the_unreachable_and_the_failed_too(gpuwright: Callable[..., Any], hosts: Cards) -> None:
    hosts.samples = {"a": answer("a", sample(), sample(1)), "b": answer("b", problem="no NVIDIA driver is loaded")}
    hosts.events = [
        event("runner_on_ok", "a"),
        event("runner_on_ok", "b"),
        event("runner_on_failed", "c", res={"msg": "it broke"}),
        event("runner_on_unreachable", "gone", res={"msg": "Connection refused"}),
    ]
    done = gpuwright("top", "-i", "fleet,", "--once")
    assert done.code == 1
    rows = [line.split() for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["host", "a", "a", "b", "c", "gone"]
    assert rows[3][1:] == ["no", "NVIDIA", "driver", "is", "loaded"]
    assert rows[4][1:] == ["it", "broke"]
    assert rows[5][1] == "unreachable:"
    told = gpuwright("top", "-i", "fleet,", "--json").json
    assert told["hosts"]["a"] == {"time": NOW, "cards": [sample(), sample(1)], "problem": None}
    assert told["hosts"]["c"] == {"time": None, "cards": [], "problem": "it broke"}
    assert (told["unreachable"].keys(), told["exit"], told["verdict"]) == ({"gone"}, 1, "fail")


def test_hosts_that_answer_are_0_and_the_run_leaves_no_folder(
    gpuwright: Callable[..., Any], hosts: Cards, tmp_path: Path
) -> None:
    hosts.samples = {"a": answer("a", sample()), "b": answer("b", sample())}
    assert gpuwright("top", "-i", "fleet,").code == 0
    (request,) = hosts.requests
    assert (request.playbook, "gpuwright_day" in request.extra_vars) == ("top", False)
    assert not list((tmp_path / "state/gpuwright/runs").iterdir())
    assert not hosts.reports


# --- a day of the log -------------------------------------------------------------------------------------------------


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    read = gpu_log_day.read
    monkeypatch.setattr(gpu_log_day, "read", lambda day: read(day, str(tmp_path)))
    return tmp_path


def a_day() -> Iterator[str]:
    for minute in range(600):
        if not 200 < minute < 300:
            clock = f"{minute // 60:02d}:{minute % 60:02d}:03"
            yield line(clock, 0, utilization=float(minute % 100))
            yield line(clock, 1, utilization=50.0)


def test_a_day_is_a_plot_for_each_value_with_a_legend_and_without_colours_in_a_pipe(
    gpuwright: Callable[..., Any], logs: Path
) -> None:
    (logs / f"gpu-{DAY}.csv").write_bytes(log(*a_day()))
    done = gpuwright("top", "--day", DAY)
    assert done.code == 0
    assert done.out.startswith(f"localhost, {DAY} (UTC)\n⠤0⠤ 0 NVIDIA H100 80GB HBM3\n⠤1⠤ 1 NVIDIA H100 80GB HBM3\n")
    titles = [line for line in done.out.splitlines() if line in ("utilization", "memory", "temperature", "power")]
    assert titles == ["utilization", "memory", "temperature", "power"]
    assert "00:00     03:00     06:00" in done.out
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 100


def test_the_rows_of_a_day_are_json_with_numbers_and_null(gpuwright: Callable[..., Any], logs: Path) -> None:
    none = [f"{DAY}T00:01:03Z", *[""] * 9, "nvidia-smi did not answer"]
    (logs / f"gpu-{DAY}.csv").write_bytes(log(line("00:00:03", 0, power=None), ",".join(none), "cut,off"))
    told = gpuwright("top", "--day", DAY, "--json").json
    assert (told["host"], told["day"], told["columns"]) == ("localhost", DAY, list(gpu_log.COLUMNS))
    first, second = (dict(zip(told["columns"], row, strict=True)) for row in told["rows"])
    assert (first["index"], first["utilization.gpu [%]"], first["power.draw [W]"]) == (0, 97, None)
    assert (second["index"], second["note"]) == (None, "nvidia-smi did not answer")


def test_a_minute_that_is_missing_is_a_gap() -> None:
    points = [(float(minute), 1.0) for minute in (0, 1, 2, 4, 9, 10)]
    assert [[minute for minute, _ in part] for part in day_plot.gaps(points)] == [[0, 1, 2, 4], [9, 10]]


def test_cards_have_different_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    day = card_looks.parse("a", DAY, log(*a_day()))
    legend, utilization, *_rest = day_plot.draw(day, 100, colours=True)
    colours = {str(span.style) for span in legend.spans}
    assert len(colours) == 2
    assert colours <= {str(span.style) for span in utilization.spans}


@pytest.mark.parametrize("word", ["yesterday", "2026-13-01", "2026-1-1", "../2026-01-01", "2026-11-26\n", "2026-02-30"])
def test_a_day_that_is_none_is_bad_input(gpuwright: Callable[..., Any], logs: Path, word: str) -> None:
    done = gpuwright("top", "--day", word)
    assert done.code == 2
    assert "expected a day as YYYY-MM-DD" in done.err


def test_a_day_without_a_log_says_what_keeps_one(gpuwright: Callable[..., Any], logs: Path) -> None:
    done = gpuwright("top", "--day")
    assert done.code == 1
    assert "there is no log of the cards of " in done.err
    assert "--want gpu-log" in done.err


@pytest.mark.parametrize("content", [b"", b"what is this\n", b"\x00\xff\n", b'"' * 200_000])
def test_a_file_that_is_no_log_is_told_in_one_message(
    gpuwright: Callable[..., Any], logs: Path, content: bytes
) -> None:
    (logs / f"gpu-{DAY}.csv").write_bytes(content)
    done = gpuwright("top", "--day", DAY)
    assert done.code == 1
    assert done.err.count("error") == 1
    assert "internal" not in done.err


def test_a_day_on_which_no_card_answered_is_told(gpuwright: Callable[..., Any], logs: Path) -> None:
    (logs / f"gpu-{DAY}.csv").write_bytes(log(f"{DAY}T00:01:03Z,,,,,,,,,,nvidia-smi did not answer"))
    done = gpuwright("top", "--day", DAY)
    assert done.code == 1
    assert "no card told anything" in done.err


def test_the_day_of_a_host_comes_packed(gpuwright: Callable[..., Any], hosts: Cards) -> None:
    hosts.samples = {"a": answer("a", log=gpu_log_day.pack(log(*a_day())))}
    done = gpuwright("top", "-i", "fleet,", "--day", DAY, "--json")
    assert (done.code, done.json["host"], len(done.json["rows"])) == (0, "a", 1002)
    (request,) = hosts.requests
    assert request.extra_vars["gpuwright_day"] == DAY


def test_a_day_of_several_hosts_is_bad_input(gpuwright: Callable[..., Any], hosts: Cards) -> None:
    hosts.events = [event("runner_on_skipped", "a"), event("runner_on_skipped", "b")]
    done = gpuwright("top", "-i", "fleet,", "--day", DAY)
    assert done.code == 2
    assert "a, b" in done.err
    assert "choose one with -l" in done.err


@pytest.mark.parametrize(
    ("record", "events", "words"),
    [
        (answer("a", problem="there is no log of the cards"), [], "--want gpu-log"),
        (answer("a", log="!"), [], "the log came broken"),
        (None, [event("runner_on_unreachable", "a", res={"msg": "Connection refused"})], "refused"),
        (None, [event("runner_on_failed", "a", res={"msg": "it broke"})], "it broke"),
    ],
)
def test_a_host_without_a_log_is_1_with_the_reason(
    gpuwright: Callable[..., Any], hosts: Cards, record: Any, events: Any, words: str
) -> None:
    hosts.samples = {"a": record} if record else {}
    hosts.events = events
    done = gpuwright("top", "-i", "fleet,", "--day", DAY)
    assert done.code == 1
    assert words in done.err


@pytest.mark.parametrize(
    ("top", "end"),
    [
        (0.3, 0.4),
        (1, 1),
        (50, 50),
        (60, 80),
        (66.5, 80),
        (100, 100),
        (100.1, 200),
        (240, 250),
        (700, 800),
        (1200, 2000),
    ],
)
def test_a_scale_ends_with_a_round_number_that_holds_the_value(top: float, end: float) -> None:
    assert braille.scale_end(top) == pytest.approx(end)

"""The load on the stand-in of the driver, which copies, compares, calculates and makes wrong bits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.action import gpu_load as action
from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import (
    card_load,
    cuda_driver,
    kernel_log,
    load_judge,
    load_watch,
)
from ansible_collections.gpuwright.node.plugins.modules import gpu_load
from tests.unit.modules import run_module

ROOT = Path(__file__).parents[3]
STAND_IN = ROOT / "tests/sim/stubs/libcuda.c"
VERSION = "580.95.05"
CARDS = ("GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001")
INSTANCE = "MIG-0000aaaa-0000-0000-0000-00000000000{}"

#: A driver's library whose cards are as the lines say: its path.
Library = Callable[..., str]
Run = Callable[..., run.Result]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The stand-in, and the file that says what it is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("libcuda")
    words = [f'-DVERSION="{VERSION}"', "-DCUDA=13000", f'-DSTATE="{folder}/state"', "-o", f"{folder}/libcuda.so.1"]
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", *words, STAND_IN], check=True)
    return folder / "libcuda.so.1", folder / "state"


@pytest.fixture
def library(compiled: tuple[Path, Path]) -> Library:
    def build(*lines: str, capability: str = "9 0", cards: Sequence[str] = CARDS, kernel: str = VERSION) -> str:
        path, state = compiled
        rows = [
            f"gpu 81559 {capability} {uuid} 0000:{number + 1:02x}:00.0 Card {number}"
            for number, uuid in enumerate(cards)
        ]
        state.write_text("\n".join(["result 0", f"kernel {kernel}", "free 24", *rows, *lines, ""]))
        return str(path)

    return build


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_load, "RESERVE_BYTES", 8 << 20)
    monkeypatch.setattr(card_load, "START_SECONDS", 15.0)
    monkeypatch.setattr(card_load, "LAST_SECONDS", 0.5)
    monkeypatch.setattr(load_watch, "SETTLE_SECONDS", 0.0)


def order(seconds: float = 0.4, visible: str = CARDS[0], **changes: Any) -> card_load.Order:
    return card_load.Order(visible, visible, seconds, 0.9, card_load.PARTS)._replace(**changes)


def drive(path: str, *orders: card_load.Order) -> list[card_load.Told]:
    return card_load.drive(path, orders or [order()], 10.0, lambda children: None)


def judged(path: str, *orders: card_load.Order) -> dict[str, Check]:
    (told,) = drive(path, *orders)
    return {check["id"]: check for check in load_judge.judge_child(told, "0")}


def statuses(found: dict[str, Check]) -> dict[str, str]:
    return {name: check["status"] for name, check in found.items()}


# A good card ------------------------------------------------------------------------------------------


def test_a_good_card_is_verified_and_says_that_the_load_is_new(library: Library) -> None:
    found = judged(library(), order(1.0))
    assert statuses(found) == {"load.runs": "pass", "load.memory": "pass", "load.compute": "pass"}
    assert found["load.memory"]["measured"] == found["load.memory"]["expected"] == 14
    assert found["load.compute"]["measured"] == "single precision, half precision on tensor cores"
    assert all("never run on a real card" in str(check["reason"]) for check in found.values())


def test_all_cards_are_loaded_at_once_and_end_in_their_time(library: Library) -> None:
    begun = time.monotonic()
    told = drive(library(), *(order(0.8, visible) for visible in CARDS))
    assert 0.8 < time.monotonic() - begun < 8
    starts = [load_judge._step(each, "begin")["at"] for each in told]
    assert abs(float(str(starts[0])) - float(str(starts[1]))) < 2
    assert all(each.code == 0 for each in told)
    assert [load_judge._step(each, "card")["name"] for each in told] == ["Card 0", "Card 1"], "each child has its own"


def test_a_card_without_tensor_cores_calculates_in_single_precision_alone(library: Library) -> None:
    assert judged(library(capability="6 1"))["load.compute"]["measured"] == "single precision"


@pytest.mark.parametrize("part", card_load.PARTS)
def test_one_part_alone_has_all_the_time(library: Library, part: str) -> None:
    found = judged(library(), order(parts=[part]))
    assert statuses(found) == {"load.runs": "pass", f"load.{part}": "pass"}


def test_memory_is_taken_in_smaller_pieces_where_there_are_no_larger_ones(library: Library) -> None:
    (told,) = drive(library("piece 9"), order(parts=["memory"]))
    begin = load_judge._step(told, "begin")
    assert begin["taken"] == pytest.approx(begin["wanted"], abs=2 << 20)


def test_what_the_load_leaves_free_is_left_free(library: Library) -> None:
    (told,) = drive(library(), order(share=0.5, parts=["memory"]))
    assert load_judge._number(load_judge._step(told, "begin"), "taken") >> 20 == 7


def test_a_card_without_memory_of_its_own_leaves_the_host_half(library: Library) -> None:
    (told,) = drive(library("integrated"), order(parts=["memory"]))
    assert load_judge._number(load_judge._step(told, "begin"), "wanted") >> 20 == 7


def test_a_launch_is_short_however_fast_the_card_is() -> None:
    for a_unit in (1e-9, 1e-6, 1e-3):
        pace = card_load._Pace(1, 1 << 25)
        launches = [pace.amount]
        for _launch in range(30):
            pace.learn(pace.amount * a_unit)
            launches.append(pace.amount)
        assert max(launches) * a_unit < 4 * card_load._LAUNCH_SECONDS
        assert min(launches[-5:]) * a_unit > card_load._LAUNCH_SECONDS / 4 or pace.amount == 1 << 25


# Wrong bits -------------------------------------------------------------------------------------------


def test_a_bit_that_sticks_is_found_and_told_with_its_word(library: Library) -> None:
    found = judged(library("flip 1234567 17"))
    check = found["load.memory"]
    assert (check["status"], check["severity"], check["action"]) == ("fail", "critical", "check_hardware")
    assert "word 0x12d687: expected" in str(check["evidence"])
    assert check["measured"] > 0
    assert found["load.compute"]["status"] == "pass"


@pytest.mark.parametrize("program", ["compute_fma", "compute_mma"])
def test_a_wrong_result_is_found(library: Library, program: str) -> None:
    found = judged(library(f"wrong {program}"), order(2.0))
    assert statuses(found) == {"load.runs": "pass", "load.memory": "pass", "load.compute": "fail"}
    assert "thread 0x0: expected" in str(found["load.compute"]["evidence"])


def test_what_was_found_wrong_before_a_crash_is_not_lost(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_load, "_TELL_SECONDS", 0.0)
    found = judged(library("flip 5 1", "crash", "after 30"), order(20.0, parts=["memory"]))
    assert statuses(found) == {"load.runs": "fail", "load.memory": "fail"}


# A card or a driver that is broken --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "status", "told"),
    [
        (["launch 719"], "fail", "broke off"),
        (["launch 700"], "fail", "address"),
        (["launch 702"], "fail", "watchdog"),
        (["launch 214"], "fail", "uncorrectable memory error"),
        (["launch 12345"], "fail", "12345"),
        (["module 221"], "fail", "compiler of PTX"),
        (["module 222"], "incomplete", "older than the program"),
        (["module 209"], "incomplete", "cannot make a program"),
        (["result 100"], "fail", "no card"),
        (["result 46"], "incomplete", "another process alone"),
        (["result 2"], "incomplete", "memory is full"),
        (["crash"], "fail", "signal 6"),
    ],
)
def test_a_load_that_breaks_off_says_why_and_passes_nothing(
    library: Library, lines: list[str], status: str, told: str
) -> None:
    found = judged(library(*lines))
    assert found["load.runs"]["status"] == status
    assert told in str(found["load.runs"]["reason"])
    assert found["load.runs"]["remedy"]
    assert {check["status"] for check in found.values()} <= {status, "incomplete"}


def test_what_the_compiler_of_the_driver_says_is_evidence(library: Library) -> None:
    assert "refuses this text" in str(judged(library("module 218"))["load.runs"]["evidence"])


def test_a_library_of_another_version_fails(library: Library) -> None:
    assert judged(library(kernel="575.51.03"))["load.runs"]["action"] == "reboot"


def test_a_library_that_is_not_there_is_incomplete() -> None:
    assert statuses(judged("/nonexistent/libcuda.so.1")) == dict.fromkeys(
        ("load.runs", "load.memory", "load.compute"), "incomplete"
    )


def test_a_card_without_memory_is_not_fine(library: Library) -> None:
    found = judged(library("free 8"))
    assert statuses(found) == {"load.runs": "pass", "load.memory": "incomplete", "load.compute": "pass"}


def test_less_memory_than_was_free_is_not_fine(library: Library) -> None:
    (told,) = drive(library(), order(parts=["memory"]))
    steps = [{**step, "wanted": 1 << 31} if step["step"] == "begin" else step for step in told.steps]
    assert load_judge._judge_memory(told._replace(steps=steps), "0")["status"] == "incomplete"


def test_a_load_that_is_too_short_is_not_fine(library: Library) -> None:
    assert judged(library(), order(0.001, parts=["memory"]))["load.memory"]["status"] == "incomplete"


def test_a_launch_that_never_comes_back_is_killed_in_time(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_load, "START_SECONDS", 0.5)
    begun = time.monotonic()
    found = judged(library("hang"), order(0.8))
    assert 1.7 < time.monotonic() - begun < 8.0
    assert (found["load.runs"]["status"], found["load.runs"]["action"]) == ("fail", "reboot")
    assert "did not come back" in str(found["load.runs"]["reason"])
    assert found["load.memory"]["status"] == found["load.compute"]["status"] == "incomplete"


def test_one_card_that_hangs_holds_up_no_other(library: Library) -> None:
    path = library("hang")
    hanging = card_load.Child(path, order(0.3))
    time.sleep(0.3)
    assert judged(library(), order(0.3, CARDS[1]))["load.runs"]["status"] == "pass"
    hanging.stop("test")
    assert hanging.told().stopped == "test"


KILLED = """
import sys
sys.path[:0] = sys.argv[1:3]
from ansible_collections.gpuwright.node.plugins.module_utils.measure import card_load
child = card_load.Child(sys.argv[3], card_load.Order(sys.argv[4], sys.argv[4], 60.0, 0.1, ["compute"]))
while b"begin" not in b"".join(child._said):
    child.read()
print(child.process, flush=True)
import time; time.sleep(60)
"""


def test_no_child_outlives_a_module_that_is_killed(library: Library) -> None:
    command = [sys.executable, "-c", KILLED, str(ROOT / "collections"), str(ROOT), library("hang"), CARDS[0]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        time.sleep(0.5)
        assert is_running(child)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_an_exception_leaves_no_child(library: Library) -> None:
    children: list[card_load.Child] = []

    def look(found: Sequence[card_load.Child]) -> None:
        children.extend(found)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        card_load.drive(library("hang"), [order(60.0)], 1.0, look)
    assert not is_running(children[0].process)


def test_a_child_that_talks_without_end_is_not_kept_whole(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_load, "_MOST_TOLD", 100)
    monkeypatch.setattr(card_load, "_TELL_SECONDS", 0.0)
    (told,) = drive(library())
    assert sum(len(str(step)) for step in told.steps) < 200
    assert load_judge.judge_child(told, "0")[0]["status"] == "fail"


def test_a_count_that_no_card_can_have_counts_as_nothing() -> None:
    steps = [
        {"step": "begin", "wanted": 9 << 20, "taken": 9 << 20},
        {"step": "memory", "rounds": 3, "verified": 10**400, "wrong": 0},
    ]
    told = card_load.Told(order(), steps, 0, None, False, None)
    assert "3 patterns" in str(load_judge._judge_memory(told, "0")["reason"])


@pytest.mark.parametrize("nonsense", [None, "1", -1, float("nan"), float("inf"), [], {}, 10**400, True])
def test_a_child_that_tells_nonsense_passes_nothing_by_it(nonsense: Any) -> None:
    steps = [
        {"step": "library"},
        {"step": "begin", "at": nonsense, "wanted": nonsense, "taken": nonsense},
        {"step": "memory", "rounds": nonsense, "verified": nonsense, "wrong": nonsense, "first": nonsense},
        {"step": "compute", "program": nonsense, "rounds": nonsense, "wrong": nonsense, "first": [nonsense]},
        {"step": "failure", "call": nonsense, "code": nonsense, "name": nonsense},
    ]
    told = card_load.Told(order(), steps, 0, None, False, None)
    assert "pass" not in {check["status"] for check in load_judge.judge_child(told, "0")}
    assert load_judge.span([told])[1] == 0.0


# The module -------------------------------------------------------------------------------------------


class Smi:
    """An nvidia-smi whose cards are loaded from its second answer on."""

    def __init__(self, document: str, *others: str, listed: str = "") -> None:
        self.document = document
        self.answers = list(others)
        self.listed = listed
        self.asked = 0

    def __call__(self, argv: Sequence[str], timeout: float) -> run.Result:
        if argv[1] == "-L":
            return run.Result(0, self.listed, "", 0.0, None)
        self.asked += 1
        text = self.document if self.asked == 1 else loaded(self.answers.pop(0) if self.answers else self.document)
        return run.Result(0, text, "", 0.0, None)


def loaded(text: str) -> str:
    for old, new in (
        ("345 MHz", "1890 MHz"),
        ("reason_gpu_idle>Active", "reason_gpu_idle>Not Active"),
        ("0 %", "100 %"),
    ):
        text = text.replace(old, new)
    return text


def options(path: str, **changes: Any) -> Any:
    return {
        "seconds": 0.8,
        "what": ["compute", "memory"],
        "memory_share": 0.5,
        "interval": 0.15,
        "busy": False,
        "ignore": None,
        "pcie_lanes": {},
        "pcie_gen": None,
        "max_temperature_c": None,
        "max_memory_temperature_c": None,
        "library": path,
        "log": True,
        "executable": "nvidia-smi",
        **changes,
    }


def log(*lines: str, why: str | None = None) -> Callable[[], kernel_log.Log]:
    return lambda: kernel_log.Log(list(lines), True, why)


def prove(path: str, smi: Any, **changes: Any) -> Any:
    return gpu_load.prove(options(path, **changes), False, smi, log("nothing"))


def test_good_cards_pass_every_check_under_load(library: Library, document: Any) -> None:
    result = prove(library(), Smi(document("h100_580.xml")))
    assert {check["status"] for check in result["checks"]} <= {"pass", "skip"}
    assert checks.verdict(result["checks"]) == "pass"
    assert [row["uuid"] for row in result["cards"]] == list(CARDS)
    assert result["cards"][0]["sm_mhz"] == {"min": 1890, "median": 1890, "max": 1890}
    assert result["cards"][0]["looks"] >= 2
    named = {check["id"] for check in result["checks"]}
    assert {"load.runs", "load.memory", "load.compute", "load.clocks", "load.pcie_gen", "load.throttle_hw"} <= named
    assert all(check["gpu"] for check in result["checks"])


@pytest.mark.parametrize("busy", [True, False])
def test_a_card_on_which_others_compute_is_left_alone_unless_told(library: Library, document: Any, busy: bool) -> None:
    taken = with_process(document("h100_580.xml"), 0)
    result = prove(library(), Smi(taken, *[taken] * 50), seconds=0.7, busy=busy)
    runs = {check["gpu"]: check for check in result["checks"] if check["id"] == "load.runs"}
    assert runs["1 (00000000:43:00.0)"]["status"] == "pass"
    assert runs["0 (00000000:1B:00.0)"]["status"] == ("pass" if busy else "incomplete")
    assert len(result["cards"]) == (2 if busy else 1)


def with_process(text: str, card: int, number: int = 1) -> str:
    entry = "<process_info><pid>77</pid><type>C</type><process_name>train</process_name><used_memory>9 MiB</used_memory></process_info>"
    head, *cards = text.split("<processes>")
    cards[card] = entry * number + cards[card]
    return "<processes>".join([head, *cards])


def test_a_load_ends_where_others_begin_to_compute(library: Library, document: Any) -> None:
    text = document("h100_580.xml")
    ours = with_process(text, 0)
    begun = time.monotonic()
    result = prove(
        library(), Smi(text, ours, *[with_process(text, 0, 2)] * 50), seconds=20, ignore=["00000000:43:00.0"]
    )
    assert time.monotonic() - begun < 10
    (check,) = [check for check in result["checks"] if check["id"] == "load.runs"]
    assert (check["status"], check["reason"]) == ("incomplete", f"the load was ended: {gpu_load.OTHERS}")


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("<gpu_util>0 %</gpu_util>", "<gpu_util>80 %</gpu_util>", "incomplete"),
        ("<processes>", "<processes><process_info><pid>[Unknown Error]</pid></process_info>", "incomplete"),
        ("<uuid>GPU-00000000-0000-0000-0000-000000000000</uuid>", "<uuid>N/A</uuid>", "incomplete"),
        ("<current_mig>Disabled", "<current_mig>Enabled", "incomplete"),
    ],
)
def test_a_card_of_which_it_is_not_known_whether_it_may_be_loaded_is_left_alone(
    document: Any, old: str, new: str, status: str
) -> None:
    text = without_the_last(document("h100_580.xml"))
    assert old in text
    result = prove("/nonexistent/libcuda.so.1", Smi(text.replace(old, new)))
    assert [(check["id"], check["status"]) for check in result["checks"]] == [("load.runs", status)]
    assert checks.verdict(result["checks"]) == "incomplete"


def without_the_last(text: str) -> str:
    return text[: text.rindex("<gpu id")] + "</nvidia_smi_log>"


def test_what_the_desktop_draws_makes_no_card_busy(library: Library, document: Any) -> None:
    text = without_the_last(with_process(document("h100_580.xml"), 0)).replace("<type>C<", "<type>G<")
    text = text.replace("<gpu_util>0 %", "<gpu_util>30 %")
    assert "load.memory" in {check["id"] for check in prove(library(), Smi(text), seconds=0.7)["checks"]}


def test_each_instance_of_a_parted_card_is_loaded_by_its_own_name(library: Library, document: Any) -> None:
    instances = [INSTANCE.format(number) for number in range(2)]
    text = document("mig_580.xml")
    uuid = text.partition("<uuid>")[2].partition("</uuid>")[0]
    rows = [f"  MIG 1g.10gb     Device  {number}: (UUID: {name})" for number, name in enumerate(instances)]
    listed = "\n".join([f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {uuid})", *rows])
    result = prove(library(cards=instances), Smi(text, listed=listed), seconds=0.7)
    runs = [check for check in result["checks"] if check["id"] == "load.runs"]
    assert [check["status"] for check in runs] == ["pass", "pass"]
    assert [str(check["gpu"]).split()[-1] for check in runs] == instances
    assert len(result["cards"]) == 1


def test_a_card_that_goes_away_under_load_is_fatal(library: Library, document: Any) -> None:
    text = document("h100_580.xml")
    result = prove(library(), Smi(text, *[without_the_last(text)] * 50), seconds=0.7)
    (check,) = [check for check in result["checks"] if check["id"] == "load.lost"]
    assert (check["severity"], check["gpu"]) == ("fatal", "1 (00000000:43:00.0)")


def test_an_nvidia_smi_that_hangs_under_load_fails_and_is_not_asked_again_and_again(
    library: Library, document: Any
) -> None:
    smi = Smi(document("h100_580.xml"))
    hung = run.Result(None, "", "", 20.0, "nvidia-smi did not answer within 20 s")
    asked = []

    def answer(argv: Sequence[str], timeout: float) -> run.Result:
        asked.append(timeout)
        return smi(argv, timeout) if len(asked) == 1 else hung

    result = prove(library(), answer)
    assert len(asked) == 4, "before, twice under load, and after"
    found = {check["id"]: check["status"] for check in result["checks"]}
    assert found["load.smi"] == "fail"
    assert "load.clocks" not in found
    assert checks.verdict(result["checks"]) == "fail"


def test_without_nvidia_smi_nothing_is_loaded() -> None:
    absent = run.Result(None, "", "", 0.0, "nvidia-smi could not be run: No such file or directory", 2)
    result = prove("/nonexistent/libcuda.so.1", lambda argv, timeout: absent)
    assert [check["status"] for check in result["checks"]] == ["incomplete", "incomplete"]
    assert checks.verdict(result["checks"]) == "incomplete"


def test_a_load_too_short_to_be_watched_is_incomplete(library: Library, document: Any) -> None:
    result = prove(library(), Smi(document("h100_580.xml")), seconds=0.5, interval=60)
    assert {check["status"] for check in result["checks"] if check["id"] == "load.watched"} == {"incomplete"}


def test_errors_that_come_into_the_kernel_log_meanwhile_are_told(library: Library, document: Any) -> None:
    old = "NVRM: Xid (PCI:0000:1b:00): 13, pid=1, name=python3, Graphics Exception"
    new = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
    logs = iter([[old], [old, old, new]])
    result: Any = gpu_load.prove(
        options(library(), seconds=0.7),
        False,
        Smi(document("h100_580.xml")),
        lambda: kernel_log.Log(next(logs), True, None),
    )
    assert [(event["code"], event["count"]) for event in result["events"]] == [(13, 1), (79, 1)]
    judged = action.judged(result)
    assert {check["id"] for check in judged} == {"load.xid"}
    assert [check["status"] for check in judged] == ["fail", "warn"]


@pytest.mark.parametrize(("why", "status"), [(None, "pass"), ("dmesg: Operation not permitted", "incomplete")])
def test_a_log_without_new_errors_passes_and_one_that_cannot_be_read_does_not(why: str | None, status: str) -> None:
    (check,) = action.judged({"events": [], "log_lines": 0 if why else 9, "log_problem": why})
    assert check["status"] == status


def test_an_empty_log_is_no_good_one() -> None:
    (check,) = action.judged({"events": [], "log_lines": 0, "log_problem": None})
    assert check["status"] == "skip"


def test_a_log_that_is_not_the_drivers_is_not_read(library: Library, document: Any) -> None:
    smi = Smi(without_the_last(document("h100_580.xml")))

    def read() -> kernel_log.Log:
        raise AssertionError

    result: Any = gpu_load.prove(options(library(), log=False, seconds=0.5), False, smi, read)
    assert (result["log_lines"], result["events"]) == (None, [])


@pytest.mark.parametrize("option", ["library", "executable"])
def test_nothing_is_run_that_somebody_else_can_change(tmp_path: Path, option: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("")
    theirs.chmod(0o666)
    result = prove("libcuda.so.1", lambda argv, timeout: pytest.fail("it was run"), **{option: str(theirs)})
    assert [(check["id"], check["status"]) for check in result["checks"]] == [("load.runs", "incomplete")]
    assert "everybody may write" in result["checks"][0]["reason"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"seconds": 0}, "seconds"),
        ({"seconds": 10**9}, "seconds"),
        ({"interval": 0}, "interval"),
        ({"memory_share": 0}, "memory_share"),
        ({"memory_share": 1.1}, "memory_share"),
        ({"memory_share": "nan"}, "memory_share"),
        ({"what": []}, "what"),
        ({"pcie_lanes": {"all": "many"}}, "pcie_lanes"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any], told: str) -> None:
    answer = run_module(gpu_load, executable="/nonexistent/nvidia-smi", **wrong)
    assert answer["failed"]
    assert told in answer["msg"]


def test_a_module_that_is_told_to_end_leaves_no_child(
    library: Library, document: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answer.xml").write_text(document("h100_580.xml"))
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncat {tmp_path}/answer.xml\n")
    smi.chmod(0o755)
    started: list[int] = []
    start = cuda_driver.start

    def remembered(*arguments: Any) -> tuple[int, int]:
        process, reading = start(*arguments)
        started.append(process)
        return process, reading

    monkeypatch.setattr(cuda_driver, "start", remembered)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    answer = run_module(gpu_load, executable=str(smi), library=library("hang"), seconds=600)
    timer.join()
    assert "ended by signal 15" in answer["msg"]
    assert len(started) == 2
    assert not any(map(is_running, started))

"""Cards under the load of PyTorch: which are loaded, what the programs told, and how it is judged. The programs themselves run for real in
tests/measured/test_framework_load.py. All figures here are made up (`assumed`); the floors of the tables are read from them.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework_load as load
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework_load_judge as judge
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework import MARK
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load_programs import PROGRAMS
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from ansible_collections.gpuwright.node.plugins.modules import framework_load
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import load_figures
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from tests.unit.modules import run_module
from tests.unit.plan import nodes

FIXTURES = Path(__file__).parent / "fixtures"
GPU = "0 (00000000:1B:00.0)"
CARD = load.Device("GPU-0", GPU, "00000000:1B:00.0", "card", "H100", 0)
SECOND = load.Device("GPU-1", "1 (00000000:43:00.0)", "00000000:43:00.0", "card", "H100", 1)
INSTANCE = load.Device("MIG-0", f"{GPU} 1g.10gb 0", "00000000:1B:00.0", "instance", "1g.10gb", 0)
MIB = 1 << 20
BEGUN: list[dict[str, Any]] = [
    {"step": "start"},
    {"step": "import", "version": "2.9.0+cu128", "cuda": "12.8"},
    {"step": "device", "name": "NVIDIA H100 80GB HBM3", "count": 1},
]


def told(*steps: dict[str, Any], rc: int | None = 0, err: str = "", error: str | None = None) -> run.Result:
    lines = [MARK + json.dumps(step) for step in [*BEGUN, *steps]]
    return run.Result(rc, "\n".join(["a warning", *lines]), err, 9.0, error)


def part(name: str, *steps: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"step": "begin", "part": name}, *steps, {"step": "done", "part": name}]


def product(precision: str = "bf16", **changes: Any) -> dict[str, Any]:
    # 8192^3 * 2 / 0.0015 s: 733 TFLOPS.
    return {
        "step": "tflops",
        "precision": precision,
        "size": 8192,
        "seconds": 0.0015,
        "repeats": 200,
        "deviation": 1e-5,
    } | changes


def copied(kind: str = "triad", gbs: float = 3000.0, **changes: Any) -> dict[str, Any]:
    size = 6144 * MIB
    return {
        "step": "bandwidth",
        "kind": kind,
        "bytes": size,
        "seconds": size / gbs / 1e9,
        "repeats": 90,
        "right": True,
    } | changes


def moved(up: float = 55.0, down: float = 54.0, **changes: Any) -> dict[str, Any]:
    size = 256 * MIB
    times = {"to_device": size / up / 1e9, "from_device": size / down / 1e9, "both": 2 * size / 95e9}
    return {"step": "host_device", "node": 0, "local": True, "bytes": size, "right": True} | times | changes


def trained(**changes: Any) -> dict[str, Any]:
    return {
        "step": "training",
        "ranks": 1,
        "steps": 90,
        "seconds": 0.1,
        "waiting": 0.04,
        "operations": 12e12,
        "rows": 32,
        "workers": 4,
        "precision": "bf16",
        "finite": True,
        "first": 4.9,
        "last": 1.4,
    } | changes


def expected(**changes: Any) -> judge.Expected:
    row: Any = {
        "bus_id": "00000000:1B:00.0",
        "name": "H100 SXM5 80GB",
        "tflops": {"bf16": 989.4, "fp32": 66.9},
        "bandwidth_gbs": 3350.0,
        "nvlink_gbs": 900.0,
        "pcie_gbs": 63.0,
        "floors": [
            {"what": "bandwidth", "value": 1905.0, "cards": None, "confirmed": True, "source": "a"},
            {"what": "host_device", "value": 48.0, "cards": None, "confirmed": True, "source": "b"},
            {"what": "peer", "value": 335.0, "cards": None, "confirmed": True, "source": "b"},
            {"what": "all_reduce", "value": 440.0, "cards": 8, "confirmed": True, "source": "c"},
            {"what": "all_reduce", "value": 300.0, "cards": 2, "confirmed": True, "source": "c"},
        ],
    }
    merged: judge.Expected = row | changes
    return merged


def device(*steps: dict[str, Any], what: tuple[str, ...], of: load.Device = CARD, **rest: Any) -> list[Check]:
    return judge.judge_device(of, told(*steps, **rest), what, expected())


def only(found: list[Check], check_id: str) -> Check:
    [check] = [each for each in found if each["id"] == check_id]
    return check


# --- the programs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_python_of_nodes_and_names_only_what_there_is(name: str, tmp_path: Path) -> None:
    ast.parse(PROGRAMS[name], feature_version=(3, 8))
    path = tmp_path / "program.py"
    path.write_text(PROGRAMS[name])
    ruff = shutil.which("ruff", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if ruff is None:
        pytest.skip("no ruff")
    done = subprocess.run(
        [ruff, "check", "--isolated", "--select", "F821,F811", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_fits_into_one_argument(name: str) -> None:
    # MAX_ARG_STRLEN of Linux.
    assert len(PROGRAMS[name].encode()) < 131072
    assert "\x00" not in PROGRAMS[name]


# --- which cards ------------------------------------------------------------------------------------------------------


def cards(name: str = "h100_580.xml", **changes: Any) -> Any:
    data = parse_xml((FIXTURES / name).read_text(encoding="utf-8"))
    for card in data["gpus"]:
        card.update(changes)  # type: ignore[typeddict-item]
    return data


def test_every_card_is_loaded_by_its_uuid() -> None:
    data = cards(processes=[])
    devices, left_alone = load.choose(data, "", [], busy=False)
    assert [each.key for each in devices] == [card["uuid"] for card in data["gpus"]]
    assert {each.kind for each in devices} == {"card"}
    assert left_alone == []


@pytest.mark.parametrize("key", ["index", "uuid", "pci_bus_id"])
def test_a_card_is_wished_by_index_uuid_or_bus_id(key: str) -> None:
    data = cards(processes=[])
    devices, left_alone = load.choose(data, "", [str(data["gpus"][1][key])], busy=False)
    assert [each.number for each in devices] == [1]
    assert left_alone == []


def test_a_card_that_is_not_there_is_said() -> None:
    devices, [missing] = load.choose(cards(processes=[]), "", ["GPU-no"], busy=False)
    assert devices == []
    assert (missing["id"], missing["status"]) == ("load.runs", "incomplete")


def test_a_card_that_computes_is_left_alone_unless_told() -> None:
    data = cards(processes=[{"pid": 7, "type": "C", "name": "train.py"}])
    devices, left_alone = load.choose(data, "", [], busy=False)
    assert devices == []
    assert {(each["status"], each["measured"]) for each in left_alone} == {("incomplete", 1)}
    assert "train.py (pid 7)" in str(left_alone[0]["evidence"])
    assert load.choose(data, "", [], busy=True)[0]


def test_the_desktop_does_not_make_a_card_busy() -> None:
    data = cards(processes=[{"pid": 7, "type": "G", "name": "Xorg"}])
    assert load.choose(data, "", [], busy=False)[0]


def test_a_card_that_prohibits_computing_is_left_alone() -> None:
    _devices, left_alone = load.choose(cards(processes=[], compute_mode="Prohibited"), "", [], busy=True)
    assert {(each["status"], each["action"]) for each in left_alone} == {("incomplete", "configure")}


LISTED = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: {uuid})
  MIG 1g.10gb     Device  0: (UUID: MIG-5a8c0001-1111-5222-8333-444444444444)
  MIG 3g.40gb     Device  1: (UUID: MIG-GPU-5a8c0002-0000-0000-0000-000000000000/2/0)
"""


def test_of_a_card_with_mig_each_instance_is_loaded_and_never_the_card() -> None:
    data = cards("mig_580.xml", processes=[])
    data["gpus"] = data["gpus"][:1]
    listed = LISTED.format(uuid=data["gpus"][0]["uuid"])
    devices, left_alone = load.choose(data, listed, [], busy=False)
    assert [(each.kind, each.name) for each in devices] == [("instance", "1g.10gb"), ("instance", "3g.40gb")]
    assert devices[1].key == "MIG-GPU-5a8c0002-0000-0000-0000-000000000000/2/0"
    assert left_alone == []
    devices, [without] = load.choose(data, listed.splitlines()[0], [], busy=False)
    assert (devices, without["status"]) == ([], "skip")
    # A row that is missing is no card without instances.
    for missing in ("", "GPU 1: NVIDIA A2 (UUID: GPU-77aa01bc-0000-0000-0000-000000000000)\n"):
        devices, [unlisted] = load.choose(data, missing, [], busy=False)
        assert (devices, unlisted["status"]) == ([], "incomplete")


@pytest.mark.parametrize("text", ["", "  MIG 1g Device 0: (UUID: MIG-x)", "GPU 0: x (UUID: GPU-\x00)", "GPU " * 9999])
def test_a_list_that_is_none_names_no_instance(text: str) -> None:
    assert sum(map(len, load.instances_of(text).values())) == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0-3,8", [0, 1, 2, 3, 8]),
        ("5", [5]),
        ("", []),
        (None, []),
        ("x-3,-1,1-2-3", []),
        ("3-1", []),
        ("0-3," * 9999, [0, 1, 2, 3]),
    ],
)
def test_a_list_of_processors_is_read_as_the_kernel_writes_it(text: str | None, found: list[int]) -> None:
    assert load.cpus_of(text) == found


def tree(root: Path, files: dict[str, str]) -> Host:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return Host(str(root))


def test_the_node_of_the_card_comes_first(tmp_path: Path) -> None:
    nodes_ = {
        f"sys/devices/system/node/node{number}/cpulist": cpus for number, cpus in ((0, "0-1"), (1, "2-3"), (2, ""))
    }
    host = tree(tmp_path, {"sys/bus/pci/devices/0000:1b:00.0/numa_node": "1", **nodes_})
    assert load.nodes_of(host, "00000000:1B:00.0") == [
        {"node": 1, "cpus": [2, 3], "local": True},
        {"node": 0, "cpus": [0, 1], "local": False},
    ]


def test_a_card_whose_node_the_kernel_does_not_know_is_near_to_every_processor(tmp_path: Path) -> None:
    files = {"sys/bus/pci/devices/0000:1b:00.0/numa_node": "-1", "sys/devices/system/node/node0/cpulist": "0-1"}
    [node] = load.nodes_of(tree(tmp_path, files), "00000000:1B:00.0")
    assert (node["node"], node["local"]) == (None, True)
    assert node["cpus"]


# --- how it is run ----------------------------------------------------------------------------------------------------


class Recorder:
    """Keeps what was run, and answers what it was told to."""

    def __init__(self, *answers: run.Result) -> None:
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []

    def __call__(self, argv: Any, timeout: float, env: Any = None) -> run.Result:
        self.calls.append({"argv": argv, "timeout": timeout, "env": env or {}})
        return self.answers.pop(0)

    def settings(self, number: int) -> Any:
        return json.loads(self.calls[number]["argv"][-1])


WISH = load.Wish("/e/bin/python", load.WHAT, 10, 180)


def test_a_device_is_loaded_by_a_process_that_sees_nothing_else() -> None:
    recorder = Recorder(told())
    load.ask_card(WISH, INSTANCE, [], recorder)
    [call] = recorder.calls
    assert call["argv"][call["argv"].index("/e/bin/python") :][1:4] == ["-I", "-B", "-c"]
    assert recorder.settings(0)["devices"] == "MIG-0"
    assert call["timeout"] == 180 + 4 * (2 * 10 + 15)
    assert "NVIDIA_TF32_OVERRIDE" in " ".join(call["argv"])


def test_all_cards_together_get_a_rank_each_and_a_file_of_their_own() -> None:
    recorder = Recorder(told())
    load.ask_all(WISH, [CARD, SECOND], recorder)
    settings = recorder.settings(0)
    assert (settings["ranks"], settings["devices"]) == (2, "GPU-0,GPU-1")
    assert recorder.calls[0]["env"]["NCCL_SOCKET_IFNAME"] == "lo"
    # Removed again, with the directory around it.
    way, _mark, store = settings["init_method"].partition("://")
    assert way == "file"
    assert not Path(store).parent.exists()


def test_what_hangs_ends_at_its_limit_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""
import json, os, subprocess, sys, time
child = subprocess.Popen(["sleep", "300"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
print({MARK!r} + json.dumps({{"step": "start"}}), flush=True)
time.sleep(300)
"""
    monkeypatch.setitem(PROGRAMS, "card", text)
    monkeypatch.setattr(load, "limit", lambda wish, parts: 2.0)
    begun = time.monotonic()
    answer = load.ask_card(load.Wish(sys.executable, ["tflops"], 1, 1), load.PROCESSOR, [])
    assert time.monotonic() - begun < 8
    [check] = judge.judge_device(load.PROCESSOR, answer, ["tflops"], None)
    assert (check["id"], check["status"]) == ("load.runs", "fail")
    assert "did not answer within 2 s" in str(check["reason"])
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and Path(f"/proc/{pid}/stat").exists():
        if " Z " in Path(f"/proc/{pid}/stat").read_text():
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{pid}").exists()


# --- figures ----------------------------------------------------------------------------------------------------------


def test_busbw_is_that_of_nccl_tests() -> None:
    """A line of nccl-tests (superbench's log): 8589934592 bytes, 8 ranks, 63896 us, algbw 134.44, busbw 235.26."""
    algorithm, bus = load.bus_bandwidth("all_reduce", 8589934592, 63896e-6, 8)
    assert (round(algorithm, 2), round(bus, 2)) == (134.44, 235.26)
    # doc/PERFORMANCE.md, summary: AllReduce 2*(n-1)/n, AllGather (n-1)/n.
    assert load.bus_bandwidth("all_reduce", 10**9, 1.0, 4)[1] == pytest.approx(1.5)
    assert load.bus_bandwidth("all_gather", 10**9, 1.0, 4)[1] == pytest.approx(0.75)
    assert load.bus_bandwidth("all_gather", 10**9, 1.0, 2)[1] == pytest.approx(0.5)


def test_busbw_is_that_of_the_real_log(samples: Any) -> None:
    [path] = [each for each in samples("perf-logs") if each.name == "superbench_nccl_allreduce.log"]
    lines = [line.split() for line in path.read_text().splitlines()]
    rows = [words for words in lines if len(words) == 12 and words[2] == "float" and int(words[0]) >= 1 << 20]
    assert len(rows) > 10
    for words in rows:
        _algorithm, bus = load.bus_bandwidth("all_reduce", int(words[0]), float(words[4]) * 1e-6, 8)
        assert bus == pytest.approx(float(words[6]), rel=0.001)


def test_figures_are_in_decimal_units() -> None:
    steps = load.steps_of(told(product(), copied("copy", 2900), copied(), moved(), trained()).out)
    figures: Any = load.figures_of(CARD, steps)
    assert figures["tflops"] == {"bf16": 733.0}
    assert figures["bandwidth_gbs"] == {"copy": 2900.0, "triad": 3000.0}
    assert figures["host_device"] == [
        {"node": 0, "local": True, "to_device_gbs": 55.0, "from_device_gbs": 54.0, "both_gbs": 95.0}
    ]
    assert figures["training"]["tflops"] == 120.0


# --- judging ----------------------------------------------------------------------------------------------------------


def test_a_good_card_passes_where_floors_are_known_and_is_told_where_none_is() -> None:
    steps = [
        *part("tflops", product(), product("fp32", seconds=0.021)),
        *part("bandwidth", copied("copy", 2900), copied()),
        *part("host_device", moved()),
        *part("train", trained()),
        {"step": "end"},
    ]
    found = device(*steps, what=load.OF_A_CARD)
    assert {each["id"]: each["status"] for each in found} == {
        "load.tflops_bf16": "skip",
        "load.tflops_fp32": "skip",
        "load.bandwidth": "pass",
        "load.host_device": "pass",
        "train.step": "pass",
        "train.data": "pass",
        "load.results": "pass",
    }
    bf16 = only(found, "load.tflops_bf16")
    assert (bf16["measured"], bf16["expected"], bf16["severity"], bf16["gpu"]) == (
        733.0,
        {"data_sheet": 989.4},
        "info",
        GPU,
    )
    assert "74% of the data sheet" in str(bf16["reason"])
    assert only(found, "load.bandwidth")["expected"] == {"floor": 1905.0, "data_sheet": 3350.0}


def test_what_is_below_a_floor_fails_and_warns_where_nobody_confirmed_it() -> None:
    steps = part("bandwidth", copied(gbs=1800))
    assert only(device(*steps, what=("bandwidth",)), "load.bandwidth")["status"] == "fail"
    unsure = expected(floors=[{"what": "bandwidth", "value": 1905.0, "confirmed": False, "source": "assumed"}])
    found = judge.judge_device(CARD, told(*steps), ("bandwidth",), unsure)
    assert only(found, "load.bandwidth")["status"] == "warn"


def test_the_slower_direction_counts() -> None:
    for changes in ({"up": 30.0}, {"down": 30.0}):
        found = device(*part("host_device", moved(**changes)), what=("host_device",))
        assert (only(found, "load.host_device")["status"], only(found, "load.host_device")["measured"]) == (
            "fail",
            30.0,
        )


def test_a_far_node_is_told_and_not_judged() -> None:
    found = device(*part("host_device", moved(), moved(20.0, node=1, local=False)), what=("host_device",))
    check = only(found, "load.host_device")
    assert check["status"] == "pass"
    assert "from the other nodes 20 at the least (node 1)" in str(check["reason"])


def test_a_mig_instance_is_not_held_against_the_whole_card() -> None:
    found = device(*part("bandwidth", copied(gbs=400)), what=("bandwidth",), of=INSTANCE)
    check = only(found, "load.bandwidth")
    assert (check["status"], check["expected"]) == ("skip", None)


def test_more_than_the_card_can_do_is_no_pass() -> None:
    found = device(*part("bandwidth", copied(gbs=9000)), what=("bandwidth",))
    assert only(found, "load.bandwidth")["status"] == "incomplete"


@pytest.mark.parametrize(
    ("precision", "deviation", "status"),
    [
        ("bf16", 0.007, "pass"),
        ("bf16", 0.5, "fail"),
        ("fp32", 1e-6, "pass"),
        ("fp32", 0.001, "fail"),  # TF32 in its place
        ("fp64", 1e-14, "pass"),
        ("fp8", float("nan"), "fail"),
        ("fp8", None, "fail"),
        ("fp8", "0", "fail"),
        ("fp8", True, "fail"),
        ("fp9", 0.0, "fail"),
    ],
)
def test_a_wrong_product_is_fatal_however_quick(precision: str, deviation: Any, status: str) -> None:
    found = device(*part("tflops", product(precision, deviation=deviation)), what=("tflops",))
    check = only(found, "load.results")
    assert (check["status"], check["severity"]) == (status, "fatal")


@pytest.mark.parametrize(
    ("name", "step"),
    [("bandwidth", copied(right=False)), ("host_device", moved(right=False))],
    ids=lambda each: str(each)[:12],
)
def test_a_wrong_copy_is_fatal(name: str, step: dict[str, Any]) -> None:
    check = only(device(*part(name, step), what=(name,)), "load.results")
    assert (check["status"], check["severity"]) == ("fail", "fatal")


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, "pass", "the loss went from 4.9 to 1.4"),
        ({"finite": False}, "fail", "no number"),
        ({"first": float("nan")}, "fail", "no number"),
        ({"last": None}, "fail", "no number"),
        ({"last": 4.9}, "fail", "does not fall"),
        ({"last": 6.0}, "fail", "does not fall"),
        ({"steps": 2}, "incomplete", "only 2 steps"),
    ],
)
def test_training_has_to_learn(changes: dict[str, Any], status: str, words: str) -> None:
    check = only(device(*part("train", trained(**changes)), what=("train",)), "train.step")
    assert check["status"] == status
    assert words in str(check["reason"])


def test_a_card_that_waits_for_its_data_warns() -> None:
    found = device(*part("train", trained(waiting=0.8)), what=("train",))
    assert (only(found, "train.data")["status"], only(found, "train.step")["status"]) == ("warn", "pass")


def test_pairs_are_judged_in_each_direction() -> None:
    size = 512 * MIB

    def pair(first: int, second: int, gbs: float, **changes: Any) -> dict[str, Any]:
        facts = {"bytes": size, "seconds": size / gbs / 1e9, "repeats": 9, "right": True, "direct": True}
        return {"step": "peer", "first": first, "second": second} | facts | changes

    rows = {"00000000:1B:00.0": expected(), "00000000:43:00.0": expected()}
    answer = told(*part("peer", pair(0, 1, 370), pair(1, 0, 20, direct=False), pair(0, 7, 1), pair(1, 1, 1)))
    found = judge.judge_pairs([CARD, SECOND], answer, rows)
    assert {each["gpu"]: each["status"] for each in found if each["id"] == "load.peer"} == {
        "0 to 1": "pass",
        "1 to 0": "fail",
    }
    assert [row["gbs"] for row in load.pairs_of([CARD, SECOND], load.steps_of(answer.out))] == [370.0, 20.0]
    missing = judge.judge_pairs([CARD, SECOND], told(*part("peer", pair(0, 1, 370))), rows)
    assert "incomplete" in {each["status"] for each in missing}


def all_of(*steps: dict[str, Any], backend: str = "nccl", **rest: Any) -> run.Result:
    group: list[dict[str, Any]] = [
        {"step": "begin", "part": "group"},
        {"step": "group", "ranks": 2, "backend": backend, "nccl": [2, 21, 5]},
    ]
    return told(*group, *steps, **rest)


def collective(kind: str, busbw: float, size: int = 4096 * MIB, **changes: Any) -> dict[str, Any]:
    # Of two ranks busbw is algbw for all_reduce, and half of it for all_gather.
    algorithm = busbw * (1 if kind == "all_reduce" else 2)
    return {
        "step": "collective",
        "kind": kind,
        "bytes": size,
        "seconds": size / algorithm / 1e9,
        "repeats": 20,
        "right": True,
    } | changes


ROWS = {"00000000:1B:00.0": expected(), "00000000:43:00.0": expected()}


def test_the_largest_collective_counts_and_the_floor_of_as_many_cards() -> None:
    steps = part(
        "collectives", collective("all_reduce", 30, MIB), collective("all_reduce", 350), collective("all_gather", 330)
    )
    found = judge.judge_all([CARD, SECOND], all_of(*steps), ("collectives",), ROWS)
    reduced, gathered = only(found, "nccl.all_reduce"), only(found, "nccl.all_gather")
    assert (reduced["status"], reduced["measured"], reduced["expected"]) == ("pass", 350.0, {"floor": 300.0})
    assert (gathered["status"], gathered["expected"]) == ("skip", {"data_sheet": 450.0})
    slow = part("collectives", collective("all_reduce", 200), collective("all_gather", 330))
    assert (
        only(judge.judge_all([CARD, SECOND], all_of(*slow), ("collectives",), ROWS), "nccl.all_reduce")["status"]
        == "fail"
    )


def test_cards_of_two_models_are_held_against_no_floor() -> None:
    rows = {**ROWS, "00000000:43:00.0": expected(name="A100 SXM4 80GB")}
    steps = part("collectives", collective("all_reduce", 20), collective("all_gather", 20))
    found = judge.judge_all([CARD, SECOND], all_of(*steps), ("collectives",), rows)
    assert only(found, "nccl.all_reduce")["status"] == "skip"


def test_gloo_on_the_processor_is_no_nccl() -> None:
    steps = part("collectives", collective("all_reduce", 2), collective("all_gather", 2))
    found = judge.judge_all([], all_of(*steps, backend="gloo"), ("collectives",), {})
    assert {each["status"] for each in found if each["id"].startswith("nccl.")} == {"skip"}
    assert "NCCL needs cards" in str(only(found, "nccl.all_reduce")["reason"])
    assert only(found, "load.results")["status"] == "pass"


def test_a_wrong_sum_is_fatal() -> None:
    steps = part("collectives", collective("all_reduce", 350, right=False), collective("all_gather", 330))
    check = only(judge.judge_all([CARD, SECOND], all_of(*steps), ("collectives",), ROWS), "load.results")
    assert (check["status"], check["severity"]) == ("fail", "fatal")
    assert "all_reduce" in str(check["reason"])


@pytest.mark.parametrize(("drift", "status"), [(0.0, "pass"), (1e-9, "fail"), (float("nan"), "fail"), (None, "fail")])
def test_parameters_are_the_same_on_all_ranks(drift: Any, status: str) -> None:
    steps = part("ddp", trained(ranks=2, drift=drift))
    found = judge.judge_all([CARD, SECOND], all_of(*steps), ("ddp",), ROWS)
    assert only(found, "train.ddp")["status"] == status


def test_a_rank_that_died_fails_its_part_and_what_follows_is_not_passed() -> None:
    steps: list[dict[str, Any]] = [{"step": "begin", "part": "collectives"}, {"step": "rank", "rank": 1, "status": -9}]
    found = judge.judge_all([CARD, SECOND], all_of(*steps, rc=1), ("collectives", "ddp"), ROWS)
    broken = only(found, "nccl.all_reduce")
    assert (broken["status"], broken["reason"]) == (
        "fail",
        "it broke off: the process of rank 1 was killed by signal 9",
    )
    assert only(found, "train.ddp")["status"] == "incomplete"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (-9, "it broke off: the process of rank 1 was killed by signal 9"),
        (-6, "it ended with an error"),
        (1, "it ended with an error"),
    ],
)
def test_a_rank_that_was_killed_is_told_and_not_what_its_partner_says_of_it(status: int, reason: str) -> None:
    lost = {"step": "broken", "part": "collectives", "error": "RuntimeError: Connection closed by peer"}
    steps: list[dict[str, Any]] = [{"step": "begin", "part": "collectives"}, lost]
    answer = all_of(*steps, {"step": "rank", "rank": 1, "status": status}, rc=1)
    found = judge.judge_all([CARD, SECOND], answer, ("collectives",), ROWS)
    assert only(found, "nccl.all_reduce")["reason"] == reason


def test_ranks_that_do_not_find_each_other_are_said() -> None:
    answer = told({"step": "begin", "part": "group"}, rc=None, error="python did not answer within 9 s")
    [check] = judge.judge_all([CARD, SECOND], answer, ("collectives", "ddp"), ROWS)
    assert (check["id"], check["status"]) == ("load.runs", "fail")


# --- what breaks ------------------------------------------------------------------------------------------------------


def test_a_part_that_broke_off_does_not_hide_the_one_before() -> None:
    steps: list[dict[str, Any]] = [*part("tflops", product()), {"step": "begin", "part": "bandwidth"}]
    found = device(*steps, what=("tflops", "bandwidth", "train"), rc=-11, err="Segmentation fault")
    assert only(found, "load.tflops_bf16")["measured"] == 733.0
    assert (only(found, "load.bandwidth")["status"], only(found, "train.step")["status"]) == ("fail", "incomplete")
    assert "signal 11" in str(only(found, "load.bandwidth")["reason"])


def test_want_of_memory_is_no_fault_of_the_card() -> None:
    error = "OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB"
    steps = [{"step": "begin", "part": "train"}, {"step": "broken", "part": "train", "error": error}]
    check = only(device(*steps, what=("train",)), "train.step")
    assert (check["status"], check["action"]) == ("incomplete", "restart_app")


def test_an_error_of_cuda_is_one_of_the_card() -> None:
    error = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    check = only(
        device(*part("tflops", {"step": "tflops", "precision": "fp16", "error": error}), what=("tflops",)),
        "load.tflops_fp16",
    )
    assert (check["status"], check["evidence"]) == ("fail", error)


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (run.Result(1, "", "No such file or directory: '/e/bin/python'", 0.1, None), "incomplete", "interpreter"),
        (run.Result(0, "", "", 0.1, None), "incomplete", "interpreter"),
        (run.Result(None, "", "", 9.0, "python did not answer within 9 s"), "incomplete", "interpreter"),
        (run.Result(-9, MARK + '{"step": "start"}', "Killed", 0.1, None), "fail", "signal 9"),
    ],
)
def test_a_program_that_did_not_begin_is_no_pass(answer: run.Result, status: str, words: str) -> None:
    [check] = judge.judge_device(CARD, answer, load.OF_A_CARD, expected())
    assert (check["id"], check["status"], check["gpu"]) == ("load.runs", status, GPU)
    assert words in str(check["reason"])


def test_an_import_or_a_card_that_fails_says_why() -> None:
    for steps, words in (
        ([{"step": "start"}, {"step": "import", "error": "ModuleNotFoundError: No module named 'torch'"}], "imported"),
        ([*BEGUN[:2], {"step": "device", "error": "RuntimeError: No CUDA GPUs are available"}], "finds no NVIDIA GPU"),
    ):
        answer = run.Result(0, "\n".join(MARK + json.dumps(step) for step in steps), "", 1.0, None)
        [check] = judge.judge_device(CARD, answer, load.OF_A_CARD, expected())
        assert check["status"] == "incomplete"
        assert words in str(check["reason"])


HOSTILE: list[Any] = [None, True, "1", [], {}, -1, 0, 1e999, float("nan"), 10**400, "\x1b[2J"]


@pytest.mark.parametrize("step", [product(), copied(), moved(), trained()], ids=lambda step: step["step"])
def test_no_fact_that_cannot_be_makes_a_judge_stumble_or_pass(step: dict[str, Any]) -> None:
    names = {"tflops": "tflops", "bandwidth": "bandwidth", "host_device": "host_device", "training": "train"}
    name = names[step["step"]]
    for key in step:
        for value in HOSTILE:
            answer = told(*part(name, step | {key: value}))
            steps = load.steps_of(answer.out)
            found = judge.judge_device(CARD, answer, (name,), expected())
            json.dumps([load.figures_of(CARD, steps), found], allow_nan=False)
            assert found
            assert all(set(check) == set(checks.KEYS) for check in found)


def test_a_part_without_a_figure_is_incomplete() -> None:
    for name, check_id in (
        ("bandwidth", "load.bandwidth"),
        ("host_device", "load.host_device"),
        ("train", "train.step"),
    ):
        assert only(device(*part(name), what=(name,)), check_id)["status"] == "incomplete"
    found = judge.judge_all([CARD, SECOND], all_of(*part("collectives"), *part("ddp")), load.OF_ALL, ROWS)
    assert {each["status"] for each in found} == {"incomplete"}


# --- the module -------------------------------------------------------------------------------------------------------


def smi_says(name: str = "h100_580.xml") -> run.Result:
    return run.Result(0, (FIXTURES / name).read_text(encoding="utf-8"), "", 0.3, None)


def options(**changes: Any) -> Any:
    return {
        "python": "/nonexistent/bin/python",
        "what": list(load.WHAT),
        "seconds": 1,
        "startup": 1,
        "cards": [],
        "busy": True,
        "expect_cuda": True,
        "executable": "nvidia-smi",
        "expected": [expected()],
    } | changes


def whole() -> run.Result:
    return told(
        *part("tflops", product()),
        *part("bandwidth", copied()),
        *part("host_device", moved()),
        *part("train", trained()),
    )


def test_two_cards_are_loaded_by_themselves_then_in_pairs_then_together() -> None:
    recorder = Recorder(
        smi_says(),
        whole(),
        whole(),
        told(*part("peer")),
        all_of(*part("collectives"), *part("ddp", trained(ranks=2, drift=0.0))),
    )
    answer: Any = framework_load.prove(options(cards=["0", "1"]), runner=recorder)
    assert [recorder.settings(number)["devices"].count("GPU-") for number in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert len(answer["devices"]) == 2
    assert answer["version"] == "2.9.0+cu128"
    assert answer["training"]["ranks"] == 2
    said = {**checks.with_verdict(answer), "changed": False}
    assert json.loads(gate.admit("framework_load", json.dumps(said)))["verdict"] == "incomplete"


def test_one_card_has_no_pair() -> None:
    recorder = Recorder(smi_says(), whole())
    answer: Any = framework_load.prove(options(cards=["0"]), runner=recorder)
    skipped = {each["id"] for each in answer["checks"] if each["status"] == "skip"}
    assert {"load.peer", "nccl.all_reduce", "nccl.all_gather", "train.ddp"} <= skipped


def test_only_what_is_wished_is_run() -> None:
    recorder = Recorder(smi_says(), told(*part("peer")))
    framework_load.prove(options(what=["peer"]), runner=recorder)
    assert len(recorder.calls) == 2


def test_the_processor_is_loaded_where_no_cards_are_expected() -> None:
    recorder = Recorder(
        told(*part("tflops", product("fp32")), *part("bandwidth", copied()), *part("train", trained())),
        all_of(backend="gloo"),
    )
    answer: Any = framework_load.prove(options(expect_cuda=False), runner=recorder)
    assert recorder.settings(0)["card"] is recorder.settings(1)["card"] is False
    assert (recorder.settings(0)["devices"], recorder.settings(1)["ranks"]) == ("", 2)
    statuses = {each["id"]: each["status"] for each in answer["checks"]}
    assert statuses["load.host_device"] == statuses["load.peer"] == statuses["load.tflops_fp32"] == "skip"
    assert statuses["train.step"] == "pass"


def test_nothing_is_loaded_where_nvidia_smi_does_not_answer() -> None:
    answer: Any = framework_load.prove(options(), runner=Recorder(run.Result(9, "", "no driver", 0.1, None)))
    assert [(each["id"], each["status"]) for each in answer["checks"]] == [("load.runs", "incomplete")]


def test_root_runs_nothing_that_another_may_change(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o777)
    recorder = Recorder()
    answer: Any = framework_load.prove(options(python=str(python)), runner=recorder)
    assert recorder.calls == []
    assert [(each["id"], each["status"]) for each in answer["checks"]] == [("load.runs", "incomplete")]


def test_nothing_is_loaded_in_check_mode() -> None:
    answer = run_module(framework_load, check=True, python="/nonexistent/python")
    assert [each["status"] for each in answer["checks"]] == ["skip"]
    assert answer["verdict"] == "incomplete"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seconds": 0}, "seconds must be"),
        ({"startup": -1}, "startup must be"),
        ({"what": ["everything"]}, "value of what must be"),
        ({"expected": [{"bus_id": "a", "name": "b", "tflops": {"bf16": "many"}}]}, "tflops must map"),
    ],
)
def test_wrong_options_are_refused(changes: dict[str, Any], words: str) -> None:
    answer = run_module(framework_load, python="/nonexistent/python", **changes)
    assert answer["failed"]
    assert words in answer["msg"]


# --- the tables -------------------------------------------------------------------------------------------------------


def test_floors_are_of_cards_that_there_are_and_below_their_data_sheets() -> None:
    rules = load_rules()
    known = {row["name"]: row for row in rules["gpus"]["rows"]}
    for row in rules["floors"]["rows"]:
        for name in row["cards"]:
            assert name in known
            most = {"bandwidth": known[name]["bandwidth_gbs"], "peer": (known[name]["nvlink_gbs"] or 0) / 2}.get(
                row["what"]
            )
            assert most is None or row["value"] < most
    pairs = [(name, row["what"], row["together"]) for row in rules["floors"]["rows"] for name in row["cards"]]
    assert len(set(pairs)) == len(pairs)


def test_a_card_is_held_against_its_data_sheet_and_its_floors() -> None:
    [row] = load_figures.expected([{**nodes.H100, "bus_id": "00000000:1B:00.0"}], load_rules())  # type: ignore[typeddict-item]
    assert (row["name"], row["bandwidth_gbs"], row["tflops"]["bf16"]) == ("H100 SXM5 80GB", 3350, 989.4)
    # 32 GT/s and 128 of 130 bits, sixteen lanes.
    assert row["pcie_gbs"] == 63.02
    assert {floor["what"] for floor in row["floors"]} == {"bandwidth", "host_device", "peer", "all_reduce"}
    assert load_figures.expected([{**nodes.H100, "device": "ffff", "bus_id": "x"}], load_rules()) == []  # type: ignore[typeddict-item]


def test_the_module_takes_what_the_tables_say() -> None:
    rows = load_figures.expected([{**nodes.H100, "bus_id": "00000000:1B:00.0"}], load_rules())  # type: ignore[typeddict-item]
    answer = run_module(framework_load, check=True, python="/nonexistent/python", expected=rows)
    assert not answer.get("failed"), answer

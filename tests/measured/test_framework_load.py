"""The programs that load cards, run for real by PyTorch on the processor: two processes by gloo, and each broken on purpose."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework_load as load
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework_load_judge as judge
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load_programs import PROGRAMS

STARTUP = 180


def wish(*what: str, seconds: int = 4) -> load.Wish:
    return load.Wish(sys.executable, what, seconds, STARTUP)


def alone(*what: str, seconds: int = 4) -> tuple[run.Result, dict[str, Check]]:
    answer = load.ask_card(wish(*what, seconds=seconds), load.PROCESSOR, [])
    return answer, {each["id"]: each for each in judge.judge_device(load.PROCESSOR, answer, what, None)}


def together(*what: str, seconds: int = 4) -> tuple[run.Result, dict[str, Check]]:
    answer = load.ask_all(wish(*what, seconds=seconds), [])
    return answer, {each["id"]: each for each in judge.judge_all([], answer, what, {})}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Another text in the place of one that the program has."""

    def replace(program: str, right: str, wrong: str) -> None:
        assert PROGRAMS[program].count(right) == 1, right
        monkeypatch.setitem(PROGRAMS, program, PROGRAMS[program].replace(right, wrong))

    return replace


# --- as it is ---------------------------------------------------------------------------------------------------------


def test_the_processor_multiplies_copies_and_learns() -> None:
    answer, found = alone("tflops", "bandwidth", "train", seconds=8)
    assert answer.rc == 0, answer.err
    assert {key: each["status"] for key, each in found.items()} == {
        "load.tflops_fp32": "skip",
        "load.tflops_fp64": "skip",
        "load.tflops_bf16": "skip",
        "load.bandwidth": "skip",
        "train.step": "pass",
        "train.data": "skip",
        "load.results": "pass",
    }
    figures: Any = load.figures_of(load.PROCESSOR, load.steps_of(answer.out))
    assert min(figures["tflops"].values()) > 0
    assert 0 < figures["bandwidth_gbs"]["copy"] < 2000


def test_two_processes_reduce_gather_and_learn_the_same() -> None:
    answer, found = together("collectives", "ddp", seconds=8)
    assert answer.rc == 0, answer.err
    assert {key: each["status"] for key, each in found.items()} == {
        "nccl.all_reduce": "skip",
        "nccl.all_gather": "skip",
        "train.ddp": "pass",
        "load.results": "pass",
    }
    rows = load.collectives_of(load.steps_of(answer.out))
    assert {(row["kind"], row["backend"], row["ranks"]) for row in rows} == {
        ("all_reduce", "gloo", 2),
        ("all_gather", "gloo", 2),
    }


def test_operations_of_training_are_those_that_pytorch_counts() -> None:
    space: dict[str, Any] = {"__name__": "program"}
    text = PROGRAMS["card"]
    begin, end = text.index("import random, zlib"), text.index("def shape():")
    exec("import torch\nrank = 0\n" + text[begin:end], space)  # noqa: S102 - our own program
    layers, width, heads, length, rows = 2, 128, 4, 64, 16
    model = space["Model"](layers, width, heads, length)
    words = torch.randint(0, 256, (rows, length))
    # The processor's quick attention is a kernel that is not counted.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(words).sum().backward()
    assert space["operations"](layers, width, length, rows) == pytest.approx(counter.get_total_flops(), rel=0.02)


def by_hand(size: int, seconds: float) -> float:
    """10^12 operations a second of a product, by the median of a loop of so many seconds."""
    first, second = torch.randn(size, size), torch.randn(size, size)
    times: list[float] = []
    while sum(times) < seconds:
        begun = time.perf_counter()
        torch.mm(first, second)
        times.append(time.perf_counter() - begun)
    return 2 * size**3 / statistics.median(times) / 1e12


def test_the_figure_of_a_product_is_that_of_a_loop_by_hand() -> None:
    """Other things run on this machine too: both are measured in turns, and it is only about the same here."""
    ratios = []
    for _ in range(3):
        answer, _found = alone("tflops", seconds=6)
        [step] = [
            each for each in load.steps_of(answer.out) if each["step"] == "tflops" and each["precision"] == "fp32"
        ]
        ratios.append(load.tflops(step) / by_hand(step["size"], 2))
    assert 0.6 < statistics.median(ratios) < 1.6, ratios


def test_the_directory_of_the_ranks_goes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    together("collectives", seconds=1)
    assert list(tmp_path.iterdir()) == []


# --- the calls of CUDA ---------------------------------------------------------------------------------------------------

#: Stands in for CUDA: two "cards" that are the processor. It shows that what is only done with cards is right Python and gives right
#: results; what a real card does it cannot show.
STAND_IN = """
class _Event:
    def __init__(self, enable_timing=False):
        self.time = None
    def record(self, stream=None):
        self.time = time.perf_counter()
    def elapsed_time(self, other):
        return (other.time - self.time) * 1000
class _Stream:
    def __init__(self, device=None):
        pass
    def wait_stream(self, other):
        pass
import contextlib
_real = torch.empty
torch.empty = lambda *sizes, pin_memory=False, **rest: _real(*sizes, **rest)
for _name, _call in dict(
    set_device=lambda number: None, get_device_capability=lambda device: CAPABILITY, get_device_name=lambda device: "stand-in",
    device_count=lambda: 2, mem_get_info=lambda device: (1 << 30, 1 << 31), empty_cache=lambda: None, synchronize=lambda device: None,
    Event=_Event, Stream=_Stream, current_stream=lambda device: _Stream(), stream=lambda stream: contextlib.nullcontext(),
    can_device_access_peer=lambda first, second: True,
).items():
    setattr(torch.cuda, _name, _call)
"""


@pytest.mark.parametrize("capability", [(9, 0), (7, 0)])
def test_what_needs_a_card_computes_the_same_with_a_stand_in(broken: Any, capability: tuple[int, int]) -> None:
    right = 'say("import", version=torch.__version__, cuda=torch.version.cuda)\n'
    for program in ("card", "peers"):
        broken(program, right, right + STAND_IN.replace("CAPABILITY", repr(capability)))
        broken(program, 'torch.device("cuda", local)', 'torch.device("cpu")')
    broken("peers", 'torch.device("cuda", first)', 'torch.device("cpu")')
    broken("peers", 'torch.device("cuda", second)', 'torch.device("cpu")')
    broken("card", "(8192, 2048) if on_card", "(512, 256) if on_card")
    broken("card", "    free = free_memory()\n    for least", "    return 2, 128, 4, 32, 8\n    for least")
    card = load.Device("GPU-0", "0", "00000000:1B:00.0", "card", "stand-in", 0)
    node: load.Node = {"node": 0, "cpus": load.cpus_of("0-4095"), "local": True}
    far: load.Node = {"node": 1, "cpus": [99999], "local": False}
    answer = load.ask_card(wish(*load.OF_A_CARD, seconds=1), card, [node, far])
    found = {each["id"]: each for each in judge.judge_device(card, answer, load.OF_A_CARD, None)}
    precisions = (
        {"fp32", "fp64"}
        | ({"fp16"} if capability >= (7, 0) else set())
        | ({"tf32", "bf16"} if capability >= (8, 0) else set())
    )
    steps = load.steps_of(answer.out)
    assert precisions <= {step["precision"] for step in steps if step["step"] == "tflops" and "error" not in step}, (
        answer.out + answer.err
    )
    assert found["load.results"]["status"] == "pass", found["load.results"]
    assert [step.get("error", "")[:24] for step in steps if step["step"] == "host_device"] == [
        "",
        "this process may not run",
    ]
    assert [step for step in steps if step["step"] == "broken"] == []
    assert found["train.step"]["status"] in ("pass", "incomplete"), found["train.step"]
    pairs = load.ask_pairs(wish("peer", seconds=1), [card, card._replace(key="GPU-1", number=1)])
    checked = judge.judge_pairs([card, card], pairs, {})
    assert [each["id"] for each in checked] == ["load.peer", "load.peer", "load.results"], pairs.out + pairs.err
    assert checked[-1]["status"] == "pass"


# --- broken on purpose ------------------------------------------------------------------------------------------------


def test_a_wrong_product_is_seen(broken: Any) -> None:
    broken("card", "deviation(first, second, multiply())", "deviation(first, second, multiply() * 1.5)")
    _answer, found = alone("tflops", seconds=1)
    assert found["load.results"]["status"] == "fail"


def test_one_wrong_element_of_a_copy_is_seen(broken: Any) -> None:
    broken(
        "card",
        "right = bool((out - more == values).all().item())",
        "out[7] += 1\n        right = bool((out - more == values).all().item())",
    )
    _answer, found = alone("bandwidth", seconds=1)
    assert found["load.results"]["status"] == "fail"


def test_a_loss_that_is_no_number_is_seen(broken: Any) -> None:
    broken("card", "scores.float().reshape(-1, WORDS)", "scores.float().reshape(-1, WORDS) * float('nan')")
    _answer, found = alone("train", seconds=2)
    assert (found["train.step"]["status"], found["train.step"]["severity"]) == ("fail", "fatal")


def test_a_loss_that_rises_is_seen(broken: Any) -> None:
    broken("card", "lr=1e-3 if width < 512 else 3e-4", "lr=1e-3, maximize=True")
    _answer, found = alone("train")
    assert "does not fall" in str(found["train.step"]["reason"])


def test_a_rank_that_dies_ends_the_others(broken: Any) -> None:
    broken("ranks", "def collectives():\n", "def collectives():\n    if rank == 1:\n        os.kill(os.getpid(), 9)\n")
    begun = time.monotonic()
    _answer, found = together("collectives", "ddp")
    assert time.monotonic() - begun < 60
    assert "rank 1 was killed by signal 9" in str(found["nccl.all_reduce"]["reason"])
    assert (found["nccl.all_reduce"]["status"], found["train.ddp"]["status"]) == ("fail", "incomplete")


def test_a_rank_that_raises_ends_the_others(broken: Any) -> None:
    broken(
        "ranks",
        "def collectives():\n",
        "def collectives():\n    if rank == 1:\n        raise RuntimeError('no more')\n",
    )
    begun = time.monotonic()
    _answer, found = together("collectives")
    assert time.monotonic() - begun < 60
    assert (found["nccl.all_reduce"]["status"], found["nccl.all_reduce"]["evidence"]) == (
        "fail",
        "RuntimeError: no more",
    )


def test_a_wrong_sum_is_seen(broken: Any) -> None:
    broken("ranks", "data.copy_(pattern).add_(rank)", "data.copy_(pattern).add_(2 * rank)")
    _answer, found = together("collectives", seconds=1)
    assert "all_reduce" in str(found["load.results"]["reason"])
    assert found["load.results"]["status"] == "fail"


def test_ranks_that_learn_apart_are_seen(broken: Any) -> None:
    right = "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local] if on_card else None)"
    broken("ranks", right, "pass")
    _answer, found = together("ddp")
    assert "differ between the ranks" in str(found["train.ddp"]["reason"])


def test_a_hang_ends_at_the_limit_and_what_was_told_stays(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken("card", "def bandwidth():\n", "def bandwidth():\n    time.sleep(600)\n")
    monkeypatch.setattr(load, "limit", lambda wish, parts: 30.0)
    begun = time.monotonic()
    answer, found = alone("tflops", "bandwidth", seconds=1)
    assert time.monotonic() - begun < 45
    assert "did not answer within 30 s" in str(found["load.bandwidth"]["reason"])
    assert found["load.tflops_fp32"]["status"] == "skip"
    assert json.dumps(load.figures_of(load.PROCESSOR, load.steps_of(answer.out)), allow_nan=False)

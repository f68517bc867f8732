"""Proving a CUDA toolkit: what its compiler says, what the compiled program says of each card, and who may have changed it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import toolkit
from ansible_collections.gpuwright.node.plugins.modules import toolkit_check
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.sim import repository

NVCC = "/usr/local/cuda-13.0/bin/nvcc"

# As nvcc V13.0.88 says it.
NO_GCC = "gcc: No such file or directory\nnvcc fatal   : Failed to preprocess host compiler properties.\n"
NO_GXX = (
    "gcc: fatal error: cannot execute 'cc1plus': execvp: No such file or directory\n"
    "nvcc fatal   : Failed to preprocess host compiler properties.\n"
)
NEW_GCC = (
    "/usr/local/cuda-13.0/include/crt/host_config.h:137:2: error: #error -- unsupported GNU version! gcc versions later than 15 are not "
    "supported! The nvcc flag '-allow-unsupported-compiler' can be used to override this version check\n"
)
NO_TARGET = "nvcc fatal   : Unsupported gpu architecture 'sm_52'\n"
NO_RUNTIME = (
    "/usr/bin/ld: cannot find -lcudart_static: No such file or directory\ncollect2: error: ld returned 1 exit status\n"
)
OLD_DRIVER = (35, "CUDA driver version is insufficient for CUDA runtime version")
NO_IMAGE = (209, "no kernel image is available for execution on the device")


def said(
    rc: int | None, out: str = "", err: str = "", error: str | None = None, errno: int | None = None
) -> run.Result:
    return run.Result(rc, out, err, 0.1, error, errno)


def count(number: int = 1, code: int = 0, error: str = "no error") -> str:
    return f"\n{toolkit.MARK}{json.dumps({'step': 'count', 'count': number, 'code': code, 'error': error})}\n"


def card(right: int = toolkit.NUMBERS, code: int = 0, error: str = "no error", bus: str = "0000:1b:00.0") -> str:
    step = {
        "step": "card",
        "bus_id": bus,
        "right": right,
        "call": "the start of the kernel",
        "code": code,
        "error": error,
    }
    return f"{toolkit.MARK}{json.dumps(step)}\n"


class Node:
    """A machine that answers each call with the next of these; a compiler that says success leaves a file."""

    def __init__(self, *answers: run.Result) -> None:
        self.answers = list(answers)
        self.calls: list[list[str]] = []

    def __call__(self, words: Sequence[str], /, **_rest: Any) -> run.Result:
        self.calls.append(list(words))
        answer = self.answers.pop(0) if self.answers else said(0)
        if answer.ok and "-o" in words:
            Path(words[words.index("-o") + 1]).write_text("code")
        return answer


def prove(tmp_path: Path, node: Node, cards: int | None = None, known: str | None = None, *capabilities: str) -> Any:
    question = toolkit.Question(NVCC, capabilities or ("9.0",), known, cards, 10)
    return toolkit.prove(question, str(tmp_path), node)


def test_it_compiles_for_the_capability_of_each_card(tmp_path: Path) -> None:
    node = Node()
    done, kernel = prove(tmp_path, node, None, None, "7.5", "12.0")
    assert (done["id"], done["status"], done["measured"]) == ("cuda.compile", "pass", "sm_75, sm_120")
    assert (kernel["id"], kernel["status"]) == ("cuda.kernel", "skip")
    assert [words[3:5] for words in node.calls] == [["-arch=sm_75", "-cubin"], ["-arch=sm_120", "-cubin"]]


@pytest.mark.parametrize(
    ("answer", "known", "status", "words"),
    [
        (said(1, err=NO_GCC), None, "incomplete", "finds no C++ compiler"),
        (said(1, err=NO_GXX), None, "incomplete", "finds no C++ compiler"),
        (said(1, err=NEW_GCC), None, "incomplete", "does not take the compiler of this machine"),
        (said(1, err=NEW_GCC), "it takes gcc up to 15", "incomplete", "it takes gcc up to 15"),
        (said(1, err="math.h: error: rsqrt"), "glibc 2.43 is too new", "incomplete", "glibc 2.43 is too new"),
        (said(None, error=f"{NVCC} could not be run", errno=2), None, "incomplete", "is not there"),
        (said(None, error=f"{NVCC} did not answer within 10 s"), None, "incomplete", "did not answer"),
        (said(1, err=NO_TARGET), None, "fail", "Unsupported gpu architecture 'sm_52'"),
        (said(127, err="cicc: not found"), None, "fail", "ended with 127"),
    ],
)
def test_what_a_compiler_says_is_told_and_never_taken_for_a_pass(
    tmp_path: Path, answer: run.Result, known: str | None, status: str, words: str
) -> None:
    (check,) = prove(tmp_path, Node(answer), 1, known)
    assert (check["id"], check["status"]) == ("cuda.compile", status)
    assert words in str(check["reason"])
    assert check["remedy"]


def test_a_compiler_that_says_success_and_makes_nothing_has_not_compiled(tmp_path: Path) -> None:
    (check,) = prove(tmp_path, lambda _words, /, **_rest: said(0))  # type: ignore[arg-type]
    assert (check["status"], "made nothing" in str(check["reason"])) == ("fail", True)


def test_what_is_known_does_not_stand_in_the_way_of_what_compiles(tmp_path: Path) -> None:
    done, _kernel = prove(tmp_path, Node(), None, "it takes gcc up to 13")
    assert done["status"] == "pass"


def test_a_program_that_computes_on_each_card_is_the_proof(tmp_path: Path) -> None:
    node = Node(said(0), said(0), said(0, count(2) + card() + card(bus="0000:43:00.0")))
    _done, first, second = prove(tmp_path, node, 2)
    assert [each["status"] for each in (first, second)] == ["pass", "pass"]
    assert [each["gpu"] for each in (first, second)] == ["00000000:1B:00.0", "00000000:43:00.0"]
    assert node.calls[1][3] == "-gencode=arch=compute_90,code=sm_90"


@pytest.mark.parametrize(
    ("out", "status", "words"),
    [
        (count() + card(0, *NO_IMAGE), "fail", "no code for this card"),
        (count() + card(17), "fail", "computes wrong numbers"),
        (count() + card(0, 2, "out of memory"), "incomplete", "memory is full"),
        (count(0, *OLD_DRIVER), "fail", "driver is too old"),
        (count(0), "fail", "finds 0 cards of 1"),
        (count(2) + card(), "fail", "did not end"),
        ("", "fail", "did not end"),
        (f"{toolkit.MARK}[]\n{toolkit.MARK}{{'x'\n", "fail", "did not end"),
        (f"{toolkit.MARK}{'[' * 5000}\n", "fail", "did not end"),
    ],
)
def test_a_card_on_which_the_kernel_does_not_run_is_told(tmp_path: Path, out: str, status: str, words: str) -> None:
    _done, *kernels = prove(tmp_path, Node(said(0), said(0), said(0, out)), 1)
    assert (kernels[-1]["id"], kernels[-1]["status"]) == ("cuda.kernel", status)
    assert words in str(kernels[-1]["reason"])


def test_a_copy_that_says_no_error_is_no_proof() -> None:
    """cudaMemcpy succeeds after a kernel that the card has no code for: the start is asked, and the numbers are compared."""
    after = toolkit.PROGRAM[toolkit.PROGRAM.index("fill<<<") :]
    assert after.index("cudaGetLastError") < after.index("cudaMemcpy")
    assert "host(N, -1)" in toolkit.PROGRAM


def test_a_program_that_hangs_or_may_not_be_executed_proves_nothing(tmp_path: Path) -> None:
    for answer in (said(None, error="did not answer within 10 s"), said(None, error="Permission denied", errno=13)):
        _done, kernel = prove(tmp_path, Node(said(0), said(0), answer), 1)
        assert kernel["status"] == "incomplete"


def test_a_toolkit_that_compiles_and_does_not_link_lacks_a_part(tmp_path: Path) -> None:
    _done, kernel = prove(tmp_path, Node(said(0), said(1, err=NO_RUNTIME)), 1)
    assert (kernel["status"], "does not link" in str(kernel["reason"])) == ("fail", True)


def test_root_runs_no_compiler_that_another_may_change(tmp_path: Path) -> None:
    nvcc = tmp_path / "cuda-13.0/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\n")
    mine = nvcc.stat().st_uid
    assert toolkit.of_others(str(nvcc), (0, mine)) is None
    (nvcc.parent / "ptxas").write_text("")
    (nvcc.parent / "ptxas").chmod(0o777)
    check = toolkit.of_others(str(nvcc), (0, mine))
    assert check is not None
    assert (check["status"], "ptxas" in str(check["reason"])) == ("incomplete", True)


# the stand-in of the simulated node ------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    path = tmp_path / "toolkit/bin/nvcc"
    path.parent.mkdir(parents=True)
    path.write_text(repository.nvcc("13.0", "13.0.88"))
    path.chmod(0o755)
    return str(path)


def answer(nvcc: str, tmp_path: Path, **changes: Any) -> Any:
    params = {"nvcc": nvcc, "capabilities": ["9.0"], "known": None, "expected_gpus": None, "timeout": 20, **changes}
    folder = tmp_path / "temporary"
    folder.mkdir(exist_ok=True)
    found = toolkit_check.prove(params, str(folder), changes.pop("runner", run.run))  # type: ignore[arg-type]
    assert list(folder.iterdir()) == []
    return found


def test_the_stand_in_answers_as_the_real_one(stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "of_others", lambda _nvcc: None)
    found = answer(stand_in, tmp_path)
    assert [each["status"] for each in found["checks"]] == ["pass", "skip"]
    (refused,) = answer(stand_in, tmp_path, capabilities=["5.2"])["checks"]
    assert "Unsupported gpu architecture 'sm_52'" in refused["reason"]
    *_rest, kernel = answer(stand_in, tmp_path, expected_gpus=1)["checks"]
    assert (kernel["status"], "driver is too old" in kernel["reason"]) == ("fail", True)


def test_what_it_answers_passes_the_gate(stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "of_others", lambda _nvcc: None)
    found = {"changed": False, "verdict": "pass", **answer(stand_in, tmp_path)}
    assert json.loads(gate.admit("toolkit_check", json.dumps(found)))["verdict"] == "pass"


def test_the_program_is_what_a_compiler_takes(tmp_path: Path) -> None:
    """Beside what is CUDA's own it is C++, which the machine's compiler reads."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    head = """
#define __global__
#include <cstddef>
enum cudaError_t { cudaSuccess = 0 };
struct Dim { int x; } blockIdx, blockDim, threadIdx;
const int cudaMemcpyDeviceToHost = 2;
cudaError_t cudaGetDeviceCount(int *n) { *n = 1; return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "no error"; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaMalloc(int **, size_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaFree(int *) { return cudaSuccess; }
cudaError_t cudaMemcpy(void *, int *, size_t, int) { return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char *b, int, int) { b[0] = 0; return cudaSuccess; }
"""
    source = tmp_path / "program.cpp"
    source.write_text(head + toolkit.PROGRAM.replace("fill<<<N / 256, 256>>>(out);", "(void)fill;"))
    subprocess.run([compiler, "-Wall", "-Werror", "-o", str(tmp_path / "program"), str(source)], check=True)
    out = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout
    # A copy that "succeeds" without a kernel leaves the host's numbers as they were: none is right.
    question = toolkit.Question(NVCC, ("9.0",), None, 1, 10)
    (check,) = toolkit.judge_kernel(question, said(0, out))
    assert (check["status"], check["measured"]) == ("fail", 0)

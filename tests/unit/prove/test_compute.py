from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import cuda_probe, framework
from ansible_collections.gpuwright.node.plugins.modules import framework_check, gpu_compute, nvidia_smi
from tests.unit.prove.conftest import let_in

# A library with the driver's functions: what each of them does is set at compile time.
SOURCE = r"""
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
static unsigned char memory[1 << 20];
int cuInit(unsigned flags) { INIT; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Stand-in card", n); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = 8589934592UL; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : 0; return 0; }
int cuDeviceGetPCIBusId(char *s, int n, int d) { strncpy(s, d ? "0000:43:00.0" : "0000:1b:00.0", n); return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { CONTEXT; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemAlloc_v2(unsigned long *p, size_t n) { *p = 4096; return 0; }
int cuMemFree_v2(unsigned long p) { return 0; }
int cuMemsetD8_v2(unsigned long p, unsigned char v, size_t n) { memset(memory, v, n); return 0; }
int cuMemcpyDtoH_v2(void *h, unsigned long p, size_t n) { memcpy(h, memory, n); COPY; return 0; }
"""


@pytest.fixture
def library(tmp_path: Path) -> Any:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")

    def build(init: str = "return 0", context: str = "*c = 0; return 0", copy: str = "") -> str:
        source, target = tmp_path / "cuda.c", tmp_path / "libcuda.so.1"
        source.write_text(SOURCE.replace("INIT", init).replace("CONTEXT", context).replace("COPY", copy))
        subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", str(target), str(source)], check=True)
        return str(target)

    return build


def prove(path: str, timeout: int = 20, **changes: Any) -> Any:
    params: Any = {"library": path, "timeout": timeout, "expected_gpus": None, "min_cuda": None, **changes}
    return gpu_compute.prove(params)


def of(result: Any, check_id: str) -> Check:
    return next(check for check in result["checks"] if check["id"] == check_id)


def test_cards_that_compute_pass(library: Any) -> None:
    result = prove(library(), expected_gpus=2, min_cuda="12.8")
    assert checks.verdict(result["checks"]) == "pass"
    assert result["cuda_version"] == "13.0"
    assert [device["pci_bus_id"] for device in result["devices"]] == ["00000000:1B:00.0", "00000000:43:00.0"]
    assert len([check for check in result["checks"] if check["id"] == "cuda.compute"]) == 2


@pytest.mark.parametrize(
    ("code", "told", "action"),
    [
        (100, "no card", "configure"),
        (802, "fabric", "restart_service"),
        (803, "different versions", "reboot"),
        (804, "compat", "configure"),
        (999, "without saying why", "reboot"),
        (12345, "12345", "reboot"),
    ],
)
def test_an_error_of_the_driver_has_cause_and_remedy(library: Any, code: int, told: str, action: str) -> None:
    check = of(prove(library(init=f"return {code}")), "cuda.init")
    assert (check["status"], check["action"], check["measured"]) == ("fail", action, code)
    assert told in str(check["reason"])
    assert check["remedy"]


def test_a_library_that_crashes_fails_and_does_not_take_the_module_along(library: Any) -> None:
    check = of(prove(library(init="abort(); return 0")), "cuda.init")
    assert check["status"] == "fail"
    assert "signal 6" in str(check["reason"])


def test_a_call_that_hangs_fails_in_time(library: Any) -> None:
    started = time.monotonic()
    check = of(prove(library(context="sleep(60); return 0"), timeout=1), "cuda.compute")
    assert time.monotonic() - started < 10
    assert (check["status"], check["gpu"]) == ("fail", "0")


def test_a_busy_card_is_incomplete_and_the_other_one_is_still_tried(library: Any) -> None:
    result = prove(library(context="*c = 0; return d == 0 ? 2 : 0"))
    found = [check["status"] for check in result["checks"] if check["id"] == "cuda.compute"]
    assert found == ["incomplete", "pass"]


def test_memory_that_comes_back_changed_is_fatal(library: Any) -> None:
    check = of(prove(library(copy="((char *)h)[77] ^= 1")), "cuda.compute")
    assert (check["status"], check["severity"]) == ("fail", "fatal")


def test_a_missing_library_is_incomplete() -> None:
    check = of(prove("/nonexistent/libcuda.so.1"), "cuda.init")
    assert check["status"] == "incomplete"
    assert "install" in str(check["remedy"])


def test_a_library_that_is_not_the_drivers_fails() -> None:
    assert of(prove("libm.so.6"), "cuda.init")["status"] == "fail"


def test_fewer_cards_and_an_older_cuda_than_wanted_fail(library: Any) -> None:
    result = prove(library(), expected_gpus=8, min_cuda="13.1")
    assert of(result, "cuda.count")["status"] == "fail"
    assert of(result, "cuda.version")["status"] == "fail"


def test_nothing_that_the_child_did_not_say_passes() -> None:
    answer = cuda_probe.Answer(
        [{"step": "start"}, {"step": "library"}, {"step": "init", "version": 13000, "count": 2}], 70, None, False
    )
    assert checks.verdict(cuda_probe.judge(answer, "libcuda.so.1", 5)) == "fail"


# --------------------------------------------------------------------------------------------------------------------

TORCH = """
import sys
print("banner of a library")
__version__ = {version!r}
class version: cuda = {cuda!r}
class _Tensor:
    def __matmul__(self, other): return self
    def sum(self): return self
    def item(self): return {total}
def ones(shape, device=None): return _Tensor()
class _Convolution(_Tensor):
    def item(self): return 56448.0
class nn:
    class functional:
        @staticmethod
        def conv2d(values, weights): return _Convolution()
class cuda:
    @staticmethod
    def is_available(): return {available}
    @staticmethod
    def device_count(): return {count}
    @staticmethod
    def get_device_name(i): return "Stand-in card"
    @staticmethod
    def init(): raise RuntimeError({error!r})
"""


@pytest.fixture
def environment(tmp_path: Path) -> Any:
    def build(**changes: Any) -> str:
        values = {
            "version": "2.14.1+cu130",
            "cuda": "13.0",
            "total": 2.0**24,
            "available": True,
            "count": 2,
            "error": "",
        } | changes
        venv = tmp_path / "env"
        subprocess.run(["python3", "-m", "venv", "--without-pip", str(venv)], check=True)
        [packages] = venv.glob("lib/python*/site-packages")
        text = values.get("text") or TORCH.format(**values)
        if text != "nothing":
            (packages / "torch.py").write_text(str(text))
        return str(venv / "bin" / "python")

    return build


def check_framework(python: str, timeout: int = 30, **changes: Any) -> dict[str, Any]:
    params: Any = {
        "name": "pytorch",
        "python": python,
        "timeout": timeout,
        "expected_version": None,
        "expect_cuda": True,
        "expected_gpus": None,
    }
    result: dict[str, Any] = framework_check.prove(params | changes, ask_as_user=let_in)
    return result


def test_a_framework_that_computes_passes(environment: Any) -> None:
    result = check_framework(environment(), expected_version="2.14.1", expected_gpus=2)
    assert checks.verdict(result["checks"]) == "pass"
    assert result["version"] == "2.14.1+cu130"


@pytest.mark.parametrize(
    ("wanted", "status"),
    [("2.14.1", "pass"), ("2.14.1+cu130", "pass"), ("2.14.1+cpu", "fail"), ("2.14", "fail"), ("2.14.10", "fail")],
)
def test_a_version_is_compared_with_its_build_only_where_the_build_was_wished(
    environment: Any, wanted: str, status: str
) -> None:
    assert of(check_framework(environment(), expected_version=wanted), "framework.version")["status"] == status


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cuda": None, "available": False, "count": 0}, "processor only"),
        ({"available": False, "count": 0, "error": "Found no NVIDIA driver on your system."}, "no NVIDIA driver"),
        (
            {
                "available": False,
                "count": 0,
                "error": "The NVIDIA driver on your system is too old (found version 11040).",
            },
            "newer than the driver",
        ),
        ({"available": False, "count": 0, "error": "Error 802: system not yet initialized"}, "fabric"),
        ({"count": 1}, "sees 1"),
    ],
)
def test_a_framework_without_cards_says_why(environment: Any, changes: dict[str, Any], told: str) -> None:
    result = check_framework(environment(**changes), expected_gpus=2)
    check = of(result, "framework.cuda")
    assert check["status"] == "fail"
    assert told in str(check["reason"])
    assert check["remedy"]


def test_a_framework_that_sees_a_card_more_than_expected_only_warns(environment: Any) -> None:
    assert of(check_framework(environment(), expected_gpus=1), "framework.cuda")["status"] == "warn"


def test_on_the_processor_no_card_is_asked_for(environment: Any) -> None:
    result = check_framework(environment(version="2.14.1+cpu", cuda=None, available=False, count=0), expect_cuda=False)
    assert checks.verdict(result["checks"]) == "pass"
    assert of(result, "framework.cuda")["status"] == "skip"


def test_a_wrong_product_is_fatal(environment: Any) -> None:
    assert of(check_framework(environment(total=1.0)), "framework.compute")["severity"] == "fatal"


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("nothing", "fail", "not in the environment"),
        ("raise ImportError('libcudnn.so.9: cannot open')", "fail", "importing it failed"),
        ("import os; os.abort()", "fail", "broke off"),
        ("import time; time.sleep(60)", "fail", "did not answer"),
    ],
)
def test_an_import_that_does_not_succeed_fails(environment: Any, text: str, status: str, told: str) -> None:
    check = of(check_framework(environment(text=text), timeout=3), "framework.import")
    assert check["status"] == status
    assert told in str(check["reason"])


def test_an_environment_that_is_not_there_is_incomplete() -> None:
    assert of(check_framework("/nonexistent/bin/python"), "framework.import")["status"] == "incomplete"


def test_nothing_is_written_into_the_environment(environment: Any) -> None:
    python = environment()
    check_framework(python)
    assert not list(Path(python).parents[1].glob("lib/python*/site-packages/__pycache__"))


def test_the_program_for_the_framework_is_valid() -> None:
    compile(framework.program("pytorch"), "pytorch", "exec")


# --------------------------------------------------------------------------------------------------------------------


def smi_params(**changes: Any) -> dict[str, Any]:
    return {**dict.fromkeys(nvidia_smi.EXPECTATIONS), "executable": "nvidia-smi", "timeout": 5, **changes}


def said(rc: int | None, out: str, error: str | None = None, seconds: float = 0.1) -> Any:
    return lambda argv, timeout: run.Result(rc, out, "", seconds, error)


def test_the_module_returns_what_a_play_asks_for(document: Any) -> None:
    result = nvidia_smi.prove(smi_params(expected_gpus=2), said(0, document("h100_580.xml")))
    assert (result["driver_version"], result["cuda_version"], result["attached_gpus"]) == ("580.95.05", "13.0", 2)
    assert result["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
    assert checks.verdict(result["checks"]) == "pass"


@pytest.mark.parametrize("status", [0, 9, None])
def test_an_exit_status_of_nvidia_smi_is_not_one_of_the_task(status: int | None) -> None:
    # Ansible takes a task whose result has an rc other than 0 for failed.
    result = nvidia_smi.prove(smi_params(), said(status, "", "killed" if status is None else None))
    assert "rc" not in result
    assert result["exit_code"] == status


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (said(0, "\x00\x9c\ufffdgarbage"), "fail"),
        (said(0, ""), "fail"),
        (said(None, "", "nvidia-smi did not answer within 5 s", 5.0), "fail"),
        (said(None, "", "nvidia-smi could not be run: No such file or directory"), "incomplete"),
    ],
)
def test_a_card_that_cannot_be_asked_is_never_fine(answer: Any, status: str) -> None:
    result = nvidia_smi.prove(smi_params(expected_gpus=8), answer)
    assert result["checks"][0]["status"] == status
    assert of(result, "gpu.count")["status"] == "incomplete"
    assert result["gpus"] == []

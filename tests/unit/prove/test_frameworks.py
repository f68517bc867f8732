"""Frameworks that are proven in their environments: the stand-ins of the simulated node, and answers of the real ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework
from ansible_collections.gpuwright.node.plugins.modules import framework_check
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks.apply import condemned
from tests import tables
from tests.sim import repository, wheels
from tests.unit.prove.conftest import let_in

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAN = tables.read(Path(repository.__file__).parent / "packages.yaml")["wheels"]
PACKAGES = {
    "pytorch": ("cu130", ["torch"]),
    "tensorflow": ("pypi", ["tensorflow"]),
    "jax": ("pypi", ["jax", "jax-cuda13-plugin"]),
    "onnxruntime": ("pypi", ["onnxruntime-gpu", "numpy"]),
    "cupy": ("pypi", ["cupy-cuda13x", "numpy"]),
    "vllm": ("pypi", ["vllm", "torch"]),
    "lmdb": ("pypi", ["lmdb"]),
}
WITH_CARDS = [each for each in PACKAGES if not ABOUT[each].cpu_only]

# A driver with two cards. What cuInit answers is set at compile time.
SOURCE = r"""
#include <string.h>
int cuInit(unsigned flags) { return CODE; }
int cuGetErrorName(int code, const char **text) { *text = "NAME"; return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Stand-in card", n); return 0; }
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")

    def build(code: int = 0, name: str = "CUDA_SUCCESS") -> None:
        folder = tmp_path / "driver"
        folder.mkdir()
        (folder / "cuda.c").write_text(SOURCE.replace("CODE", str(code)).replace("NAME", name))
        words = [compiler, "-shared", "-fPIC", "-w", "-o", str(folder / "libcuda.so.1"), str(folder / "cuda.c")]
        subprocess.run(words, check=True)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))

    return build


@pytest.fixture
def environment(tmp_path: Path) -> Any:
    def build(name: str, *without: str) -> str:
        venv = tmp_path / name
        subprocess.run(["python3", "-m", "venv", "--without-pip", str(venv)], check=True)
        [packages] = venv.glob("lib/python*/site-packages")
        index, projects = PACKAGES[name]
        for project in projects:
            if project not in without:
                for path, content in wheels.contents(project, {**PLAN["common"], **PLAN[index]}[project]).items():
                    (packages / path).parent.mkdir(parents=True, exist_ok=True)
                    (packages / path).write_bytes(content)
        return str(venv / "bin" / "python")

    return build


def prove(name: str, python: str, **changes: Any) -> dict[str, Any]:
    params: Any = {"name": name, "python": python, "timeout": 30, "expected_version": None, "expect_cuda": True}
    result: dict[str, Any] = framework_check.prove(params | {"expected_gpus": None} | changes, ask_as_user=let_in)
    return result


def of(result: Any, check_id: str) -> Check:
    return next(check for check in result["checks"] if check["id"] == check_id)


@pytest.mark.parametrize(
    ("name", "version", "cuda"),
    [
        ("pytorch", "2.14.1", "13.0"),
        ("tensorflow", "2.21.0", "12.5.1"),
        ("jax", "0.12.0.1", "13.0"),
        ("onnxruntime", "1.31.1", "13.0"),
        ("cupy", "14.2.0", "13.2"),
        ("vllm", "0.33.0", "13.0"),
    ],
)
def test_a_framework_multiplies_matrices_on_every_card(
    driver: Any, environment: Any, name: str, version: str, cuda: str
) -> None:
    driver()
    result = prove(name, environment(name), expected_version=version, expected_gpus=2)
    assert checks.verdict(result["checks"]) == "pass", result["checks"]
    assert result["cuda"] == cuda
    computed = [check for check in result["checks"] if check["id"] == "framework.compute"]
    assert [check["gpu"] for check in computed] == ["cuda:0", "cuda:1"]
    assert all(re.search("Stand-in card|card [01]", str(check["reason"])) for check in computed)


def _changed(python: str, module: str, text: str) -> None:
    (package,) = Path(python).parents[1].glob(f"lib/python*/site-packages/{module}")
    package.write_text(package.read_text() + text)


MISMATCH = """
def _lacks(*_given):
    raise RuntimeError("cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH")
nn.functional.conv2d = _lacks
"""


def test_a_cudnn_of_which_a_part_is_the_systems_fails_in_a_convolution_alone(driver: Any, environment: Any) -> None:
    driver()
    python = environment("pytorch")
    _changed(python, "torch/__init__.py", MISMATCH)
    result = prove("pytorch", python)
    assert [of(result, f"framework.{step}")["status"] for step in ("import", "cuda", "compute")] == [
        "pass",
        "pass",
        "fail",
    ]
    assert "parts of another cuDNN" in str(of(result, "framework.compute")["reason"])
    assert "libcudnn9-cuda-12" in str(of(result, "framework.compute")["remedy"])


def test_a_convolution_that_is_wrong_fails(driver: Any, environment: Any) -> None:
    driver()
    python = environment("pytorch")
    _changed(python, "torch/__init__.py", "\nnn.functional.conv2d = lambda values, weights: values\n")
    assert "a convolution of ones gives" in str(of(prove("pytorch", python), "framework.compute")["evidence"])


BROKEN = """
import ctypes, os
for _place in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
    if os.path.exists(_place + "/libmine.so.1"):
        ctypes.CDLL(_place + "/libmine.so.1")
"""


def test_a_broken_library_that_a_variable_names_is_the_cause_and_no_build_mends_it(
    environment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment("pytorch")
    _changed(python, "torch/__init__.py", BROKEN)
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "libmine.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{folder}")
    found = of(prove("pytorch", python, expect_cuda=False), "framework.import")
    assert (found["status"], found["action"]) == ("fail", "configure")
    assert f"LD_LIBRARY_PATH=/nowhere:{folder}, which has {folder}/libmine.so.1, and it works without" in str(
        found["reason"]
    )
    assert condemned({"proof": {"checks": [found]}}) == []  # type: ignore[typeddict-item]
    # What the remedy says.
    assert "unset LD_LIBRARY_PATH" in str(found["remedy"])
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert of(prove("pytorch", python, expect_cuda=False), "framework.import")["status"] == "pass"


def test_what_fails_without_the_variable_as_well_has_another_cause(
    environment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment("pytorch")
    _changed(python, "torch/__init__.py", "\nraise ImportError('mine')\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    found = of(prove("pytorch", python, expect_cuda=False), "framework.import")
    assert (found["action"], found["reason"]) == ("install", "importing it failed")


@pytest.mark.parametrize("name", WITH_CARDS)
def test_a_framework_without_a_driver_fails_and_says_that_it_is_the_driver(
    environment: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    check = of(prove(name, environment(name)), "framework.cuda")
    assert check["status"] == "fail"
    assert "no NVIDIA driver" in str(check["reason"])


@pytest.mark.parametrize("name", WITH_CARDS)
def test_a_fabric_that_is_not_ready_is_named(driver: Any, environment: Any, name: str) -> None:
    driver(802, "CUDA_ERROR_SYSTEM_NOT_READY")
    check = of(prove(name, environment(name)), "framework.cuda")
    assert (check["status"], check["action"]) == ("fail", "restart_service")


def test_jax_without_its_plugin_is_a_build_for_the_processor_only(driver: Any, environment: Any) -> None:
    driver()
    check = of(prove("jax", environment("jax", "jax-cuda13-plugin")), "framework.cuda")
    assert check["status"] == "fail"
    assert "processor only" in str(check["reason"])


def changed(python: str, module: str, old: str, new: str) -> str:
    """The environment with a stand-in that does something else."""
    [path] = Path(python).parents[1].glob(f"lib/python*/site-packages/{module}/__init__.py")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return python


def test_onnxruntime_for_the_processor_is_not_one_for_cards(driver: Any, environment: Any) -> None:
    driver()
    python = changed(environment("onnxruntime"), "onnxruntime", "_build.CUDA or", "")
    check = of(prove("onnxruntime", python), "framework.cuda")
    assert "processor only" in str(check["reason"])


def test_onnxruntime_whose_session_quietly_takes_the_processor_fails(driver: Any, environment: Any) -> None:
    driver()
    python = changed(environment("onnxruntime"), "onnxruntime", "self._providers = [_CUDA, _CPU]", "pass")
    check = of(prove("onnxruntime", python), "framework.cuda")
    assert (check["status"], check["action"]) == ("fail", "install")
    # Its library is asked why, which the stand-in does not have.
    assert "libonnxruntime_providers_cuda.so: cannot open shared object file" in str(check["evidence"])


def test_onnxruntime_that_leaves_one_card_to_the_processor_fails_on_that_card(driver: Any, environment: Any) -> None:
    driver()
    python = changed(environment("onnxruntime"), "onnxruntime", "return index <", "return index == 0 and index <")
    computed = [check for check in prove("onnxruntime", python)["checks"] if check["id"] == "framework.compute"]
    assert [(check["gpu"], check["status"]) for check in computed] == [("cuda:0", "pass"), ("cuda:1", "fail")]


@pytest.mark.parametrize("expect_cuda", [True, False])
def test_a_product_of_onnxruntime_that_is_wrong_fails(driver: Any, environment: Any, *, expect_cuda: bool) -> None:
    driver()
    python = changed(environment("onnxruntime"), "onnxruntime", '(inputs["a"] @ inputs["b"])', 'inputs["a"]')
    check = of(prove("onnxruntime", python, expect_cuda=expect_cuda), "framework.compute")
    assert (check["status"], check["measured"]) == ("fail", 65536.0) if expect_cuda else (check["status"] != "pass")


@pytest.mark.parametrize("name", WITH_CARDS)
def test_a_machine_without_a_card_is_told_as_that(driver: Any, environment: Any, name: str) -> None:
    driver(100, "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")
    check = of(prove(name, environment(name)), "framework.cuda")
    assert (check["status"], check["action"]) == ("fail", "check_hardware")
    assert "no NVIDIA GPU" in str(check["reason"])


def test_cupy_without_a_card_compiles_its_kernel_all_the_same(environment: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    result = prove("cupy", environment("cupy"))
    check = of(result, "framework.compute")
    assert check["status"] == "incomplete"
    assert "its compiler works (NVRTC 13.2)" in str(check["evidence"])
    # Its runtime says of a driver that is missing that it is too old.
    assert "libcuda.so.1" in str(of(result, "framework.cuda")["evidence"])


def test_vllm_without_a_card_is_no_failure_of_its_kernels(environment: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    result = prove("vllm", environment("vllm"))
    assert of(result, "framework.import")["status"] == "pass"
    check = of(result, "framework.compute")
    assert (check["status"], "no NVIDIA GPU" in str(check["evidence"])) == ("incomplete", True)


def test_vllm_whose_kernels_cannot_be_loaded_fails_on_the_card(driver: Any, environment: Any) -> None:
    driver()
    python = environment("vllm")
    [path] = Path(python).parents[1].glob("lib/python*/site-packages/vllm/_C_stable_libtorch.py")
    path.write_text('raise ImportError("libcudart.so.13: cannot open shared object file")\n')
    check = of(prove("vllm", python), "framework.compute")
    assert (check["status"], check["action"]) == ("fail", "install")
    # Without any: it is not taken for one that computes.
    path.unlink()
    assert of(prove("vllm", python), "framework.compute")["status"] == "fail"


def test_a_kernel_of_vllm_that_computes_something_else_fails(driver: Any, environment: Any) -> None:
    driver()
    python = environment("vllm")
    [path] = Path(python).parents[1].glob("lib/python*/site-packages/vllm/_C_stable_libtorch.py")
    path.write_text(path.read_text().replace("* weight._fill", "* 255"))
    check = of(prove("vllm", python), "framework.compute")
    assert (check["status"], check["severity"]) == ("fail", "fatal")
    assert check["reason"] == "a matrix that its kernel normalised is wrong"


def test_lmdb_reads_its_data_set_from_mapped_memory_and_leaves_nothing(
    environment: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    result = prove("lmdb", environment("lmdb"), expect_cuda=False, expected_version="3.0.0")
    assert checks.verdict(result["checks"]) == "pass"
    assert of(result, "framework.compute")["reason"] == "a product of memory-mapped matrices is right on the processor"
    assert list(scratch.iterdir()) == []


def test_a_data_base_that_gives_back_something_else_fails(environment: Any) -> None:
    python = changed(environment("lmdb"), "lmdb", "self._pairs[key] = value", "self._pairs[key] = bytes(len(value))")
    check = of(prove("lmdb", python, expect_cuda=False), "framework.compute")
    assert check["status"] == "fail"
    assert "something else than a mapped file" in str(check["evidence"])


def test_a_proof_of_cupy_leaves_nothing_at_home(environment: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert of(prove("cupy", environment("cupy")), "framework.import")["status"] == "pass"
    assert not (tmp_path / "home").exists()


def test_cupy_whose_compiler_is_missing_is_to_be_built_anew(driver: Any, environment: Any) -> None:
    driver()
    lacking = 'raise OSError("DynamicLibNotFoundError: Failure finding \\"libnvrtc.so.13\\"")'
    python = changed(environment("cupy"), "cupy", "_compile(code)\n        if", f"{lacking}\n        if")
    check = of(prove("cupy", python), "framework.compute")
    assert (check["status"], check["action"]) == ("fail", "install")
    assert "missing in its environment" in str(check["reason"])


def test_a_kernel_of_cupy_that_differs_from_numpy_fails(driver: Any, environment: Any) -> None:
    driver()
    python = changed(environment("cupy"), "cupy", "one.matrix @ other.matrix", "one.matrix")
    check = of(prove("cupy", python), "framework.compute")
    assert check["status"] == "fail"
    assert "something else than NumPy" in str(check["evidence"])


@pytest.mark.parametrize("name", [each for each in PACKAGES if ABOUT[each].cpu])
def test_on_the_processor_it_computes_without_a_driver(environment: Any, name: str) -> None:
    result = prove(name, environment(name), expect_cuda=False)
    assert checks.verdict(result["checks"]) == "pass", result["checks"]


@pytest.mark.parametrize("name", sorted(ABOUT))
def test_the_program_of_each_framework_is_valid(name: str) -> None:
    compile(framework.program(name), name, "exec")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tensorflow", {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}),
        ("cupy", {"CUPY_CACHE_IN_MEMORY": "1", "CUPY_CACHE_DIR": "/"}),
        ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_PLATFORMS": ""}),
        ("pytorch", {}),
    ],
)
def test_neither_memory_nor_platform_is_left_to_what_the_host_has_set(name: str, expected: dict[str, str]) -> None:
    seen: dict[str, str] = {}

    def runner(argv: list[str], timeout: float, env: dict[str, str]) -> run.Result:
        del argv, timeout
        seen.update(env)
        return run.Result(0, "", "", 0.1, None)

    framework.ask("python", name, 5, runner)
    assert seen == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1", **expected}


@pytest.mark.parametrize(
    ("number", "version"), [(91002, "9.10.2"), (92800, "9.28.0"), (8902, "8.9.2"), (8700, "8.7.0")]
)
def test_the_number_of_cudnn_is_read_as_its_version(number: int, version: str) -> None:
    assert framework.cudnn_text(number) == version


# What the real ones print where they find no card, and what it means.
TROUBLES = [
    ("failed call to cuInit: UNKNOWN ERROR (303)", "no NVIDIA driver"),
    (
        "Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file",
        "no NVIDIA driver",
    ),
    ("Could not find cuda drivers on your machine, GPU will not be used.", "no NVIDIA driver"),
    (
        "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed",
        "library",
    ),
    ("Unable to initialize backend 'cuda': Unable to load cuDNN. Is it installed?", "library"),
    (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver combination",
        "different versions",
    ),
    ("CUDA_ERROR_INVALID_PTX: PTX 8.5 does not support target 'sm_120'", "without code for this card"),
    ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", "memory is full"),
    ("CUDA driver version is insufficient for CUDA runtime version", "newer than the driver"),
]


@pytest.mark.parametrize(("said", "cause"), TROUBLES)
def test_what_a_framework_prints_without_cards_is_its_reason(said: str, cause: str) -> None:
    lines = ['{"step": "start"}', '{"step": "import", "version": "2.21.0", "cuda": "12.5"}']
    lines += ['{"step": "cuda", "available": false, "count": 0}', '{"step": "end"}']
    out = "\n".join(framework.MARK + line for line in lines)
    found = framework.judge(
        "tensorflow", "python", run.Result(0, out, "2026-11-20 18:02:03.802803 E " + said, 1.0, None)
    )
    check = next(each for each in found if each["id"] == "framework.cuda")
    assert cause in str(check["reason"]), check
    assert said in str(check["evidence"])


@pytest.mark.slow
def test_constraints_keep_pip_from_a_cudnn_that_the_card_cannot_use(tmp_path: Path) -> None:
    files = wheels.projects(PLAN, "pypi")
    wheels.write_index(tmp_path / "index", files)
    limits = tmp_path / "constraints.txt"
    limits.write_text("nvidia-cudnn-cu12==9.10.2.21\nnvidia-nccl-cu12<3.0\n")
    subprocess.run(["python3", "-m", "venv", str(tmp_path / "env")], check=True)
    python = str(tmp_path / "env/bin/python")
    words = ["-m", "pip", "install", "-q", "--isolated", "--index-url", (tmp_path / "index").as_uri()]
    subprocess.run(
        [python, *words, "--constraint", str(limits), "tensorflow[and-cuda]==2.21.0", "jax[cuda12]==0.12.0.1"],
        check=True,
    )
    done = subprocess.run([python, "-m", "pip", "--isolated", "freeze"], check=True, capture_output=True, text=True)
    assert "nvidia-cudnn-cu12==9.10.2.21" in done.stdout.splitlines()
    assert "nvidia-nccl-cu12==2.32.3" in done.stdout.splitlines()
    for name in ("tensorflow", "jax"):
        assert checks.verdict(prove(name, python, expect_cuda=False)["checks"]) == "pass"


# --- as an ordinary user ----------------------------------------------------------------------------------------------


@pytest.fixture
def opened() -> Iterator[Path]:
    """An environment of the system's Python with the stand-in for PyTorch, where every user can get in."""
    if os.geteuid() != 0:
        pytest.skip("only root can ask as another user")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        venv = Path(folder) / "pytorch"
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(venv)], check=True)
        (packages,) = venv.glob("lib/python*/site-packages")
        for path, content in wheels.contents("torch", PLAN["cu130"]["torch"]).items():
            (packages / path).parent.mkdir(parents=True, exist_ok=True)
            (packages / path).write_bytes(content)
        yield venv


def as_user(venv: Path) -> Check:
    python = str(venv / "bin/python")
    return framework.judge_user("pytorch", python, framework.ask_as_user(python, "pytorch", 30))


def test_an_environment_is_proven_for_those_who_will_work_with_it(opened: Path) -> None:
    found = as_user(opened)
    assert found["status"] == "pass", found


@pytest.mark.parametrize(
    ("closed", "said"),
    [
        ("", "cannot run"),
        ("bin", "cannot run"),
        ("lib", "cannot"),
        ("lib/python*/site-packages/torch", "cannot import PyTorch"),
    ],
)
def test_an_environment_that_users_cannot_enter_does_not_pass(opened: Path, closed: str, said: str) -> None:
    (place,) = opened.parent.glob(f"pytorch/{closed}".rstrip("/"))
    place.chmod(0o700)
    found = as_user(opened)
    assert found["status"] == "fail", found
    assert said in str(found["reason"])


def test_who_may_not_become_another_user_is_told_and_proves_nothing(tmp_path: Path) -> None:
    refused = run.Result(1, "", "PermissionError: [Errno 1] Operation not permitted", 0.1, None)
    found = framework.judge_user("pytorch", str(tmp_path), refused)
    assert found["status"] == "skip"


def test_the_proof_asks_as_a_user_too(opened: Path) -> None:
    (opened / "bin").chmod(0o700)
    params: Any = {"name": "pytorch", "python": str(opened / "bin/python"), "timeout": 30, "expected_version": None}
    result = framework_check.prove(params | {"expect_cuda": False, "expected_gpus": None})
    assert of(result, "framework.import")["status"] == "pass"
    assert of(result, "framework.user")["status"] == "fail"


def test_the_proof_looks_at_every_file_that_pip_installed(opened: Path) -> None:
    (site,) = opened.glob("lib/python3*/site-packages")
    params: Any = {"name": "pytorch", "python": str(opened / "bin/python"), "timeout": 30, "expected_version": None}

    def files() -> Check:
        return of(framework_check.prove(params | {"expect_cuda": False, "expected_gpus": None}), "framework.files")

    (site / "torch-2.14.1.dist-info").mkdir()
    (site / "torch-2.14.1.dist-info/RECORD").write_text("torch/deep/in.py,,2\ntorch-2.14.1.dist-info/RECORD,,\n")
    (site / "torch/deep").mkdir()
    (site / "torch/deep/in.py").write_text("1\n")
    assert files()["status"] == "pass"
    (site / "torch/deep/in.py").write_text("1")
    found = files()
    assert (found["status"], found["action"], found["evidence"]) == ("fail", "install", str(opened))
    assert found["reason"] == f"{opened} is damaged: torch/deep/in.py has 1 bytes instead of 2"


@pytest.mark.parametrize(
    ("content", "mode", "told", "action"),
    [
        (None, 0, "is not there", "install"),
        ("#!/bin/sh\n", 0o644, "may not be executed", "configure"),
        ("\x7fELF of another world", 0o755, "no program that this machine can execute", "install"),
        ("#!/bin/sh\nexit 3\n", 0o755, "does not start", "install"),
    ],
)
def test_an_interpreter_that_does_not_start_is_told_with_its_cause(
    tmp_path: Path, content: str | None, mode: int, told: str, action: str
) -> None:
    python = tmp_path / "python"
    if content is not None:
        python.write_text(content)
        python.chmod(mode)
    [check] = framework.judge("pytorch", str(python), framework.ask(str(python), "pytorch", 20))
    assert (check["status"], check["action"]) == ("incomplete", action)
    assert told in str(check["reason"])


@pytest.mark.parametrize(("rc", "told"), [(-11, "signal 11"), (139, "signal 11"), (255, "status 255"), (1, "status 1")])
def test_an_exit_status_is_called_a_signal_only_where_it_is_one(rc: int, told: str) -> None:
    said = f'{framework.MARK}{{"step": "start"}}\n'
    [check] = framework.judge("pytorch", "python", run.Result(rc, said, "", 1.0, None))
    assert told in str(check["reason"])


def steps(*told: str) -> run.Result:
    said = ['{"step": "start"}', '{"step": "import", "version": "2.9.0", "cuda": "13.0"}', *told, '{"step": "end"}']
    return run.Result(0, "".join(f"\n{framework.MARK}{each}\n" for each in said), "", 1.0, None)


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "-Infinity", "3.4e38", "9" * 400, "null", '"16777216"', "[]"])
def test_a_card_that_computes_what_no_number_can_be_fails_and_its_answer_is_taken_in(wrong: str) -> None:
    answer = steps(
        '{"step": "cuda", "available": true, "count": 1}',
        f'{{"step": "compute", "device": "cuda:0", "sum": {wrong}}}',
    )
    found = framework.judge("pytorch", "python", answer)
    assert checks.verdict(found) != "pass"
    said = {"changed": False, "seconds": 1.0, **checks.with_verdict({"checks": found})}
    assert json.loads(gate.admit("framework_check", json.dumps(said)))["verdict"] != "pass"


@pytest.mark.parametrize(
    "junk",
    [
        "{" * 50_000,
        '{"a":' * 15_000,
        "[1]",
        "7",
        '{"step": ["compute"]}',
        '{"step": "compute"}',
        '{"step": "cuda"}',
        "1e999",
    ],
)
def test_a_step_that_is_none_was_not_told(junk: str) -> None:
    found = framework.judge("pytorch", "python", steps(junk))
    assert checks.verdict(found) != "pass"

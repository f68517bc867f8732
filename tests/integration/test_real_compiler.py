"""NVIDIA's own nvcc, from its wheels: it compiles what a proof compiles, from Turing to Blackwell, and says what the stand-in says."""

from __future__ import annotations

import shutil
import subprocess
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import toolkit
from tests.sim import repository

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="containers")]

# Of one release, as roles/cuda/README.md names them for people without root.
_RELEASE = "13.0"
_WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
_SECONDS = 300

Ask = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the toolkit that the wheels bring into an environment (270 MB)."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler, which nvcc needs")
    folder = tmp_path_factory.mktemp("compiler") / "environment"
    venv.create(folder, with_pip=True)
    wanted = [f"{name}=={_RELEASE}.*" for name in _WHEELS]
    subprocess.run([folder / "bin/pip", "-q", "install", *wanted], check=True)
    (found,) = folder.glob("lib/python3*/site-packages/nvidia/cu13")
    return found


@pytest.fixture
def ask(home: Path, tmp_path: Path) -> Ask:
    def prove(*capabilities: str, cards: int | None = None, **variables: str) -> list[Any]:
        def with_its_library(
            words: Sequence[str], /, *, timeout: float, env: Mapping[str, str], cwd: str
        ) -> run.Result:
            # Wheels have `lib`, where nvcc looks into `lib64`.
            return run.run(words, timeout, {**env, "LIBRARY_PATH": str(home / "lib"), **variables}, cwd=cwd)

        question = toolkit.Question(str(home / "bin/nvcc"), capabilities, None, cards, _SECONDS)
        return list(toolkit.prove(question, str(tmp_path), with_its_library))

    return prove


def test_it_compiles_for_turing_hopper_and_blackwell(ask: Ask, tmp_path: Path) -> None:
    done, kernel = ask("7.5", "9.0", "12.0")
    assert (done["status"], done["measured"]) == ("pass", "sm_75, sm_90, sm_120"), done
    assert kernel["status"] == "skip"
    for name in ("sm_75", "sm_90", "sm_120"):
        assert (tmp_path / f"{name}.cubin").read_bytes()[:4] == b"\x7fELF"


def test_the_program_links_and_says_what_it_finds(ask: Ask) -> None:
    """Without a driver the runtime says so; with one the machine has a card, or none."""
    _done, *kernels = ask("7.5", "9.0", "12.0", cards=1)
    assert kernels
    assert all(check["id"] == "cuda.kernel" and "does not link" not in check["reason"] for check in kernels), kernels
    if not Path("/dev/nvidiactl").exists():
        assert [(check["status"], check["action"]) for check in kernels] == [("fail", "install")]


@pytest.mark.parametrize("capability", ["5.2", "7.0"])
def test_the_stand_in_refuses_a_card_in_the_same_words(ask: Ask, capability: str, tmp_path: Path) -> None:
    (real,) = ask(capability)
    stand_in = tmp_path / "nvcc"
    stand_in.write_text(repository.nvcc(_RELEASE, f"{_RELEASE}.88"))
    stand_in.chmod(0o755)
    (other,) = toolkit.prove(toolkit.Question(str(stand_in), [capability], None, None, 20), str(tmp_path))
    assert real["status"] == other["status"] == "fail"
    assert (
        real["evidence"]
        == other["evidence"]
        == f"nvcc fatal   : Unsupported gpu architecture '{real['evidence'][-6:-1]}'"
    )


def test_a_machine_without_gcc_is_told_so(ask: Ask) -> None:
    (check,) = ask("9.0", PATH="/nonexistent")
    assert (check["status"], "finds no C++ compiler" in check["reason"]) == ("incomplete", True), check


def test_a_gcc_that_is_too_new_is_told_so(ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "newer"
    folder.mkdir()
    for name in ("gcc", "g++"):
        (folder / name).write_text(f'#!/bin/sh\nexec {shutil.which(name)} -U__GNUC__ -D__GNUC__=99 "$@"\n')
        (folder / name).chmod(0o755)
    (check,) = ask("9.0", PATH=f"{folder}:/usr/bin:/bin")
    assert (check["status"], "does not take the compiler" in check["reason"]) == ("incomplete", True), check

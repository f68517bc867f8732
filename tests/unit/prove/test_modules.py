"""What the modules that prove something have in common, each run as Ansible runs it, on a machine that lacks what it asks."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from tests.unit.modules import run_module

MODULES = "ansible_collections.gpuwright.node.plugins.modules"
#: The options under which each finds nothing, whatever this machine has.
PROVING: dict[str, dict[str, Any]] = {
    "nvidia_smi": {"executable": "/nonexistent/nvidia-smi"},
    "gpu_compute": {"library": "/nonexistent/libcuda.so.1"},
    "dcgm_diag": {"executable": "/nonexistent/dcgmi"},
    "gpu_load": {"executable": "/nonexistent/nvidia-smi"},
    "toolkit_check": {"nvcc": "/nonexistent/nvcc"},
    "container_check": {"engine": "podman", "images": ["localhost/none:1"], "ways": ["cdi"], "smi": "/nonexistent/smi"},
    "framework_check": {"python": "/nonexistent/python"},
    "fio": {"directory": "/tmp", "executable": "/nonexistent/fio"},
    "driver_module": {"name": "no_such_module_of_nvidia"},
    "framework_load": {"python": "/nonexistent/python", "executable": "/nonexistent/nvidia-smi"},
    "fabric_load": {
        "python": "/nonexistent/python",
        "address": "127.0.0.1",
        "port": 29411,
        "first_rank": 0,
        "ranks": 2,
        "executable": "/nonexistent/nvidia-smi",
    },
}


def documented(name: str, part: str) -> Any:
    return yaml.safe_load(getattr(importlib.import_module(f"{MODULES}.{name}"), part))


def test_every_module_that_returns_checks_is_among_these() -> None:
    names = [path.stem for path in Path(importlib.import_module(f"{MODULES}.fio").__file__ or "").parent.glob("*.py")]
    returning = {name for name in names if "checks" in (documented(name, "RETURN") or {})}
    # What kernel_log read, and what hosts measured with each other, is judged on the controller.
    assert returning == {*PROVING, "kernel_log", "fabric"}


@pytest.mark.parametrize("name", PROVING)
def test_a_module_gives_the_verdict_beside_its_checks(name: str) -> None:
    answer = run_module(importlib.import_module(f"{MODULES}.{name}"), **PROVING[name])
    assert answer["checks"]
    assert answer["verdict"] == checks.verdict(answer["checks"]) != "pass"
    assert documented(name, "RETURN")["verdict"]["returned"] == "always"


def test_what_was_not_measured_in_check_mode_is_no_pass() -> None:
    for name in ("fio", "driver_module", "container_check", "dcgm_diag", "gpu_load", "framework_load", "fabric_load"):
        answer = run_module(importlib.import_module(f"{MODULES}.{name}"), check=True, **PROVING[name])
        assert answer["verdict"] == "incomplete"

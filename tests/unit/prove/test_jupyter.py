"""The proof of a Jupyter kernel: what the environment's client tells of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework, jupyter

KERNEL = "/usr/local/share/jupyter/kernels/gpuwright-research"


def answer(*steps: dict[str, Any], err: str = "") -> Any:
    text = "".join(f"{framework.MARK}{json.dumps(step)}\n" for step in steps)
    return Result(0, f"noise\n{text}", err, 1.0, None)


def test_a_kernel_that_calculates_passes() -> None:
    found = jupyter.judge("pytorch", KERNEL, answer({"step": "start"}, {"step": "kernel", "said": "2"}))
    assert (found["id"], found["status"]) == ("framework.kernel", "pass")
    assert "gpuwright-research starts, imports PyTorch" in str(found["reason"])


@pytest.mark.parametrize(
    ("said", "evidence"),
    [
        (answer({"step": "kernel", "said": "3"}), "1 + 1 is 3"),
        (answer({"step": "kernel", "error": "NoSuchKernel: gpuwright-research"}), "NoSuchKernel: gpuwright-research"),
        (answer({"step": "start"}, err="Killed"), "Killed"),
        (answer({"step": "kernel"}, err="half a step"), "half a step"),
    ],
    ids=["wrong", "error", "killed", "cut off"],
)
def test_one_that_does_not_fails_with_what_it_said(said: Any, evidence: str) -> None:
    found = jupyter.judge("pytorch", KERNEL, said)
    assert (found["status"], found["action"], found["evidence"]) == ("fail", "configure", evidence)


@pytest.mark.parametrize("root", [True, False])
def test_it_is_started_by_its_name_and_never_as_root(monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    calls: list[list[str]] = []

    def run(argv: Sequence[str], *, timeout: float, env: Mapping[str, str]) -> Any:
        assert timeout > 60
        assert "PYTHONDONTWRITEBYTECODE" in env
        calls.append(list(argv))
        return answer()

    jupyter.ask("/opt/gpuwright/research/bin/python", "jax", KERNEL, 60, run)
    ((*words, program),) = calls
    assert "kernel_name='gpuwright-research'" in program
    assert '"import jax"' in program
    compile(program, "program", "exec")
    assert words[-4:] == ["/opt/gpuwright/research/bin/python", "-I", "-B", "-c"]
    assert ("os.setuid" in " ".join(words)) is root

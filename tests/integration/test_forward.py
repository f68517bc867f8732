"""Forward compatibility on a simulated node: an old driver stays, CUDA 13 runs by way of cuda-compat, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="hosts")]

_OLD = ("--want", "driver=570", "--want", "cuda=13.0", "--want", "jax[cuda13]", "--want", "nccl", "--want", "tensorrt")
_WANTS = (*_OLD, "--want", "cuda-compat=auto")
_COMPAT = "/usr/local/cuda-13.0/compat"
_ASK = "import jax; print(jax.devices()[0].platform)"


@pytest.fixture(scope="module")
def forward(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node whose driver brings CUDA 12.8 and whose JAX is of CUDA 13."""
    machine = make_shared_node("forward", "h100-ubuntu")
    refused = machine.plan(*_OLD)
    assert refused.code == 3, str(refused)
    assert any("cuda-compat=auto" in row["remedy"] for row in refused.host["conflicts"]), refused.host["conflicts"]
    run = machine.up(*_WANTS)
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass"
    return machine


def test_the_old_driver_stays_and_the_libraries_are_of_the_new_cuda(forward: Node) -> None:
    assert "570.211.01" in forward.shell("cat /proc/driver/nvidia/version")
    assert "CUDA Version: 12.8" in forward.shell("nvidia-smi")
    told = forward.shell("dpkg-query -W -f '${Version} ' libnccl2 libnvinfer11 cuda-compat-13-0")
    assert set(told.split()) == {"2.30.7-1+cuda13.0", "11.4.0.106-1+cuda13.4", "580.178.04-1ubuntu1"}


def test_the_environment_runs_by_way_of_cuda_compat_where_it_is_activated(forward: Node) -> None:
    told = forward.shell(f'. /opt/gpuwright/jax/bin/activate && echo "$LD_LIBRARY_PATH" && python -c "{_ASK}"')
    assert told.split() == [_COMPAT, "gpu"]


def test_without_cuda_compat_the_driver_is_too_old_for_it(forward: Node) -> None:
    told = forward.shell(f'/opt/gpuwright/jax/bin/python -c "{_ASK}" 2>&1', check=False)
    assert "CUDA driver version is insufficient" in told


def test_the_machines_own_loader_path_is_left_alone(forward: Node) -> None:
    assert "compat" not in forward.shell("ldconfig -p | grep libcuda.so")


def test_the_proof_names_the_cuda_that_runs_by_way_of_cuda_compat(forward: Node) -> None:
    again = forward.up(*_WANTS)
    assert (again.code, again.roles, again.host["changes"]) == (0, [], []), str(again)
    run = forward.up(*_WANTS, "--full")
    assert run.code == 0, str(run)
    # With the driver's own library, and with that of cuda-compat.
    told = [each["measured"] for each in run.host["checks"] if (each["id"], each["status"]) == ("cuda.version", "pass")]
    assert sorted(map(str, told)) == ["12.8", "13.0"], run.host["checks"]

"""The node after `converge` with many wishes, seen by another program than gpuwright."""

from __future__ import annotations

import json
from typing import Any

import pytest

DRIVER = "580.126.20"


def test_exactly_the_wished_build_is_installed_with_proprietary_modules(host: Any) -> None:
    assert host.package("nvidia-utils-580").version == f"{DRIVER}-1ubuntu1"
    assert host.package("nvidia-dkms-580").is_installed
    assert not host.package("nvidia-dkms-580-open").is_installed


def test_the_loaded_module_is_the_proprietary_one(host: Any) -> None:
    text = host.file("/proc/driver/nvidia/version").content_string
    assert f"NVIDIA UNIX x86_64 Kernel Module  {DRIVER}" in text


def test_the_wished_toolkit_and_cudnn_are_installed(host: Any) -> None:
    assert "release 12.8" in host.check_output("/usr/local/cuda-12.8/bin/nvcc --version")
    assert host.package("libcudnn9-cuda-12").is_installed


def test_the_wished_container_toolkit_is_installed_in_all_four_packages(host: Any) -> None:
    names = (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    )
    assert {host.package(name).version for name in names} == {"1.19.1-1"}


def test_pytorch_is_the_last_build_for_the_card_in_the_wished_place(host: Any) -> None:
    program = "import torch; print(torch.version.cuda, torch.cuda.get_device_name(0))"
    assert host.check_output(f'/srv/environments/pytorch/bin/python -c "{program}"') == "12.6 Tesla V100-SXM2-32GB"


def test_the_wished_libraries_are_those_that_still_serve_the_card(host: Any) -> None:
    assert host.package("libnccl2").version == "2.29.3-1+cuda12.9"
    assert host.package("libnvinfer10").version == "10.4.0.26-1+cuda12.6"
    assert not host.package("libnvinfer11").is_installed


@pytest.mark.parametrize(
    ("name", "program", "said"),
    [
        ("tensorflow", "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))", "1"),
        ("jax", "import jax; print(jax.devices()[0].device_kind)", "Tesla V100-SXM2-32GB"),
        ("dali", "import nvidia.dali; print(nvidia.dali.__version__)", "2.4.0"),
    ],
)
def test_each_framework_has_an_environment_of_its_own(host: Any, name: str, program: str, said: str) -> None:
    assert host.check_output(f'/srv/environments/{name}/bin/python -c "{program}"') == said


@pytest.mark.parametrize("name", ["tensorflow", "jax"])
def test_cudnn_is_the_last_one_that_serves_the_card(host: Any, name: str) -> None:
    frozen = host.check_output(f"/srv/environments/{name}/bin/python -m pip freeze").replace("_", "-")
    assert "nvidia-cudnn-cu12==9.10.2.21" in frozen


def test_the_proof_is_written(host: Any) -> None:
    assert json.loads(host.file("/var/lib/gpuwright/proof.json").content_string)["verdict"] == "pass"

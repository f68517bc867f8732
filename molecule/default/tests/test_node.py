"""The node after `converge`, seen by another program than gpuwright."""

from __future__ import annotations

import json
from typing import Any

DRIVER = "580.178.04"


def test_the_driver_of_the_long_term_branch_is_installed(host: Any) -> None:
    assert host.package("nvidia-driver-cuda").version == f"{DRIVER}-1"
    assert host.package("nvidia-kernel-open-dkms").version == f"{DRIVER}-1"


def test_the_branch_is_pinned_against_the_newer_one(host: Any) -> None:
    candidate = host.check_output("apt-cache policy nvidia-driver-cuda")
    assert f"Candidate: {DRIVER}-1" in candidate
    assert "595." in candidate


def test_the_module_is_loaded_and_nouveau_is_not(host: Any) -> None:
    modules = host.file("/sys/module").listdir()
    assert "nvidia" in modules
    assert "nouveau" not in modules


def test_nouveau_is_blacklisted_inside_the_initramfs(host: Any) -> None:
    kernel = host.check_output("uname -r")
    assert "etc/modprobe.d/gpuwright-nouveau.conf" in host.check_output(f"lsinitramfs /boot/initrd.img-{kernel}")


def test_nvidia_smi_lists_both_cards(host: Any) -> None:
    assert host.check_output("nvidia-smi -L").count("NVIDIA H100") == 2


def test_docker_knows_the_nvidia_runtime(host: Any) -> None:
    assert host.service("docker").is_running
    assert "nvidia" in json.loads(host.file("/etc/docker/daemon.json").content_string)["runtimes"]
    assert "nvidia" in host.check_output("docker info --format '{{json .Runtimes}}'")


def test_pytorch_computes_on_a_card(host: Any) -> None:
    program = "import torch; o = torch.ones((8, 8), device='cuda:1'); print(torch.version.cuda, (o @ o).sum().item())"
    assert host.check_output(f'/opt/gpuwright/pytorch/bin/python -c "{program}"') == "13.0 512.0"


def test_the_toolkit_is_where_the_plan_said(host: Any) -> None:
    assert "release 13.0" in host.check_output("/usr/local/cuda-13.0/bin/nvcc --version")


def test_every_component_is_sealed_and_the_proof_is_written(host: Any) -> None:
    assert {"nvidia_driver.json", "cuda.json", "container_toolkit.json", "frameworks.json"} <= set(
        host.file("/var/lib/gpuwright/seals").listdir()
    )
    assert json.loads(host.file("/var/lib/gpuwright/proof.json").content_string)["verdict"] == "pass"
    assert host.file("/var/lib/gpuwright").mode == 0o700 or host.file("/var/lib/gpuwright/seals").mode == 0o700

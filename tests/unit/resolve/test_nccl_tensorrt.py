"""NCCL and TensorRT as packages: built for the CUDA of the stack, and serving every card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda import apply as component

Resolve = Callable[..., dict[str, Any]]


def stack(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["ok"], answer
    found: dict[str, Any] = answer["stack"]
    return found


def rules_of(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["rule"] for entry in entries}


# The CUDA of libraries where no toolkit is wished ----------------------------------------------------


@pytest.mark.parametrize(
    ("wants", "major"),
    [
        (["cudnn"], "13"),
        (["cudnn=9.5.1"], "12"),
        (["cudnn=9.5.1", "nccl"], "12"),
        (["cudnn=9.5.1", "jax==0.6.1"], "12"),
    ],
)
def test_a_library_of_an_older_cuda_is_that_of_its_own(resolve: Resolve, wants: list[str], major: str) -> None:
    """An H100's driver runs CUDA 13, for which there is no cuDNN 9.5; nobody asked for CUDA 13."""
    found = stack(resolve("H100 SXM5 80GB", "ubuntu-24.04", *wants))
    assert f"libcudnn9-cuda-{major}" in found["cudnn"]["packages"]


def test_a_library_that_no_cuda_has_is_told_of_the_newest(resolve: Resolve) -> None:
    answer = resolve("GeForce RTX 5090", "ubuntu-24.04", "cudnn=9.5.1")
    assert [entry["rule"] for entry in answer["conflicts"]] == ["cudnn.floor", "cudnn.floor"]
    assert "CUDA 13" in answer["conflicts"][0]["text"] + answer["conflicts"][1]["text"]


# NCCL --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "wants", "major"),
    [
        ("H100", ["nccl"], "13"),
        ("H100", ["cuda=12.8", "nccl"], "12"),
        ("V100", ["nccl"], "12"),
        ("H100", ["cuda=12.8", "cuda=13.0", "nccl"], "13"),
    ],
)
def test_nccl_is_built_for_the_newest_cuda_major_of_the_stack(
    resolve: Resolve, card: str, wants: list[str], major: str
) -> None:
    found = stack(resolve(card, "ubuntu-24.04", *wants))
    assert found["nccl"] == {"version": None, "packages": ["libnccl2", "libnccl-dev"], "cuda": major}
    assert "nvidia-cuda" in {each["name"] for each in found["repositories"]}


def test_a_version_of_nccl_that_was_asked_for_is_taken(resolve: Resolve) -> None:
    assert stack(resolve("H100", "ubuntu-24.04", "cuda=12", "nccl=2.27.7"))["nccl"]["version"] == "2.27.7"


def test_nccl_that_was_never_built_for_the_cuda_is_a_conflict_that_names_what_it_was_built_for(
    resolve: Resolve,
) -> None:
    answer = resolve("H100", "ubuntu-24.04", "cuda=13", "nccl=2.21.5")
    (entry,) = answer["conflicts"]
    assert entry["rule"] == "nccl.cuda"
    assert "CUDA 11, 12" in entry["text"]
    assert resolve("H100", "ubuntu-24.04", "cuda=12", "nccl=2.21.5")["ok"]


def test_without_a_wish_there_is_neither(resolve: Resolve) -> None:
    assert not {"nccl", "tensorrt", "cuda_compat"} & set(stack(resolve("H100", "ubuntu-24.04", "cuda", "pytorch")))


def test_a_machine_without_cards_leaves_them_out_and_says_so(resolve: Resolve) -> None:
    answer = resolve([], "ubuntu-24.04", "nccl", "tensorrt", "pytorch")
    assert set(stack(answer)) == {"frameworks"}
    (warning,) = [each for each in answer["warnings"] if each["rule"] == "gpu.none"]
    assert "nccl, tensorrt" in warning["text"]


# TensorRT ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "os", "wants", "version", "generation", "major"),
    [
        ("H100", "ubuntu-24.04", [], None, "11", "13"),
        ("H100", "ubuntu-24.04", ["cuda=12"], None, "10", "12"),
        ("RTX 5090", "ubuntu-24.04", ["cuda=12.8"], None, "10", "12"),
        ("V100", "ubuntu-24.04", [], "10.4.0", "10", "12"),
        ("Tesla P100", "ubuntu-22.04", [], None, "8", "12"),
        ("T4", "ubuntu-22.04", ["cuda=11.8"], "10.13.0.35", "10", "11"),
    ],
)
def test_the_newest_tensorrt_is_taken_that_serves_the_card_and_has_packages_for_its_cuda(
    resolve: Resolve, card: str, os: str, wants: list[str], version: str | None, generation: str, major: str
) -> None:
    found = stack(resolve(card, os, *wants, "tensorrt"))["tensorrt"]
    assert (found["version"], found["generation"], found["cuda"]) == (version, generation, major)
    assert f"libnvinfer{generation}" in found["packages"]
    assert "libnvinfer-dev" in found["packages"]


def test_the_oldest_card_of_a_machine_limits_tensorrt(resolve: Resolve) -> None:
    assert stack(resolve(["V100", "H100"], "ubuntu-24.04", "tensorrt"))["tensorrt"]["version"] == "10.4.0"


@pytest.mark.parametrize(
    ("card", "wants", "rule", "remedy"),
    [
        ("V100", ["tensorrt=10.5"], "tensorrt.card", "tensorrt=10.4.0"),
        ("Tesla P100", ["tensorrt=10.4"], "tensorrt.card", "tensorrt"),
        ("RTX 5090", ["tensorrt=10.7"], "tensorrt.card", "tensorrt"),
        ("H100", ["cuda=12", "tensorrt=11.4"], "tensorrt.cuda", "cuda=13.0"),
        ("Tesla K80", ["tensorrt"], "tensorrt.card", "leave TensorRT out"),
    ],
)
def test_a_tensorrt_that_does_not_do_is_a_conflict_with_what_does(
    resolve: Resolve, card: str, wants: list[str], rule: str, remedy: str
) -> None:
    answer = resolve(card, "ubuntu-22.04", *wants)
    assert not answer["ok"]
    assert rule in rules_of(answer["conflicts"])
    assert all(remedy in entry["remedy"] for entry in answer["conflicts"])


def test_cards_that_no_tensorrt_serves_together_are_named_as_a_pair(resolve: Resolve) -> None:
    answer = resolve(["GTX 1080 Ti", "RTX 5090"], "ubuntu-22.04", "tensorrt", wsl="true")
    (entry,) = answer["conflicts"]
    assert entry["rule"] == "tensorrt.cards"
    assert "GTX 1080 Ti" in entry["text"]
    assert "RTX 5090" in entry["text"]
    assert "gpuwright_gpus_ignore" in entry["remedy"]


def test_an_index_without_the_last_release_for_a_card_gets_the_one_before(
    answer: Resolve, facts: dict[str, Any]
) -> None:
    facts["os"] |= {"id": "ubuntu", "version": "24.04", "codename": "noble", "family": "ubuntu", "glibc": "2.39"}
    facts["pci"]["gpus"][0]["device"] = "1db1"
    assert answer(facts, "tensorrt")["stack"]["tensorrt"]["version"] == "10.4.0"
    found = answer(facts, "tensorrt", absent={"tensorrt=10.4.0": ["10.3.0"]})
    assert found["stack"]["tensorrt"]["version"] == "10.3.0"


# what apt is told --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "start"),
    [
        ({"version": None, "cuda": "13"}, "*+cuda13.?"),
        ({"version": "2.27.7", "cuda": "12"}, "2.27.7[.-]*+cuda12.?"),
        ({"version": None, "generation": "10", "cuda": "12"}, "10.*+cuda12.?"),
        ({"version": "10.4.0", "generation": "10", "cuda": "12"}, "10.4.0[.-]*+cuda12.?"),
    ],
)
def test_apt_is_held_to_the_cuda_that_a_library_was_built_for(library: Any, start: str) -> None:
    wished: Any = {"nccl": {**library, "packages": ["libnccl2"]}}
    assert component.version_prefixes(wished) == {"libnccl2": start}


def test_cudnn_has_its_cuda_in_its_name_and_is_held_to_its_version_alone() -> None:
    found = component.version_prefixes({"cudnn": {"version": "9.10.2.21", "packages": ["libcudnn9-cuda-12"]}})
    assert found == {"libcudnn9-cuda-12": "9.10.2.21"}
    assert component.version_prefixes({"cudnn": {"version": None, "packages": ["libcudnn9-cuda-12"]}}) == {}

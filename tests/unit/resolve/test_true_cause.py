"""Where no candidate will do: the reason that keeps each of them away, and a remedy that takes it away."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.log import conflict, of_all
from tests.unit.resolve.conftest import Resolve
from tests.unit.resolve.test_cuda import texts


def _reasons(*rules: str) -> list[Any]:
    return [conflict(rule, f"text of {rule}", "a source", "a remedy") for rule in rules]


def rules_of(entries: list[Any]) -> list[str]:
    return [entry["rule"] for entry in entries]


def test_the_reason_that_all_candidates_share_comes_first() -> None:
    assert rules_of(of_all([_reasons("python", "card", "driver"), _reasons("driver", "card")])) == ["driver", "card"]
    assert rules_of(of_all([_reasons("python", "card"), _reasons("arch", "card", "x")])) == ["card", "python"]


def test_where_none_is_shared_each_candidate_is_answered_by_one() -> None:
    candidates = [_reasons("card"), _reasons("card", "glibc"), _reasons("glibc"), _reasons("python", "driver")]
    assert rules_of(of_all(candidates)) == ["card", "glibc", "python", "driver"]
    assert of_all([]) == []


# the C library that wheels are made for ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "os", "want", "needs"),
    [
        ("Tesla V100 SXM2 16GB", "rhel-8", "vllm", "2.31"),
        ("A100 SXM4 40GB", "rhel-9", "vllm==0.20.2", "2.35"),
        ("GH200", "rhel-8", "onnxruntime", "2.34"),
        ("GH200", "rocky-8", "onnxruntime==1.30.0", "2.34"),
    ],
)
def test_wheels_for_a_newer_c_library_are_refused(resolve: Resolve, card: str, os: str, want: str, needs: str) -> None:
    answer = resolve(card, os, want)
    assert not answer["ok"]
    (text,) = [entry["text"] for entry in answer["conflicts"] if entry["rule"] == "frameworks.glibc"]
    assert f"are made for glibc {needs} or newer, {os} has 2." in text


def test_the_releases_that_are_made_for_the_system_are_named_and_tried(resolve: Resolve) -> None:
    (entry,) = resolve("A100 SXM4 40GB", "rhel-9", "vllm==0.20.2")["conflicts"]
    assert "those of 0.19.1 and 0.21.0 and 0.22.0 to 0.33.0 are made for it" in entry["text"]
    assert entry["remedy"] == "ask for vllm=0.21.0, or ask for vllm=0.33.0 (the newest that fits)"


def test_a_card_and_a_system_that_have_no_release_in_common_are_told_both(resolve: Resolve) -> None:
    told = resolve("Tesla V100 SXM2 16GB", "rhel-8", "vllm")["conflicts"]
    assert rules_of(told) == ["frameworks.card", "frameworks.glibc"]


def test_the_c_library_that_is_said_of_a_machine_counts(resolve: Resolve) -> None:
    assert resolve("A100", "ubuntu-24.04", "vllm==0.20.2")["ok"]
    assert not resolve("A100", "ubuntu-24.04", "vllm==0.20.2", glibc="2.34")["ok"]


def test_a_toolkit_that_compiles_nothing_here_is_the_reason_and_not_what_the_repository_lacks(resolve: Resolve) -> None:
    told = {entry["rule"]: entry for entry in resolve("V100", "debian-12", "cuda", glibc="2.41")["conflicts"]}
    assert list(told) == ["cuda.card", "cuda.glibc"]
    assert "CUDA 12.9 on glibc 2.41" in told["cuda.glibc"]["text"]
    assert told["cuda.glibc"]["remedy"].startswith("ask for cuda=12.9 (")
    assert resolve("V100", "debian-12", "cuda=12.9", glibc="2.41")["ok"]


# remedies that work --------------------------------------------------------------------------------------


def test_a_framework_that_only_a_container_has_for_the_card_is_answered_with_its_image(resolve: Resolve) -> None:
    (entry,) = resolve("GeForce RTX 5090", "ubuntu-24.04", "tensorflow")["conflicts"]
    assert "PTX up to 8.5" in entry["text"]
    image = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
    assert entry["remedy"] == f"leave TensorFlow out and ask for container-image={image}"
    assert resolve("GeForce RTX 5090", "ubuntu-24.04", f"container-image={image}")["ok"]


def test_a_python_that_no_release_is_for_is_answered_with_one_that_they_are_for(resolve: Resolve) -> None:
    (entry,) = resolve("GeForce RTX 4090", "ubuntu-26.04", "tensorflow")["conflicts"]
    assert entry["remedy"] == "ask for python=3.13"
    assert resolve("GeForce RTX 4090", "ubuntu-26.04", "tensorflow", "python=3.13")["ok"]


def test_a_python_is_no_way_out_on_a_machine_that_was_looked_at_and_has_none(answer: Any, facts: Any) -> None:
    facts["python"]["interpreters"] = [{"path": "/usr/bin/python3", "version": "3.14.0"}]
    (entry,) = answer(facts, "tensorflow")["conflicts"]
    assert "python=" not in entry["remedy"]


# known traps ---------------------------------------------------------------------------------------------


def test_a_cudnn_of_the_system_that_a_wheel_would_load_a_part_of_is_told(resolve: Resolve) -> None:
    (text,) = texts(resolve("GeForce RTX 4090", "ubuntu-22.04", "vllm", "cuda=12.8", "cudnn"), "cudnn.beside-wheels")
    assert "vllm 0.31.0 brings cuDNN 9.20.0.48 without libcudnn_engines_tensor_ir" in text
    assert "ask for cudnn=9.20.0.48" in text
    for want in ("cudnn=9.20.0.48", "cudnn=9.22.0.52"):
        quiet = resolve("GeForce RTX 4090", "ubuntu-22.04", "vllm", "cuda=12.8", want)
        assert quiet["ok"]
        assert texts(quiet, "cudnn.beside-wheels") == []
    assert texts(resolve("GeForce RTX 4090", "ubuntu-22.04", "vllm", "cudnn=9.24.0.43"), "cudnn.beside-wheels")
    assert texts(resolve("GeForce RTX 4090", "ubuntu-24.04", "pytorch==2.10.0", "cudnn"), "cudnn.beside-wheels") == []


def test_torchaudio_goes_with_the_torch_of_its_day_on_every_python(resolve: Resolve) -> None:
    answer = resolve("GeForce RTX 4090", "ubuntu-24.04", "torch==2.15.0", "python=3.15")
    (entry,) = answer["stack"]["frameworks"]
    assert "torchaudio==2.11.1" in entry["requirements"]
    assert texts(answer, "frameworks.partner") == []

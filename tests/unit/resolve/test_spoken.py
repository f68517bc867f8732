"""A want is understood as people say it, or answered with what to write."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import spoken
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import WORDS, Wish, words_of

TOLD = [row for rows in (*(words.told for words in WORDS), spoken.ELSEWHERE) for row in rows]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("cuda 12.8", ["cuda=12.8"]),
        ("CUDA 12.8", ["cuda=12.8"]),
        ("cuda12.8", ["cuda=12.8"]),
        ("cuda-12-8", ["cuda=12.8"]),
        ("cuda toolkit 12.8", ["cuda=12.8"]),
        ("cuda-toolkit-12-8", ["cuda=12.8"]),
        ("cudatoolkit=11.8", ["cuda=11.8"]),
        ("nvcc", ["cuda"]),
        ("libcudnn9-cuda-12", ["cudnn=9"]),
        ("cudnn 9", ["cudnn=9"]),
        ("libnccl2", ["nccl"]),
        ("driver 580", ["driver=580"]),
        ("driver=r580", ["driver=580"]),
        ("nvidia driver 580", ["driver=580"]),
        ("nvidia-driver-580", ["driver=580"]),
        ("nvidia-driver-580-open", ["driver=580", "driver-modules=open"]),
        ("nvidia-driver-580-server", ["driver=580"]),
        ("nvidia-open=580", ["driver=580", "driver-modules=open"]),
        ("cuda-drivers-580", ["driver=580"]),
        ("nvidia-docker2", ["container-toolkit"]),
        ("docker", ["container-engine=docker"]),
        ("podman", ["container-engine=podman"]),
        ("python3.12", ["python=3.12"]),
        ("python 3.12", ["python=3.12"]),
        ("torch 2.8", ["torch=2.8"]),
        ("pytorch=latest", ["pytorch"]),
        ("tensorflow latest", ["tensorflow"]),
        ("xformers 0.0.35", ["xformers=0.0.35"]),
    ],
)
def test_it_is_understood(said: str, meant: list[str]) -> None:
    assert Wish.from_wants([said]) == Wish.from_wants(meant)


@pytest.mark.parametrize(
    "want",
    [
        "cuda=12.8",
        "pytorch>=2.7",
        "torch==2.8.0+cu128",
        "pytorch@research==2.8.0",
        "jax[cuda13]>=0.7.2",
        "cupy-cuda12x",
    ],
)
def test_what_is_written_as_our_documents_write_it_stays_as_it_is(want: str) -> None:
    assert Wish.from_wants([want]) == Wish.from_wants([f" {want} "])


def test_a_version_of_what_has_none_is_refused_with_what_to_write() -> None:
    with pytest.raises(BadInput, match="which version of it comes is a matter of its source") as error:
        Wish.from_wants(["docker=28"])
    assert error.value.suggestions == ["container-engine=docker"]


def test_what_is_asked_for_in_another_way_is_answered_with_that() -> None:
    for names, said, instead in TOLD:
        for name in names.split():
            with pytest.raises(BadInput, match="^" + re.escape(repr(name))) as error:
                Wish.from_wants([name])
            assert said in str(error.value)
            built = f"+{name}" if name.startswith("cu1") else ""
            assert error.value.suggestions == [each.replace("{variant}", built) for each in instead]


@pytest.mark.parametrize(
    ("said", "meant"),
    [("cu121", "pytorch+cu121"), ("pytorch-cuda=12.1", "pytorch+cu121"), ("cuda-version 11.8", "pytorch+cu118")],
)
def test_the_cuda_of_a_pytorch_is_answered_with_the_build_for_that_cuda(said: str, meant: str) -> None:
    with pytest.raises(BadInput) as error:
        Wish.from_wants([said])
    assert error.value.suggestions == [meant]
    assert [each.variant for each in Wish.from_wants([meant]).frameworks] == [meant.partition("+")[2]]


def test_what_is_named_instead_can_be_wished() -> None:
    told = {hint for _names, _said, instead in TOLD for hint in instead if ": " not in hint}
    named = {each.replace("{variant}", "+cu126") for each in told}
    wants = named - {"project=requirements.txt", "container-image=IMAGE"}
    for want in wants:
        assert Wish.from_wants([want]) != Wish()


def test_a_want_that_nobody_can_read_and_one_that_nobody_knows_name_what_there_is_in_one_line() -> None:
    for want in ("12.4", "no-such-thing"):
        with pytest.raises(BadInput) as error:
            Wish.from_wants([want])
        assert len(error.value.suggestions) <= 2
        assert "components: driver, " in error.value.suggestions[-1]


def test_who_has_no_root_is_told_of_what_was_said() -> None:
    assert words_of("nvidia driver 580").component == "nvidia_driver"
    assert words_of("docker").component == "container_toolkit"

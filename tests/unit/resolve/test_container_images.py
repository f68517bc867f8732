"""How images of containers are wished, and which ones are pulled ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import image_reference
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.resolve.conftest import answering

Resolve = Callable[..., dict[str, Any]]
DIGEST = "sha256:" + "0123456789abcdef" * 4
CUDA = "docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04"


@pytest.mark.parametrize(
    ("written", "full"),
    [
        ("nvidia/cuda:13.0.2-base-ubuntu24.04", CUDA),
        (CUDA, CUDA),
        ("index.docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04", CUDA),
        ("alpine:3", "docker.io/library/alpine:3"),
        ("docker.io/alpine:3", "docker.io/library/alpine:3"),
        ("nvcr.io/nvidia/pytorch:25.10-py3", "nvcr.io/nvidia/pytorch:25.10-py3"),
        ("registry.example:5000/a/b:1", "registry.example:5000/a/b:1"),
        ("localhost/probe:1", "localhost/probe:1"),
        (f"nvidia/cuda@{DIGEST}", f"docker.io/nvidia/cuda@{DIGEST}"),
        (f"nvidia/cuda:13.0@{DIGEST}", f"docker.io/nvidia/cuda@{DIGEST}"),
    ],
)
def test_an_image_is_written_in_full(written: str, full: str) -> None:
    assert image_reference.in_full(written) == full
    assert Wish.from_wants([f"container-image={written}"]).container_toolkit_images == (full,)
    assert Wish.from_variables({"container_toolkit_images": [written]}).container_toolkit_images == (full,)


@pytest.mark.parametrize(
    "written",
    [
        "nvidia/cuda",
        "registry.example:5000/cuda",
        "nvidia/CUDA:13.0",
        "--privileged:1",
        "nvidia/cuda:",
        "nvidia/cuda:13 0",
        "nvidia/../cuda:1",
        "nvidia/cuda@sha256:abc",
        "a/" * 300 + "b:1",
        "",
    ],
)
def test_what_has_no_tag_or_is_no_image_is_refused(written: str) -> None:
    assert image_reference.in_full(written) is None
    with pytest.raises(BadInput, match="is no image with a tag or a digest"):
        Wish.from_wants([f"container-image={written}"])


@pytest.mark.parametrize(
    "written",
    [
        "alice:hunter2@registry.example/a:1",
        "alice:hunter2@a",
        "https://registry.example/a:1",
        "https://alice:hunter2@r/a:1",
    ],
)
def test_a_password_is_refused_and_not_repeated(written: str) -> None:
    with pytest.raises(BadInput) as refused:
        Wish.from_wants([f"container-image={written}"])
    assert "hunter2" not in str(refused.value)
    assert "docker login" in str(refused.value)


def test_several_images_are_wished_by_several_wants_by_a_list_or_with_commas() -> None:
    both = (CUDA, "docker.io/library/alpine:3")
    assert Wish.from_wants(["container-image=" + image for image in both]).container_toolkit_images == both
    read = Wish.from_variables({"container_toolkit_images": "nvidia/cuda:13.0.2-base-ubuntu24.04, alpine:3,alpine:3"})
    assert (read.container_toolkit_images, read.container_toolkit) == (both, True)
    nothing: tuple[object, ...] = (None, "", [])
    assert not any(Wish.from_variables({"container_toolkit_images": each}).container_toolkit for each in nothing)
    with pytest.raises(BadInput, match="has to be a list of images"):
        Wish.from_variables({"container_toolkit_images": {"a": 1}})


def images(answer: dict[str, Any]) -> Any:
    return answer["stack"]["container_toolkit"]["engine"].get("images")


def test_the_images_that_are_wished_are_pulled(resolve: Resolve) -> None:
    assert images(resolve("H100", "debian-13", "container-image=alpine:3")) == ["docker.io/library/alpine:3"]
    assert images(resolve("H100", "debian-13", "container-toolkit")) is None


def test_auto_is_the_smallest_image_of_cuda_that_fits_the_driver(resolve: Resolve) -> None:
    (found,) = images(resolve("H100", "ubuntu-24.04", "driver=580", "container-image=auto"))
    assert found == "docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04"


def test_auto_follows_the_toolkits_that_are_wished_and_stands_beside_others(resolve: Resolve) -> None:
    wants = ("driver=580", "cuda=12.8", "cuda=13.0", "container-image=auto", "container-image=alpine:3")
    *found, last = images(resolve("H100", "ubuntu-24.04", *wants))
    assert [image.partition(":")[2][:4] for image in found] == ["12.8", "13.0"]
    assert last == "docker.io/library/alpine:3"


def test_containerd_pulls_none_for_kubernetes_does(resolve: Resolve) -> None:
    (conflict,) = resolve("H100", "debian-13", "container-engine=containerd", "container-image=alpine:3")["conflicts"]
    assert conflict["rule"] == "container-toolkit.images"
    assert "kubelet" in conflict["text"]
    assert "container-engine=docker" in conflict["remedy"]


def test_where_no_image_fits_auto_is_refused_with_the_reason(rules: Any) -> None:
    without = {**rules, "images": {**rules["images"], "tags": []}}
    (conflict,) = answering(without)("H100", "debian-13", "container-image=auto")["conflicts"]
    assert (conflict["rule"], "container-image=auto" in conflict["text"]) == ("container-toolkit.images", True)


# tags that there are not ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "why", "instead"),
    [
        (
            "12.2.0-base-ubuntu24.04",
            "no image of CUDA 12.2 for ubuntu24.04, which begins with CUDA 12.5",
            "12.2.2-base-ubuntu22.04",
        ),
        # Of CUDA 13 not every tag was read; that a system came later is known all the same.
        (
            "13.0.1-devel-ubuntu26.04",
            "no image of CUDA 13.0 for ubuntu26.04, which begins with CUDA 13.3",
            "12.8.1-devel-ubuntu24.04",
        ),
        ("11.8-base-ubuntu22.04", "have the whole release", "11.8.0-base-ubuntu22.04"),
        ("12.4.1-cudnn8-devel-ubuntu22.04", "has no cudnn8-devel", "12.4.1-cudnn-devel-ubuntu22.04"),
        ("12.4.1-devel", "no tag without its system", "12.4.1-devel-ubuntu22.04"),
        ("10.2-cudnn7-devel-ubuntu18.04", "older than 11.0 were deleted", "12."),
    ],
)
def test_a_tag_of_nvidia_cuda_that_is_not_there_is_refused(resolve: Resolve, tag: str, why: str, instead: str) -> None:
    (conflict,) = resolve("GeForce RTX 3090", "ubuntu-22.04", "driver=570", f"container-image=nvidia/cuda:{tag}")[
        "conflicts"
    ]
    assert why in conflict["text"]
    assert f"container-image=docker.io/nvidia/cuda:{instead}" in conflict["remedy"]


@pytest.mark.parametrize(
    ("card", "image", "why"),
    [
        ("GeForce RTX 5090", "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", "torch 2.5.1+cu124 has no code"),
        ("GeForce RTX 5090", "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime", None),
        ("GeForce RTX 5090", "vllm/vllm-openai:v0.8.0", "has no code"),
        ("GeForce RTX 5090", "vllm/vllm-openai:v0.10.0", None),
        ("GeForce RTX 3090", "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", None),
        ("GeForce GTX 1080", "somebody/program:1.0-cuda13.0", "its CUDA 13.0 has no code"),
    ],
)
def test_an_image_of_somebody_else_is_held_against_the_card_by_its_tag(
    resolve: Resolve, card: str, image: str, why: str | None
) -> None:
    told = resolve(card, "ubuntu-22.04", "driver=580", f"container-image={image}").get("conflicts") or []
    assert [why in each["text"] for each in told] == ([True] if why else [])


@pytest.mark.parametrize(
    ("image", "instead"),
    [
        ("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-devel", "nvcr.io/nvidia/pytorch:"),
        # No tag of that form is needed to know for which machines there is a build.
        ("pytorch/pytorch:latest", "nvcr.io/nvidia/pytorch:"),
        # Somebody's own registry may have a build of their own, and of vLLM it was not read.
        ("mirror.example/pytorch/pytorch:2.13.0-cuda13.0-cudnn9-devel", None),
        ("vllm/vllm-openai:v0.10.0", None),
    ],
)
def test_an_image_without_a_build_for_the_architecture_is_refused_with_one_that_has_it(
    resolve: Resolve, image: str, instead: str | None
) -> None:
    told = resolve("GH200", "ubuntu-24.04", f"container-image={image}").get("conflicts") or []
    assert ["is published for x86_64 alone, not for aarch64" in each["text"] for each in told] == [True] * bool(instead)
    for each in told:
        assert each["remedy"].startswith(f"ask for container-image={instead}")
        assert resolve("GH200", "ubuntu-24.04", each["remedy"].removeprefix("ask for "))["ok"]
    assert resolve("H100", "ubuntu-24.04", f"container-image={image}")["ok"]


def test_where_the_makers_image_of_the_framework_does_not_fit_it_is_one_of_cuda(rules: Any) -> None:
    without = {**rules, "images": {**rules["images"], "releases": []}}
    (conflict,) = answering(without)("GH200", "ubuntu-24.04", "container-image=pytorch/pytorch:latest")["conflicts"]
    assert conflict["remedy"].startswith("ask for container-image=docker.io/nvidia/cuda:")


# held against driver and cards ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "os", "driver", "image", "why", "instead"),
    [
        (
            "GeForce RTX 4050 Laptop GPU",
            "debian-12",
            "535",
            "docker.io/nvidia/cuda:12.8.1-base-ubuntu22.04",
            "data-centre and workstation cards alone",
            "docker.io/nvidia/cuda:12.2.2-base-ubuntu22.04",
        ),
        (
            "GeForce RTX 3090",
            "ubuntu-22.04",
            "550",
            "nvcr.io/nvidia/pytorch:25.10-py3",
            "its CUDA 13.0 does not run on the driver (branch 550)",
            "nvcr.io/nvidia/pytorch:25.06-py3",
        ),
        (
            "GeForce GTX 1080",
            "ubuntu-22.04",
            "580",
            "docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04",
            "its CUDA 13.0 has no code for the GeForce GTX 1080",
            "docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04",
        ),
        (
            "GeForce RTX 5090",
            "ubuntu-24.04",
            "580",
            "mirror.example/nvidia/pytorch:24.12-py3",
            "its CUDA 12.6 has no code for the GeForce RTX 5090",
            "mirror.example/nvidia/pytorch:25.10-py3",
        ),
        (
            "GeForce RTX 4090",
            "ubuntu-22.04",
            "570",
            "docker.io/nvidia/cuda:13.0.2-base-ubuntu22.04",
            "its CUDA 13.0 does not run on the driver (branch 570)",
            "docker.io/nvidia/cuda:12.8.1-base-ubuntu22.04",
        ),
        *(
            (
                "Tesla P100 PCIe 16GB",
                "ubuntu-24.04",
                "580",
                f"nvcr.io/nvidia/pytorch:{release}-py3",
                "it has no code for the Tesla P100 PCIe 16GB (6.0)",
                "nvcr.io/nvidia/pytorch:24.12-py3",
            )
            for release in ("25.01", "25.02", "25.03", "25.08")
        ),
        (
            "Tesla V100 PCIe 16GB",
            "ubuntu-22.04",
            "535",
            "docker.io/nvidia/cuda:latest",
            "nvidia/cuda has no tag latest",
            "docker.io/nvidia/cuda:12.2.2-base-ubuntu22.04",
        ),
    ],
)
def test_an_image_that_would_not_start_is_refused_with_the_newest_that_does(
    rules: dict[str, Any], card: str, os: str, driver: str, image: str, why: str, instead: str
) -> None:
    resolve = answering(rules)
    answer = resolve(card, os, f"driver={driver}", f"container-image={image}")
    (entry,) = answer["conflicts"]
    assert entry["rule"] == "container-toolkit.image"
    assert why in entry["text"]
    assert entry["remedy"].startswith(f"ask for container-image={instead}")
    assert resolve(card, os, f"driver={driver}", f"container-image={instead}")["ok"]


@pytest.mark.parametrize(
    ("card", "driver", "image", "how"),
    [
        ("A100 PCIe 80GB", "550", "nvcr.io/nvidia/pytorch:25.10-py3", "cuda-compat in the image"),
        ("A100 PCIe 80GB", "535", "docker.io/nvidia/cuda:12.8.1-base-ubuntu22.04", "minor-version"),
        ("GeForce RTX 3090", "580", "docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04", "in full"),
    ],
)
def test_an_image_that_runs_says_how(rules: dict[str, Any], card: str, driver: str, image: str, how: str) -> None:
    answer = answering(rules)(card, "ubuntu-22.04", f"driver={driver}", f"container-image={image}")
    (text,) = [each["text"] for each in answer["why"] if each["rule"] == "container-toolkit.image"]
    assert image in text
    assert how in text


def test_of_an_image_that_was_not_read_nothing_is_said_for_sure(rules: dict[str, Any]) -> None:
    resolve = answering(rules)

    def warned(card: str, driver: str, image: str) -> list[str]:
        answer = resolve(card, "ubuntu-22.04", f"driver={driver}", f"container-image={image}")
        return [
            each["text"] for each in (*answer["warnings"], *answer["why"]) if each["rule"] == "container-toolkit.image"
        ]

    (text,) = warned("GeForce RTX 3090", "550", "nvcr.io/nvidia/pytorch:25.08-py3")
    assert "25.10-py3 it would not run" in text
    assert warned("GeForce RTX 3090", "580", "nvcr.io/nvidia/pytorch:25.08-py3") == []
    assert warned("GeForce RTX 3090", "550", "docker.io/library/alpine:3") == []
    assert warned("GeForce RTX 3090", "550", "registry.example/nvidia/cuda:latest") == []
    (text,) = warned("GeForce RTX 4090", "580", "docker.io/nvidia/cuda:13.2.1-devel-ubuntu24.04")
    assert "was not read" in text

"""What is used with frameworks and installed by hand: known by its name, with the build that fits."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.resolve.conftest import Resolve


def told(answer: Any) -> list[Any]:
    assert not answer["ok"]
    return [entry for entry in answer["conflicts"] if entry["rule"] == "frameworks.by-hand"]


@pytest.mark.parametrize(
    "name",
    [
        "flash-attn",
        "flash_attn==2.8.3",
        "xformers",
        "bitsandbytes",
        "deepspeed",
        "transformer-engine",
        "sglang",
        "tensorrt-llm",
        "paddlepaddle-gpu",
        "paddlepaddle",
        "rapids",
        "cudf-cu13",
        "cuml",
    ],
)
@pytest.mark.parametrize("card", ["GeForce RTX 4090", "Tesla V100 PCIe 16GB", "Tesla K80", "GB200"])
def test_each_is_known_by_its_name_and_says_what_to_do(resolve: Resolve, card: str, name: str) -> None:
    (entry,) = told(resolve(card, "ubuntu-22.04", name))
    assert entry["remedy"]
    assert not re.search(r"[{}]", entry["remedy"] + entry["text"]), entry
    assert Wish.from_wants([name]).by_hand == Wish.from_variables({"frameworks_wanted": [name]}).by_hand


def test_the_build_is_that_of_the_torch_the_cuda_the_abi_and_the_python_of_the_answer(resolve: Resolve) -> None:
    def remedy(*wants: str) -> str:
        (entry,) = told(resolve("GeForce RTX 4090", "ubuntu-22.04", *wants))
        return str(entry["remedy"])

    assert "cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64" in remedy("torch==2.6.0+cu124", "flash-attn")
    assert "cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64" in remedy(
        "flash-attn", "torch==2.8.0+cu128", "python=3.12"
    )
    assert "xformers==0.0.32.post2" in remedy("torch==2.8.0", "xformers")
    assert "xformers==0.0.35" in remedy("torch==2.13.0", "xformers")
    assert "xformers==0.0.29.post3" in remedy("torch==2.6.0", "xformers")
    assert "wheel of flash-attn 2.6.3 " not in remedy("torch==2.4.1", "flash-attn")
    assert "wheel of flash-attn 2.7.4 " in remedy("torch==2.1.2", "flash-attn")
    assert remedy("torch==2.14.1", "flash-attn").startswith("build it beside a toolkit")
    assert "xformers==0.0.25" in remedy("torch==2.2.1", "xformers")
    assert remedy("torch==2.0.1", "xformers") == "ask for a torch that it is for: pytorch>=2.10"
    assert "sglang==0.5.23" in remedy("torch==2.14.1", "sglang")
    assert "cuda=12.6" in remedy("torch==2.9.1+cu126", "deepspeed")
    assert "cudf-cu12==" in remedy("torch==2.9.1+cu126", "rapids")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("flash-attn==2.6.3", "flash-attn 2.6.3 is for torch >=2.0,<2.5, not for 2.6.0"),
        ("flash_attn=2.6.3", "flash-attn 2.6.3 is for torch >=2.0,<2.5, not for 2.6.0"),
        ("xformers==0.0.29.post1", "xformers 0.0.29.post1 is for torch 2.5.1, not for 2.6.0"),
    ],
)
def test_a_version_that_is_for_another_torch_is_told_first(resolve: Resolve, wish: str, said: str) -> None:
    (entry,) = told(resolve("GeForce RTX 4090", "ubuntu-22.04", "torch==2.6.0+cu124", wish))
    assert entry["text"].startswith(said)
    for fits in ("flash-attn==2.7.4.post1", "xformers==0.0.29.post3", "xformers>=0.0.29", "xformers"):
        (entry,) = told(resolve("GeForce RTX 4090", "ubuntu-22.04", "torch==2.6.0+cu124", fits))
        assert "not for" not in entry["text"]


def test_what_else_cannot_be_met_is_told_too(resolve: Resolve) -> None:
    answer = resolve("GeForce RTX 5090", "ubuntu-24.04", "torch==2.3.0", "flash-attn")
    assert {entry["rule"] for entry in answer["conflicts"]} == {"frameworks.card", "frameworks.by-hand"}

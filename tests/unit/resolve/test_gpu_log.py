"""The light log of the cards: where it is kept, and where it cannot be."""

from __future__ import annotations

from .conftest import Resolve


def test_the_answer_says_for_how_long_and_how_large_the_log_is(resolve: Resolve) -> None:
    answer = resolve(["H100"] * 8, "ubuntu-24.04", "gpu-log")
    assert answer["stack"]["gpu_log"] == {"days": 30}
    (why,) = [each["text"] for each in answer["why"] if each["rule"] == "gpu-log"]
    assert "for 30 days, at most 84 MiB" in why


def test_without_a_wish_there_is_none(resolve: Resolve) -> None:
    assert "gpu_log" not in resolve("H100", "ubuntu-24.04", "driver")["stack"]


def test_a_machine_without_cards_is_told_that_it_gets_none(resolve: Resolve) -> None:
    answer = resolve([], "ubuntu-24.04", "gpu-log", "lmdb")
    assert "gpu_log" not in answer["stack"]
    assert "no NVIDIA GPU: gpu-log left out" in [each["text"] for each in answer["warnings"]]


def test_a_jetson_is_told_that_it_gets_none(resolve: Resolve) -> None:
    for wants in (["gpu-log", "lmdb"], ["gpu-log"]):
        answer = resolve("Jetson AGX Orin 64GB", "ubuntu-22.04", *wants, arch="aarch64")
        assert "gpu_log" not in answer["stack"]
        assert "gpu-log.jetson" in [each["rule"] for each in answer["warnings"]]

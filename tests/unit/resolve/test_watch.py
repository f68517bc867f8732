"""A node that watches itself: how it is decided, and where it cannot be."""

from __future__ import annotations

from .conftest import Resolve


def test_the_answer_says_how_often_and_where_the_metrics_are(resolve: Resolve) -> None:
    answer = resolve(["H100"] * 8, "ubuntu-24.04", "watch=1h")
    assert answer["stack"]["watch"]["minutes"] == 60
    (why,) = [each["text"] for each in answer["why"] if each["rule"] == "watch"]
    assert why == "the node looks at itself every 60 minutes; metrics in /var/lib/gpuwright/metrics"


def test_without_a_wish_there_is_none(resolve: Resolve) -> None:
    assert "watch" not in resolve("H100", "ubuntu-24.04", "driver")["stack"]


def test_a_machine_without_cards_is_told_that_it_gets_none(resolve: Resolve) -> None:
    answer = resolve([], "ubuntu-24.04", "watch", "lmdb")
    assert "watch" not in answer["stack"]
    assert "no NVIDIA GPU: watch left out" in [each["text"] for each in answer["warnings"]]


def test_a_jetson_is_told_that_it_gets_none(resolve: Resolve) -> None:
    for wants in (["watch", "lmdb"], ["watch"]):
        answer = resolve("Jetson AGX Orin 64GB", "ubuntu-22.04", *wants, arch="aarch64")
        assert "watch" not in answer["stack"]
        assert "watch.jetson" in [each["rule"] for each in answer["warnings"]]

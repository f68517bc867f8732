"""What a refusal proposes: the nearest wish that works, and the newest second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import nearest
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.alternatives import nearest_first
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import machine_from_options
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from benchmarks.resolve import CARDS, WANTS

Resolve = Callable[..., dict[str, Any]]


def remedies(answer: dict[str, Any]) -> list[str]:
    assert not answer["ok"]
    return [entry["remedy"] for entry in answer["conflicts"]]


@pytest.mark.parametrize(
    ("card", "os", "wants", "remedy"),
    [
        ("RTX 5090", "ubuntu-24.04", ["torch==2.6"], "ask for pytorch=2.7.0, or ask for pytorch=2.14.1 (the newest that fits)"),
        (
            "RTX 5090",
            "ubuntu-24.04",
            ["torch==2.6.0+cu124"],
            "ask for pytorch=2.7.0+cu128, or ask for pytorch=2.14.1+cu130 (the newest that fits)",
        ),
        ("H100", "ubuntu-22.04", ["tensorflow==2.15.0"], "ask for tensorflow=2.15.1, or ask for tensorflow=2.21.0 (the newest that fits)"),
        (
            "RTX 5090",
            "ubuntu-24.04",
            ["driver=550"],
            "ask for driver=570 (570 ended on 2026-01-27), or ask for driver=580 (580 is long-term, supported until 2028-08-04)",
        ),
        # What wheels need of the driver is asked of each driver that runs other CUDA versions.
        ("H100", "ubuntu-24.04", ["driver=570", "torch==2.14.1+cu130"],
         ("ask for pytorch=2.14.1+cu126, or ask for driver=580 (580 is long-term, supported until 2028-08-04), "
          "or add cuda-compat=auto, which leaves the driver as it is")),
        ("RTX 5090", "ubuntu-24.04", ["cuda=12.6"], "ask for cuda=12.8, or ask for cuda=13.0 (the newest that fits)"),
        ("RTX 5090", "ubuntu-24.04", ["cuda=12.6.2"], "ask for cuda=12.8.0, or ask for cuda=13.0 (the newest that fits)"),
        ("V100", "ubuntu-24.04", ["jax[cuda13]"], "ask for jax[cuda12]"),
        # No Python is proposed to who said nothing of one: 3.10 would do as well.
        (
            "H100",
            "debian-12",
            ["tensorflow==2.14.1"],
            "ask for tensorflow=2.15.1, or ask for tensorflow=2.21.0 (the newest that fits), or ask for python=3.10",
        ),
        (
            "H100",
            "ubuntu-24.04",
            ["torch==2.3", "python=3.13"],
            "ask for python=3.12, or ask for pytorch=2.5.0, or ask for pytorch=2.14.1 (the newest that fits)",
        ),
        (
            "RTX 5090",
            "ubuntu-24.04",
            ["torch==2.6", "cuda=12.6", "driver=550"],
            ("ask for pytorch=2.7.0 and ask for cuda=12.8 and ask for driver=570 (570 ended on 2026-01-27), "
             "or ask for pytorch=2.14.1 and ask for cuda=13.0 and ask for driver=580 (580 is long-term, supported until 2028-08-04)"),
        ),
        ("RTX 5090", "ubuntu-24.04", ["cuda=12.6", "cuda=12.4", "cuda=12.9"],
         "ask for cuda=12.8 in place of cuda=12.6 and ask for cuda=12.8 in place of cuda=12.4"),
        ("RTX 5090", "ubuntu-24.04", ["tensorflow", "torch==2.6"],
         "leave TensorFlow out and ask for pytorch=2.7.0, or leave TensorFlow out and ask for pytorch=2.14.1 (the newest that fits)"),
    ],
)  # fmt: skip
def test_the_nearest_wish_is_proposed_and_the_newest_second(
    resolve: Resolve, card: str, os: str, wants: list[str], remedy: str
) -> None:
    assert set(remedies(resolve(card, os, *wants))) == {remedy}


def test_what_the_resolver_would_choose_by_itself_need_not_work(facts: dict[str, Any], answer: Resolve) -> None:
    facts["os"] |= {"id": "ubuntu", "version": "22.04", "codename": "jammy", "family": "ubuntu", "glibc": "2.35"}
    facts["pci"]["gpus"][0]["device"] = "1402"  # a GeForce GTX 950
    facts["kernel"] |= {"running": "5.15.0-91-generic", "next": "5.15.0-91-generic"}
    facts["packages"]["sources"] = []
    facts["boot"]["secure_boot"] = True  # the distribution would be preferred, whose archive this machine does not have
    refused = answer(facts, "driver-modules=open", "driver-source=nvidia")
    assert remedies(refused) == ["ask for driver-modules=proprietary"]
    assert "ask for driver=470 (470 ended on 2024-07-20)" in remedies(answer(facts, "driver=390"))


def test_wheels_for_the_processor_stay_that(resolve: Resolve) -> None:
    asked = resolve("Jetson AGX Orin 64GB", "ubuntu-22.04", "torch==1.13.0+cpu", arch="aarch64", python="3.12")
    (remedy,) = remedies(asked)
    assert remedy == "ask for pytorch=2.2.0+cpu, or ask for pytorch=2.15.0+cpu (the newest that fits)"


def test_a_toolkit_that_a_repository_has_not_is_named_where_it_still_is(resolve: Resolve) -> None:
    (remedy,) = remedies(resolve("RTX 4090", "ubuntu-24.04", "cuda=11.8"))
    assert remedy == (
        "CUDA 11.8 is still to be had in NVIDIA's repository for ubuntu-22.04, in NVIDIA's file cuda_11.8.0_520.61.05_linux.run "
        "(cuda-source=runfile), in the container image nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04; "
        "or ask for cuda=12.5, or ask for cuda=13.0 (the newest that fits)"
    )
    (remedy,) = remedies(resolve("GH200", "ubuntu-24.04", "cuda=11.8", arch="aarch64"))
    assert "cuda_11.8.0_520.61.05_linux_sbsa.run" in remedy
    assert "image" not in remedy


def test_a_toolkit_that_is_to_be_had_nowhere_is_answered_with_the_nearest_wish_alone(resolve: Resolve) -> None:
    # To leave the toolkit out, as was said besides, would not do: the wheels have no Python either.
    refused = resolve("RTX 4090", "ubuntu-24.04", "cuda=10.2", "torch==2.3", "python=3.13")
    (remedy,) = set(remedies(refused))
    assert remedy.startswith("ask for python=3.12 and ask for cuda=12.5")


def test_a_toolkit_without_code_for_the_card_is_named_nowhere(resolve: Resolve) -> None:
    assert not any("still to be had" in remedy for remedy in remedies(resolve("RTX 5090", "ubuntu-24.04", "cuda=11.8")))


@pytest.mark.parametrize(
    ("wished", "order"),
    [
        (["2.1.0"], ["2.1.1", "2.2.0", "2.0.1", "2.0.0", "3.0.0"]),
        (["2.1.1"], ["2.1.0", "2.2.0", "2.0.1", "2.0.0", "3.0.0"]),
        (["2.0.0", "2.0.1"], ["2.1.0", "2.1.1", "2.2.0", "3.0.0"]),
        ([], ["3.0.0", "2.2.0", "2.1.1", "2.1.0", "2.0.1", "2.0.0"]),
    ],
)
def test_releases_are_near_by_minor_version_then_by_steps_then_upwards(wished: list[str], order: list[str]) -> None:
    released = ["2.0.0", "2.0.1", "2.1.0", "2.1.1", "2.2.0", "3.0.0"]
    assert [version for _step, version in nearest_first(wished, released)] == order


#: Much that is wished at once, most of it of no use on an old card.
MANY = [
    *(
        "driver=570",
        "driver-modules=open",
        "driver-source=nvidia",
        "cuda=12.4",
        "cuda=12.6",
        "pytorch=2.6.0",
        "python=3.9",
    ),
    *("cudnn=9.5.0", "nccl", "tensorrt", "tensorflow=2.17.0", "jax", "dali"),
]


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many wishes each search tried."""
    counts, remedy = [], nearest._remedy

    def counted(wish: Wish, search: nearest._Search) -> str | None:
        found = remedy(wish, search)
        counts.append(len(search.trials.tried) + len(search.possible.trials.tried))
        return found

    monkeypatch.setattr(nearest, "_remedy", counted)
    return counts


@pytest.mark.parametrize(("card", "os"), [("Tesla K80", "ubuntu-24.04"), ("GeForce RTX 4090", "amzn-2023")])
def test_a_machine_that_serves_no_wish_is_told_so_at_once(
    resolve: Resolve, trials: list[int], card: str, os: str
) -> None:
    answer = resolve(card, os, *MANY)
    assert not answer["ok"]
    assert len(trials) == 1
    assert max(trials) < 500
    assert not any("ask for" in each["remedy"] for each in answer["conflicts"])


def test_many_parts_that_have_to_change_are_found_by_few_trials(rules: Any, trials: list[int]) -> None:
    wish = Wish.from_wants(WANTS, rules)
    machine = machine_from_options(CARDS, "ubuntu-24.04", "x86_64", ["nvswitch=true"], rules, today=date(2026, 11, 20))
    answer = resolver.resolve(machine, wish, rules)
    assert not answer["ok"]
    asked = ("driver=550", "cuda=12.9", "jax[cuda12]", "dali=1.22.0+cuda120", "tensorrt=8.6.1", "cudnn=9.10.2.21")
    assert all(f"ask for {each}" in entry["remedy"] for entry in answer["conflicts"] for each in asked)
    assert len(trials) == 1
    assert max(trials) < 500


@pytest.mark.parametrize(
    ("cards", "environment", "remedy"),
    [
        ([], "bare", "ask for pytorch=2.9.0, or ask for pytorch=2.15.0"),
        (["H100"], "container", "ask for pytorch=2.14.1+cu126"),
    ],
)
def test_where_cuda_is_not_put_from_here_its_libraries_stop_no_nearer_wish(
    rules: Any, cards: list[str], environment: str, remedy: str
) -> None:
    framework = "torch==2.14.1+cu130" if cards else "torch==2.6.0"
    wish = Wish.from_wants(["cuda", "cudnn", "nccl", "tensorrt", framework], rules)
    machine = machine_from_options(
        cards, "ubuntu-24.04", "x86_64", ["python=3.14"] if not cards else [], rules, today=date(2026, 11, 20)
    )
    answer = resolver.resolve(replace(machine, environment=environment, cuda_reported="12.8"), wish, rules)
    assert not answer["ok"]
    assert all(entry["remedy"].startswith(remedy) for entry in answer["conflicts"])


def test_a_version_that_the_tables_do_not_know_is_changed_first_and_few_wishes_are_tried(
    resolve: Resolve, trials: list[int]
) -> None:
    """Each wish that keeps cuDNN 7.6 is refused for that alone; the search was given up after 4,000 of them."""
    wants = ["driver=610", "driver-source=nvidia", "cuda=13.2.1", "cudnn=7.6", "tensorflow==2.9", "jax==0.4.30"]
    told = resolve(
        ["GTX 1080", "TITAN V"], "ubuntu-24.04", *wants, "onnxruntime==1.26", "python=3.11", "cuda-compat=auto"
    )
    life = "(580 is long-term, supported until 2028-08-04)"
    ways = (
        f"ask for tensorflow=2.15.1 and ask for cudnn=8.5.0.96 and ask for cuda=12.9.2 and ask for driver=580 {life}",
        f"ask for tensorflow=2.21.0 and ask for cudnn=9.10.2.21 and ask for cuda=12.9 and ask for driver=580 {life}",
    )
    assert set(remedies(told)) == {", or ".join(ways)}
    assert max(trials) < 500


def test_a_search_that_takes_too_long_is_given_up(resolve: Resolve, monkeypatch: pytest.MonkeyPatch) -> None:
    wish = ("GeForce RTX 5090", "ubuntu-24.04", "pytorch=2.6.0")
    assert "pytorch=2.7.0" in resolve(*wish)["conflicts"][0]["remedy"]
    monkeypatch.setattr(nearest, "_TRIALS", 1)
    answer = resolve(*wish)
    assert not answer["ok"]
    assert all(each["remedy"] and "pytorch=2.7.0" not in each["remedy"] for each in answer["conflicts"])

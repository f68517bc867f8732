"""`size --here` and `size -i`: whether a job fits on cards that are there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ansible_collections.gpuwright.node.plugins.module_utils.smi import run
from gpuwright import size_there
from gpuwright.card_looks import Look
from gpuwright.sizing import memory
from gpuwright.sizing.answer import Question
from gpuwright.sizing.units import GIB
from tests.unit.cli.test_size import SCHEMA
from tests.unit.cli.test_top import LOST, NOW, Cards, Machine, answer, hosts, machine, sample

__all__ = ["hosts", "machine"]  # fixtures

PASCAL: Any = {"name": "NVIDIA GeForce GTX 1060 6GB", "memory_total": 6072.0}


def eight() -> list[Any]:
    return [sample(index) for index in range(8)]


def test_it_takes_as_many_of_the_cards_as_it_needs(gpuwright: Callable[..., Any], machine: Machine) -> None:
    machine.answers = [eight()]
    done = gpuwright("size", "llama-3.1-70b", "--here", "--json")
    assert (done.code, done.json["verdict"], done.json["exit"]) == (0, "pass", 0)
    (found,) = done.json["hosts"]["localhost"]["answers"]
    Draft202012Validator(SCHEMA).validate(found)
    assert (found["gpu"], found["cards"], found["fits"]) == ("H100 SXM5 80GB", 2, "yes")
    assert done.json["together"] == []


def test_the_memory_is_what_the_driver_says_and_not_the_tables(gpuwright: Callable[..., Any], machine: Machine) -> None:
    machine.answers = [[sample(memory_total=20 * 1024.0)]]
    (found,) = gpuwright("size", "llama-3.1-8b", "--here", "--json").json["hosts"]["localhost"]["answers"]
    assert found["room"] == pytest.approx(20 * GIB, rel=0.02)


def test_what_does_not_fit_here_says_why_and_what_helps(gpuwright: Callable[..., Any], machine: Machine) -> None:
    machine.answers = [[sample(**PASCAL)]]
    done = gpuwright("size", "llama-3.2-3b", "--here")
    assert done.code == 3
    assert "does not fit" in done.out
    assert "remedy: --weights" in " ".join(done.out.split())


def test_cards_that_differ_are_answered_for_each(gpuwright: Callable[..., Any], machine: Machine) -> None:
    machine.answers = [[sample(), sample(1, **PASCAL), LOST, sample(3, problem="GPU is lost")]]
    found = gpuwright("size", "llama-3.1-8b", "--here", "--json").json["hosts"]["localhost"]["answers"]
    assert [each["cards"] for each in found] == [1, 1]
    assert [(each["gpu"], each["fits"]) for each in found] == [
        ("H100 SXM5 80GB", "yes"),
        ("GeForce GTX 1060 6GB", "no"),
    ]


def test_a_machine_without_a_driver_or_with_a_card_that_nobody_knows_is_no_success(
    gpuwright: Callable[..., Any], machine: Machine
) -> None:
    machine.answers = [run.SmiError(run.NOT_LOADED), [sample(name="NVIDIA Q9000")], [LOST]]
    problems = []
    for _turn in range(3):
        done = gpuwright("size", "7B", "--here", "--json")
        assert (done.code, done.json["verdict"]) == (1, "fail")
        problems.append(done.json["hosts"]["localhost"]["problem"])
    assert problems == [
        "no NVIDIA driver is loaded",
        "the tables do not know NVIDIA Q9000",
        "it has no card that answers",
    ]


def test_a_machine_that_is_too_small_for_its_cards_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 16 * GIB if name == "SC_PHYS_PAGES" else 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    look = Look({"localhost": {"time": NOW, "cards": eight(), "problem": None}})
    question = Question("llama-3.1-70b", memory.Inference(), most=0)
    short = size_there.judge(look, question)["hosts"]["localhost"]["short"]
    assert [text.partition(":")[0] for text in short] == ["host memory", "CPU cores"]
    assert "16 GiB, at least 159 are needed" in short[0]


def test_what_only_several_hosts_have_together_is_told(gpuwright: Callable[..., Any], hosts: Cards) -> None:
    hosts.samples = {f"gpu{number}": answer(f"gpu{number}", *eight()) for number in range(4)}
    words = ("size", "70B", "--train", "--recompute", "full", "-i", "gpu[0:3],")
    done = gpuwright(*words, "--json")
    assert done.code == 0
    assert {host: [each["fits"] for each in fit["answers"]] for host, fit in done.json["hosts"].items()} == {
        f"gpu{number}": ["no"] for number in range(4)
    }
    (together,) = done.json["together"]
    assert (together["fits"], together["cards"]) == ("yes", 16)
    page = gpuwright(*words).out
    assert "together" in page
    assert max(map(len, page.splitlines())) <= 100


def test_a_host_that_could_not_be_asked_is_named(gpuwright: Callable[..., Any], hosts: Cards) -> None:
    hosts.samples = {"gpu0": answer("gpu0", problem="no NVIDIA driver is loaded")}
    done = gpuwright("size", "7B", "-i", "gpu0,")
    assert done.code == 1
    assert "no NVIDIA driver is loaded" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--here", "--gpu", "4090"), "leave out --gpu, --gpus and --preset"),
        (("--here", "-i", "x,"), "give one of them"),
        (("-l", "x"), "--limit chooses from an inventory"),
        (("-e", "a=1"), "give one with -i"),
    ],
)
def test_bad_input_gets_one_clear_message(
    words: tuple[str, ...], said: str, gpuwright: Callable[..., Any], machine: Machine
) -> None:
    done = gpuwright("size", "7B", *words)
    assert done.code == 2
    assert said in done.err
    assert machine.asked == 0


def test_a_model_that_is_none_is_refused_before_a_host_is_asked(
    gpuwright: Callable[..., Any], machine: Machine
) -> None:
    assert gpuwright("size", "7Q", "--here").code == 2
    long = gpuwright("size", "llama-2-7b", "--context", "1M", "--here")
    assert long.code == 2
    assert "beyond all that stretches it" in long.err
    assert machine.asked == 0


def test_what_is_coupled_over_hosts_is_told_and_no_layer_is_cut_between_them(
    gpuwright: Callable[..., Any], hosts: Cards
) -> None:
    hosts.samples = {f"gpu{number}": answer(f"gpu{number}", sample(), sample(1)) for number in range(2)}
    words = ("size", "70B", "--weights", "bf16", "--context", "32k", "--batch", "8", "-i", "gpu[0:1],")
    (found,) = gpuwright(*words, "--json").json["together"]
    assert (found["cards"], found["layout"]) == (4, "tensor parallel over 2, pipeline parallel over 2")
    (warning,) = [row for row in found["warnings"] if row["rule"] == "network"]
    assert "4 cards are 2 hosts of 2, coupled over the network: 400 Gb/s for each card" in warning["text"]
    assert "warning: together: 4 cards are 2 hosts" in " ".join(gpuwright(*words).out.split())

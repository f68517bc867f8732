"""`size` over the tables as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/size.schema.json").read_text(encoding="utf-8"))
QUESTIONS = (
    ("llama-3.1-8b",),
    ("7B",),
    ("llama-3.1-8b", "--train", "qlora", "--gpu", "4090"),
    (
        "llama-3.1-405b",
        "--train",
        "--tokens",
        "15.6T",
        "--gpu",
        "h100",
        "--gpus",
        "16384",
        "--context",
        "8k",
        "--recompute",
        "full",
    ),
    ("deepseek-v3", "--weights", "fp8", "--context", "128k"),
    ("mixtral-8x7b", "--train", "lora"),
    ("gpt2", "--gpu", "1060"),
    ("layers=2,hidden=64,heads=4", "--gpu", "jetson agx orin 64gb"),
    ("70B", "--train", "--gpu", "4090"),
    ("1000T", "--train"),
)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_an_answer_is_what_the_schema_says_and_its_figures_are_within_their_ranges(
    words: tuple[str, ...], gpuwright: Callable[..., Any]
) -> None:
    done = gpuwright("size", *words, "--json")
    Draft202012Validator(SCHEMA).validate(done.json)
    assert done.code == (0 if done.json["ok"] else 3)
    assert ("conflicts" in done.json) is (not done.json["ok"])
    assert all(row["low"] <= row["value"] <= row["high"] for row in _figures(done.json))
    assert done.json["needed"]["value"] == pytest.approx(sum(part["value"] for part in done.json["memory"]))


def _figures(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [*answer["memory"], answer["needed"], *answer["speed"], *answer["machine"]]


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_a_page_is_no_wider_than_one(words: tuple[str, ...], gpuwright: Callable[..., Any]) -> None:
    said = gpuwright("size", *words).out
    assert max(map(len, said.splitlines())) <= 100
    assert "fit" in said.splitlines()[1]


def test_the_verdict_comes_first_and_says_how_much_of_what(gpuwright: Callable[..., Any]) -> None:
    said = gpuwright("size", "llama-3.1-8b", "--gpu", "4090").out
    assert "llama-3.1-8b: 8.03 B parameters, inference in bf16, 1 × 8192 tokens" in said
    assert "fits on GeForce RTX 4090: 17.5 GiB of 23.7 GiB a card" in said


def test_the_smallest_set_that_fits_is_looked_for(gpuwright: Callable[..., Any]) -> None:
    answer = gpuwright("size", "llama-3.1-70b", "--json").json
    assert (answer["gpu"], answer["cards"]) == ("H200 SXM", 1)
    fewest = {each["gpu"]: each["cards"] for each in answer["options"]}
    assert fewest["H100 SXM5 80GB"] == 2
    assert fewest["GeForce RTX 4090"] == 8


@pytest.mark.parametrize(
    ("preset", "words", "gpu", "cards"),
    [
        ("academic", ("llama-3.1-8b", "--weights", "int4"), "GeForce RTX 3060 12GB", 1),
        ("workstation", ("llama-3.1-8b", "--train", "qlora", "--recompute", "full"), "GeForce RTX 4090", 1),
        ("enterprise", ("llama-3.1-70b",), "A100 SXM4 80GB", 2),
        ("edge", ("llama-3.1-8b",), "Jetson AGX Orin 64GB", 1),
    ],
)
def test_a_preset_chooses_among_the_cards_of_its_kind_of_machine(
    preset: str, words: tuple[str, ...], gpu: str, cards: int, gpuwright: Callable[..., Any]
) -> None:
    answer = gpuwright("size", *words, "--preset", preset, "--json").json
    assert (answer["ok"], answer["gpu"], answer["cards"]) == (True, gpu, cards)


def test_a_preset_has_no_more_cards_than_its_machine(gpuwright: Callable[..., Any]) -> None:
    assert gpuwright("size", "llama-3.1-8b", "--preset", "academic").code == 3


@pytest.mark.parametrize(
    ("batch", "bound"), [("1", "bound by a bandwidth of 3,350 GB/s"), ("2048", "bound by tensor cores of 989 TFLOPS")]
)
def test_what_bounds_it_is_told(batch: str, bound: str, gpuwright: Callable[..., Any]) -> None:
    words = ("llama-3.1-8b", "--gpu", "h100", "--gpus", "8", "--context", "256", "--batch", batch)
    (rate,) = [row for row in gpuwright("size", *words, "--json").json["speed"] if row["name"] == "tokens a second"]
    assert bound in rate["text"]


def test_what_does_not_fit_says_why_and_what_helps(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("size", "7B", "--train", "--gpu", "4090", "--gpus", "1", "--json")
    assert done.code == 3
    (conflict,) = done.json["conflicts"]
    assert "most of it: optimizer" in conflict["text"]
    assert "--train qlora" in conflict["remedy"]


def test_a_remedy_that_is_named_does_fit(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("size", "7B", "--train", "qlora", "--gpu", "4090", "--gpus", "1", "--json")
    assert done.code == 0


def test_days_are_those_of_the_utilisation_that_is_told(gpuwright: Callable[..., Any]) -> None:
    """GPT-3 on 1024 A100 by Megatron-LM's table: 34 days at 140 TFLOPS, of which a quarter computes again."""
    words = ("gpt3-175b", "--train", "--tokens", "300B", "--gpu", "A100 SXM4 80GB", "--gpus", "1024", "--mfu", "0.337")
    answer = gpuwright("size", *words, "--recompute", "full", "--json").json
    (days,) = [row for row in answer["speed"] if row["name"] == "training"]
    assert days["value"] == pytest.approx(34, rel=0.1)
    assert days["low"] == days["value"] == days["high"]


def test_what_nobody_said_is_told_as_assumed(gpuwright: Callable[..., Any]) -> None:
    assert gpuwright("size", "7B", "--json").json["assumed"] == {"context": 8192, "batch": 1}
    assert gpuwright("size", "7B", "--context", "2k", "--batch", "4", "--json").json["assumed"] == {}
    assert "are assumed" in " ".join(gpuwright("size", "7B").out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("7Q",), "no model is called '7Q'"),
        (("7B", "--gpu", "RTX 4091"), "unknown card"),
        (("7B", "--gpus", "4"), "name the card with --gpu"),
        (("7B", "--gpu", "4090", "--preset", "edge"), "leave out --gpu"),
        (("7B", "--gpu", "4090", "--gpus", "0"), "--gpus has to be a number from 1 on"),
        (("7B", "--gpu", "4090", "--gpus", "-3"), "--gpus has to be a number from 1 on"),
        (("7B", "--gpu", "4090", "--gpus", "1.5"), "--gpus has to be a whole number"),
        (("7B", "--gpu", "4090", "--gpus", "99999999999"), "at most 10000000"),
        (("7B", "--gpu", "4090", "--gpus", "3"), "have to divide"),
        (("7B", "--context", "0"), "--context has to be at least 1"),
        (("7B", "--context", "8KB"), "--context has to be a number"),
        (("7B", "--batch", "nan"), "--batch has to be a number"),
        (("7B", "--batch", "1e400"), "--batch has to be a number"),
        (("7B", "--tokens", "1T"), "add --train"),
        (("7B", "--train", "--mfu", "140%"), "a share above 0 and up to 1"),
        (("7B", "--train", "--mfu", "0"), "a share above 0 and up to 1"),
        (("7B", "--train", "everything"), "invalid choice: 'everything'"),
        (("7B", "--weights", "int3"), "invalid choice: 'int3'"),
        (("llama-2-7b", "--context", "1M"), "beyond all that stretches it"),
        (("7B", "--gpu", "MI300X"), "is a GPU of AMD"),
    ],
)
def test_bad_input_gets_one_clear_message(words: tuple[str, ...], said: str, gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("size", *words)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert gpuwright("size", *words, "--json").json["ok"] is False

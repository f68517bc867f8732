"""`cost` over the tables as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/cost.schema.json").read_text(encoding="utf-8"))
QUESTIONS = (
    ("--gpu", "A100 SXM4 40GB", "--gpus", "80"),
    ("--gpu", "4090"),
    ("--gpu", "h100", "--gpus", "64", "--hours", "2000", "--share", "80%", "--years", "5", "--kwh", "0.3"),
    ("llama-3.1-8b", "--train", "--tokens", "1T", "--gpu", "h100", "--gpus", "64", "--recompute", "full"),
    ("llama-3.1-8b", "--gpu", "l4", "--hours", "100"),
)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_an_answer_is_what_the_schema_says(words: tuple[str, ...], gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("cost", *words, "--json")
    assert done.code == 0
    Draft202012Validator(SCHEMA).validate(done.json)
    rates = [each["usd_hour"] for each in done.json["rent"]]
    assert rates == sorted(rates)
    months = [[month for month, _paid in line["points"]] for line in done.json["plot"]]
    assert all(line == list(range(round(done.json["years"] * 12) + 1)) for line in months)
    for each in done.json["own"]:
        used = 8760 * done.json["years"] * done.json["share"]["value"] * done.json["cards"]
        assert each["usd_card_hour"] == pytest.approx(each["total"]["value"] / used)
        assert each["total"]["value"] == pytest.approx(sum(part["value"] for part in each["parts"]))
        assert each["total"]["low"] <= each["total"]["value"] <= each["total"]["high"]


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_a_page_is_no_wider_than_one_and_has_a_plot(words: tuple[str, ...], gpuwright: Callable[..., Any]) -> None:
    said = gpuwright("cost", *words).out
    assert max(map(len, said.splitlines())) <= 100
    assert "(months)" in said


def test_a_training_is_paid_for_as_long_as_it_takes(gpuwright: Callable[..., Any]) -> None:
    words = ("llama-3.1-8b", "--train", "--tokens", "1T", "--gpu", "h100", "--gpus", "64", "--recompute", "full")
    size = gpuwright("size", *words, "--json").json
    (days,) = [row["value"] for row in size["speed"] if row["name"] == "training"]
    answer = gpuwright("cost", *words, "--json").json
    assert answer["hours"]["value"] == pytest.approx(days * 24)
    by_the_hour = next(each for each in answer["rent"] if each["kind"] == "on demand")
    assert by_the_hour["job"]["value"] == pytest.approx(days * 24 * by_the_hour["usd_hour"])


def test_own_prices_go_before_the_tables_and_own_rates_are_taken(tmp_path: Path, gpuwright: Callable[..., Any]) -> None:
    file = tmp_path / "prices.yml"
    file.write_text(
        "cloud: [{provider: us, instance: rack 3, card: h100, gpus: 8, on_demand: 1.0}]\nrates: {electricity: 0.5}\n",
        encoding="utf-8",
    )
    answer = gpuwright("cost", "--gpu", "h100", "--prices", str(file), "--json").json
    assert answer["rent"][0]["provider"] == "us"
    assert answer["rent"][0]["source"] == "your own file of prices"
    assert any("0.5 USD a kWh" in part["text"] for part in answer["own"][0]["parts"])


def test_prices_that_are_old_are_told(gpuwright: Callable[..., Any]) -> None:
    answer = gpuwright("cost", "--gpu", "A100 SXM4 40GB", "--json").json
    assert [row["rule"] for row in answer["warnings"]] == ["prices", "prices"]
    assert "older than 180 days" in answer["warnings"][0]["text"]


def test_what_does_not_fit_has_no_price_and_says_what_helps(gpuwright: Callable[..., Any]) -> None:
    words = ("cost", "7B", "--train", "--tokens", "1T", "--gpu", "4090", "--gpus", "1")
    done = gpuwright(*words)
    assert done.code == 3
    assert "GiB are needed" in done.err
    assert "--train qlora" in done.err
    told = gpuwright(*words, "--json")
    assert (told.code, told.json["ok"], told.json["conflicts"][0]["rule"]) == (3, False, "memory")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "neither a model nor a card is named"),
        (("--gpu", "T1000"), "no price of T1000 is known"),
        (("--gpu", "RTX 4091"), "unknown card"),
        (("--gpu", "h100", "--hours", "0"), "--hours has to be a number"),
        (("--gpu", "h100", "--years", "0"), "--years has to be a number"),
        (("--gpu", "h100", "--years", "99"), "at most 15"),
        (("--gpu", "h100", "--share", "0"), "a share above 0"),
        (("--gpu", "h100", "--kwh", "free"), "--kwh has to be a number"),
        (("--gpu", "h100", "--prices", "/nowhere.yml"), "the file of prices /nowhere.yml is not there"),
        (("7B", "--gpu", "4090"), "how long it computes is not said"),
    ],
)
def test_bad_input_gets_one_clear_message(words: tuple[str, ...], said: str, gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("cost", *words)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err

"""`cost` over the tables as they are."""

from __future__ import annotations

import json
import re
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
    ("llama-3.1-8b", "--gpu", "l4"),
    ("llama-3.1-8b", "--gpu", "l4", "--hours", "100"),
    ("llama-3.1-8b", "--train", "qlora", "--gpu", "4090"),
    ("llama-3.1-8b",),
    ("flux.1-dev",),
)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_no_more_sequences_are_answered_together_than_vllm_keeps_where_nobody_says(
    gpuwright: Callable[..., Any],
) -> None:
    """A small model on a large card: 256 (`--max-num-seqs`), though more would fit; and where not two fit, one."""
    small = gpuwright("cost", "gpt2", "--gpu", "h100", "--json").json
    assert small["size"]["job"]["batch"] == 256
    tight = gpuwright("cost", "llama-3.1-8b", "--gpu", "l4", "--context", "40k", "--json").json
    assert tight["size"]["job"]["batch"] == 1


@pytest.mark.parametrize(("years", "months"), [("0.25", 3), ("1.5", 18), ("15", 180)])
def test_years_may_be_months_up_to_fifteen_years(years: str, months: int, gpuwright: Callable[..., Any]) -> None:
    found = gpuwright("cost", "--gpu", "h100", "--years", years, "--json").json
    assert found["months"] == months
    assert [month for month, _paid in found["plot"][0]["points"]] == list(range(months + 1))


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_an_answer_is_what_the_schema_says(words: tuple[str, ...], gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("cost", *words, "--json")
    assert done.code == 0
    Draft202012Validator(SCHEMA).validate(done.json)
    assert [line["name"] for line in done.json["plot"]] == list(
        dict.fromkeys(line["name"] for line in done.json["plot"])
    )
    months = [[month for month, _paid in line["points"]] for line in done.json["plot"]]
    assert all(line == list(range(done.json["months"] + 1)) for line in months)
    used = 8760 / 12 * done.json["months"] * done.json["share"]["value"]
    for each in [*done.json["rent"], *done.json["own"]]:
        assert each["usd_hour_used"] == pytest.approx(each["total"]["value"] / used)
        assert each["total"]["low"] <= each["total"]["value"] <= each["total"]["high"]
    for each in done.json["own"]:
        assert each["total"]["value"] == pytest.approx(sum(part["value"] for part in each["parts"]))


def test_a_model_on_a_card_is_priced_by_a_million_tokens_as_typed(gpuwright: Callable[..., Any]) -> None:
    """As many sequences at once as fit: more do not, and a machine that serves one alone is dearer."""
    words = ("llama-3.1-8b", "--gpu", "l4")
    found = gpuwright("cost", *words, "--json").json
    (many,) = [found["size"]["job"]["batch"]]
    assert gpuwright("size", *words, "--batch", str(many), "--json").json["fits"] == "yes"
    assert gpuwright("size", *words, "--batch", str(many + 1), "--json").json["fits"] != "yes"
    speed = gpuwright("size", *words, "--batch", str(many), "--json").json["speed"][0]["value"]
    cheapest = found["rent"][0]
    assert cheapest["usd_million"]["value"] == pytest.approx(cheapest["usd_hour_used"] / speed / 3600 * 1e6)
    alone = gpuwright("cost", *words, "--batch", "1", "--json").json
    assert alone["size"]["job"]["batch"] == 1 < many
    assert alone["rent"][0]["usd_million"]["value"] > cheapest["usd_million"]["value"]
    said = gpuwright("cost", *words).out
    assert said.startswith("yes: llama-3.1-8b fits on 1 × L4, 0.49 USD an hour, ")
    assert " USD a million tokens (runpod L4, secure, on" in said
    assert "as many as fit; one alone" in " ".join(said.split())


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_a_page_is_no_wider_than_one_and_has_a_plot(words: tuple[str, ...], gpuwright: Callable[..., Any]) -> None:
    said = gpuwright("cost", *words).out
    assert max(map(len, said.splitlines())) <= 100
    assert said.startswith(("yes", "no", "rent", "buy"))
    assert "(months)" in said


def test_a_training_is_paid_for_as_long_as_it_takes(gpuwright: Callable[..., Any]) -> None:
    words = ("llama-3.1-8b", "--train", "--tokens", "1T", "--gpu", "h100", "--gpus", "64", "--recompute", "full")
    size = gpuwright("size", *words, "--json").json
    (days,) = [row["value"] for row in size["speed"] if row["name"] == "training"]
    answer = gpuwright("cost", *words, "--json").json
    assert answer["hours"]["value"] == pytest.approx(days * 24)
    by_the_hour = next(each for each in answer["rent"] if each["kind"] == "on demand")
    assert by_the_hour["job"]["value"] == pytest.approx(days * 24 * by_the_hour["usd_hour"])
    # A trillion tokens are a million times a million.
    assert by_the_hour["usd_million"]["value"] * 1e6 == pytest.approx(by_the_hour["job"]["value"], rel=0.01)
    said = gpuwright("cost", *words).out
    assert re.match(r"yes: llama-3.1-8b fits on 64 × H100 SXM5 80GB, .* USD a run \(", " ".join(said.split()))


def test_own_prices_go_before_the_tables_and_own_rates_are_taken(tmp_path: Path, gpuwright: Callable[..., Any]) -> None:
    file = tmp_path / "prices.yml"
    file.write_text(
        "cloud: [{provider: us, instance: rack 3, card: h100, gpus: 8, on_demand: 1.0}]\nrates: {electricity: 0.5}\n",
        encoding="utf-8",
    )
    answer = gpuwright("cost", "--gpu", "h100", "--prices", str(file), "--json").json
    assert answer["rent"][0]["provider"] == "us"
    assert answer["rent"][0]["source"] == "your own file of prices"
    assert len(answer["rent"]) > 1
    assert any("0.5 USD a kWh" in part["text"] for part in answer["own"][0]["parts"])


def test_a_file_may_stand_in_place_of_the_tables(tmp_path: Path, gpuwright: Callable[..., Any]) -> None:
    file = tmp_path / "prices.yml"
    file.write_text(
        "only: true\ncloud: [{provider: us, instance: rack 3, card: h100, gpus: 8, on_demand: 1.0}]\n", encoding="utf-8"
    )
    answer = gpuwright("cost", "--gpu", "h100", "--prices", str(file), "--json").json
    assert ([each["provider"] for each in answer["rent"]], answer["own"]) == (["us"], [])
    told = gpuwright("cost", "--gpu", "h100", "--prices", str(file), "--kwh", "0.3")
    assert "no price to buy H100 SXM5 80GB is known: --kwh changes nothing" in told.out


def test_prices_that_are_old_are_told(gpuwright: Callable[..., Any]) -> None:
    answer = gpuwright("cost", "--gpu", "A100 SXM4 40GB", "--json").json
    old = [row for row in answer["warnings"] if row["rule"] == "prices" and "older than 180 days" in row["text"]]
    assert len(old) == 2
    assert "days ago" in gpuwright("cost", "--gpu", "A100 SXM4 40GB").out


def test_what_does_not_fit_has_no_price_and_says_what_helps(gpuwright: Callable[..., Any]) -> None:
    words = ("cost", "7B", "--train", "--tokens", "1T", "--gpu", "4090", "--gpus", "1")
    done = gpuwright(*words)
    assert done.code == 3
    assert done.out.startswith("no: 7B does not fit on 1 × GeForce RTX 4090\n")
    assert "GiB are needed" in done.out
    assert "--train qlora" in done.out
    told = gpuwright(*words, "--json")
    assert (told.code, told.json["ok"], told.json["conflicts"][0]["rule"]) == (3, False, "memory")
    Draft202012Validator(SCHEMA).validate(told.json)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "neither a model nor a card is named"),
        (("--gpu", "T1000"), "no price of T1000 is known"),
        (("--gpu", "RTX 4091"), "unknown card"),
        (("--gpu", "h100", "--hours", "0"), "--hours has to be a number"),
        (("--gpu", "h100", "--years", "0"), "--years has to be a number"),
        (("--gpu", "h100", "--years", "99"), "at most 15"),
        (("--gpu", "h100", "--years", "15.25"), "at most 15"),
        (("--gpu", "h100", "--years", "0.24"), "--years has to be a number"),
        (("--gpu", "h100", "--share", "0"), "a share above 0"),
        (("--gpu", "h100", "--kwh", "free"), "--kwh has to be a number"),
        (("--gpu", "h100", "--prices", "/nowhere.yml"), "the file of prices /nowhere.yml is not there"),
        (("--gpu", "h100", "--years", "0.3"), "whole months"),
        (("--gpu", "h100", "--gpus", "0"), "--gpus has to be"),
        (("--gpu", "h100", "--train", "--tokens", "1T"), "--train, --tokens: of which model?"),
        (("--gpu", "h100", "--preset", "academic"), "--preset: of which model?"),
        (("--gpus", "8"), "neither a model nor a card is named"),
        (("7B", "--train", "--tokens", "1T", "--hours", "5", "--gpu", "h100"), "--hours and --tokens both say"),
        (("7B", "--tokens", "1T"), "add --train"),
    ],
)
def test_bad_input_gets_one_clear_message(words: tuple[str, ...], said: str, gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("cost", *words)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    told = gpuwright("cost", *words, "--json")
    Draft202012Validator(SCHEMA).validate(told.json)
    assert said in told.json["error"]


def test_a_card_with_two_memories_is_told_and_a_number_before_it_counts(gpuwright: Callable[..., Any]) -> None:
    both = gpuwright("cost", "--gpu", "a100", "--json").json
    assert both["gpu"] == "A100 SXM4 40GB"
    (told,) = [row["text"] for row in both["warnings"] if row["rule"] == "card"]
    assert told.startswith("A100 SXM4 80GB is called so too")
    one = gpuwright("cost", "--gpu", "a100 80gb", "--json").json
    assert one["gpu"] == "A100 SXM4 80GB"
    assert not [row for row in one["warnings"] if row["rule"] == "card"]
    two = gpuwright("cost", "--gpu", "2x3090", "--json").json
    assert (two["gpu"], two["cards"]) == ("GeForce RTX 3090", 2)
    assert "leave out --gpus" in gpuwright("cost", "--gpu", "2x3090", "--gpus", "2").err


def test_help_begins_with_five_examples_that_answer(gpuwright: Callable[..., Any]) -> None:
    said = gpuwright("cost", "--help").out
    head, *examples = said[: said.index("\n\n")].splitlines()
    assert (head, len(examples)) == ("examples:", 5)
    for example in examples:
        command = example.partition("#")[0].split()
        assert command[:2] == ["gpuwright", "cost"]
        assert gpuwright(*command[1:]).code == 0


def test_help_has_nothing_that_belongs_to_other_verbs(gpuwright: Callable[..., Any]) -> None:
    said = gpuwright("cost", "--help").out
    assert not re.search(r"Ansible|\bplan\b|inventory|hosts|ansible-playbook", said)

"""Cost over any prices: owning has paid where the plotted lines cross, and no option is without effect and without a word."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import tempfile
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwright import show_cost
from gpuwright.cli import main
from gpuwright.parser import build_parser
from gpuwright.sizing import cost_answer
from gpuwright.sizing.costing import standard_rates
from gpuwright.sizing.figures import exactly

TODAY = date(2026, 11, 30)
USD = st.floats(0.01, 1000)
SHARES = st.floats(0.01, 1)
COMMITMENTS = st.fixed_dictionaries(
    {
        "years": st.integers(1, 3),
        "usd_hour": USD,
        "name": st.sampled_from(("reserved", "plan")),
        "upfront": st.booleans(),
    }
)
CLOUD = st.fixed_dictionaries(
    {
        "provider": st.just("x"),
        "instance": st.sampled_from(("small", "large")),
        "card": st.just("L4"),
        "gpus": st.integers(1, 8),
        "on_demand": st.none() | USD,
        "spot": st.none() | USD,
        "commitments": st.lists(COMMITMENTS, max_size=2),
        "date": st.just("2026-11-01"),
    }
)
OWNING = st.fixed_dictionaries(
    {
        "what": st.sampled_from(("ours", "theirs")),
        "card": st.just("L4"),
        "cards": st.integers(1, 8),
        "price_usd": st.floats(100, 1e6),
        "power_w": st.floats(10, 10_000),
        "date": st.just("2026-11-01"),
    }
)
RATES = st.fixed_dictionaries({}, optional={name: st.floats(0, 1) for name in standard_rates({}, 1e6)})
ASKED = st.builds(
    cost_answer.Asked,
    card=st.just("L4"),
    cards=st.integers(1, 64),
    months=st.integers(3, 60),
    share=SHARES.map(exactly),
    today=st.just(TODAY),
    cloud=st.lists(CLOUD, min_size=1, max_size=3).map(tuple),
    owning=st.lists(OWNING, min_size=1, max_size=2, unique_by=lambda row: row["what"]).map(tuple),
    own_rates=RATES,
    alone=st.just(True),
)


def priced(asked: cost_answer.Asked) -> bool:
    return any(row["on_demand"] or row["spot"] or row["commitments"] for row in asked.cloud)


@given(ASKED.filter(priced))
def test_when_owning_has_paid_is_where_the_plotted_lines_cross(asked: cost_answer.Asked) -> None:
    found = cost_answer.cost(asked)
    lines = {line["name"]: [paid for _month, paid in line["points"]] for line in found["plot"]}
    for own in found["own"]:
        bought = lines[f"own {own['what']}"]
        assert {even["against"] for even in own["break_even"]} == {
            name for name in lines if not name.startswith("own ")
        }
        for even in own["break_even"]:
            assert crossing(bought, lines[even["against"]]) == in_words(show_cost.after(even), asked.months)


def crossing(own: list[float], rent: list[float]) -> int | None:
    """The month in which the line of owning comes down to that of renting for good; None where it ends above it."""
    above = [month for month, (one, other) in enumerate(zip(own, rent, strict=True)) if one > other]
    last = above[-1] if above else -1
    return None if last == len(own) - 1 else last + 1


def in_words(text: str, months: int) -> int | None:
    if text == "at once":
        return 0
    if text.startswith("never within "):
        assert int(re.findall(r"\d+", text)[0]) == months
        return None
    (after,) = re.fullmatch(r"after (\d+) months?", text).groups()  # type: ignore[union-attr]
    return int(after)


@given(ASKED.filter(priced))
def test_by_the_hour_what_is_used_is_paid_and_of_a_commitment_each_term_that_was_begun(
    asked: cost_answer.Asked,
) -> None:
    """Counted a second time, from the prices alone; no line ever comes down."""
    found = cost_answer.cost(asked)
    for line in found["plot"]:
        paid_by = [usd for _month, usd in line["points"]]
        assert paid_by == sorted(paid_by)
    for row in found["rent"]:
        year, share, months = row["usd_hour"] * 8760, asked.share.value, asked.months
        term = re.search(r", (\d) years?$", row["kind"])
        if term is None:
            paid = year * share * months / 12
            assert row["total"]["low"] == pytest.approx(paid) or row["kind"] == "spot"
            assert row["total"]["low"] >= paid * 0.999999
            continue
        terms = math.ceil(months / 12 / int(term[1]))
        assert row["total"]["value"] == pytest.approx(year * int(term[1]) * terms)


# options ----------------------------------------------------------------------------------------------

#: Values of each option that change something, none where it takes none: a new option has to be here.
VALUES: dict[str, tuple[str, ...]] = {
    "--gpu": ("h100", "l4", "4090"),
    "--gpus": ("2", "8"),
    "--preset": ("enterprise", "workstation"),
    "--train": ("full", "lora", "qlora"),
    "--context": ("1k", "4k"),
    "--batch": ("2", "8"),
    "--tokens": ("1B", "30B"),
    "--mfu": ("20%", "50%"),
    "--weights": ("fp8", "int4"),
    "--kv-bits": ("8",),
    "--engine": ("llama.cpp", "transformers"),
    "--offload": ("",),
    "--precision": ("bf16", "amp"),
    "--optimizer": ("lion", "adamw-8bit"),
    "--micro-batch": ("2",),
    "--recompute": ("selective", "full"),
    "--attention": ("eager",),
    "--kernels": ("fused",),
    "--rank": ("8", "64"),
    "--hours": ("100", "2000"),
    "--years": ("1", "5"),
    "--share": ("20%", "90%"),
    "--kwh": ("0.5",),
    "--prices": ("{prices}",),
}
#: Options that say how the answer is shown.
SHOWN = {"--help", "--json", "--verbose", "--html"}
QUESTIONS = (
    ("--gpu", "h100"),
    ("--gpu", "l4"),
    ("--gpu", "4090", "--gpus", "2"),
    ("llama-3.1-8b",),
    ("llama-3.1-8b", "--gpu", "l4"),
    ("llama-3.1-8b", "--train"),
    ("llama-3.1-8b", "--train", "qlora", "--gpu", "4090"),
    ("llama-3.1-8b", "--train", "--tokens", "10B", "--gpu", "h100", "--gpus", "8"),
)
PRICES = "cloud: [{provider: us, instance: rack, card: L4, gpus: 1, on_demand: 0.1, date: 2026-11-01}]\n"


@lru_cache(maxsize=len(QUESTIONS))
def as_asked(question: tuple[str, ...]) -> dict[str, Any]:
    """The answer without the option."""
    return answered(*question)


def answered(*words: str) -> dict[str, Any]:
    """The JSON of `cost`."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(["cost", *words, "--json"])
    content: dict[str, Any] = json.loads(out.getvalue())
    return content


def test_each_option_is_tried() -> None:
    words = build_parser().parse_args(["cost", "--gpu", "l4"]).verb_parser.format_help()
    assert (
        set(re.findall(r"(?<![\w-])(--[a-z-]+)", words[words.index("positional arguments") :])) <= VALUES.keys() | SHOWN
    )
    assert all(re.search(rf"{option}\b", words) for option in VALUES)


@settings(max_examples=max(settings().max_examples // 2, 1))
@given(
    st.sampled_from(QUESTIONS),
    st.sampled_from([(option, value) for option, values in VALUES.items() for value in values]),
)
def test_no_option_leaves_an_answer_unchanged_without_being_named(
    question: tuple[str, ...], added: tuple[str, str]
) -> None:
    option, value = added
    if option in question:
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prices.yml"
        file.write_text(PRICES, encoding="utf-8")
        found = answered(*question, option, *filter(None, [value.format(prices=file)]))
    if "error" in found:
        # Refused by its name, or as a pair of options that cannot be together.
        assert option in found["error"], found
        return
    texts = " ".join(row["text"] for row in found.get("warnings", ()))
    # What is so anyhow (`--recompute full` with QLoRA) is a part of the job that the answer names.
    job = (found.get("size") or {}).get("job", {})
    named = option in texts or job.get(option[2:].replace("-", "_")) == value
    named |= option == "--prices" and "your file of prices" in texts
    assert found != as_asked(question) or named, (question, added)

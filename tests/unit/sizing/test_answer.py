"""The answer as a whole: which cards, what would change it, what is warned of."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing import answer, formats, memory
from gpuwright.sizing.answer import Question
from gpuwright.sizing.units import GIB

H100 = "H100 SXM5 80GB"


def ask(model: str, job: Any, card: str | None = H100, count: int = 0, **more: Any) -> answer.Answer:
    return answer.size(Question(model, job, card, count, **more))


def options(found: answer.Answer) -> list[str]:
    return [each["option"] for each in found["changes"]]


def test_other_choices_are_those_that_were_not_made() -> None:
    full = ask("7B", memory.Training(batch=8))
    assert options(full) == [
        *(
            "--recompute full",
            "--attention eager",
            "--kernels fused",
            "--optimizer adamw-8bit",
            "--train lora",
            "--train qlora",
        ),
        "--context 1024",
    ]
    lora = memory.Training(kind="lora", recompute="full", flash=False, fused=True, optimizer="sgd")
    assert options(ask("7B", lora)) == ["--train qlora", "--context 1024"]
    assert options(ask("7B", memory.Training(kind="qlora", recompute="full", flash=False, fused=True))) == [
        "--context 1024"
    ]
    assert options(ask("7B", memory.Inference(context=1))) == [
        "--weights fp8",
        "--weights int4",
        "--kv-bits 8",
        "--context 1",
    ]
    assert options(ask("7B", memory.Inference(weights=formats.FORMATS["fp8"], cache=1, context=2))) == [
        *("--weights bf16", "--weights int4", "--context 1"),
    ]


@pytest.mark.parametrize(
    "option",
    [
        "--recompute full",
        "--optimizer adamw-8bit",
        "--train lora",
        "--train qlora",
        "--context 1024",
        "--kernels fused",
    ],
)
def test_another_choice_needs_less_and_attention_that_keeps_its_scores_more(option: str) -> None:
    found = ask("7B", memory.Training(batch=8), count=8)
    changes = {each["option"]: each["bytes_per_card"] for each in found["changes"]}
    assert changes[option] < found["needed"]["value"] < changes["--attention eager"]


def test_what_fits_only_as_counted_is_tight_and_told() -> None:
    # As many bytes as are counted, and none for what may turn out larger.
    job = memory.Inference()
    needed = ask("llama-3.1-8b", job)["needed"]
    room = (needed["value"] + needed["high"]) / 2 / (1 - 0.012)
    tight = ask("llama-3.1-8b", job, memory=room)
    assert (tight["ok"], tight["fits"]) == (True, "tight")
    (warning,) = [row for row in tight["warnings"] if row["rule"] == "tight"]
    assert f"{needed['value'] / GIB:.1f} GiB" in warning["text"]
    assert f"{needed['high'] / GIB:.1f} GiB" in warning["text"]
    roomy = ask("llama-3.1-8b", job)
    assert [row["rule"] for row in roomy["warnings"]] == []


def test_a_card_computes_no_more_sequences_at_once_than_it_has() -> None:
    few = ask("llama-3.2-1b", memory.Training(batch=8, micro=4), count=8)
    assert (few["layout"], few["job"]["micro_batch"]) == ("data parallel over 8", 1)
    more = ask("llama-3.2-1b", memory.Training(batch=16, micro=4), count=8)
    assert more["job"]["micro_batch"] == 2
    # Without a batch each card has as many as it computes at once.
    free = ask("llama-3.2-1b", memory.Training(batch=0, micro=4), count=8)
    assert (free["job"]["micro_batch"], free["job"]["batch"]) == (4, 32)


def test_the_number_of_cards_is_the_smallest_that_fits() -> None:
    found = ask("llama-3.1-70b", memory.Inference())
    assert (found["cards"], found["fits"]) == (2, "yes")
    assert ask("llama-3.1-70b", memory.Inference(), count=1)["ok"] is False
    assert ask("llama-3.1-70b", memory.Inference(), most=1)["ok"] is False


def test_of_layouts_that_fit_the_simplest_is_taken_and_where_none_does_the_one_that_comes_nearest() -> None:
    assert ask("llama-3.2-1b", memory.Training(batch=8), count=8)["layout"] == "data parallel over 8"
    nearest = ask("70B", memory.Training(batch=8), count=8)
    assert not nearest["ok"]
    every = [ask("70B", memory.Training(batch=8), count=count)["needed"]["value"] for count in (1, 2, 4, 8)]
    assert every == sorted(every, reverse=True)


def test_a_card_without_bf16_is_warned_of() -> None:
    found = ask("gpt2", memory.Training(), "Tesla V100 SXM2 32GB", 1)
    assert "bf16" in [row["rule"] for row in found["warnings"]]
    assert "bf16" not in [row["rule"] for row in ask("gpt2", memory.Training(), H100, 1)["warnings"]]


def test_a_longer_context_than_the_model_was_made_for_is_warned_of_and_far_more_refused() -> None:
    assert "context" in [row["rule"] for row in ask("llama-2-7b", memory.Inference(context=8192))["warnings"]]
    assert "context" not in [row["rule"] for row in ask("llama-2-7b", memory.Inference(context=4096))["warnings"]]
    with pytest.raises(BadInput, match="beyond all that stretches it"):
        ask("llama-2-7b", memory.Inference(context=4096 * 64 + 1))


def test_a_card_that_nobody_knows_enough_of_is_refused() -> None:
    with pytest.raises(BadInput, match="do not know the memory and the bandwidth"):
        ask("7B", memory.Inference(), "nothing")


def test_days_come_of_tokens_and_of_a_share_that_is_told() -> None:
    found = ask("7B", memory.Training(batch=8), count=8, tokens=1e12, mfu=0.5)
    figures = {row["name"]: row for row in found["speed"]}
    assert figures["training"]["value"] == pytest.approx(1e12 / figures["tokens a second"]["value"] / 86_400)
    assert figures["training"]["low"] == figures["training"]["high"]
    assert "training" not in {row["name"] for row in ask("7B", memory.Training(batch=8), count=8)["speed"]}

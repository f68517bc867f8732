"""`size` over the tables as they are."""

from __future__ import annotations

import json
import shlex
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
    # The first line is the answer.
    assert said.split()[0].strip(":,") in ("yes", "no")
    assert "fit" in " ".join(said.splitlines()[:2])


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_what_a_card_holds_is_not_shown_as_nothing(words: tuple[str, ...], gpuwright: Callable[..., Any]) -> None:
    found = gpuwright("size", *words, "--json").json
    empty = [part["name"] for part in found["memory"] if not part["value"]]
    assert gpuwright("size", *words).out.count(" 0.0 GiB ") == len(empty)


@pytest.mark.parametrize(
    ("model", "made"), [("flux.1-dev", "1 image of 1024 × 1024"), ("ltx-2", "1 video"), ("wan2.1-t2v-14b", "1 video")]
)
def test_what_makes_images_and_videos_is_asked_for_no_tokens(
    model: str, made: str, gpuwright: Callable[..., Any]
) -> None:
    said = " ".join(gpuwright("size", model, "--gpu", "h100").out.split())
    assert f"parameters, {made} with weights in bf16" in said
    assert "tokens" not in said
    assert gpuwright("size", model, "--gpu", "h100", "--json").json["model"]["kind"] == "diffusion"


def test_the_verdict_comes_first_and_says_how_much_of_what(gpuwright: Callable[..., Any]) -> None:
    said = gpuwright("size", "llama-3.1-8b", "--gpu", "4090").out
    assert said.startswith("yes: fits on GeForce RTX 4090: 18.0 GiB of 23.7 GiB a card; from $0.")
    assert "llama-3.1-8b: 8.03 B parameters, inference in bf16 by vllm, 1 × 8192 tokens" in said


def test_the_smallest_set_that_fits_is_looked_for(gpuwright: Callable[..., Any]) -> None:
    answer = gpuwright("size", "llama-3.1-70b", "--json").json
    # Of single cards it fits on H200, H20, B200 and more; the cheapest token is that of an H200.
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
    ("batch", "bound"),
    [
        ("1", "in vllm, bound by a bandwidth of 3,350 GB/s a card, of which weights are read at 92%"),
        ("2048", "in vllm, bound by tensor cores of 989 TFLOPS a card, of which it reaches 58%"),
    ],
)
def test_what_bounds_it_is_told(batch: str, bound: str, gpuwright: Callable[..., Any]) -> None:
    words = ("llama-3.1-8b", "--gpu", "h100", "--gpus", "8", "--context", "256", "--batch", batch)
    (rate,) = [row for row in gpuwright("size", *words, "--json").json["speed"] if row["name"] == "tokens a second"]
    assert bound in rate["text"]


@pytest.mark.parametrize(("engine", "turns"), [("llama.cpp", True), ("transformers", True), ("trt-llm", False)])
def test_what_an_engine_does_with_several_cards_is_told(
    engine: str, turns: bool, gpuwright: Callable[..., Any]
) -> None:
    def text(*words: str) -> str:
        found = gpuwright("size", "llama-3.1-8b", "--gpu", "4090", "--engine", engine, *words, "--json").json
        return str(found["speed"][0]["text"])

    assert ("hold whole layers and take turns" in text("--gpus", "2")) is turns
    assert "take turns" not in text()


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
    assert gpuwright("size", "7B", "--json").json["assumed"] == {
        "context": 8192,
        "batch": 1,
        "weights": "bf16",
        "engine": "vllm",
    }
    assert (
        gpuwright(
            "size", "7B", "--context", "2k", "--batch", "4", "--weights", "bf16", "--engine", "vllm", "--json"
        ).json["assumed"]
        == {}
    )
    assert gpuwright("size", "gpt-oss-20b", "--context", "2k", "--batch", "4", "--json").json["assumed"] == {
        "engine": "vllm"
    }
    assert "are assumed" in " ".join(gpuwright("size", "7B").out.split())


#: As people ask it, with what they found: the cards that it fits on.
_ASKED = [
    ("llama-3.1-8b --train qlora --gpu 4090", 1),
    ("7B --train qlora --gpu T4", 1),
    ("llama-2-70b --train qlora --gpu a6000", 1),
    ("gpt-oss-20b --gpu 4080", 1),
    ("gpt-oss-120b --gpu H100", 1),
    ("deepseek-r1 --gpu H200", 8),
    ("Qwen/Qwen2.5-32B-Instruct-AWQ --gpu 4090", 1),
    ("70B --weights q4_k_m --context 32k --gpu a6000", 2),
    ("meta-llama/Llama-3.1-405B-Instruct-FP8 --gpu h100", 8),
    # A K80 is two GPUs of 12 GB.
    ("llama-3.1-8b --gpu k80", 2),
]


@pytest.mark.parametrize(("words", "cards"), _ASKED)
def test_a_question_as_it_is_typed_is_answered_at_the_first_try(
    words: str, cards: int, gpuwright: Callable[..., Any]
) -> None:
    found = gpuwright("size", *words.split(), "--json").json
    assert (found["ok"], found["cards"]) == (True, cards)


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
        (("7B", "--gpu", "4090", "--gpus", "97"), "have to divide"),
        (("7B", "--gpu", "2x4090", "--gpus", "2"), "names 2 cards already"),
        (("7B", "--train", "lora", "--weights", "fp8"), "LoRA keeps them in 16 bits"),
        (("7B", "--train", "--kv-bits", "8"), "training has none"),
        (("7B", "--train", "--engine", "vllm"), "trains nothing"),
        (("7B", "--train", "--offload"), "leaves weights on the host where a model answers"),
        (("7B", "--train", "--rank", "8"), "add --train lora or qlora"),
        (("7B", "--rank", "8"), "add --train lora or qlora"),
        (("7B", "--precision", "bf16"), "add --train"),
        (("7B", "--optimizer", "sgd"), "add --train"),
        (("7B", "--micro-batch", "2"), "say with --batch how many"),
        (("7B", "--recompute", "none"), "add --train"),
        (("7B", "--attention", "flash"), "add --train"),
        (("7B", "--kernels", "fused"), "add --train"),
        (("7B", "--mfu", "40%"), "add --train"),
        (("7B", "--offload", "--engine", "vllm"), "leave out --engine vllm"),
        (("7B", "--train", "--gpu", "3090", "--gpu", "4090"), "cards of several kinds are not counted in training"),
        (("7B", "--engine", "vllm", "--gpu", "3090", "--gpu", "4090"), "with --engine llama.cpp alone"),
        (("7B", "--context", "0"), "--context has to be at least 1"),
        (("7B", "--context", "8KB"), "--context has to be a number"),
        (("7B", "--batch", "nan"), "--batch has to be a number"),
        (("7B", "--batch", "1e400"), "--batch has to be a number"),
        (("7B", "--tokens", "1T"), "add --train"),
        (("7B", "--train", "--mfu", "140%"), "a share above 0 and up to 1"),
        (("7B", "--train", "--mfu", "0"), "a share above 0 and up to 1"),
        (("7B", "--train", "everything"), "invalid choice: 'everything'"),
        (("7B", "--weights", "int3"), "has to be a format of weights, found 'int3'"),
        (("llama-2-7b", "--context", "1M"), "beyond all that stretches it"),
        (("7B", "--gpu", "MI300X"), "is a GPU of AMD"),
    ],
)
def test_bad_input_gets_one_clear_message(words: tuple[str, ...], said: str, gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("size", *words)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    told = gpuwright("size", *words, "--json").json
    Draft202012Validator(SCHEMA).validate(told)
    assert (told["ok"], said in told["error"]) == (False, True)


# the first line, and help -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("llama-3.1-8b --gpu 4090", "yes: fits on GeForce RTX 4090: "),
        ("llama-3.1-70b --gpu h100", "no on one H100 SXM5 80GB (136.3 GiB of 79.0 GiB); fits on 2 × H100 SXM5 80GB "),
        ("llama-3.1-70b --gpu h100 --gpus 1", "no: does not fit on H100 SXM5 80GB: 136.3 GiB of 79.0 GiB a card"),
        ("llama-3.1-70b --gpu 4090 --gpus 2", "no: does not fit on 2 × GeForce RTX 4090 (tensor parallel over 2): "),
        ("llama-3.1-8b", "yes: fits on "),
        (
            "llama-3.1-8b --gpu 3090+3060",
            "yes: fits on GeForce RTX 3090 + GeForce RTX 3060 12GB (pipeline parallel over 2): ",
        ),
    ],
)
def test_the_first_line_says_yes_or_no_on_what_and_for_how_much(
    words: str, first: str, gpuwright: Callable[..., Any]
) -> None:
    done = gpuwright("size", *words.split())
    line = " ".join(done.out.split("\n  ", maxsplit=1)[0].split())
    assert line.startswith(first)
    assert ("an hour" in line) is ("3060" not in words)


@pytest.mark.parametrize(
    ("words", "cards"),
    [
        # The answer itself where no card is named; another one where the one that is named does not hold the job.
        ("llama-3.1-70b", (1, "H200 SXM")),
        ("llama-3.1-70b --gpu 4090", (1, "H200 SXM")),
        ("llama-3.1-70b --gpu 4090 --gpus 2", (1, "H200 SXM")),
        ("llama-3.1-70b --gpu 4090 --gpus 8", None),
        ("llama-3.1-8b --gpu 4090", None),
        ("llama-3.1-8b --gpu 3090+3060", None),
    ],
)
def test_cards_with_a_price_are_recommended_where_those_that_are_named_do_not_do(
    words: str, cards: tuple[int, str] | None, gpuwright: Callable[..., Any]
) -> None:
    found = gpuwright("size", *words.split(), "--json").json["recommended"]
    said = " ".join(gpuwright("size", *words.split()).out.split())
    assert ("recommended" in said) is (cards is not None)
    if cards is None:
        assert found is None
        return
    assert (found["cards"], found["gpu"], found["fits"]) == (*cards, "yes")
    price = found["price"]
    assert (
        f"recommended: H200 SXM, 136.3 GiB of 139.3 GiB a card; {price['usd_hour']} USD an hour, "
        f"{price['usd_million']:.2f} USD a million tokens ({price['how']}) " in said
    )
    first = said[: said.index(" recommended: H200 SXM, 136.3")]
    assert first.endswith(f"from ${price['usd_hour']} an hour")
    assert ("; recommended: H200 SXM, from" in first) is ("--gpu" in words)


def test_what_is_asked_for_is_not_recommended_again_in_the_first_line(gpuwright: Callable[..., Any]) -> None:
    """Of the card that is named more are needed, and it is the right one."""
    done = gpuwright("size", "llama-3.1-405b", "--gpu", "b300")
    first = " ".join(done.out.split("\n  ", maxsplit=1)[0].split())
    assert first.startswith("no on one B300 SXM6 ")
    assert "recommended" not in first
    assert "recommended: 4 × B300 SXM6, " in done.out


def test_help_begins_with_five_examples_that_answer_and_has_nothing_of_other_verbs(
    gpuwright: Callable[..., Any],
) -> None:
    said = gpuwright("size", "--help").out
    head, *examples = said[: said.index("\n\n")].splitlines()
    assert (head, len(examples)) == ("examples:", 5)
    for example in examples:
        assert gpuwright(*shlex.split(example, comments=True)[1:]).code == 0
    assert not {"--extra-vars", "--vault-password-file", "--check", "--yes", "playbook", "wish"} & set(said.split())


# options without effect -------------------------------------------------------------------------------

_VALUES = {
    "--weights": ("fp8", "q4_k_m"),
    "--kv-bits": ("8", "4"),
    "--engine": ("llama.cpp", "transformers", "trt-llm"),
    "--context": ("3k",),
    "--batch": ("3",),
}
_TRAINING_VALUES = {
    "--precision": ("bf16", "fp32", "megatron"),
    "--optimizer": ("sgd", "adamw-8bit"),
    "--micro-batch": ("2", "4"),
    "--recompute": ("full", "none", "selective"),
    "--attention": ("eager",),
    "--kernels": ("fused",),
    "--rank": ("64",),
    "--mfu": ("33%",),
    "--context": ("3k",),
    "--batch": ("3",),
    "--tokens": ("1T",),
}


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b", "7B", "mamba-2.8b", "bge-m3"])
@pytest.mark.parametrize("job", [(), ("--train", "full"), ("--train", "lora"), ("--train", "qlora")], ids=" ".join)
def test_an_option_changes_the_answer_or_is_named_or_refused(
    model: str, job: tuple[str, ...], gpuwright: Callable[..., Any]
) -> None:
    usual = ("size", model, *job, "--gpu", "h100", "--gpus", "8", "--json")
    without = gpuwright(*usual).json
    for option, values in (_TRAINING_VALUES if job else _VALUES).items():
        answers = [gpuwright(*usual, option, value).json for value in values]
        for value, found in zip(values, answers, strict=True):
            named = any(option in row["text"] for row in found.get("warnings", ()))
            assert "error" in found or named or _figures(found) != _figures(without) or _default(found, without), (
                option,
                value,
            )


def _default(found: dict[str, Any], without: dict[str, Any]) -> bool:
    """Whether what was given is what is assumed."""
    return bool(found["job"] == without["job"])


def test_an_option_that_changes_nothing_is_named(gpuwright: Callable[..., Any]) -> None:
    def told(*words: str) -> list[str]:
        rows = gpuwright("size", *words, "--json").json["warnings"]
        return [row["text"] for row in rows if row["rule"] == "option"]

    cut = ("llama-3.2-1b", "--train", "--gpu", "h100", "--batch", "1", "--micro-batch", "4")
    assert told(*cut) == ["--micro-batch 4 changes nothing in this answer"]
    assert told("llama-3.2-1b", "--train", "--gpu", "h100", "--batch", "4", "--micro-batch", "4") == []
    # What is said as it would be assumed is no option without effect.
    assert told("llama-3.1-8b", "--gpu", "4090", "--context", "8k", "--weights", "bf16", "--kv-bits", "16") == []

"""The answer as a whole: which cards, what would change it, what is warned of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing import advice, answer, architecture, cards, engines, fitting, formats, memory, models, timing
from gpuwright.sizing.answer import Question
from gpuwright.sizing.layout import Layout
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


def test_memory_that_nvidia_smi_shows_is_what_error_correction_leaves() -> None:
    found = ask("llama-3.1-8b", memory.Inference(), card="Tesla T4", memory=15_360 * 2**20)
    assert found["room"] == 15_360 * 2**20 * (1 - 0.012)


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


def test_where_no_card_fits_the_answer_is_about_the_one_that_is_named_or_the_largest() -> None:
    largest = max((cards.known()[name] for name in cards.usual()), key=lambda each: (each.memory, each.bandwidth))
    found = ask("1000T", memory.Training(), card=None)
    assert (found["ok"], found["gpu"]) == (False, largest.name)
    named = of("1000T", memory.Training(), "A100 SXM4 40GB", "A100 SXM4 80GB")
    assert (named["ok"], named["gpu"]) == (False, "A100 SXM4 40GB")


def test_a_card_without_bf16_is_warned_of() -> None:
    found = ask("gpt2", memory.Training(), "Tesla V100 SXM2 32GB", 1)
    assert "bf16" in [row["rule"] for row in found["warnings"]]
    assert "bf16" not in [row["rule"] for row in ask("gpt2", memory.Training(), H100, 1)["warnings"]]


def test_a_longer_context_than_the_model_was_made_for_is_warned_of_and_far_more_refused() -> None:
    assert "context" in [row["rule"] for row in ask("llama-2-7b", memory.Inference(context=8192))["warnings"]]
    assert "context" not in [row["rule"] for row in ask("llama-2-7b", memory.Inference(context=4096))["warnings"]]
    with pytest.raises(BadInput, match="beyond all that stretches it"):
        ask("llama-2-7b", memory.Inference(context=4096 * 64 + 1))
    assert ask("llama-2-7b", memory.Inference(context=4096 * 64))["ok"]


def test_a_card_that_nobody_knows_enough_of_is_refused() -> None:
    with pytest.raises(BadInput, match="do not know the memory and the bandwidth"):
        ask("7B", memory.Inference(), "nothing")


def test_days_come_of_tokens_and_of_a_share_that_is_told() -> None:
    found = ask("7B", memory.Training(batch=8), count=8, tokens=1e12, mfu=0.5)
    figures = {row["name"]: row for row in found["speed"]}
    assert figures["training"]["value"] == pytest.approx(1e12 / figures["tokens a second"]["value"] / 86_400)
    assert figures["training"]["low"] == figures["training"]["high"]
    assert "training" not in {row["name"] for row in ask("7B", memory.Training(batch=8), count=8)["speed"]}


# prices -----------------------------------------------------------------------------------------------


def test_cards_are_ranked_by_what_a_million_tokens_cost_and_what_has_no_price_goes_last() -> None:
    found = ask("llama-3.1-8b", memory.Inference(), card=None)
    prices = [each["price"]["usd_million"] if each["price"] else None for each in found["options"]]
    known = [usd for usd in prices if usd is not None]
    assert known == sorted(known)
    assert prices == [*known, *[None] * (len(prices) - len(known))]
    assert 0 < len(known) < len(prices)


def test_a_price_of_a_million_tokens_is_that_of_the_hour_by_what_comes_in_one() -> None:
    found = ask("llama-3.1-8b", memory.Inference(), card="L4")
    (option,) = found["options"]
    assert option["price"] is not None
    assert option["price"]["how"] == "runpod L4, secure, on demand"
    speed = next(row["value"] for row in found["speed"] if row["name"] == "tokens a second")
    assert option["price"]["usd_million"] == pytest.approx(option["price"]["usd_hour"] / speed / 3600 * 1e6)


@pytest.mark.parametrize("job", [memory.Inference(), memory.Training(kind="qlora", recompute="full")])
def test_a_card_without_a_price_is_not_chosen_by_itself(job: Any) -> None:
    """Of the fewest cards those with the cheapest token are chosen: a Tesla P100 of which nobody says a price is not."""
    found = ask("llama-3.1-8b", job, card=None)
    assert found["options"][-1]["price"] is None
    fewest = [each for each in found["options"] if each["price"] and each["cards"] == found["cards"]]
    assert found["cards"] == min(each["cards"] for each in found["options"] if each["price"])
    assert found["gpu"] == next(each["gpu"] for each in fewest if each["fits"] == "yes")
    # Where it is asked for by its name it is answered all the same.
    assert ask("llama-3.1-8b", job, card="Tesla P100 PCIe 16GB")["gpu"] == "Tesla P100 PCIe 16GB"


def test_where_nobody_counts_tokens_the_cheapest_memory_is_chosen_and_the_cheapest_hour_listed_first() -> None:
    """Flux makes images: an RTX A6000 at 0.33 USD, not a Jetson at 0.22 with a quarter of its bandwidth."""
    found = ask("flux.1-dev", memory.Inference(context=1024), card=None)
    assert found["speed"] == []
    assert (found["gpu"], found["cards"]) == ("RTX A6000", 1)
    hours = [price["usd_hour"] for each in found["options"] if (price := each["price"])]
    assert hours == sorted(hours)
    assert found["options"][0]["gpu"] == "Jetson AGX Orin 64GB"


def test_all_cards_from_twelve_gigabytes_on_are_tried_but_those_of_laptops() -> None:
    tried = set(cards.usual())
    assert {
        "RTX A4000",
        "RTX A6000",
        "RTX PRO 6000 Blackwell Workstation",
        "GB10 (DGX Spark)",
        "GeForce RTX 5060 Ti",
    } <= tried
    assert {"GeForce RTX 3060 12GB", "L4", "H200 SXM", "Jetson AGX Orin 64GB"} <= tried
    assert not tried & {"GeForce RTX 4090 Laptop GPU", "GeForce RTX 3080", "GeForce GTX 1080 Ti"}
    options = {each["gpu"] for each in ask("1B", memory.Inference(), card=None)["options"]}
    assert options == tried


# cards that are named ---------------------------------------------------------------------------------


def of(model: str, job: Any, *names: str, **more: Any) -> answer.Answer:
    """The answer for cards as a person names them."""
    return answer.size(Question(model, job, own=tuple(cards.known()[name] for name in names), **more))


def warned(found: answer.Answer) -> dict[str, str]:
    return {row["rule"]: row["text"] for row in found["warnings"]}


def test_a_named_card_is_answered_alone_first_and_then_by_the_smallest_number() -> None:
    found = of("llama-3.1-70b", memory.Inference(), H100)
    one = found["one"]
    assert one is not None
    assert (one["fits"], found["fits"], found["cards"]) == ("no", "yes", 2)
    assert one["bytes_per_card"] > one["room"] == found["room"] > found["needed"]["value"]
    assert one["helps"] == ["--weights fp8", "--weights int4"]
    for weights in ("fp8", "int4"):
        assert of("llama-3.1-70b", memory.Inference(weights=formats.FORMATS[weights]), H100, count=1)["ok"]
    # One is enough, a number is told, or no card is named.
    assert of("llama-3.1-8b", memory.Inference(), H100)["one"] is None
    assert of("llama-3.1-70b", memory.Inference(), H100, count=2)["one"] is None
    assert ask("llama-3.1-70b", memory.Inference(), None, among=(H100,))["one"] is None


def test_a_name_of_two_memories_is_answered_for_the_smaller_and_says_what_becomes_of_the_other() -> None:
    both = ("A100 SXM4 40GB", "A100 SXM4 80GB")
    small = of("llama-3.1-8b", memory.Inference(), *both)
    assert small["gpu"] == both[0]
    assert warned(small)["card"] == f"on {both[1]}, which is called so too, it fits too"
    # The smaller takes two: one of the larger is the answer.
    large = of("30B", memory.Inference(), *both)
    assert (large["gpu"], large["cards"]) == (both[1], 1)
    assert warned(large)["card"] == f"on {both[0]}, which is called so too, it takes 2 of them"
    alone = of("30B", memory.Inference(), *both, count=1)
    assert warned(alone)["card"] == f"on {both[0]}, which is called so too, it does not fit"
    assert {each["gpu"] for each in large["options"]} == set(both)
    # One of them may be meant.
    meant = of("llama-3.1-8b", memory.Inference(), *both, card=both[1])
    assert (meant["gpu"], warned(meant)) == (both[1], {})


def test_what_is_odd_about_a_card_is_told_first() -> None:
    found = of("llama-3.1-8b", memory.Inference(), "GeForce RTX 4090", odd="it is modified")
    assert found["warnings"][0] == {"rule": "card", "text": "it is modified"}


@pytest.mark.parametrize(
    ("weights", "card", "told"),
    [
        ("fp8", "A100 SXM4 80GB", "A100 SXM4 80GB has no tensor cores for fp8"),
        ("nvfp4", H100, "no tensor cores for fp4"),
        ("fp8", H100, ""),
        ("nvfp4", "B200 SXM", ""),
        ("int8", "A100 SXM4 80GB", ""),
    ],
)
def test_a_precision_that_a_card_does_not_compute_in_is_warned_of(weights: str, card: str, told: str) -> None:
    found = warned(of("llama-3.1-8b", memory.Inference(weights=formats.FORMATS[weights]), card))
    assert found.keys() == ({"precision"} if told else set())
    assert told in found.get("precision", "")


def test_training_in_fp8_on_a_card_without_it_is_warned_of() -> None:
    job = memory.Training(scheme=formats.SCHEMES["fp8"], batch=8)
    assert "nothing is computed faster" in warned(of("llama-3.2-1b", job, "A100 SXM4 80GB"))["precision"]
    assert warned(of("llama-3.2-1b", job, H100)) == {}


def test_a_card_without_bf16_answers_in_what_it_has() -> None:
    assert "computes in fp16;" in warned(of("llama-3.2-1b", memory.Inference(), "Tesla V100 SXM2 32GB"))["bf16"]
    old = warned(of("llama-3.2-1b", memory.Inference(), "Tesla K80"))
    assert "computes in fp32, which is slow" in old["bf16"]
    assert "board of 2 GPUs with 12 GB each" in old["board"]
    job = memory.Training(batch=1)
    assert "train in fp16" in warned(of("gpt2", job, "Tesla V100 SXM2 32GB"))["bf16"]


def test_weights_that_an_engine_does_not_read_are_warned_of() -> None:
    def told(weights: str, engine: str) -> str:
        job = memory.Inference(weights=formats.FORMATS[weights], engine=engine)
        return warned(of("llama-3.2-1b", job, "L4")).get("engine", "")

    assert told("q4_k_m", "vllm").startswith("q4_k_m is a format of llama.cpp")
    assert "int4 is in none" in told("int4", "llama.cpp")
    assert (told("q4_k_m", "llama.cpp"), told("int4", "vllm"), told("fp16", "llama.cpp")) == ("", "", "")


def test_scores_that_are_not_kept_need_not_be_computed_again() -> None:
    job = memory.Training(recompute="selective")
    assert "changes nothing" in warned(of("llama-3.2-1b", job, H100))["recompute"]
    assert warned(of("llama-3.2-1b", memory.Training(recompute="selective", flash=False), H100)) == {}


# shapes that are assumed ------------------------------------------------------------------------------


def test_a_number_of_parameters_alone_gives_a_range_of_shapes_and_says_so() -> None:
    """70 B may be Llama's, with 8 heads of keys, or Qwen1.5's, with 64: its cache is in the range of the assumed shape."""
    told = of("70B", memory.Inference(), H100)
    cache = next(part for part in told["memory"] if part["name"] == "KV cache")
    assert cache["low"] < cache["value"] < cache["high"]
    for model in ("llama-3.1-70b", "qwen1.5-72b"):
        real = next(part for part in of(model, memory.Inference(), H100)["memory"] if part["name"] == "KV cache")
        assert real["low"] == real["value"] == real["high"]
        # The cards differ in number: by the cards that share it.
        assert cache["low"] * told["cards"] <= real["value"] * of(model, memory.Inference(), H100)["cards"] * 1.02
        assert real["value"] * of(model, memory.Inference(), H100)["cards"] <= cache["high"] * told["cards"] * 1.02
    assert "their range is that of the models of this size" in warned(told)["shape"]
    assert "shape" not in warned(of("llama-3.1-70b", memory.Inference(), H100))


def test_the_verdict_holds_the_range_of_a_shape_that_is_assumed() -> None:
    """What is there is between what is counted and the most of the range: tight, where a model of that shape fits with room to spare."""
    needed = of("70B", memory.Inference(batch=16), H100)["needed"]
    alike = of("llama-3.1-70b", memory.Inference(batch=16), H100, count=2)["needed"]
    assert needed["high"] / needed["value"] > 1.3 > alike["high"] / alike["value"]


# several hosts, and what is sent ----------------------------------------------------------------------


def test_cards_over_several_hosts_are_told_with_the_network_that_is_counted() -> None:
    job = memory.Training(batch=64, recompute="full")
    found = of("llama-3.1-8b", job, H100, count=16)
    assert warned(found)["network"].startswith(
        "16 cards are 2 hosts of 8, coupled over the network: 400 Gb/s for each card"
    )
    consumer = of("llama-3.1-8b", job, "GeForce RTX 4090", count=16)
    assert "100 Gb/s for each host" in warned(consumer)["network"]
    assert "network" not in warned(of("llama-3.1-8b", job, H100, count=8))
    assert warned(of("llama-3.1-8b", job, H100, count=8, in_host=4))["network"].startswith("8 cards are 2 hosts of 4")


def test_a_layout_whose_cards_wait_for_the_network_is_passed_over_where_another_does_not() -> None:
    """ZeRO-3 alone over two hosts of consumer cards would send twice as long as it computes; ZeRO-2 with tensor parallel does not."""
    job = memory.Training(batch=64, recompute="full")
    found = of("llama-3.1-8b", job, "GeForce RTX 4090", count=16)
    assert found["layout"] == "ZeRO-2 over 8, tensor parallel over 2"
    times = {row["name"]: row["value"] for row in found["speed"]}
    assert times["a step sends"] < times["a step computes"]
    assert of("llama-3.1-8b", job, H100, count=16)["layout"] == "ZeRO-1 over 16"


@pytest.mark.parametrize(
    ("model", "count", "context", "bottleneck"),
    [("llama-3.1-8b", 16, 512, False), ("llama-3.1-8b", 16, 4096, False), ("deepseek-v3", 1024, 64, True)],
)
def test_tokens_a_second_are_what_the_slower_of_computing_and_sending_leaves(
    model: str, count: int, context: int, bottleneck: bool
) -> None:
    job = memory.Training(batch=count, context=context, recompute="full")
    found = of(model, job, H100, count=count, tokens=1e9)
    times = {row["name"]: row for row in found["speed"]}
    slower = max(times["a step computes"]["value"], times["a step sends"]["value"])
    assert times["tokens a second"]["value"] == pytest.approx(count * context / slower)
    assert (times["a step sends"]["value"] > times["a step computes"]["value"]) is bottleneck
    than = ", longer than it computes: the network is the bottleneck" if bottleneck else ", while it computes"
    assert times["a step sends"]["text"] == f"over 50 GB/s a card{than}"
    assert (times["tokens a second"]["text"] == "what the network leaves: 50 GB/s a card") is bottleneck
    assert times["training"]["value"] == pytest.approx(1e9 / times["tokens a second"]["value"] / 86_400)
    price, rate = found["price"], times["tokens a second"]["value"]
    assert price is not None
    assert price["usd_million"] == pytest.approx(price["usd_hour"] / rate / 3600 * 1e6)


def test_what_does_not_fit_has_no_speed_and_no_most() -> None:
    for job in (memory.Training(batch=16), memory.Inference()):
        found = of("llama-3.1-70b", job, "GeForce RTX 4090", count=1 if isinstance(job, memory.Inference) else 0)
        assert not found["ok"]
        assert found["speed"] == []
        assert found["most"] == {"batch": 0, "context": 0, "users": 0}


def test_a_model_that_generates_no_tokens_has_no_speed_and_is_not_trained() -> None:
    assert of("bge-m3", memory.Inference(), "L4")["speed"] == []
    with pytest.raises(BadInput, match="is an encoder, whose training is not counted"):
        of("bge-m3", memory.Training(), "L4")


# the most that fits, and what is left on the host -----------------------------------------------------


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp"])
def test_the_most_that_fits_is_the_last_that_does(engine: str) -> None:
    job = memory.Inference(engine=engine)
    most = of("llama-3.1-8b", job, "GeForce RTX 4090")["most"]

    def fits(**more: int) -> bool:
        return of("llama-3.1-8b", replace(job, **more), "GeForce RTX 4090", count=1)["ok"]  # type: ignore[arg-type]

    assert fits(batch=most["batch"])
    assert not fits(batch=most["batch"] + 1)
    assert fits(context=most["context"])
    assert not fits(context=most["context"] + 1)
    # Who has pages keeps no more than a user has used; who has none keeps the whole context.
    if engine == "vllm":
        assert fits(batch=most["users"], context=job.context // 2)
        assert not fits(batch=most["users"] + 1, context=job.context // 2)
        assert most["users"] > most["batch"]
    else:
        assert most["users"] == most["batch"]


def test_a_context_goes_no_further_than_the_model_was_made_for() -> None:
    assert of("llama-3.1-8b", memory.Inference(), "B200 SXM")["most"]["context"] == 131_072
    assert of("llama-2-7b", memory.Inference(context=8192), "B200 SXM")["most"]["context"] == 8192


def test_the_most_of_a_training_is_over_all_cards() -> None:
    job = memory.Training(batch=8, recompute="full")
    found = of("llama-3.2-1b", job, H100, count=8)
    most = found["most"]
    assert most["batch"] % 8 == 0
    assert most["users"] == 0
    assert found["layout"] == "data parallel over 8"

    def needs(**more: int) -> float:
        return memory.training(models.find("llama-3.2-1b"), replace(job, **more), Layout("ddp", 8)).value  # type: ignore[arg-type]

    assert needs(micro=most["batch"] // 8) <= found["room"] < needs(micro=most["batch"] // 8 + 1)
    assert needs(context=most["context"]) <= found["room"] < needs(context=most["context"] + 1)


Q4 = formats.FORMATS["q4_k_m"]


@pytest.mark.parametrize(("model", "part"), [("qwen3-235b-a22b", "the experts of "), ("llama-3.1-70b", "")])
def test_as_few_layers_as_can_be_are_left_on_the_host(model: str, part: str) -> None:
    job = memory.Inference(weights=Q4, engine="llama.cpp")
    found = of(model, job, "GeForce RTX 3090", offload=True)
    layers = found["job"]["host_layers"]
    assert (found["fits"], found["cards"]) == ("yes", 1)
    assert 0 < layers <= found["model"]["layers"]
    more = of(model, replace(job, host_layers=layers - 1), "GeForce RTX 3090", count=1)
    assert more["fits"] != "yes"
    assert warned(found)["offload"].startswith(f"{part}{layers} of {found['model']['layers']} layers")
    assert "the memory of the host" in found["speed"][0]["text"]
    assert found["speed"][0]["value"] < 10
    # Without it it does not fit, and the remedy says so.
    without = of(model, job, "GeForce RTX 3090", count=1)
    assert not without["ok"]
    assert "--offload" in without["conflicts"][0]["remedy"]


def test_what_fits_is_left_on_the_card_and_an_offload_without_effect_is_told() -> None:
    found = of("llama-3.1-8b", memory.Inference(weights=Q4, engine="llama.cpp"), "GeForce RTX 3090", offload=True)
    assert found["job"]["host_layers"] == 0
    assert "changes nothing" in warned(found)["offload"]
    assert "offload" not in warned(of("llama-3.1-8b", memory.Inference(weights=Q4, engine="llama.cpp"), "L4"))


def test_where_all_layers_on_the_host_are_too_few_it_does_not_fit() -> None:
    found = of("deepseek-v3", memory.Inference(), "GeForce GTX 1060 3GB", offload=True)
    assert (found["ok"], found["job"]["host_layers"]) == (False, 58)
    assert "--offload" not in found["conflicts"][0]["remedy"]


# words ------------------------------------------------------------------------------------------------


def test_why_it_does_not_fit_is_told_of_one_card_or_of_each() -> None:
    one = of("llama-3.1-70b", memory.Inference(), H100, count=1)["conflicts"][0]
    assert f"are needed on {H100}, which has 79.0 GiB; most of it: weights, 131.4 GiB" in one["text"]
    assert "--weights fp8 (" in one["remedy"]
    several = of("llama-3.1-70b", memory.Training(batch=16), "GeForce RTX 4090")["conflicts"][0]
    assert "are needed on each of 8 × GeForce RTX 4090" in several["text"]
    assert "--offload" not in several["remedy"]
    none = of("1000T", memory.Inference(context=1), "GeForce RTX 4090", count=1, offload=False)
    assert "conflicts" in none


def test_the_price_is_that_of_all_cards() -> None:
    found = of("llama-3.1-70b", memory.Inference(), H100)
    (option,) = found["options"]
    assert found["price"] == option["price"]
    price = found["price"]
    assert price is not None
    assert price["usd_million"] == pytest.approx(price["usd_hour"] / found["speed"][0]["value"] / 3600 * 1e6)
    assert of("llama-3.1-8b", memory.Inference(), "Tesla P100 PCIe 16GB")["price"] is None


def test_an_adapter_computes_layers_again_where_nobody_says_otherwise() -> None:
    found = of("llama-3.2-1b", memory.Training(), H100, count=1)
    changes = {each["option"]: each["bytes_per_card"] for each in found["changes"]}
    for kind in ("lora", "qlora"):
        job = memory.Training(kind=kind, recompute="full")
        assert changes[f"--train {kind}"] == of("llama-3.2-1b", job, H100, count=1)["needed"]["value"]


# what was measured ------------------------------------------------------------------------------------


def test_cards_that_were_measured_are_told_no_faster() -> None:
    card = cards.known()[H100]
    slow = timing.Measured({"bf16": card.peak("bf16") / 4}, card.bandwidth / 2, "2026-11-01")
    free, held = (of("llama-3.1-8b", memory.Inference(), H100, measured=each)["speed"][0] for each in (None, slow))
    assert "at most 50% of the bandwidth, as its proof of 2026-11-01 measured" in held["text"]
    assert held["value"] < free["value"] * 0.75
    job = memory.Training(batch=8, recompute="full")
    free, held = (
        of("llama-3.1-8b", job, H100, count=8, measured=each, tokens=1e9)["speed"][0] for each in (None, slow)
    )
    assert held["text"].startswith("25% of 989 TFLOPS")
    assert "at most 25% of them" in held["text"]
    assert held["value"] < free["value"]
    # Who measured no memory, or no products of this precision, is held by none.
    blind = timing.Measured({"fp8": 1e12}, day="2026-11-01")
    answers = [of("llama-3.1-8b", memory.Inference(), H100, measured=each)["speed"][0] for each in (None, blind)]
    assert answers[0] == answers[1]
    other = timing.Measured({"fp8": 1e12}, 0.0, "2026-11-01")
    assert of("llama-3.1-8b", job, H100, count=8, measured=other)["speed"][0]["value"] == free["value"]


def test_why_weights_have_their_format_is_told_of_a_model_that_answers() -> None:
    told = of("llama-3.1-8b", memory.Inference(), H100, weights="as its name says")["job"]
    assert told["weights_text"] == "as its name says"
    assert "weights_text" not in of("llama-3.1-8b", memory.Inference(), H100)["job"]
    assert "weights_text" not in of("llama-3.2-1b", memory.Training(), H100, weights="as its name says")["job"]


def test_a_card_of_which_nobody_says_what_it_computes_is_told_by_its_memory_alone() -> None:
    """Its rate was 2e-10 tokens a second, of 0 TFLOPS."""
    name = next(card.name for card in cards.known().values() if not card.tflops and card.memory > 12 * GIB)
    found = of("llama-3.2-1b", memory.Inference(), name, count=1)
    (rate,) = found["speed"]
    assert rate["name"] == "tokens a second"
    assert rate["value"] > 10
    assert "bound by a bandwidth" in rate["text"]
    assert "its rate is what its memory gives" in warned(found)["products"]
    trained = of("llama-3.2-1b", memory.Training(), name, count=1)
    assert trained["speed"] == []
    assert "how fast it trains is not told" in warned(trained)["products"]


def test_the_context_that_a_model_was_made_for_is_told_where_it_is_known() -> None:
    assert of("llama-3.1-8b", memory.Inference(), H100)["model"]["context"] == 131_072
    assert of("7B", memory.Inference(), H100)["model"]["context"] is None


def test_the_job_is_told_whole() -> None:
    lora = of("llama-3.2-1b", memory.Training(kind="lora", recompute="full", flash=False, fused=True, rank=8), H100)
    assert lora["job"] == {
        "kind": "lora",
        "precision": "mixed",
        "optimizer": "adamw",
        "context": 2048,
        "batch": 1,
        "micro_batch": 1,
        "recompute": "full",
        "attention": "eager",
        "kernels": "fused",
        "rank": 8,
    }
    full = of("llama-3.2-1b", memory.Training(), H100)["job"]
    assert (full["attention"], full["kernels"], full["rank"]) == ("flash", "separate", None)
    answering = of("llama-3.1-8b", memory.Inference(batch=2, cache=1), H100)["job"]
    assert answering == {
        "kind": "inference",
        "weights": "bf16",
        "kv_bytes": 1,
        "context": 8192,
        "batch": 2,
        "engine": "vllm",
        "host_layers": 0,
    }


def test_the_model_is_told_by_what_decides() -> None:
    assert of("mixtral-8x7b", memory.Inference(), H100)["model"] == {
        "name": "mixtral-8x7b",
        "parameters": 46_702_792_704,
        "active_parameters": architecture.active(models.find("mixtral-8x7b")),
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "vocabulary": 32_000,
        "context": 32_768,
        "image": None,
        "kind": "decoder",
        "shape_assumed": False,
    }
    assert of("7B", memory.Inference(), H100)["model"]["shape_assumed"] is True


def test_nothing_is_recommended_for_cards_that_are_there_or_where_no_card_does() -> None:
    """Nobody asked what to buy for the cards of a host."""
    one = ask("llama-3.1-70b", memory.Inference(), "GeForce RTX 4090", 1)
    assert one["fits"] == "no"
    assert one["recommended"] is not None
    assert ask("llama-3.1-70b", memory.Inference(), "GeForce RTX 4090", most=2)["recommended"] is None
    assert ask("llama-3.1-70b", memory.Inference(), "GeForce RTX 4090", 1, alone=True)["recommended"] is None
    huge = ask("9000000B", memory.Inference(), "GeForce RTX 4090", 1)
    assert (huge["fits"], huge["recommended"]) == ("no", None)
    assert ask("9000000B", memory.Inference(), None)["recommended"] is None


def test_what_is_recommended_has_a_price_and_is_what_would_be_chosen_without_a_name() -> None:
    for job in (memory.Inference(), memory.Training()):
        free = ask("llama-3.1-70b", job, None)
        here = {"gpu": free["gpu"], "cards": free["cards"], "price": free["price"]}
        assert free["recommended"] is not None
        assert here.items() <= free["recommended"].items()
        assert here["price"] is not None
        assert ask("llama-3.1-70b", job, "GeForce RTX 3060 12GB", 1)["recommended"] == free["recommended"]


@pytest.mark.parametrize(
    ("model", "engine", "said"),
    [
        ("falcon-40b", "vllm", True),
        ("falcon-40b", "transformers", False),  # takes what it needs
        ("llama-2-70b", "vllm", False),  # does not fit at all
    ],
)
def test_what_vllm_refuses_as_long_as_it_is_not_told_of_the_whole_card_is_said(
    model: str, engine: str, said: bool
) -> None:
    job = memory.Inference(context=1024, engine=engine)
    found = answer.size(answer.Question(model=model, job=job, card="A100 SXM4 80GB", count=1))
    texts = [each["text"] for each in found["warnings"]]
    assert any("--gpu-memory-utilization 0.9" in text for text in texts) == said


@pytest.mark.parametrize(("needs", "told"), [(0.9301, "0.94"), (0.94, "0.94"), (0.9499, "0.95"), (0.999, "0.97")])
def test_the_share_of_a_card_that_an_engine_is_told_is_the_next_hundredth_and_never_what_it_has_in_use(
    needs: float, told: str
) -> None:
    engine, room = engines.called("vllm"), 20.0
    held = (needs * room + engine.started) * GIB
    found: Any = SimpleNamespace(
        fits="yes",
        job=memory.Inference(engine="vllm"),
        card=SimpleNamespace(room=room * GIB),
        memory=SimpleNamespace(value=held - 1),
    )
    assert advice._of_share(found).endswith(f"--gpu-memory-utilization {told}")


@pytest.mark.parametrize(
    "card", [cards.known()[name] for name in ("A10", "GeForce RTX 3090", "A100 SXM4 80GB", "B200 SXM")], ids=str
)
def test_the_share_that_vllm_is_told_holds_the_job_and_is_free_as_it_starts(card: cards.Card) -> None:
    in_use, told = engines.called("vllm").started * GIB, 0
    for share in range(80, 100):
        shape = models.find(f"{share * card.room / 200 / 1e6:.0f}M")
        held = memory.inference(shape, memory.Inference(context=1024), Layout())
        found = fitting.Found(card, Layout(), memory.Inference(context=1024), held)
        text = {each["rule"]: each["text"] for each in advice.warnings(shape, found)}.get("share")
        if text is None:
            assert held.value > card.room or held.value <= 0.92 * card.room + in_use
            continue
        told += 1
        asked = float(text.rsplit(" ", 1)[1]) * card.room
        assert asked <= card.room - in_use
        # In hundredths of a card: the last one may be too small by less than one.
        assert asked > held.value - in_use - card.room / 100
    assert told > 1


# how far it is looked ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "job", "card", "found"),
    [
        # 218 GB in 4 bits: on eight cards of 48 GB in a workstation, not on four.
        ("llama-3.1-405b", memory.Inference(weights=formats.FORMATS["int4"]), "RTX A6000", (True, 8)),
        # On two of these it would fit, and nobody couples two laptops, or two modules.
        ("llama-3.1-8b", memory.Inference(), "GeForce RTX 4090 Laptop GPU", (False, 1)),
        ("llama-3.1-70b", memory.Inference(weights=formats.FORMATS["fp8"]), "Jetson AGX Orin 64GB", (False, 1)),
        # Where no number of them does, it is told for a machine.
        ("1000T", memory.Training(batch=8), "A100 SXM4 80GB", (False, 8)),
    ],
)
def test_no_more_cards_of_a_kind_are_looked_at_than_anybody_sets_up(
    model: str, job: Any, card: str, found: tuple[bool, int]
) -> None:
    answered = of(model, job, card)
    assert (answered["ok"], answered["cards"]) == found


def test_without_a_batch_a_pipeline_has_four_micro_batches_a_stage() -> None:
    wanted = fitting.Wanted(models.find("llama-3.2-1b"), memory.Training(batch=0, micro=2))
    batches = {each.layout.words(): each.job.batch for each in fitting.tried(wanted, cards.known()[H100], 2)}
    assert batches["data parallel over 2"] == 4
    assert batches["tensor parallel over 2"] == 2
    assert batches["pipeline parallel over 2"] == 2 * 4 * 2


def test_nobody_looks_beyond_a_million_tokens_or_a_hundred_thousand_sequences() -> None:
    """A shape of eight layers, 1024 wide, keeps 32 KiB of a token: 34 GB of a context that long."""
    assert of("100M", memory.Inference(context=1), "B200 SXM")["most"] == {
        "batch": 131_072,
        "context": 1_048_576,
        "users": 131_072,
    }

"""FLOPs and days against published runs: with their own utilisation, and with our defaults where these were not chosen by them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwright.sizing import architecture, cards, formats, memory, models, timing
from gpuwright.sizing.architecture import Architecture
from gpuwright.sizing.figures import Range
from gpuwright.sizing.layout import Layout
from gpuwright.sizing.units import DAY

from .conftest import published

HOUR = 3600
RUNS = published()["rows"]
RATES = published()["inference"]


def names(row: dict[str, Any]) -> str:
    return str(row["name"])


def shape_of(row: dict[str, Any]) -> Architecture:
    """The shape that a source prints; where it prints none, one of as many parameters."""
    told = float(row.get("active_parameters") or row["parameters"])
    if not all(row.get(key) for key in ("layers", "hidden", "heads")):
        return architecture.typical(row["name"], told)
    head = row["hidden"] // row["heads"]
    return Architecture(row["name"], row["layers"], row["hidden"], row["heads"], row["heads"], head, 1, 1, told=told)


def job_of(row: dict[str, Any]) -> memory.Training:
    precision = "fp8" if row.get("precision") == "fp8" else "mixed"
    return memory.Training(scheme=formats.SCHEMES[precision], context=row.get("context") or 2048)


def peak_of(row: dict[str, Any]) -> float:
    return cards.known()[row["card"]].peak(job_of(row).scheme.precision)


# FLOPs ------------------------------------------------------------------------------------------------

# Six times parameters and tokens, the work of the model with attention, or that of the hardware, which computes forward passes twice.
# Gopher's is the budget of Chinchilla too, 14 % above six times parameters and tokens.
COUNTED = [row for row in RUNS if row.get("flops") and row["name"] != "Gopher 280B"]


@pytest.mark.parametrize("row", COUNTED, ids=names)
def test_the_flops_of_a_run_are_those_that_were_published(row: dict[str, Any]) -> None:
    shape, job = shape_of(row), job_of(row)
    each = timing.training_flops(shape, job)
    if row["flops_count"] == "6nd":
        each -= 3 * architecture.attention_flops(shape, job.context)
    if row["flops_count"] == "hardware":
        each *= 4 / 3
    assert each * row["tokens"] == pytest.approx(row["flops"], rel=0.1)


def test_there_are_enough_of_them() -> None:
    assert len(COUNTED) >= 15
    assert len(TOLD) >= 8
    assert len(JUDGED) >= 60


def test_attention_looks_at_the_half_that_stands_before() -> None:
    """GPT-2: 12 layers, 12 heads of 64; over 1024 tokens each looks at 512 on average, by two products of two FLOPs."""
    assert architecture.attention_flops(models.find("gpt2"), 1024) == 12 * 512 * 2 * 2 * 768


def test_lora_computes_two_passes_of_three() -> None:
    shape = models.find("llama-2-7b")
    full, lora = (timing.training_flops(shape, memory.Training(kind=kind)) for kind in ("full", "lora"))
    assert lora == pytest.approx(full * 2 / 3)


# days -------------------------------------------------------------------------------------------------


def hours(row: dict[str, Any]) -> float | None:
    """Hours of one card that a run took."""
    if row.get("gpu_hours"):
        return float(row["gpu_hours"])
    return float(row["days"]) * DAY / HOUR * row["gpus"] if row.get("days") and row.get("gpus") else None


# With what was reached by each card: its own utilisation, or its TFLOPS, of which full recomputation is a quarter. Less than a day is
# printed to one digit.
TOLD = [
    row
    for row in RUNS
    if row.get("card")
    and row.get("tokens")
    and row.get("days", 0) >= 1
    and row["kind"] != "run"
    and (row.get("mfu") or row.get("tflops_per_gpu"))
]


def reached(row: dict[str, Any]) -> float:
    """The share of the peak that the model got."""
    if row.get("mfu"):
        return float(row["mfu"])
    again = 0.75 if row.get("tflops_count") == "hardware" and row.get("recompute") == "full" else 1
    return float(row["tflops_per_gpu"]) * 1e12 * again / peak_of(row)


@pytest.mark.parametrize("row", TOLD, ids=names)
def test_days_with_their_own_utilisation_are_theirs(row: dict[str, Any]) -> None:
    share = reached(row)
    flops = timing.training_flops(shape_of(row), job_of(row)) * row["tokens"]
    found = timing.training_time(flops, row["gpus"], peak_of(row), Range(share, share, share))
    assert found.value / HOUR * row["gpus"] == pytest.approx(hours(row), rel=0.1)


#: Runs that no default can know of, each with what made it slow.
UNTYPICAL = {
    "ZeRO-3 174.6B, 1536 cards": "weights gathered over a network of 1536 cards for one sequence each",
    "ZeRO-3 529.6B, 2240 cards": "the same on 2240",
    "YaLM 100B": "calendar days with all that stood still; PCIe between some of its cards",
    "HyperCLOVA 82B": "calendar days",
    "BloombergGPT 50B": "ZeRO-3 over 400 Gb/s for eight cards",
    "Llama 3 8B": "hours as billed, for more than 15 T tokens",
    "Pythia 70M": "a model so small that its cards wait for kernels to start",
    "nanoGPT GPT-2 124M": "a model so small, without fused kernels",
    "torchtitan llama-3.1-405b on 512 H100, fp8, interleaved": "products in 8 bits next to a pipeline in 16",
    "LLMQ Qwen2.5 0.5B on one RTX 5060 Ti": "kernels written for this card, in 8 bits where it can",
    "LLMQ Qwen2.5 3B on one RTX 5060 Ti": "the same",
    "LLMQ Qwen2.5 7B on one RTX 5060 Ti": "the same",
}


def rate(row: dict[str, Any]) -> float | None:
    """The share of the peak that a row says or that follows from it."""
    if row.get("mfu") or row.get("tflops_per_gpu"):
        return reached(row)
    each = timing.training_flops(shape_of(row), job_of(row))
    if row.get("tokens_per_second_per_gpu"):
        return float(row["tokens_per_second_per_gpu"]) * each / peak_of(row)
    return row["tokens"] * each / (hours(row) * HOUR * peak_of(row)) if row.get("tokens") and hours(row) else None  # type: ignore[operator]


JUDGED = [row for row in RUNS if row.get("card") and not row["used_for_defaults"] and rate(row)]


@pytest.mark.parametrize("row", [row for row in JUDGED if row["name"] not in UNTYPICAL], ids=names)
def test_our_default_is_within_a_factor_of_one_and_a_half(row: dict[str, Any]) -> None:
    found = timing.mfu(cards.known()[row["card"]], job_of(row), row.get("gpus") or 1024)
    assert 1 / 1.5 <= (rate(row) or 0) / found.value <= 1.5


@pytest.mark.parametrize("name", UNTYPICAL)
def test_what_is_untypical_is_so(name: str) -> None:
    row = next(row for row in JUDGED if row["name"] == name)
    found = timing.mfu(cards.known()[row["card"]], job_of(row), row.get("gpus") or 1024)
    assert not 1 / 1.5 <= (rate(row) or 0) / found.value <= 1.5


# inference --------------------------------------------------------------------------------------------

_WEIGHTS = {"f16": "fp16", "bf16": "bf16", "fp16": "fp16", "q4_k_m": "q4_k_m"}
# One sequence on one card, or tensor parallel; llama.cpp puts layers on cards that then wait for each other.
ALONE = [
    row
    for row in RATES
    if row.get("batch") == 1
    and row["quantisation"] in _WEIGHTS
    and row["card"] in cards.known()
    and (row["gpus"] == 1 or row["software"] == "gpt-fast")
]


@pytest.mark.parametrize("row", ALONE, ids=names)
def test_tokens_a_second_are_within_our_range(row: dict[str, Any]) -> None:
    job = memory.Inference(weights=formats.FORMATS[_WEIGHTS[row["quantisation"]]], context=512)
    layout = Layout(tensor=row["gpus"])
    found = timing.decode(models.find(row["model"]), job, layout, cards.known()[row["card"]])
    # Rates were read to two digits: the ends of the range are no walls.
    assert found.low < found.value < found.high < 2.5 * found.low
    assert found.low * 0.9 <= row["tokens_per_second"] <= found.high * 1.1


def test_a_large_batch_is_bound_by_products_and_not_by_bandwidth() -> None:
    shape, card = models.find("llama-3.1-8b"), cards.known()["H100 SXM5 80GB"]
    one, many, more = (
        timing.decode(shape, memory.Inference(context=128, batch=batch), Layout(), card).value
        for batch in (1, 4096, 8192)
    )
    assert many > 100 * one
    assert more == pytest.approx(many, rel=0.1)


def test_the_latent_vector_is_read_by_every_card() -> None:
    """DeepSeek-V3 over two cards: each reads half of the weights, and all of the cache."""
    shape, job = models.find("deepseek-v3"), memory.Inference(context=100_000, batch=64)
    weights = timing.read_parameters(shape, 64) * 2
    cache = 61 * 576 * 2 * 100_000 * 64
    found = timing.decode(shape, job, Layout("single", 1, 2), H100)
    assert 64 / found.value == pytest.approx((weights / 2 + cache) / (3350e9 * 0.65) + 2 * 61 * 15e-6)


def test_a_batch_goes_through_more_experts_than_a_token() -> None:
    shape = models.find("mixtral-8x7b")
    one, many = (timing.read_parameters(shape, batch) for batch in (1, 1000))
    assert one == pytest.approx(architecture.active(shape))
    assert many == pytest.approx(architecture.parameters(shape) - architecture.embedding(shape), rel=0.01)


# what a step waits for --------------------------------------------------------------------------------

H100 = cards.known()["H100 SXM5 80GB"]
RTX = cards.known()["GeForce RTX 4090"]
A100 = cards.known()["A100 SXM4 80GB"]


def test_gradients_go_around_once() -> None:
    """7 B parameters, 2 bytes, over 8 cards: 2 · 7/8 of 14 GB leave each card, at 450 GB/s of NVLink one way."""
    shape = models.find("7B")
    job = memory.Training(batch=8, context=2048)
    half = Range(0.5, 0.5, 0.5)
    found = timing.step(shape, job, Layout("ddp", 8), H100, half)
    assert found["sending"] == pytest.approx(2 * 7 / 8 * 14e9 / 450e9)
    flops = timing.training_flops(shape, job) * 8 * 2048
    assert found["computing"] == pytest.approx(flops / (8 * 989.4e12 * 0.5))
    assert timing.step(shape, job, Layout("single", 1, 8), H100, half)["sending"] == 0
    assert timing.step(shape, job, Layout("ddp", 4, 2), H100, half)["sending"] == pytest.approx(2 * 3 / 4 * 7e9 / 450e9)
    assert timing.step(shape, memory.Training(kind="lora", batch=8), Layout("ddp", 8), H100, half)["sending"] == 0


def test_cards_are_tied_by_nvlink_a_slot_or_the_network() -> None:
    assert H100.link(8) == 450e9
    assert H100.link(16) == 50e9
    assert A100.link(8) == 300e9
    assert A100.link(16) == 25e9
    # A 4090 has no NVLink: PCIe 4 x16 is 31.5 GB/s, of which four fifths arrive; and no machine of it has a faster network.
    assert RTX.link(8) == pytest.approx(16 * 1.969e9 * 0.8)
    assert RTX.link(16) == 12.5e9


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("H100 SXM5 80GB", "fp8", 1979),
        ("A100 SXM4 80GB", "fp8", 312),
        ("Tesla V100 SXM2 16GB", "bf16", 125),
        ("GeForce GTX 1060 6GB", "bf16", 4.4),
    ],
)
def test_without_a_precision_the_next_wider_one_computes(name: str, precision: str, tflops: float) -> None:
    assert cards.known()[name].peak(precision) == pytest.approx(tflops * 1e12, rel=0.02)


def test_the_first_token_waits_for_the_whole_prompt() -> None:
    """8.03 B parameters, 8192 tokens: 2 · 7.5e9 · 8192 FLOPs and attention, at half of 989 TFLOPS."""
    shape = models.find("llama-3.1-8b")
    found = timing.prefill(shape, memory.Inference(context=8192), Layout(), H100)
    assert found.value == pytest.approx(architecture.forward_flops(shape, 8192) * 8192 / (989.4e12 * 0.5))
    assert 0.2 < found.value < 0.4
    assert found.low < found.value < found.high


def test_cards_that_share_a_layer_wait_for_each_other_twice_in_it() -> None:
    shape, job = models.find("llama-3.1-8b"), memory.Inference(context=1)
    one, two = (1 / timing.decode(shape, job, Layout("single", 1, tensor), H100).value for tensor in (1, 2))
    assert two == pytest.approx(one / 2 + 2 * 32 * 15e-6)
    assert 1 / timing.decode(shape, job, Layout("single", 1, 1, 2), H100).value == pytest.approx(one / 2)

"""Memory against what papers, model cards and tools print of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwright.sizing import architecture, config, formats, memory, models
from gpuwright.sizing.architecture import Architecture
from gpuwright.sizing.layout import Layout
from gpuwright.sizing.units import GB, GIB

from .conftest import published
from .test_activations import SEEN

STATEMENTS = published()["memory"]


def said(row: dict[str, Any]) -> float:
    """The bytes that a source prints."""
    if "bytes" in row:
        return float(row["bytes"])
    return float(row["gib"] * GIB if "gib" in row else row["gb"] * GB)


def of(**what: object) -> list[dict[str, Any]]:
    return [row for row in STATEMENTS if all(row.get(key) == value for key, value in what.items())]


def names(row: dict[str, Any]) -> str:
    return str(row["name"])


def states(found: memory.Memory) -> float:
    return sum(found.of(name) for name in ("weights", "gradients", "optimizer"))


def plain(parameters: float) -> Architecture:
    return replace(models.find("7B"), told=parameters)


# what training keeps of each parameter ----------------------------------------------------------------

ZERO = [row for row in of(what="model_states", per="gpu", basis="formula") if row["name"].startswith("ZeRO")]


@pytest.mark.parametrize("row", ZERO, ids=names)
def test_model_states_are_those_of_the_zero_paper(row: dict[str, Any]) -> None:
    strategy = ["ddp", "zero1", "zero2", "zero3"][row["zero"]]
    found = memory.training(plain(row["parameters"]), memory.Training(), Layout(strategy, row["gpus"]))
    # The paper prints two digits of the smallest.
    assert states(found) == pytest.approx(said(row), rel=0.03)


@pytest.mark.parametrize(
    ("scheme", "optimizer", "each"),
    [
        ("mixed", "adamw", 16),  # ZeRO, section 3.1
        ("megatron", "adamw", 18),  # BLOOM, Megatron-LM
        ("fp32", "adamw", 16),
        ("fp32", "sgd", 8),
        ("fp32", "sgd-momentum", 12),
        ("bf16", "adamw", 8),
        ("fp32", "adamw-8bit", 10.03),  # two states of a byte, a scale of 4 bytes for 256 of each
    ],
)
def test_training_keeps_so_many_bytes_of_a_parameter(scheme: str, optimizer: str, each: float) -> None:
    job = memory.Training(scheme=formats.SCHEMES[scheme], optimizer=optimizer)
    assert states(memory.training(plain(1e9), job, Layout())) / 1e9 == pytest.approx(each, rel=0.001)


# activations ------------------------------------------------------------------------------------------

KORTHIKANTI = [
    row for row in of(what="activations", per="layer", bound="exact") if "hidden" in row and not row.get("layout")
]


@pytest.mark.parametrize("row", KORTHIKANTI, ids=names)
def test_a_layer_of_a_gpt_keeps_what_korthikanti_et_al_count(row: dict[str, Any]) -> None:
    shape = replace(
        models.find("gpt2"),
        hidden=row["hidden"],
        heads=row["heads"],
        kv_heads=row["heads"],
        head_dim=row["hidden"] // row["heads"],
        intermediate=4 * row["hidden"],
        dropout=0.1,
    )
    job = memory.Training(context=row["context"], recompute=row["recompute"], flash=False, fused=True)
    one, two = (memory.activations(shape, job, layers=layers, last=False) for layers in (1, 2))
    assert (two - one) * row["context"] * row["batch"] == pytest.approx(said(row), rel=0.02)


def test_there_is_something_to_hold_against() -> None:
    assert len(ZERO) >= 20
    assert len(KORTHIKANTI) >= 6
    assert len(CACHES) >= 8
    assert len(STORED) >= 10
    assert len(TUNED) >= 8


# inference --------------------------------------------------------------------------------------------

# One source counts 16 KV heads for Llama 3.1 405B, which has 8: its config.json.
CACHES = [row for row in of(what="kv_cache") if row.get("kv_heads") != 16]


@pytest.mark.parametrize("row", CACHES, ids=names)
def test_the_kv_cache_is_as_large_as_published(row: dict[str, Any]) -> None:
    job = memory.Inference(context=row["context"], batch=row["batch"])
    found = memory.inference(models.find(row["model"]), job, Layout()).of("KV cache")
    assert found == pytest.approx(said(row), rel=0.05)


_NAMES = {"f16": "fp16", "bf16": "bf16", "fp16": "fp16", "q8_0": "q8_0", "q4_k_m": "q4_k_m"}
STORED = [
    row
    for row in of(what="weights", per="all")
    if row["precision"] in _NAMES and "layer" not in row["name"] and row.get("model")
]


@pytest.mark.parametrize("row", STORED, ids=names)
def test_weights_take_what_was_measured(row: dict[str, Any]) -> None:
    job = memory.Inference(weights=formats.FORMATS[_NAMES[row["precision"]]])
    found = memory.inference(models.find(row["model"]), job, Layout()).of("weights")
    assert found == pytest.approx(said(row), rel=0.05)


def test_multi_head_latent_attention_keeps_one_vector() -> None:
    """DeepSeek-V2's paper (arXiv:2405.04434, table 1): 512 + 64 elements a token and layer."""
    assert architecture.kept_width(models.find("deepseek-v3")) == 576


# training as people measured it -----------------------------------------------------------------------

# QLoRA and LoRA of Llama 2 7B over all matrices, recomputed, by context; and torchtune's plain training of Llama 3.2 3B.
TUNED = [row for row in of(what="training", basis="measured", bound="about") if row["name"].startswith("Llama 2 7B")]
TUNED += [row for row in STATEMENTS if row["name"] == "torchtune Llama 3.2 3B, packed"]


@pytest.mark.parametrize("row", TUNED, ids=names)
def test_what_was_measured_lies_within_our_range(row: dict[str, Any]) -> None:
    job = memory.Training(
        kind=row["method"],
        scheme=formats.SCHEMES["bf16"],
        context=row["context"],
        batch=row["batch"],
        micro=row["batch"],
        recompute=row.get("recompute", "full"),
        rank=row.get("lora_rank", 16),
    )
    found = memory.training(models.find(row["model"]), job, Layout())
    assert found.low <= said(row) <= found.high
    assert found.value == pytest.approx(said(row), rel=0.15)


@pytest.mark.parametrize(
    ("model", "kind", "card", "fits"),
    [
        # QLoRA's abstract: 65B on a card of 48 GB, 33B on one of 24 GB; and what LoRA and full training of 7B do not fit on.
        ("llama-65b", "qlora", 48, "yes"),
        ("llama-30b", "qlora", 24, "yes"),
        ("llama-65b", "lora", 80, "no"),
        ("llama-7b", "full", 80, "no"),
        ("llama-7b", "lora", 24, "yes"),
    ],
)
def test_what_fits_on_one_card_is_what_people_found_to_fit(model: str, kind: str, card: int, fits: str) -> None:
    job = memory.Training(
        kind=kind, scheme=formats.SCHEMES["bf16" if kind != "full" else "mixed"], context=512, recompute="full"
    )
    found = memory.training(models.find(model), job, Layout())
    assert (found.value <= card * GIB) is (fits == "yes")


# LoRA, pipelines, experts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "trained"), [("llama", 290816), ("qwen2", 290816), ("gemma", 331776), ("opt", 294912), ("phi", 294912)]
)
def test_lora_of_rank_16_trains_what_peft_says(model: str, trained: int) -> None:
    """As PEFT 0.21.2 counts them for the models of kept.yaml with target_modules="all-linear"."""
    assert memory.adapters(config.read(SEEN["configs"][model], model), 16) == trained


def test_lora_beside_experts_is_beside_each_of_them() -> None:
    shape = models.find("mixtral-8x7b")
    attention = 32 * ((4096 + 4096) + 2 * (4096 + 1024) + (4096 + 4096))
    assert memory.adapters(shape, 8) == 8 * (attention + 32 * 8 * 3 * (4096 + 14336))


def test_the_last_stage_of_a_pipeline_has_the_output_layer_and_the_first_the_embedding() -> None:
    shape = models.find(
        "llama-3.1-8b"
    )  # 32 layers of 218,112,000, an embedding and an output layer of 525,336,576 each
    between = 32 * 218_112_000 + 4096
    ends = [
        memory.stage_parameters(shape, Layout("single", 1, 1, 4), first=first, last=not first)
        for first in (True, False)
    ]
    assert ends == [pytest.approx(between / 4 + 525_336_576, rel=1e-6)] * 2
    middle = memory.stage_parameters(shape, Layout("single", 1, 2, 4), first=False, last=False)
    assert middle == pytest.approx(between / 8, rel=1e-6)
    # 32 layers over 5 stages: 7 in the fullest.
    assert memory.stage_parameters(shape, Layout("single", 1, 1, 5), first=False, last=False) == pytest.approx(
        between * 7 / 32, rel=1e-6
    )


def test_a_tied_output_layer_is_in_the_last_stage_too() -> None:
    shape = models.find("gpt2")
    first, last = (
        memory.stage_parameters(shape, Layout("single", 1, 1, 2), first=each, last=not each) for each in (True, False)
    )
    assert first == last


def test_qlora_stores_matrices_in_four_bits_and_the_rest_in_sixteen() -> None:
    """Llama 3.1 8B: 6.98 B parameters in matrices, 1.05 B in the embedding and the output layer."""
    shape = models.find("llama-3.1-8b")
    linear = architecture.linear(shape)
    assert linear == 32 * 218_103_808
    held = memory.training(shape, memory.Training(kind="qlora", rank=1), Layout())
    own = memory.adapters(shape, 1)
    stored = linear * formats.FORMATS["nf4"].bits / 8 + (8_030_261_248 - linear) * 2 + own * 2
    assert held.of("weights") == pytest.approx(stored)
    half = memory.training(shape, memory.Training(kind="qlora", rank=1), Layout("single", 1, 2))
    assert half.of("weights") == pytest.approx(stored / 2)


def test_lora_beside_experts_and_dense_layers_is_beside_all() -> None:
    shape = models.find("mixtral-8x7b")
    assert shape.experts is not None
    some = replace(shape, experts=replace(shape.experts, dense_layers=2))
    routed, plain_mlp = 8 * 3 * (4096 + 14336), 3 * (4096 + 14336)
    assert memory.adapters(shape, 1) - memory.adapters(some, 1) == 2 * (routed - plain_mlp)


def test_the_first_stage_keeps_as_many_micro_batches_as_there_are_stages() -> None:
    shape = models.find("llama-3.1-8b")
    job = memory.Training(batch=16)
    one = memory.training(shape, job, Layout()).of("activations")
    four = memory.training(shape, job, Layout("single", 1, 1, 4)).of("activations")
    assert four == pytest.approx(one, rel=0.1)  # a quarter of the layers, four times; the logits are in the last stage
    few = memory.training(shape, replace(job, batch=2), Layout("single", 1, 1, 4)).of("activations")
    assert few == pytest.approx(one / 2, rel=0.1)


def test_latent_attention_keeps_what_it_is_made_of() -> None:
    """DeepSeek-V3: queries and keys of 192, values of 128 twice, for 128 heads; and 1536 and 512 before and behind their norms."""
    shape = models.find("deepseek-v3")
    plain = replace(shape, latent=None, head_dim=1, heads=1, kv_heads=1)
    with_latent, without = (
        memory.activations(each, memory.Training(), layers=1, last=False) for each in (shape, plain)
    )
    attention = 2 * (128 * (192 + 192 + 128 + 128) + 2 * (1536 + 512))
    assert with_latent - without == pytest.approx(attention - 2 * 4)


def test_cards_that_share_weights_gather_two_layers_at_a_time() -> None:
    shape = plain(32e9)
    layers = shape.layers
    found = memory.training(shape, memory.Training(), Layout("zero3", 8))
    assert found.of("weights for a step") == pytest.approx(2 * 32e9 / layers * 2)
    assert memory.training(shape, memory.Training(), Layout("zero2", 8)).of("weights for a step") == 0
    assert (
        memory.training(shape, memory.Training(scheme=formats.SCHEMES["amp"]), Layout()).of("weights for a step")
        == 32e9 * 2
    )


def test_gradients_are_summed_in_buckets() -> None:
    job = memory.Training()
    assert memory.training(plain(1e8), job, Layout("ddp", 2)).of("reduction") == 1e8 * 2
    assert memory.training(plain(1e10), job, Layout("ddp", 2)).of("reduction") == 5e8 * 2
    assert memory.training(plain(1e10), job, Layout()).of("reduction") == 0


def test_heads_of_the_kv_cache_are_whole_on_each_card() -> None:
    shape, job = models.find("llama-3.1-8b"), memory.Inference(context=1024)
    caches = [memory.inference(shape, job, Layout("single", 1, tensor)).of("KV cache") for tensor in (1, 2, 8, 16)]
    assert [cache / caches[0] for cache in caches] == [1, 1 / 2, 1 / 8, 1 / 8]
    assert memory.inference(shape, replace(job, cache=1), Layout()).of("KV cache") == caches[0] / 2
    latent = models.find("deepseek-v3")
    assert len({memory.inference(latent, job, Layout("single", 1, tensor)).of("KV cache") for tensor in (1, 8)}) == 1

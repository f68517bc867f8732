"""Memory against what papers, model cards and tools print of it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from gpuwright.sizing import answer, architecture, cards, config, fitting, formats, memory, models, timing
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
        ("amp", "adamw", 16),
        ("fp8", "adamw", 18),
        ("mixed", "lion", 12),  # one number where AdamW has two
        ("mixed", "adafactor", 8.01),  # the weights twice, gradients, and a row and a column for each matrix
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
    assert architecture.kept(models.find("deepseek-v3"), 1) == 61 * 576


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


def test_scales_that_are_quantised_again_take_an_eighth_of_a_bit() -> None:
    """QLoRA (arXiv:2305.14314), section 3: 0.5 bits a parameter become 0.127."""
    assert formats.FORMATS["nf4"].bits == pytest.approx(4.127, abs=0.0005)


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


# engines ----------------------------------------------------------------------------------------------


def held(engine: str, layout: Layout | None = None, model: str = "llama-3.1-8b", **more: Any) -> memory.Memory:
    return memory.inference(models.find(model), memory.Inference(engine=engine, **more), layout or Layout())


def test_transformers_copies_a_layers_cache_while_it_grows() -> None:
    assert held("transformers").of("KV cache") == held("vllm").of("KV cache") * 33 / 32


@pytest.mark.parametrize(
    ("engine", "batch", "tokens"),
    [("trt-llm", 1, 8192), ("trt-llm", 4, 8192), ("llama.cpp", 4, 512), ("transformers", 4, 32_768)],
)
def test_so_many_tokens_of_prompts_go_through_at_once(engine: str, batch: int, tokens: int) -> None:
    part = next(each for each in held(engine, batch=batch).parts if each.name == "activations")
    widest = (2 * 4096 + 3 * 14_336) * 2
    assert part.value == tokens * widest + batch * 128_256 * 4
    assert (part.low, part.high) == (part.value / 2, part.value * 2)
    assert f"over {tokens} tokens" in part.text


#: The peak of activations in GiB as vLLM logs it where it starts: a model, cards, tokens of a sequence at most; where it was told.
STARTED = [
    ("llama-3-8b", 1, 8192, 1.26, "github vllm-project/vllm#10511"),
    ("llama-3-8b", 2, 8192, 1.26, "github vllm-project/vllm#10511"),
    ("qwen2.5-7b", 1, 4096, 1.42, "github vllm-project/vllm#13882"),
    ("qwen2.5-32b", 2, 10_000, 1.26, "github vllm-project/vllm#15815"),
]


@pytest.mark.parametrize(("model", "cards", "context", "seen", "source"), STARTED)
def test_vllm_tries_the_choice_of_many_tokens_as_it_starts(
    model: str, cards: int, context: int, seen: float, source: str
) -> None:
    part = held("vllm", Layout(tensor=cards), model, context=context).parts[2]
    assert part.value / GIB == pytest.approx(seen, rel=0.15), source
    assert part.high >= part.value == 256 * models.find(model).vocabulary * 39


def test_what_chooses_no_token_reserves_nothing_for_it() -> None:
    part = held("vllm", model="bert-base-uncased", context=512).of("activations")
    assert part == 512 * (2 * 768 + 2 * 3072) * 2 + 30_522 * 4
    # Half of a prompt's pass is the least: with fewer sequences the choice is none.
    assert held("vllm", context=1024).parts[2].low == (1024 * (2 * 4096 + 3 * 14_336) * 2 + 128_256 * 4) / 2


def test_without_a_gate_two_matrices_pass_a_token_on() -> None:
    """GPT-2: 768 wide, an MLP of 3072, 50,257 tokens."""
    assert held("trt-llm", model="gpt2", context=1024).of("activations") == 1024 * (2 * 768 + 2 * 3072) * 2 + 50_257 * 4


def test_cards_that_share_a_layer_share_what_passes_through_its_mlp() -> None:
    part = held("trt-llm", Layout(tensor=4)).of("activations")
    assert part == 8192 * (2 * 4096 + 3 * 14_336 / 4) * 2 + 128_256 * 4


def test_what_is_shared_without_nccl_needs_no_buffers_of_it() -> None:
    """vLLM's cards sum each layer over NCCL; llama.cpp's hand a token on (a 13B in 4 bits ran on four cards of 3 GB, llama#425)."""
    over = Layout(pipeline=4)
    alone = held("llama.cpp").of("CUDA and NCCL")
    assert alone == held("vllm").of("CUDA and NCCL") == 0.8 * GIB
    assert held("llama.cpp", over).of("CUDA and NCCL") == alone
    assert held("vllm", over).of("CUDA and NCCL") == alone + 0.5 * GIB
    around = held("vllm", over).parts[-1]
    assert (around.low, around.high) == (0.4 * GIB, 2.6 * GIB)


def test_a_dense_layer_on_the_host_takes_its_weights_and_its_cache_along() -> None:
    plain, quarter = held("llama.cpp"), held("llama.cpp", host_layers=8)
    shape = models.find("llama-3.1-8b")
    moved = architecture.linear(shape) / 4 * 2
    assert (
        plain.of("weights") - quarter.of("weights")
        == moved
        == memory.host_bytes(shape, memory.Inference(host_layers=8))
    )
    assert quarter.of("KV cache") == plain.of("KV cache") * 3 / 4
    assert "without 8 layers that are on the host" in quarter.parts[0].text
    assert "on the host" not in plain.parts[0].text


def test_of_a_mixture_the_experts_are_on_the_host_and_the_cache_stays() -> None:
    """Mixtral 8x7B: eight experts of three matrices of 4096 × 14336 in each of 32 layers, of which a token goes through two."""
    shape, expert = models.find("mixtral-8x7b"), 3 * 4096 * 14_336 * 2
    job = memory.Inference(host_layers=5)
    assert memory.host_bytes(shape, job) == 5 * 8 * expert
    assert memory.host_bytes(shape, job, active=True) == pytest.approx(5 * 2 * expert)
    many = memory.host_bytes(shape, memory.Inference(host_layers=5, batch=100), active=True)
    assert many == pytest.approx(5 * 8 * expert, rel=1e-6)
    assert memory.host_bytes(shape, memory.Inference(host_layers=99)) == 32 * 8 * expert
    assert memory.host_bytes(shape, memory.Inference(), active=True) == 0
    plain, some = (held("llama.cpp", model="mixtral-8x7b", host_layers=layers) for layers in (0, 5))
    assert plain.of("KV cache") == some.of("KV cache")
    assert plain.of("weights") - some.of("weights") == 5 * 8 * expert


def test_each_keeps_as_much_as_the_longest_where_nothing_is_paged() -> None:
    def text(engine: str, batch: int) -> str:
        return next(part.text for part in held(engine, batch=batch).parts if part.name == "KV cache")

    assert text("llama.cpp", 4) == "4 sequences of 8192 tokens, 16 bits an element; each keeps as much as the longest"
    assert text("vllm", 4) == "4 sequences of 8192 tokens, 16 bits an element"
    assert "longest" not in text("llama.cpp", 1)


@pytest.mark.parametrize(("each", "bits"), [(2, "16"), (1, "8"), (0.5625, "4.5")])
def test_a_cache_of_fewer_bits_is_as_much_smaller(each: float, bits: str) -> None:
    found = held("vllm", cache=each)
    assert found.of("KV cache") == held("vllm").of("KV cache") * each / 2
    assert f"{bits} bits an element" in found.parts[1].text


def test_what_fits_is_told_by_the_ends_of_the_range() -> None:
    found = memory.Memory((memory.Part("any", 1, 2, 3, ""), memory.Part("more", 1, 1, 2, "")))
    assert (found.low, found.value, found.high) == (2, 3, 5)
    assert [memory.fits(found, room) for room in (5, 4.9, 3, 2.9)] == ["yes", "tight", "tight", "no"]
    assert memory.largest(found.parts).name == "any"
    assert found.of("nothing") == 0


def test_a_matrix_of_qlora_is_there_in_sixteen_bits_while_it_is_multiplied_by() -> None:
    """The largest of Llama 3.1 8B: 4096 by 14336, of which each of two cards that share it has a half."""
    shape = models.find("llama-3.1-8b")

    def copied(kind: str, layout: Layout) -> float:
        return memory.training(shape, memory.Training(kind=kind), layout).of("weights for a step")

    assert copied("qlora", Layout()) - copied("lora", Layout()) == 4096 * 14_336 * 2
    half = Layout("single", 1, 2)
    assert copied("qlora", half) - copied("lora", half) == 4096 * 14_336


@pytest.mark.parametrize(("fused", "least"), [(False, 0.65), (True, 0.85)])
def test_fused_kernels_leave_less_that_others_would_not_keep(fused: bool, least: float) -> None:
    held_by = memory.training(models.find("llama-3.1-8b"), memory.Training(fused=fused), Layout())
    part = next(each for each in held_by.parts if each.name == "activations")
    assert part.low == pytest.approx(part.value * least)
    assert part.high == pytest.approx(part.value * 1.15)


def test_behind_the_layers_an_adapter_keeps_no_input_of_the_output_layer() -> None:
    """It is frozen, and needs no gradient: the input of the last norm in 32 bits is left, and the logits as floats."""
    shape = models.find("llama-3.1-8b")

    def behind(kind: str) -> float:
        job = memory.Training(kind=kind)
        return memory.activations(shape, job, layers=1) - memory.activations(shape, job, layers=1, last=False)

    assert behind("lora") == 4 * 4096 + 4 * 128_256
    # Trained in full it is kept in 16 bits, and so is what the norm made before its scale.
    assert behind("full") == behind("lora") + 2 * 4096 + 2 * 4096


@pytest.mark.parametrize(
    "made",
    [
        *(memory.Part("any", 1, 1, 1, ""), memory.Memory(), memory.Training(), memory.Inference(), Layout()),
        *(timing.Measured(), timing.Step(1, 1, 1, 1), answer.Question("7B", memory.Inference())),
        fitting.Found(cards.known()["A10"], Layout(), memory.Training(), memory.Memory()),
        fitting.Wanted(models.find("7B"), memory.Training()),
    ],
    ids=lambda made: str(type(made).__name__),
)
def test_what_a_search_shares_between_cards_cannot_be_changed(made: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(made, fields(made)[0].name, None)


def test_one_sequence_is_trained_on_at_once_where_nobody_says() -> None:
    assert (memory.Training().batch, memory.Training().micro) == (1, 1)


def test_of_a_pipeline_the_fullest_stage_counts_and_no_stage_is_both_of_its_ends() -> None:
    """Of four stages the first keeps four micro-batches and has no logits; where there is one micro-batch the last is the fullest."""
    shape, layout = models.find("llama-3.1-8b"), Layout(pipeline=4)
    many, one = (memory.training(shape, memory.Training(batch=batch), layout) for batch in (64, 1))
    first = memory.activations(shape, memory.Training(), layers=8 * 4, last=False) * 2048
    last = memory.activations(shape, memory.Training(), layers=8) * 2048
    assert (many.of("activations"), many.of("loss")) == (first, 0)
    assert (one.of("activations"), one.of("loss")) == (last, 8 * 128_256 * 2048)
    assert many.value > one.value


def test_who_says_no_rank_trains_with_sixteen() -> None:
    shape = models.find("llama-3.1-8b")
    held_by = memory.training(shape, memory.Training(kind="lora"), Layout())
    assert held_by.of("gradients") == memory.adapters(shape, 16) * 2


@pytest.mark.parametrize(("model", "ways"), [("llama-3.1-8b", 2), ("gpt2", 1)])
def test_each_matrix_of_lora_keeps_what_it_makes_in_32_bits(model: str, ways: int) -> None:
    """Of a layer three matrices of attention, its output and those of the MLP; a gate is one more."""
    shape = models.find(model)

    def each(rank: int) -> float:
        job = memory.Training(kind="lora", rank=rank)
        one, two = (memory.activations(shape, job, layers=layers, last=False) for layers in (1, 2))
        return two - one

    assert each(24) - each(16) == 4 * (5 + ways) * 8


def test_layers_with_experts_and_without_keep_each_their_own() -> None:
    """DeepSeek-V3: three of 61 layers are dense."""
    shape = models.find("deepseek-v3")
    assert shape.experts is not None

    def kept(some: Architecture) -> float:
        one, two = (memory.activations(some, memory.Training(), layers=layers, last=False) for layers in (1, 2))
        return two - one

    none, three, every = (
        kept(replace(shape, experts=replace(shape.experts, dense_layers=dense))) for dense in (0, 3, 61)
    )
    assert none != every == kept(replace(shape, experts=None))
    assert three == pytest.approx((3 * every + 58 * none) / 61, rel=1e-12)


def test_cards_that_share_a_layer_share_what_it_keeps_and_the_logits() -> None:
    shape = models.find("llama-3.1-8b")
    one, two = (memory.training(shape, memory.Training(), layout) for layout in (Layout(), Layout(tensor=2)))
    for name in ("activations", "loss"):
        assert two.of(name) == one.of(name) / 2
    assert one.of("loss") == 8 * 128_256 * 2048


def test_logits_and_buckets_may_not_be_there_at_all_or_be_larger() -> None:
    held_by = memory.training(models.find("llama-3.1-8b"), memory.Training(), Layout("ddp", 2))
    parts = {part.name: part for part in held_by.parts}
    for name, most in (("loss", 1.25), ("reduction", 2)):
        assert (parts[name].low, parts[name].high) == (0, parts[name].value * most)


def test_of_a_shape_that_is_told_by_its_parameters_all_of_them_are_in_the_stages() -> None:
    """33 layers over three stages; the embedding of 32,000 words comes on top in the first."""
    shape, layout = models.find("7B"), Layout(pipeline=3)
    middle, first = (memory.stage_parameters(shape, layout, first=first, last=False) for first in (False, True))
    assert middle == pytest.approx(7e9 / 3)
    assert first == pytest.approx(7e9 / 3 + 32_000 * shape.hidden)


def kept_of_a_layer(shape: Architecture, **job: Any) -> float:
    one, two = (memory.activations(shape, memory.Training(**job), layers=layers, last=False) for layers in (1, 2))
    return two - one


def test_a_norm_more_keeps_its_input_and_only_two_have_matrices_behind_them() -> None:
    """GPT-2, 768 wide in 16 bits: with one norm attention and the MLP have one input."""
    one, two, four = (kept_of_a_layer(replace(models.find("gpt2"), norms=norms)) for norms in (1, 2, 4))
    assert two - one == 2 * 768 + 2 * 768
    assert four - two == 2 * (2 * 768)


def test_fused_kernels_keep_one_tensor_of_a_gated_mlp_less_and_no_wide_copies_of_a_norm() -> None:
    """Llama: of two norms 4 bytes for the wide input and 2 for the result become 2; of an MLP of 14336 the product is not kept."""
    shape = models.find("llama-3.1-8b")
    less = kept_of_a_layer(shape) - kept_of_a_layer(shape, fused=True)
    assert less == 2 * (4 + 2 - 2) * 4096 + 2 * 14_336

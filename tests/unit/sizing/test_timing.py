"""FLOPs, days and rates against what was published, and what a step waits for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuwright.sizing import architecture, cards, engines, formats, layout, memory, models, speeds, tables, timing
from gpuwright.sizing.figures import Range, exactly
from gpuwright.sizing.fitting import Found
from gpuwright.sizing.layout import Layout
from gpuwright.sizing.units import DAY, GB

from . import published
from .published import name as names

if TYPE_CHECKING:
    from collections.abc import Iterable

HOUR = 3600
RUNS = published.tables()["rows"]
CHOSEN, APART = published.split(published.timed())
RATES, RATES_APART = published.split(published.rated())
#: Within this factor of what was published an estimate is right.
NEAR = 1.5

# FLOPs ------------------------------------------------------------------------------------------------

# Six times parameters and tokens, the work of the model with attention, or that of the hardware, which computes forward passes twice.
# Gopher's is the budget of Chinchilla too, 14 % above six times parameters and tokens.
COUNTED = [row for row in RUNS if row.get("flops") and row["name"] != "Gopher 280B"]


@pytest.mark.parametrize("row", COUNTED, ids=names)
def test_the_flops_of_a_run_are_those_that_were_published(row: dict[str, Any]) -> None:
    shape, job = published.told_shape(row), published.job(row)
    each = timing.training_flops(shape, job)
    if row["flops_count"] == "6nd":
        each -= 3 * architecture.attention_flops(shape, job.context)
    if row["flops_count"] == "hardware":
        each = timing.hardware_flops(shape, replace(job, recompute="full"))
    assert each * row["tokens"] == pytest.approx(row["flops"], rel=0.1)


def test_there_are_enough_of_them() -> None:
    assert len(COUNTED) >= 15
    assert len(TOLD) >= 8
    assert len(APART) >= 180
    assert len(RATES_APART) >= 85
    assert {published.card(row).architecture for row in APART} >= {"Volta", "Ampere", "Ada", "Hopper", "Blackwell"}


def test_attention_looks_at_the_half_that_stands_before() -> None:
    """GPT-2: 12 layers, 12 heads of 64; over 1024 tokens each looks at 512 on average, by two products of two FLOPs."""
    assert architecture.attention_flops(models.find("gpt2"), 1024) == 12 * 512 * 2 * 2 * 768


def test_lora_computes_two_passes_of_three_and_layers_that_are_computed_again_are_one_more() -> None:
    shape = models.find("llama-2-7b")
    full, lora = (timing.training_flops(shape, memory.Training(kind=kind)) for kind in ("full", "lora"))
    assert lora == pytest.approx(full * 2 / 3)
    for kind, passes in (("full", 4 / 3), ("lora", 3 / 2)):
        job = memory.Training(kind=kind, recompute="full")
        assert timing.hardware_flops(shape, job) == pytest.approx(timing.training_flops(shape, job) * passes)
        assert timing.hardware_flops(shape, memory.Training(kind=kind)) == timing.training_flops(shape, job)


# days -------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("row", TOLD, ids=names)
def test_days_with_their_own_utilisation_are_theirs(row: dict[str, Any]) -> None:
    again = 0.75 if row.get("tflops_count") == "hardware" and row.get("recompute") == "full" else 1
    peak = published.card(row).peak(published.job(row).scheme.precision)
    share = row.get("mfu") or row["tflops_per_gpu"] * 1e12 * again / peak
    flops = timing.training_flops(published.told_shape(row), published.job(row)) * row["tokens"]
    found = timing.training_time(flops, row["gpus"], peak, exactly(share))
    assert found.value / HOUR * row["gpus"] == pytest.approx(published.hours(row), rel=0.1)


def estimate(row: dict[str, Any]) -> Range:
    """Days of a run, as a factor of those that were published."""
    job, shape, card = published.job(row), published.shape(row), published.card(row)
    busy = timing.efficiency(card, shape, job, published.gpus(row))
    ours = timing.training_time(timing.hardware_flops(shape, job), 1, card.peak(job.scheme.precision), busy)
    return ours.times(published.tokens_a_second(row) or 0.0)


def share(found: Iterable[bool]) -> float:
    rows = list(found)
    return sum(rows) / len(rows)


def test_days_of_the_runs_that_are_held_apart_are_near_theirs() -> None:
    assert share(1 / NEAR <= estimate(row).value <= NEAR for row in APART) >= 0.85


def test_the_range_holds_nine_of_ten_of_them() -> None:
    assert share(estimate(row).low <= 1 <= estimate(row).high for row in APART) >= 0.9


@pytest.mark.parametrize("generation", ["Volta", "Ampere", "Ada", "Hopper", "Blackwell"])
def test_no_generation_is_told_too_fast_or_too_slow(generation: str) -> None:
    found = [row for row in APART if published.card(row).architecture.startswith(generation)]
    assert found
    assert 0.9 <= published.mean(estimate(row).value for row in found) <= 1.1


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_no_method_is_told_too_fast_or_too_slow(method: str) -> None:
    found = [row for row in APART if published.job(row).kind == method]
    assert len(found) >= 18
    assert 0.9 <= published.mean(estimate(row).value for row in found) <= 1.1


def test_mixtures_are_told_as_well_as_others() -> None:
    found = [row for row in APART if row.get("active_parameters")]
    assert len(found) >= 40
    assert 0.85 <= published.mean(estimate(row).value for row in found) <= 1.15


def test_what_was_chosen_by_runs_is_what_the_calibration_prints(calibrate: Any) -> None:
    table = tables.load()["assumptions"]
    found = calibrate.training(published)
    for row in table["efficiency"]:
        kind = row["architecture"] or ("" if row["datacenter"] else "others")
        if f"{kind} {row['precision']}" in found:
            assert row["value"] == found[f"{kind} {row['precision']}"]
    (factors,) = table["factors"]
    assert {key: factors[key] for key in found if key in factors} == {
        key: found[key] for key in ("moe_16", "moe_fp8", "small", "cards", "qlora")
    }
    assert (factors["low"], factors["high"]) == (found["spread low"], found["spread high"])


@pytest.fixture
def calibrate() -> Any:
    import importlib.util

    path = Path(__file__).resolve().parents[3] / "tools/calibrate.py"
    spec = importlib.util.spec_from_file_location("calibrate", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


H100 = cards.known()["H100 SXM5 80GB"]
RTX = cards.known()["GeForce RTX 4090"]
A100 = cards.known()["A100 SXM4 80GB"]
SEVEN = models.find("llama-2-7b")


def busy(card: cards.Card = H100, shape: Any = SEVEN, number: int = 8, **job: Any) -> float:
    return timing.efficiency(card, shape, memory.Training(**job), number).value


def test_small_models_experts_many_cards_and_weights_in_4_bits_keep_a_card_less_busy() -> None:
    table = tables.load()["assumptions"]["factors"][0]
    tiny, mixture = models.find("gpt2"), models.find("mixtral-8x7b")
    assert busy(shape=tiny) == pytest.approx(
        busy() * (architecture.active(tiny) / architecture.active(SEVEN)) ** table["small"]
    )
    assert busy(shape=mixture) == pytest.approx(busy(shape=models.find("llama-2-70b")) * table["moe_16"])
    fp8: dict[str, Any] = {"scheme": formats.SCHEMES["fp8"]}
    assert busy(shape=mixture, **fp8) == pytest.approx(busy(shape=models.find("llama-2-70b"), **fp8) * table["moe_fp8"])
    assert busy(number=64) == pytest.approx(busy() * 8 ** table["cards"])
    assert busy(number=1) == busy(number=8)
    assert busy(kind="qlora") == pytest.approx(busy(kind="lora") * table["qlora"])
    assert busy(kind="lora") == busy()


def test_cards_for_machines_of_eight_are_told_by_their_generation_and_others_together() -> None:
    known = cards.known()
    assert busy(known["H200 SXM"]) == busy(known["H800 SXM5"]) == busy()
    assert busy(known["GB300"]) == busy(known["B200 SXM"]) != busy()
    assert busy(RTX) == busy(known["RTX A6000"]) != busy(A100)
    # A generation that no run is known of.
    assert busy(known["Tesla T4"]) == busy(known["Tesla P100 SXM2 16GB"]) == busy()


# rates ------------------------------------------------------------------------------------------------


def off(row: dict[str, Any]) -> float:
    return published.rate(row).value / float(row["tokens_per_second"])


@pytest.mark.parametrize("engine", engines.NAMES)
def test_rates_of_an_engine_that_are_held_apart_are_near_theirs(engine: str) -> None:
    by_engine: dict[str, list[float]] = defaultdict(list)
    for row in RATES_APART:
        by_engine[published.generating(row)[1].engine].append(off(row))
    found = by_engine[engine]
    assert len(found) >= 20
    assert 0.85 <= published.mean(found) <= 1.15
    assert share(0.75 <= each <= 1.3 for each in found) >= {"transformers": 0.9}.get(engine, 0.85)


_ALL = [(row, *published.generating(row)[:2]) for row in RATES + RATES_APART]
_WERE_OFF = {
    "large batches": [row for row, _shape, job in _ALL if job.batch > 1],
    "experts on one card": [
        row for row, shape, job in _ALL if job.engine == "llama.cpp" and shape.experts and not job.host_layers
    ],
    "layers on the host": [row for row, _shape, job in _ALL if job.host_layers],
}


@pytest.mark.parametrize("kind", _WERE_OFF)
def test_what_was_far_off_is_near(kind: str) -> None:
    rows = _WERE_OFF[kind]
    assert len(rows) >= 5
    assert 0.75 <= published.mean(map(off, rows)) <= 1.3


def answers(model: str = "llama-3.1-8b", plan: Layout = Layout(), card: cards.Card = H100, **job: Any) -> Range:  # noqa: B008 - frozen
    return timing.decode(models.find(model), memory.Inference(**job), plan, card)


def seconds(**more: Any) -> float:
    found = answers(**more)
    return more.get("batch", 1) / found.value


def test_a_large_batch_is_bound_by_products_and_not_by_bandwidth() -> None:
    shape = models.find("llama-3.1-8b")
    words = [timing.bound(shape, memory.Inference(context=128, batch=batch), Layout(), H100) for batch in (1, 4096)]
    assert words == [
        "a bandwidth of 3,350 GB/s a card, of which weights are read at 92%",
        "tensor cores of 989 TFLOPS a card, of which it reaches 58%",
    ]
    # What was measured to be less counts.
    slow = [
        timing.bound(shape, memory.Inference(context=128, batch=batch), Layout(), H100, 0.5, 0.4) for batch in (1, 4096)
    ]
    assert [text.rpartition(" ")[2] for text in slow] == ["50%", "40%"]
    one, many = (answers(context=128, batch=batch).value for batch in (1, 4096))
    assert many > 50 * one


def test_weights_are_read_while_they_are_multiplied_by_and_the_cache_after_them() -> None:
    engine, shape = engines.called("vllm"), models.find("llama-3.1-8b")
    step = timing.step_of(shape, memory.Inference(context=4096, batch=8), Layout(), H100)
    assert step.reading == pytest.approx(architecture.active(shape) * 2 / 3350e9)
    assert step.caching == pytest.approx(8 * 4096 * 32 * 2 * 8 * 128 * 2 / 3350e9)
    assert step.computing == pytest.approx(8 * architecture.forward_flops(shape, 4096) / 989.4e12)
    assert step.hosting == 0
    whole = max(step.reading / engine.reads, step.computing / engine.computes) + step.caching / engine.caches
    assert seconds(context=4096, batch=8) == pytest.approx(whole + 32 * engine.gap + 8 * engine.sequence)


def test_cards_that_share_a_layer_wait_for_each_other_twice_in_it() -> None:
    one, two = (
        timing.step_of(models.find("llama-3.1-8b"), memory.Inference(context=1), Layout("single", 1, tensor), H100)
        for tensor in (1, 2)
    )
    assert two.reading == pytest.approx(one.reading / 2)
    difference = seconds(context=1) - seconds(context=1, plan=Layout("single", 1, 2))
    assert difference == pytest.approx(
        (one.reading - two.reading) / engines.called("vllm").reads - 2 * 32 * 15e-6, rel=1e-3
    )


def test_cards_of_a_pipeline_take_turns() -> None:
    """One sequence goes through all of them: it is no faster. Several keep cards busy with products and the cache, not with weights."""
    shape, two = models.find("llama-3.1-8b"), Layout("single", 1, 1, 2)
    assert seconds(plan=two) == pytest.approx(seconds())
    alone, both = (timing.step_of(shape, memory.Inference(batch=8), plan, H100) for plan in (Layout(), two))
    assert both.reading == alone.reading
    assert both.caching == pytest.approx(alone.caching / 2)
    assert both.computing == pytest.approx(alone.computing / 2)
    # llama.cpp has one batch, which is on one card at a time.
    turns = timing.step_of(shape, memory.Inference(batch=8, engine="llama.cpp"), two, H100)
    assert turns.caching == alone.caching


def test_the_latent_vector_is_read_by_every_card() -> None:
    """DeepSeek-V3 over two cards: each reads half of the weights, and all of the cache."""
    shape, job = models.find("deepseek-v3"), memory.Inference(context=100_000, batch=64)
    found = timing.step_of(shape, job, Layout("single", 1, 2), H100)
    assert found.reading == pytest.approx(timing.read_parameters(shape, 64) * 2 / 2 / 3350e9)
    assert found.caching == pytest.approx(61 * 576 * 2 * 100_000 * 64 / 3350e9)


def test_a_batch_goes_through_more_experts_than_a_token() -> None:
    shape = models.find("mixtral-8x7b")
    one, many = (timing.read_parameters(shape, batch) for batch in (1, 1000))
    assert one == pytest.approx(architecture.active(shape))
    # All but the embedding, of which a token is one row.
    assert many == pytest.approx(architecture.parameters(shape) - architecture.embedding(shape), rel=1e-6)
    assert architecture.embedding(shape) > 1e-3 * many
    # The second token goes through two of eight too: a quarter of what the first one left out.
    assert timing.read_parameters(shape, 2) == pytest.approx(one + (many - one) / 4)


def test_transformers_starts_each_layer_and_each_expert_from_the_host() -> None:
    engine = engines.called("transformers")
    slow = seconds(engine="transformers", context=1)
    assert slow == pytest.approx(32 * engine.launch * engine.newer)
    assert slow > 1.5 * seconds(context=1)
    mixture = seconds(model="qwen3-30b-a3b", engine="transformers", context=1)
    assert mixture == pytest.approx((48 * engine.launch + 48 * 128 * engine.expert) * engine.newer)
    words = timing.bound(models.find("llama-3.1-8b"), memory.Inference(engine="transformers"), Layout(), H100)
    assert words == "transformers, which starts each layer from the host"
    # Until reading takes longer than starting all layers: of ever wider models at some width.
    for hidden in range(512, 16_384, 512):
        wide = models.find(f"layers=16,hidden={hidden},heads=8")
        step = timing.step_of(wide, memory.Inference(engine="transformers", context=128), Layout(), H100)
        waits = 16 * engine.launch * engine.newer > max(step.reading / engine.reads, step.computing / engine.computes)
        words = timing.bound(wide, memory.Inference(engine="transformers", context=128), Layout(), H100)
        assert words.startswith("transformers") is waits


@pytest.mark.parametrize(
    "generation", ["Kepler", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Rubin"]
)
def test_a_machine_is_as_new_as_its_card(generation: str) -> None:
    """The host of an A100 starts a layer of Qwen2.5 in 0.9 ms, that of an H20 one of Qwen3 in 0.6 ms."""
    engine = engines.called("transformers")
    card = replace(H100, architecture=generation)
    shape, job = models.find("qwen2.5-0.5b"), memory.Inference(engine="transformers", context=1)
    each = 1 / timing.decode(shape, job, Layout(), card).value / shape.layers
    older = generation in ("Kepler", "Volta", "Turing", "Ampere")
    assert each == pytest.approx(engine.launch * (1 if older else engine.newer))


def test_transformers_copies_keys_and_values_for_each_head_of_queries() -> None:
    """Read and written as they grow, read to be repeated, and for each of the heads that share them written and read."""
    engine, card = engines.called("transformers"), replace(A100, bandwidth=A100.bandwidth / 100)
    for shape, times in ((models.find("llama-3.1-8b"), 3 + 2 * 32 / 8), (models.find("llama-2-7b"), 5)):
        job = memory.Inference(engine="transformers", context=4096, batch=2)
        step = timing.step_of(shape, job, Layout(), card)
        whole = step.reading / engine.reads + times * step.caching / engine.caches
        assert 2 / timing.decode(shape, job, Layout(), card).value == pytest.approx(whole)


@pytest.mark.parametrize(("weights", "packed"), [("bf16", False), ("fp32", False), ("int8", True), ("int4", True)])
def test_transformers_unpacks_weights_in_fewer_than_16_bits(weights: str, packed: bool) -> None:
    engine, card = engines.called("transformers"), replace(A100, bandwidth=A100.bandwidth / 100)
    shape = models.find("llama-3.1-8b")
    job = memory.Inference(formats.FORMATS[weights], engine="transformers", context=1)
    step = timing.step_of(shape, job, Layout(), card)
    reads = engine.reads * (engine.unpacks if packed else 1)
    assert 1 / timing.decode(shape, job, Layout(), card).value == pytest.approx(step.reading / reads, rel=1e-3)
    assert timing.bound(shape, job, Layout(), card).endswith(f"of which weights are read at {reads:.0%}")
    for other in ("vllm", "trt-llm", "llama.cpp"):
        assert (engines.called(other).unpacks, engines.called(other).repeats) == (1, False)


def test_what_is_on_the_host_is_read_from_its_memory() -> None:
    """Ten layers of 48 of a mixture: eight of 128 experts of each, and a wait of each layer."""
    host = tables.load()["assumptions"]["host"][0]
    shape, job = models.find("qwen3-30b-a3b"), memory.Inference(formats.FORMATS["q4_k_m"], engine="llama.cpp")
    there = replace(job, host_layers=10)
    read = 10 * 8 * 3 * 2048 * 768 * formats.FORMATS["q4_k_m"].bits / 8
    step = timing.step_of(shape, there, Layout(), RTX, 100 * GB)
    assert step.hosting == pytest.approx(read / (100 * GB))
    here = timing.step_of(shape, job, Layout(), RTX)
    assert step.reading == pytest.approx(here.reading - read / RTX.bandwidth)
    slower = (
        1 / timing.decode(shape, there, Layout(), RTX, host=100 * GB).value
        - 1 / timing.decode(shape, job, Layout(), RTX).value
    )
    saved = read / RTX.bandwidth / engines.called("llama.cpp").reads
    assert slower == pytest.approx(read / (100 * GB) / host["share"] + 10 * host["hop"] - saved)


def test_a_host_that_nobody_names_may_be_any() -> None:
    shape = models.find("qwen3-30b-a3b")
    job = memory.Inference(formats.FORMATS["q4_k_m"], engine="llama.cpp", host_layers=48)
    free, told = (timing.decode(shape, job, Layout(), RTX, host=host) for host in (0.0, 89.6 * GB))
    assert free.value == pytest.approx(told.value)
    assert free.low < told.low
    assert free.high > told.high
    assert timing.bound(shape, job, Layout(), RTX) == "the memory of the host, 90 GB/s as two channels of DDR5"


def test_nothing_is_told_faster_than_it_was_measured() -> None:
    shape, job = models.find("llama-3.1-8b"), memory.Inference(context=1, batch=1)
    slow = timing.decode(shape, job, Layout(), H100, 0.5).value
    assert slow == pytest.approx(
        1 / (timing.step_of(shape, job, Layout(), H100).reading / 0.5 + 32 * 1.35e-4 + 1.05e-4), rel=1e-2
    )
    many = replace(job, batch=4096)
    assert timing.decode(shape, many, Layout(), H100, 0, 0.2).value < timing.decode(shape, many, Layout(), H100).value
    assert timing.prefill(shape, job, Layout(), H100, 0.1).value > timing.prefill(shape, job, Layout(), H100).value


def test_the_first_token_waits_for_the_whole_prompt() -> None:
    """8.03 B parameters, 8192 tokens: 2 · 7.5e9 · 8192 FLOPs and attention, at what vLLM computes of 989 TFLOPS."""
    shape = models.find("llama-3.1-8b")
    found = timing.prefill(shape, memory.Inference(context=8192), Layout(), H100)
    share_of = engines.called("vllm").computes
    assert found.value == pytest.approx(architecture.forward_flops(shape, 8192) * 8192 / (989.4e12 * share_of))
    assert 0.1 < found.value < 0.4
    # At the most that the engine may reach of it, and at the least.
    assert (found.low, found.high) == pytest.approx((found.value / 1.3, found.value / 0.75))
    two = timing.prefill(shape, memory.Inference(context=8192), Layout("single", 1, 2, 2), H100)
    assert two.value == pytest.approx(found.value / 2)


# what a step of training waits for --------------------------------------------------------------------


def sent(plan: Layout, card: cards.Card = H100, in_host: int = 8, **job: Any) -> float:
    return timing.sending(models.find("7B"), memory.Training(**{"batch": 8, **job}), plan, card, in_host)


def test_gradients_go_around_once() -> None:
    """7 B parameters, 2 bytes, over 8 cards: 2 · 7/8 of 14 GB leave each card, at 450 GB/s of NVLink one way."""
    assert sent(Layout("ddp", 8)) == pytest.approx(2 * 7 / 8 * 14e9 / 450e9)
    assert sent(Layout("zero1", 8)) == sent(Layout("zero2", 8)) == sent(Layout("ddp", 8))
    assert sent(Layout("ddp", 4, 1, 2)) == pytest.approx(2 * 3 / 4 * 7e9 / 450e9)
    assert sent(Layout()) == 0
    # LoRA's matrices alone, of rank 16, are a two-hundredth of it.
    assert 0 < sent(Layout("ddp", 8), kind="lora") < sent(Layout("ddp", 8)) / 100


def test_weights_that_are_spread_are_gathered_twice_for_each_micro_batch() -> None:
    assert sent(Layout("zero3", 8)) == pytest.approx(7 / 8 * (14e9 + 2 * 14e9) / 450e9)
    assert sent(Layout("zero3", 8), batch=32) == pytest.approx(7 / 8 * (14e9 + 2 * 4 * 14e9) / 450e9)
    assert sent(Layout("zero3", 8), batch=32, micro=4) == sent(Layout("zero3", 8))
    assert sent(Layout("zero3", 8), kind="qlora") < sent(Layout("zero3", 8), kind="lora") / 3


def test_cards_that_share_a_layer_send_its_activations() -> None:
    """Two sums forward and two backward, two more where layers are computed again; 2 bytes, over the ring of four."""
    shape = models.find("7B")
    expected = 2 * 3 / 4 * 4 * 8 * 2048 * shape.hidden * 2 * shape.layers / 450e9
    assert sent(Layout("single", 1, 4)) == pytest.approx(expected)
    assert sent(Layout("single", 1, 4), recompute="full") == pytest.approx(expected * 1.5)
    assert sent(Layout("single", 1, 4, 2)) == pytest.approx(expected / 2)


def test_the_slower_link_decides() -> None:
    assert sent(Layout("ddp", 16), batch=16) == pytest.approx(2 * 15 / 16 * 14e9 / 50e9)
    # Two cards of a machine: a network is between four already.
    assert sent(Layout("ddp", 4), RTX, in_host=2) == pytest.approx(2 * 3 / 4 * 14e9 / 12.5e9)


def test_cards_are_tied_by_nvlink_a_slot_or_the_network() -> None:
    assert H100.link(8) == 450e9
    assert H100.link(16) == 50e9
    assert H100.link(4, 2) == 50e9
    assert A100.link(8) == 300e9
    assert A100.link(16) == 25e9
    # A 4090 has no NVLink: PCIe 4 x16 is 31.5 GB/s, of which four fifths arrive; and no machine of it has a faster network.
    assert RTX.link(8) == pytest.approx(16 * 1.969e9 * 0.8)
    assert RTX.link(16) == 12.5e9


@pytest.mark.parametrize(
    ("card", "precision", "tflops"),
    [
        ("H100 SXM5 80GB", "fp8", 1979),
        ("A100 SXM4 80GB", "fp8", 312),
        ("Tesla V100 SXM2 16GB", "bf16", 125),
        ("GeForce GTX 1060 6GB", "bf16", 4.4),
    ],
)
def test_without_a_precision_the_next_wider_one_computes(card: str, precision: str, tflops: float) -> None:
    assert cards.known()[card].peak(precision) == pytest.approx(tflops * 1e12, rel=0.02)


def test_seconds_of_a_training_are_flops_over_what_the_cards_reach() -> None:
    found = timing.training_time(1e18, 10, 1e15, Range(0.25, 0.5, 0.75))
    assert (found.low, found.value, found.high) == pytest.approx((1e18 / 1e16 / 0.75, 200, 400))
    assert found.value * DAY > 0


def test_engines_are_chosen_by_the_weights_and_by_where_they_are() -> None:
    assert engines.usual(formats.FORMATS["bf16"]) == engines.usual(formats.FORMATS["int4"]) == "vllm"
    assert (
        engines.usual(formats.FORMATS["q4_k_m"]) == engines.usual(formats.FORMATS["bf16"], offload=True) == "llama.cpp"
    )
    assert [each.words() for each in layout.for_inference(models.find("llama-3.1-8b"), 2, by_layers=True)] == [
        "pipeline parallel over 2"
    ]


@pytest.mark.parametrize(
    ("batch", "micro", "layout", "times"),
    [
        (1, 1, Layout(), 1),
        (8, 1, Layout("ddp", 8), 1),
        # Eight stages and eight micro-batches: idle for 7/8 of the time in which they compute, of which a quarter is usual.
        (8, 1, Layout(pipeline=8), (1 + 7 / 8) / 1.25),
        (8, 1, Layout("ddp", 2, 1, 8), (1 + 7 / 4) / 1.25),
        (8, 2, Layout(pipeline=8), (1 + 7 / 4) / 1.25),
        (28, 1, Layout(pipeline=8), 1),
        (512, 1, Layout(pipeline=8), 1),
    ],
)
def test_stages_of_a_pipeline_wait_where_there_are_few_micro_batches(
    batch: int, micro: int, layout: Layout, times: float
) -> None:
    assert timing.waiting(memory.Training(batch=batch, micro=micro), layout) == pytest.approx(times)


def test_who_waits_for_a_pipeline_is_told_so() -> None:
    shape, card = models.find("llama-3.1-70b"), cards.known()["H100 SXM5 80GB"]

    def figures(batch: int) -> dict[str, Any]:
        job = memory.Training(batch=batch, recompute="full")
        found = Found(card, Layout(tensor=8, pipeline=4), job, memory.Memory())
        return {row["name"]: row for row in speeds.speeds(shape, speeds.Asked(), found)}

    few, many = figures(4), figures(64)
    assert "stages of the pipeline wait 40% longer" in few["tokens a second"]["text"]
    assert "wait" not in many["tokens a second"]["text"]
    assert many["tokens a second"]["value"] == pytest.approx(few["tokens a second"]["value"] * 1.4)


def test_what_bounds_it_is_what_takes_longer_at_what_the_engine_reaches() -> None:
    """Between the two: the bandwidth until the batch for which products take as long, and the tensor cores from there on."""
    shape, engine = models.find("llama-3.1-8b"), engines.called("vllm")

    def bound_by(batch: int) -> tuple[str, bool]:
        job = memory.Inference(context=128, batch=batch)
        step = timing.step_of(shape, job, Layout(), H100)
        longer = (step.reading + step.caching) / engine.reads >= step.computing / engine.computes
        return timing.bound(shape, job, Layout(), H100), longer

    found = [bound_by(batch) for batch in range(1, 1024, 16)]
    assert {longer for _text, longer in found} == {True, False}
    assert all(text.startswith("a bandwidth") is longer for text, longer in found)


def test_the_memory_of_a_host_is_that_of_the_table_or_the_one_that_is_named() -> None:
    shape, host = models.find("llama-3.1-8b"), tables.load()["assumptions"]["host"][0]
    job = memory.Inference(engine="llama.cpp", host_layers=8)
    there = memory.host_bytes(shape, job)
    assert timing.step_of(shape, job, Layout(), RTX).hosting == there / (host["value"] * GB)
    assert timing.step_of(shape, job, Layout(), RTX, 100 * GB).hosting == there / (100 * GB)
    # The ends: a slow host and the engine's least, a fast one and its most.
    found, engine = timing.decode(shape, job, Layout(), RTX), engines.called("llama.cpp")
    ends = [timing.decode(shape, job, Layout(), RTX, host=host[key] * GB).value for key in ("low", "high")]
    assert found.low == pytest.approx(engine.low * ends[0])
    assert found.high == pytest.approx(engine.high * ends[1])


def test_the_speed_of_a_training_says_what_it_is_made_of() -> None:
    """7 B: 33 layers, 4224 wide. A token asks for three times 2 * 7e9 and 4 * 33 * 1024 * 4224 FLOPs, 4.37e10.

    A fourth pass is a third more. Of 989 TFLOPS Hopper reaches 0.416; gradients go over NVLink, 450 GB/s one way.
    """
    shape = models.find("7B")

    def texts(asked: speeds.Asked, plan: Layout, **job: Any) -> dict[str, str]:
        found = Found(H100, plan, memory.Training(**job), memory.Memory())
        return {row["name"]: row["text"] for row in speeds.speeds(shape, asked, found)}

    assert texts(speeds.Asked(tokens=1e12), Layout("ddp", 8), batch=8, recompute="full") == {
        "tokens a second": "42% of 989 TFLOPS a card (bf16, dense), 4.37e+10 FLOPs a token and 33% more for layers computed again",
        "a step computes": "8 sequences of 2048 tokens",
        "a step sends": "over 450 GB/s a card, while it computes",
        "training": "1e+12 tokens, 4.37e+22 FLOPs",
    }
    assert texts(speeds.Asked(mfu=0.4), Layout()) == {
        "tokens a second": "40% of 989 TFLOPS a card (bf16, dense), 4.37e+10 FLOPs a token",
        "a step computes": "1 sequence of 2048 tokens",
    }


def test_the_host_is_named_where_its_memory_takes_longer_than_that_of_the_card() -> None:
    shape, host = models.find("qwen3-30b-a3b"), tables.load()["assumptions"]["host"][0]
    reads, slower = engines.called("llama.cpp").reads, []
    for layers in range(49):
        job = memory.Inference(formats.FORMATS["q4_k_m"], engine="llama.cpp", host_layers=layers)
        step = timing.step_of(shape, job, Layout(), RTX)
        slower.append(step.hosting / host["share"] > step.reading / reads)
        assert timing.bound(shape, job, Layout(), RTX).startswith("the memory of the host") is slower[-1]
    assert set(slower) == {True, False}


def test_many_sequences_keep_the_cards_of_transformers_busier_than_its_host() -> None:
    shape, engine, waits = models.find("llama-3.2-1b"), engines.called("transformers"), []
    for batch in (2**power for power in range(14)):
        job = memory.Inference(engine="transformers", context=16, batch=batch)
        step = timing.step_of(shape, job, Layout(), H100)
        busy = max(step.reading / engine.reads, step.computing / engine.computes)
        waits.append(shape.layers * engine.launch * engine.newer > busy)
        assert timing.bound(shape, job, Layout(), H100).startswith("transformers") is waits[-1]
    assert set(waits) == {True, False}

"""Sizing over any model and job: more to hold never needs less, and more cards never more on each."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpuwright.sizing import architecture, formats, layout, memory, models, tables, timing
from gpuwright.sizing.architecture import Architecture
from gpuwright.sizing.layout import Layout

SHAPES = st.one_of(
    st.sampled_from([row["name"] for row in tables.models()]).map(models.find),
    st.floats(1e6, 1e13).map(lambda told: architecture.typical("any", told)),
)
POWERS = st.integers(0, 10).map(lambda exponent: 2**exponent)
TRAININGS = st.builds(
    memory.Training,
    kind=st.sampled_from(("full", "lora", "qlora")),
    scheme=st.sampled_from(list(formats.SCHEMES.values())),
    optimizer=st.sampled_from(list(formats.OPTIMIZERS)),
    context=st.integers(1, 1_000_000),
    batch=st.just(1024),
    micro=st.sampled_from((1, 2, 4)),
    recompute=st.sampled_from(("none", "selective", "full")),
    flash=st.booleans(),
    fused=st.booleans(),
    rank=st.integers(1, 512),
)
INFERENCES = st.builds(
    memory.Inference,
    weights=st.sampled_from(list(formats.FORMATS.values())),
    cache=st.sampled_from((1, 2)),
    context=st.integers(1, 1_000_000),
    batch=st.integers(1, 10_000),
)
STRATEGIES = st.sampled_from(layout.STRATEGIES[1:])


@given(SHAPES, TRAININGS, STRATEGIES, POWERS)
def test_a_larger_batch_on_a_card_never_needs_less(
    shape: Architecture, job: memory.Training, strategy: str, data: int
) -> None:
    where = Layout(strategy, data)
    one, two = (memory.training(shape, replace(job, micro=micro), where) for micro in (job.micro, job.micro + 1))
    assert two.value >= one.value
    longer = memory.training(shape, replace(job, context=job.context + 1), where)
    assert longer.value >= one.value


@given(SHAPES, TRAININGS, STRATEGIES, POWERS)
def test_more_data_parallel_cards_never_need_more_on_each(
    shape: Architecture, job: memory.Training, strategy: str, data: int
) -> None:
    """At a fixed batch of all cards: what a card computes at once shrinks with its share."""
    few, many = (
        memory.training(shape, replace(job, micro=max(1024 // cards, 1)), Layout(strategy, cards))
        for cards in (data, 2 * data)
    )
    assert many.value <= few.value


@given(SHAPES, TRAININGS, STRATEGIES, st.sampled_from((1, 2, 4)))
def test_more_tensor_parallel_cards_never_need_more_on_each(
    shape: Architecture, job: memory.Training, strategy: str, tensor: int
) -> None:
    few, many = (memory.training(shape, job, Layout(strategy, 8, each)) for each in (tensor, 2 * tensor))
    assert many.value <= few.value


@given(SHAPES, TRAININGS, POWERS)
def test_what_zero_spreads_further_never_needs_more(shape: Architecture, job: memory.Training, data: int) -> None:
    kept = [
        sum(
            memory.training(shape, job, Layout(strategy, data)).of(name)
            for name in ("weights", "gradients", "optimizer")
        )
        for strategy in layout.STRATEGIES[1:]
    ]
    assert kept == sorted(kept, reverse=True)


@given(SHAPES, INFERENCES, st.sampled_from((1, 2, 4)))
def test_inference_needs_more_for_more_and_less_on_more_cards(
    shape: Architecture, job: memory.Inference, tensor: int
) -> None:
    here = memory.inference(shape, job, Layout("single", 1, tensor))
    assert memory.inference(shape, replace(job, batch=job.batch + 1), Layout("single", 1, tensor)).value >= here.value
    assert (
        memory.inference(shape, replace(job, context=job.context + 1), Layout("single", 1, tensor)).value >= here.value
    )
    # The first step from one card to several brings NCCL's buffers.
    if tensor > 1:
        assert memory.inference(shape, job, Layout("single", 1, 2 * tensor)).value <= here.value


@given(SHAPES, st.one_of(TRAININGS, INFERENCES), POWERS)
def test_every_part_is_within_its_own_range(
    shape: Architecture, job: memory.Training | memory.Inference, data: int
) -> None:
    found = (
        memory.training(shape, job, Layout("zero1", data))
        if isinstance(job, memory.Training)
        else memory.inference(shape, job, Layout())
    )
    assert found.parts
    assert all(0 <= part.low <= part.value <= part.high for part in found.parts)
    assert memory.fits(found, found.high) == "yes"
    assert memory.fits(found, found.value) in ("yes", "tight")
    assert memory.fits(found, found.value * 0.999) == "no"


@given(SHAPES, st.integers(1, 100_000))
def test_longer_sequences_never_ask_for_fewer_flops_a_token(shape: Architecture, context: int) -> None:
    job = memory.Training(context=context)
    assert timing.training_flops(shape, replace(job, context=2 * context)) >= timing.training_flops(shape, job) > 0

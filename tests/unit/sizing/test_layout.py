"""Layouts: which are tried, in which order, and how people read them."""

from __future__ import annotations

import pytest

from gpuwright.sizing import layout, models
from gpuwright.sizing.layout import Layout

SHAPE = models.find("llama-3.1-8b")


def tried(cards: int, batch: int = 1_000_000) -> list[tuple[str, int, int, int]]:
    return [
        (each.strategy, each.data, each.tensor, each.pipeline)
        for each in layout.for_training(SHAPE, cards, batch=batch)
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Layout(), "one card"),
        (Layout("ddp", 2), "data parallel over 2"),
        (Layout("zero1", 8), "ZeRO-1 over 8"),
        (Layout("zero3", 8, 2), "ZeRO-3 / FSDP over 8, tensor parallel over 2"),
        (Layout("single", 1, 2, 4), "tensor parallel over 2, pipeline parallel over 4"),
        (Layout("zero1", 2, 8, 16), "ZeRO-1 over 2, tensor parallel over 8, pipeline parallel over 16"),
    ],
)
def test_a_layout_is_read_as_people_say_it(found: Layout, words: str) -> None:
    assert found.words() == words


def test_cards_and_shares_follow_from_it() -> None:
    found = Layout("zero2", 4, 8, 2)
    assert (found.cards, found.model) == (64, 16)
    assert [found.shares(stage) for stage in (1, 2, 3)] == [4, 4, 1]
    assert [Layout("ddp", 4).shares(stage) for stage in (1, 2, 3)] == [1, 1, 1]


def test_the_simplest_is_tried_first() -> None:
    assert tried(1) == [("single", 1, 1, 1)]
    assert tried(2)[:5] == [
        ("ddp", 2, 1, 1),
        ("zero1", 2, 1, 1),
        ("zero2", 2, 1, 1),
        ("zero3", 2, 1, 1),
        ("single", 1, 2, 1),
    ]
    assert tried(2)[5:] == [("single", 1, 1, 2)]


def test_every_layout_has_all_cards_and_stays_within_a_machine() -> None:
    for cards in (1, 2, 8, 64):
        for strategy, data, tensor, pipeline in tried(cards):
            assert data * tensor * pipeline == cards
            assert tensor <= 8
            assert SHAPE.heads % tensor == 0
            assert pipeline <= SHAPE.layers
            # A pipeline goes with ZeRO-1 at most.
            assert pipeline == 1 or strategy in ("single", "ddp", "zero1")
    assert max(pipeline for *_rest, pipeline in tried(64)) == SHAPE.layers == 32
    assert max(tensor for _strategy, _data, tensor, _pipeline in tried(64)) == 8


def test_what_data_parallel_cards_share_is_tried_from_nothing_on_and_beside_a_pipeline_up_to_the_optimizer() -> None:
    found = tried(8)
    for tensor, pipeline, strategies in (
        (1, 1, ["ddp", "zero1", "zero2", "zero3"]),
        (2, 1, ["ddp", "zero1", "zero2", "zero3"]),
        (1, 2, ["ddp", "zero1"]),
        (2, 2, ["ddp", "zero1"]),
        (2, 4, ["single"]),
    ):
        assert [row[0] for row in found if row[2:] == (tensor, pipeline)] == strategies


def test_no_card_is_without_a_sequence() -> None:
    assert {data for _strategy, data, _tensor, _pipeline in tried(8, batch=2)} == {1, 2}
    # A cut that leaves fewer sequences than cards is passed over, and those behind it are not.
    assert [row[1:] for row in tried(8, batch=1)] == [(1, 8, 1), (1, 4, 2), (1, 2, 4), (1, 1, 8)]
    assert tried(3) == [("ddp", 3, 1, 1), ("zero1", 3, 1, 1), ("zero2", 3, 1, 1), ("zero3", 3, 1, 1)]


def test_inference_has_one_copy_of_the_model() -> None:
    found = [(each.tensor, each.pipeline) for each in layout.for_inference(SHAPE, 16)]
    assert found == [(8, 2), (4, 4), (2, 8), (1, 16)]
    # Tensor parallel cuts heads: three cards hold a third of the layers each.
    assert [(each.tensor, each.pipeline) for each in layout.for_inference(SHAPE, 3)] == [(1, 3)]
    assert list(layout.for_inference(SHAPE, 33 * 7)) == []


def test_an_engine_that_lays_whole_layers_on_cards_cuts_none() -> None:
    found = [(each.tensor, each.pipeline) for each in layout.for_inference(SHAPE, 8, by_layers=True)]
    assert found == [(1, 8)]
    assert list(layout.for_inference(SHAPE, 64, by_layers=True)) == []
    # A layer on each of 32 cards.
    assert [each.pipeline for each in layout.for_inference(SHAPE, 32, by_layers=True)] == [32]


def test_tensor_parallel_stays_within_the_machines_that_are_there() -> None:
    assert {each.tensor for each in layout.for_inference(SHAPE, 8, in_host=2)} == {1, 2}
    assert {each.tensor for each in layout.for_training(SHAPE, 8, batch=8, in_host=2)} == {1, 2}


def test_no_more_cards_are_looked_at_than_anybody_trained_a_model_on_together() -> None:
    """Llama 3.1 405B: 16,384 of them."""
    assert list(layout.counts())[-1] == layout.MOST_CARDS == 16_384


def test_numbers_of_cards_are_powers_of_two() -> None:
    assert list(layout.counts(9)) == [1, 2, 4, 8]
    assert [layout.most_of(cards) for cards in (1, 3, 8, 9)] == [1, 2, 8, 8]

"""Cards as people call them: the memory in a name counts, and a number before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwright import knowledge
from gpuwright.errors import BadInput
from gpuwright.sizing import cards
from gpuwright.sizing.units import GB, GIB, TERA


def called(text: str) -> cards.Called:
    return cards.called(text, knowledge.card_called)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # Two memories: both, the smaller first.
        ("a100", ["A100 SXM4 40GB", "A100 SXM4 80GB"]),
        ("4060 ti", ["GeForce RTX 4060 Ti", "GeForce RTX 4060 Ti 16GB"]),
        ("jetson agx orin", ["Jetson AGX Orin 32GB", "Jetson AGX Orin 64GB"]),
        ("h20", ["H20", "H20 141GB"]),
        # The memory that is named decides, however it is written.
        ("a100 80gb", ["A100 SXM4 80GB"]),
        ("A100-SXM4-80GB", ["A100 SXM4 80GB"]),
        ("a100 40 GB", ["A100 SXM4 40GB"]),
        ("v100 32g", ["Tesla V100 SXM2 32GB"]),
        ("4060 ti 16gb", ["GeForce RTX 4060 Ti 16GB"]),
        ("5060 ti 16 GiB", ["GeForce RTX 5060 Ti"]),
        # So does the form.
        ("a100 pcie", ["A100 PCIe 40GB", "A100 PCIe 80GB"]),
        # One memory.
        ("4090", ["GeForce RTX 4090"]),
        ("jetson thor t5000", ["Jetson AGX Thor (T5000)"]),
    ],
)
def test_a_name_is_the_cards_that_are_called_so(text: str, names: list[str]) -> None:
    found = called(text)
    assert [card.name for card in found.cards] == names
    assert (found.count, found.text) == (0, "")


@pytest.mark.parametrize(("text", "count"), [("2x3090", 2), ("2 x 3090", 2), ("8 × h100", 8), ("4*a100 80gb", 4)])
def test_a_number_before_a_name_says_how_many(text: str, count: int) -> None:
    found = called(text)
    assert found.count == count
    assert len(found.cards) == 1


def test_a_memory_that_no_such_card_is_sold_with_counts_and_is_told_as_modified() -> None:
    found = called("4090 48gb")
    (card,) = found.cards
    usual = cards.known()["GeForce RTX 4090"]
    assert (card.memory, card.bandwidth) == (48 * GIB, usual.bandwidth)
    assert "is sold with 24 GB" in found.text
    assert "modified" in found.text
    larger = called("a100 96gb")
    assert larger.text.startswith("A100 SXM4 80GB is sold with 40 and 80 GB")
    assert larger.cards[0].bandwidth == cards.known()["A100 SXM4 80GB"].bandwidth


@pytest.mark.parametrize(
    ("text", "board", "gigabytes"), [("k80", 2, 12), ("m60", 2, 8), ("a16", 4, 16), ("a40", 1, 48)]
)
def test_a_board_of_several_gpus_is_several(text: str, board: int, gigabytes: int) -> None:
    (card,) = called(text).cards
    assert (card.board, card.memory) == (board, gigabytes * GIB)


def test_a_card_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BadInput, match="unknown card"):
        called("4091")


def test_cards_of_several_kinds_hold_layers_by_their_memory_and_compute_one_after_the_other() -> None:
    large, small = cards.known()["GeForce RTX 3090"], cards.known()["GeForce RTX 3060 12GB"]
    found = cards.mixture([large, small])
    assert (found.kind, found.memory) == (large.kind, 18 * GIB)
    assert found.name == "GeForce RTX 3090 + GeForce RTX 3060 12GB"
    # Two thirds of a token's weights are read by the first, one third by the second.
    assert found.bandwidth == pytest.approx(1 / (2 / 3 / large.bandwidth + 1 / 3 / small.bandwidth))
    assert small.bandwidth < found.bandwidth < large.bandwidth
    assert found.peak("bf16") == pytest.approx(1 / (2 / 3 / large.peak("bf16") + 1 / 3 / small.peak("bf16")))
    assert found.power == (large.power + small.power) / 2
    assert (found.nvlink, found.board) == (0, 1)


def test_a_mixture_is_behind_the_slowest_slot() -> None:
    slow, fast = cards.known()["GeForce RTX 3050 8GB"], cards.known()["GeForce RTX 3090"]
    assert slow.pcie < fast.pcie
    assert cards.mixture([fast, slow]).pcie == slow.pcie


def test_what_is_kept_back_and_what_pcie_gives() -> None:
    card = cards.Card("any", "Ampere", "datacenter", 80 * GIB, 2000 * GB, 300, 0, generation=4, tflops={"fp16": 10.0})
    assert card.room == 80 * GIB * (1 - 0.012)
    assert card.pcie == 16 * 1.969 * GB
    assert card.peak("bf16") == 10 * TERA
    assert card.peak("fp32") == 0


@pytest.mark.parametrize(
    ("name", "shown", "pytorch"),
    [("Tesla T4", 15_360, 14.56), ("A10G", 23_028, 22.07), ("L40S", 46_068, 44.42), ("A100 SXM4 40GB", 40_960, 39.5)],
)
def test_error_correction_takes_some_of_gddr_and_nothing_of_hbm(name: str, shown: int, pytorch: float) -> None:
    """MiB that nvidia-smi shows (github modal-labs/modal-client#2797), and GiB that vLLM tells that there are."""
    card = cards.known()[name]
    assert card.shown / 2**20 == pytest.approx(shown, rel=0.001)
    assert card.room / GIB == pytest.approx(pytorch, rel=0.02)


def test_cards_of_a_mixture_have_what_is_left_of_each() -> None:
    both = cards.mixture([cards.known()["Tesla T4"], cards.known()["GeForce RTX 4090"]])
    assert both.room == (15 + 24) / 2 * GIB * (1 - 0.012)


def test_every_card_that_is_tried_is_known_and_no_laptop() -> None:
    tried = [cards.known()[name] for name in cards.usual()]
    assert len(tried) > 100
    assert all(card.memory >= 12 * GIB and card.kind != "laptop" for card in tried)


@pytest.mark.parametrize(
    ("generation", "transfers", "coded"),
    [(2, 5, 8 / 10), (3, 8, 128 / 130), (4, 16, 128 / 130), (5, 32, 128 / 130), (6, 64, 236 / 256)],
)
def test_a_lane_gives_what_its_generation_transfers(generation: int, transfers: int, coded: float) -> None:
    """Gigatransfers a second of a bit each, less what they are coded with."""
    card = cards.Card("any", "Ampere", "geforce", 8 * GIB, 500 * GB, 200, 0, lanes=4, generation=generation)
    assert card.pcie == pytest.approx(4 * transfers * coded / 8 * GB, rel=0.02)


def test_a_slot_that_nobody_knows_is_one_of_the_third_generation_with_sixteen_lanes() -> None:
    assert cards.known()["Jetson AGX Orin 64GB"].pcie == pytest.approx(16 * 0.985 * GB)
    assert replace(cards.known()["GeForce RTX 4090"], generation=9).pcie == pytest.approx(16 * 0.985 * GB)


def test_a_mixture_with_a_card_of_which_nobody_says_what_it_computes_is_told_by_its_memory_alone() -> None:
    """It computed at three FLOPs a second."""
    large, small = cards.known()["GeForce RTX 3090"], cards.known()["GeForce RTX 3060 12GB"]
    assert cards.mixture([large, replace(small, tflops={})]).tflops == {}
    # What one of them has no units for it computes in the next wider precision.
    ada = cards.known()["GeForce RTX 4090"]
    fp8 = cards.mixture([ada, large]).peak("fp8")
    assert fp8 == pytest.approx(2 / (1 / ada.peak("fp8") + 1 / large.peak("bf16")))

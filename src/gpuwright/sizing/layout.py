"""How a job is laid over cards: data, tensor and pipeline parallel, and what data-parallel cards share among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuwright.sizing.cards import IN_A_MACHINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwright.sizing.architecture import Architecture

#: What data-parallel cards share: nothing (DDP), the optimizer, gradients too, weights too (ZeRO, arXiv:1910.02054; FSDP is zero3).
STRATEGIES = ("single", "ddp", "zero1", "zero2", "zero3")
#: The most cards that are looked at.
MOST_CARDS = 16_384


@dataclass(frozen=True)
class Layout:
    """Attributes are numbers of cards; their product is that of the job."""

    strategy: str = "single"
    data: int = 1
    tensor: int = 1
    pipeline: int = 1

    @property
    def cards(self) -> int:
        """All cards of it."""
        return self.data * self.tensor * self.pipeline

    @property
    def model(self) -> int:
        """Cards that one copy of the model is cut over."""
        return self.tensor * self.pipeline

    def shares(self, stage: int) -> int:
        """Cards over which something is spread that is so from this stage of ZeRO on."""
        return self.data if STRATEGIES.index(self.strategy) - 1 >= stage else 1

    def words(self) -> str:
        """As people say it."""
        names = {"single": "", "ddp": "data parallel", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3 / FSDP"}
        parts = [f"{names[self.strategy]} over {self.data}" if self.data > 1 else ""]
        parts += [f"tensor parallel over {self.tensor}" if self.tensor > 1 else ""]
        parts += [f"pipeline parallel over {self.pipeline}" if self.pipeline > 1 else ""]
        return ", ".join(part for part in parts if part) or "one card"


def for_training(shape: Architecture, cards: int, *, batch: int, in_host: int = IN_A_MACHINE) -> Iterator[Layout]:
    """The layouts of a number of cards, the simplest first: each is slower or harder to set up than those before it."""
    for tensor, pipeline in _cuts(shape, cards, in_host):
        data = cards // (tensor * pipeline)
        if data > batch:
            continue
        if data == 1:
            yield Layout("single", 1, tensor, pipeline)
            continue
        # Gradients that are spread would be sent once for each micro-batch of a pipeline: DeepSpeed lets ZeRO-1 alone go with it.
        strategies = STRATEGIES[1:] if pipeline == 1 else STRATEGIES[1:3]
        for strategy in strategies:
            yield Layout(strategy, data, tensor, pipeline)


def for_inference(
    shape: Architecture, cards: int, *, by_layers: bool = False, in_host: int = IN_A_MACHINE
) -> Iterator[Layout]:
    """The layouts of one copy of the model on a number of cards: tensor parallel in a machine, and a pipeline of what is left.

    Args:
        shape: of the model.
        cards: how many.
        by_layers: whether the engine lays whole layers on each card (llama.cpp, transformers): then nothing is cut.
        in_host: cards of a machine.
    """
    for tensor in (1,) if by_layers else reversed(list(counts(in_host))):
        pipeline = cards // tensor
        if tensor * pipeline == cards and shape.heads % tensor == 0 and pipeline <= shape.layers:
            yield Layout("single", 1, tensor, pipeline)


def counts(most: int = MOST_CARDS) -> Iterator[int]:
    """Numbers of cards that people buy: powers of two."""
    cards = 1
    while cards <= most:
        yield cards
        cards *= 2


def most_of(cards: int) -> int:
    """The largest of these numbers that so many cards have."""
    return max(counts(cards))


def _cuts(shape: Architecture, cards: int, in_host: int) -> Iterator[tuple[int, int]]:
    """Tensor and pipeline parallel that divide the cards and the model. Tensor parallel stays within a machine."""
    for pipeline in (each for each in counts(cards) if each <= shape.layers and cards % each == 0):
        for tensor in (each for each in counts(in_host) if shape.heads % each == 0 and (cards // pipeline) % each == 0):
            yield tensor, pipeline

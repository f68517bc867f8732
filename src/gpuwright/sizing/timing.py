"""How long a job takes: FLOPs against what the cards reach, bytes against what their memory gives. Seconds, FLOPs and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuwright.sizing import architecture, tables
from gpuwright.sizing.figures import Range

if TYPE_CHECKING:
    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.cards import Card
    from gpuwright.sizing.layout import Layout
    from gpuwright.sizing.memory import Inference, Training

#: Passes over the model for each token, in forward passes: one forward, two backward. Weights that are frozen need no gradient.
_PASSES = {"full": 3.0, "lora": 2.0, "qlora": 2.0}
#: Seconds that one all-reduce of a token's activations takes between cards of a machine, about; two a layer (assumed).
_HOP = 15e-6


@dataclass(frozen=True)
class Measured:
    """What a proof measured of cards that are there, of which no job reaches more.

    Attributes:
        products: FLOPs a second of large products of matrices, by precision.
        bandwidth: bytes a second of the memory; 0 where it was not measured.
        day: of the proof.
    """

    products: dict[str, float] = field(default_factory=dict, hash=False)
    bandwidth: float = 0.0
    day: str = ""


def training_flops(shape: Architecture, job: Training) -> float:
    """FLOPs that a token of training asks of the model: with attention, without what is computed again (PaLM's MFU, appendix B)."""
    return _PASSES[job.kind] * architecture.forward_flops(shape, job.context)


def mfu(card: Card, job: Training, cards: int) -> Range:
    """The share of its peak that a card reaches, by the runs that were published."""
    precision = "fp8" if job.scheme.precision == "fp8" else "16"
    rows = [row for row in tables.load()["assumptions"]["mfu"] if row["precision"] == precision]
    fitting = [row for row in rows if row["architecture"] == card.architecture] or [
        row for row in rows if row["architecture"] is None
    ]
    row = next(row for row in fitting if row["cards"] is None or cards <= row["cards"])
    return Range(row["low"], row["value"], row["high"])


def at_most(reached: Range, most: float) -> Range:
    """Shares of a peak, none of them above what was measured; 0 where nothing was."""
    return Range(*(min(each, most) for each in (reached.low, reached.value, reached.high))) if most else reached


def training_time(flops: float, cards: int, peak: float, reached: Range) -> Range:
    """Seconds of so many FLOPs on cards that reach a share of their peak (FLOPs a second)."""
    most = flops / (cards * peak)
    return Range(most / reached.high, most / reached.value, most / reached.low)


def step(shape: Architecture, job: Training, layout: Layout, card: Card, reached: Range) -> dict[str, float]:
    """What a step of training waits for, in seconds: computing, and sending gradients between machines or over PCIe.

    Gradients go once around all data-parallel cards: 2 · (n - 1) / n of their bytes leave and reach each card (ring all-reduce).
    """
    tokens = job.batch * job.context
    peak = card.peak(job.scheme.precision) or card.peak("fp32") or 1.0
    computing = training_flops(shape, job) * tokens / (layout.cards * peak * reached.value)
    trained = architecture.parameters(shape) if job.kind == "full" else 0.0
    share = 2 * (layout.data - 1) / layout.data * trained * job.scheme.gradient / layout.model
    return {"computing": computing, "sending": share / card.link(layout.cards)}


def decode(
    shape: Architecture, job: Inference, layout: Layout, card: Card, memory: float = 0.0, products: float = 0.0
) -> Range:
    """Tokens a second of all sequences together while they are generated.

    Each step reads all weights that it goes through, and every sequence its KV cache: the bandwidth of the memory bounds it, until the
    batch is so large that the products do (roofline). ``memory`` and ``products``: the shares of the data sheet that were measured on these
    cards; 0 where nothing was.
    """
    reading, computing = _roofs(shape, job, layout, card)
    hops = 2 * shape.layers * _HOP if layout.tensor > 1 else 0.0
    # What servers of inference reach of both, by the rates in runs.yaml.
    parts = ((part, part * 0.7) for part in (0.45, 0.65, 0.9))
    slow, usual, fast = (
        max(reading / min(read, memory or read), computing / min(computed, products or computed)) + hops
        for read, computed in parts
    )
    return Range(job.batch / slow, job.batch / usual, job.batch / fast)


def bound(shape: Architecture, job: Inference, layout: Layout, card: Card) -> str:
    """What bounds it, in words."""
    reading, computing = _roofs(shape, job, layout, card)
    if reading >= computing:
        return f"a bandwidth of {card.bandwidth / 1e9:,.0f} GB/s a card"
    return f"tensor cores of {_peak(job, card) / 1e12:,.0f} TFLOPS a card"


def _roofs(shape: Architecture, job: Inference, layout: Layout, card: Card) -> tuple[float, float]:
    """Seconds of a step for reading and for computing, at the most that the cards do."""
    touched = read_parameters(shape, job.batch) * job.weights.bits / 8
    kept = (
        architecture.kept_tokens(shape, job.context) * architecture.kept_width(shape, layout.tensor) / layout.pipeline
    )
    reading = (touched / layout.cards + kept * job.cache * job.batch) / card.bandwidth
    return reading, architecture.forward_flops(shape, job.context) * job.batch / (layout.cards * _peak(job, card))


def _peak(job: Inference, card: Card) -> float:
    return card.peak(job.weights.computes) or card.peak("fp16") or card.peak("fp32") or 1.0


def read_parameters(shape: Architecture, batch: int) -> float:
    """Parameters that a step of so many tokens reads: of experts those that any of them goes through, if tokens choose evenly."""
    experts = shape.experts
    if experts is None:
        return architecture.active(shape)
    missed = (1 - experts.active / experts.count) ** batch
    all_of_them = architecture.parameters(shape) - architecture.embedding(shape)
    few = architecture.active(shape)
    one = (all_of_them - few) / max(1 - experts.active / experts.count, 1e-9)
    return few + one * max((1 - missed) - experts.active / experts.count, 0.0)


def prefill(shape: Architecture, job: Inference, layout: Layout, card: Card) -> Range:
    """Seconds until the first token of a prompt as long as the context."""
    most = architecture.forward_flops(shape, job.context) * job.context / (layout.cards * _peak(job, card))
    return Range(most / 0.7, most / 0.5, most / 0.3)

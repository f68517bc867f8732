"""How long a job takes: FLOPs against what the cards reach, bytes against what their memory gives. Seconds, FLOPs and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuwright.sizing import architecture, engines, formats, memory, tables
from gpuwright.sizing.cards import IN_A_MACHINE
from gpuwright.sizing.figures import Range
from gpuwright.sizing.units import GB, at_least_one

if TYPE_CHECKING:
    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.cards import Card
    from gpuwright.sizing.engines import Engine
    from gpuwright.sizing.layout import Layout
    from gpuwright.sizing.memory import Inference, Training

#: Passes over the model for each token, in forward passes: one forward, two backward. Weights that are frozen need no gradient.
_PASSES = {"full": 3.0, "lora": 2.0, "qlora": 2.0}
#: Seconds that one all-reduce of a token's activations takes between cards of a machine, about; two a layer (assumed).
_HOP = 15e-6
#: The model and the machine that the efficiencies of the table are told for.
_USUAL_PARAMETERS, _USUAL_CARDS = 7e9, 8
#: Of its time a card of a pipeline is idle so long in the runs of the table: four micro-batches a stage, or more.
_IDLE = 1 / 4
#: Generations of cards whose machines have a host of before 2022.
_OLDER = ("Fermi", "Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere")
#: Bits of a weight from which on it is multiplied by as it is stored.
_UNPACKED = 16
#: Bytes of an activation that tensor-parallel cards sum.
_ACTIVATION = 2


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


# training ---------------------------------------------------------------------------------------------


def training_flops(shape: Architecture, job: Training) -> float:
    """FLOPs that a token of training asks of the model: with attention, without what is computed again (PaLM's MFU, appendix B)."""
    return _PASSES[job.kind] * architecture.forward_flops(shape, job.context)


def hardware_flops(shape: Architecture, job: Training) -> float:
    """FLOPs that the cards compute for a token: layers that are computed again are one forward pass more (PaLM's HFU)."""
    again = architecture.forward_flops(shape, job.context) if job.recompute == "full" else 0.0
    return training_flops(shape, job) + again


def efficiency(card: Card, shape: Architecture, job: Training, cards: int) -> Range:
    """The share of its peak that a card keeps busy, what is computed again included, by the runs that were published.

    Args:
        card: the card.
        shape: of the model: small ones keep a card less busy, and experts do.
        job: the training.
        cards: how many there are.
    """
    table = tables.load()["assumptions"]
    (factors,), precision = table["factors"], "fp8" if job.scheme.precision == "fp8" else "16"
    value = _base(table["efficiency"], card, precision)
    if shape.experts:
        value *= factors[f"moe_{precision}"]
    if job.kind == "qlora":
        value *= factors["qlora"]
    value *= min(architecture.active(shape) / _USUAL_PARAMETERS, 1.0) ** factors["small"]
    value *= max(cards / _USUAL_CARDS, 1.0) ** factors["cards"]
    return Range(value, value, value).spread(factors["low"], factors["high"])


def _base(rows: list[tables.Row], card: Card, precision: str) -> float:
    """The row of a card's generation; else that of any generation."""
    generation = card.architecture.partition(" ")[0]
    values = {
        row["architecture"]: float(row["value"])
        for row in rows
        if row["precision"] == precision and row["datacenter"] is (card.kind == "datacenter")
    }
    return values.get(generation, values[None])


def at_most(reached: Range, most: float) -> Range:
    """Shares of a peak, none of them above what was measured; 0 where nothing was."""
    return Range(*(min(each, most) for each in (reached.low, reached.value, reached.high))) if most else reached


def training_time(flops: float, cards: int, peak: float, reached: Range) -> Range:
    """Seconds of so many FLOPs on cards that reach a share of their peak (FLOPs a second)."""
    most = flops / (cards * peak)
    return Range(most / reached.high, most / reached.value, most / reached.low)


def waiting(job: Training, layout: Layout) -> float:
    """How many times as long a step takes since cards of a pipeline wait for its first micro-batch and after its last.

    Of p stages and m micro-batches they are idle (p - 1) / m of the time in which they compute (GPipe, arXiv:1811.06965).
    """
    turns = at_least_one(job.batch // (layout.data * job.micro))
    return max((1 + (layout.pipeline - 1) / turns) / (1 + _IDLE), 1.0)


def sending(shape: Architecture, job: Training, layout: Layout, card: Card, in_host: int = IN_A_MACHINE) -> float:
    """Seconds of a step in which the slower of its links is busy: that of data-parallel cards, or that of tensor-parallel ones.

    Cards send while they compute: a step takes as long as the longer of both.
    """
    between = _data_bytes(shape, job, layout) / card.link(layout.cards, in_host)
    within = _tensor_bytes(shape, job, layout) / card.link(layout.tensor, in_host)
    return max(between, within)


def _data_bytes(shape: Architecture, job: Training, layout: Layout) -> float:
    """Bytes that leave each data-parallel card in a step: gradients once around; with ZeRO-3 weights twice for each micro-batch."""
    ring = (layout.data - 1) / layout.data
    whole = architecture.parameters(shape)
    trained = whole if job.kind == "full" else memory.adapters(shape, job.rank)
    sent = 2 * ring * trained * job.scheme.gradient
    if layout.strategy == "zero3":
        width = formats.FORMATS["nf4"].bits / 8 if job.kind == "qlora" else job.scheme.compute
        turns = at_least_one(job.batch // (layout.data * job.micro))
        sent = ring * (trained * job.scheme.gradient + 2 * turns * whole * width)
    return sent / layout.model


def _tensor_bytes(shape: Architecture, job: Training, layout: Layout) -> float:
    """Bytes that leave each tensor-parallel card in a step: sums of each layer's activations, two forward and two backward."""
    ring = 2 * (layout.tensor - 1) / layout.tensor
    sums = 6 if job.recompute == "full" else 4
    tokens = job.batch * job.context / layout.data
    return ring * sums * tokens * shape.hidden * _ACTIVATION * shape.layers / layout.pipeline


# inference --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What a step of generating waits for, in seconds at the most that the cards do: before any share of it.

    Attributes:
        reading: weights, from the memory of the cards.
        caching: keys and values.
        computing: products.
        hosting: weights, from the memory of the host.
    """

    reading: float
    caching: float
    computing: float
    hosting: float


def decode(
    shape: Architecture,
    job: Inference,
    layout: Layout,
    card: Card,
    bandwidth: float = 0.0,
    products: float = 0.0,
    host: float = 0.0,
) -> Range:
    """Tokens a second of all sequences together while they are generated.

    Each step reads all weights that it goes through, and every sequence its KV cache; weights are read while they are multiplied by, the
    cache is not. Beside that an engine starts layers, and looks after sequences.

    Args:
        shape: of the model.
        job: what is generated, and by which engine.
        layout: over cards.
        card: the card.
        bandwidth: the share of the data sheet's that was measured on these cards; 0 where nothing was.
        products: the same of products.
        host: bytes a second of the memory of the host, by its data sheet; 0 for that of the table.
    """
    engine = engines.called(job.engine)
    step = step_of(shape, job, layout, card, host)
    shared = _shared(shape, job, layout, engine)
    reads, caches = (_no_more(share, bandwidth) for share in (_reads(job, engine), engine.caches))
    copied = step.caching * _copies(shape, engine)
    busy = max(step.reading / reads, step.computing / _no_more(engine.computes, products)) + copied / caches
    rest = tables.load()["assumptions"]["host"][0]
    seconds = (
        max(busy, _started(shape, card, engine)) + shared + step.hosting / rest["share"] + job.host_layers * rest["hop"]
    )
    found = Range(job.batch / seconds, job.batch / seconds, job.batch / seconds).spread(engine.low, engine.high)
    if not job.host_layers or host:
        return found
    # What is on the host is read as fast as the host's memory is: nobody said which it is.
    slow, fast = (seconds + (step.hosting * (rest["value"] / rest[key] - 1)) / rest["share"] for key in ("low", "high"))
    return Range(engine.low * job.batch / slow, found.value, engine.high * job.batch / fast)


def _no_more(share: float, measured: float) -> float:
    return min(share, measured) if measured else share


def _reads(job: Inference, engine: Engine) -> float:
    """The share of the bandwidth at which weights are read: less of packed ones, where the engine unpacks them itself."""
    return engine.reads * (engine.unpacks if job.weights.bits < _UNPACKED else 1.0)


def _copies(shape: Architecture, engine: Engine) -> float:
    """How many times keys and values pass the memory in a step.

    Once, or where the engine repeats them for each head of queries: read and written as the cache grows, read once more, written and
    read for each of these heads (`torch.cat` and `repeat_kv` of transformers).
    """
    return 3 + 2 * shape.heads / shape.kv_heads if engine.repeats else 1.0


def _started(shape: Architecture, card: Card, engine: Engine) -> float:
    """Seconds in which the host has started all layers of a step; and each expert, where these are started one by one."""
    experts = shape.expert_layers * shape.experts.count * engine.expert if shape.experts else 0.0
    older = card.architecture.partition(" ")[0] in _OLDER
    return (shape.layers * engine.launch + experts) * (1.0 if older else engine.newer)


def _shared(shape: Architecture, job: Inference, layout: Layout, engine: Engine) -> float:
    """Seconds of a step between layers, of the sums of tensor-parallel cards, and of the host for each sequence."""
    hops = 2 * shape.layers * _HOP if layout.tensor > 1 else 0.0
    return shape.layers * engine.gap + hops + job.batch * engine.sequence


def bound(
    shape: Architecture, job: Inference, layout: Layout, card: Card, bandwidth: float = 0.0, products: float = 0.0
) -> str:
    """What bounds it, in words, and how much of it the engine is counted on to reach; shares that were measured as for `decode`."""
    engine = engines.called(job.engine)
    step = step_of(shape, job, layout, card)
    host = tables.load()["assumptions"]["host"][0]
    if step.hosting / host["share"] > step.reading / _reads(job, engine):
        return f"the memory of the host, {host['value']:.0f} GB/s as two channels of DDR5"
    reads = _reads(job, engine)
    if _started(shape, card, engine) > max(step.reading / reads, step.computing / engine.computes):
        return f"{engine.name}, which starts each layer from the host"
    if (step.reading + step.caching) / reads >= step.computing / engine.computes:
        reached = _no_more(reads, bandwidth)
        return f"a bandwidth of {card.bandwidth / 1e9:,.0f} GB/s a card, of which weights are read at {reached:.0%}"
    reached = _no_more(engine.computes, products)
    return f"tensor cores of {peak(job, card) / 1e12:,.0f} TFLOPS a card, of which it reaches {reached:.0%}"


def step_of(shape: Architecture, job: Inference, layout: Layout, card: Card, host: float = 0.0) -> Step:
    """What a step waits for.

    Cards of a pipeline take turns: all weights are read one after the other, whoever holds them, and only so many of the cards work at once
    as there are batches: an engine that lays whole layers on cards has one.
    """
    turns = 1 if engines.called(job.engine).by_layers else min(job.batch, layout.pipeline)
    there = memory.host_bytes(shape, job, active=True)
    touched = max(read_parameters(shape, job.batch) * job.weights.bits / 8 - there, 0.0)
    kept = architecture.kept(shape, job.context, layout.tensor)
    flops, products = architecture.forward_flops(shape, job.context) * job.batch, peak(job, card)
    return Step(
        reading=touched / layout.tensor / card.bandwidth,
        caching=kept * job.cache * job.batch / turns / card.bandwidth,
        computing=flops / (layout.tensor * turns * products) if products else 0.0,
        hosting=there / (host or tables.load()["assumptions"]["host"][0]["value"] * GB),
    )


def peak(job: Inference, card: Card) -> float:
    """FLOPs a second of the products of a job; 0 where nobody says what the card computes."""
    return card.peak(job.weights.computes) or card.peak("fp16") or card.peak("fp32")


def read_parameters(shape: Architecture, batch: int) -> float:
    """Parameters that a step of so many tokens reads: of experts those that any of them goes through, if tokens choose evenly."""
    experts = shape.experts
    if experts is None:
        return architecture.active(shape)
    # The first token goes through its own; what that leaves out, each further one misses as often as another.
    missed = (1 - experts.active / experts.count) ** (batch - 1)
    all_of_them = architecture.parameters(shape) - architecture.embedding(shape)
    few = architecture.active(shape)
    return few + (all_of_them - few) * (1 - missed)


def prefill(shape: Architecture, job: Inference, layout: Layout, card: Card, products: float = 0.0) -> Range:
    """Seconds until the first token of a prompt as long as the context; cards of a pipeline compute it one after the other.

    ``products``: the share of the data sheet's that was measured on these cards; 0 where nothing was. The card is one of which
    somebody says what it computes.
    """
    engine = engines.called(job.engine)
    most = architecture.forward_flops(shape, job.context) * job.context / (layout.tensor * peak(job, card))
    share = _no_more(engine.computes, products)
    return Range(most / share, most / share, most / share).spread(1 / engine.high, 1 / engine.low)

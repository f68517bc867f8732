"""The memory that a job needs on its fullest card, part by part, in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gpuwright import console
from gpuwright.sizing import architecture, engines, formats, likeness
from gpuwright.sizing.units import GIB, at_least_one, sequences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.engines import Engine
    from gpuwright.sizing.formats import Format, Scheme
    from gpuwright.sizing.layout import Layout

_FLOAT = 4

#: Elements that a reduction of gradients holds at once (DeepSpeed's reduce_bucket_size).
_BUCKET = 500_000_000
#: Bytes of a token of the vocabulary while a sequence's next one is chosen: chances in 32 bits, sorted and summed, and their places (vLLM's
#: logs, tests/unit/sizing/test_memory.py).
_CHOSEN = 39
#: Elements that the VAE of Stable Diffusion and FLUX holds for a pixel of the image that it decodes: three tensors of 256 channels
#: (counted in AutoencoderKL of diffusers 0.42.1, for each size); some decode in 32 bits. And the side of a tile where it decodes one
#: after the other.
_PIXEL, _TILE = 768, 512
#: Layers whose weights are there at once where each is gathered for its turn: its own and the next one's.
_GATHERED = 2


@dataclass(frozen=True)
class Part:
    """Some of the memory. `low` and `high` are what it may be as well, and `text` says why it is."""

    name: str
    low: float
    value: float
    high: float
    text: str


@dataclass(frozen=True)
class Memory:
    """What one card holds."""

    parts: tuple[Part, ...] = ()

    @cached_property
    def value(self) -> float:
        """All of it."""
        return sum(part.value for part in self.parts)

    @cached_property
    def low(self) -> float:
        """Where everything turns out small."""
        return sum(part.low for part in self.parts)

    @cached_property
    def high(self) -> float:
        """Where everything turns out large."""
        return sum(part.high for part in self.parts)

    def of(self, name: str) -> float:
        """The bytes of a part; 0 where it has none of this name."""
        return sum(part.value for part in self.parts if part.name == name)


@dataclass(frozen=True)
class Training:
    """A job that trains.

    Attributes:
        kind: `full`, `lora` or `qlora`.
        scheme: widths of what is kept.
        optimizer: a name of :data:`gpuwright.sizing.formats.OPTIMIZERS`.
        context: tokens of a sequence.
        batch: sequences of a step, over all cards.
        micro: sequences that a card computes at once.
        recompute: `none`, `selective` (attention's scores) or `full` (every layer).
        flash: whether attention keeps no scores.
        fused: whether norms and activations are one kernel each (Megatron-LM, Transformer Engine, Liger).
        rank: of LoRA's matrices.
    """

    kind: str = "full"
    scheme: Scheme = field(default_factory=lambda: formats.SCHEMES["mixed"])
    optimizer: str = "adamw"
    context: int = 2048
    batch: int = 1
    micro: int = 1
    recompute: str = "none"
    flash: bool = True
    fused: bool = False
    rank: int = 16


@dataclass(frozen=True)
class Inference:
    """A job that answers.

    Attributes:
        weights: how they are stored.
        cache: bytes of an element of the KV cache.
        context: tokens of a sequence, what is asked and what is answered together.
        batch: sequences at once.
        engine: a name of :data:`gpuwright.sizing.engines.NAMES`.
        host_layers: layers whose weights are in the memory of the host: of a mixture their experts alone.
    """

    weights: Format = field(default_factory=lambda: formats.FORMATS["bf16"])
    cache: float = 2
    context: int = 8192
    batch: int = 1
    engine: str = "vllm"
    host_layers: int = 0


def training(shape: Architecture, job: Training, layout: Layout) -> Memory:
    """What the fullest card of a training job holds.

    With a pipeline the first and the last stage are looked at: the first keeps activations of as many micro-batches as there are
    stages (1F1B), the last has the logits.
    """
    if layout.pipeline == 1:
        return _stage(shape, job, layout, first=True, last=True)
    ends = [_stage(shape, job, layout, first=first, last=not first) for first in (True, False)]
    return max(ends, key=lambda memory: memory.value)


def inference(shape: Architecture, job: Inference, layout: Layout) -> Memory:
    """What a card of an inference job holds."""
    if shape.kind == "diffusion":
        weights = _exact("weights", architecture.stored(shape, job.weights) / layout.model, job.weights.text)
        return Memory((weights, _decoded(shape, job), _around(layout)))
    engine = engines.called(job.engine)
    stored = architecture.stored(shape, job.weights)
    there = host_bytes(shape, job)
    tokens = min(job.context * job.batch, engine.chunk or job.context * job.batch)
    widest = 2 * shape.hidden + (3 if shape.gated else 2) * _widest(shape) / layout.tensor
    passing = tokens * widest * 2 + job.batch * shape.vocabulary * _FLOAT
    choosing = engine.samples * shape.vocabulary * _CHOSEN if shape.kind == "decoder" else 0
    forward = f"a forward pass over {tokens} tokens"
    if choosing > passing:
        forward = (
            f"{job.engine} tries the choice of {engine.samples} next tokens as it starts; fewer with --max-num-seqs"
        )
    left = f", without {job.host_layers} layers that are on the host" if job.host_layers else ""
    return Memory(
        (
            _exact("weights", max(stored - there, 0.0) / layout.model, f"{job.weights.name}: {job.weights.text}{left}"),
            _cache(shape, job, layout, engine),
            Part("activations", passing / 2, max(passing, choosing), max(passing * 2, choosing), forward),
            _around(layout, by_layers=engine.by_layers),
        )
    )


def _decoded(shape: Architecture, job: Inference) -> Part:
    """Images as the VAE makes them of what the model made: more than the model itself passes on (0.5 GiB of FLUX.1, 0.3 of SDXL)."""
    if not shape.image:
        return _exact("activations", 0, "what making and decoding a video takes is not counted")
    one, tile = (_PIXEL * 2 * side**2 for side in (shape.image, min(shape.image, _TILE)))
    images = console.counted(job.batch, "images")
    size = f"{shape.image} × {shape.image}"
    text = f"the VAE decodes {images} of {size} at once; less in tiles, or with enable_slicing one after the other"
    return Part("activations", tile, one * job.batch, 2 * one * job.batch, text)


def _cache(shape: Architecture, job: Inference, layout: Layout, engine: Engine) -> Part:
    """Keys and values. Without pages each sequence keeps as much as the longest; transformers copies a layer as it grows."""
    # The layers of a dense model that are on the host have their cache there.
    here = 1.0 if shape.experts or not job.host_layers else 1 - job.host_layers / shape.layers
    each = architecture.kept(shape, job.context, layout.tensor) / layout.pipeline
    kept = each * job.cache * job.batch * here
    if engine.name == "transformers":
        kept *= 1 + 1 / shape.layers
    alike = likeness.of_cache(shape)
    bits = job.cache * 8
    pages = "" if engine.paged or job.batch == 1 else "; each keeps as much as the longest"
    text = f"{sequences(job.batch)} of {job.context} tokens, {bits:g} bits an element{pages}"
    return Part("KV cache", kept * alike.low, kept, kept * alike.high, text)


def host_bytes(shape: Architecture, job: Inference, *, active: bool = False) -> float:
    """Bytes of weights that are in the memory of the host; `active`: those of them that a step of the job reads."""
    if not job.host_layers:
        return 0.0
    experts = shape.experts
    if experts is None:
        return architecture.linear(shape) * job.host_layers / shape.layers * job.weights.bits / 8
    chosen = experts.count * (1 - (1 - experts.active / experts.count) ** job.batch) if active else experts.count
    each = architecture.mlp(shape, experts.intermediate) * job.weights.bits / 8
    return min(job.host_layers, shape.expert_layers) * chosen * each


# training ---------------------------------------------------------------------------------------------


def _stage(shape: Architecture, job: Training, layout: Layout, *, first: bool, last: bool) -> Memory:
    scheme = job.scheme
    held = stage_parameters(shape, layout, first=first, last=last)
    trained = held if job.kind == "full" else adapters(shape, job.rank) / layout.model
    numbers, fixed = formats.OPTIMIZERS[job.optimizer]
    parts = [
        _weights(job, shape, held, trained, layout),
        _exact("gradients", trained * scheme.gradient / layout.shares(2), f"{scheme.gradient} bytes a parameter"),
        _exact(
            "optimizer",
            trained * (scheme.master + numbers * scheme.state + fixed) / layout.shares(1),
            f"{job.optimizer}{': with a copy of the weights in 32 bits' if scheme.master else ''}",
        ),
        _exact(
            "weights for a step",
            _copies(shape, job, held, layout),
            "copies in the width of the products, and layers that are gathered",
        ),
    ]
    flying = min(layout.pipeline, at_least_one(job.batch // (layout.data * job.micro))) if first else 1
    layers = math.ceil(shape.layers / layout.pipeline)
    kept = activations(shape, job, layers=layers * flying, last=last) * job.micro * job.context / layout.tensor
    loss = 8 * shape.vocabulary * job.micro * job.context / layout.tensor if last else 0.0
    alike = likeness.of_activations(shape)
    # Other kernels keep less or more: what PyTorch's own keep is counted, and fused ones keep about two thirds of it.
    less = (0.85 if job.fused else 0.65) * alike.low
    parts.append(Part("activations", kept * less, kept, kept * 1.15 * alike.high, _kept_text(job)))
    if last:
        parts.append(Part("loss", 0.0, loss, loss * 1.25, f"logits of {shape.vocabulary} tokens and their gradient"))
    parts += [_buckets(trained, job, layout), _around(layout)]
    return Memory(tuple(part for part in parts if part.value))


def stage_parameters(shape: Architecture, layout: Layout, *, first: bool, last: bool) -> float:
    """Parameters of a card of a pipeline's stage, before data-parallel cards share them."""
    if layout.pipeline == 1:
        return architecture.parameters(shape) / layout.tensor
    ends = architecture.embedding(shape) if first else 0
    if last:
        ends += architecture.output(shape) or architecture.embedding(shape)
    between = architecture.parameters(shape) - (
        0 if shape.told else architecture.embedding(shape) + architecture.output(shape)
    )
    return (between * math.ceil(shape.layers / layout.pipeline) / shape.layers + ends) / layout.tensor


def adapters(shape: Architecture, rank: int) -> float:
    """Parameters of LoRA's matrices beside every matrix of attention and of the MLP (arXiv:2106.09685; QLoRA: all linear layers)."""
    queries, keys, values, hidden = shape.query_width, shape.key_width, shape.value_width, shape.hidden
    attention = (hidden + queries) + 2 * (hidden + keys) + (values + hidden)
    ways = 3 if shape.gated else 2
    if shape.experts:
        per = ways * (hidden + shape.experts.intermediate) * shape.experts.count
        mlps = shape.expert_layers * per + shape.experts.dense_layers * ways * (hidden + shape.intermediate)
    else:
        mlps = shape.layers * ways * (hidden + shape.intermediate)
    return float(rank * (shape.layers * attention + mlps))


def _weights(job: Training, shape: Architecture, held: float, trained: float, layout: Layout) -> Part:
    shares = layout.shares(3)
    if job.kind == "full":
        return _exact("weights", held * job.scheme.weight / shares, f"{job.scheme.weight} bytes a parameter")
    own = trained * job.scheme.weight
    if job.kind == "lora":
        return _exact("weights", (held * job.scheme.compute + own) / shares, "frozen, and LoRA's matrices")
    stored = formats.FORMATS["nf4"]
    linear = min(architecture.linear(shape) / layout.model, held)
    return _exact(
        "weights",
        (linear * stored.bits / 8 + (held - linear) * 2 + own) / shares,
        f"frozen, {stored.text}; and LoRA's matrices",
    )


def _copies(shape: Architecture, job: Training, held: float, layout: Layout) -> float:
    copies = held * job.scheme.copies
    if layout.strategy == "zero3":
        copies = _GATHERED * held * layout.pipeline / shape.layers * job.scheme.compute
    if job.kind == "qlora":
        # A matrix is there in 16 bits while it is multiplied by.
        copies += shape.hidden * _widest(shape) * 2 / layout.tensor
    return copies


def _buckets(trained: float, job: Training, layout: Layout) -> Part:
    """What a reduction of gradients holds beside them."""
    held = min(trained, _BUCKET) * job.scheme.gradient if layout.strategy != "single" else 0.0
    return Part("reduction", 0.0, held, held * 2, "buckets in which gradients are summed over cards")


def _kept_text(job: Training) -> str:
    how = {
        "none": "everything is kept",
        "selective": "attention is computed again",
        "full": "layers are computed again",
    }
    return f"{job.micro} × {job.context} tokens at once; {how[job.recompute]} for the backward pass"


# activations ------------------------------------------------------------------------------------------


def activations(shape: Architecture, job: Training, *, layers: float, last: bool = True) -> float:
    """Bytes that the forward pass of a token keeps for the backward pass, in so many layers and behind them.

    Counted tensor by tensor as PyTorch keeps them; for a GPT with fused kernels it is the sum of Korthikanti et al.
    (arXiv:2205.05198, table 2).
    """
    each = _layer(shape, job)
    # Computed again: what goes into each layer is kept, and one layer whole while it is its turn.
    kept = layers * job.scheme.stream * shape.hidden + each if job.recompute == "full" else layers * each
    if not last:
        return kept
    behind = job.scheme.compute * shape.hidden if job.kind == "full" else 0
    return kept + _norm_kept(shape, job) + behind + _FLOAT * shape.vocabulary


def _layer(shape: Architecture, job: Training) -> float:
    masks = 2 * shape.hidden if shape.dropout else 0
    kept = (
        _inputs_kept(shape, job)
        + shape.norms * _norm_kept(shape, job)
        + _attention_kept(shape, job)
        + _mlp_kept(shape, job)
    )
    return kept + masks


def _inputs_kept(shape: Architecture, job: Training) -> float:
    """What goes into attention and into the MLP, which their matrices keep.

    Beside frozen matrices it is LoRA's that keep it, each a copy of its own in 32 bits as PEFT keeps them, and what they make of it.
    """
    if not _copied(job):
        return min(shape.norms, 2) * job.scheme.compute * shape.hidden
    ways = 2 if shape.gated else 1
    return _FLOAT * ((3 + ways) * shape.hidden + shape.value_width + (5 + ways) * job.rank)


def _copied(job: Training) -> bool:
    return job.kind != "full" and job.scheme.compute < _FLOAT


def _norm_kept(shape: Architecture, job: Training) -> float:
    """What a norm keeps: its input. RMSNorm as transformers writes it widens that to 32 bits, and keeps the result before the scale too."""
    stream = job.scheme.stream
    if shape.norm == "layernorm" or job.fused:
        return stream * shape.hidden
    scaled = _FLOAT if shape.wide_norm else stream
    return (_FLOAT + (scaled if job.kind == "full" else 0)) * shape.hidden


def _attention_kept(shape: Architecture, job: Training) -> float:
    compute = job.scheme.compute
    values = shape.value_width if shape.latent else shape.kv_heads * shape.head_dim
    through = shape.query_width + shape.value_width
    if shape.latent:
        through += 2 * (shape.latent.q_rank + shape.latent.kv_rank)
    if job.flash or job.recompute == "selective":
        return compute * (through + shape.key_width + values)
    # Each score as the softmax of 32 bits gives it, and in the width of the products; and keys and values repeated for each head.
    scores = _FLOAT + (compute if compute < _FLOAT else 0) if shape.wide_softmax else compute
    if job.fused:
        scores = 2 * compute if shape.dropout else compute
    dropped = 1 if shape.dropout else 0
    return compute * (through + 2 * shape.query_width) + shape.heads * job.context * (scores + dropped)


def _mlp_kept(shape: Architecture, job: Training) -> float:
    """What all MLPs of a layer keep of a token; where some layers have experts and some have not, their mean."""
    experts = shape.experts
    plain = _through(shape, shape.intermediate, job)
    if experts is None:
        return plain
    routed = experts.active * (_through(shape, experts.intermediate, job) + 2 * job.scheme.compute * shape.hidden)
    routed += _through(shape, experts.shared, job)
    dense = experts.dense_layers
    return (dense * plain + (shape.layers - dense) * routed) / shape.layers


def _through(shape: Architecture, width: int, job: Training) -> float:
    kept = architecture.KEPT_BY_ACTIVATION[shape.activation]
    if job.fused:
        kept = min(kept, 1)
    # A gate keeps itself, what its activation made of it, what it is multiplied by, and the product.
    tensors = (1 if job.fused else 2) + (kept > 0) if shape.gated else kept
    if _copied(job):
        return float((job.scheme.compute * at_least_one(tensors) + _FLOAT) * width)
    return float(job.scheme.compute * (tensors + 1) * width)


# both -------------------------------------------------------------------------------------------------


def _exact(name: str, value: float, text: str) -> Part:
    return Part(name, value, value, value, text)


def _around(layout: Layout, *, by_layers: bool = False) -> Part:
    """What is there beside the tensors: CUDA's context and libraries, buffers of NCCL, what the allocator cannot use.

    Cards that hold whole layers hand a token's state on without NCCL.
    """
    alone = layout.cards == 1 and layout.strategy == "single"
    nccl = 0.0 if alone or by_layers else 0.5 * GIB
    return Part(
        "CUDA and NCCL", 0.4 * GIB, 0.8 * GIB + nccl, 1.6 * GIB + 2 * nccl, "context, libraries, buffers, fragments"
    )


def _widest(shape: Architecture) -> int:
    return max(shape.intermediate, shape.experts.intermediate * shape.experts.active if shape.experts else 0)


def fits(memory: Memory, room: float) -> str:
    """Whether it fits into so many bytes: `yes`, `tight` (only where everything turns out as counted), `no`."""
    if memory.high <= room:
        return "yes"
    return "tight" if memory.value <= room else "no"


def largest(parts: Sequence[Part]) -> Part:
    """The part that needs most."""
    return max(parts, key=lambda part: part.value)

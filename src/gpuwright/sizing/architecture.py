"""A transformer that predicts the next token: what its shape says about parameters, FLOPs and the KV cache."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from gpuwright.sizing.units import at_least_one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwright.sizing.formats import Format

#: What an activation function keeps for the backward pass beside its input and the output that the next layer keeps, in PyTorch.
#: GELU and SiLU are one kernel; `gelu_new` and `gelu_fast` of transformers are written in Python, and each of their steps keeps its input.
KEPT_BY_ACTIVATION = {"relu": 0, "gelu": 1, "silu": 1, "gelu_new": 4}

#: Parameters from which on models have fewer heads of keys and values than of queries, eight of them.
_GROUPED = 10e9


@dataclass(frozen=True)
class Experts:
    """The experts that stand in place of a layer's MLP.

    Attributes:
        count: experts of a layer among which a router chooses.
        active: experts that a token goes through.
        intermediate: width of one of them.
        shared: width of what every token goes through beside them, all shared experts together.
        dense_layers: layers that have the plain MLP instead.
        router_bias: whether the router has a number for each expert beside its matrix.
        gate: whether the shared expert has a gate.
        hidden: width of what goes into an expert, where it is another one than that of the model.
    """

    count: int
    active: int
    intermediate: int
    shared: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    gate: bool = False
    hidden: int = 0


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values are kept as one vector of `kv_rank` + `rope` a token.

    `q_rank` is 0 where queries are not compressed. `nope`, `rope` and `value` are widths of one head. In sparse attention (DeepSeek-V3.2)
    `index_heads` heads of width `index` choose the tokens that are looked at, in `indexed` layers; each keeps its keys.
    """

    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int
    index_heads: int = 0
    index: int = 0
    indexed: int = 0


@dataclass(frozen=True)
class Full:
    """Heads of the layers without a window where the others have other ones: of keys and values, how wide; whether keys are values."""

    kv_heads: int
    head_dim: int
    shared: bool


@dataclass(frozen=True)
class Recurrent:
    """Layers that keep a state in place of keys and values (gated delta networks, arXiv:2412.06464).

    Attributes:
        layers: that are such.
        key_heads: heads of keys, and as many of queries.
        value_heads: heads of values.
        key: width of a head of keys.
        value: width of a head of values.
        kernel: tokens that the convolution before it sees.
    """

    layers: int
    key_heads: int
    value_heads: int
    key: int
    value: int
    kernel: int

    @property
    def mixed(self) -> int:
        """Width of queries, keys and values together."""
        return 2 * self.key_heads * self.key + self.value_heads * self.value


@dataclass(frozen=True)
class Kept:
    """What some layers keep of a sequence while it is continued.

    Attributes:
        layers: that do.
        heads: that tensor-parallel cards share among them.
        width: elements of a head and token.
        window: tokens that are kept; 0 for all.
        every: tokens that are kept as one.
    """

    layers: int
    heads: int
    width: float
    window: int = 0
    every: int = 1

    def elements(self, context: int, tensor: int) -> float:
        """Elements of a sequence of so many tokens, on one of so many tensor-parallel cards."""
        return (
            self.layers
            * math.ceil(self.heads / tensor)
            * self.width
            * min(context, self.window or context)
            / self.every
        )


@dataclass(frozen=True)
class Architecture:
    """The shape of a model.

    Attributes:
        name: what people call it.
        kind: `decoder`, which continues a text; `encoder`, which reads one, an image or a sound; `diffusion`, which makes images.
        layers: transformer layers.
        hidden: width of the residual stream.
        heads: query heads.
        kv_heads: heads that keys and values have; fewer than `heads` is grouped-query attention.
        head_dim: width of a head.
        intermediate: width of the MLP.
        vocabulary: tokens of the vocabulary.
        context: the longest sequence that it was made for; 0 where nobody says.
        gated: whether the MLP has a third matrix (SwiGLU, GeGLU).
        activation: `relu`, `gelu`, `silu` or `gelu_new`.
        norm: `rmsnorm` or `layernorm`.
        norms: norms of a layer.
        norm_bias: whether a layer norm has a bias.
        attention_bias: whether queries, keys and values have biases.
        output_bias: whether the output of attention has one.
        mlp_bias: whether the matrices of the MLP have.
        head_bias: whether the output layer has.
        tied: whether the output layer is the embedding.
        positions: learned positions; 0 for rotary ones and the like.
        embedding_width: width of the embedding where it is narrower than the model (OPT-350M), and brought there by a matrix.
        embedding_norm: whether a norm stands behind the embedding.
        query_norm: norms of queries and keys: `none`, `head` (one for all heads) or `full`.
        final_norm: whether the norm behind the last layer has parameters.
        sinks: whether attention has a number of its own for each head.
        wide_norm: whether a norm's result is 32 bits wide until it has been scaled.
        wide_softmax: whether attention's scores are, where they are kept.
        window: tokens that a windowed layer looks back; 0 where none does.
        windowed_layers: layers that look back no further than `window`.
        experts: in place of the MLP.
        latent: in place of keys and values.
        dropout: share that is dropped in training.
        gate: whether queries bring a gate that is as wide as they (Qwen3-Next).
        full: heads of the layers without a window, where the others have other ones.
        recurrent: layers that have a state in place of keys and values.
        kept: what layers keep of a sequence, where heads do not say it.
        beside: parameters that a text does not go through: towers for images and sounds. They stay in 16 bits.
        counted: all parameters as they were published, or lie in the files, where layers have more than is counted here; 0 otherwise.
        image: side of the image that a diffusion model was made for, in pixels; 0 for others.
        trained: whether what training keeps of its layers is counted.
        told: number of parameters as they are told, where the shape was not; 0 otherwise.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    context: int = 0
    gated: bool = True
    activation: str = "silu"
    norm: str = "rmsnorm"
    norms: int = 2
    norm_bias: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    tied: bool = False
    positions: int = 0
    embedding_width: int = 0
    embedding_norm: bool = False
    query_norm: str = "none"
    final_norm: bool = True
    sinks: bool = False
    wide_norm: bool = False
    wide_softmax: bool = True
    window: int = 0
    windowed_layers: int = 0
    experts: Experts | None = None
    latent: Latent | None = None
    dropout: float = 0.0
    kind: str = "decoder"
    gate: bool = False
    full: Full | None = None
    recurrent: Recurrent | None = None
    kept: tuple[Kept, ...] = ()
    beside: int = 0
    counted: float = 0.0
    image: int = 0
    trained: bool = True
    told: float = 0.0

    @property
    def query_width(self) -> int:
        """Width of all queries of a token."""
        return self.heads * (self.latent.nope + self.latent.rope if self.latent else self.head_dim)

    @property
    def value_width(self) -> int:
        """Width of what attention hands to its output matrix."""
        return self.heads * (self.latent.value if self.latent else self.head_dim)

    @property
    def key_width(self) -> int:
        """Width of the keys of a token, as attention computes with them."""
        return self.query_width if self.latent else self.kv_heads * self.head_dim

    @property
    def expert_layers(self) -> int:
        """Layers that have experts."""
        return self.layers - self.experts.dense_layers if self.experts else 0


# parameters -------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def parameters(shape: Architecture) -> float:
    """All parameters of the model."""
    return shape.told or shape.counted or _parts(shape)


def _parts(shape: Architecture) -> float:
    behind = _norm(shape) if shape.final_norm else 0
    layers = shape.layers * _norms(shape) + _attentions(shape) + mlps(shape)
    return embedding(shape) + output(shape) + layers + behind + shape.beside


def active(shape: Architecture) -> float:
    """The parameters that a token goes through, without the look-up of its embedding: two FLOPs each in a forward pass."""
    if shape.told:
        return shape.told
    passed_by: float = embedding(shape) + output(shape) + shape.beside
    if shape.experts:
        passed_by += _routed(shape) * (1 - shape.experts.active / shape.experts.count)
    return parameters(shape) - passed_by + shape.vocabulary * shape.hidden


def embedding(shape: Architecture) -> int:
    """The embedding of tokens, and of learned positions."""
    width, hidden = shape.embedding_width or shape.hidden, shape.hidden
    brought = 2 * width * hidden if width != hidden else 0
    return shape.vocabulary * width + shape.positions * hidden + brought + (_norm(shape) if shape.embedding_norm else 0)


def output(shape: Architecture) -> int:
    """The layer that gives every token of the vocabulary its chance; nothing where it is the embedding."""
    own = 0 if shape.tied else shape.vocabulary * shape.hidden
    return own + (shape.vocabulary if shape.head_bias else 0)


@lru_cache(maxsize=64)
def linear(shape: Architecture) -> float:
    """The parameters of the matrices between the embedding and the output: what quantisation and LoRA change."""
    if shape.told:
        return shape.told
    if shape.counted:
        return max(shape.counted - embedding(shape) - output(shape) - shape.beside, 0)
    return _attentions(replace(shape, query_norm="none")) + mlps(shape)


def stored(shape: Architecture, weights: Format) -> float:
    """Bytes of all weights in a format: of the embedding and the output layer 16 bits, where it leaves them out."""
    matrices = linear(shape)
    others = matrices - _routed(shape) if weights.others and shape.experts else 0.0
    rest = parameters(shape) - matrices
    bits = (matrices - others) * weights.bits + others * weights.others + rest * (weights.bits if weights.whole else 16)
    return bits / 8


def _routed(shape: Architecture) -> int:
    """Parameters of the experts that a router chooses among."""
    experts = shape.experts
    return shape.expert_layers * experts.count * _expert(shape, experts) if experts else 0


def _expert(shape: Architecture, experts: Experts) -> int:
    return mlp(replace(shape, hidden=experts.hidden or shape.hidden), experts.intermediate)


def _norm(shape: Architecture) -> int:
    return shape.hidden * (2 if shape.norm == "layernorm" and shape.norm_bias else 1)


def _norms(shape: Architecture) -> int:
    return shape.norms * _norm(shape)


def _attentions(shape: Architecture) -> int:
    """Attention of all layers, or what stands in its place."""
    recurrent, latent = shape.recurrent, shape.latent
    states = recurrent.layers if recurrent else 0
    wide = _attending(shape) - shape.windowed_layers if shape.full else 0
    found = (shape.layers - states - wide) * attending(shape)
    if recurrent:
        found += states * _recurrent(shape, recurrent)
    if shape.full:
        found += wide * _full(shape, shape.full)
    if latent:
        heads = latent.q_rank * latent.index_heads * latent.index
        found += latent.indexed * (heads + shape.hidden * (latent.index + latent.index_heads) + 2 * latent.index)
    return found


def _full(shape: Architecture, full: Full) -> int:
    """Attention of a layer without a window, whose heads are others; one matrix for both where keys are values."""
    own = replace(shape, kv_heads=full.kv_heads, head_dim=full.head_dim)
    return attention(own) + _query_norm(own) - (shape.hidden * own.key_width if full.shared else 0)


def _recurrent(shape: Architecture, layer: Recurrent) -> int:
    """The matrices, the convolution and the norm of a gated delta network, and two numbers for each head."""
    values = layer.value_heads * layer.value
    into = shape.hidden * (layer.mixed + values + 2 * layer.value_heads)
    return into + layer.mixed * layer.kernel + 2 * layer.value_heads + layer.value + values * shape.hidden


def attending(shape: Architecture) -> int:
    """The matrices of a layer's attention, with the norms of queries and keys."""
    return attention(shape) + _query_norm(shape)


def _query_norm(shape: Architecture) -> int:
    if shape.query_norm == "none":
        return 0
    return 2 * shape.head_dim if shape.query_norm == "head" else shape.query_width + shape.key_width


def attention(shape: Architecture) -> int:
    """The matrices of a layer's attention, with their biases."""
    if shape.latent:
        return _latent(shape, shape.latent)
    ways = shape.query_width * (2 if shape.gate else 1) + 2 * shape.key_width
    biases = (ways if shape.attention_bias else 0) + (shape.hidden if shape.output_bias else 0)
    biases += shape.heads if shape.sinks else 0
    return shape.hidden * ways + shape.value_width * shape.hidden + biases


def _latent(shape: Architecture, latent: Latent) -> int:
    if latent.q_rank:
        queries = shape.hidden * latent.q_rank + latent.q_rank + latent.q_rank * shape.query_width
    else:
        queries = shape.hidden * shape.query_width
    down = shape.hidden * (latent.kv_rank + latent.rope) + latent.kv_rank
    up = latent.kv_rank * shape.heads * (latent.nope + latent.value)
    return queries + down + up + shape.value_width * shape.hidden


def mlps(shape: Architecture) -> int:
    """The MLPs of all layers, or their experts with routers."""
    plain = (shape.layers - shape.expert_layers) * mlp(shape, shape.intermediate)
    experts = shape.experts
    if experts is None:
        return plain
    each = experts.count * _expert(shape, experts) + mlp(shape, experts.shared)
    router = (shape.hidden + (1 if experts.router_bias else 0)) * experts.count + (shape.hidden if experts.gate else 0)
    return plain + shape.expert_layers * (each + router)


def mlp(shape: Architecture, width: int) -> int:
    """An MLP of a width."""
    matrices = (3 if shape.gated else 2) * shape.hidden * width
    return matrices + ((2 if shape.gated else 1) * width + shape.hidden if shape.mlp_bias and width else 0)


# what follows from them -------------------------------------------------------------------------------


def kept(shape: Architecture, context: int, tensor: int = 1) -> float:
    """Elements of a sequence that one of so many tensor-parallel cards keeps: whole heads; a latent vector is on each card."""
    return sum(each.elements(context, tensor) for each in shape.kept or _kept(shape))


def _kept(shape: Architecture) -> Iterator[Kept]:
    """Keys and values of the layers that have them; a windowed layer keeps its window, a recurrent one its state, in 32 bits."""
    if shape.kind != "decoder":
        return
    recurrent = shape.recurrent
    if recurrent:
        state = recurrent.key * recurrent.value + recurrent.mixed * recurrent.kernel / recurrent.value_heads
        yield Kept(recurrent.layers, recurrent.value_heads, 2 * state, window=1)
    if shape.latent:
        yield Kept(_attending(shape), 1, shape.latent.kv_rank + shape.latent.rope)
        yield Kept(shape.latent.indexed, 1, shape.latent.index)
        return
    yield Kept(shape.windowed_layers, shape.kv_heads, 2 * shape.head_dim, window=shape.window)
    heads, width = (shape.full.kv_heads, shape.full.head_dim) if shape.full else (shape.kv_heads, shape.head_dim)
    yield Kept(_attending(shape) - shape.windowed_layers, heads, 2 * width)


def _attending(shape: Architecture) -> int:
    return shape.layers - (shape.recurrent.layers if shape.recurrent else 0)


def kept_tokens(shape: Architecture, context: int) -> float:
    """Tokens that a token looks back at, over all layers: in a windowed layer those of its window."""
    seen = min(context, shape.window or context)
    return (_attending(shape) - shape.windowed_layers) * context + shape.windowed_layers * seen


def forward_flops(shape: Architecture, context: int) -> float:
    """FLOPs of a token in a forward pass over a sequence: two for each active parameter, and those of attention.

    A token looks at the half of the sequence that stands before it, on average: 2 · 2 · layers · context/2 · width (queries by
    keys, and the result by values). Papers that count the whole sequence (PaLM, Megatron-LM) have twice as much of it.
    """
    return 2 * active(shape) + attention_flops(shape, context)


def attention_flops(shape: Architecture, context: int) -> float:
    """FLOPs of a token that come with the length of its sequence."""
    seen = kept_tokens(shape, context) / 2
    return 2 * seen * (shape.query_width + shape.value_width)


def typical(name: str, told: float) -> Architecture:
    """The shape that a model of so many parameters has, about: Llama's proportions.

    layers · hidden² · 12 is the number of parameters, and hidden is 128 times the layers (Llama 2 7B: 32 layers, 4096). The MLP is 8/3
    as wide as the model, heads are 128 wide. From 10 B on eight of them have keys and values, as in all such models since Llama 2 70B.
    """
    layers = at_least_one(round((told / (12 * 128**2)) ** (1 / 3)))
    hidden = max(64 * round(math.sqrt(told / (12 * layers)) / 64), 64)
    grouped = told >= _GROUPED
    heads = 8 * round(hidden / 1024) if grouped else at_least_one(hidden // 128)
    hidden = heads * 128 if grouped else hidden
    return Architecture(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8 if grouped else heads,
        head_dim=hidden // heads,
        intermediate=64 * round(hidden * 8 / 3 / 64),
        vocabulary=32_000,
        told=told,
    )

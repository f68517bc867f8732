"""A transformer that predicts the next token: what its shape says about parameters, FLOPs and the KV cache."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

#: What an activation function keeps for the backward pass beside its input and the output that the next layer keeps, in PyTorch.
#: GELU and SiLU are one kernel; `gelu_new` and `gelu_fast` of transformers are written in Python, and each of their steps keeps its input.
KEPT_BY_ACTIVATION = {"relu": 0, "gelu": 1, "silu": 1, "gelu_new": 4}


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
    """

    count: int
    active: int
    intermediate: int
    shared: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    gate: bool = False


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values are kept as one vector of `kv_rank` + `rope` a token.

    `q_rank` is 0 where queries are not compressed. `nope`, `rope` and `value` are widths of one head.
    """

    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True)
class Architecture:
    """The shape of a model.

    Attributes:
        name: what people call it.
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


def parameters(shape: Architecture) -> float:
    """All parameters of the model."""
    behind = _norm(shape) if shape.final_norm else 0
    return shape.told or embedding(shape) + output(shape) + shape.layers * _around(shape) + _mlps(shape) + behind


def active(shape: Architecture) -> float:
    """The parameters that a token goes through, without the look-up of its embedding: two FLOPs each in a forward pass."""
    if shape.told:
        return shape.told
    experts = shape.experts
    narrow = shape
    if experts:
        narrow = replace(shape, experts=replace(experts, count=experts.active))
    return parameters(narrow) - embedding(shape) - output(shape) + shape.vocabulary * shape.hidden


def embedding(shape: Architecture) -> int:
    """The embedding of tokens, and of learned positions."""
    width, hidden = shape.embedding_width or shape.hidden, shape.hidden
    brought = 2 * width * hidden if width != hidden else 0
    return shape.vocabulary * width + shape.positions * hidden + brought + (_norm(shape) if shape.embedding_norm else 0)


def output(shape: Architecture) -> int:
    """The layer that gives every token of the vocabulary its chance; nothing where it is the embedding."""
    own = 0 if shape.tied else shape.vocabulary * shape.hidden
    return own + (shape.vocabulary if shape.head_bias else 0)


def linear(shape: Architecture) -> float:
    """The parameters of the matrices between the embedding and the output: what quantisation and LoRA change."""
    if shape.told:
        return shape.told
    narrow = replace(shape, norms=0, query_norm="none")
    return shape.layers * _around(narrow) + _mlps(narrow)


def _norm(shape: Architecture) -> int:
    return shape.hidden * (2 if shape.norm == "layernorm" and shape.norm_bias else 1)


def _around(shape: Architecture) -> int:
    """Attention of a layer, and its norms."""
    return attention(shape) + shape.norms * _norm(shape) + _query_norm(shape)


def _query_norm(shape: Architecture) -> int:
    if shape.query_norm == "none":
        return 0
    return 2 * shape.head_dim if shape.query_norm == "head" else shape.query_width + shape.key_width


def attention(shape: Architecture) -> int:
    """The matrices of a layer's attention, with their biases."""
    if shape.latent:
        return _latent(shape, shape.latent)
    ways = shape.query_width + 2 * shape.key_width
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


def _mlps(shape: Architecture) -> int:
    """The MLPs of all layers, or their experts with routers."""
    plain = (shape.layers - shape.expert_layers) * mlp(shape, shape.intermediate)
    experts = shape.experts
    if experts is None:
        return plain
    each = experts.count * mlp(shape, experts.intermediate) + mlp(shape, experts.shared)
    router = (shape.hidden + (1 if experts.router_bias else 0)) * experts.count + (shape.hidden if experts.gate else 0)
    return plain + shape.expert_layers * (each + router)


def mlp(shape: Architecture, width: int) -> int:
    """An MLP of a width."""
    matrices = (3 if shape.gated else 2) * shape.hidden * width
    return matrices + ((2 if shape.gated else 1) * width + shape.hidden if shape.mlp_bias and width else 0)


# what follows from them -------------------------------------------------------------------------------


def kept_tokens(shape: Architecture, context: int) -> float:
    """Tokens whose keys and values are kept, over all layers: a windowed layer keeps its window."""
    windowed = shape.windowed_layers if shape.window else 0
    return (shape.layers - windowed) * context + windowed * min(context, shape.window or context)


def kept_width(shape: Architecture, tensor: int = 1) -> int:
    """Elements that one of so many tensor-parallel cards keeps of each token and layer: whole heads; the latent vector is on each card."""
    if shape.latent:
        return shape.latent.kv_rank + shape.latent.rope
    return 2 * math.ceil(shape.kv_heads / tensor) * shape.head_dim


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
    as wide as the model, heads are 128 wide and eight of them have keys and values, from 10 B on.
    """
    layers = max(round((told / (12 * 128**2)) ** (1 / 3)), 1)
    hidden = max(64 * round(math.sqrt(told / (12 * layers)) / 64), 64)
    heads = max(hidden // 128, 1)
    kv_heads = math.gcd(heads, 8) if told > 10e9 else heads
    return Architecture(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=max(hidden // heads, 1),
        intermediate=max(64 * round(hidden * 8 / 3 / 64), 64),
        vocabulary=32_000,
        told=told,
    )

"""Families whose layers keep a state of constant size in place of keys and values, in some or in all layers.

Matrices as transformers 5.24.0 has them: `modeling_*.py` of mamba, mamba2, jamba, nemotron_h, bamba, granitemoehybrid, falcon_h1, lfm2,
lfm2_moe, recurrent_gemma and zamba2; those of RWKV-7 as flash-linear-attention has them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture
from gpuwright.sizing.architecture import Architecture, Kept, Recurrent
from gpuwright.sizing.units import at_least_one, excerpt

Config = dict[str, object]

#: What the letters of `hybrid_override_pattern` stand for (Nemotron-H).
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
#: What other files call the same kinds of layers.
_KINDS = {"full_attention": "attention", "linear_attention": "mamba", "conv": "mamba"}


@dataclass(frozen=True)
class _Mixer:
    """What stands in place of attention: its parameters, its heads, and the elements of a head's state with those of its convolution."""

    parameters: int
    heads: int
    state: float


def read(shape: Architecture, config: Config, name: str) -> Architecture | None:
    """The shape with its states; None where its family has none.

    Raises:
        BadInput: what it has to say of its layers is missing.
    """
    kind = str(config.get("model_type"))
    said = _Said(config, name)
    if kind in ("mamba", "falcon_mamba"):
        rank, kernel = said.whole("time_step_rank", -(-shape.hidden // 16)), said.whole("conv_kernel", 4)
        inner = said.whole("intermediate_size", 2 * shape.hidden)
        mixer = _selective(shape, inner, said.whole("state_size", 16), rank, kernel)
        return _made(shape, mixer, Counter(mamba=shape.layers))
    if kind == "mamba2":
        inner = said.whole("expand", 2) * shape.hidden
        head = said.whole("head_dim", 64)
        mixer = _scan(
            shape,
            at_least_one(inner // head),
            head,
            said.whole("n_groups", 8),
            said.whole("state_size", 128),
            said.whole("conv_kernel", 4),
        )
        return _made(shape, mixer, Counter(mamba=shape.layers))
    readers = {
        "recurrent_gemma": _griffin,
        "zamba2": _zamba,
        "rwkv7": _rwkv,
        "jamba": _jamba,
        "nemotron_h": _nemotron,
        "bamba": _bamba,
        "granitemoehybrid": _granite,
        "falcon_h1": _falcon,
        "lfm2": _lfm,
        "lfm2_moe": _lfm,
    }
    return readers[kind](shape, said) if kind in readers else None


class _Said:
    """What a file says of its layers."""

    def __init__(self, config: Config, name: str) -> None:
        self.config, self.name = config, name

    def whole(self, key: str, usual: int | None = None, *, least: int = 1) -> int:
        """A whole number; the usual one where the file says none."""
        found = self.config.get(key)
        found = usual if found in (None, "auto") else found
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= 1_000_000:
            raise BadInput(f"{self.name}: {key} has to be a whole number from {least} on, found {excerpt(found)}")
        return found

    def kinds(self, layers: int, *keys: str) -> Counter[str]:
        """How many layers of each kind there are."""
        said = next((self.config[key] for key in keys if self.config.get(key)), None)
        if isinstance(said, str):
            said = [_LETTERS.get(letter, letter) for letter in said]
        if not isinstance(said, list) or len(said) != layers:
            raise BadInput(f"{self.name}: {keys[0]} has to say the kind of each of the {layers} layers")
        return Counter(_KINDS.get(str(each), str(each)) for each in said)


# what stands in place of attention --------------------------------------------------------------------


def _selective(shape: Architecture, inner: int, state: int, rank: int, kernel: int) -> _Mixer:
    """A selective state space (arXiv:2312.00752): each element of the inner width has its own state."""
    into = shape.hidden * 2 * inner + inner * (kernel + 1)
    steps = inner * (rank + 2 * state) + rank * inner + inner
    return _Mixer(into + steps + inner * state + inner + inner * shape.hidden, inner, state + kernel)


def _scan(
    shape: Architecture, heads: int, head: int, groups: int, state: int, kernel: int, *, norm: bool = True
) -> _Mixer:
    """State space duality (Mamba-2, arXiv:2405.21060): one step for each head, and states of `head` by `state`."""
    inner = heads * head
    mixed = inner + 2 * groups * state
    into = shape.hidden * (inner + mixed + heads) + mixed * (kernel + 1)
    return _Mixer(
        into + 3 * heads + (inner if norm else 0) + inner * shape.hidden, heads, head * state + mixed * kernel / heads
    )


# families ---------------------------------------------------------------------------------------------


def _jamba(shape: Architecture, said: _Said) -> Architecture:
    """Mamba with norms within it, an attention in eight layers, experts in every second."""
    period, offset = said.whole("attn_layer_period", 8), said.whole("attn_layer_offset", 4, least=0)
    every, first = said.whole("expert_layer_period", 2), said.whole("expert_layer_offset", 1, least=0)
    attending = sum(layer % period == offset for layer in range(shape.layers))
    state, rank = said.whole("mamba_d_state", 16), said.whole("mamba_dt_rank", -(-shape.hidden // 16))
    inner = said.whole("mamba_expand", 2) * shape.hidden
    mixer = _selective(shape, inner, state, rank, said.whole("mamba_d_conv", 4))
    mixer = replace(mixer, parameters=mixer.parameters + rank + 2 * state)
    if shape.experts:
        routed = sum(layer % every == first for layer in range(shape.layers))
        shape = replace(shape, experts=replace(shape.experts, dense_layers=shape.layers - routed))
    return _made(shape, mixer, Counter(attention=attending, mamba=shape.layers - attending), mlps=True)


def _nemotron(shape: Architecture, said: _Said) -> Architecture:
    """Nemotron-H: each layer is one of Mamba-2, attention, an MLP or experts, with one norm."""
    if said.config.get("moe_latent_size"):
        # Experts narrower than the model, brought there by two matrices of the layer.
        latent = said.whole("moe_latent_size")
        shape = replace(shape, experts=shape.experts and replace(shape.experts, hidden=latent))
    kinds = said.kinds(shape.layers, "hybrid_override_pattern", "layers_block_type")
    heads, head = said.whole("mamba_num_heads", 128), said.whole("mamba_head_dim", 64)
    groups, state = said.whole("n_groups", 8), said.whole("ssm_state_size", 128)
    mixer = _scan(shape, heads, head, groups, state, said.whole("conv_kernel", 4))
    experts = shape.experts
    each = 0
    if experts:
        shape = replace(shape, experts=replace(experts, dense_layers=shape.layers - kinds["moe"]))
        width = experts.hidden or shape.hidden
        each = experts.count * (2 * width * experts.intermediate + shape.hidden)
        each += 2 * shape.hidden * said.whole("moe_shared_expert_intermediate_size", 7688)
        each += 2 * shape.hidden * experts.hidden
    shape = replace(shape, norms=1)
    alone = kinds["mlp"] * architecture.mlp(shape, shape.intermediate) + kinds["moe"] * each
    return _made(shape, mixer, kinds, more=alone)


def _bamba(shape: Architecture, said: _Said) -> Architecture:
    attending = said.config.get("attn_layer_indices")
    count = len(attending) if isinstance(attending, list) else 0
    mixer = _of_heads(shape, said, norm=True)
    return _made(shape, mixer, Counter(attention=count, mamba=shape.layers - count), mlps=True)


def _granite(shape: Architecture, said: _Said) -> Architecture:
    """Granite 4: Mamba-2 or attention, and beside the experts an MLP for all tokens; without experts that one alone."""
    if not shape.experts:
        shape = replace(shape, intermediate=said.whole("shared_intermediate_size", 1024))
    kinds = said.kinds(shape.layers, "layer_types", "layers_block_type", "hybrid_override_pattern")
    return _made(shape, _of_heads(shape, said, norm=True), kinds, mlps=True)


def _falcon(shape: Architecture, said: _Said) -> Architecture:
    """Falcon-H1: attention and Mamba-2 beside each other in every layer."""
    mixer = _of_heads(shape, said, norm=bool(said.config.get("mamba_rms_norm")))
    return _made(shape, mixer, Counter(attention=shape.layers, mamba=shape.layers), mlps=True)


def _of_heads(shape: Architecture, said: _Said, *, norm: bool) -> _Mixer:
    """Mamba-2 as Bamba and Falcon-H1 say it."""
    heads = said.whole("mamba_n_heads", 128)
    inner = said.whole("mamba_d_ssm", said.whole("mamba_expand", 2) * shape.hidden)
    groups, state = said.whole("mamba_n_groups", 1), said.whole("mamba_d_state", 256)
    if heads > inner:
        raise BadInput(f"{said.name}: mamba_n_heads has to be no more than {inner}, found {heads}")
    return _scan(shape, heads, inner // heads, groups, state, said.whole("mamba_d_conv", 4), norm=norm)


def _griffin(shape: Architecture, said: _Said) -> Architecture:
    """RecurrentGemma: a gated linear recurrence with a short convolution in two layers of three, attention with a window in the third."""
    pattern = said.config.get("block_types")
    pattern = pattern if isinstance(pattern, list) and pattern else ["recurrent", "recurrent", "attention"]
    attending = sum(pattern[layer % len(pattern)] == "attention" for layer in range(shape.layers))
    width, kernel = said.whole("lru_width", shape.hidden), said.whole("conv1d_width", 4)
    # The file says the width of both halves of the gated matrix together.
    shape = replace(shape, intermediate=shape.intermediate // 2)
    gates = 2 * (width * width // shape.heads + width) + width
    matrices = 3 * shape.hidden * width + 2 * width + shape.hidden
    mixer = _Mixer(matrices + width * (kernel + 1) + gates, 1, width * (1 + kernel))
    made = _made(shape, mixer, Counter(attention=attending, mamba=shape.layers - attending), mlps=True)
    seen, state = made.kept
    return replace(made, kept=(replace(seen, window=said.whole("attention_window_size", 2048)), state))


def _zamba(shape: Architecture, said: _Said) -> Architecture:
    """Zamba2: Mamba-2 in every layer; before some of them one of a few shared blocks, twice as wide, with adapters for each place."""
    places = said.config.get("hybrid_layer_ids")
    count = len(places) if isinstance(places, list) else said.kinds(shape.layers, "layers_block_type")["hybrid"]
    hidden, wide, rank = shape.hidden, 2 * shape.hidden, said.whole("adapter_rank", 128)
    heads, inner = said.whole("n_mamba_heads", 8), said.whole("mamba_expand", 2) * hidden
    mixer = _scan(
        shape,
        heads,
        at_least_one(inner // heads),
        said.whole("mamba_ngroups", 1),
        said.whole("mamba_d_state", 64),
        said.whole("mamba_d_conv", 4),
    )
    block = 3 * wide * wide + wide * hidden + 3 * hidden * shape.intermediate + wide + hidden
    each = hidden * hidden + rank * (hidden + 2 * shape.intermediate)
    if said.config.get("use_shared_attention_adapter"):
        each += 3 * rank * 2 * wide
    more = said.whole("num_mem_blocks", 1) * block + count * each
    made = _made(shape, mixer, Counter(mamba=shape.layers), more=more)
    kept = (Kept(count, shape.heads, 2 * (wide // shape.heads)), made.kept[1])
    attending = Recurrent(shape.layers - min(count, shape.layers), 0, 0, 0, 0, 0)
    return replace(made, kept=kept, recurrent=attending)


def _rwkv(shape: Architecture, said: _Said) -> Architecture:
    """RWKV-7: a state of each head that is changed by rank one (arXiv:2503.14456); decay, rate, gate and value come of narrow matrices."""
    hidden, head = shape.hidden, said.whole("head_dim", 64)
    usual = {"decay": 96, "a": 96, "gate": 256, "v": 64}
    decay, rate, gate, value = (said.whole(f"{name}_low_rank_dim", most) for name, most in usual.items())
    matrices = 4 * hidden * hidden + 2 * hidden * (decay + rate + gate + value) + 2 * hidden * shape.intermediate
    # And 19 vectors with its norms, of which one is counted for each layer; the first has no value of a layer before it, and a norm more.
    mixer = _Mixer(matrices + 18 * hidden, at_least_one(hidden // head), head * head + 2 * head)
    return _made(shape, mixer, Counter(mamba=shape.layers), more=2 * hidden - 2 * hidden * value)


def _lfm(shape: Architecture, said: _Said) -> Architecture:
    """LFM2: short convolutions with gates, of a few tokens each, in most layers."""
    attending = said.config.get("full_attn_idxs")
    count = len(attending) if isinstance(attending, list) else said.kinds(shape.layers, "layer_types")["attention"]
    if said.config.get("block_auto_adjust_ff_dim"):
        step = said.whole("block_multiple_of", 256)
        shape = replace(shape, intermediate=-(-int(2 * shape.intermediate / 3) // step) * step)
    if shape.experts:
        shape = replace(
            shape, experts=replace(shape.experts, dense_layers=min(said.whole("num_dense_layers", 2), shape.layers))
        )
    kernel = said.whole("conv_L_cache", 3)
    mixer = _Mixer(4 * shape.hidden * shape.hidden + shape.hidden * kernel, 1, shape.hidden * kernel)
    return _made(shape, mixer, Counter(attention=count, mamba=shape.layers - count), mlps=True)


def _made(
    shape: Architecture, mixer: _Mixer, kinds: Counter[str], *, mlps: bool = False, more: int = 0
) -> Architecture:
    """The shape: its parameters, and what its layers keep; a state is 32 bits wide, twice an element of the cache."""
    norms = shape.layers * (2 if mlps else 1) * shape.hidden + shape.hidden
    heads = kinds["attention"] * architecture.attending(shape)
    counted = (
        architecture.embedding(shape)
        + architecture.output(shape)
        + norms
        + heads
        + kinds["mamba"] * mixer.parameters
        + more
    )
    if mlps:
        counted += architecture.mlps(shape)
    kept = (
        Kept(kinds["attention"], shape.kv_heads, 2 * shape.head_dim),
        Kept(kinds["mamba"], mixer.heads, 2 * mixer.state, window=1),
    )
    attending = Recurrent(shape.layers - kinds["attention"], 0, 0, 0, 0, 0)
    return replace(shape, counted=float(counted), kept=kept, recurrent=attending, trained=False)

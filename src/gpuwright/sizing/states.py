"""Families whose layers keep a state of constant size in place of keys and values, in some or in all layers.

Matrices as transformers 5.24.0 has them: `modeling_*.py` of mamba, mamba2, jamba, nemotron_h, bamba, falcon_h1, lfm2 and lfm2_moe.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture
from gpuwright.sizing.architecture import Architecture, Kept, Recurrent

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
            max(inner // head, 1),
            head,
            said.whole("n_groups", 8),
            said.whole("state_size", 128),
            said.whole("conv_kernel", 4),
        )
        return _made(shape, mixer, Counter(mamba=shape.layers))
    readers = {
        "jamba": _jamba,
        "nemotron_h": _nemotron,
        "bamba": _bamba,
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
            raise BadInput(f"{self.name}: {key} has to be a whole number from {least} on, found {str(found)[:40]!r}")
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

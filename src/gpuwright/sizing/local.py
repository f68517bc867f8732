"""The shape of a model that lies on a disk, and its weights byte for byte."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, config, files, formats, quantization
from gpuwright.sizing.architecture import Architecture, Experts, Kept, typical
from gpuwright.sizing.units import at_least_one, excerpt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuwright.sizing.files import Lying
    from gpuwright.sizing.formats import Format
    from gpuwright.sizing.headers import Tensor

#: A tensor of a layer of the text's part.
_LAYER = re.compile(r"^(?:model\.|language_model\.|transformer\.)*(?:layers|h)\.(\d+)\.")
_BLOCK = re.compile(r"^blk\.(\d+)\.")
#: Every so many layers look at the whole text, where a GGUF file does not say it.
_PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "llama4": 4, "exaone4": 4}
#: The side of an image where no file of a diffusion model says it, and the largest, in pixels.
_IMAGE, _LARGEST = 1024, 16_384
#: What is in files and not loaded: masks and frequencies that are computed, and layers that predict further tokens.
_NOT_LOADED = re.compile(
    r"\.(?:attn|attention)\.(?:bias|masked_bias)$|(?:inv_freq|cos_cached|sin_cached)$|(?:^|\.)mtp\.|(?:^|\.)nextn\."
)
#: Weights that one element of a packed tensor holds (AutoAWQ, GPTQ, compressed-tensors; bitsandbytes, MXFP4).
_PACKED = (
    (re.compile(r"(?:qweight|weight_packed)$"), {"i32": 8, "u8": 2}),
    (re.compile(r"(?:\.weight|_blocks)$"), {"u8": 2}),
)
_ABOUT_PACKED = re.compile(
    r"(?:scales|qzeros|g_idx|absmax|quant_map|weight_scale|weight_scale_2|weight_shape|input_scale|zero_point)$|quant_state"
)


def shape(lying: Lying) -> Architecture:
    """The shape that a configuration, a GGUF file or the tensors themselves tell.

    Raises:
        BadInput: the configuration is of no family that is known, or a number is missing or absurd.
    """
    name = str(lying.path)
    if lying.said:
        return _of_gguf(lying, name)
    if lying.parts:
        # One layer stands for them all; cards may share it.
        side = lying.config.get("sample_size")
        image = side if isinstance(side, int) and 0 < side <= _LARGEST else _IMAGE
        return Architecture(name, 1, 0, 8, 8, 0, 0, 0, kind="diffusion", image=image, counted=_elements(lying.tensors))
    if lying.config:
        return config.read(lying.config, name)
    return _of_tensors(lying, name)


def weights(lying: Lying, shape: Architecture) -> tuple[Format | None, str]:
    """The format of the weights, of exactly as many bytes as are loaded; without files the one that the configuration says."""
    loaded = [each for each in lying.tensors if _loaded(each, shape)]
    size = sum(each.bytes for each in loaded)
    said = quantization.read(lying.config)
    if not size:
        return said.weights, said.text
    kind = files.kind(loaded) or "bf16"
    found = formats.lying(kind, size, architecture.parameters(shape))
    quantised = said.weights and kind in {"i32", "u8", "i8"}
    if said.weights and quantised:
        found = replace(found, name=said.weights.name, computes=said.weights.computes)
    return found, "counted byte by byte in its files"


def _loaded(tensor: Tensor, shape: Architecture) -> bool:
    layer = _LAYER.match(tensor.name)
    if layer and shape.layers and int(layer[1]) >= shape.layers:
        return False
    if shape.tied and not shape.told and tensor.name.endswith("lm_head.weight"):
        return False
    return not _NOT_LOADED.search(tensor.name)


def _elements(tensors: Iterable[Tensor]) -> int:
    """Weights, those that are packed several into one element too; their scales are none."""
    return sum(each.elements * _packed(each) for each in tensors if not _ABOUT_PACKED.search(each.name))


def _packed(tensor: Tensor) -> int:
    return next(
        (held[tensor.kind] for pattern, held in _PACKED if tensor.kind in held and pattern.search(tensor.name)), 1
    )


# GGUF -------------------------------------------------------------------------------------------------


class _Gguf:
    """What a GGUF file says, by names without that of its architecture."""

    def __init__(self, lying: Lying, name: str) -> None:
        self._said, self._name = lying.said, name
        self.kind = str(lying.said.get("general.architecture", ""))

    def number(self, key: str, default: int = 0) -> int:
        """A whole number; of a list, one for each layer, the largest."""
        found = self._said.get(f"{self.kind}.{key}", default)
        if isinstance(found, list):
            found = max(found, default=0)
        if not isinstance(found, int) or not 0 <= found <= config.MOST:
            raise BadInput(f"{self._name}: {key} has to be a whole number up to {config.MOST}, found {excerpt(found)}")
        return int(found)

    def each(self, key: str) -> list[int]:
        """One for each layer; nothing where the file has one for all."""
        found = self._said.get(f"{self.kind}.{key}")
        return found if isinstance(found, list) else []


def _of_gguf(lying: Lying, name: str) -> Architecture:
    """Keys as github ggml-org/ggml, docs/gguf.md, and PyPI gguf 0.19.0 (constants.py) have them."""
    said = _Gguf(lying, name)
    layers, hidden, heads = (
        said.number("block_count"),
        said.number("embedding_length"),
        said.number("attention.head_count"),
    )
    if not (layers and hidden and heads):
        raise BadInput(
            f"{name} does not say layers, their width and their heads; its architecture is {excerpt(said.kind)}"
        )
    layers = at_least_one(layers - said.number("nextn_predict_layers"))
    tensors = {each.name: each for each in lying.tensors}
    kv_heads = at_least_one(said.number("attention.head_count_kv", heads))
    width = said.number("attention.key_length", at_least_one(hidden // heads))
    intermediate = said.number("feed_forward_length")
    token = tensors.get("token_embd.weight")
    loaded = [each for each in lying.tensors if not ((layer := _BLOCK.match(each.name)) and int(layer[1]) >= layers)]
    return Architecture(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        intermediate=intermediate,
        vocabulary=said.number("vocab_size", token.shape[-1] if token and token.shape else 0),
        context=said.number("context_length"),
        tied="output.weight" not in tensors,
        kept=tuple(
            _kept(said, [_kept_of_block(tensors, layer, 2 * kv_heads * width) for layer in range(layers)], kv_heads)
        ),
        experts=_experts(said, intermediate),
        counted=_elements(loaded),
    )


def _kept_of_block(tensors: dict[str, Tensor], layer: int, usual: int) -> tuple[int, bool]:
    """Elements that a block keeps of a token, and whether each card of a job has all of them; none where it keeps a state."""
    block = f"blk.{layer}."
    latent = tensors.get(block + "attn_kv_a_mqa.weight")
    if latent:
        return latent.shape[-1], True
    parts = [tensors[block + each] for each in ("attn_k.weight", "attn_v.weight") if block + each in tensors]
    if parts:
        return sum(each.shape[-1] for each in parts) * (2 if len(parts) == 1 else 1), False
    return (usual if block + "attn_qkv.weight" in tensors and block + "ssm_conv1d.weight" not in tensors else 0), False


def _kept(said: _Gguf, blocks: list[tuple[int, bool]], heads: int) -> Iterator[Kept]:
    window = said.number("attention.sliding_window") or said.number("attention.chunk_size")
    # llama.cpp has the period of some in its code (src/llama-model.cpp, `set_swa_pattern`, read 2026-11-30).
    pattern = said.each("attention.sliding_window_pattern")
    period = said.number("attention.sliding_window_pattern", _PERIODS.get(said.kind, 1))
    found: Counter[tuple[int, bool, bool]] = Counter()
    for layer, (width, whole) in enumerate(blocks):
        windowed = bool(pattern[layer]) if layer < len(pattern) else period == 1 or (layer + 1) % period != 0
        found[width, whole, bool(window and windowed)] += 1
    for (width, whole, windowed), layers in found.items():
        yield Kept(layers, 1 if whole else heads, width if whole else width / heads, window if windowed else 0)
    states = sum(1 for width, _ in blocks if not width)
    inner, state = said.number("ssm.inner_size"), said.number("ssm.state_size")
    if states and inner:
        # A state is 32 bits wide, twice an element of the cache.
        yield Kept(states, 1, 2 * inner * (state + said.number("ssm.conv_kernel")), window=1)


def _experts(said: _Gguf, intermediate: int) -> Experts | None:
    count = said.number("expert_count")
    if not count:
        return None
    width = said.number("expert_feed_forward_length", intermediate)
    shared = said.number("expert_shared_feed_forward_length", said.number("expert_shared_count") * width)
    return Experts(
        count=count,
        active=min(said.number("expert_used_count", 1), count),
        intermediate=width,
        shared=shared,
        dense_layers=min(said.number("leading_dense_block_count"), said.number("block_count")),
    )


# safetensors alone ------------------------------------------------------------------------------------


def _of_tensors(lying: Lying, name: str) -> Architecture:
    """What the matrices tell of a shape; where they have other names, that of models with so many weights.

    The width of a head is in none of them: 128 is assumed, as most have it. The cache does not need it.
    """
    total = float(_elements(lying.tensors))
    if not total:
        raise BadInput(f"{name} has no weights")
    found: dict[tuple[int, str], Tensor] = {}
    for each in lying.tensors:
        layer = _LAYER.match(each.name)
        if layer and len(each.shape) == 2 and not _ABOUT_PACKED.search(each.name):
            found[int(layer[1]), each.name.rsplit(".", 2)[-2]] = each
    layers = {layer for layer, _ in found}
    keys, up = found.get((0, "k_proj")), found.get((0, "up_proj"))
    queries = found.get((0, "q_proj"))
    if not (keys and queries and up) or _packed(keys) != 1:
        return typical(name, total)
    hidden, width = keys.shape[1], at_least_one(min(128, keys.shape[0]))
    words = next((each.shape[0] for each in lying.tensors if each.name.endswith("embed_tokens.weight")), 0)
    return Architecture(
        name=name,
        layers=len(layers),
        hidden=hidden,
        heads=at_least_one(queries.shape[0] // width),
        kv_heads=at_least_one(keys.shape[0] // width),
        head_dim=width,
        intermediate=up.shape[0],
        vocabulary=words,
        tied=not any(each.name.endswith("lm_head.weight") for each in lying.tensors),
        counted=total,
    )

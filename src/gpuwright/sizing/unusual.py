"""Families whose layers differ from each other in ways of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, states
from gpuwright.sizing.architecture import Architecture, Experts, Full, Kept
from gpuwright.sizing.units import at_least_one, excerpt

Config = dict[str, object]
_Reader = Callable[[Architecture, Config, str], Architecture]


def read(shape: Architecture, config: Config, name: str) -> Architecture:
    """The shape with what its family has beyond the usual.

    Raises:
        BadInput: what it has to say of its layers is missing.
    """
    if shape.kind == "encoder":
        return _encoder(shape, config)
    if shape.kind == "diffusion":
        return replace(shape, image=_whole(config, "image_size", name) if "image_size" in config else 0)
    own = _FAMILIES.get(str(config.get("model_type"))) or next((_SAID[key] for key in _SAID if config.get(key)), None)
    if own:
        return own(shape, config, name)
    kept = states.read(shape, config, name)
    if kept:
        return kept
    if shape.experts and (config.get("residual_moe") or config.get("parallel_attn_mlp_res")):
        return _beside(shape, shape.experts, config)
    if config.get("hidden_size_per_layer_input") and shape.full:
        return _embedded_by_layer(shape, config)
    return shape


def _whole(config: Config, key: str, name: str) -> int:
    found = config.get(key)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= 1_000_000:
        raise BadInput(f"{name}: {key} has to be a whole number above 0, found {excerpt(found)}")
    return found


def _beside(shape: Architecture, experts: Experts, config: Config) -> Architecture:
    """Grok 2 and Arctic: a layer has an MLP of its own beside its experts, in Arctic as wide as the model."""
    return replace(
        shape, experts=replace(experts, shared=shape.intermediate if config.get("residual_moe") else shape.hidden)
    )


def _stablelm(shape: Architecture, config: Config, _name: str) -> Architecture:
    return replace(shape, norms=1) if config.get("use_parallel_residual") else shape


def _qwen(shape: Architecture, _config: Config, _name: str) -> Architecture:
    """The first Qwen: its file says the width of both halves of the gated matrix together."""
    return replace(shape, intermediate=shape.intermediate // 2)


def _minicpm(shape: Architecture, _config: Config, _name: str) -> Architecture:
    """MiniCPM3: latent keys that are kept whole, in vLLM too (model_executor/models/minicpm3.py)."""
    return replace(shape, kept=(Kept(shape.layers, shape.heads, 2 * shape.query_width / shape.heads),))


def _summed(shape: Architecture, _config: Config, _name: str) -> Architecture:
    """What is known of it is in its table: all parameters, and what its layers keep of a sequence."""
    return replace(shape, trained=False)


def _twice(shape: Architecture, _config: Config, _name: str) -> Architecture:
    """LongCat-Flash: a layer has attention and an MLP twice, and experts once beside them."""
    experts = shape.experts and replace(shape.experts, dense_layers=shape.layers)
    return replace(shape, layers=2 * shape.layers, intermediate=2 * shape.intermediate, experts=experts)


def _narrow_values(shape: Architecture, config: Config, name: str) -> Architecture:
    """MiMo-V2-Flash: values are narrower than keys, and layers with a window have heads of keys of their own number."""
    pattern, value = config.get("hybrid_layer_pattern"), _whole(config, "v_head_dim", name)
    windowed = pattern.count(1) if isinstance(pattern, list) else shape.windowed_layers
    layers = {_whole(config, "swa_num_key_value_heads", name): windowed, shape.kv_heads: shape.layers - windowed}
    matrices = sum(
        count * shape.hidden * (shape.query_width + shape.heads * value + heads * (shape.head_dim + value))
        for heads, count in layers.items()
    )
    sinks = windowed * shape.heads
    counted = architecture.parameters(shape) - shape.layers * architecture.attention(shape) + matrices + sinks
    kept = tuple(
        Kept(count, heads, shape.head_dim + value, window=0 if heads == shape.kv_heads else shape.window)
        for heads, count in layers.items()
    )
    return replace(shape, counted=float(counted), windowed_layers=windowed, kept=kept)


def _searched(shape: Architecture, config: Config, name: str) -> Architecture:
    """Nemotron by neural architecture search (DeciLM): each block says how many queries share a head of keys, and how wide its MLP is."""
    blocks = config["block_configs"]
    if not isinstance(blocks, list) or len(blocks) != shape.layers:
        raise BadInput(f"{name}: block_configs has to have one entry for each of the {shape.layers} layers")
    kept: Counter[int] = Counter()
    matrices = 0
    for block in blocks:
        parts = block if isinstance(block, dict) else {}
        attention, mlp = parts.get("attention"), parts.get("ffn")
        group = attention.get("n_heads_in_group") if isinstance(attention, dict) else None
        if isinstance(group, int) and 0 < group <= shape.heads:
            kept[shape.heads // group] += 1
            matrices += shape.hidden + architecture.attention(replace(shape, kv_heads=shape.heads // group))
        factor = mlp.get("ffn_mult") if isinstance(mlp, dict) else None
        if isinstance(factor, int | float) and 0 < factor < 1000:
            # 256 divides the width.
            width = -(-int(2 * factor * shape.hidden / 3) // 256) * 256
            matrices += shape.hidden + architecture.mlp(shape, width)
    counted = architecture.embedding(shape) + architecture.output(shape) + shape.hidden + matrices
    return replace(
        shape,
        counted=float(counted),
        kept=tuple(Kept(layers, heads, 2 * shape.head_dim) for heads, layers in kept.items()),
    )


def _compressed(shape: Architecture, config: Config, name: str) -> Architecture:
    """DeepSeek-V4: one head of keys, which are values; of further back than a window, one for every 4 or 128 tokens.

    Where it is one for 4, an index chooses among them. Matrices as transformers 5.24.0 has them (modeling_deepseek_v4.py).
    """
    ratios = config.get("compress_ratios")
    usual = [0, 0] + [4, 128] * shape.layers
    found = [each for each in ratios if isinstance(each, int)] if isinstance(ratios, list) else usual
    layers = found[: shape.layers]
    head, rank = shape.head_dim, _whole(config, "q_lora_rank", name)
    index, index_heads = _whole(config, "index_head_dim", name), _whole(config, "index_n_heads", name)
    out = _whole(config, "o_lora_rank", name)
    queries = shape.hidden * rank + rank * shape.heads * head
    outputs = shape.heads * head * out + _whole(config, "o_groups", name) * out * shape.hidden
    matrices = shape.layers * (queries + shape.hidden * head + outputs)
    matrices += layers.count(4) * (4 * shape.hidden * (head + index) + index_heads * (rank * index + shape.hidden))
    matrices += layers.count(128) * 2 * shape.hidden * head
    without = replace(shape, layers=0, experts=None)
    rest = architecture.parameters(without) + shape.layers * 2 * shape.hidden
    mlps = architecture.parameters(replace(shape, heads=0, kv_heads=0, norms=0)) - architecture.parameters(
        replace(without, norms=0)
    )
    kept = (
        Kept(shape.layers, 1, head, window=shape.window),
        Kept(layers.count(4), 1, head + index, every=4),
        Kept(layers.count(128), 1, head, every=128),
    )
    return replace(shape, counted=float(rest + matrices + mlps), kept=kept)


def _embedded_by_layer(shape: Architecture, config: Config) -> Architecture:
    """Gemma 4 E2B and E4B: each layer has an embedding of its own, and the last ones use the keys and values of others."""
    width, words = int(str(config["hidden_size_per_layer_input"])), config.get("vocab_size_per_layer_input")
    vocabulary = words if isinstance(words, int) else shape.vocabulary
    shared = config.get("num_kv_shared_layers")
    borrowing = shared if isinstance(shared, int) and 0 <= shared < shape.layers else 0
    into = shape.layers * width * (vocabulary + shape.hidden) + width
    each = 2 * shape.hidden * width + shape.hidden
    wide = borrowing * architecture.mlp(shape, shape.intermediate) if config.get("use_double_wide_mlp") else 0
    full, keeping = shape.full or Full(shape.kv_heads, shape.head_dim, shared=False), shape.layers - borrowing
    period = round(shape.layers / at_least_one(shape.layers - shape.windowed_layers))
    windowed = keeping - keeping // period
    without = (shape.windowed_layers - windowed) * (2 * shape.hidden * shape.kv_heads + 1) * shape.head_dim
    without += (
        (shape.layers - shape.windowed_layers - keeping // period)
        * (2 * shape.hidden * full.kv_heads + 1)
        * full.head_dim
    )
    counted = architecture.parameters(shape) + into + shape.layers * each + wide - without
    kept = (
        Kept(windowed, shape.kv_heads, 2 * shape.head_dim, window=shape.window),
        Kept(keeping // period, full.kv_heads, 2 * full.head_dim),
    )
    return replace(shape, counted=float(counted), kept=kept)


def _alternating(shape: Architecture, config: Config, name: str) -> Architecture:
    """Gemma 3n: four streams, a low-rank path beside each layer, an embedding of each; the last layers use the keys of others."""
    usual = {
        "altup_num_inputs": 4,
        "laurel_rank": 64,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262_144,
    }
    streams, rank, width, words = (_whole(usual | config, key, name) for key in usual)
    hidden, layers = shape.hidden, shape.layers
    into = layers * width * (words + hidden) + width + 2 * (streams - 1) * hidden * hidden
    each = 2 * hidden * (rank + width) + (4 + streams) * hidden + streams**2 + streams**3
    keeping = layers - min(_whole({"num_kv_shared_layers": 15} | config, "num_kv_shared_layers", name), layers - 1)
    wide = keeping // round(layers / at_least_one(layers - shape.windowed_layers))
    without = (layers - keeping) * (2 * hidden * shape.kv_heads + 1) * shape.head_dim
    kept = (
        Kept(keeping - wide, shape.kv_heads, 2 * shape.head_dim, window=shape.window),
        Kept(wide, shape.kv_heads, 2 * shape.head_dim),
    )
    return replace(
        shape, counted=architecture.parameters(shape) + into + layers * each - without, kept=kept, trained=False
    )


def _indexed(shape: Architecture, config: Config, name: str) -> Architecture:
    """GLM-5.3: Kimi delta attention, in every fourth layer a latent one whose tokens an index chooses; four streams that are mixed."""
    kinds = config.get("layer_types")
    chosen = kinds.count("indexed_attention") if isinstance(kinds, list) else shape.layers // 4
    hidden, states = shape.hidden, shape.layers - chosen
    heads, head, kernel = (
        _whole(config, f"linear_{key}", name) for key in ("num_heads", "head_dim", "conv_kernel_dim")
    )
    wide = heads * head
    delta = 4 * hidden * wide + 3 * wide * kernel + 2 * head * (hidden + wide) + wide + heads + hidden * heads + head
    index, pool = _whole(config, "index_head_dim", name), _whole(config, "index_kpool", name)
    rank, index_heads = _whole(config, "q_lora_rank", name), _whole(config, "index_n_heads", name)
    indexer = index * (pool + 2 * hidden + 2) + index_heads * (rank * index + hidden)
    streams = _whole(config, "hc_mult", name)
    mixing = 2 * ((streams * hidden + 1) * streams * (streams + 2) + 3)
    latent = architecture.attention(shape)
    counted = architecture.embedding(shape) + architecture.output(shape) + hidden + architecture.mlps(shape)
    counted += shape.layers * (2 * hidden + mixing) + states * delta + chosen * (latent + indexer)
    kept = (
        Kept(states, heads, 2 * (head * head + 3 * head * kernel), window=1),
        Kept(chosen, 1, _whole(config, "kv_lora_rank", name) + index),
    )
    return replace(shape, counted=float(counted), kept=kept, trained=False)


def _encoder(shape: Architecture, config: Config) -> Architecture:
    """BERT and its like have kinds of tokens and a pooler beside their layers, ViT the patches of an image; no heads of their training."""
    more = 0
    if shape.vocabulary and shape.positions and shape.embedding_norm:
        kinds = config.get("type_vocab_size", 2)
        more = (kinds if isinstance(kinds, int) else 2) * shape.hidden + shape.hidden * (shape.hidden + 1)
    size, patch = config.get("image_size"), config.get("patch_size")
    if isinstance(size, int) and isinstance(patch, int) and 0 < patch <= size <= 100_000:
        # Patches with a bias, one vector for each of them and for the whole image, and this one.
        more = shape.hidden * (3 * patch * patch + 1 + (size // patch) ** 2 + 2)
    return replace(shape, counted=architecture.parameters(shape) + more)


def _whisper(shape: Architecture, config: Config, name: str) -> Architecture:
    """An encoder of sound, and a decoder that looks at its own text and at the sound: 1500 steps for 30 seconds."""
    decoders, steps = _whole(config, "decoder_layers", name), _whole(config, "max_source_positions", name)
    hidden, norm = shape.hidden, 2 * shape.hidden
    # Keys have no bias.
    attention = 4 * hidden * hidden + 3 * hidden
    mlp = architecture.mlp(shape, shape.intermediate)
    layers = shape.layers * (attention + mlp + 2 * norm) + decoders * (2 * attention + mlp + 3 * norm)
    sound = hidden * (3 * _whole(config, "num_mel_bins", name) + 1) + hidden * (3 * hidden + 1) + steps * hidden
    text = (shape.vocabulary + shape.context) * hidden
    kept = (
        Kept(decoders, shape.heads, 2 * shape.head_dim, window=shape.context),
        Kept(decoders, shape.heads, 2 * shape.head_dim * steps, window=1),
    )
    return replace(shape, layers=shape.layers + decoders, counted=float(layers + sound + text + 2 * norm), kept=kept)


def _t5(shape: Architecture, config: Config, name: str) -> Architecture:
    """A text that is read, and one that is written and looks at it: each token of both has keys and values in each layer that writes.

    Positions are distances, of `relative_attention_num_buckets` kinds for each head; it was made for 512 tokens (arXiv:1910.10683).
    """
    shape = replace(shape, gated="gated" in str(config.get("feed_forward_proj")), context=512)
    decoders = _whole(config, "num_decoder_layers", name) if config.get("num_decoder_layers") else shape.layers
    attention, mlp = architecture.attention(shape), architecture.mlp(shape, shape.intermediate)
    layers = shape.layers * (attention + mlp + 2 * shape.hidden) + decoders * (2 * attention + mlp + 3 * shape.hidden)
    key = "relative_attention_num_buckets"
    around = 2 * (shape.heads * (_whole(config, key, name) if key in config else 32) + shape.hidden)
    counted = layers + around + architecture.embedding(shape) + architecture.output(shape)
    return _paired(shape, decoders, counted)


def _bart(shape: Architecture, config: Config, name: str) -> Architecture:
    """BART: as T5, with biases, learned positions, and a norm behind the embeddings in place of one behind the last layer."""
    decoders, norm = _whole(config, "decoder_layers", name), 2 * shape.hidden
    attention, mlp = architecture.attention(shape), architecture.mlp(shape, shape.intermediate)
    layers = shape.layers * (attention + mlp + 2 * norm) + decoders * (2 * attention + mlp + 3 * norm)
    around = 2 * (shape.positions * shape.hidden + norm)
    return _paired(shape, decoders, layers + around + shape.vocabulary * shape.hidden)


def _paired(shape: Architecture, decoders: int, counted: int) -> Architecture:
    kept = (Kept(decoders, shape.kv_heads, 2 * shape.head_dim),)
    return replace(shape, layers=shape.layers + decoders, counted=float(counted), kept=kept, trained=False)


#: Families that say in their model_type what they have.
_FAMILIES: dict[str, _Reader] = {
    "whisper": _whisper,
    "t5": _t5,
    "mt5": _t5,
    "bart": _bart,
    "stablelm": _stablelm,
    "qwen": _qwen,
    "minicpm3": _minicpm,
    "gemma3n_text": _alternating,
    "glm5_next_text": _indexed,
    "decoder": _summed,
    "longcat_flash": _twice,
    "mimo_v2_flash": _narrow_values,
    "deepseek_v4": _compressed,
}
#: What a configuration says where its layers differ from each other.
_SAID: dict[str, _Reader] = {"block_configs": _searched, "compress_ratios": _compressed}

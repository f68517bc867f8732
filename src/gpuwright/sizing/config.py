"""The `config.json` of a model, as transformers writes it and the tables have it, read into a shape."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuwright import given
from gpuwright.errors import BadInput
from gpuwright.sizing import tables, towers, unusual
from gpuwright.sizing.architecture import Architecture, Experts, Full, Latent, Recurrent
from gpuwright.sizing.units import excerpt

if TYPE_CHECKING:
    from pathlib import Path

Config = dict[str, object]

#: No model is wider, deeper or has more of anything.
MOST = 100_000_000

#: Experts from which on a layer has a mixture of them: Jamba says one where it has an MLP.
_MIXED = 2

# What families call the same thing.
_HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
_KV_HEADS = ("num_key_value_heads", "multi_query_group_num", "kv_n_heads")
_HEAD = ("attention_head_dim", "head_dim", "kv_channels", "d_kv")
_INTERMEDIATE = (
    "intermediate_size",
    "block_ff_dim",
    "d_ff",
    "ffn_dim",
    "n_inner",
    "ffn_hidden_size",
    "encoder_ffn_dim",
)
_VOCABULARY = ("vocab_size", "padded_vocab_size")
_CONTEXT = (
    "max_position_embeddings",
    "max_target_positions",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "model_max_length",
)
_ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "hidden_activations")
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_ACTIVE = (
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "top_k_experts",
    "moe_k",
    "moe_topk",
    "moe_top_k",
)
_SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size")
_DENSE = ("intermediate_size_mlp", "dense_intermediate_size")
_WINDOW = ("sliding_window", "attention_chunk_size", "sliding_window_size")
_BIAS = ("attention_bias", "bias", "use_bias", "use_qkv_bias")
_MLP_BIAS = ("mlp_bias", "bias", "use_bias")
#: transformers' names of activations, as PyTorch computes them.
_ACTIVATIONS = {"relu": "relu", "gelu_new": "gelu_new", "gelu_fast": "gelu_new", "silu": "silu", "swish": "silu"}
#: Where a model that sees or hears has the configuration of its text, and of what it sees and hears with.
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
_TOWERS = ("vision_config", "audio_config")
#: Where a configuration keeps numbers of its layers in groups (DBRX, MPT).
_GROUPS = ("attn_config", "ffn_config")


def from_file(path: Path) -> Architecture:
    """The shape that a file tells.

    Raises:
        BadInput: it is no configuration of a model.
    """
    document = given.json_object(str(path), "the configuration of a model")
    return read(document, str(path))


def read(document: Config, name: str) -> Architecture:
    """The shape that a configuration tells.

    Raises:
        BadInput: its family is not known, or a number is missing or absurd.
    """
    config = _text(document, name)
    family = _family(config, str(document.get("model_type")), name)
    implied = {**(family["defaults"] if config is not document else {}), **family["implied"]}
    if isinstance(kinds := config.get("layers_block_type"), list):
        implied["num_hidden_layers"] = len(kinds)
    for key in _GROUPS:
        if isinstance(group := config.get(key), dict):
            implied |= group
    shape = _Reader(
        {
            **implied,
            **{key: value for key, value in config.items() if value is not None and (key, value) != ("head_dim", 0)},
        },
        family,
        name,
    ).shape()
    seen = sum(towers.parameters(each, shape.hidden) for key in _TOWERS if isinstance(each := document.get(key), dict))
    seen += towers.named(document, shape.hidden)
    return replace(shape, beside=shape.beside + seen, counted=shape.counted + seen if shape.counted else 0.0)


def _text(document: Config, name: str) -> Config:
    """The part of a configuration that is of the text."""
    for key in _TEXT:
        inner = document.get(key)
        if inner:
            if not isinstance(inner, dict):
                raise BadInput(f"{name}: {key} is no configuration")
            return _text(inner, name)
    return document


def _family(config: Config, outer: str, name: str) -> tables.Row:
    """What its family has; a text's part that does not say its family has that of the whole."""
    families = tables.families()
    kind = str(
        config.get("model_type")
        or next((each for each in (f"{outer}_text", f"{outer}_text_model") if each in families), None)
    )
    if kind == "git" and config.get("residual_moe"):
        kind = "grok-2"
    if kind not in families:
        raise BadInput(
            f"{name}: model_type {kind!r} is none whose shape is known",
            [f"known: {', '.join(sorted(families))}", "or give the shape: layers=32,hidden=4096,heads=32"],
        )
    return families[kind]


class _Reader:
    """One configuration under the names of its family."""

    def __init__(self, config: Config, family: tables.Row, name: str) -> None:
        self._config, self._family, self._name = config, family, name

    def shape(self) -> Architecture:
        """What it tells."""
        family = self._family
        hidden, heads, layers = self._number(*_HIDDEN), self._number(*_HEADS), self._number(*_LAYERS)
        if heads > hidden:
            raise self._wrong(_HEADS[0], heads, f"no more than {hidden}")
        context = self._number(*_CONTEXT, default=0)
        head = self._number(*_HEAD, default=hidden // heads)
        intermediate = self._number(*_INTERMEDIATE, default=self._number("expansion_ratio", default=4) * hidden)
        experts = self._experts(intermediate, layers)
        window, windowed = self._window(layers)
        found = Architecture(
            name=self._name,
            kind=family["kind"],
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self._kv_heads(heads),
            head_dim=head,
            intermediate=self._number(*_DENSE, default=intermediate),
            vocabulary=self._number(*_VOCABULARY, default=0 if self._sees() else None),
            context=context,
            gated=family["gated"],
            activation=self._activation(),
            norm=family["norm"],
            norms=self._norms(experts),
            norm_bias=family["norm_bias"],
            attention_bias=self._said(_BIAS, "attention_bias"),
            output_bias=self._said(_BIAS, "output_bias") if family["says_output"] else family["output_bias"],
            mlp_bias=self._said(_MLP_BIAS, "mlp_bias"),
            head_bias=family["head_bias"],
            tied=bool(self._config.get("tie_word_embeddings", family["tied"])),
            positions=context + family["more_positions"] if family["positions"] else 0,
            embedding_width=self._number("word_embed_proj_dim", default=hidden),
            embedding_norm=family["embedding_norm"],
            query_norm=self._query_norm(),
            final_norm=family["final_norm"] and self._config.get("do_layer_norm_before") is not False,
            sinks=family["sinks"],
            wide_norm=family["wide_norm"],
            wide_softmax=family["wide_softmax"],
            window=window,
            windowed_layers=windowed,
            experts=experts,
            latent=self._latent(layers),
            gate=family["gate"] and self._config.get("attn_output_gate") is not False,
            full=self._full(),
            recurrent=self._recurrent(layers),
            dropout=self._dropout(),
        )
        return unusual.read(found, self._config, self._name)

    def _sees(self) -> bool:
        """Whether there need be no vocabulary: what looks at images, or makes images or videos."""
        return "image_size" in self._config or self._family["kind"] == "diffusion"

    def _number(self, *keys: str, default: int | None = None) -> int:
        value = next((self._config[key] for key in keys if self._config.get(key) is not None), default)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]  # the same for each layer (Hunyuan)
        if value is None:
            raise BadInput(f"{self._name} does not say {keys[0]}")
        if isinstance(value, bool) or not isinstance(value, int) or not (value > 0 or value == default):
            raise self._wrong(keys[0], value, "a whole number above 0")
        if value > MOST:
            raise self._wrong(keys[0], value, f"at most {MOST}")
        return value

    def _wrong(self, key: str, value: object, expected: str) -> BadInput:
        return BadInput(f"{self._name}: {key} has to be {expected}, found {excerpt(value)}")

    def _said(self, keys: tuple[str, ...], flag: str) -> bool:
        """What the file says of a bias where its family lets it, else what the family has."""
        own = self._family[flag]
        if not self._family["says_biases"]:
            return bool(own)
        return bool(next((self._config[key] for key in keys if self._config.get(key) is not None), own))

    def _kv_heads(self, heads: int) -> int:
        """Falcon has two shapes: the older one has one head of keys and values where it says `multi_query`."""
        if self._family["kv_heads"] == "falcon":
            if not self._config.get("new_decoder_architecture"):
                return 1 if self._config.get("multi_query", True) else heads
            return self._number("num_kv_heads", "n_head_kv", default=heads)
        found = self._number(*_KV_HEADS, default=heads)
        if heads % found:
            raise self._wrong("num_key_value_heads", found, f"a divisor of the {heads} heads")
        return found

    def _norms(self, experts: Experts | None) -> int:
        if self._config.get("new_decoder_architecture"):
            return self._number("num_ln_in_parallel_attn", default=2)
        # Gemma 4 has its MLP beside its experts, and norms of both.
        return int(self._family["norms"]) + (3 if experts and self._family["both"] else 0)

    def _query_norm(self) -> str:
        """GLM-4.5 and StableLM say whether they have them."""
        left_out = any(self._config.get(key) is False for key in ("use_qk_norm", "qk_layernorm"))
        return "none" if left_out else str(self._family["query_norm"])

    def _full(self) -> Full | None:
        """Gemma 4: layers without a window have heads of another width, and in some models keys that are values too."""
        width = self._number("global_head_dim", default=0)
        if not width:
            return None
        shared = bool(self._config.get("attention_k_eq_v"))
        usual = self._kv_heads(self._number(*_HEADS))
        return Full(self._number("num_global_key_value_heads", default=usual) if shared else usual, width, shared)

    def _recurrent(self, layers: int) -> Recurrent | None:
        kinds = self._kinds(layers)
        interval = self._number("full_attention_interval", default=0)
        count = kinds.count("linear_attention") if kinds else (layers - layers // interval if interval else 0)
        linear = self._config.get("linear_attn_config")
        if isinstance(linear, dict):
            return self._delta(linear)
        if not count or not self._config.get("linear_num_value_heads"):
            return None
        return Recurrent(
            layers=count,
            key_heads=self._number("linear_num_key_heads"),
            value_heads=self._number("linear_num_value_heads"),
            key=self._number("linear_key_head_dim"),
            value=self._number("linear_value_head_dim"),
            kernel=self._number("linear_conv_kernel_dim"),
        )

    def _delta(self, linear: Config) -> Recurrent:
        """Kimi Linear and K3: layers of Kimi delta attention, about as those of a gated delta network."""
        inner = _Reader(linear, self._family, f"{self._name}: linear_attn_config")
        layers, heads, width = linear.get("kda_layers"), inner._number("num_heads"), inner._number("head_dim")
        kernel = inner._number("short_conv_kernel_size", default=4)
        return Recurrent(len(layers) if isinstance(layers, list) else 0, heads, heads, width, width, kernel)

    def _kinds(self, layers: int) -> list[str]:
        """What kind of attention each layer has; nothing where the file does not say it."""
        kinds = self._config.get("layer_types")
        return [str(each) for each in kinds] if isinstance(kinds, list) and len(kinds) == layers else []

    def _activation(self) -> str:
        said = next(
            (str(self._config[key]) for key in _ACTIVATION if self._config.get(key)), self._family["activation"]
        )
        return _ACTIVATIONS.get(said, "gelu")

    def _window(self, layers: int) -> tuple[int, int]:
        """Tokens that a windowed layer looks back, and how many layers are such."""
        window = next((self._config[key] for key in _WINDOW if self._config.get(key)), None)
        if not isinstance(window, int) or window <= 0 or self._config.get("use_sliding_window") is False:
            return 0, 0
        kinds = self._kinds(layers)
        if kinds:
            return window, sum(kind in {"sliding_attention", "chunked_attention"} for kind in kinds)
        period = self._config.get("sliding_window_pattern", self._family["window_period"])
        period = len(period) if isinstance(period, str) else period  # LLLG: three local layers, a global one
        # Every such layer looks at everything; without a period none does.
        return window, layers - layers // period if isinstance(period, int) and period > 0 else layers

    def _experts(self, intermediate: int, layers: int) -> Experts | None:
        count = self._number(*_EXPERTS, default=0)
        if count < _MIXED:
            return None
        width = self._number("moe_intermediate_size", "expert_ffn_hidden_size", default=intermediate)
        active = self._number(*_ACTIVE)
        if active > count:
            raise self._wrong(_ACTIVE[0], active, f"no more than the {count} experts")
        both = self._family["both"]
        gated = bool(self._config.get("shared_expert_intermediate_size"))
        return Experts(
            count=count,
            active=active,
            intermediate=width,
            shared=intermediate
            if both
            else self._number(*_SHARED_WIDTH, default=self._number(*_SHARED, default=0) * width),
            dense_layers=self._dense(layers),
            router_bias=self._family["router_bias"] or self._config.get("topk_method") == "noaux_tc",
            gate=gated or both,
            hidden=self._number("routed_expert_hidden_size", default=0),
        )

    def _dense(self, layers: int) -> int:
        """Layers that have an MLP in place of experts: the first ones, or all but every second, or those that a list names."""
        for key, dense in (("mlp_layer_types", "dense"), ("moe_layer_freq", 0)):
            kinds = self._config.get(key)
            if isinstance(kinds, list):
                return min(kinds.count(dense), layers)
        only = self._config.get("mlp_only_layers")
        listed = len(only) if isinstance(only, list) else 0
        step = self._number("interleave_moe_layer_step", "decoder_sparse_step", default=1)
        first = self._number("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", default=0)
        return min(max(layers - layers // step, listed, first), layers)

    def _latent(self, layers: int) -> Latent | None:
        if not self._config.get("kv_lora_rank"):
            return None
        kinds = self._config.get("indexer_types")
        indexed = self._number("index_n_heads", default=0) > 0
        return Latent(
            q_rank=self._number("q_lora_rank", default=0),
            kv_rank=self._number("kv_lora_rank"),
            nope=self._number("qk_nope_head_dim"),
            rope=self._number("qk_rope_head_dim", default=0),
            value=self._number("v_head_dim"),
            index_heads=self._number("index_n_heads", default=0),
            index=self._number("index_head_dim", default=0),
            indexed=(kinds.count("full") if isinstance(kinds, list) else layers) if indexed else 0,
        )

    def _dropout(self) -> float:
        keys = ("resid_pdrop", "hidden_dropout", "dropout", "hidden_dropout_prob")
        said = next((self._config[key] for key in keys if self._config.get(key) is not None), 0.0)
        return float(said) if isinstance(said, (int, float)) and 0 <= said < 1 else 0.0

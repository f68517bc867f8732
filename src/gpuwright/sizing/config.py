"""The `config.json` of a model, as transformers writes it and the tables have it, read into a shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import given
from gpuwright.errors import BadInput
from gpuwright.sizing import tables
from gpuwright.sizing.architecture import Architecture, Experts, Latent

if TYPE_CHECKING:
    from pathlib import Path

Config = dict[str, object]

#: No model is wider, deeper or has more of anything.
MOST = 100_000_000

# What families call the same thing.
_HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_INTERMEDIATE = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_ACTIVATION = ("hidden_act", "hidden_activation", "activation_function")
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts")
_BIAS = ("attention_bias", "bias", "use_bias")
_MLP_BIAS = ("mlp_bias", "bias", "use_bias")
#: transformers' names of activations, as PyTorch computes them.
_ACTIVATIONS = {"relu": "relu", "gelu_new": "gelu_new", "gelu_fast": "gelu_new", "silu": "silu", "swish": "silu"}


def from_file(path: Path) -> Architecture:
    """The shape that a file tells.

    Raises:
        BadInput: it is no configuration of a language model.
    """
    document = given.json_object(str(path), "the configuration of a model")
    return read(document, str(path))


def read(document: Config, name: str) -> Architecture:
    """The shape that a configuration tells.

    Raises:
        BadInput: its family is not known, or a number is missing or absurd.
    """
    config = document.get("text_config") or document
    if not isinstance(config, dict):
        raise BadInput(f"{name}: text_config is no configuration")
    kind = str(config.get("model_type"))
    families = tables.families()
    family = families.get(kind)
    if family is None:
        known = ", ".join(sorted(families))
        raise BadInput(
            f"{name}: model_type {kind!r} is none whose shape is known",
            [f"known: {known}", "or give the shape: layers=32,hidden=4096,heads=32"],
        )
    return _Reader(config, family, name).shape()


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
        head = self._number("head_dim", default=max(hidden // heads, 1))
        intermediate = self._number(*_INTERMEDIATE, default=self._number("expansion_ratio", default=4) * hidden)
        norms = 2 if self._config.get("new_decoder_architecture") else family["norms"]
        window, windowed = self._window(layers)
        return Architecture(
            name=self._name,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self._kv_heads(heads),
            head_dim=head,
            intermediate=intermediate,
            vocabulary=self._number("vocab_size"),
            context=context,
            gated=family["gated"],
            activation=self._activation(),
            norm=family["norm"],
            norms=norms,
            norm_bias=family["norm_bias"],
            attention_bias=self._said(_BIAS, "attention_bias"),
            output_bias=self._said(_BIAS, "output_bias"),
            mlp_bias=self._said(_MLP_BIAS, "mlp_bias"),
            head_bias=family["head_bias"],
            tied=bool(self._config.get("tie_word_embeddings", family["tied"])),
            positions=context + family["more_positions"] if family["positions"] else 0,
            embedding_width=self._number("word_embed_proj_dim", default=hidden),
            embedding_norm=family["embedding_norm"],
            query_norm=family["query_norm"],
            final_norm=family["final_norm"] and self._config.get("do_layer_norm_before") is not False,
            sinks=family["sinks"],
            wide_norm=family["wide_norm"],
            wide_softmax=family["wide_softmax"],
            window=window,
            windowed_layers=windowed,
            experts=self._experts(intermediate, layers),
            latent=self._latent(),
            dropout=self._dropout(),
        )

    def _number(self, *keys: str, default: int | None = None) -> int:
        value = next((self._config[key] for key in keys if self._config.get(key) is not None), default)
        if value is None:
            raise BadInput(f"{self._name} does not say {keys[0]}")
        if isinstance(value, bool) or not isinstance(value, int) or not (value > 0 or value == default):
            raise self._wrong(keys[0], value, "a whole number above 0")
        if value > MOST:
            raise self._wrong(keys[0], value, f"at most {MOST}")
        return value

    def _wrong(self, key: str, value: object, expected: str) -> BadInput:
        return BadInput(f"{self._name}: {key} has to be {expected}, found {str(value)[:40]!r}")

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
        found = self._number("num_key_value_heads", default=heads)
        if heads % found:
            raise self._wrong("num_key_value_heads", found, f"a divisor of the {heads} heads")
        return found

    def _activation(self) -> str:
        said = next(
            (str(self._config[key]) for key in _ACTIVATION if self._config.get(key)), self._family["activation"]
        )
        return _ACTIVATIONS.get(said, "gelu")

    def _window(self, layers: int) -> tuple[int, int]:
        """Tokens that a windowed layer looks back, and how many layers are such."""
        window = self._config.get("sliding_window")
        if not isinstance(window, int) or window <= 0 or self._config.get("use_sliding_window") is False:
            return 0, 0
        kinds = self._config.get("layer_types")
        if isinstance(kinds, list) and len(kinds) == layers:
            return window, sum(kind == "sliding_attention" for kind in kinds)
        period = self._config.get("sliding_window_pattern", self._family["window_period"])
        # Every such layer looks at everything; without a period none does.
        return window, layers - layers // period if isinstance(period, int) and period > 0 else layers

    def _experts(self, intermediate: int, layers: int) -> Experts | None:
        count = self._number(*_EXPERTS, default=0)
        if not count:
            return None
        width = self._number("moe_intermediate_size", default=intermediate)
        shared = self._number("n_shared_experts", default=0) * width
        active = self._number("num_experts_per_tok", "experts_per_token")
        if active > count:
            raise self._wrong("num_experts_per_tok", active, f"no more than the {count} experts")
        dense = self._number("first_k_dense_replace", default=0)
        return Experts(
            count=count,
            active=active,
            intermediate=width,
            shared=shared + self._number("shared_expert_intermediate_size", default=0),
            dense_layers=min(dense, layers),
            router_bias=self._family["router_bias"] or self._config.get("topk_method") == "noaux_tc",
            gate=bool(self._config.get("shared_expert_intermediate_size")),
        )

    def _latent(self) -> Latent | None:
        if not self._config.get("kv_lora_rank"):
            return None
        return Latent(
            q_rank=self._number("q_lora_rank", default=0),
            kv_rank=self._number("kv_lora_rank"),
            nope=self._number("qk_nope_head_dim"),
            rope=self._number("qk_rope_head_dim"),
            value=self._number("v_head_dim"),
        )

    def _dropout(self) -> float:
        keys = ("resid_pdrop", "hidden_dropout", "dropout", "hidden_dropout_prob")
        said = next((self._config[key] for key in keys if self._config.get(key) is not None), 0.0)
        return float(said) if isinstance(said, (int, float)) and 0 <= said < 1 else 0.0

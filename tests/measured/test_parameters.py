"""The parameters of every family of the tables, against small models that transformers makes of its configuration, without their memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from gpuwright.sizing import architecture, config

_SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 704,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
_LATENT = {
    "q_lora_rank": 64,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "num_key_value_heads": 8,
}
_DEEPSEEK = {
    **_EXPERTS,
    **_LATENT,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_DELTA = {
    "head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2,
}
_GEMMA_4 = {
    "head_dim": 32,
    "global_head_dim": 64,
    "sliding_window": 64,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 2,
    "vocab_size_per_layer_input": 1000,
}
#: By family.
CONFIGS: dict[str, dict[str, Any]] = {
    "granite": _SMALL,
    "ministral3": {**_SMALL, "head_dim": 64},
    "qwen3": {**_SMALL, "head_dim": 64},
    "qwen3_moe": {**_SMALL, **_EXPERTS, "head_dim": 64, "num_experts": 8},
    "qwen3_next": {**_SMALL, **_EXPERTS, **_DELTA, "num_experts": 8, "shared_expert_intermediate_size": 128},
    "qwen3_5_text": {**_SMALL, **_DELTA},
    "qwen3_5_moe_text": {**_SMALL, **_EXPERTS, **_DELTA, "num_experts": 8, "shared_expert_intermediate_size": 128},
    "deepseek_v2": {**_SMALL, **_DEEPSEEK},
    "deepseek_v3": {**_SMALL, **_DEEPSEEK},
    "deepseek_v32": {**_SMALL, **_DEEPSEEK, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 16},
    "glm_moe_dsa": {**_SMALL, **_DEEPSEEK, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 16},
    "glm4_moe_lite": {**_SMALL, **_DEEPSEEK},
    "glm4": {**_SMALL, "head_dim": 32, "attention_bias": True},
    "glm": {**_SMALL, "head_dim": 32, "attention_bias": True},
    "cohere": _SMALL,
    "cohere2": {**_SMALL, "head_dim": 32},
    "seed_oss": {**_SMALL, "head_dim": 64},
    "olmo3": _SMALL,
    "exaone4": _SMALL,
    "hunyuan_v1_dense": {**_SMALL, "head_dim": 32},
    "llama4_text": {
        **_SMALL,
        "head_dim": 32,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 704,
        "interleave_moe_layer_step": 2,
    },
    "gemma3_text": {**_SMALL, "head_dim": 64},
    "gemma4_text": {
        **_SMALL,
        **_GEMMA_4,
        "hidden_size_per_layer_input": 0,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
    },
    "gpt_oss": {**_SMALL, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2},
}
#: A router's correction is a buffer in transformers; the files have it, and ours counts it.
_CORRECTED = {"minimax_m2": "num_local_experts", "glm4_moe": "n_routed_experts"}
CONFIGS["minimax_m2"] = {**_SMALL, "head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 2}
CONFIGS["glm4_moe"] = {
    **_SMALL,
    **_EXPERTS,
    "head_dim": 32,
    "attention_bias": True,
    "use_qk_norm": True,
    **{
        key: _DEEPSEEK[key]
        for key in ("n_routed_experts", "n_shared_experts", "first_k_dense_replace", "n_group", "topk_group")
    },
}


_NEWER = {**_SMALL, **_EXPERTS, "head_dim": 32}
CONFIGS |= {
    "olmoe": {**_SMALL, "num_experts": 8, "num_experts_per_tok": 2},
    "dots1": {
        **_NEWER,
        **{
            key: _DEEPSEEK[key]
            for key in ("n_routed_experts", "n_shared_experts", "first_k_dense_replace", "n_group", "topk_group")
        },
    },
    "hunyuan_v1_moe": {**_SMALL, "head_dim": 32, "num_experts": 8, "moe_topk": 2, "num_shared_expert": 1},
    "afmoe": {
        **_NEWER,
        "num_experts": 8,
        "num_shared_experts": 1,
        "num_dense_layers": 2,
        "global_attn_every_n_layers": 4,
    },
    "mimo_v2_flash": {
        **_NEWER,
        **{key: _DEEPSEEK[key] for key in ("n_routed_experts", "n_group", "topk_group")},
        "v_head_dim": 16,
        "swa_num_key_value_heads": 4,
        "layer_types": ["full_attention", "sliding_attention"] * 4,
    },
}


_STATES = {
    key: value
    for key, value in _SMALL.items()
    if key not in ("num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings")
}
_CONVOLUTIONS = {"layer_types": ["conv", "conv", "full_attention", "conv"] * 2}
CONFIGS |= {
    "stablelm": {**_SMALL, "use_qkv_bias": True, "qk_layernorm": True, "use_parallel_residual": True},
    "gpt_neo": {
        "hidden_size": 256,
        "num_layers": 4,
        "num_heads": 8,
        "vocab_size": 1000,
        "attention_types": [[["global", "local"], 2]],
    },
    "gpt_bigcode": {"n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": 1000},
    "phimoe": {**_SMALL, "num_local_experts": 4, "attention_bias": True, "lm_head_bias": True},
    "mamba": {**_STATES, "state_size": 16},
    "falcon_mamba": {**_STATES, "state_size": 16},
    "mamba2": {**_STATES, "num_heads": 8, "head_dim": 64, "n_groups": 2, "state_size": 32},
    "jamba": {**_SMALL, "num_experts": 4, "num_experts_per_tok": 2, "use_mamba_kernels": False},
    "bamba": {**_SMALL, "attn_layer_indices": [1, 5], "mamba_n_heads": 16, "mamba_d_state": 32},
    "falcon_h1": {
        **_SMALL,
        "mamba_d_ssm": 512,
        "mamba_n_heads": 16,
        "mamba_d_head": 32,
        "mamba_d_state": 32,
        "mamba_n_groups": 1,
    },
    "granitemoehybrid": {
        **_SMALL,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 128,
        "mamba_n_heads": 16,
        "mamba_d_state": 32,
        "layer_types": ["mamba", "mamba", "mamba", "attention"] * 2,
        "tie_word_embeddings": True,
    },
    "lfm2": {**_SMALL, **_CONVOLUTIONS},
    "recurrent_gemma": {**_SMALL, "lru_width": 512, "num_key_value_heads": 1},
    "zamba2": {
        **{key: value for key, value in _SMALL.items() if key != "num_key_value_heads"},
        "n_mamba_heads": 16,
        "mamba_ngroups": 2,
        "num_mem_blocks": 2,
        "use_shared_attention_adapter": True,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"] * 2,
    },
    "minicpm3": {**_SMALL, **_LATENT},
    "gemma3n_text": {
        **_SMALL,
        "head_dim": 32,
        "vocab_size_per_layer_input": 500,
        "hidden_size_per_layer_input": 64,
        "num_kv_shared_layers": 3,
        "laurel_rank": 16,
    },
    "nemotron": {**_SMALL, "head_dim": 64},
    "codegen": {"n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": 1000, "rotary_dim": 16},
    "lfm2_moe": {**_SMALL, **_CONVOLUTIONS, **_EXPERTS, "num_experts": 8, "num_dense_layers": 2},
}


def counted(kind: str, document: dict[str, Any], auto: Any = AutoModelForCausalLM) -> int:
    with torch.device("meta"):
        model = auto.from_config(AutoConfig.for_model(kind, **document))
    return sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_family_has_as_many_parameters_as_pytorch_counts(kind: str) -> None:
    document = CONFIGS[kind]
    shape = config.read({**AutoConfig.for_model(kind, **document).to_dict(), **document, "model_type": kind}, kind)
    corrected = shape.expert_layers * document[_CORRECTED[kind]] if kind in _CORRECTED else 0
    assert architecture.parameters(shape) - corrected == counted(kind, document)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "vit"])
def test_an_encoder_has_as_many_parameters_as_pytorch_counts(kind: str) -> None:
    left_out = {"num_key_value_heads", "pad_token_id"} | (
        {"vocab_size", "max_position_embeddings"} if kind == "vit" else set()
    )
    document = {key: value for key, value in _SMALL.items() if key not in left_out}
    with torch.device("meta"):
        made = AutoConfig.for_model(kind, **document)
        model = AutoModel.from_config(made, **({"add_pooling_layer": False} if kind == "vit" else {}))
    shape = config.read({**made.to_dict(), "model_type": kind}, kind)
    assert architecture.parameters(shape) == sum(each.numel() for each in model.parameters())


def test_whisper_has_as_many_parameters_as_pytorch_counts() -> None:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    made = WhisperConfig(
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        d_model=256,
        encoder_layers=3,
        decoder_layers=2,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        vocab_size=60_000,
    )
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(made)
    assert architecture.parameters(config.read(made.to_dict(), "x")) == sum(each.numel() for each in model.parameters())

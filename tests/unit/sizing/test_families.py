"""Families whose configurations say more than layers, width and heads: what they count of parameters, and what is kept of a sequence."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing import answer, architecture, config, memory, models, tables
from gpuwright.sizing.layout import Layout

ROWS = {row["name"]: row for row in tables.models()}


def written(folder: Path, document: dict[str, Any]) -> str:
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return str(folder / "config.json")


def needed(text: str) -> memory.Memory:
    found = models.named(text)
    return memory.inference(
        found.shape, memory.Inference(weights=found.format) if found.format else memory.Inference(), Layout()
    )


# what is kept of a sequence ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tokens", "elements"),
    [
        # 16 of 64 layers attend, with four heads of 256; 48 have a state of 48 · 128 · 128 and four tokens of 10,240 before it, in 32 bits.
        ("qwen3.5-27b", 1000, 16 * 2 * 4 * 256 * 1000 + 48 * 2 * (48 * 128 * 128 + 4 * 10_240)),
        # 50 layers look at 1024 tokens, with 16 heads of 256; ten at all, with four of 512.
        ("gemma-4-31b", 10_000, 50 * 2 * 16 * 256 * 1024 + 10 * 2 * 4 * 512 * 10_000),
        # 15 layers have keys of their own, three of which look at all.
        ("gemma-4-e2b", 1000, 12 * 2 * 256 * 512 + 3 * 2 * 512 * 1000),
        # Three of four layers have chunks of 8192.
        ("llama-4-scout", 20_000, 2 * 8 * 128 * (36 * 8192 + 12 * 20_000)),
        # A latent vector of 576, and the keys of an index in 21 of 78 layers.
        ("glm-5.2", 1000, (78 * 576 + 21 * 128) * 1000),
        ("deepseek-v3.2", 1000, 61 * (576 + 128) * 1000),
        # A window of 128; of all tokens one of four with its index in 21 layers, one of 128 in 20.
        ("deepseek-v4-flash", 12_800, 43 * 512 * 128 + 21 * (512 + 128) * 12_800 / 4 + 20 * 512 * 12_800 / 128),
        # 24 of 93 layers attend.
        ("kimi-k3", 1000, 24 * 576 * 1000 + 69 * 2 * (96 * 128 * 128 + 4 * 3 * 96 * 128)),
        # 49 of 80 blocks attend, with eight heads.
        ("llama-3.3-nemotron-super-49b", 1000, 49 * 2 * 8 * 128 * 1000),
        # 448 tokens of text, and 1500 steps of sound.
        ("whisper-large-v3", 10_000, 32 * 2 * 1280 * (448 + 1500)),
        # 64 layers with a state of 16 numbers and four tokens for each of 5120, in 32 bits, however long a text is.
        ("mamba-2.8b", 100_000, 64 * 2 * 5120 * (16 + 4)),
        # Four of 32 layers attend, with eight heads.
        ("jamba-v0.1", 1000, 4 * 2 * 8 * 128 * 1000 + 28 * 2 * 8192 * (16 + 4)),
        # Six of 52 layers attend, with two heads; 23 have 64 states of 64 by 128, and a convolution over four tokens of 6144.
        ("nemotron-3-nano-30b-a3b", 1000, 6 * 2 * 2 * 128 * 1000 + 23 * 2 * (64 * 64 * 128 + 4 * 6144)),
        # Every layer does both.
        ("falcon-h1-7b", 1000, 44 * 2 * 2 * 128 * 1000 + 44 * 2 * (3072 * 256 + 4 * (3072 + 512))),
        # Six of 16 attend; ten keep three tokens.
        ("lfm2-1.2b", 1000, 6 * 2 * 8 * 64 * 1000 + 10 * 2 * 3 * 2048),
        # Seven of 27 layers have a latent vector of 576; 20 have 32 states of 128 by 128, and four tokens before three convolutions.
        ("kimi-linear-48b-a3b", 1000, 7 * 576 * 1000 + 20 * 2 * (32 * 128 * 128 + 4 * 3 * 32 * 128)),
        # Each layer attends twice.
        ("longcat-flash", 1000, 2 * 28 * 576 * 1000),
        # Nine layers look at all, with four heads of keys (192) and values (128), 39 at 128 tokens, with eight.
        ("mimo-v2-flash", 1000, 9 * 4 * (192 + 128) * 1000 + 39 * 8 * (192 + 128) * 128),
        # Four of 40 layers attend; 36 have 128 states of 64 by 128, and a convolution over four tokens of 8448.
        ("granite-4.0-h-small", 1000, 4 * 2 * 8 * 128 * 1000 + 36 * 2 * (128 * 64 * 128 + 4 * 8448)),
        # Ten of 80 attend; 70 have 64 states of 128 by 128, without a convolution: one token of queries, keys and values is counted.
        ("minimax-text-01", 1000, 10 * 2 * 8 * 128 * 1000 + 70 * 2 * (64 * 128 * 128 + 3 * 64 * 128)),
        # 64 of 162 blocks attend, with eight heads.
        ("llama-3.1-nemotron-ultra-253b", 1000, 64 * 2 * 8 * 128 * 1000),
        # Eight of 32 layers look at all, with four heads.
        ("trinity-mini", 10_000, 2 * 4 * 128 * (24 * 2048 + 8 * 10_000)),
        # One head of keys for all 64 of queries.
        ("step3", 1000, 61 * 2 * 256 * 1000),
        # What sees and hears beside the layers of another model keeps as much as that one.
        ("internvl3-78b", 1000, 80 * 2 * 8 * 128 * 1000),
        # A token is read or written: in either case each of the 24 layers that write has its keys and values.
        ("flan-t5-xxl", 1000, 24 * 2 * 64 * 64 * 1000),
        ("bart-large", 1000, 12 * 2 * 1024 * 1000),
        # Two of three of 26 layers keep one number and four tokens of 2560; eight attend to 2048 tokens, with one head of 256.
        ("recurrentgemma-2b", 10_000, 8 * 2 * 256 * 2048 + 18 * 2 * 2560 * (1 + 4)),
        # Nine places of two shared blocks, twice as wide as the model; a state in each of 54 layers.
        ("zamba2-2.7b", 1000, 9 * 2 * 5120 * 1000 + 54 * 2 * (5120 * 64 + 4 * (5120 + 2 * 64))),
        # A head of 64 by 64, and the token before it for two parts of the layer.
        ("rwkv7-2.9b", 1000, 32 * 2 * 40 * (64 * 64 + 2 * 64)),
        # 20 of 35 layers keep keys of their own: four of them of all tokens, the others of 512.
        ("gemma-3n-e4b", 1000, 2 * 2 * 256 * (4 * 1000 + 16 * 512)),
        # Eleven latent layers with an index, 34 with a state of 64 heads.
        ("glm-5.3-flash", 1000, 11 * (512 + 128) * 1000 + 34 * 64 * 2 * (128 * 128 + 3 * 128 * 4)),
        ("minicpm3-4b", 1000, 62 * 40 * 2 * 96 * 1000),
        ("bert-large", 512, 0),
        ("flux.1-dev", 4096, 0),
    ],
)
def test_each_kind_of_layer_keeps_what_it_keeps(name: str, tokens: int, elements: float) -> None:
    assert architecture.kept(models.find(name), tokens) == elements


@pytest.mark.parametrize(
    ("name", "usual"),
    # Of the classes in transformers 5.24 (models/*/configuration_*.py), and of flash-linear-attention for RWKV-7.
    [
        ("mamba-2.8b", {"state_size": 16, "conv_kernel": 4, "time_step_rank": 160, "intermediate_size": 5120}),
        ("codestral-mamba-7b", {"expand": 2, "head_dim": 64, "n_groups": 8, "state_size": 128, "conv_kernel": 4}),
        ("jamba-v0.1", {"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1}),
        ("jamba-v0.1", {"mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_d_conv": 4, "mamba_expand": 2}),
        ("nemotron-h-56b", {"mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128}),
        ("nemotron-3-nano-30b-a3b", {"conv_kernel": 4, "moe_shared_expert_intermediate_size": 7688}),
        ("bamba-9b", {"mamba_n_heads": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4}),
        ("granite-4.0-h-micro", {"shared_intermediate_size": 1024}),
        ("recurrentgemma-2b", {"attention_window_size": 2048, "lru_width": 2560, "conv1d_width": 4}),
        ("recurrentgemma-2b", {"block_types": ["recurrent", "recurrent", "attention"]}),
        ("zamba2-2.7b", {"adapter_rank": 128, "n_mamba_heads": 8, "mamba_ngroups": 1, "mamba_d_state": 64, "mamba_d_conv": 4}),
        ("zamba2-2.7b", {"mamba_expand": 2, "num_mem_blocks": 1}),
        ("rwkv7-2.9b", {"head_dim": 64, "decay_low_rank_dim": 96, "a_low_rank_dim": 96, "gate_low_rank_dim": 256, "v_low_rank_dim": 64}),
        ("lfm2-1.2b", {"block_multiple_of": 256, "conv_L_cache": 3}),
        ("lfm2-8b-a1b", {"num_dense_layers": 2}),
    ],
)  # fmt: skip
def test_what_a_configuration_leaves_out_is_as_its_class_has_it(name: str, usual: dict[str, Any]) -> None:
    left_out = {key: value for key, value in ROWS[name]["config"].items() if key not in usual}

    def counted(more: dict[str, Any]) -> tuple[float, float]:
        shape = config.read({**left_out, **more}, name)
        return architecture.parameters(shape), architecture.kept(shape, 10_000)

    assert counted({}) == counted(usual)
    for key, value in usual.items():
        other = [*value, "attention"] if isinstance(value, list) else 5 * value + 1
        assert counted({**usual, key: other}) != counted(usual), key


@pytest.mark.parametrize("key", ["attn_layer_offset", "expert_layer_offset"])
def test_the_first_layer_may_attend_or_have_experts(key: str) -> None:
    jamba = ROWS["jamba-v0.1"]["config"]
    first, later = (architecture.parameters(config.read({**jamba, key: at}, "x")) for at in (0, 1))
    assert first == later


def test_cards_share_heads_and_each_has_a_latent_vector() -> None:
    gemma, glm = models.find("gemma-4-31b"), models.find("glm-5.2")
    assert architecture.kept(gemma, 1000, 4) == architecture.kept(gemma, 1000) / 4
    assert architecture.kept(glm, 1000, 4) == architecture.kept(glm, 1000)


@pytest.mark.parametrize(
    ("name", "active"),
    # As their makers say, rounded.
    [("qwen3-next-80b-a3b", 3.3e9), ("qwen3.5-35b-a3b", 3e9), ("glm-4.5-air", 12e9), ("glm-4.5", 32e9), ("minimax-m2", 10e9),
     ("deepseek-v4-flash", 13e9), ("kimi-k2.5", 32e9), ("llama-4-scout", 17e9), ("gemma-4-26b-a4b", 4e9),
     ("jamba-v0.1", 12e9), ("lfm2-8b-a1b", 1.5e9), ("grok-2", 115e9), ("snowflake-arctic", 17e9),
     ("nemotron-3-nano-30b-a3b", 3.5e9), ("nemotron-3-super-120b-a12b", 12e9),
     ("olmoe-1b-7b", 1.3e9), ("kimi-linear-48b-a3b", 3e9), ("minimax-text-01", 45.9e9), ("ernie-4.5-300b-a47b", 47e9),
     ("hunyuan-a13b", 13e9), ("ling-1t", 50e9), ("dots.llm1", 14e9), ("mimo-v2-flash", 15e9), ("trinity-mini", 3e9),
     ("granite-4.0-h-small", 9e9), ("step3", 38e9), ("mistral-large-3-675b", 41e9)],
)  # fmt: skip
def test_a_token_goes_through_as_many_parameters_as_the_makers_say(name: str, active: float) -> None:
    assert architecture.active(models.find(name)) == pytest.approx(active, rel=0.12)


# configurations as the hub has them -------------------------------------------------------------------

#: As google/gemma-3-4b-it has it: what its class has already is left out.
GEMMA_3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {
        "hidden_size": 1152,
        "image_size": 896,
        "intermediate_size": 4304,
        "model_type": "siglip_vision_model",
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "patch_size": 14,
    },
}
_QWEN_TOWER = {"num_heads": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}
QWEN3_VL = {
    "model_type": "qwen3_vl",
    "text_config": {"dtype": "bfloat16", **ROWS["qwen3-vl-4b"]["config"]},
    "vision_config": {
        **_QWEN_TOWER,
        "deepstack_visual_indexes": [5, 11, 17],
        "depth": 24,
        "hidden_size": 1024,
        "in_channels": 3,
        "intermediate_size": 4096,
        "num_position_embeddings": 2304,
        "patch_size": 16,
    },
}
QWEN25_VL = {
    **ROWS["qwen2.5-vl-7b"]["config"],
    "model_type": "qwen2_5_vl",
    "torch_dtype": "bfloat16",
    "vision_config": {
        **_QWEN_TOWER,
        "depth": 32,
        "hidden_act": "silu",
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "in_chans": 3,
        "patch_size": 14,
    },
}
QWEN2_VL = {
    **ROWS["qwen2-vl-7b"]["config"],
    "model_type": "qwen2_vl",
    "torch_dtype": "bfloat16",
    "vision_config": {
        **_QWEN_TOWER,
        "depth": 32,
        "embed_dim": 1280,
        "mlp_ratio": 4,
        "hidden_size": 3584,
        "patch_size": 14,
    },
}
CLIP = {
    "model_type": "clip",
    "text_config": {"projection_dim": 512},
    "vision_config": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "image_size": 224,
        "patch_size": 32,
    },
}


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (GEMMA_3, "gemma-3-4b"),
        (QWEN3_VL, "qwen3-vl-4b"),
        (QWEN25_VL, "qwen2.5-vl-7b"),
        (QWEN2_VL, "qwen2-vl-7b"),
        (CLIP, "clip-vit-base-patch32"),
    ],
    ids=["gemma-3", "qwen3-vl", "qwen2.5-vl", "qwen2-vl", "clip"],
)
def test_a_configuration_with_a_tower_is_as_large_as_its_name_says(
    document: dict[str, Any], name: str, tmp_path: Path
) -> None:
    found = models.find(written(tmp_path, document))
    assert architecture.parameters(found) == pytest.approx(ROWS[name]["parameters"], rel=0.01)
    assert needed(written(tmp_path, document)).value == pytest.approx(needed(name).value, rel=0.01)
    assert architecture.kept(found, 4096) == architecture.kept(models.find(name), 4096)


def test_a_text_that_says_nothing_of_its_family_has_that_of_the_whole(tmp_path: Path) -> None:
    inner = {key: value for key, value in ROWS["qwen3-vl-4b"]["config"].items() if key != "model_type"}
    assert models.find(written(tmp_path, {"model_type": "qwen3_vl", "text_config": inner})).query_norm == "head"


def test_a_tower_without_numbers_counts_nothing(tmp_path: Path) -> None:
    for tower in (
        {},
        {"hidden_size": "wide", "depth": True},
        {"hidden_size": 10**9, "depth": 10},
        {"hidden_size": -1, "depth": 3},
    ):
        assert (
            models.find(
                written(
                    tmp_path, {"model_type": "x", "text_config": ROWS["qwen3-8b"]["config"], "vision_config": tower}
                )
            ).beside
            == 0
        )


# a name, its configuration and its files --------------------------------------------------------------


def test_a_name_and_its_configuration_need_the_same(tmp_path: Path) -> None:
    """Without a tower, which a configuration of the text alone does not have."""
    job, different = memory.Inference(context=1024), {}
    for name, row in ROWS.items():
        if row.get("counted"):
            continue
        by_file = memory.inference(models.find(written(tmp_path, row["config"])), job, Layout()).value
        by_name = memory.inference(models.find(name), job, Layout()).value
        if by_file + row.get("beside", 0) * 2 != pytest.approx(by_name, rel=0.01):
            different[name] = by_file, by_name
    assert different == {}


def tensors(row: dict[str, Any]) -> dict[str, list[int]]:
    """What lies in the files of a model with the layers of Llama."""
    at = row["config"]
    hidden, heads, width = at["hidden_size"], at["num_attention_heads"], at["intermediate_size"]
    head = at.get("head_dim", hidden // heads)
    keys = at.get("num_key_value_heads", heads) * head
    found = {"model.embed_tokens.weight": [at["vocab_size"], hidden], "model.norm.weight": [hidden]}
    if not at["tie_word_embeddings"]:
        found["lm_head.weight"] = [at["vocab_size"], hidden]
    for layer in range(at["num_hidden_layers"]):
        here = f"model.layers.{layer}."
        found[here + "self_attn.q_proj.weight"], found[here + "self_attn.o_proj.weight"] = (
            [heads * head, hidden],
            [hidden, heads * head],
        )
        found[here + "self_attn.k_proj.weight"], found[here + "self_attn.v_proj.weight"] = (
            [keys, hidden],
            [keys, hidden],
        )
        found[here + "mlp.gate_proj.weight"] = found[here + "mlp.up_proj.weight"] = [width, hidden]
        found[here + "mlp.down_proj.weight"] = [hidden, width]
        found[here + "input_layernorm.weight"] = found[here + "post_attention_layernorm.weight"] = [hidden]
    return found


@pytest.mark.parametrize(
    "name",
    [
        "llama-3.1-8b",
        "llama-3.2-1b",
        "llama-2-7b",
        "mistral-7b",
        "qwen2.5-7b",
        "qwen3-0.6b",
        "qwen3-32b",
        "deepseek-coder-33b",
    ],
)
def test_a_name_its_configuration_and_its_files_need_the_same(name: str, tmp_path: Path) -> None:
    row, entries, at = ROWS[name], {}, 0
    for tensor, shape in tensors(row).items():
        size = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        entries[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(entries).encode()
    path = tmp_path / "model.safetensors"
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(head)) + head)
        stream.truncate(8 + len(head) + at)  # nothing lies in it
    alone, by_name = needed(str(path)), needed(name)
    written(tmp_path, {**row["config"], "torch_dtype": "bfloat16"})
    for found in (alone, needed(str(tmp_path)), needed(str(tmp_path / "config.json"))):
        assert found.value == pytest.approx(by_name.value, rel=0.01)
        assert found.of("KV cache") == by_name.of("KV cache")
    assert needed(str(tmp_path)).of("weights") == pytest.approx(at, abs=1)


# encoders and diffusion -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "bert-large",
        "bge-m3",
        "vit-base",
        "clip-vit-base-patch32",
        "flux.1-dev",
        "sdxl",
        "sd1.5",
        "qwen-image",
        "sam-vit-huge",
        "ltx-video",
    ],
)
def test_what_writes_no_text_has_memory_and_no_tokens_a_second(name: str) -> None:
    found = answer.size(answer.Question(model=name, job=memory.Inference(context=77), card="H100 SXM5 80GB"))
    assert found["speed"] == []
    assert found["most"] == {"batch": 0, "context": 0, "users": 0}
    assert not sum(part["value"] for part in found["memory"] if part["name"] == "KV cache")
    assert (
        next(part["value"] for part in found["memory"] if part["name"] == "weights")
        == 2 * ROWS[found["model"]["name"]]["parameters"]
    )


@pytest.mark.parametrize(
    ("name", "side"),
    [("sd1.5", 512), ("sdxl", 1024), ("sd3", 1024), ("sd3.5-large", 1024), ("flux-dev", 1024), ("flux-schnell", 1024)],
)
def test_an_image_is_decoded_at_once_in_three_tensors_of_256_channels(name: str, side: int) -> None:
    for batch in (1, 3):
        held = memory.inference(models.find(name), memory.Inference(batch=batch), Layout())
        part = next(each for each in held.parts if each.name == "activations")
        assert part.value == 3 * 256 * 2 * side**2 * batch
        # In tiles of 512 one after the other; and in 32 bits.
        assert (part.low, part.high) == (3 * 256 * 2 * 512**2, 2 * part.value)
        assert f"{side} × {side}" in part.text


def test_what_changes_nothing_is_no_other_choice() -> None:
    found = answer.size(answer.Question(model="flux-dev", job=memory.Inference(), card="GeForce RTX 4090", count=1))
    assert [each["option"] for each in found["changes"]] == ["--weights fp8", "--weights int4"]
    assert "offload" not in found["conflicts"][0]["remedy"]
    assert found["model"]["image"] == 1024


def test_of_a_video_it_is_said_what_is_not_counted() -> None:
    found = answer.size(answer.Question(model="wan2.1-t2v-14b", job=memory.Inference(), card="H100 SXM5 80GB"))
    (part,) = (each for each in found["memory"] if each["name"] == "activations")
    assert (part["value"], part["text"]) == (0, "what making and decoding a video takes is not counted")


def test_what_writes_no_text_is_not_offloaded() -> None:
    with pytest.raises(BadInput, match=r"flux\.1-dev writes none"):
        answer.size(answer.Question(model="flux-dev", job=memory.Inference(), card="GeForce RTX 4090", offload=True))


@pytest.mark.parametrize(("name", "what"), [("bert-large", "an encoder"), ("flux-dev", "a diffusion model")])
def test_training_of_what_writes_no_text_is_refused(name: str, what: str) -> None:
    with pytest.raises(BadInput, match=f"is {what}, whose training is not counted"):
        answer.size(answer.Question(model=name, job=memory.Training(), card="H100 SXM5 80GB"))


# older families ---------------------------------------------------------------------------------------

#: As liuhaotian/llava-v1.5-13b has it: a model of text that names the tower it sees with.
LLAVA = {
    **ROWS["llama-2-13b"]["config"],
    "model_type": "llava",
    "mm_vision_tower": "openai/clip-vit-large-patch14-336",
    "mm_hidden_size": 1024,
    "mm_projector_type": "mlp2x_gelu",
}


def test_a_tower_that_is_only_named_is_counted() -> None:
    """The files of the hub have 64 words more."""
    published = ROWS["llava-1.5-13b"]["parameters"] - 2 * 64 * 5120
    assert architecture.parameters(config.read(LLAVA, "x")) == published


@pytest.mark.parametrize(
    ("change", "left_out"),
    [({"mm_vision_tower": "of/nobody"}, 334_974_976), ({"mm_projector_type": "linear"}, 5120 * 5120 + 5120)],
)
def test_of_a_tower_is_counted_what_is_known(change: dict[str, Any], left_out: int) -> None:
    whole = architecture.parameters(config.read(LLAVA, "x"))
    assert architecture.parameters(config.read({**LLAVA, **change}, "x")) == whole - left_out


def test_dbrx_says_its_numbers_in_groups() -> None:
    shape = models.find("dbrx")
    assert (shape.kv_heads, shape.experts and shape.experts.count, shape.intermediate) == (8, 16, 10_752)
    assert architecture.active(shape) == pytest.approx(36e9, rel=0.03)


@pytest.mark.parametrize(
    ("name", "heads"), [("starcoder", 1), ("falcon-11b", 8), ("gpt-neo-2.7b", 20), ("chatglm3-6b", 2), ("grok-1", 8)]
)
def test_older_families_keep_as_many_heads_as_they_have(name: str, heads: int) -> None:
    assert models.find(name).kv_heads == heads


def test_qwen_of_2023_says_the_width_of_both_halves() -> None:
    """As Qwen/Qwen-72B has it."""
    document = {**ROWS["qwen1.5-72b"]["config"], "model_type": "qwen", "intermediate_size": 49_152}
    assert architecture.parameters(config.read(document, "x")) == ROWS["qwen1.5-72b"]["parameters"]


@pytest.mark.parametrize("name", ["mamba-2.8b", "jamba-v0.1", "lfm2-1.2b", "flan-t5-xl", "step3"])
def test_training_of_layers_that_keep_a_state_or_write_what_another_text_says_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="has layers whose training is not counted"):
        answer.size(answer.Question(model=name, job=memory.Training(), card="H100 SXM5 80GB"))


def test_layers_are_counted_where_their_kinds_are_listed() -> None:
    """As nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16 has it: a list in place of letters, and no number of layers."""
    row = ROWS["nemotron-3-nano-30b-a3b"]
    kinds = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
    document = {
        **row["config"],
        "layers_block_type": [kinds[each] for each in row["config"]["hybrid_override_pattern"]],
    }
    del document["hybrid_override_pattern"], document["num_hidden_layers"]
    assert architecture.parameters(config.read(document, "x")) == row["parameters"]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("nemotron-3-nano-30b-a3b", {"hybrid_override_pattern": "M*"}, "kind of each of the 52 layers"),
        ("nemotron-3-nano-30b-a3b", {"mamba_num_heads": -1}, "mamba_num_heads has to be a whole number"),
        ("jamba-v0.1", {"attn_layer_period": 0}, "attn_layer_period has to be a whole number"),
        ("jamba-v0.1", {"attn_layer_offset": "x"}, "attn_layer_offset has to be a whole number"),
        ("bamba-9b", {"mamba_n_heads": 10**6}, "mamba_n_heads has to be no more than"),
        ("lfm2-1.2b", {"full_attn_idxs": None}, "kind of each of the 16 layers"),
        ("zamba2-7b", {"hybrid_layer_ids": None}, "kind of each of the 81 layers"),
        ("rwkv7-2.9b", {"gate_low_rank_dim": "x"}, "gate_low_rank_dim has to be a whole number"),
        ("gemma-3n-e2b", {"laurel_rank": 0}, "laurel_rank has to be a whole number"),
        ("glm-5.3-flash", {"hc_mult": None}, "hc_mult has to be a whole number"),
        ("t5-base", {"num_decoder_layers": 0.5}, "num_decoder_layers has to be a whole number"),
        ("t5-base", {"relative_attention_num_buckets": "x"}, "relative_attention_num_buckets has to be a whole number"),
    ],
)
def test_what_layers_with_states_have_to_say_is_asked_for(name: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        config.read({**ROWS[name]["config"], **change}, "x")


def test_a_layer_that_keeps_one_token_of_128_has_matrices_for_it() -> None:
    """DeepSeek-V4: what makes one of many, beside those of a layer that looks at a window alone."""
    row = ROWS["deepseek-v4-flash"]["config"]
    layers, hidden, head = row["num_hidden_layers"], row["hidden_size"], row["head_dim"]

    def counted(*ratios: int) -> float:
        return config.read({**row, "compress_ratios": [*ratios, *[0] * (layers - len(ratios))]}, "x").counted

    assert counted(128, 128) - counted() == 2 * 2 * hidden * head
    index, index_heads = row["index_head_dim"], row["index_n_heads"]
    indexer = index_heads * (row["q_lora_rank"] * index + hidden)
    assert counted(4) - counted() == 4 * hidden * (head + index) + indexer


@pytest.mark.parametrize(
    ("name", "layers"), [("t5-base", 24), ("flan-t5-xl", 48), ("bart-large", 24), ("whisper-large-v3", 64)]
)
def test_layers_that_read_and_that_write_are_all_layers(name: str, layers: int) -> None:
    assert models.find(name).layers == layers


def test_a_file_that_says_nothing_of_its_convolution_has_one_over_four_tokens() -> None:
    said = {**ROWS["jamba-v0.1"]["config"], "mamba_d_conv": 4}
    unsaid = {key: value for key, value in said.items() if key != "mamba_d_conv"}
    assert config.read(unsaid, "x") == config.read(said, "x")
    assert config.read({**said, "mamba_d_conv": 5}, "x") != config.read(said, "x")


def test_layers_that_keep_keys_are_whole_ones() -> None:
    """Gemma 4: one of six looks at all tokens; of those that keep keys, as many as are whole."""
    row = ROWS["gemma-4-e4b"]["config"]
    kept = config.read({**row, "num_kv_shared_layers": row["num_kv_shared_layers"] + 1}, "x").kept
    keeping = row["num_hidden_layers"] - row["num_kv_shared_layers"] - 1
    assert [each.layers for each in kept] == [keeping - keeping // 6, keeping // 6]
    assert keeping % 6


def test_configurations_as_their_makers_have_them_give_what_the_names_do() -> None:
    """Gemma 3n within that of a model that sees and hears; Grok 2 under the name of another family; Zamba2 that lists its layers."""
    e4b = ROWS["gemma-3n-e4b"]["config"]
    tower = {"architecture": "mobilenetv5_300m_enc", "hidden_size": 2048}
    whole: dict[str, Any] = {
        "model_type": "gemma3n",
        "text_config": {"model_type": "gemma3n_text"},
        "vision_config": tower,
    }
    assert config.read(whole, "x").counted == ROWS["gemma-3n-e4b"]["parameters"]
    assert config.read({**whole, "text_config": e4b}, "x").kept == models.find("gemma-3n-e4b").kept
    grok = config.read({**ROWS["grok-2"]["config"], "model_type": "git"}, "grok-2")
    assert grok == models.find("grok-2")
    with pytest.raises(BadInput, match="model_type 'git' is none"):
        config.read({**ROWS["grok-2"]["config"], "model_type": "git", "residual_moe": False}, "x")
    zamba: dict[str, Any] = dict(ROWS["zamba2-2.7b"]["config"])
    places = zamba.pop("hybrid_layer_ids")
    kinds = ["hybrid" if layer in places else "mamba" for layer in range(54)]
    assert config.read({**zamba, "layers_block_type": kinds}, "zamba2-2.7b") == models.find("zamba2-2.7b")
    glm = {
        **ROWS["glm-5.3-flash"]["config"],
        "head_dim": 0,
        "layer_types": (["linear_attention"] * 3 + ["indexed_attention"]) * 11,
    }
    assert config.read({**glm, "num_hidden_layers": 44}, "x").kept[1].layers == 11


# what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rwkv", "zamba", "xlstm", "qwen4_exp", "qwen4_exp_text"])
def test_a_family_that_is_not_counted_is_refused_by_its_name_with_what_is(kind: str) -> None:
    with pytest.raises(BadInput, match=f"model_type '{kind}' is none whose shape is known") as raised:
        config.read({**ROWS["llama-3.1-8b"]["config"], "model_type": kind}, "x")
    assert "llama" in raised.value.suggestions[0]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("llama-3.3-nemotron-super-49b", {"block_configs": [3]}, "one entry for each of the 80 layers"),
        ("deepseek-v4-flash", {"q_lora_rank": None}, "q_lora_rank has to be a whole number"),
        ("deepseek-v4-flash", {"o_groups": 10**9}, "o_groups has to be a whole number"),
        ("whisper-large-v3", {"decoder_layers": 1.5}, "decoder_layers has to be a whole number"),
        ("kimi-k3", {"linear_attn_config": {"kda_layers": [1]}}, "does not say num_heads"),
    ],
)
def test_what_a_family_has_to_say_is_asked_for(name: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        config.read({**ROWS[name]["config"], **change}, "x")


def test_lists_that_say_nothing_are_read_as_nothing() -> None:
    for change in ({"compress_ratios": "x"}, {"compress_ratios": [None] * 43}):
        assert architecture.parameters(config.read({**ROWS["deepseek-v4-flash"]["config"], **change}, "x")) > 2.8e11
    griffin = ROWS["recurrentgemma-2b"]["config"]
    nothing: Any
    for nothing in ([], "recurrent", 3):
        assert config.read({**griffin, "block_types": nothing}, "x") == config.read(griffin, "x")
    for nothing in (0, -6, ""):
        # Without a period every layer looks back no further than the window.
        gemma = config.read({**ROWS["gemma-3-12b"]["config"], "sliding_window_pattern": nothing}, "x")
        assert gemma.windowed_layers == gemma.layers
    blocks = [{"attention": 3}, {"ffn": {"ffn_mult": -1}}] * 40
    assert (
        architecture.parameters(
            config.read({**ROWS["llama-3.3-nemotron-super-49b"]["config"], "block_configs": blocks}, "x")
        )
        > 0
    )


def test_what_a_kimi_configuration_leaves_out_is_the_default_of_its_class() -> None:
    row = next(each for each in tables.models() if each["name"] == "kimi-linear-48b-a3b")
    linear = {
        key: value for key, value in row["config"]["linear_attn_config"].items() if key != "short_conv_kernel_size"
    }
    shape = config.read({**row["config"], "linear_attn_config": linear}, "kimi")
    assert shape.recurrent is not None
    assert shape.recurrent.kernel == row["config"]["linear_attn_config"]["short_conv_kernel_size"] == 4

"""A person's own config.json: what it says, and what is refused in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, config, models

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 704,
    "vocab_size": 1000,
}


def write(folder: Path, document: object) -> str:
    path = folder / "config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return str(path)


def test_a_file_and_its_folder_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, LLAMA)
    # As PyTorch counts them in the model that transformers 5.24 makes of it.
    assert architecture.parameters(models.find(path)) == architecture.parameters(models.find(str(tmp_path))) == 3332352


def test_the_text_part_of_a_model_that_sees_is_read(tmp_path: Path) -> None:
    assert (
        architecture.parameters(models.find(write(tmp_path, {"model_type": "llava", "text_config": LLAMA}))) == 3332352
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "resnet"}, "none whose shape is known"),
        ({"model_type": None}, "none whose shape is known"),
        ({"hidden_size": None}, "does not say hidden_size"),
        ({"hidden_size": "wide"}, "hidden_size has to be a whole number"),
        ({"hidden_size": -1}, "hidden_size has to be a whole number"),
        ({"hidden_size": 1.5}, "hidden_size has to be a whole number"),
        ({"hidden_size": True}, "hidden_size has to be a whole number"),
        ({"hidden_size": 10**12}, "at most"),
        ({"num_attention_heads": 512}, "no more than 256"),
        ({"num_key_value_heads": 3}, "a divisor of the 8 heads"),
        ({"num_local_experts": 4, "num_experts_per_tok": 5}, "no more than the 4 experts"),
        ({"text_config": "x"}, "no configuration"),
    ],
)
def test_what_cannot_be_is_refused_by_name(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        models.find(write(tmp_path, {**LLAMA, **change}))


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "\x00", "[" * 100_000, '"x"'])
def test_what_is_no_configuration_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is not (JSON|a JSON object)|stands for more than"):
        models.find(write(tmp_path, text))


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has more than 8 MiB"):
        models.find(write(tmp_path, " " * (8 * 1024 * 1024 + 1)))


@pytest.mark.parametrize(("said", "dropout"), [(0.1, 0.1), (0, 0), (1, 0), (-0.5, 0), (2, 0), ("x", 0)])
def test_dropout_is_a_share_below_one(said: object, dropout: float) -> None:
    assert config.read({**LLAMA, "resid_pdrop": said}, "x").dropout == dropout


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, 4 * 1000),
        ({"sliding_window": 100}, 4 * 100),
        ({"sliding_window": 100, "use_sliding_window": False}, 4 * 1000),
        ({"sliding_window": 100, "layer_types": ["sliding_attention", "full_attention"] * 2}, 2 * 1000 + 2 * 100),
        ({"sliding_window": 100, "sliding_window_pattern": 2}, 2 * 1000 + 2 * 100),
    ],
)
def test_layers_with_a_window_keep_no_more_than_it(change: dict[str, Any], kept: int) -> None:
    assert architecture.kept_tokens(config.read({**LLAMA, **change}, "x"), 1000) == kept


def test_what_a_configuration_may_leave_out_is_as_wide_as_is_usual() -> None:
    said = {key: LLAMA[key] for key in LLAMA if key not in ("num_key_value_heads", "intermediate_size")}
    shape = config.read(said, "x")
    assert (shape.kv_heads, shape.head_dim, shape.intermediate) == (8, 32, 4 * 256)
    assert config.read({**said, "expansion_ratio": 3}, "x").intermediate == 3 * 256


MIXTURE: dict[str, Any] = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("change", "dense"),
    [
        ({}, 0),
        # The first ones, and no more than there are.
        ({"first_k_dense_replace": 1}, 1),
        ({"first_k_dense_replace": 99}, 4),
        # All but every second or third.
        ({"decoder_sparse_step": 2}, 2),
        ({"interleave_moe_layer_step": 3}, 3),
        ({"mlp_only_layers": [0, 1, 3]}, 3),
        ({"mlp_layer_types": ["dense", "sparse", "dense", "sparse"]}, 2),
        ({"mlp_layer_types": ["dense"] * 9}, 4),
        ({"moe_layer_freq": [0, 1, 1, 1]}, 1),
    ],
)
def test_some_layers_of_a_mixture_have_an_mlp(change: dict[str, Any], dense: int) -> None:
    experts = config.read({**MIXTURE, **change}, "x").experts
    assert experts is not None
    assert experts.dense_layers == dense


def test_one_expert_is_an_mlp_and_two_are_a_mixture() -> None:
    assert config.read({**MIXTURE, "num_local_experts": 1}, "x").experts is None
    experts = config.read({**MIXTURE, "num_local_experts": 2}, "x").experts
    assert experts is not None
    assert (experts.count, experts.active, experts.intermediate, experts.shared) == (2, 2, 704, 0)


@pytest.mark.parametrize(
    ("change", "heads"),
    [
        ({}, 1),
        ({"multi_query": True}, 1),
        ({"multi_query": False}, 8),
        ({"new_decoder_architecture": True}, 8),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2),
    ],
)
def test_a_falcon_has_one_head_of_keys_or_as_many_as_the_newer_ones_say(change: dict[str, Any], heads: int) -> None:
    falcon = {key: LLAMA[key] for key in LLAMA if key != "num_key_value_heads"} | {"model_type": "falcon"}
    shape = config.read({**falcon, **change}, "x")
    assert shape.kv_heads == heads
    # The older one has one norm for both, the newer two, unless it says one.
    newer = "new_decoder_architecture" in change
    assert shape.norms == (2 if newer else 1)
    assert not newer or config.read({**falcon, **change, "num_ln_in_parallel_attn": 1}, "x").norms == 1


@pytest.mark.parametrize(
    ("config_of", "most", "more"),
    [
        (LLAMA, {"vocab_size": 100_000_000}, {"vocab_size": 100_000_001}),
        (LLAMA, {"num_attention_heads": 256, "num_key_value_heads": 256}, {"num_attention_heads": 257}),
        (MIXTURE, {"num_experts_per_tok": 8}, {"num_experts_per_tok": 9}),
        ({**LLAMA, "model_type": "mamba"}, {"state_size": 1_000_000}, {"state_size": 1_000_001}),
        ({**LLAMA, "model_type": "mamba"}, {"state_size": 1}, {"state_size": 0}),
        ({**LLAMA, "model_type": "t5"}, {"num_decoder_layers": 1_000_000}, {"num_decoder_layers": 1_000_001}),
        ({**LLAMA, "model_type": "t5"}, {"num_decoder_layers": 1}, {"num_decoder_layers": -1}),
    ],
)
def test_the_most_that_a_configuration_may_say_is_read_and_one_more_refused(
    config_of: dict[str, Any], most: dict[str, Any], more: dict[str, Any]
) -> None:
    assert config.read({**config_of, **most}, "x").layers >= 4
    with pytest.raises(BadInput, match="has to be"):
        config.read({**config_of, **more}, "x")


@pytest.mark.parametrize(
    ("size", "patch", "patches"),
    [(224, 32, 49), (33, 32, 1), (32, 32, 1), (31, 32, None), (100_000, 50_000, 4), (100_001, 50_000, None)],
)
def test_patches_of_an_image_are_counted_where_one_is_within_it(size: int, patch: int, patches: int | None) -> None:
    """A ViT: three colours and a bias; a vector for each patch and for the whole image, and one more."""
    vit = {**LLAMA, "model_type": "vit", "image_size": size}
    # One that is larger than the image is none.
    without, counted = (
        architecture.parameters(config.read({**vit, "patch_size": each}, "x")) for each in (size + 1, patch)
    )
    assert counted - without == (256 * (3 * patch * patch + 1 + patches + 2) if patches else 0)

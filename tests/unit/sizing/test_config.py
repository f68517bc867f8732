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

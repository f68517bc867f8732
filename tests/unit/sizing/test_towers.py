"""What a model sees with, counted matrix by matrix."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwright.sizing import towers

#: Two layers, 8 wide: four matrices of attention (256) and two of an MLP (256) each; patches of 2 x 2 in three colours (96);
#: a matrix to a text that is 32 wide (256).
PLAIN: dict[str, Any] = {"hidden_size": 8, "depth": 2, "intermediate_size": 16, "patch_size": 2}
LAYERS, PATCH, MERGER = 2 * (256 + 256), 96, 256


@pytest.mark.parametrize(
    ("more", "counted"),
    [
        ({}, LAYERS + PATCH + MERGER),
        # A gate is a third matrix of each MLP, whatever says that there is one.
        ({"hidden_act": "silu"}, LAYERS + 2 * 128 + PATCH + MERGER),
        ({"hidden_activation": "silu"}, LAYERS + 2 * 128 + PATCH + MERGER),
        ({"model_type": "gemma4_vision"}, LAYERS + 2 * 128 + PATCH + MERGER),
        ({"hidden_act": "gelu"}, LAYERS + PATCH + MERGER),
        # A vector for each of 3 x 3 whole patches, or as many as it says.
        ({"image_size": 6}, LAYERS + PATCH + 9 * 8 + MERGER),
        ({"image_size": 7}, LAYERS + PATCH + 9 * 8 + MERGER),
        ({"num_position_embeddings": 5}, LAYERS + PATCH + 5 * 8 + MERGER),
        ({"temporal_patch_size": 2}, LAYERS + 2 * PATCH + MERGER),
        ({"in_channels": 1}, LAYERS + PATCH // 3 + MERGER),
        ({"patch_size": None, "image_size": 6}, LAYERS + MERGER),
        # Four patches together are 32 wide: a matrix of 32 x 32 before that to the text.
        ({"spatial_merge_size": 2}, LAYERS + PATCH + 32 * 32 + 32 * 32),
        ({"deepstack_visual_indexes": [5, 11, 17]}, LAYERS + PATCH + 4 * MERGER),
        # Without a width of its MLP it is four times as wide as the model, or as many times as it says, below 64.
        ({"intermediate_size": None}, LAYERS + 2 * 256 + PATCH + MERGER),
        ({"intermediate_size": None, "mlp_ratio": 2}, LAYERS + PATCH + MERGER),
        ({"intermediate_size": None, "mlp_ratio": 0}, LAYERS + 2 * 256 + PATCH + MERGER),
        ({"intermediate_size": None, "mlp_ratio": 64}, LAYERS + 2 * 256 + PATCH + MERGER),
        ({"intermediate_size": None, "mlp_ratio": 63}, 2 * (256 + 2 * 8 * 63 * 8) + PATCH + MERGER),
        # What is no number says nothing; and without layers or a width nothing is counted.
        ({"temporal_patch_size": True}, LAYERS + PATCH + MERGER),
        ({"depth": None}, 0),
        ({"hidden_size": -1}, 0),
        ({"depth": 100_001}, 0),
        ({"depth": 100_000}, 100_000 * 512 + PATCH + MERGER),
        ({"architecture": "mobilenetv5_300m_enc"}, 983_281_504),
    ],
)
def test_a_tower_is_its_layers_its_patches_and_what_brings_them_to_the_text(more: dict[str, Any], counted: int) -> None:
    assert towers.parameters({**PLAIN, **more}, 32) == counted


@pytest.mark.parametrize(
    ("said", "brought"),
    [("linear", 1), ("mlp1x_gelu", 1), ("mlp2x_gelu", 2), ("mlp3x_gelu", 3), (None, 1)],
)
def test_a_tower_that_is_named_is_brought_to_the_text_by_so_many_matrices(said: str | None, brought: int) -> None:
    """The first from 1024, each further one from 32; a bias each."""
    config = {"mm_vision_tower": "openai/clip-vit-large-patch14-336", "mm_hidden_size": 1024, "mm_projector_type": said}
    assert towers.named(config, 32) == 303_507_456 + 1024 * 32 + 32 + (brought - 1) * (32 * 32 + 32)
    assert towers.named({**config, "mm_hidden_size": None}, 32) == 0

"""What a model sees and hears with: transformers whose result goes into the text. Counted about, they are small beside it."""

from __future__ import annotations

import re

Config = dict[str, object]

_HIDDEN = ("embed_dim", "vt_hidden_size", "hidden_size", "d_model", "width")
_LAYERS = ("depth", "num_hidden_layers", "encoder_layers", "vt_num_hidden_layers", "layers")
_INTERMEDIATE = ("intermediate_size", "encoder_ffn_dim", "vt_intermediate_size", "mlp_dim")
#: Towers that LLaVA's own configurations only name (`mm_vision_tower`), without the head of their training: what the hub's totals of
#: LLaVA 1.5 and OneVision leave for them.
_NAMED = {"clip-vit-large-patch14": 303_507_456, "siglip-so400m-patch14-384": 397_747_744}
#: MobileNet and the encoder of sounds of Gemma 3n with what brings their results to the text, by what its configuration calls the first:
#: what the hub's totals of E2B and E4B both leave for them.
_CONVOLVED = {"mobilenetv5_300m_enc": 983_281_504}
#: No tower is wider or deeper.
_MOST = 100_000


def parameters(config: Config, text: int) -> int:
    """About how many a tower has, with what brings its result to the width of the text; 0 where it does not say its layers.

    A layer has four matrices of attention, and an MLP of two or (with SiLU) three; the patches of an image, one vector for each position,
    and a merger of two matrices are beside them.
    """
    if str(config.get("architecture")) in _CONVOLVED:
        return _CONVOLVED[str(config["architecture"])]
    hidden, layers = _number(config, *_HIDDEN), _number(config, *_LAYERS)
    if not (hidden and layers):
        return 0
    width = _number(config, *_INTERMEDIATE) or int(hidden * _ratio(config))
    gated = (
        str(config.get("hidden_act") or config.get("hidden_activation")) == "silu"
        or config.get("model_type") == "gemma4_vision"
    )
    each = 4 * hidden * hidden + (3 if gated else 2) * hidden * width
    patch = _number(config, "spatial_patch_size", "patch_size")
    into = (
        hidden
        * (_number(config, "in_channels", "in_chans", "num_channels") or 3)
        * patch
        * patch
        * (_number(config, "temporal_patch_size") or 1)
    )
    size = _number(config, "image_size")
    positions = _number(config, "num_position_embeddings", "position_embedding_size") or (
        (size // patch) ** 2 if size and patch else 0
    )
    merged = hidden * (_number(config, "spatial_merge_size") or 1) ** 2
    stacked = config.get("deepstack_visual_indexes")
    mergers = 1 + (len(stacked) if isinstance(stacked, list) else 0)
    merger = merged * (merged if merged > hidden else 0) + merged * text
    return layers * each + into + positions * hidden + mergers * merger


def named(config: Config, text: int) -> int:
    """Those of a tower that is only named, and of the matrices behind it; 0 where none is, or where it is not known."""
    tower = str(config.get("mm_vision_tower"))
    found = next((count for name, count in _NAMED.items() if name in tower), 0)
    hidden = _number(config, "mm_hidden_size")
    layers = re.fullmatch(r"mlp(\d)x_gelu", str(config.get("mm_projector_type")))
    # The first matrix comes from the tower's width, and each further one is as wide as the text.
    brought = hidden * text + text + (int(layers[1]) - 1 if layers else 0) * (text * text + text)
    return found + brought if found and hidden else 0


def _number(config: Config, *keys: str) -> int:
    found = next(
        (value for key in keys if isinstance(value := config.get(key), int) and not isinstance(value, bool)), 0
    )
    return found if 0 < found <= _MOST else 0


def _ratio(config: Config) -> float:
    found = config.get("mlp_ratio")
    return float(found) if isinstance(found, int | float) and 0 < found < 64 else 4.0

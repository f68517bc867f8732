"""How a configuration says that the weights are stored: `quantization_config` of each tool, else `dtype`."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpuwright.sizing import formats
from gpuwright.sizing.formats import FORMATS, Format

Config = dict[str, object]

#: Methods that have one format (transformers 5.24.0, utils/quantization_config.py, and what vLLM 0.26 reads).
_METHODS = {
    **dict.fromkeys(("fp8", "fbgemm_fp8", "finegrained_fp8", "deepseek_fp8"), "fp8"),
    **dict.fromkeys(("eetq", "experts_int8"), "int8"),
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
}
#: Methods that say how many bits, and for how many weights there is a scale.
_GROUPED = ("awq", "gptq", "auto-round", "auto_round", "autoround", "hqq", "quark")
#: ModelOpt's names.
_MODELOPT = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "MXFP8": "fp8",
}
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


class Said(NamedTuple):
    """The format that a configuration says, None where it says none or one that is not counted; and which of it does, for a person."""

    weights: Format | None
    text: str


def read(document: Config) -> Said:
    """What it says."""
    inner = document.get("text_config")
    parts = [document, inner] if isinstance(inner, dict) else [document]
    for each in parts:
        found = next(
            (each[key] for key in ("quantization_config", "compression_config") if isinstance(each.get(key), dict)),
            None,
        )
        if isinstance(found, dict):
            return _quantised(found, str(document.get("expert_dtype") or ""))
    said = next((str(each[key]) for each in parts for key in ("dtype", "torch_dtype") if each.get(key)), "")
    name = _DTYPES.get(said.removeprefix("torch."))
    return Said(FORMATS[name] if name else None, f"its configuration says {said}" if name else "")


def _quantised(quantised: Config, experts: str) -> Said:
    method = re.sub(r"[^\w.-]", "", str(quantised.get("quant_method") or "").lower())[:40]
    weights = _format(quantised, method)
    if weights is None:
        return Said(None, f"its configuration says {method or 'a quantisation'}, which is not counted: bf16 is taken")
    if experts == "fp4" and weights.name == "fp8":
        # DeepSeek-V4: experts in MXFP4, all else in FP8.
        return Said(formats.sparing(FORMATS["mxfp4"], 8), "its configuration says fp8, and fp4 for experts")
    if any("attn" in each for each in _left_out(quantised)):
        weights = formats.sparing(weights, 16)
    return Said(weights, f"its configuration says {method}")


def _left_out(quantised: Config) -> list[str]:
    """Names of what stays as it was."""
    keys = ("ignore", "modules_to_not_convert", "exclude_modules")
    found = next((quantised[key] for key in keys if isinstance(quantised.get(key), list)), [])
    return [str(each) for each in found] if isinstance(found, list) else []


def _format(quantised: Config, method: str) -> Format | None:
    if method in _METHODS:
        return FORMATS[_METHODS[method]]
    if method == "bitsandbytes":
        return FORMATS["nf4" if quantised.get("load_in_4bit") else "int8"]
    if method == "modelopt" or "quant_algo" in quantised:
        name = _MODELOPT.get(str(quantised.get("quant_algo")))
        return FORMATS[name] if name else _compressed(quantised)
    if method == "compressed-tensors":
        return _compressed(quantised)
    if method in _GROUPED:
        return _grouped(
            quantised.get("bits", quantised.get("w_bit", 4)),
            quantised.get("group_size", quantised.get("q_group_size", 128)),
        )
    return None


def _compressed(quantised: Config) -> Format | None:
    """compressed-tensors says what of its first group of matrices; what else is in it is little."""
    groups = quantised.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        return None
    bits, group = weights.get("num_bits"), weights.get("group_size")
    if weights.get("type") != "float":
        return _grouped(bits, group or 0, zero=not weights.get("symmetric"))
    if bits == 8:
        return FORMATS["fp8"]
    return FORMATS["nvfp4" if group == 16 else "mxfp4"] if bits == 4 else None


def _grouped(bits: object, group: object, *, zero: bool = True) -> Format | None:
    if not (isinstance(bits, int) and 2 <= bits <= 8 and isinstance(group, int)):
        return None
    return formats.grouped(bits, group, zero=zero)

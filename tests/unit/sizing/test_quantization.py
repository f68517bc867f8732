"""What a configuration says of how the weights are stored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import pytest

from gpuwright.sizing import architecture, config, formats, models, quantization
from gpuwright.sizing.units import GIB

from .test_config import LLAMA


def ints(bits: int, group: int | None, *, symmetric: bool = False) -> dict[str, Any]:
    weights = {"type": "int", "num_bits": bits, "group_size": group, "symmetric": symmetric}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


def floats(bits: int, group: int | None, method: str = "compressed-tensors") -> dict[str, Any]:
    weights = {"type": "float", "num_bits": bits, "group_size": group}
    return {"quant_method": method, "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("said", "name", "bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 4 + 20 / 128),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 32}, "int4", 4 + 20 / 32),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4", 4),
        ({"quant_method": "awq"}, "int4", 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 3, "group_size": 64}, "int3", 3 + 19 / 64),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "int8", 8),
        ({"quant_method": "auto-round", "bits": 2, "group_size": 32}, "int2", 2 + 18 / 32),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 8),
        ({"quant_method": "fbgemm_fp8"}, "fp8", 8),
        ({"quant_method": "mxfp4"}, "mxfp4", 4.25),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4", formats.FORMATS["nf4"].bits),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5),
        ({"quant_algo": "FP8"}, "fp8", 8),
        (ints(4, 32), "int4", 4 + 20 / 32),
        (ints(4, 32, symmetric=True), "int4", 4 + 16 / 32),
        (ints(8, None), "int8", 8),
        (ints(4, None), "int4", 4),
        (floats(8, None), "fp8", 8),
        (floats(4, 16), "nvfp4", 4.5),
        (floats(4, 32), "mxfp4", 4.25),
        (floats(4, 16, "modelopt"), "nvfp4", 4.5),
    ],
)
def test_the_format_of_each_tool_is_read(said: dict[str, Any], name: str, bits: float, tmp_path: Path) -> None:
    for document in (
        {**LLAMA, "quantization_config": said},
        {"model_type": "llava", "text_config": {**LLAMA, "quantization_config": said}},
    ):
        (tmp_path / "config.json").write_text(json.dumps(document), encoding="utf-8")
        found = models.named(str(tmp_path / "config.json"))
        assert found.format
        assert (found.weights, found.format.bits) == (name, bits)
        assert found.text.startswith("its configuration says")


@pytest.mark.parametrize(
    "said",
    [
        {"quant_method": "aqlm"},
        {"quant_method": "gptq", "bits": "four"},
        {"quant_method": "gptq", "bits": 9},
        {"quant_method": "gptq", "bits": 1},
        {"quant_method": "gptq", "bits": 400},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": 3}},
        floats(3, 16),
        {},
    ],
)
def test_a_format_that_is_not_counted_is_told(said: dict[str, Any]) -> None:
    found = quantization.read({**LLAMA, "quantization_config": said})
    assert found.weights is None
    assert "is not counted: bf16 is taken" in found.text


@pytest.mark.parametrize(
    ("said", "name"), [("bfloat16", "bf16"), ("torch.float16", "fp16"), ("float32", "fp32"), ("int8", None), (3, None)]
)
def test_a_type_is_read_where_nothing_is_quantised(said: object, name: str | None) -> None:
    for key in ("dtype", "torch_dtype"):
        found = quantization.read({**LLAMA, key: said}).weights
        assert (found.name if found else None) == name


def test_in_a_mixture_only_experts_are_in_mxfp4() -> None:
    """The sizes of both are those of their model card (arXiv:2508.10925, table 1, read 2026-11-30)."""
    for name, size in (("gpt-oss-120b", 60.8 * GIB), ("gpt-oss-20b", 12.8 * GIB)):
        found = models.named(name)
        assert found.format
        assert architecture.stored(found.shape, found.format) == pytest.approx(size, rel=0.01)


def test_what_is_left_out_of_a_quantisation_has_16_bits_in_a_mixture() -> None:
    experts = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    said = {**ints(4, 32), "ignore": ["re:.*self_attn.*", "lm_head"]}
    (all_of_it, _), (most, _) = (
        quantization.read({**experts, "quantization_config": each}) for each in (ints(4, 32), said)
    )
    shape = config.read(experts, "x")
    attention = shape.layers * (architecture.attention(shape) + shape.hidden * 8)
    assert all_of_it
    assert most
    more = architecture.stored(shape, most) - architecture.stored(shape, all_of_it)
    assert more == pytest.approx(attention * (16 - all_of_it.bits) / 8)


def test_experts_in_four_bits_beside_eight_are_read() -> None:
    found = quantization.read({**LLAMA, "expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8"}}).weights
    assert found
    assert (found.name, found.others) == ("mxfp4", 8)


def test_a_method_that_nobody_knows_is_told_by_its_first_forty_letters() -> None:
    found = quantization.read({**LLAMA, "quantization_config": {"quant_method": "x" * 41}})
    assert found.text == f"its configuration says {'x' * 40}, which is not counted: bf16 is taken"


# formats ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", formats._BLOCKS)
def test_a_block_format_has_the_bits_of_its_type_and_less_than_one_more_for_what_is_kept_better(name: str) -> None:
    """A file mixes types: most of it is the one that its name begins with, as the package of the format has it."""
    of_type = {"iq2_m": "iq2_s", "iq3_xs": "iq3_xxs", "iq3_m": "iq3_s"}.get(name, re.sub("(?<=_k)_[sml]", "", name))
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[of_type.upper()]]
    assert size * 8 / elements <= formats.FORMATS[name].bits < size * 8 / elements + 0.9


@pytest.mark.parametrize(
    ("name", "bits", "whole", "computes"),
    [
        ("fp32", 32, True, "tf32"),
        ("bf16", 16, True, "bf16"),
        ("fp16", 16, True, "fp16"),
        ("fp8", 8, False, "fp8"),
        ("int8", 8, False, "int8"),
        ("int4", 4.15625, False, "bf16"),  # 16 bits of a scale and 4 of a zero point for 128
        ("mxfp4", 4.25, False, "bf16"),  # 8 bits for 32
        ("nvfp4", 4.5, False, "fp4"),  # 8 bits for 16
        ("q8_0", 8.5008, True, "int8"),
    ],
)
def test_a_format_says_how_much_of_a_model_it_is_and_what_it_computes_in(
    name: str, bits: float, whole: bool, computes: str
) -> None:
    found = formats.FORMATS[name]
    assert (found.bits, found.whole, found.computes) == (bits, whole, computes)
    assert found.others == (16 if name == "mxfp4" else 0)


def test_only_training_in_32_bits_computes_in_them_and_only_two_schemes_copy_weights_for_a_step() -> None:
    """torch.autocast has the residual stream in 32 bits, and copies weights to 16; Transformer Engine copies them to 8."""
    for name, scheme in formats.SCHEMES.items():
        assert scheme.compute == (4 if name == "fp32" else 2)
        assert scheme.stream == (4 if name in ("fp32", "amp") else 2)
        assert scheme.copies == {"amp": 2, "fp8": 1}.get(name, 0)


@pytest.mark.parametrize(
    ("kind", "name", "computes"),
    [
        ("f32", "fp32", "tf32"),
        ("f16", "fp16", "fp16"),
        ("bf16", "bf16", "bf16"),
        ("i8", "int8", "int8"),
        ("i32", "i32", "bf16"),
        ("f8_e4m3", "fp8", "fp8"),
        ("q4_k", "q4_k", "int8"),
    ],
)
def test_weights_lie_in_files_as_most_of_them_do(kind: str, name: str, computes: str) -> None:
    found = formats.lying(kind, 3 * 2**30, 2**30)
    assert (found.name, found.computes, found.bits, found.whole) == (name, computes, 24, True)
    assert found.text == "as its files have it, 3.00 GiB"


@pytest.mark.parametrize(
    ("group", "zero", "text"),
    [
        (128, True, "4 bits a weight; a scale and a zero point for 128 weights"),
        (32, False, "4 bits a weight; a scale for 32 weights"),
        (0, True, "4 bits a weight; a scale and a zero point for a row"),
    ],
)
def test_what_groups_of_weights_share_is_said(group: int, zero: bool, text: str) -> None:
    assert formats.grouped(4, group, zero=zero).text == text

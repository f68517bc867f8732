"""How numbers are stored: bytes of a weight, and what training keeps of each parameter."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpuwright.errors import BadInput


@dataclass(frozen=True)
class Format:
    """How the weights of a model are stored for inference.

    Attributes:
        name: what people write.
        bits: bits of a weight, its share of scales and zero points included.
        whole: whether the embedding and the output layer are stored so too; where not, they stay in 16 bits.
        computes: the precision of the tensor cores that the products are made in.
        text: where the bits come from.
        others: in a mixture of experts, bits of the matrices that are not of experts; 0 where they have the same.
    """

    name: str
    bits: float
    whole: bool
    computes: str
    text: str
    others: float = 0.0


# The bits of k- and i-quants are those of Llama 3.1 8B (github ggml-org/llama.cpp, tools/quantize/README.md, read 2026-11-29); Q3_K_M and
# Q4_0, which it does not list, by the size of the files that are published of it.
_BLOCKS = {
    "iq1_s": 2.0042, "iq1_m": 2.146, "iq2_xxs": 2.3824, "iq2_xs": 2.5882, "iq2_s": 2.7403, "iq2_m": 2.9294, "iq3_xxs": 3.2548,
    "iq3_xs": 3.4977, "iq3_s": 3.6606, "iq3_m": 3.7628, "iq4_xs": 4.4597, "iq4_nl": 4.6818, "q2_k": 3.1593, "q3_k_s": 3.6429,
    "q3_k_m": 4.0, "q3_k_l": 4.2979, "q4_0": 4.64, "q4_k_s": 4.6672, "q4_k_m": 4.8944, "q5_k_s": 5.5704, "q5_k_m": 5.7036,
    "q6_k": 6.5633, "q8_0": 8.5008,
}  # fmt: skip
# NF4 has a scale of 8 bits for 64 weights, and one of 32 bits for 256 of these (double quantisation, QLoRA, arXiv:2305.14314).
# GPTQ and AWQ: a scale of 16 bits and a zero point of 4 for 128 weights. NVFP4: a scale of 8 bits for 16 weights.
FORMATS = {
    each.name: each
    for each in (
        Format("fp32", 32, True, "tf32", "4 bytes a weight"),
        Format("bf16", 16, True, "bf16", "2 bytes a weight"),
        Format("fp16", 16, True, "fp16", "2 bytes a weight"),
        Format("fp8", 8, False, "fp8", "1 byte a weight, a scale for each matrix"),
        Format("int8", 8, False, "int8", "1 byte a weight, a scale for each row"),
        Format("int4", 4 + 20 / 128, False, "bf16", "4 bits a weight; a scale and a zero point for 128 (GPTQ, AWQ)"),
        Format("nf4", 4 + 8 / 64 + 32 / (64 * 256), False, "bf16", "4 bits a weight; scales quantised again (QLoRA)"),
        Format(
            "mxfp4",
            4 + 8 / 32,
            False,
            "bf16",
            "4 bits a weight, of a mixture those of experts; a scale of 8 bits for 32 (OCP MX)",
            16,
        ),
        Format("nvfp4", 4 + 8 / 16, False, "fp4", "4 bits a weight; a scale of 8 bits for 16 (NVIDIA)"),
        *(
            Format(name, bits, True, "int8", f"blocks of llama.cpp: about {bits:.2f} bits a weight")
            for name, bits in _BLOCKS.items()
        ),
    )
}


#: Precision of the products of weights that are stored so; blocks of llama.cpp compute in 8 bits, and packed ones in 16.
_COMPUTES = {"f32": "tf32", "f16": "fp16", "bf16": "bf16", "i8": "int8", "i32": "bf16", "u8": "bf16"}
#: How formats are called that a file has under a name of its own.
_WHOLE = {"f32": "fp32", "f16": "fp16", "i8": "int8"}


def grouped(bits: int, group: int, *, zero: bool = True) -> Format:
    """Whole numbers of so many bits, with a scale and (``zero``) a zero point for each group of weights; 0: for each row."""
    if bits == 8:
        return FORMATS["int8"]
    shared = (16 + (bits if zero else 0)) / group if group > 0 else 0.0
    for_each = f"{group} weights" if group > 0 else "a row"
    what = "a scale and a zero point" if zero else "a scale"
    return Format(f"int{bits}", bits + shared, False, "bf16", f"{bits} bits a weight; {what} for {for_each}")


def sparing(weights: Format, others: float) -> Format:
    """The same where only the experts of a mixture are so, and the matrices that are not of experts have other bits."""
    return replace(weights, others=others, text=f"{weights.text}; {others:g} bits outside of experts")


def lying(kind: str, size: int, parameters: float) -> Format:
    """How weights lie in files of so many bytes, most of which are of a kind."""
    name = _WHOLE.get(kind) or ("fp8" if kind.startswith("f8") else kind)
    computes = "fp8" if name == "fp8" else _COMPUTES.get(kind, "int8")
    return Format(name, size * 8 / parameters, True, computes, f"as its files have it, {size / 2**30:.2f} GiB")


#: How tools call the same formats.
_CALLED = {
    **dict.fromkeys(("awq", "gptq", "gptq-int4", "awq-int4", "w4a16"), "int4"),
    **dict.fromkeys(("bnb", "bnb-4bit", "bnb-nf4", "4bit"), "nf4"),
    **dict.fromkeys(("8bit", "bnb-8bit", "bnb-int8", "gptq-int8", "w8a8", "w8a16", "llm.int8"), "int8"),
    **dict.fromkeys(("f8", "e4m3", "fp8-dynamic", "float8"), "fp8"),
    "fp4": "nvfp4",
    **dict.fromkeys(("half", "f16", "float16"), "fp16"),
    "bfloat16": "bf16",
    **dict.fromkeys(("f32", "float32", "float"), "fp32"),
}


def called(text: str) -> Format:
    """The format that a person names, as the field writes it and in any case.

    Raises:
        BadInput: none is called so.
    """
    name = text.strip().lower()
    found = FORMATS.get(name.replace("-", "_")) or FORMATS.get(_CALLED.get(name.replace("_", "-"), "")) or blocks(name)
    if found is None:
        raise BadInput(
            f"--weights has to be a format of weights, found {text!r}",
            [
                f"{', '.join(name for name in FORMATS if name not in _BLOCKS)}, awq, gptq",
                f"of llama.cpp: {', '.join(_BLOCKS)}",
            ],
        )
    return found


def blocks(text: str) -> Format | None:
    """A block format of llama.cpp, also where only its bits are named (q4, q5_k) or a packer's own mixture (q4_k_xl); else None."""
    match = re.fullmatch(r"(i?q)(\d)(?:_(k|0|1|xxs|xs|s|m|nl))?(?:_(xl|l|m|s|xs))?", text.lower().replace("-", "_"))
    if match is None:
        return None
    exact, kind = text.lower().replace("-", "_"), match[1] + match[2]
    usual = (exact, f"{kind}_k_m", f"{kind}_k", f"{kind}_{match[3]}", f"{kind}_0", f"{kind}_m", f"{kind}_xs")
    return next((FORMATS[each] for each in usual if each in FORMATS), None)


@dataclass(frozen=True)
class Scheme:
    """What training keeps, in bytes of a parameter that is trained; and in which widths it computes.

    Attributes:
        name: what people write.
        weight: the weight that is computed with, or that it is copied from.
        gradient: its gradient.
        master: the copy of the weight that the optimizer changes, where it is another one.
        state: each number of the optimizer.
        compute: what products are made of.
        stream: the residual stream.
        copies: 16-bit copies of the weights that a step makes.
        precision: of the tensor cores.
    """

    name: str
    weight: int
    gradient: int
    master: int
    state: int
    compute: int
    stream: int
    copies: int
    precision: str


# Everything in 32 bits; DeepSpeed's mixed precision; Megatron-LM's, whose gradients are summed in 32 bits; torch.autocast; everything in 16
# bits; and Megatron-LM with products in 8 bits by Transformer Engine.
SCHEMES = {
    each.name: each
    for each in (
        Scheme("fp32", 4, 4, 0, 4, 4, 4, 0, "tf32"),
        Scheme("mixed", 2, 2, 4, 4, 2, 2, 0, "bf16"),
        Scheme("megatron", 2, 4, 4, 4, 2, 2, 0, "bf16"),
        Scheme("amp", 4, 4, 0, 4, 2, 4, 2, "bf16"),
        Scheme("bf16", 2, 2, 0, 2, 2, 2, 0, "bf16"),
        Scheme("fp8", 2, 4, 4, 4, 2, 2, 1, "fp8"),
    )
}

#: What an optimizer keeps of each parameter: numbers in the width of the scheme's state, and bytes whatever the scheme.
OPTIMIZERS: dict[str, tuple[float, float]] = {
    "adamw": (2, 0),
    "adamw-8bit": (0, 2 + 2 * 4 / 256),  # a scale of 4 bytes for a block of 256 (bitsandbytes)
    "lion": (1, 0),
    "sgd": (0, 0),
    "sgd-momentum": (1, 0),
    "adafactor": (0, 0.01),  # a row and a column for each matrix
}

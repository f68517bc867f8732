"""How numbers are stored: bytes of a weight, and what training keeps of each parameter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """How the weights of a model are stored for inference.

    Attributes:
        name: what people write.
        bits: bits of a weight, its share of scales and zero points included.
        whole: whether the embedding and the output layer are stored so too; where not, they stay in 16 bits.
        computes: the precision of the tensor cores that the products are made in.
        text: where the bits come from.
    """

    name: str
    bits: float
    whole: bool
    computes: str
    text: str


# NF4 has a scale of 8 bits for 64 weights, and one of 32 bits for 256 of these (double quantisation, QLoRA, arXiv:2305.14314).
# GPTQ and AWQ: a scale of 16 bits and a zero point of 4 for 128 weights. GGUF: the block formats of llama.cpp, k-quants as they come
# out over the tensors of Llama (its quantize README).
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
        Format("mxfp4", 4 + 8 / 32, False, "bf16", "4 bits a weight; a scale of 8 bits for 32 (OCP MX)"),
        Format("q8_0", 8.5, True, "int8", "blocks of llama.cpp: 8.5 bits a weight"),
        Format("q4_k_m", 4.89, True, "int8", "mixed blocks of llama.cpp: about 4.89 bits a weight"),
    )
}


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

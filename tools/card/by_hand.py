# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What PyTorch says of a card without any code of ours: the speed of a product, and the memory that training takes.

Run by the Python that has PyTorch, as a file: `python by_hand.py product bf16 fp32`, `python by_hand.py training layers=8,hidden=2048,…`.
It prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_SIDE = 8192
_TIMES = 20
_KINDS = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp64": torch.float64,
}


def product(precisions: list[str]) -> dict[str, Any]:
    """TFLOPS of a square product by precision: the middle of some, the card being warm."""
    found = {}
    for precision in precisions:
        if precision not in _KINDS:
            continue
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        side = _SIDE // 2 if precision == "fp64" else _SIDE
        left, right = (torch.randn(side, side, device="cuda", dtype=_KINDS[precision]) for _ in range(2))
        for _ in range(5):
            left @ right
        found[precision] = 2 * side**3 / statistics.median(_seconds(left, right) for _ in range(_TIMES)) / 1e12
    return {"tflops": found}


def _seconds(left: torch.Tensor, right: torch.Tensor) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    left @ right
    torch.cuda.synchronize()
    return time.perf_counter() - begun


class Layer(nn.Module):  # type: ignore[misc]  # PyTorch is of no type here
    """A decoder's layer as Llama has it."""

    def __init__(self, hidden: int, heads: int, intermediate: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(hidden, intermediate, bias=False) for _ in range(2))
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        """`turn`: cosines and sines of the places."""
        batch, tokens, hidden = x.shape
        normal = self.before(x)
        query, key, value = (
            each(normal).view(batch, tokens, self.heads, -1).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        found = functional.scaled_dot_product_attention(_turned(query, turn), _turned(key, turn), value, is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(batch, tokens, hidden))
        normal = self.between(x)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal))


def _turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * turn[0] + torch.cat((-high, low), dim=-1) * turn[1]


class Model(nn.Module):  # type: ignore[misc]  # PyTorch is of no type here
    """A decoder."""

    def __init__(self, shape: dict[str, int]) -> None:
        super().__init__()
        hidden, vocabulary = shape["hidden"], shape["vocab"]
        self.embed = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(
            Layer(hidden, shape["heads"], shape["intermediate"]) for _ in range(shape["layers"])
        )
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        """The loss."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, turn)
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def training(shape: dict[str, int], context: int, device: str = "cuda") -> dict[str, Any]:
    """Bytes that a few steps of AdamW in bf16 take, one sequence at once."""
    on_card = device == "cuda"
    free = torch.cuda.mem_get_info()[0] if on_card else 0
    torch.manual_seed(0)
    model = Model(shape).to(device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, shape["vocab"], (1, context), device=device)
    angles = torch.rand(context, shape["hidden"] // shape["heads"], device=device)
    turn = torch.stack((angles.cos(), angles.sin())).to(torch.bfloat16)
    for _ in range(3):
        model(tokens, turn).backward()
        optimizer.step()
        if on_card:
            torch.cuda.synchronize()
    parameters = list(model.parameters())
    kept = [value for state in optimizer.state.values() for value in state.values() if value.dim() > 0]
    return {
        "parameters": sum(each.numel() for each in parameters),
        "weights": sum(each.nbytes for each in parameters),
        "gradients": sum(each.grad.nbytes for each in parameters if each.grad is not None),
        "optimizer": sum(each.nbytes for each in kept),
        "peak_allocated": torch.cuda.max_memory_allocated() if on_card else 0,
        "peak_reserved": torch.cuda.max_memory_reserved() if on_card else 0,
        # Of the whole card, without what the context had taken before it was asked.
        "taken": free - torch.cuda.mem_get_info()[0] if on_card else 0,
    }


def numbers(text: str) -> dict[str, int]:
    """`layers=8,hidden=2048` as numbers by name."""
    return {name: int(value) for name, _, value in (each.partition("=") for each in text.split(","))}


def main(what: str, *words: str) -> None:
    if not torch.cuda.is_available():
        print(json.dumps({"missing": "PyTorch sees no card"}))
    elif what == "product":
        print(json.dumps(product(list(words))))
    else:
        print(json.dumps(training(numbers(words[0]), int(words[1]))))


if __name__ == "__main__":
    main(*sys.argv[1:])

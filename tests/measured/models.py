"""Small models of transformers, made here by their configuration alone, and what PyTorch keeps of them."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_LLAMA: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 704,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
_WIDE = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
#: Each has a shape that the others have not: biases, tied heads, learned positions, norms, gates, experts.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "qwen2": {**_LLAMA, "vocab_size": 1200},
    "mistral": {**_LLAMA, "head_dim": 32, "sliding_window": None},
    "gemma": {**_LLAMA, "head_dim": 64},
    "gpt2": {
        "n_embd": 256,
        "n_layer": 4,
        "n_head": 8,
        "vocab_size": 1000,
        "n_positions": 512,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "attn_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
    },
    "opt": {**_WIDE, "ffn_dim": 1024, "word_embed_proj_dim": 256, "dropout": 0.0, "attention_dropout": 0.0},
    "gpt_neox": {**_WIDE, "intermediate_size": 1024},
    "phi": {**_WIDE, "intermediate_size": 1024, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_dropout": 0.0},
    "mixtral": {**_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
}


def build(kind: str, dtype: torch.dtype = torch.float32, attention: str = "sdpa") -> Any:
    """A model of this family, ready to be trained."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **CONFIGS[kind])
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype)
    return model.train()


def forward(model: Any, batch: int, context: int) -> Any:
    """The loss of a forward pass over random tokens."""
    tokens = torch.randint(0, model.config.vocab_size, (batch, context))
    return model(input_ids=tokens, labels=tokens, use_cache=False).loss


def kept(model: Any, batch: int, context: int) -> int:
    """Bytes that a forward pass keeps for the backward pass, each piece of memory once, the model's own left out."""
    own = {each.untyped_storage().data_ptr() for each in [*model.parameters(), *model.buffers()]}
    found: dict[int, int] = {}
    held = []  # what is alive has an address of its own

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward(model, batch, context)
    del loss
    return sum(found.values())


def states(model: Any, optimizer: Any) -> dict[str, int]:
    """Bytes of weights, gradients and what the optimizer keeps, after a step."""
    forward(model, 1, 16).backward()
    optimizer.step()
    parameters = list(model.parameters())
    return {
        "weights": sum(each.nbytes for each in parameters),
        "gradients": sum(each.grad.nbytes for each in parameters if each.grad is not None),
        "optimizer": sum(
            value.nbytes for state in optimizer.state.values() for value in state.values() if value.dim() > 0
        ),
    }

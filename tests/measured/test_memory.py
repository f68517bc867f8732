"""What PyTorch really keeps, on the CPU, against our count; and what other tools say of the same models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs
from peft import LoraConfig, get_peft_model

from gpuwright.sizing import architecture, config, formats, memory
from gpuwright.sizing.architecture import Architecture
from gpuwright.sizing.layout import Layout

from . import models

SCHEMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
RANK = 16


def shape_of(model: Any) -> Architecture:
    return config.read(model.config.to_dict(), model.config.model_type)


def states(shape: Architecture, job: memory.Training) -> dict[str, float]:
    found = memory.training(shape, job, Layout())
    return {name: found.of(name) for name in ("weights", "gradients", "optimizer")}


def counted(shape: Architecture, job: memory.Training) -> float:
    """What a forward pass keeps. A layer that is computed again while it is its turn is not there yet."""
    total = memory.activations(shape, job, layers=shape.layers)
    if job.recompute == "full":
        total -= memory.activations(shape, job, layers=0, last=False)
    return total * job.batch * job.context


# weights, gradients, optimizer ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", SCHEMES)
@pytest.mark.parametrize("kind", models.CONFIGS)
def test_states_are_those_of_a_step(kind: str, dtype: torch.dtype) -> None:
    optimizers: dict[str, Any] = {
        "adamw": torch.optim.AdamW,
        "sgd": torch.optim.SGD,
        "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9),
    }
    for name, make in optimizers.items():
        model = models.build(kind, dtype)
        real = models.states(model, make(model.parameters()))
        job = memory.Training(scheme=formats.SCHEMES[SCHEMES[dtype]], optimizer=name)
        assert states(shape_of(model), job) == pytest.approx(real, rel=0.05, abs=1)


@pytest.mark.parametrize("kind", models.CONFIGS)
def test_parameters_are_counted_to_the_last_one(kind: str) -> None:
    model = models.build(kind)
    assert architecture.parameters(shape_of(model)) == sum(each.numel() for each in model.parameters())


def _with_lora(kind: str, dtype: torch.dtype) -> Any:
    return get_peft_model(
        models.build(kind, dtype),
        LoraConfig(r=RANK, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"),
    )


# PEFT finds the fused matrix of GPT-NeoX and the experts of Mixtral otherwise than we count them.
LORA = [kind for kind in models.CONFIGS if kind not in ("gpt2", "gpt_neox", "mixtral")]


@pytest.mark.parametrize("kind", LORA)
def test_lora_trains_as_many_parameters_as_we_say(kind: str) -> None:
    model = _with_lora(kind, torch.float32)
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    assert memory.adapters(shape_of(model), RANK) == pytest.approx(trained, rel=0.05)


# activations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", SCHEMES)
@pytest.mark.parametrize("kind", models.CONFIGS)
def test_activations_are_what_pytorch_keeps(kind: str, dtype: torch.dtype, attention: str, recompute: str) -> None:
    for batch, context in ((3, 128), (1, 384)):
        model = models.build(kind, dtype, attention)
        if recompute == "full":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        job = memory.Training(
            scheme=formats.SCHEMES[SCHEMES[dtype]],
            context=context,
            batch=batch,
            micro=batch,
            flash=attention == "sdpa",
            recompute=recompute,
        )
        assert counted(shape_of(model), job) == pytest.approx(models.kept(model, batch, context), rel=0.15)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("dtype", SCHEMES)
@pytest.mark.parametrize("kind", LORA)
def test_activations_of_lora_are_what_pytorch_keeps(kind: str, dtype: torch.dtype, recompute: str) -> None:
    model = _with_lora(kind, dtype)
    if recompute == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    job = memory.Training(
        kind="lora",
        scheme=formats.SCHEMES[SCHEMES[dtype]],
        context=128,
        batch=3,
        micro=3,
        recompute=recompute,
        rank=RANK,
    )
    assert counted(shape_of(model), job) == pytest.approx(models.kept(model, 3, 128), rel=0.15)


# other tools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", models.CONFIGS)
def test_accelerate_says_the_same_of_weights_and_of_training(kind: str) -> None:
    model = models.build(kind)
    total, _largest = calculate_maximum_sizes(model)
    usage = estimate_training_usage(total, "float32")
    ours = states(shape_of(model), memory.Training(scheme=formats.SCHEMES["fp32"]))
    assert ours["weights"] == pytest.approx(usage["model"], rel=0.05)
    assert ours["gradients"] == pytest.approx(usage["gradients"], rel=0.05)
    assert ours["optimizer"] == pytest.approx(usage["optimizer"], rel=0.05)


@pytest.mark.parametrize("cards", [8, 64, 512])
@pytest.mark.parametrize("parameters", [7e9, 70e9])
def test_deepspeed_says_the_same_of_zero(parameters: float, cards: int) -> None:
    """It sums gradients in 32 bits: our `megatron`. What it gathers of a layer is 4 bytes a parameter, ours two layers in 16 bits."""
    shape = architecture.typical("any", parameters)
    layer = parameters / shape.layers
    job = memory.Training(scheme=formats.SCHEMES["megatron"])
    _cpu, three, _layer = estimate_zero3_model_states_mem_needs(parameters, layer, cards, 1, False, False)
    found = memory.training(shape, job, Layout("zero3", cards))
    assert sum(found.of(name) for name in ("weights", "gradients", "optimizer", "weights for a step")) == pytest.approx(
        three, rel=0.05
    )
    _cpu, two = estimate_zero2_model_states_mem_needs(parameters, cards, 1, False)
    found = memory.training(shape, job, Layout("zero2", cards))
    assert sum(found.of(name) for name in ("weights", "gradients", "optimizer")) == pytest.approx(two, rel=0.1)

"""What an answer says beside its figures: what another choice would change, what is warned of, why it does not fit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from gpuwright.sizing import engines, formats, memory
from gpuwright.sizing.cards import IN_A_MACHINE, network
from gpuwright.sizing.units import GIB, at_least_one

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.fitting import Found, Job
    from gpuwright.sizing.memory import Inference, Training


class Change(TypedDict):
    """What another choice would make of the memory."""

    change: str
    option: str
    bytes_per_card: float
    fits: str


# other choices ----------------------------------------------------------------------------------------


def changes(shape: Architecture, found: Found) -> Iterator[Change]:
    """Other choices on the same cards in the same layout."""
    for words, option, job in _other_jobs(found.job):
        held = (
            memory.inference(shape, job, found.layout)
            if isinstance(job, memory.Inference)
            else memory.training(shape, job, found.layout)
        )
        if held.value == found.memory.value:
            continue
        yield {
            "change": words,
            "option": option,
            "bytes_per_card": held.value,
            "fits": memory.fits(held, found.card.room),
        }


def _other_jobs(job: Job) -> Iterator[tuple[str, str, Job]]:
    if isinstance(job, memory.Inference):
        yield from _other_inference(job)
    else:
        yield from _other_training(job)
    half = at_least_one(job.context // 2)
    yield f"half the context ({half} tokens)", f"--context {half}", replace(job, context=half)


def _other_inference(job: Inference) -> Iterator[tuple[str, str, Job]]:
    for name in ("bf16", "fp8", "int4"):
        if formats.FORMATS[name].bits != job.weights.bits:
            yield f"weights in {name}", f"--weights {name}", replace(job, weights=formats.FORMATS[name])
    if job.cache > 1:
        yield "the KV cache in 8 bits", "--kv-bits 8", replace(job, cache=1)


def _other_training(job: Training) -> Iterator[tuple[str, str, Job]]:
    if job.recompute != "full":
        yield "layers computed again", "--recompute full", replace(job, recompute="full")
    if job.flash:
        yield "attention that keeps its scores", "--attention eager", replace(job, flash=False)
    if not job.fused:
        yield "fused kernels", "--kernels fused", replace(job, fused=True)
    if job.kind == "full" and job.optimizer == "adamw":
        yield "an optimizer of 8 bits", "--optimizer adamw-8bit", replace(job, optimizer="adamw-8bit")
    # Who trains an adapter computes layers again where nobody says otherwise.
    if job.kind == "full":
        yield "LoRA", "--train lora", replace(job, kind="lora", recompute="full")
    if job.kind != "qlora":
        yield "QLoRA", "--train qlora", replace(job, kind="qlora", recompute="full")


# warnings ---------------------------------------------------------------------------------------------


def warnings(
    shape: Architecture, found: Found, in_host: int = IN_A_MACHINE, *, offload: bool = False
) -> Iterator[dict[str, str]]:
    """What a person has to know of an answer; `offload`: whether weights may be on the host."""
    job = found.job
    texts = (
        ("shape", _of_shape(shape)),
        ("context", _of_context(shape, job.context)),
        ("tight", _of_tight(found)),
        ("share", _of_share(found)),
        ("products", _of_products(found)),
        ("bf16", _of_bf16(found)),
        ("precision", _of_precision(found)),
        ("engine", _of_engine(job) if isinstance(job, memory.Inference) else ""),
        ("offload", _of_offload(shape, job) if offload and isinstance(job, memory.Inference) else ""),
        ("recompute", _of_recompute(job) if isinstance(job, memory.Training) else ""),
        ("board", _of_board(found)),
        ("network", _of_network(found, in_host)),
    )
    yield from ({"rule": rule, "text": text} for rule, text in texts if text)


def _of_shape(shape: Architecture) -> str:
    if not shape.told:
        return ""
    assumed = f"{shape.layers} layers, {shape.hidden} wide, with {shape.kv_heads} KV heads"
    return (
        f"only the number of parameters is given: {assumed} are assumed; activations and the KV cache depend on it, and their range is "
        "that of the models of this size"
    )


def _of_context(shape: Architecture, context: int) -> str:
    return f"{shape.name} was made for {shape.context} tokens" if shape.context and context > shape.context else ""


def _of_tight(found: Found) -> str:
    if found.fits != "tight":
        return ""
    counted, large = found.memory.value / GIB, found.memory.high / GIB
    return f"it fits as counted ({counted:.1f} GiB), and not where everything turns out large ({large:.1f} GiB)"


def _of_share(found: Found) -> str:
    """An engine takes a share of a card, and no more where more is there; nor can it be told one that is in use as it starts."""
    if found.fits == "no" or not isinstance(found.job, memory.Inference):
        return ""
    engine, room = engines.called(found.job.engine), found.card.room / GIB
    share = (found.memory.value / GIB - engine.started) / room
    if share <= engine.takes:
        return ""
    asked = min(math.ceil(share * 100), math.floor((1 - engine.started / room) * 100)) / 100
    return (
        f"{engine.name} takes {engine.takes:g} of a card and does not start where that is too little: "
        f"--gpu-memory-utilization {asked:.2f}"
    )


def _of_products(found: Found) -> str:
    if found.card.tflops:
        return ""
    trains = isinstance(found.job, memory.Training)
    left = "how fast it trains is not told" if trains else "its rate is what its memory gives"
    return f"nobody says yet what the tensor cores of {found.card.name} compute: {left}"


def _of_bf16(found: Found) -> str:
    card, job = found.card, found.job
    computes = job.weights.computes if isinstance(job, memory.Inference) else job.scheme.precision
    if computes != "bf16" or "bf16" in card.tflops or not card.peak("bf16"):
        return ""
    if isinstance(job, memory.Training):
        return f"{card.name} has no bf16: train in fp16 with a scaled loss; the memory is the same"
    other = "fp16" if "fp16" in card.tflops else "fp32, which is slow: it has no fast fp16 either"
    return f"{card.name} has no bf16: it computes in {other}; the memory of the weights is the same in fp16"


def _of_precision(found: Found) -> str:
    """Products in 8 or 4 bits on a card whose tensor cores have none: weights are widened, which costs time instead of saving it."""
    card, job = found.card, found.job
    computes = job.weights.computes if isinstance(job, memory.Inference) else job.scheme.precision
    if computes not in ("fp8", "fp4") or computes in card.tflops:
        return ""
    if isinstance(job, memory.Training):
        return f"{card.name} has no tensor cores for {computes}: nothing is computed faster, and weights take more memory than in bf16"
    return f"{card.name} has no tensor cores for {computes}: weights are stored so and computed in 16 bits; that saves memory, not products"


def _of_engine(job: Inference) -> str:
    gguf = formats.blocks(job.weights.name) is not None
    if gguf and job.engine != "llama.cpp":
        return f"{job.weights.name} is a format of llama.cpp: {job.engine} reads it slowly or not at all"
    if job.engine == "llama.cpp" and not gguf and job.weights.name not in ("bf16", "fp16", "fp32", "mxfp4"):
        return f"llama.cpp reads GGUF files, and {job.weights.name} is in none: take one of its own formats, as q4_k_m"
    return ""


def _of_offload(shape: Architecture, job: Inference) -> str:
    if not job.host_layers:
        return "--offload changes nothing: all of it fits on the cards"
    held = memory.host_bytes(shape, job) / GIB
    what = "the experts of " if shape.experts else ""
    where = f"{job.host_layers} of {shape.layers} layers are in the memory of the host ({held:.0f} GiB)"
    return f"{what}{where}: its bandwidth decides how fast it is"


def _of_recompute(job: Training) -> str:
    if job.recompute == "selective" and job.flash:
        return "flash attention keeps no scores: --recompute selective changes nothing with it"
    return ""


def _of_board(found: Found) -> str:
    if found.card.board == 1:
        return ""
    each = f"{found.card.board} GPUs with {found.card.memory / GIB:.0f} GB each"
    return f"a {found.card.name} is a board of {each}: a GPU is counted as a card"


def _of_network(found: Found, in_host: int) -> str:
    """Cards that are coupled over several hosts: without a word nobody knows that a network is counted on."""
    cards = found.layout.cards
    if cards <= in_host:
        return ""
    hosts, gbits = -(-cards // in_host), network(found.card)["value"]
    each = "each card" if found.card.kind == "datacenter" else "each host"
    counted = f"{gbits:g} Gb/s for {each} are counted on; over less it is as much slower"
    return f"{cards} cards are {hosts} hosts of {in_host}, coupled over the network: {counted}"


# what does not fit ------------------------------------------------------------------------------------


def conflict(shape: Architecture, found: Found, others: Sequence[Change]) -> dict[str, str]:
    """Why it does not fit, what most of it is, and what would help."""
    most = memory.largest(found.memory.parts)
    helps = [f"{each['option']} ({each['bytes_per_card'] / GIB:.1f} GiB)" for each in others if each["fits"] != "no"]
    if isinstance(found.job, memory.Inference) and shape.kind == "decoder" and not found.job.host_layers:
        helps.append("--offload: what does not fit is left in the memory of the host")
    room = f"each of {found.layout.cards} × {found.card.name}, which has {found.card.room / GIB:.1f} GiB"
    if found.layout.cards == 1:
        room = f"{found.card.name}, which has {found.card.room / GIB:.1f} GiB"
    return {
        "rule": "memory",
        "text": f"{found.memory.value / GIB:.1f} GiB are needed on {room}; most of it: {most.name}, {most.value / GIB:.1f} GiB",
        "source": "compat/gpus.yaml",
        "remedy": "; or ".join(helps) or "more cards, or larger ones: leave out --gpus to see how many",
    }

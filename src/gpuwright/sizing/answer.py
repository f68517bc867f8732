"""The answer to a question of size, as `size --json` prints it: what is needed, on which cards, why, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NotRequired, TypedDict

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, cards, formats, hosting, layout, memory, models, tables, timing
from gpuwright.sizing.figures import Figure, Range, exactly, figure
from gpuwright.sizing.units import DAY, GIB, sequences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.cards import Card
    from gpuwright.sizing.layout import Layout
    from gpuwright.sizing.memory import Inference, Memory, Training
    from gpuwright.sizing.timing import Measured

    Job = Training | Inference

#: Cards that people choose from where they name none: of each size of memory the usual ones.
USUAL = (
    "GeForce RTX 3060 12GB",
    "GeForce RTX 4060 Ti 16GB",
    "GeForce RTX 3090",
    "GeForce RTX 4090",
    "GeForce RTX 5090",
    "L4",
    "L40S",
    "RTX 6000 Ada",
    "RTX PRO 6000 Blackwell Workstation Edition",
    "A100 PCIe 40GB",
    "A100 SXM4 80GB",
    "H100 SXM5 80GB",
    "H200 SXM",
    "B200 SXM",
    "Jetson AGX Orin 64GB",
)
#: The most cards of a kind that anybody sets up together.
_MOST = {"geforce": 8, "workstation": 8, "embedded": 1, "laptop": 1}


class Option(TypedDict):
    """Cards that the job fits on."""

    gpu: str
    cards: int
    layout: str
    bytes_per_card: float
    room_per_card: float
    fits: str


class Change(TypedDict):
    """What another choice would make of the memory."""

    change: str
    option: str
    bytes_per_card: float
    fits: str


class Answer(TypedDict):
    """The JSON of `size`."""

    ok: bool
    model: tables.Row
    job: tables.Row
    assumed: tables.Row
    fits: str
    gpu: str
    cards: int
    layout: str
    memory: list[Figure]
    needed: Figure
    room: float
    options: list[Option]
    changes: list[Change]
    speed: list[Figure]
    machine: list[Figure]
    warnings: list[dict[str, str]]
    conflicts: NotRequired[list[dict[str, str]]]
    updated: str


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        model: as a person names it.
        job: training or inference.
        card: the card that is there; None where one is looked for.
        count: how many of it; 0 where the smallest number is looked for.
        among: cards to choose from, where none is named.
        most: how many of it there are; 0 where nobody says.
        memory: bytes of the card as it is there; 0 for those of the tables.
        tokens: of the training, for how long it takes; 0 where nobody asks.
        mfu: the share of the peak that the person expects; 0 where the tables say it.
        measured: what a proof measured of the cards that are there; None where none did.
        assumed: options that the person did not give.
    """

    model: str
    job: Job
    card: str | None = None
    count: int = 0
    among: tuple[str, ...] = USUAL
    most: int = 0
    memory: float = 0.0
    tokens: float = 0.0
    mfu: float = 0.0
    measured: Measured | None = None
    assumed: tuple[str, ...] = ()


def size(question: Question) -> Answer:
    """Answer it.

    Raises:
        BadInput: there is no such model or card, or a job that cannot be.
    """
    shape = refuse(question)
    candidates = (
        [_card(question)] if question.card else [card for name in question.among if (card := cards.known().get(name))]
    )
    options = [found for card in candidates for found in _smallest(shape, question, card)]
    best = _best(options)
    if best is None:
        card = candidates[0] if question.card else max(candidates, key=lambda each: (each.memory, each.bandwidth))
        best = _nearest(shape, question, card)
    return _answer(shape, question, best, options)


@dataclass(frozen=True)
class _Found:
    card: Card
    layout: Layout
    job: Job
    memory: Memory

    @property
    def fits(self) -> str:
        return memory.fits(self.memory, self.card.room)


def refuse(question: Question) -> Architecture:
    """Refuse what no model does, before any card is looked at. Returns the shape of the model.

    Raises:
        BadInput: there is no such model, or a job that cannot be.
    """
    shape, job = models.find(question.model), question.job
    if shape.context and job.context > 64 * shape.context:
        raise BadInput(
            f"{shape.name} was made for {shape.context} tokens: a context of {job.context} is beyond all that stretches it"
        )
    if question.tokens and not isinstance(job, memory.Training):
        raise BadInput("--tokens says how much is trained on: add --train, or leave it out")
    return shape


def _card(question: Question) -> Card:
    found = cards.known().get(question.card or "")
    if found is None:
        raise BadInput(
            f"the tables do not know the memory and the bandwidth of {question.card}", ["name a card near to it"]
        )
    return replace(found, memory=question.memory) if question.memory else found


# cards and layouts ------------------------------------------------------------------------------------


def _smallest(shape: Architecture, question: Question, card: Card) -> list[_Found]:
    """The smallest number of a card that fits, in its simplest layout; nothing where none does."""
    most = question.most or _MOST.get(card.kind, layout.MOST_CARDS)
    numbers = (
        [question.count]
        if question.count
        else [each for each in layout.counts(most) if each * card.room * 1.1 > _least(shape, question.job)]
    )
    for number in numbers:
        found = [each for each in _tried(shape, question.job, card, number) if each.fits != "no"]
        if found:
            return [next((each for each in found if each.fits == "yes"), found[0])]
    return []


def _least(shape: Architecture, job: Job) -> float:
    """Bytes that all cards together hold at the least: a number of cards below need not be tried."""
    each = job.weights.bits / 8 if isinstance(job, memory.Inference) else 0.5
    if isinstance(job, memory.Training) and job.kind == "full":
        numbers, fixed = formats.OPTIMIZERS[job.optimizer]
        each = job.scheme.weight + job.scheme.gradient + job.scheme.master + numbers * job.scheme.state + fixed
    return architecture.linear(shape) * each


def _tried(shape: Architecture, job: Job, card: Card, number: int) -> Iterator[_Found]:
    if isinstance(job, memory.Inference):
        for each in layout.for_inference(shape, number):
            yield _Found(card, each, job, memory.inference(shape, job, each))
        return
    for each in layout.for_training(shape, number, batch=job.batch or number):
        asked = (
            job
            if job.batch
            else replace(job, batch=each.data * job.micro * (4 * each.pipeline if each.pipeline > 1 else 1))
        )
        held = replace(asked, micro=max(min(asked.micro, asked.batch // each.data), 1))
        yield _Found(card, each, held, memory.training(shape, held, each))


def _nearest(shape: Architecture, question: Question, card: Card) -> _Found:
    """Where nothing fits: what comes nearest to it."""
    number = question.count or layout.most_of(question.most or _MOST.get(card.kind, 8))
    tried = list(_tried(shape, question.job, card, number))
    if not tried:
        raise BadInput(
            f"{number} cards cannot share this job: they have to divide it",
            [f"take a power of two, or a batch of at least {number} sequences"],
        )
    return min(tried, key=lambda each: each.memory.value)


def _best(options: list[_Found]) -> _Found | None:
    """The fewest cards; of those what fits with room to spare, and then the smallest."""
    return min(options, key=lambda each: (each.layout.cards, each.fits != "yes", each.card.memory), default=None)


# the answer -------------------------------------------------------------------------------------------


def _answer(shape: Architecture, question: Question, best: _Found, options: list[_Found]) -> Answer:
    answer: Answer = {
        "ok": best.fits != "no",
        "model": _model(shape),
        "job": _job(best.job),
        "assumed": {name: _job(best.job).get(name) for name in question.assumed if name in _job(best.job)},
        "fits": best.fits,
        "gpu": best.card.name,
        "cards": best.layout.cards,
        "layout": best.layout.words(),
        "memory": [_part(part) for part in best.memory.parts],
        "needed": figure(
            "needed on a card",
            Range(best.memory.low, best.memory.value, best.memory.high),
            "bytes",
            f"{best.card.name} has {best.card.room / GIB:.1f} GiB for a job",
        ),
        "room": best.card.room,
        "options": [_option(each) for each in sorted(options, key=lambda each: (each.layout.cards, each.card.memory))],
        "changes": list(_changes(shape, best)),
        "speed": list(_speed(shape, question, best)),
        "machine": _machine(shape, best),
        "warnings": list(_warnings(shape, question, best)),
        "updated": tables.load()["generated"],
    }
    if best.fits == "no":
        answer["conflicts"] = [_conflict(answer, best)]
    return answer


def _model(shape: Architecture) -> tables.Row:
    return {
        "name": shape.name,
        "parameters": architecture.parameters(shape),
        "active_parameters": architecture.active(shape),
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "vocabulary": shape.vocabulary,
        "context": shape.context or None,
        "shape_assumed": bool(shape.told),
    }


def _job(job: Job) -> tables.Row:
    if isinstance(job, memory.Inference):
        return {
            "kind": "inference",
            "weights": job.weights.name,
            "kv_bytes": job.cache,
            "context": job.context,
            "batch": job.batch,
        }
    return {
        "kind": job.kind,
        "precision": job.scheme.name,
        "optimizer": job.optimizer,
        "context": job.context,
        "batch": job.batch,
        "micro_batch": job.micro,
        "recompute": job.recompute,
        "attention": "flash" if job.flash else "eager",
        "kernels": "fused" if job.fused else "separate",
        "rank": job.rank if job.kind != "full" else None,
    }


def _part(part: memory.Part) -> Figure:
    return figure(part.name, Range(part.low, part.value, part.high), "bytes", part.text)


def _option(found: _Found) -> Option:
    return {
        "gpu": found.card.name,
        "cards": found.layout.cards,
        "layout": found.layout.words(),
        "bytes_per_card": found.memory.value,
        "room_per_card": found.card.room,
        "fits": found.fits,
    }


def _machine(shape: Architecture, best: _Found) -> list[Figure]:
    needs = hosting.machine(best.card, best.layout.cards)
    return [*needs, *hosting.checkpoints(shape, best.job)] if isinstance(best.job, memory.Training) else needs


def _changes(shape: Architecture, best: _Found) -> Iterator[Change]:
    """Other choices on the same cards in the same layout."""
    for words, option, job in _other_jobs(best.job):
        held = (
            memory.inference(shape, job, best.layout)
            if isinstance(job, memory.Inference)
            else memory.training(shape, job, best.layout)
        )
        yield {
            "change": words,
            "option": option,
            "bytes_per_card": held.value,
            "fits": memory.fits(held, best.card.room),
        }


def _other_jobs(job: Job) -> Iterator[tuple[str, str, Job]]:
    if isinstance(job, memory.Inference):
        yield from _other_inference(job)
    else:
        yield from _other_training(job)
    half = max(job.context // 2, 1)
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
    if job.kind == "full":
        yield "LoRA", "--train lora", replace(job, kind="lora")
    if job.kind != "qlora":
        yield "QLoRA", "--train qlora", replace(job, kind="qlora")


def _speed(shape: Architecture, question: Question, best: _Found) -> Iterator[Figure]:
    card, job = best.card, best.job
    if isinstance(job, memory.Inference):
        memory_share, products = _measured(question, card, job.weights.computes)
        rate = timing.decode(shape, job, best.layout, card, memory_share, products)
        bound = timing.bound(shape, job, best.layout, card)
        text = f"{sequences(job.batch)} together, bound by {bound}{_as_measured(question, memory_share, 'of the bandwidth')}"
        yield figure("tokens a second", rate, "tokens/s", text)
        yield figure(
            "until the first token",
            timing.prefill(shape, job, best.layout, card),
            "s",
            f"a prompt of {job.context} tokens",
        )
        return
    peak = card.peak(job.scheme.precision)
    if not peak:
        return
    _memory, products = _measured(question, card, job.scheme.precision)
    usual = timing.at_most(timing.mfu(card, job, best.layout.cards), products)
    reached = exactly(question.mfu) if question.mfu else usual
    flops = timing.training_flops(shape, job)
    rate = reached.times(best.layout.cards * peak / flops)
    text = f"{reached.value:.0%} of {peak / 1e12:.0f} TFLOPS a card ({job.scheme.precision}, dense), {flops:.3g} FLOPs a token"
    text += _as_measured(question, products, "of them")
    yield figure("tokens a second", rate, "tokens/s", text)
    times = timing.step(shape, job, best.layout, card, reached)
    yield figure("a step computes", exactly(times["computing"]), "s", f"{sequences(job.batch)} of {job.context} tokens")
    if times["sending"]:
        slower = (
            " (as long as computing: the network is the bottleneck)" if times["sending"] > times["computing"] else ""
        )
        yield figure(
            "a step sends gradients",
            exactly(times["sending"]),
            "s",
            f"over {card.link(best.layout.cards) / 1e9:.0f} GB/s a card{slower}",
        )
    if question.tokens:
        time = timing.training_time(flops * question.tokens, best.layout.cards, peak, reached).times(1 / DAY)
        yield figure("training", time, "days", f"{question.tokens:.3g} tokens, {flops * question.tokens:.3g} FLOPs")


def _measured(question: Question, card: Card, precision: str) -> tuple[float, float]:
    """The shares of the data sheet that were measured of the memory and of products in a precision; 0 where nothing was."""
    found = question.measured
    if found is None:
        return 0.0, 0.0
    peak, product = card.peak(precision), found.products.get(precision, 0.0)
    return found.bandwidth / card.bandwidth, product / peak if peak else 0.0


def _as_measured(question: Question, share: float, of: str) -> str:
    if question.measured is None or not share:
        return ""
    return f"; at most {share:.0%} {of}, as its proof of {question.measured.day} measured"


def _warnings(shape: Architecture, question: Question, best: _Found) -> Iterator[dict[str, str]]:
    if shape.told:
        assumed = f"{shape.layers} layers, {shape.hidden} wide, with {shape.kv_heads} KV heads"
        text = (
            f"only the number of parameters is given: {assumed} are assumed; activations and the KV cache depend on it"
        )
        yield {"rule": "shape", "text": text}
    if shape.context and question.job.context > shape.context:
        yield {"rule": "context", "text": f"{shape.name} was made for {shape.context} tokens"}
    if best.fits == "tight":
        counted, large = best.memory.value / GIB, best.memory.high / GIB
        text = f"it fits as counted ({counted:.1f} GiB), and not where everything turns out large ({large:.1f} GiB)"
        yield {"rule": "tight", "text": text}
    if (
        isinstance(best.job, memory.Training)
        and best.card.peak("bf16")
        and "bf16" not in best.card.tflops
        and best.job.scheme.precision == "bf16"
    ):
        yield {
            "rule": "bf16",
            "text": f"{best.card.name} has no bf16: train in fp16 with a scaled loss; the memory is the same",
        }


def _conflict(answer: Answer, best: _Found) -> dict[str, str]:
    most = memory.largest(best.memory.parts)
    helps = [
        f"{each['option']} ({each['bytes_per_card'] / GIB:.1f} GiB)"
        for each in answer["changes"]
        if each["fits"] != "no"
    ]
    room = f"each of {best.layout.cards} × {best.card.name}, which has {best.card.room / GIB:.1f} GiB"
    return {
        "rule": "memory",
        "text": f"{best.memory.value / GIB:.1f} GiB are needed on {room}; most of it: {most.name}, {most.value / GIB:.1f} GiB",
        "source": "compat/gpus.yaml",
        "remedy": "; or ".join(helps) or "more cards, or larger ones: leave out --gpus to see how many",
    }

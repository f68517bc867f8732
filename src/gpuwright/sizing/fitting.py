"""Which cards a job fits on: the smallest number of a card, in the simplest layout, and where nothing fits what comes nearest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuwright.errors import BadInput
from gpuwright.sizing import architecture, engines, formats, layout, memory, timing
from gpuwright.sizing.cards import IN_A_MACHINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.cards import Card
    from gpuwright.sizing.layout import Layout
    from gpuwright.sizing.memory import Inference, Memory, Training

    Job = Training | Inference

#: The most cards of a kind that anybody sets up together.
_MOST = {"geforce": 8, "workstation": 8, "embedded": 1, "laptop": 1}
#: Cards of a kind of which nobody says how many there may be, where nothing fits.
_A_MACHINE = 8


@dataclass(frozen=True)
class Found:
    """A job on cards: what each of them holds."""

    card: Card
    layout: Layout
    job: Job
    memory: Memory

    @property
    def fits(self) -> str:
        """`yes`, `tight` or `no`."""
        return memory.fits(self.memory, self.card.room)


@dataclass(frozen=True)
class Wanted:
    """What is looked for.

    Attributes:
        shape: of the model.
        job: that is to fit.
        count: cards; 0 where the smallest number is looked for.
        most: cards that there are; 0 where nobody says.
        in_host: cards of a machine.
        offload: whether weights may be in the memory of the host.
    """

    shape: Architecture
    job: Job
    count: int = 0
    most: int = 0
    in_host: int = IN_A_MACHINE
    offload: bool = False
    #: What each of so many cards holds, layout by layout, whichever card it is.
    laid: dict[int, list[tuple[Layout, Job, Memory]]] = field(default_factory=dict, init=False, compare=False)


def smallest(wanted: Wanted, card: Card) -> list[Found]:
    """The smallest number of a card that fits, in its simplest layout; nothing where none does."""
    most = wanted.most or _MOST.get(card.kind, layout.MOST_CARDS)
    if wanted.count:
        numbers = [wanted.count]
    else:
        least = 0.0 if wanted.offload else _least(wanted.shape, wanted.job)
        numbers = [each for each in layout.counts(most) if each * card.room * 1.1 > least]
    for number in numbers:
        found = [each for each in tried(wanted, card, number) if each.fits != "no"]
        if found:
            return [_simplest(wanted, [each for each in found if each.fits == "yes"] or found)]
    return []


def _simplest(wanted: Wanted, found: list[Found]) -> Found:
    """The first of layouts that fit, the simplest; in training the first whose cards do not wait, where there is one."""
    if isinstance(wanted.job, memory.Inference) or found[0].layout.cards == 1:
        return found[0]
    waits = [_waits(wanted, each) for each in found]
    return found[min(range(len(found)), key=lambda at: (max(waits[at], 1.0), at))]


def _waits(wanted: Wanted, found: Found) -> float:
    """How many times as long as it computes a step takes, for its stages wait for each other, or cards for the network."""
    shape, card, job, cards = wanted.shape, found.card, found.job, found.layout.cards
    if not isinstance(job, memory.Training) or not card.peak(job.scheme.precision):
        return 0.0
    flops = timing.hardware_flops(shape, job) * job.batch * job.context
    busy = timing.efficiency(card, shape, job, cards)
    computing = timing.training_time(flops, cards, card.peak(job.scheme.precision), busy).value
    return max(
        timing.waiting(job, found.layout), timing.sending(shape, job, found.layout, card, wanted.in_host) / computing
    )


def _least(shape: Architecture, job: Job) -> float:
    """Bytes that all cards together hold at the least: a number of cards below need not be tried."""
    each = job.weights.bits / 8 if isinstance(job, memory.Inference) else 0.5
    if isinstance(job, memory.Training) and job.kind == "full":
        numbers, fixed = formats.OPTIMIZERS[job.optimizer]
        each = job.scheme.weight + job.scheme.gradient + job.scheme.master + numbers * job.scheme.state + fixed
    return architecture.linear(shape) * each


def tried(wanted: Wanted, card: Card, number: int) -> Iterator[Found]:
    """The job on so many cards, layout by layout."""
    shape, job = wanted.shape, wanted.job
    if wanted.offload and isinstance(job, memory.Inference):
        for plan in _for_inference(wanted, job, number):
            held = _offloaded(shape, job, plan, card)
            yield Found(card, plan, held, memory.inference(shape, held, plan))
        return
    if number not in wanted.laid:
        wanted.laid[number] = list(_laid(wanted, number))
    for plan, given, holds in wanted.laid[number]:
        yield Found(card, plan, given, holds)


def _laid(wanted: Wanted, number: int) -> Iterator[tuple[Layout, Job, Memory]]:
    """The layouts over so many cards, each with the job and what a card holds of it."""
    shape, job = wanted.shape, wanted.job
    if isinstance(job, memory.Inference):
        for plan in _for_inference(wanted, job, number):
            yield plan, job, memory.inference(shape, job, plan)
        return
    for plan in layout.for_training(shape, number, batch=job.batch or number, in_host=wanted.in_host):
        asked = (
            job
            if job.batch
            else replace(job, batch=plan.data * job.micro * (4 * plan.pipeline if plan.pipeline > 1 else 1))
        )
        given = replace(asked, micro=min(asked.micro, asked.batch // plan.data))
        yield plan, given, memory.training(shape, given, plan)


def _for_inference(wanted: Wanted, job: Inference, number: int) -> Iterator[Layout]:
    by_layers = engines.called(job.engine).by_layers
    return layout.for_inference(wanted.shape, number, by_layers=by_layers, in_host=wanted.in_host)


def _offloaded(shape: Architecture, job: Inference, plan: Layout, card: Card) -> Inference:
    """The job with as few layers on the host as lets the rest fit with room to spare; with all of them where none does."""
    most = shape.expert_layers or shape.layers
    for layers in range(most):
        held = replace(job, host_layers=layers)
        if memory.fits(memory.inference(shape, held, plan), card.room) == "yes":
            return held
    return replace(job, host_layers=most)


def nearest(wanted: Wanted, card: Card) -> Found:
    """Where nothing fits: what comes nearest to it.

    Raises:
        BadInput: so many cards cannot share the job.
    """
    number = wanted.count or layout.most_of(wanted.most or _MOST.get(card.kind, _A_MACHINE))
    found = list(tried(wanted, card, number))
    if not found:
        raise BadInput(
            f"{number} cards cannot share this job: they have to divide it",
            [f"take a power of two, or a batch of at least {number} sequences"],
        )
    return min(found, key=lambda each: each.memory.value)


def on_one(wanted: Wanted, card: Card) -> Found:
    """The job on one card, whether it fits or not."""
    return min(tried(wanted, card, 1), key=lambda each: each.memory.value)

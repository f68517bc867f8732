"""How fast a job is on the cards of an answer. What does not fit has no speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuwright.sizing import engines, memory, timing
from gpuwright.sizing.cards import IN_A_MACHINE
from gpuwright.sizing.figures import Figure, Range, exactly, figure
from gpuwright.sizing.units import DAY, sequences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.cards import Card
    from gpuwright.sizing.fitting import Found
    from gpuwright.sizing.memory import Inference, Training
    from gpuwright.sizing.timing import Measured


@dataclass(frozen=True)
class Asked:
    """What a question says of speed.

    Attributes:
        tokens: of the training, for how long it takes; 0 where nobody asks.
        mfu: the share of the peak that the person expects; 0 where the tables say it.
        measured: what a proof measured of the cards that are there; None where none did.
        in_host: cards of a machine.
    """

    tokens: float = 0.0
    mfu: float = 0.0
    measured: Measured | None = None
    in_host: int = IN_A_MACHINE


def speeds(shape: Architecture, asked: Asked, found: Found) -> list[Figure]:
    """The figures; none where the job does not fit, and of models that generate no tokens."""
    if found.fits == "no" or shape.kind != "decoder":
        return []
    if isinstance(found.job, memory.Inference):
        return list(_answering(shape, asked, found, found.job))
    return list(_training(shape, asked, found, found.job))


def rate(shape: Architecture, asked: Asked, found: Found) -> Range | None:
    """Tokens a second of all cards together; None where there are none, as in `speeds`."""
    if found.fits == "no" or shape.kind != "decoder":
        return None
    card, layout, job = found.card, found.layout, found.job
    if isinstance(job, memory.Inference):
        bandwidth, products = _measured(asked, card, job.weights.computes)
        return timing.decode(shape, job, layout, card, bandwidth, products)
    if not card.peak(job.scheme.precision):
        return None
    _bandwidth, products = _measured(asked, card, job.scheme.precision)
    step = _step(
        _computing(shape, asked, found, job, products), timing.sending(shape, job, layout, card, asked.in_host)
    )
    return _in(step, job.batch * job.context)


def _answering(shape: Architecture, asked: Asked, found: Found, job: Inference) -> Iterator[Figure]:
    card, layout = found.card, found.layout
    bandwidth, products = _measured(asked, card, job.weights.computes)
    decoded = timing.decode(shape, job, layout, card, bandwidth, products)
    turns = engines.called(job.engine).by_layers and layout.cards > 1
    how = f"{job.engine}, whose cards hold whole layers and take turns" if turns else job.engine
    bound = timing.bound(shape, job, layout, card, bandwidth, products)
    text = f"{sequences(job.batch)} together in {how}, bound by {bound}"
    yield figure("tokens a second", decoded, "tokens/s", f"{text}{_as_measured(asked, bandwidth, 'of the bandwidth')}")
    if timing.peak(job, card):
        first = timing.prefill(shape, job, layout, card, products)
        yield figure("until the first token", first, "s", f"a prompt of {job.context} tokens")


def _training(shape: Architecture, asked: Asked, found: Found, job: Training) -> Iterator[Figure]:
    card, layout = found.card, found.layout
    peak = card.peak(job.scheme.precision)
    if not peak:
        return
    _bandwidth, products = _measured(asked, card, job.scheme.precision)
    tokens = job.batch * job.context
    computing = _computing(shape, asked, found, job, products)
    sent = timing.sending(shape, job, layout, card, asked.in_host)
    step = _step(computing, sent)
    slower = sent > computing.value
    text = _how(shape, asked, found, job, products)
    if slower:
        text = f"what the network leaves: {card.link(layout.cards, asked.in_host) / 1e9:.0f} GB/s a card"
    yield figure("tokens a second", _in(step, tokens), "tokens/s", text)
    yield figure("a step computes", computing, "s", f"{sequences(job.batch)} of {job.context} tokens")
    if sent:
        than = ", longer than it computes: the network is the bottleneck" if slower else ", while it computes"
        yield figure(
            "a step sends",
            exactly(sent),
            "s",
            f"over {card.link(layout.cards, asked.in_host) / 1e9:.0f} GB/s a card{than}",
        )
    if asked.tokens:
        flops = timing.training_flops(shape, job) * asked.tokens
        yield figure(
            "training", step.times(asked.tokens / tokens / DAY), "days", f"{asked.tokens:.3g} tokens, {flops:.3g} FLOPs"
        )


def _step(computing: Range, sent: float) -> Range:
    """Seconds of a step, whose gradients are sent while it computes."""
    return Range(*(max(each, sent) for each in (computing.low, computing.value, computing.high)))


def _in(step: Range, tokens: float) -> Range:
    """Tokens a second, of so many in a step."""
    return Range(tokens / step.high, tokens / step.value, tokens / step.low)


def _computing(shape: Architecture, asked: Asked, found: Found, job: Training, products: float) -> Range:
    """Seconds that a step computes: by the share of the peak that a person says, else by what the cards keep busy."""
    card, cards = found.card, found.layout.cards
    tokens, peak = job.batch * job.context, card.peak(job.scheme.precision)
    if asked.mfu:
        return timing.training_time(timing.training_flops(shape, job) * tokens, cards, peak, exactly(asked.mfu))
    busy = timing.at_most(timing.efficiency(card, shape, job, cards), products)
    computing = timing.training_time(timing.hardware_flops(shape, job) * tokens, cards, peak, busy)
    return computing.times(timing.waiting(job, found.layout))


def _how(shape: Architecture, asked: Asked, found: Found, job: Training, products: float) -> str:
    """What the speed is made of, in words."""
    card = found.card
    peak, flops = card.peak(job.scheme.precision), timing.training_flops(shape, job)
    what = f"of {peak / 1e12:.0f} TFLOPS a card ({job.scheme.precision}, dense), {flops:.3g} FLOPs a token"
    if asked.mfu:
        return f"{asked.mfu:.0%} {what}"
    busy = timing.at_most(timing.efficiency(card, shape, job, found.layout.cards), products)
    again = timing.hardware_flops(shape, job) / flops - 1
    more = f" and {again:.0%} more for layers computed again" if again else ""
    if (idle := timing.waiting(job, found.layout) - 1) > 0:
        more += f"; stages of the pipeline wait {idle:.0%} longer than usual, for few micro-batches"
    return f"{busy.value:.0%} {what}{more}{_as_measured(asked, products, 'of them')}"


def _measured(asked: Asked, card: Card, precision: str) -> tuple[float, float]:
    """The shares of the data sheet that were measured of the memory and of products in a precision; 0 where nothing was."""
    found = asked.measured
    if found is None:
        return 0.0, 0.0
    peak, product = card.peak(precision), found.products.get(precision, 0.0)
    return found.bandwidth / card.bandwidth, product / peak if peak else 0.0


def _as_measured(asked: Asked, share: float, of: str) -> str:
    if asked.measured is None or not share:
        return ""
    return f"; at most {share:.0%} {of}, as its proof of {asked.measured.day} measured"

"""The most that fits on the cards of an answer: sequences at once, tokens of context, users."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from gpuwright.sizing import engines, memory
from gpuwright.sizing.units import at_least_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.fitting import Found
    from gpuwright.sizing.layout import Layout
    from gpuwright.sizing.memory import Inference, Training

#: A context that nobody looks beyond, where a model says none; and so many sequences.
_LONGEST, _WIDEST = 2**20, 2**17
#: The share of the context that a user has used, on average.
_USED = 0.5


class Most(TypedDict):
    """The largest batch at this context, the longest context at this batch, users with half of the context; 0 where none fits."""

    batch: int
    context: int
    users: int


def most(shape: Architecture, found: Found) -> Most:
    """The most that fits as counted, with all else as it is."""
    if shape.kind != "decoder":
        # What it holds beside its weights is gone after each pass: that says nothing of how many are asked at once.
        return {"batch": 0, "context": 0, "users": 0}
    job, layout, room = found.job, found.layout, found.card.room
    longest = max(shape.context or _LONGEST, job.context)
    if isinstance(job, memory.Training):
        training = job
        batch = _largest(_WIDEST, lambda each: _trains(shape, replace(training, micro=each), layout) <= room)
        context = _largest(longest, lambda each: _trains(shape, replace(training, context=each), layout) <= room)
        return {"batch": batch * layout.data, "context": context, "users": 0}
    answering = job
    batch = _largest(_WIDEST, lambda each: _answers(shape, replace(answering, batch=each), layout) <= room)
    context = _largest(longest, lambda each: _answers(shape, replace(answering, context=each), layout) <= room)
    used = replace(job, context=at_least_one(int(job.context * _USED))) if engines.called(job.engine).paged else job
    users = _largest(_WIDEST, lambda each: _answers(shape, replace(used, batch=each), layout) <= room)
    return {"batch": batch, "context": context, "users": users}


def _trains(shape: Architecture, job: Training, layout: Layout) -> float:
    return memory.training(shape, job, layout).value


def _answers(shape: Architecture, job: Inference, layout: Layout) -> float:
    return memory.inference(shape, job, layout).value


def _largest(end: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to an end for which something that only grows fits; 0 where not even 1 does."""
    if fits(end):
        return end
    low, high = 0, end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low

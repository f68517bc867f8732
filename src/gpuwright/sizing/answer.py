"""The answer to a question of size, as `size --json` prints it: what is needed, on which cards, why, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NotRequired, TypedDict

from gpuwright.errors import BadInput
from gpuwright.sizing import (
    advice,
    architecture,
    cards,
    costing,
    fitting,
    hosting,
    memory,
    models,
    offers,
    speeds,
    tables,
)
from gpuwright.sizing.cards import IN_A_MACHINE
from gpuwright.sizing.figures import Figure, Range, figure
from gpuwright.sizing.most import Most, most
from gpuwright.sizing.offers import Option, Price
from gpuwright.sizing.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuwright.sizing.advice import Change
    from gpuwright.sizing.architecture import Architecture
    from gpuwright.sizing.cards import Card
    from gpuwright.sizing.fitting import Found, Job
    from gpuwright.sizing.timing import Measured

__all__ = ["Answer", "Change", "One", "Option", "Price", "Question", "refuse", "size"]


class One(TypedDict):
    """The job on one card, where a card is named and more of it are needed."""

    fits: str
    bytes_per_card: float
    room: float
    helps: list[str]


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
    one: One | None
    memory: list[Figure]
    needed: Figure
    room: float
    options: list[Option]
    most: Most
    changes: list[Change]
    speed: list[Figure]
    machine: list[Figure]
    price: Price | None
    recommended: Option | None
    warnings: list[dict[str, str]]
    conflicts: NotRequired[list[dict[str, str]]]
    updated: str


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        model: as a person names it.
        job: training or inference.
        card: the card that is there; None where one is looked for; with `own` the one of these that is meant.
        count: how many of it; 0 where the smallest number is looked for.
        among: cards to choose from, where none is named; all usual ones where there are none.
        most: how many of it there are; 0 where nobody says.
        memory: bytes of the card as it is there; 0 for those of the tables.
        tokens: of the training, for how long it takes; 0 where nobody asks.
        mfu: the share of the peak that the person expects; 0 where the tables say it.
        measured: what a proof measured of the cards that are there; None where none did.
        assumed: options that the person did not give.
        weights: why the weights have this format, where nobody chose it.
        own: cards as the person described them, in place of `card`: several where the name is that of cards with different memories.
        odd: what is odd about the card that is named.
        in_host: cards of a machine.
        offload: whether weights may be in the memory of the host.
        shape: of the model, where it was read already.
        alone: whether no other cards are looked at where one that is named does not hold the job.
    """

    model: str
    job: Job
    card: str | None = None
    count: int = 0
    among: tuple[str, ...] = ()
    most: int = 0
    memory: float = 0.0
    tokens: float = 0.0
    mfu: float = 0.0
    measured: Measured | None = None
    assumed: tuple[str, ...] = ()
    weights: str = ""
    own: tuple[Card, ...] = ()
    odd: str = ""
    in_host: int = IN_A_MACHINE
    offload: bool = False
    shape: Architecture | None = None
    alone: bool = False


def size(question: Question) -> Answer:
    """Answer it.

    Raises:
        BadInput: there is no such model or card, or a job that cannot be.
    """
    question = _meant(question)
    wanted, asked, options, best = _looked_at(question)
    named = bool(question.own or question.card)
    if best is None:
        candidates = _candidates(question)
        card = candidates[0] if named else max(candidates, key=lambda each: (each.memory, each.bandwidth))
        best = fitting.nearest(wanted, card)
    answer = _answer(wanted, question, asked, best, [cells for _found, cells in options])
    if not named:
        answer["recommended"] = next((cells for found, cells in options if found is best), None)
    elif not (question.alone or question.most) and (answer["one"] or not answer["ok"]):
        answer["recommended"] = _instead(replace(wanted, count=0), asked)
    return answer


def fits(question: Question) -> str:
    """Whether it fits, as `size` says it: for who asks often, and for nothing else."""
    best = _looked_at(_meant(question))[3]
    return best.fits if best else "no"


def _meant(question: Question) -> Question:
    """The question about that card of several with a name that is meant."""
    if not question.card or not question.own:
        return question
    one = tuple(card for card in question.own if card.name == question.card)
    return replace(question, own=one or question.own)


def _looked_at(
    question: Question,
) -> tuple[fitting.Wanted, speeds.Asked, list[tuple[Found, Option]], Found | None]:
    """What is asked for, the cards that it fits on, and those of them that the answer is about."""
    shape = refuse(question)
    wanted = fitting.Wanted(
        shape, question.job, question.count, question.most, question.in_host, offload=question.offload
    )
    asked = speeds.Asked(question.tokens, question.mfu, question.measured, question.in_host)
    options = _offers(wanted, asked, _candidates(question))
    return wanted, asked, options, offers.chosen(options, named=bool(question.own or question.card))


def _offers(wanted: fitting.Wanted, asked: speeds.Asked, candidates: Iterable[Card]) -> list[tuple[Found, Option]]:
    """The cards of these that the job fits on, with what they cost."""
    fits = [found for card in candidates for found in fitting.smallest(wanted, card)]
    return [(found, offers.option(wanted.shape, asked, found)) for found in fits]


def _instead(wanted: fitting.Wanted, asked: speeds.Asked) -> Option | None:
    """The cards with a price that are chosen where nobody names one; None where the job fits on none of them."""
    priced = costing.priced()
    options = _offers(wanted, asked, [card for card in _usual() if card.name in priced])
    best = offers.chosen(options, named=False)
    return next((cells for found, cells in options if found is best), None)


def refuse(question: Question) -> Architecture:
    """Refuse what no model does, before any card is looked at. Returns the shape of the model.

    Raises:
        BadInput: there is no such model, or a job that cannot be.
    """
    shape, job = question.shape or models.find(question.model), question.job
    if shape.context and job.context > 64 * shape.context:
        raise BadInput(
            f"{shape.name} was made for {shape.context} tokens: a context of {job.context} is beyond all that stretches it"
        )
    if shape.kind != "decoder" and isinstance(job, memory.Training):
        what = "an encoder" if shape.kind == "encoder" else "a diffusion model"
        raise BadInput(f"{shape.name} is {what}, whose training is not counted", ["its memory is: leave out --train"])
    if not shape.trained and isinstance(job, memory.Training):
        raise BadInput(
            f"{shape.name} has layers whose training is not counted",
            ["the memory of its answers is: leave out --train"],
        )
    if shape.kind != "decoder" and question.offload:
        raise BadInput(f"--offload is for models that write text, and {shape.name} writes none")
    if question.tokens and not isinstance(job, memory.Training):
        raise BadInput("--tokens says how much is trained on: add --train, or leave it out")
    return shape


def _candidates(question: Question) -> list[Card]:
    """The cards that are looked at: those that are named, else those that people choose from."""
    if question.own:
        return list(question.own)
    if question.card is None:
        return _usual(question.among)
    found = cards.known().get(question.card)
    if found is None:
        raise BadInput(
            f"the tables do not know the memory and the bandwidth of {question.card}", ["name a card near to it"]
        )
    return [replace(found, memory=question.memory, ecc=False) if question.memory else found]


def _usual(among: tuple[str, ...] = ()) -> list[Card]:
    """Those that people choose from."""
    return [card for name in among or cards.usual() if (card := cards.known().get(name))]


# the answer -------------------------------------------------------------------------------------------


def _answer(
    wanted: fitting.Wanted, question: Question, asked: speeds.Asked, best: Found, options: list[Option]
) -> Answer:
    shape = wanted.shape
    others = list(advice.changes(shape, best))
    answer: Answer = {
        "ok": best.fits != "no",
        "model": _model(shape),
        "job": _job(best.job) | _as_named(question),
        "assumed": {name: _job(best.job).get(name) for name in question.assumed if name in _job(best.job)},
        "fits": best.fits,
        "gpu": best.card.name,
        "cards": best.layout.cards,
        "layout": best.layout.words(),
        "one": _one(wanted, question, best),
        "memory": [_part(part) for part in best.memory.parts],
        "needed": figure(
            "needed on a card",
            Range(best.memory.low, best.memory.value, best.memory.high),
            "bytes",
            f"{best.card.name} has {best.card.room / GIB:.1f} GiB for a job",
        ),
        "room": best.card.room,
        "options": sorted(options, key=offers.rank),
        "most": most(shape, best),
        "changes": others,
        "speed": speeds.speeds(shape, asked, best),
        "machine": _machine(shape, best),
        "price": offers.price(shape, asked, best),
        "recommended": None,
        "warnings": [
            *_of_card(question, best, options),
            *advice.warnings(shape, best, question.in_host, offload=question.offload),
        ],
        "updated": tables.load()["generated"],
    }
    if best.fits == "no":
        answer["conflicts"] = [advice.conflict(shape, best, others)]
    return answer


def _one(wanted: fitting.Wanted, question: Question, best: Found) -> One | None:
    """The job on one of the card that is named; None where none is named, or one is enough."""
    named = question.own or question.card
    if not named or question.count or best.layout.cards == 1:
        return None
    found = fitting.on_one(wanted, best.card)
    helps = [each["option"] for each in advice.changes(wanted.shape, found) if each["fits"] != "no"]
    return {"fits": found.fits, "bytes_per_card": found.memory.value, "room": best.card.room, "helps": helps}


def _of_card(question: Question, best: Found, options: list[Option]) -> list[dict[str, str]]:
    """What is odd about the card that is named, and what becomes of those of its name with another memory."""
    found = [{"rule": "card", "text": question.odd}] if question.odd else []
    if len(question.own) < 2:
        return found
    fitting_on = {each["gpu"]: each["cards"] for each in options}
    for card in question.own:
        number = fitting_on.get(card.name)
        if card is best.card:
            continue
        text = "it does not fit"
        if number:
            text = "it fits too" if number == best.layout.cards else f"it takes {number} of them"
        found.append({"rule": "card", "text": f"on {card.name}, which is called so too, {text}"})
    return found


def _model(shape: Architecture) -> tables.Row:
    return {
        "name": shape.name,
        "kind": shape.kind,
        "parameters": architecture.parameters(shape),
        "active_parameters": architecture.active(shape),
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "vocabulary": shape.vocabulary,
        "context": shape.context or None,
        "image": shape.image or None,
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
            "engine": job.engine,
            "host_layers": job.host_layers,
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


def _as_named(question: Question) -> tables.Row:
    """Why the weights are stored so, where the name says it."""
    return {"weights_text": question.weights} if question.weights and isinstance(question.job, memory.Inference) else {}


def _part(part: memory.Part) -> Figure:
    return figure(part.name, Range(part.low, part.value, part.high), "bytes", part.text)


def _machine(shape: Architecture, best: Found) -> list[Figure]:
    needs = hosting.machine(best.card, best.layout.cards)
    return [*needs, *hosting.checkpoints(shape, best.job)] if isinstance(best.job, memory.Training) else needs

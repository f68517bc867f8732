"""`gpuwright cost`: what cards cost, rented and owned, and from when on owning pays. Needs neither a host nor a network."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from gpuwright import console, exits, knowledge, show_cost
from gpuwright.commands import size
from gpuwright.errors import BadInput
from gpuwright.sizing import answer, cost_answer, costing, memory, prices, units
from gpuwright.sizing.figures import Figure, Range, exactly

if TYPE_CHECKING:
    import argparse

    from gpuwright.sizing.answer import Answer, Question
    from gpuwright.sizing.memory import Inference

_MOST_YEARS = 15
#: Sequences that an engine keeps at once where nobody says (`--max-num-seqs` of vLLM).
_MOST_AT_ONCE = 256
#: Options about a model: without one they would change nothing.
_OF_A_MODEL = (
    *("preset", "train", "context", "batch", "tokens", "mfu", "weights", "kv_bits", "engine", "offload"),
    *("precision", "optimizer", "micro_batch", "recompute", "attention", "kernels", "rank"),
)
_EXAMPLES = ("gpuwright cost llama-3.1-8b --gpu l4", "gpuwright cost --gpu h100 --gpus 64 --share 60%")


def run(args: argparse.Namespace) -> int:
    """Answer and show it."""
    sized = _sized(args)
    if sized is not None and not sized["ok"]:
        return _refuse(sized, as_json=args.json)
    found = cost_answer.cost(_asked(args, sized))
    if args.html:
        from gpuwright import sizing_page

        sizing_page.write(args.html, sizing_page.cost(found))
    if args.json:
        console.json_document(found)
    else:
        show_cost.page(found)
    return exits.DONE


def _refuse(sized: Answer, *, as_json: bool) -> int:
    """Say that the model does not fit: what does not run has no price."""
    if as_json:
        console.json_document({"ok": False, "conflicts": sized["conflicts"]})
    else:
        show_cost.refusal(sized)
    return exits.REFUSED


def _asked(args: argparse.Namespace, sized: Answer | None) -> cost_answer.Asked:
    today = date.today()  # noqa: DTZ011 - days, not moments
    own = prices.Prices()
    if args.prices:
        own = prices.read(knowledge.read_prices(args.prices), knowledge.card_called, today)
    kwh = {"electricity": units.amount(args.kwh, "--kwh")} if args.kwh else {}
    card, cards, odd = (sized["gpu"], sized["cards"], "") if sized else _cards(args, own)
    return cost_answer.Asked(
        card=card,
        cards=cards,
        odd=odd,
        months=_months(args.years),
        share=_share(args.share),
        today=today,
        hours=_hours(args.hours) or _trained(sized),
        speed=_figure(sized, "tokens a second"),
        sized=sized,
        own_rates={**own.rates, **kwh},
        cloud=own.cloud,
        owning=own.owning,
        alone=own.alone,
        named=(*(["--kwh"] if kwh else []), *(["rates"] if own.rates else [])),
    )


def _cards(args: argparse.Namespace, own: prices.Prices) -> tuple[str, int, str]:
    """The card that is named, how many, and what is odd about it: of those with this name one with a price, the smallest first."""
    named = size.named_cards(args)
    priced = {row["card"] for row in (*own.cloud, *own.owning)} | costing.priced()
    names = [card.name for card in named.cards]
    card = next((name for name in names if name in priced), names[0])
    others = [name for name in names if name != card]
    odd = f"{', '.join(others)} is called so too: name the memory (--gpu '{others[0]}')" if others else named.text
    return card, named.count or 1, odd


# the model --------------------------------------------------------------------------------------------


def _sized(args: argparse.Namespace) -> Answer | None:
    """What `size` says of the model; None where only cards are named.

    Raises:
        BadInput: neither is named, or an option would change nothing.
    """
    if args.model is None:
        _refuse_options_of_a_model(args)
        return None
    if args.hours and args.tokens:
        raise BadInput("--hours and --tokens both say how long it computes: give one of them")
    question = size.question(args)
    found = answer.size(question)
    if args.batch or not isinstance(question.job, memory.Inference) or not found["ok"] or not found["speed"]:
        return found
    return _as_many_as_fit(question, question.job, found)


def _refuse_options_of_a_model(args: argparse.Namespace) -> None:
    given = [f"--{name.replace('_', '-')}" for name in _OF_A_MODEL if getattr(args, name) not in (None, False)]
    if given:
        raise BadInput(f"{', '.join(given)}: of which model? none is named", list(_EXAMPLES[:1]))
    if not args.gpu:
        raise BadInput("cost of what? neither a model nor a card is named", list(_EXAMPLES))


def _as_many_as_fit(question: Question, job: Inference, found: Answer) -> Answer:
    """The same cards with as many sequences at once as they hold: what a machine that serves many is paid for."""
    own = tuple(card for card in question.own if card.name == found["gpu"])
    here = replace(question, alone=True, card=found["gpu"], own=own, count=found["cards"])

    def too_many(batch: int) -> bool:
        return answer.fits(replace(here, job=replace(job, batch=batch))) != "yes"

    many = max(bisect_left(range(1, _MOST_AT_ONCE + 1), True, key=too_many), 1)
    full = answer.size(replace(here, job=replace(job, batch=many)))
    for row in full["speed"]:
        if row["name"] == "tokens a second" and (alone := _figure(found, row["name"])):
            row["text"] += f", as many as fit; one alone {alone['value']:.3g} tokens/s"
    return {**full, "options": found["options"]}


def _trained(sized: Answer | None) -> Range | None:
    """Hours of the training."""
    days = _figure(sized, "training")
    return Range(days["low"], days["value"], days["high"]).times(24) if days else None


def _figure(sized: Answer | None, name: str) -> Figure | None:
    """A figure of the speed."""
    return next((row for row in (sized["speed"] if sized else ()) if row["name"] == name), None)


# numbers ----------------------------------------------------------------------------------------------


def _hours(text: str | None) -> Range | None:
    return exactly(units.amount(text, "--hours", least=0.01)) if text else None


def _share(text: str | None) -> Range:
    return exactly(units.share(text, "--share")) if text else costing.rate("utilisation_owned")


def _months(text: str) -> int:
    """Months of so many years.

    Raises:
        BadInput: they are none, too many, or not whole months.
    """
    years = units.amount(text, "--years", least=0.25)
    if years > _MOST_YEARS:
        raise BadInput(f"--years has to be at most {_MOST_YEARS}, found {text!r}")
    months = years * costing.MONTHS_A_YEAR
    if abs(months - round(months)) > 0.01:
        raise BadInput(f"--years has to be whole months, found {text!r}", ["for example 0.25, 1.5 or 3"])
    return round(months)

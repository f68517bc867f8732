"""`gpuwright cost`: what cards cost, rented and owned, and from when on owning pays. Needs neither a host nor a network."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from gpuwright import console, exits, knowledge, show_cost, sizing_page
from gpuwright.commands import size
from gpuwright.errors import BadInput, Refused
from gpuwright.sizing import answer, cost_answer, costing, prices, units
from gpuwright.sizing.figures import Range, exactly

if TYPE_CHECKING:
    import argparse

_MOST_YEARS = 15


def run(args: argparse.Namespace) -> int:
    """Answer and show it."""
    found = cost_answer.cost(_asked(args))
    if args.html:
        sizing_page.write(args.html, sizing_page.cost(found))
    if args.json:
        console.json_document(found)
    else:
        show_cost.page(found)
    return exits.DONE


def _asked(args: argparse.Namespace) -> cost_answer.Asked:
    today = date.today()  # noqa: DTZ011 - days, not moments
    own = prices.Prices()
    if args.prices:
        own = prices.read(knowledge.read_prices(args.prices), knowledge.card_called, today)
    share = _share(args.share)
    card, cards, hours = _cards(args, share)
    kwh = {"electricity": units.amount(args.kwh, "--kwh")} if args.kwh else {}
    return cost_answer.Asked(
        card=card,
        cards=cards,
        hours=hours,
        years=_years(args.years),
        share=share,
        today=today,
        own_rates={**(own.rates or {}), **kwh},
        cloud=own.cloud,
        owning=own.owning,
    )


def _cards(args: argparse.Namespace, share: Range) -> tuple[str, int, Range]:
    """The card, how many, and the hours on all of them: those that are told, those of the training, or a year's."""
    if args.model is None:
        if not args.gpu:
            raise BadInput(
                "cost of what? neither a model nor a card is named", ["gpuwright cost --gpu H100 --gpus 64", _EXAMPLE]
            )
        hours = _hours(args.hours) or share.times(costing.HOURS_A_YEAR)
        return knowledge.card_called(args.gpu), size.number(args.gpus or "1", "--gpus"), hours
    found = answer.size(size.question(args))
    if not found["ok"]:
        (conflict,) = found["conflicts"]
        raise Refused(conflict["text"], [f"remedy: {conflict['remedy']}"], found["conflicts"])
    trained = next((row for row in found["speed"] if row["name"] == "training"), None)
    if trained is None and not args.hours:
        raise BadInput(
            "how long it computes is not said", ["--hours 2000, or for training --train --tokens 300B", _EXAMPLE]
        )
    taken = Range(trained["low"], trained["value"], trained["high"]).times(24) if trained else share
    return found["gpu"], found["cards"], _hours(args.hours) or taken


_EXAMPLE = "for example gpuwright cost llama-3.1-8b --train --tokens 1T --gpu H100 --gpus 64 --recompute full"


def _hours(text: str | None) -> Range | None:
    if text is None:
        return None
    hours = units.amount(text, "--hours", least=0.01)
    return exactly(hours)


def _share(text: str | None) -> Range:
    if text is None:
        return costing.rate("utilisation_owned")
    share = units.share(text, "--share")
    return exactly(share)


def _years(text: str) -> float:
    years = units.amount(text, "--years", least=0.25)
    if years > _MOST_YEARS:
        raise BadInput(f"--years has to be at most {_MOST_YEARS}, found {text!r}")
    return years

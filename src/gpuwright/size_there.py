"""Whether a job fits on cards that are there: of this machine, or of the hosts of an inventory. Looks; changes nothing."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from gpuwright import card_looks, knowledge, proven
from gpuwright.errors import BadInput
from gpuwright.sizing import answer, cards
from gpuwright.sizing.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuwright.card_looks import HostLook, Look
    from gpuwright.sizing.answer import Answer, Question

_MIB = 2**20


class Fit(TypedDict):
    """A host: what its cards are good for, card by card model, and what else of it is too small."""

    answers: list[Answer]
    short: list[str]
    problem: str | None


class Fleet(TypedDict):
    """All hosts, and cards of one kind over several of them."""

    hosts: dict[str, Fit]
    unreachable: dict[str, str]
    together: list[Answer]


#: A kind of card: its name, and the MiB that the driver says.
Kind = tuple[str, float]


def judge(look: Look, question: Question) -> Fleet:
    """Whether the job fits on each host, and on those of them that have the same cards together."""
    found = {host: _fit(host, seen, question) for host, seen in look.hosts.items()}
    everywhere: Counter[Kind] = Counter()
    for seen in look.hosts.values():
        everywhere.update(_kinds(seen))
    largest = max((max(_kinds(seen).values(), default=0) for seen in look.hosts.values()), default=0)
    more = [(kind, count) for kind, count in everywhere.items() if count > largest]
    # No layer is cut between hosts, and what is coupled over several of them is counted with a network, and told.
    coupled = replace(question, in_host=max(largest, 1))
    together = [each for kind, count in more if (each := _answer(coupled, kind, count)) is not None]
    return {"hosts": found, "unreachable": look.unreachable, "together": together}


def _fit(host: str, seen: HostLook, question: Question) -> Fit:
    answers = []
    problem = seen["problem"]
    measured = proven.cards(host)
    for kind, count in _kinds(seen).items():
        found = _answer(replace(question, measured=measured.get(kind[0]), in_host=count), kind, count)
        if found is None:
            problem = problem or f"the tables do not know {kind[0]}"
        else:
            answers.append(found)
    if not answers and problem is None:
        problem = "it has no card that answers"
    return {"answers": answers, "short": _short(answers) if host == card_looks.HERE else [], "problem": problem}


def _kinds(seen: HostLook) -> Counter[Kind]:
    """The cards of a host that answer, by what they are."""
    return Counter(
        (str(card["name"]), float(card["memory_total"] or 0))
        for card in seen["cards"]
        if card["problem"] is None and card["name"]
    )


def _answer(question: Question, kind: Kind, count: int) -> Answer | None:
    """On so many of a card; None where the tables do not know it."""
    name, memory = kind
    try:
        known = knowledge.card_called(name)
    except BadInput:
        return None
    if known not in cards.known():
        return None
    return answer.size(replace(question, card=known, most=count, memory=memory * _MIB))


def _short(answers: Iterable[Answer]) -> list[str]:
    """What this machine has less of than the cards ask for."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    has = {"host memory": memory, "CPU cores": float(os.cpu_count() or 1)}
    needs = {row["name"]: row for found in answers for row in found["machine"]}
    return [
        f"{name}: {has[name]:.0f} {needs[name]['unit']}, at least {needs[name]['low']:.0f} are needed ({needs[name]['text']})"
        for name in has
        if name in needs and has[name] < 0.95 * needs[name]["low"]
    ]

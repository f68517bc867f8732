"""`gpuwright gpus`: what the rules know of a card, and what fits it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from gpuwright import console, exits, knowledge, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.catalogue import (
        Branch,
        Carried,
        Drivers,
        Limits,
    )
    from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.catalogue import (
        Description as Card,
    )

# As many cards are shown at length; more are a table.
_FEW = 3
_HEADINGS = ("card", "architecture", "capability", "memory", "driver", "CUDA", "PyTorch", "PCI id")
_BRANCHES = ("branch", "type", "end of life", "newest seen", "CUDA", "")
_STATES = {"alive": "", "ending": "ends soon", "unknown": "end not published"}


def run(args: argparse.Namespace) -> int:
    """Show the cards whose name or PCI id matches."""
    found = knowledge.find_cards(args.pattern, None if args.json else _FEW)
    age = knowledge.rules_age()
    if args.json:
        console.json_document({"ok": True, "gpus": found, "rules": age})
        return exits.DONE
    if len(found) <= _FEW:
        _pages(found)
    else:
        console.out(console.table([_row(card) for card in found], _HEADINGS, indent=0))
        console.out(f"{console.counted(len(found), 'cards')}; with the name of one: everything that fits it")
    show.rules_age(age)
    return exits.DONE


# many cards -------------------------------------------------------------------------------------------


def _row(card: Card) -> tuple[str, ...]:
    return (
        str(card["name"]),
        str(card["architecture"] or "-"),
        str(card["compute_capability"] or "-"),
        f"{card['memory_gb']} GB" if card["memory_gb"] else "-",
        str(card["driver"]["preferred"] or "-"),
        _span(card["cuda"]) or "-",
        str(card["pytorch"] or "-"),
        " ".join(card["pci"]) or "-",
    )


# a few cards ------------------------------------------------------------------------------------------


def _pages(found: Sequence[Card]) -> None:
    """Each card by its facts; what is the same for neighbours (branches, frameworks) once, behind the last of them."""
    width = console.page_width()
    for _, group in itertools.groupby(found, key=lambda card: (_branches(card), _versions(card))):
        cards = list(group)
        for card in cards:
            _page(card, width)
        for rows, headings in ((_branches(cards[0]), _BRANCHES), (_versions(cards[0]), _headings(cards[0]))):
            if rows:
                console.out(console.table(rows, headings, width=width))
                console.out()


def _page(card: Card, width: int) -> None:
    console.out(console.colour(str(card["name"]), "bold"))
    facts = [(name, text) for name, text in _facts(card) if text]
    room = max(len(name) for name, _ in facts)
    for name, text in facts:
        console.out(console.paragraph(text, bullet=f"{name:<{room}}  ", width=width))
    console.out()


def _facts(card: Card) -> Iterator[tuple[str, str]]:
    form = f", {card['form']}" if card["form"] else ""
    yield "card", f"{card['architecture']} ({card['chip']}), compute capability {card['compute_capability']}{form}"
    figures = (
        (card["memory_gb"], "GB memory"),
        (card["tdp_w"], "W"),
        (card["bandwidth_gbs"], "GB/s"),
        (card["nvlink_gbs"], "GB/s NVLink"),
    )
    yield "figures", ", ".join(f"{figure} {unit}" for figure, unit in figures if figure)
    yield "PCI id", " ".join(card["pci"])
    yield "driver", _driver(card)
    yield "modules", " or ".join(card["modules"]) + (" (preferred first)" if len(card["modules"]) > 1 else "")
    yield "systems", "" if card["driver"]["belongs_to"] else _systems(card["systems"])
    yield "CUDA", _span(card["cuda"]) or "no toolkit of the rules has code for it"
    yield "cuDNN", _cudnn(card["cudnn"])
    if not card["confirmed"]:
        yield "note", "the compute capability of this card is not confirmed"


def _driver(card: Card) -> str:
    driver = card["driver"]
    if driver["belongs_to"]:
        return f"{driver['belongs_to']} brings it"
    if not driver["branches"]:
        return "no branch of the rules drives it"
    none = "no system that is served carries a branch that drives it"
    first = f"from build {card['first_driver']} on" if card["first_driver"] else ""
    names = [each["branch"] for each in driver["branches"] if not _lives(each)]
    ended = f"ended: {' '.join(names)}" if names else ""
    unsafe = "" if _branches(card) else "no branch that drives it gets security fixes any more"
    return "; ".join(part for part in (_preferred(driver) or none, first, ended, unsafe) if part)


def _preferred(driver: Drivers) -> str:
    return f"{driver['preferred']} preferred" if driver["preferred"] else ""


def _systems(systems: Sequence[Carried]) -> str:
    texts: dict[str, list[str]] = {}
    for each in (each for each in systems if each["branch"]):
        texts.setdefault(f"{each['branch']} {each['modules']} from {each['source']}", []).append(each["os"])
    left = [each["os"] for each in systems if not each["branch"]]
    parts = [f"{', '.join(names)}: {text}" for text, names in texts.items()]
    return "; ".join([*parts, f"none for {', '.join(left)}"] if left else parts)


def _lives(branch: Branch) -> bool:
    """Whether a branch may still get a build; one of which no build was ever seen does not."""
    return branch["state"] != "ended" and bool(branch["latest"])


def _branches(card: Card) -> list[tuple[str, ...]]:
    if card["driver"]["belongs_to"]:
        return []
    return [_branch(each, card) for each in reversed(card["driver"]["branches"]) if _lives(each)]


def _branch(branch: Branch, card: Card) -> tuple[str, ...]:
    preferred = "preferred" if branch["branch"] == card["driver"]["preferred"] else ""
    words = ", ".join(word for word in (preferred, _STATES[branch["state"]]) if word)
    cuda = f"to {branch['max_cuda']}"
    return branch["branch"], branch["type"], branch["eol"] or "-", branch["latest"] or "-", cuda, words


def _cudnn(limits: Limits | None) -> str:
    if limits is None:
        return "none serves it"
    first = f"from {limits['first']} on" if limits["first"] else ""
    last = f"up to {limits['last']}" if limits["last"] else ""
    return " ".join(part for part in (first, last) if part) or "no limit"


def _headings(card: Card) -> tuple[str, ...]:
    about = knowledge.frameworks()
    return "Python", *(about[name].title for name in card["frameworks"])


def _versions(card: Card) -> list[tuple[str, ...]]:
    """The newest version of each framework for each Python."""
    frameworks = card["frameworks"]
    pythons = {python for versions in frameworks.values() for python in versions}
    return [
        (python, *(_version(name, versions.get(python)) for name, versions in frameworks.items()))
        for python in sorted(pythons, key=lambda python: [int(part) for part in python.split(".")])
    ]


def _version(framework: str, chosen: Mapping[str, str] | None) -> str:
    """A version with its variant: a local version, or what the name has in brackets."""
    if chosen is None:
        return "-"
    return (
        f"{chosen['version']}+{chosen['variant']}"
        if knowledge.frameworks()[framework].local
        else f"{chosen['version']} [{chosen['variant']}]"
    )


def _span(ends: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(ends))

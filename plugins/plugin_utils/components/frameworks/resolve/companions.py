# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What people use beside the frameworks: which release runs here and goes with what is chosen.

The facts are those of compat/companions.yaml, for a wish by name and for the lines of a project alike. What is not known there is left to
the installer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ....model.wish import Requirement
from ....resolver.log import Entry, Log, conflict
from ....resolver.machine import Card
from ....rules import Row, Rules, companions, remembered
from ....rules.companions import Need
from ....wish import specifiers
from ...cuda.resolve.support import CudaSupport
from . import pytorch, required
from .offer import Offer

if TYPE_CHECKING:
    from collections.abc import Mapping

RULE = "frameworks.companions"

# What cannot be installed from the Python index at all, or is something else there.
_NOT_TO_HAVE = ("stub", "other", "nothing")
# The torch in the name of a build: +pt24cu124 (PyG), +cu12torch2.6cxx11abiFALSE (flash-attn and its like).
_BUILT_FOR = lazy(r"(?:torch|pt)(\d)\.?(\d{1,2})")
# Pythons that a range may mean: what none of them is in has no wheels at all, what the last is in has no end.
_PYTHONS = [f"3.{minor}" for minor in range(6, 30)]


@dataclass(frozen=True)
class Place:
    """Where something is to run. ``cards``: none for the processor; ``cuda``: the CUDA of the framework there (12.8); ``support``: what its
    driver runs, None where there is none; ``wheels``: whether those of the Python index are taken, of which it is known for what they are
    made.
    """

    cards: tuple[Card, ...]
    arch: str
    os: str
    glibc: str | None
    python: str | None
    cuda: str | None = None
    support: CudaSupport | None = None
    wheels: bool = True


@dataclass(frozen=True)
class Fault:
    """Why a release does not run somewhere, as the end of a sentence about it. ``other``: the requirement that it needs instead of what is
    there; ``installs``: it is installed all the same, and computes on the processor; ``unsaid``: pip does not know it; ``of_card``: it is
    the card that it does not run on.
    """

    text: str
    row: Row
    other: str = ""
    installs: bool = False
    unsaid: bool = False
    of_card: bool = False


@dataclass(frozen=True)
class Chosen:
    """The release of a distribution that is the best one somewhere, with what is against it. ``asked``: whether no other one is wished."""

    name: str
    version: str
    faults: Sequence[Fault]
    asked: bool


def known(requirements: Iterable[Requirement], rules: Rules) -> tuple[Requirement, ...]:
    """Return the requirements of which more is known than their names."""
    return tuple(each for each in requirements if _is_known(required.name(each.text), rules))


def _is_known(name: str, rules: Rules) -> bool:
    return bool(companions.of(name, rules) or companions.versions(name, rules))


def choose(
    text: str, place: Place, beside: Sequence[Requirement], rules: Rules, *, newest: bool = False
) -> Chosen | None:
    """Return the newest release that a requirement allows and that runs beside others, or the newest one with what is against it; None
    where nothing is known of what it allows. ``newest``: no older one is looked at.
    """
    return _chosen(text, place, tuple(beside), newest, rules)


@remembered
def _chosen(text: str, place: Place, beside: Sequence[Requirement], newest: bool, rules: Rules) -> Chosen | None:
    name, exact = required.name(text), required.exact(text)
    if exact:
        found = list(faults(name, exact, place, beside, rules))
        return Chosen(name, exact, found, asked=True) if found or _judged(name, exact, rules) else None
    spec = required.specifier(text)
    several = [each for each in _releases(name, rules) if specifiers.matches(each, spec)]
    tried = (
        Chosen(name, each, list(faults(name, each, place, beside, rules)), asked=False)
        for each in several[: 1 if newest else None]
    )
    first: Chosen | None = None
    for each in tried:
        if not each.faults:
            return each
        first = first or each
    return first


def _releases(name: str, rules: Rules) -> list[str]:
    """Return the releases that may be the best one, the newest first: those of which something is known, and the newest wheels."""
    found, row = companions.versions(name, rules), companions.of(name, rules)
    newest = row["newest"] if row and row["name"] == name and row["there"] == "wheels" else None
    beyond = newest and (not found or companions.key(newest) > companions.key(found[0]))
    return [newest, *found] if newest and beyond else list(found)


def _judged(name: str, version: str, rules: Rules) -> bool:
    return bool(companions.spans(name, version, rules) or _needs(name, version, rules))


def faults(name: str, version: str, place: Place, beside: Sequence[Requirement], rules: Rules) -> Iterator[Fault]:
    """Yield what is against a release: what it goes with is not there, or its wheels are for other machines."""
    for row in companions.spans(name, version, rules):
        yield from (Fault(_why(text, row), row) for text in _of_machine(row, place))
        yield from (Fault(_why(text, row), row, unsaid=True) for text in _of_cuda(row, place, rules))
        yield from (Fault(_why(text, row), row, unsaid=True, of_card=True) for text in _of_cards(row, place))
        if place.wheels and place.cards and place.arch in row.get("processor", ()):
            text = (
                f"computes on the processor alone on {place.arch}, and is built from its source where it takes the card"
            )
            yield Fault(_why(text, row), row, installs=True)
        yield from _lacking(row, place, beside)
    for need in _needs(name, version, rules):
        other = next((each for each in beside if _differ(need.text, each.text)), None)
        if other:
            text = _why(f"is for {_words(need.text)}, not for {_there(other)}", need.row)
            yield Fault(text, need.row, need.text, unsaid=need.unsaid)


def _lacking(row: Row, place: Place, beside: Sequence[Requirement]) -> Iterator[Fault]:
    """Yield what a release loads and nothing brings: libraries of CUDA, or beside another distribution one that it needs with that."""
    spec = required.specifier(row["with"]) if "with" in row else ""
    other = next((each for each in beside if spec and _is_within(each.text, row["with"], spec)), None)
    if spec and other is None:
        return
    there = {required.name(each.text) for each in beside} if spec else None
    lacking = [
        each
        for each in row.get("loads", ())
        if (each not in there if there is not None else place.cuda and not _is_there(each, place.cuda, beside))
    ]
    if lacking:
        exact = required.exact(other.text) if other else None
        along = f"{required.name(row['with'])} {exact}" if exact else f"CUDA {numeric_version.major(place.cuda or '')}"
        text = f"loads {' and '.join(lacking)}, beside {along}"
        yield Fault(_why(text, row), row, lacking[0], unsaid=True)


def _is_within(text: str, meant: str, spec: str) -> bool:
    """Say whether a requirement pins a distribution to a version of a range."""
    exact = required.exact(text)
    return bool(exact) and required.name(text) == required.name(meant) and specifiers.matches(exact or "", spec)


def bound(name: str, version: str, place: Place, beside: Sequence[Requirement], rules: Rules) -> list[Fault]:
    """Return what is against a release that the table of its own framework does not have: where nothing is, what it goes with."""
    found = list(faults(name, version, place, beside, rules))
    return found or [Fault(f"is for {_words(each.text)}", each.row) for each in _needs(name, version, rules)]


def _needs(name: str, version: str, rules: Rules) -> Sequence[Need]:
    """Return what a release goes with; of torchvision and torchaudio the table of PyTorch says it."""
    row = companions.of(name, rules)
    made_for = pytorch.partner_of(name, version, rules)
    if not made_for or row is None:
        return companions.needs(name, version, rules)
    first, last = min(made_for, key=companions.key), max(made_for, key=companions.key)
    return [Need(f"torch=={first}" if first == last else f"torch>={first},<={last}", unsaid=False, row=row)]


def _is_there(library: str, cuda: str, beside: Sequence[Requirement]) -> bool:
    """Say whether a library of CUDA is in an environment: a framework of its CUDA brings it, or it is named."""
    return library.endswith(f"-cu{numeric_version.major(cuda)}") or library in {
        required.name(each.text) for each in beside
    }


def _differ(need: str, other: str) -> bool:
    return required.name(need) == required.name(other) and not required.agree(need, other)


def _of_cuda(row: Row, place: Place, rules: Rules) -> Iterator[str]:
    """Yield why a release does not run on the cards, with the CUDA of the framework beside it or with that of the driver."""
    built, driver, support = row.get("cuda"), row.get("driver"), place.support
    if built and place.wheels and place.cards and place.cuda and place.cuda not in built:
        span = built[0] if len(built) == 1 else f"{built[0]} to {built[-1]}"
        yield f"has libraries for CUDA {span}, and none for {place.cuda}, which the framework beside it has"
    if driver and support and support.mode(driver, rules) is None:
        there = f"the driver {support.newest}" if support.newest else "the driver there"
        yield f"needs a driver for CUDA {numeric_version.major(driver)}, {there} brings CUDA {support.cuda}"


def _of_cards(row: Row, place: Place) -> Iterator[str]:
    """Yield why a release does not run on the cards."""
    lowest, highest = row.get("cards", (None, None))
    for card in place.cards:
        capability = card.compute_capability
        if capability and lowest and not numeric_version.at_least(capability, lowest):
            yield f"begins with compute capability {lowest}, the {card.name} has {capability}"
        if capability and highest and not numeric_version.at_least(highest, capability):
            yield f"has no code for the {card.name} (compute capability {capability})"


def _of_machine(row: Row, place: Place) -> Iterator[str]:
    """Yield why a release has no wheels for a machine."""
    if place.wheels:
        python, arches = row.get("python"), row.get("arch")
        if python and place.python and not specifiers.matches(place.python, python):
            yield f"is for Python {_pythons(python)}, not for {place.python}"
        if arches and place.arch not in arches:
            yield f"has no wheels for {place.arch}"
        if row.get("glibc") and place.glibc and not numeric_version.at_least(place.glibc, row["glibc"]):
            yield f"is made for glibc {row['glibc']} or newer, {place.os} has {place.glibc}"


def _why(text: str, row: Row) -> str:
    return f"{text} ({row['text']})" if row.get("text") else text


def _words(need: str) -> str:
    """Return a requirement as a person says it: torch 2.5.1, torch 2.9, torch >=2.4,<2.9."""
    name = required.name(need)
    spec = need.removeprefix(name)
    return f"{name} {spec if ',' in spec else spec.removeprefix('==').removesuffix('.*')}"


def _there(other: Requirement) -> str:
    exact = required.exact(other.text) or required.specifier(other.text)
    exact = exact.partition("+")[0]
    return exact if other.origin.startswith(f"{required.name(other.text)} ") else f"the {exact} of {other.origin}"


def _pythons(spec: str) -> str:
    """Return the Pythons of a range in words: 3.7 to 3.11, 3.10 and newer, 3.12."""
    found = [each for each in _PYTHONS if specifiers.matches(each, spec)]
    if found[-1] == _PYTHONS[-1]:
        return f"{found[0]} and newer"
    return found[0] if len(found) == 1 else f"{found[0]} {'and' if len(found) == 2 else 'to'} {found[-1]}"


def of_framework(package: str, offer: Offer, held: Sequence[Requirement], log: Log) -> Iterator[Entry]:
    """Yield why what an environment has to hold does not go with a release of a framework, where its own table does not say so."""
    for need in companions.needs(package, offer.version, log.rules):
        other = next((each for each in held if _differ(need.text, each.text)), None)
        if other:
            text = f"{other.origin} asks for {other.text}, and {offer.title} goes with {need.text}"
            yield conflict(required.RULE, text, log.cite("companions", need.row), required.ANOTHER)


# the lines of a project -------------------------------------------------------------------------------------


def clashes(
    lines: Sequence[Requirement],
    place: Place,
    held: Sequence[Requirement],
    others: Sequence[Requirement],
    log: Log,
    *,
    newest: bool = False,
) -> Iterator[Entry]:
    """Yield why lines of a project do not go with what is beside them, each by the best release that it allows, or by the newest one.
    ``held``: what the framework there holds, whose own names are judged elsewhere.
    """
    beside, own = [*held, *others], {required.name(each.text) for each in held}
    for line in [each for each in lines if required.name(each.text) not in own]:
        row = companions.of(required.name(line.text), log.rules)
        if row and row["there"] in _NOT_TO_HAVE and place.wheels:
            text = f"{line.origin} asks for {line.text}: {_said(line, row)}"
            yield conflict(RULE, text, log.cite("companions", row), _by_itself(line, row))
        if row and row["there"] in _NOT_TO_HAVE:
            continue
        chosen = choose(line.text, place, [each for each in beside if each != line], log.rules, newest=newest)
        against = [each for each in chosen.faults if not each.installs] if chosen else []
        other = _built_for_another(line, beside)
        if row and other:
            text = f"{line.origin} asks for {line.text}, which is built for torch {other[0]}, and there is {_there(other[1])}"
            instead = f"name the build for that torch in {line.origin}, or torch=={other[0]}.*"
            yield conflict(RULE, text, log.cite("companions", row), instead)
            continue
        if row and row["there"] == "source":
            # What is built by hand is bound by the card, and not by what its makers have.
            against = [each for each in against if each.of_card]
        if chosen and against:
            said = "; ".join(each.text for each in against)
            better = choose(chosen.name, place, [each for each in beside if each != line], log.rules)
            fits = f"; {better.name} {better.version} goes there" if better and not better.faults else ""
            note = f"; {row['note']}" if row and row.get("note") and not fits else ""
            text = f"{line.origin} asks for {line.text}: {chosen.name} {chosen.version} {said}{fits}{note}"
            yield conflict(RULE, text, log.cite("companions", against[0].row), _instead(chosen, better, line))


def _built_for_another(line: Requirement, beside: Sequence[Requirement]) -> tuple[str, Requirement] | None:
    """Return the torch that a pinned build names beside its version (2.1.2+pt24cu124), and the one that is there; None where they agree."""
    found = _BUILT_FOR.search((required.exact(line.text) or "").partition("+")[2])
    torch = next((each for each in beside if required.name(each.text) == "torch" and required.exact(each.text)), None)
    if not found or torch is None:
        return None
    made = f"{found[1]}.{found[2]}"
    return None if f"{(required.exact(torch.text) or '').partition('+')[0]}.".startswith(f"{made}.") else (made, torch)


def of(line: Requirement, rules: Rules) -> Row | None:
    """Return what is known of the distribution of a line."""
    return companions.of(required.name(line.text), rules)


def elsewhere(line: Requirement, row: Row) -> tuple[str, str]:
    """Return what the Python index has of something that goes beside no framework, and what a person does about it."""
    return _said(line, row), _by_itself(line, row)


def _instead(chosen: Chosen, better: Chosen | None, line: Requirement) -> str:
    """Return what helps: what it needs beside another one, a release that does go with what is there, else what it needs."""
    lacking = next((each.other for each in chosen.faults if "with" in each.row), "")
    if lacking:
        return f"name {lacking} beside it"
    if better and not better.faults:
        return f"name {better.name}=={better.version} in {line.origin}"
    card = next((each for each in chosen.faults if each.of_card), None)
    if card:
        known = f" ({card.row['text']})" if card.row.get("text") else ""
        return f"name a release in {line.origin} that has code for the card{known}, take another card, or leave the line out"
    other = next((each.other for each in chosen.faults if each.other), "")
    return f"name {other} beside it" if other else "leave the line out, or give it an environment of its own"


def constraints(lines: Sequence[Requirement], place: Place, beside: Sequence[Requirement], rules: Rules) -> list[str]:
    """Return what holds an environment to releases that go together where their metadata does not say so, and pip takes others."""
    found: list[str] = []
    there = {required.name(each.text) for each in beside}
    for line in lines:
        row = companions.of(required.name(line.text), rules)
        chosen = None if row and row["there"] == "source" else choose(line.text, place, beside, rules)
        if chosen and not chosen.faults:
            unsaid = [each.text for each in companions.needs(chosen.name, chosen.version, rules) if each.unsaid]
            found += [each for each in unsaid if required.name(each) not in there]
            held = not chosen.asked and _passes_over(chosen, place, beside, rules)
            found += [f"{chosen.name}<={chosen.version}"] if held else []
    return list(dict.fromkeys(found))


def _passes_over(chosen: Chosen, place: Place, beside: Sequence[Requirement], rules: Rules) -> bool:
    """Say whether pip would take a release that is newer than the chosen one, because it does not know what is against it."""
    newer = [each for each in _releases(chosen.name, rules) if companions.key(each) > companions.key(chosen.version)]
    return any(fault.unsaid for each in newer for fault in faults(chosen.name, each, place, beside, rules))


def notices(
    line: Requirement, path: str, place: Place, beside: Sequence[Requirement], rules: Rules
) -> Iterator[tuple[str, Row]]:
    """Yield what a person has to know of a line of a project that is no hindrance, with what is cited. ``path``: of its environment;
    ``beside``: what is there.
    """
    name = required.name(line.text)
    row = companions.of(name, rules)
    lead = f"{line.origin} asks for {line.text}"
    if row and place.wheels and row["there"] == "source":
        own = "put a wheel of it on an index that you name in gpuwright_mirrors ({pypi: URL})"
        later = f"leave the line out and install it into {path} when that is there{_from_makers(row)}"
        lack, instead = _made_for_another(line, beside, rules)
        yield f"{lead}: {index_has(name, row)}{lack}. What to do: {own}, or {later}{instead}", row
    elif row and place.wheels and row["there"] in ("processor", "ended"):
        yield f"{lead}: {index_has(name, row)}. What to do: {_by_itself(line, row)}", row
    chosen = choose(line.text, place, (), rules)
    for fault in chosen.faults if chosen else ():
        if fault.installs:
            yield f"{lead}: {name} {chosen.version if chosen else ''} {fault.text}", fault.row


def _made_for_another(line: Requirement, beside: Sequence[Requirement], rules: Rules) -> tuple[str, str]:
    """Return that the makers' builds of a pinned release are for another torch than the one that is there, and what they have for that."""
    builds, version = companions.builds(required.name(line.text), rules), required.exact(line.text)
    pin = next(
        (each.text for each in beside if required.name(each.text) == "torch" and required.exact(each.text)), None
    )
    last = companions.spanned(version, builds) if version and pin else None
    torch = (required.exact(pin or "") or "").partition("+")[0]
    if last is None or specifiers.matches(torch, builds[last]):
        return "", ""
    fitting = [each for each in builds if specifiers.matches(torch, builds[each])]
    lack = f", and the wheels of its makers for {version} are for torch {builds[last]}, not for {torch}"
    return lack, f"; for torch {torch} they have {max(fitting, key=companions.key)}" if fitting else ""


def _from_makers(row: Row) -> str:
    makers = row.get("makers", {})
    page = makers.get("page") or makers.get("links")
    return f"; wheels of its makers: {page}" if page else ""


def _said(line: Requirement, row: Row) -> str:
    return _filled(index_has(required.name(line.text), row), line)


def _by_itself(line: Requirement, row: Row) -> str:
    """Return what a person does about a line that the index does not serve."""
    makers = row.get("makers", {})
    if row.get("instead"):
        return _filled(row["instead"], line)
    how = (
        f"pip install --no-build-isolation '{makers['git']}'"
        if "git" in makers
        else f"pip install -f {makers.get('links')}"
    )
    return (
        f"leave the line out, and install it beside PyTorch when that is there: {how}"
        if makers
        else "leave the line out"
    )


def _filled(text: str, line: Requirement) -> str:
    name = required.name(line.text)
    text = text.replace("{plain}", name.rpartition("-cu")[0] or name).replace("{name}", name)
    return text.replace("{pip}", "python -m pip").replace("of CUDA {major}", "of the CUDA of torch")


# what the index has of it -----------------------------------------------------------------------------------


def index_has(name: str, row: Row) -> str:
    """Return what the Python index has of a distribution, as a sentence."""
    newest = f" ({row['newest']})" if row["newest"] else ""
    beside = ABOUT[row["beside"]].title if row["beside"] else "any framework"
    said: Mapping[str, str] = {
        "wheels": f"{name} goes beside {beside}",
        "source": f"the Python index has {name} as a source alone{newest}, which is not built here",
        "processor": f"the wheels of {name} on the Python index{newest} have no CUDA in them",
        "stub": f"what the Python index has of {name}{newest} does not install it",
        "other": f"the {name} of the Python index is another program{newest}",
        "nothing": f"the Python index has no {name} for Linux",
        "brought": f"{name} comes with {beside if row['beside'] else 'the frameworks'}",
        "ended": f"{name} has ended{newest}",
    }
    text = said[row["there"]]
    return f"{text}; {row['note']}" if row.get("note") else text

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each part of a wish may be changed to, the nearest first.

A release is near by the number of minor versions between it and what was wished: first those of the same minor version, then those of
the next one, then those of the one before. Of one minor version the release that stands next to what was wished comes first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT, CPU, About

from ..components.frameworks.model import FrameworkEnvironment
from ..components.frameworks.resolve import FRAMEWORKS
from ..components.nvidia_driver.resolve import branch
from ..model.stack import Stack
from ..rules import Row, Rules
from ..wish import specifiers
from ..wish.wish import FrameworkWish, Wish
from .machine import Machine
from .part import DISTRO

Change = Callable[[Wish], Wish]

_PLAIN = lazy(r"^\d+(\.\d+)*$")


@dataclass(frozen=True)
class Alternative:
    """What to ask for instead: its words, the wish that follows them, and how many minor versions away it is.

    note is what a person should know before choosing it.
    """

    text: str
    follow: Change
    step: int = 1
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a wish: how it is left to the resolver, what it may be changed to, and what the resolver's own choice is called.

    component is what it says something of; a Python is one too, because it serves all frameworks. name tells it from the other parts.
    probes are wishes that stand for the part as it is and for every alternative: where none of them can be met, none of these can.
    Without any, leaving it to the resolver stands for all.
    """

    component: str
    name: str
    leave: Change
    alternatives: Sequence[Alternative]
    chosen: Callable[[Stack], Alternative | None]
    probes: Sequence[Change] = ()


def nearest_first(wished: Collection[str], released: Sequence[str]) -> list[tuple[int, str]]:
    """Return the releases (oldest first) that were not wished, nearest first, each with the minor versions to the nearest that was.

    Nothing wished, or nothing of it released: the newest first; of what is older than all of them the oldest first.
    """
    places = [place for place, version in enumerate(released) if version in wished]
    if not places:
        older = bool(wished) and all(not numeric_version.at_least(version, released[0]) for version in wished)
        return list(enumerate(released if older else reversed(released), start=1))
    minors = list(dict.fromkeys(numeric_version.key(version)[:2] for version in released))
    minor = [minors.index(numeric_version.key(version)[:2]) for version in released]

    def away(place: int) -> tuple[int, bool, int]:
        return min((abs(minor[place] - minor[each]), place < each, abs(place - each)) for each in places)

    others = sorted((place for place in range(len(released)) if place not in places), key=away)
    return [(away(place)[0], released[place]) for place in others]


def parts(wish: Wish, machine: Machine, rules: Rules) -> list[Part]:
    """Return the parts of a wish that say which version or kind, in the order in which they are kept longest."""
    named = [_for_cards(each) if machine.cards else each for each in wish.frameworks]
    found = [_framework(each, rules) for each in named if each.specifier or each.variant]
    own = machine.pythons[0] if machine.pythons and not wish.pythons else None
    python = wish.python or own
    if python and wish.frameworks:
        found.append(_python(python, wish, rules))
    found += [_python_of(name, wish, rules) for name in wish.pythons]
    found += [_library(name, wish, rules) for name in ("cudnn", "nccl", "tensorrt") if getattr(wish, f"{name}_version")]
    found += [_cuda(version, wish, rules) for version in wish.cuda_versions]
    if wish.cuda_source == DISTRO:
        found.append(_cuda_source())
    if wish.driver_branch:
        found.append(_driver(wish, rules, machine.today))
    kinds = {"modules": ("open", "proprietary"), "source": ("nvidia", "distro")}
    there = machine.driver is not None
    found += [
        _of_driver(key, several, wish, there=there) for key, several in kinds.items() if getattr(wish, f"driver_{key}")
    ]
    return found


# frameworks --------------------------------------------------------------------------------------------


def _for_cards(wished: FrameworkWish) -> FrameworkWish:
    """Return a framework of a project's file as that has to name it for cards."""
    variant = ABOUT[wished.name].for_cards
    return (
        replace(wished, variant=variant)
        if variant and wished.origin and wished.specifier and not wished.variant
        else wished
    )


def _framework(wished: FrameworkWish, rules: Rules) -> Part:
    def chosen(stack: Stack) -> Alternative | None:
        entry = next((each for each in stack.get("frameworks", ()) if _is_of(each, wished)), None)
        if entry is None:
            return None
        variant = entry["variant"] if wished.variant else None
        specifier = f"=={entry['version']}" if wished.specifier else ""
        return _of_framework(replace(wished, specifier=specifier, variant=variant), 0)

    def leave(wish: Wish) -> Wish:
        # Wheels for the processor are no variant among others: whoever asks for them wants none with CUDA.
        kept = CPU if wished.variant == CPU else None
        free = FrameworkWish(wished.name, variant=kept, text=wished.key, environment=wished.environment)
        return _with(wish, replace(free, marker=wished.marker))

    return Part(wished.key, wished.key, leave, list(_releases(wished, rules)), chosen)


def _is_of(row: FrameworkEnvironment, wished: FrameworkWish) -> bool:
    """Say whether a row of a stack is what a framework of a wish resolved to."""
    return (row["name"], row.get("environment")) == (wished.name, wished.environment)


def _releases(wished: FrameworkWish, rules: Rules) -> Iterator[Alternative]:
    """Yield another variant of the same releases, then another release of the same variant, then both changed."""
    variants = _variants(wished, rules)
    released = list(variants)
    mine = [each for each in released if specifiers.matches(each, wished.specifier)]
    asked = specifiers.bound(wished.specifier) or ""
    others = nearest_first(mine or [asked], released) if wished.specifier else []
    about = ABOUT[wished.name]
    swapped = bool(wished.variant) and not about.one_build and wished.variant != CPU
    if swapped:
        offered = [each for version in mine for each in variants[version]]
        for variant in _other_variants(wished.variant, offered):
            if wished.specifier or not about.local or variant is None:
                yield _of_framework(replace(wished, variant=variant), 0)
    for step, version in others:
        if not swapped or wished.variant in variants[version]:
            yield _of_framework(replace(wished, specifier=f"=={version}"), step)
    for step, version in others if swapped else ():
        for variant in _other_variants(wished.variant, variants[version]):
            yield _of_framework(replace(wished, specifier=f"=={version}", variant=variant), step)


def _variants(wished: FrameworkWish, rules: Rules) -> dict[str, list[str]]:
    """Return the releases of a framework, oldest first, each with its variants; those packed anew (.post1) only where one is wished."""
    found = {}
    for offers in FRAMEWORKS[wished.name].offers(FrameworkWish(wished.name), rules, cpu=False):
        version = offers[0].version if offers else ""
        if version and (_PLAIN.match(version) or specifiers.matches(version, wished.specifier)):
            found[version] = [each.variant for each in offers]
    return dict(reversed(found.items()))


def _other_variants(wished: str | None, offered: Collection[str]) -> list[str | None]:
    """Return the other variants with CUDA, the nearest first, and at last the one that is left to the resolver."""
    every = sorted({*offered, wished or ""}, key=_digits)
    others = [each for _step, each in nearest_first([wished or ""], every)]
    return [*others, None]


def _digits(variant: str) -> int:
    return int("0" + re.sub(r"\D", "", variant))


def _of_framework(wished: FrameworkWish, step: int) -> Alternative:
    text = _as_asked(wished)
    return Alternative(f"ask for {text}", lambda wish: _with(wish, replace(wished, text=text)), step)


def _as_asked(wished: FrameworkWish) -> str:
    """Return how a framework is asked for, in one version or in a range of them."""
    about, version = ABOUT[wished.name], wished.specifier.removeprefix("==").removesuffix(".*")
    if wished.origin:
        # It stands in a project's file: there it has to be changed, in the words of pip.
        return f"{_as_required(about, wished)} in {wished.origin}"
    if wished.environment:
        return f"{_as_asked(replace(wished, environment=None))}@{wished.environment}"
    if _PLAIN.match(version) and wished.specifier.startswith("=="):
        return about.asked(version, wished.variant)
    local = f"+{wished.variant}" if about.local and wished.variant else ""
    return f"{about.with_variant(wished.variant)}{wished.specifier}{local}"


def _as_required(about: About, wished: FrameworkWish) -> str:
    """Return how pip is asked for a framework: torch==2.7.1+cu128, tensorflow[and-cuda]==2.20.0."""
    name = about.with_variant(wished.variant)
    local = f"+{wished.variant}" if about.local and wished.variant else ""
    return f"{about.package if name == about.name else name}{wished.specifier}{local}"


def _with(wish: Wish, framework: FrameworkWish) -> Wish:
    """Return the wish with another one for a framework that it holds."""
    several = tuple(framework if each.key == framework.key else each for each in wish.frameworks)
    return replace(wish, frameworks=several)


def _pythons(wished: str, several: Sequence[FrameworkWish], rules: Rules) -> list[tuple[int, str]]:
    """Return the Pythons that frameworks have wheels for, the nearest first, each with its step."""
    known: set[str] = {wished}
    for each in several:
        for offers in FRAMEWORKS[each.name].offers(FrameworkWish(each.name), rules, cpu=False):
            known.update(python for offer in offers for python in offer.pythons)
    return nearest_first([wished], sorted(known, key=numeric_version.key))


def _python_of(name: str, wish: Wish, rules: Rules) -> Part:
    """Make the part of the Python of one environment."""
    members = [each for each in wish.frameworks if each.directory == name]

    def taking(version: str, step: int = 0) -> Alternative:
        text = f"ask for python={version}@{name}"
        return Alternative(text, lambda each: replace(each, pythons={**each.pythons, name: version}), step)

    def chosen(stack: Stack) -> Alternative | None:
        found = [each["interpreter"] for each in stack.get("frameworks", ()) if _directory(each) == name]
        return taking(found[0]) if found else None

    def leave(each: Wish) -> Wish:
        return replace(each, pythons={key: value for key, value in each.pythons.items() if key != name})

    several = [taking(version, step) for step, version in _pythons(wish.pythons[name], members, rules)]
    if not members:
        several = [Alternative(f"leave python@{name} out", leave)]
    probes = [leave, _as_it_is, *(each.follow for each in several)]
    return Part("python", f"python@{name}", leave, several, chosen, probes)


def _directory(entry: FrameworkEnvironment) -> str:
    return entry.get("environment") or entry["name"]


def _python(there: str, wish: Wish, rules: Rules) -> Part:
    """Make the part of the Python of all environments; ``there``: the one that is wished, or the machine's own."""
    ordered = _pythons(there, wish.frameworks, rules)

    def chosen(stack: Stack) -> Alternative | None:
        found = [each["interpreter"] for each in stack.get("frameworks", ())]
        return _changed(f"python={found[0]}", python=found[0]) if found else None

    several = [_changed(f"python={version}", step, python=version) for step, version in ordered]

    def leave(each: Wish) -> Wish:
        return replace(each, python=None)

    # Left to the resolver it is a Python of this machine, which wheels that another one runs need not have.
    return Part("python", "python", leave, several, chosen, [leave, _as_it_is, *(each.follow for each in several)])


# libraries, toolkits -----------------------------------------------------------------------------------


def _library(name: str, wish: Wish, rules: Rules) -> Part:
    key = f"{name}_version"
    without: Any = {key: None}
    rows: Sequence[Row] = rules["cudnn"]["versions"] if name == "cudnn" else rules["libraries"][name]
    released = [row["version"] for row in rows if _PLAIN.match(row["version"]) and not row.get("yanked")]
    several = [
        _changed(f"{name}={version}", step, **{key: version})
        for step, version in nearest_first([getattr(wish, key)], sorted(released, key=numeric_version.key))
    ]
    open_one = _changed(f"{name} without a version", len(released), **without)

    def chosen(stack: Stack) -> Alternative | None:
        libraries = {"cudnn": stack.get("cudnn"), "nccl": stack.get("nccl"), "tensorrt": stack.get("tensorrt")}
        part = libraries[name]
        if part is None:
            return None
        version = part["version"]
        return _changed(f"{name}={version}", **{key: version}) if version else open_one

    return Part(name, name, lambda each: replace(each, **without), [*several, open_one], chosen)


def _cuda(wished: str, wish: Wish, rules: Rules) -> Part:
    """Make the part of one toolkit; where several are wished its words say which one it replaces."""
    exact = len(numeric_version.key(wished)) > 2
    rows = rules["cuda"]["rows"]
    released = list(dict.fromkeys(row["release" if exact else "cuda"] for row in rows))
    mine = [each for each in released if numeric_version.belongs(each, wished)]
    instead = f" in place of cuda={wished}" if len(wish.cuda_versions) > 1 else ""

    def taking(version: str, step: int = 0) -> Alternative:
        return Alternative(f"ask for cuda={version}{instead}", lambda each: _toolkit(each, wished, version), step)

    def chosen(stack: Stack) -> Alternative | None:
        free = [each["version"] for each in stack.get("cuda", ())]
        return taking(free[0]) if free and not instead else None

    def leave(each: Wish) -> Wish:
        return replace(each, cuda_versions=tuple(version for version in each.cuda_versions if version != wished))

    # What goes with a toolkit goes with its major version: the newest of each stands for the others.
    majors = {numeric_version.major(each): each for each in released}
    probes = [leave, _as_it_is, *(taking(each).follow for each in majors.values())]
    several = [taking(version, step) for step, version in nearest_first(mine or [wished], released)]
    return Part("cuda", f"cuda={wished}", leave, several, chosen, probes)


def _cuda_source() -> Part:
    """Make the part of the source of toolkits that has one version alone."""
    nvidia = _changed("cuda-source=nvidia", cuda_source="nvidia")
    return Part("cuda", "cuda-source", nvidia.follow, [nvidia], lambda _stack: nvidia, [_as_it_is, nvidia.follow])


def _toolkit(wish: Wish, wished: str, instead: str) -> Wish:
    several = (instead if version == wished else version for version in wish.cuda_versions)
    return replace(wish, cuda_versions=tuple(dict.fromkeys(several)))


# driver ------------------------------------------------------------------------------------------------


def _driver(wish: Wish, rules: Rules, today: date) -> Part:
    """Make the part of the branch and the build of it: first any build of the branch, then the branches beside it."""
    rows = {
        row["branch"]: row
        for row in rules["driver_branches"]["rows"]
        if row["latest"] or row["branch"] == wish.driver_branch
    }

    def taking(name: str, step: int, note: str) -> Alternative:
        text = f"ask for driver={name}"
        return Alternative(text, lambda each: replace(each, driver_branch=name, driver_version=None), step, note)

    def chosen(stack: Stack) -> Alternative | None:
        driver = stack.get("driver")
        name = driver["branch"] if driver else ""
        return taking(name, 0, _life(rows[name], today)) if name in rows else None

    same = [(0, str(wish.driver_branch))] if wish.driver_version and wish.driver_branch in rows else []
    ordered = [*same, *nearest_first([str(wish.driver_branch)], list(rows))]
    several = [taking(name, step, _life(rows[name], today)) for step, name in ordered]

    def leave(each: Wish) -> Wish:
        return replace(each, driver_branch=None, driver_version=None)

    # The branch that is preferred may be from a source that cannot be used here, another branch from one that can.
    return Part("driver", "driver", leave, several, chosen, [leave, _as_it_is, *(each.follow for each in several)])


def _life(row: Row, today: date) -> str:
    """Return what speaks for a branch or against it: its kind, and until when it gets security fixes."""
    name = row["branch"]
    if branch.lifetime(row, today) == "ended":
        return f"{name} ended on {row['eol']}"
    until = f"supported until {row['eol']}" if row["eol"] else "its end is not published"
    return f"{name} is {row['type']}, {until}"


def _of_driver(key: str, several: Sequence[str], wish: Wish, *, there: bool) -> Part:
    """Make the part of the modules or the source. A driver that is there comes before another source: its own may have no name."""
    name = f"driver_{key}"
    without: Any = {name: None}
    others = [each for each in several if each != getattr(wish, name)]
    out = Alternative(f"leave driver-{key} out", lambda each: replace(each, **without))
    ways = [_changed(f"driver-{key}={each}", **{name: each}) for each in others]
    ordered = [out, *ways] if there and key == "source" else [*ways, out]
    return Part(
        "driver", name, out.follow, ordered, lambda _: None, [out.follow, _as_it_is, *(each.follow for each in ways)]
    )


def _as_it_is(wish: Wish) -> Wish:
    return wish


def _changed(text: str, step: int = 1, /, **changes: Any) -> Alternative:
    return Alternative(f"ask for {text}", lambda wish: replace(wish, **changes), step)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nearest wish that works, for a person whose own cannot be met.

Nearest is: nothing left out rather than something, then the fewest parts changed, then the smallest step of each. The newest that works is
named second. Only what was resolved is proposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, groupby
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ..components.cuda.resolve import cudnn, nccl, tensorrt
from ..components.cuda.resolve import toolkit as cuda
from ..components.frameworks.resolve import companions, required
from ..model.wish import Requirement
from ..rules import Rules
from ..wish.wish import FrameworkWish, Wish
from . import images
from .alternatives import Alternative, Part, parts
from .machine import Machine
from .possible import Decide, Possible, TooMany, Trials, only

# More than two ways out, each with its newest, are no help.
_WAYS = 2
# More wishes than this are not tried: a person waits for the answer (4 s for these many).
_TRIALS = 4_000


@dataclass(frozen=True)
class _Search:
    """Trying wishes for one machine, each once."""

    trials: Trials
    possible: Possible
    machine: Machine
    rules: Rules

    def serves(self, component: str, wish: Wish) -> bool:
        """Say whether anything that the wish says of one component can be met beside the driver: alone, or with what chooses for it."""
        # Without a toolkit a library follows the newest one, which need not be to be had where another is; a framework moves the driver,
        # which a toolkit follows.
        beside = ("", cuda.PART.key, *(each.key for each in wish.frameworks))
        fewer = (only(wish, component, each) for each in beside)
        return any(self.possible(each, parts(each, self.machine, self.rules)) for each in fewer)


def remedy(wish: Wish, decide: Decide, decide_at_once: Decide, machine: Machine, rules: Rules) -> str | None:
    """Return what to ask for instead, such as "ask for pytorch=2.7.0, or ask for pytorch=2.14.1 (the newest that fits)".

    None where no part of the wish is to blame, or where too many wishes would have to be tried.
    """
    possible = Possible(Trials(decide_at_once, _TRIALS), machine, rules)
    try:
        return _remedy(wish, _Search(Trials(decide, _TRIALS), possible, machine, rules))
    except TooMany:
        return None


def _remedy(wish: Wish, search: _Search) -> str | None:
    bare = only(wish)
    if not search.possible(bare, parts(bare, search.machine, search.rules)):
        return None
    for left_out in _left_out(wish, search):
        rest = wish
        for each in left_out:
            rest = each.follow(rest)
        words = [each.text for each in left_out]
        if left_out and search.trials.works(rest):
            return " and ".join([*words, *_in_containers(wish, rest, search)])
        found = _ways(rest, search, single=not left_out)
        if found:
            return ", or ".join(" and ".join([*words, way]) for way in found)
    return None


def _ways(wish: Wish, search: _Search, *, single: bool) -> list[str]:
    """Return the words of the changes that make a wish work; where one part is enough, of the two parts with the smallest steps."""
    every = parts(wish, search.machine, search.rules)
    if not search.possible(wish, every):
        return []
    needed = [part for part in every if not search.possible(wish, [each for each in every if each is not part])]
    others = [part for part in every if part not in needed]
    for number in range(len(others) + 1):
        several = [[part for part in every if part in (*needed, *more)] for more in combinations(others, number)]
        found = [(way, changed) for changed in several if changed and (way := _nearest(wish, changed, search))]
        if not found:
            continue
        found.sort(key=lambda each: sum(alternative.step for alternative in each[0]))
        if len(found[0][1]) > 1 or not single:
            return _worded(wish, *found[0], search)
        return list(dict.fromkeys(text for each in found[:_WAYS] for text in _worded(wish, *each, search)))
    return []


def _nearest(wish: Wish, changed: Sequence[Part], search: _Search) -> list[Alternative] | None:
    """Return the nearest alternatives with which the wish works, the step of the first part the smallest; None where there are none."""
    first, *rest = changed
    if not search.possible(wish, changed):
        return None
    for alternative in first.alternatives:
        other = alternative.follow(wish)
        if not rest and search.trials.works(other):
            return [alternative]
        found = _nearest(other, rest, search) if rest else None
        if found:
            return [alternative, *found]
    return None


# words -------------------------------------------------------------------------------------------------


def _worded(wish: Wish, way: Sequence[Alternative], changed: Sequence[Part], search: _Search) -> list[str]:
    """Return the words of the nearest and, where it is another one, of what the resolver would choose by itself: the newest."""
    newest = _newest(wish, changed, search)
    if newest is None or [each.text for each in newest] == [each.text for each in way]:
        return [_text(way)]
    return [_text(way), _text(newest, "the newest that fits" if len(newest) == 1 else "the newest that fit together")]


def _text(way: Sequence[Alternative], note: str = "") -> str:
    """Return the words of a way; a branch's own note says more than that it is the newest."""
    notes = [each.note for each in way if each.note] or [note]
    text = " and ".join(dict.fromkeys(each.text for each in way))
    return f"{text} ({'; '.join(notes)})" if any(notes) else text


def _newest(wish: Wish, changed: Sequence[Part], search: _Search) -> list[Alternative] | None:
    """Return what comes where the parts are left to the resolver, as it is asked for; None where that is not to be had so."""
    free = wish
    for part in changed:
        free = part.leave(free)
    stack = search.trials.stack(free)
    chosen = [part.chosen(stack) for part in changed] if stack is not None else []
    named = [each for each in chosen if each is not None]
    if not named or len(named) < len(changed):
        return None
    other = wish
    for each in named:
        other = each.follow(other)
    return named if search.trials.works(other) else None


# whole components --------------------------------------------------------------------------------------


def _left_out(wish: Wish, search: _Search) -> Iterator[tuple[Alternative, ...]]:
    """Yield what may be left out of a wish: nothing, what projects pin of what comes with a framework, each component alone, then several;
    what cannot be served at all always.
    """
    present = {name: each for name, each in _components(wish).items() if each.follow(wish) != wish}
    frozen = [each for each in _frozen(wish, search.rules) if each.follow(wish) != wish]
    if frozen:
        yield ()
        yield from ((each,) for each in frozen)
    if len(frozen) > 1:
        yield tuple(frozen)
    unserved = [each for name, each in present.items() if not search.serves(name, wish)]
    for number in range(len(unserved), len(present) + 1):
        yield from (
            several for several in combinations(present.values(), number) if all(each in several for each in unserved)
        )


def _in_containers(wish: Wish, rest: Wish, search: _Search) -> list[str]:
    """Return the images that have the frameworks which are left out, where one is known that fits."""
    if any(card.name.startswith("Jetson") for card in search.machine.cards):
        return []  # these images are for servers and workstations
    stack = search.trials.stack(rest)
    left = {each.name for each in wish.frameworks} - {each.name for each in rest.frameworks}
    fitting = images.choose(search.machine, rest, stack, search.rules) if stack and left else []
    named = {row["repository"]: row["image"] for row in search.rules["images"]["images"]}
    found = [each["reference"] for each in fitting if each["reference"] and named[each["name"]] in left]
    wants = [f"container-image={each}" for each in found]
    other = rest.overlaid(Wish.from_wants(wants, search.rules))
    return [f"ask for {each}" for each in wants] if wants and search.trials.works(other) else []


def _components(wish: Wish) -> dict[str, Alternative]:
    """Return how each component is left out."""
    return {
        cuda.PART.key: _without("the CUDA toolkit out (frameworks bring their own CUDA)", cuda=False, cuda_versions=()),
        cudnn.PART.key: _without("cuDNN out (frameworks bring their own)", cudnn=False, cudnn_version=None),
        nccl.PART.key: _without("NCCL out (frameworks bring their own)", nccl=False, nccl_version=None),
        tensorrt.PART.key: _without("TensorRT out", tensorrt=False, tensorrt_version=None),
        **{each.key: _without_framework(each) for each in wish.frameworks},
    }


def _frozen(wish: Wish, rules: Rules) -> Iterator[Alternative]:
    """Yield how the pins of each project are dropped that belong to one release of a framework, as `pip freeze` writes them: of what comes
    with it, and of what goes beside it.
    """
    for project in wish.projects:
        members = [each.name for each in wish.frameworks if each.directory == project.environment]
        rows = [row for row in rules["frameworks"]["brought"] if row["framework"] in members]
        brought = [
            each
            for each in project.requirements
            if any(re.fullmatch(row["packages"], required.name(each.text)) for row in rows)
        ]
        titles = " and ".join(ABOUT[row["framework"]].title for row in rows)
        yield Alternative(
            f"drop the pins of what comes with {titles} ({_places(brought)})", partial(_without_pins, brought)
        )
        known = companions.known(project.requirements, rules) if members else ()
        beside = [each for each in known if each not in brought and _bound(each)]
        names = ", ".join(dict.fromkeys(required.name(each.text) for each in beside))
        yield Alternative(f"leave the version of {names} open ({_places(beside)})", partial(_without_pins, beside))


def _bound(requirement: Requirement) -> bool:
    return bool(required.exact(requirement.text) or required.specifier(requirement.text))


def _without_pins(several: Sequence[Requirement], wish: Wish) -> Wish:
    """Return the wish whose projects leave the versions of requirements open."""
    return replace(
        wish,
        projects=tuple(
            replace(
                project,
                requirements=tuple(
                    replace(each, text=required.name(each.text)) if each in several else each
                    for each in project.requirements
                ),
            )
            for project in wish.projects
        ),
    )


def _places(several: Sequence[Requirement]) -> str:
    """Return the files and lines of requirements: requirements.txt:4-10,13."""
    files: dict[str, list[int]] = {}
    for each in several:
        file, _colon, line = each.origin.rpartition(":")
        files.setdefault(file, []).append(int(line) if line.isdecimal() else 0)
    return ", ".join(f"{file}:{','.join(_ranges(lines))}" for file, lines in files.items())


def _ranges(lines: Sequence[int]) -> Iterator[str]:
    """Yield lines that follow each other as one: 4-10."""
    for _key, group in groupby(enumerate(sorted(set(lines))), key=lambda each: each[1] - each[0]):
        run = [line for _place, line in group]
        yield f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])


def _without(text: str, **changes: Any) -> Alternative:
    return Alternative(f"leave {text}", lambda wish: replace(wish, **changes))


def _without_framework(framework: FrameworkWish) -> Alternative:
    def follow(wish: Wish) -> Wish:
        return replace(wish, frameworks=tuple(each for each in wish.frameworks if each.key != framework.key))

    where = f" of {framework.environment}" if framework.environment else ""
    return Alternative(f"leave {ABOUT[framework.name].title} out{where}", follow)

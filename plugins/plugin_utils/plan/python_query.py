# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a draft asks the Python index of a node, and what its answer says of the wheels that pip would install.

The node looks files up by the tags that it is given. Judged here is what needs PEP 440 (versions, Requires-Python), and hashes of a lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..components.demand import WheelDemand
from ..components.frameworks import apply as frameworks
from ..components.frameworks import contents
from ..components.registry import COMPONENTS
from ..resolver import resolve as resolver
from ..rules import Rules
from ..wish import specifiers
from ..wish.wish import BadInput
from . import trials, wheel_tags
from .draft import Draft

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PythonAnswer, PythonFile, PythonIndex

    from ..wish.wish import Wish

#: Wishes that are tried as what to ask for instead, and versions that a sentence names.
_TRIED = 20
_NAMED = 6
#: Requirements of one question: the gate takes no more answers.
_MOST = 1000


@dataclass(frozen=True)
class There:
    """A wheel that pip would take."""

    demand: WheelDemand
    file: PythonFile


@dataclass(frozen=True)
class Missing:
    """A wheel that the index lacks: what it has instead, in words, and what to ask for, as --want takes it; None where nothing is known.
    ``places``: where it was looked for. ``other_hash``: it has the version, in other files than the lock names. ``denied``: what the places
    said that hand nothing to this machine. ``there``: the other versions that it has and that fit, the nearest first.
    """

    demand: WheelDemand
    instead: str
    places: Sequence[str]
    example: str | None = None
    other_hash: bool = False
    denied: str | None = None
    there: Sequence[str] = ()


@dataclass(frozen=True)
class Unverified:
    """A wheel of which the index did not say whether it is there, and why it did not."""

    demand: WheelDemand
    reason: str


@dataclass(frozen=True)
class Wheels:
    """What is known of the wheels of a draft; nothing where none is asked for. ``tried``: environments that were tried as a whole."""

    there: Sequence[There] = field(default_factory=tuple)
    missing: Sequence[Missing] = field(default_factory=tuple)
    unverified: Sequence[Unverified] = field(default_factory=tuple)
    tried: Sequence[trials.Tried] = field(default_factory=tuple)


#: What is known where the Python index was not asked.
NONE = Wheels()


def demands(drafted: Draft) -> list[WheelDemand]:
    """Return what the components that change ask of the Python index."""
    found = [demand for name in drafted.findings for demand in COMPONENTS[name].wheels(drafted.context)]
    return found[:_MOST]


def question(drafted: Draft) -> dict[str, object] | None:
    """Return the options of the module python_index, without credentials; None where there is nothing to ask."""
    asked, system = demands(drafted), drafted.context.facts["os"]
    if not asked or not system["arch"]:
        return None
    return {
        "questions": [
            {
                "name": demand.name,
                "version": demand.version,
                "interpreter": demand.interpreter,
                "urls": list(demand.urls),
                "source": demand.source,
            }
            for demand in asked
        ],
        "tags": {
            python: wheel_tags.taken(python, system["glibc"], system["arch"])
            for python in dict.fromkeys(demand.interpreter for demand in asked)
        },
        **trials.question(drafted),
    }


def addresses(drafted: Draft) -> list[str]:
    """Return the indexes that are asked, but for the machine's own."""
    tried = [url for each in trials.environments(drafted) for url in contents.indexes(each)]
    return [url for url in dict.fromkeys([*(url for each in demands(drafted) for url in each.urls), *tried]) if url]


def judged(drafted: Draft, index: PythonIndex, rules: Rules) -> Wheels:
    """Return what the index said of each wheel."""
    asked, facts = demands(drafted), drafted.context.facts
    answers = list(index["answers"])
    pairs = list(zip(asked, answers, strict=False))
    there: list[There] = []
    missing: list[Missing] = []
    unverified = [Unverified(demand, "the node did not answer this question") for demand in asked[len(answers) :]]
    for demand, answer in pairs:
        file = _chosen(demand, answer, facts)
        if file:
            there.append(There(demand, file))
        elif answer["denied"] and len(answer["denied"]) == len(answer["problems"]):
            denied = "; ".join(answer["problems"])
            missing.append(Missing(demand, "nothing for it", answer["places"], denied=denied))
        elif answer["problems"]:
            unverified.append(Unverified(demand, "; ".join(answer["problems"])))
        else:
            missing.append(_missing(demand, answer, facts))
    lacking = {each.demand.environment for each in missing}
    tried = [each for each in trials.judged(drafted, index) if each.environment["path"] not in lacking]
    found = Wheels(there, missing, unverified, tried)
    return replace(
        found, missing=[each if each.denied else _with_example(each, pairs, drafted, rules) for each in missing]
    )


def absent(drafted: Draft, wheels: Wheels) -> dict[str, list[str]]:
    """Return what the rules choose again, because the index lacks it: libraries that they pinned within a range, with the versions that are
    there; and environments that stay as they are, with what the index lacks to bring them on. A lock leaves no choice.
    """
    found: dict[str, list[str]] = {}
    if drafted.request.lock is not None:
        return found
    for each in wheels.missing:
        if each.demand.chosen:
            found[each.demand.name] = list(each.there)
        elif frameworks.returning.may_stay(drafted.context, drafted.wish, each.demand.environment):
            key = frameworks.returning.stays_at(each.demand.environment)
            found.setdefault(key, []).append(each.demand.text)
    return {key: there for key, there in found.items() if key not in drafted.request.absent}


def _chosen(demand: WheelDemand, answer: PythonAnswer, facts: Facts) -> PythonFile | None:
    """Return the file that pip would take: of a lock one of its hash, then what is not taken back (PEP 592), the newest, the best tag."""
    usable = [file for file in _of_version(demand, answer) if _serves(file["requires_python"], demand, facts)]
    if demand.sha256:
        by_hash = [file for file in usable if file["sha256"] in demand.sha256]
        # What the index gives no hash of is seen when it is there.
        usable = by_hash or [file for file in usable if file["sha256"] is None]
    ranked = list(enumerate(usable))
    best = max(ranked, key=lambda each: (not each[1]["yanked"], _version(each[1]["version"]), -each[0]), default=None)
    return best[1] if best else None


def _of_version(demand: WheelDemand, answer: PythonAnswer) -> list[PythonFile]:
    """Return the files of the version that is asked for; a local version counts where one is (PEP 440)."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        pin = SpecifierSet(f"=={demand.version}")
    except InvalidSpecifier:
        return []
    found = []
    for file in answer["fits"]:
        try:
            if pin.contains(file["version"], prereleases=True):
                found.append(file)
        except InvalidVersion:
            continue
    return found


def _version(text: str) -> tuple[object, ...]:
    """Return a key to compare versions by, of one that breaks PEP 440 the lowest."""
    from packaging.version import InvalidVersion, Version

    try:
        return (1, Version(text))
    except InvalidVersion:
        return (0,)


def _serves(requires: str | None, demand: WheelDemand, facts: Facts) -> bool:
    """Say whether a file is for the interpreter. One that is not there yet is a late patch release; what is no range says nothing."""
    try:
        return specifiers.matches(frameworks.whole_version(demand.interpreter, facts), requires or "")
    except ValueError:
        return True


def _missing(demand: WheelDemand, answer: PythonAnswer, facts: Facts) -> Missing:
    """Return why nothing that the index has will do."""
    of_version, system, places = _of_version(demand, answer), facts["os"], answer["places"]
    usable = [file for file in of_version if _serves(file["requires_python"], demand, facts)]
    if usable:
        return Missing(
            demand, f"it as another file ({', '.join(file['name'] for file in usable[:2])})", places, other_hash=True
        )
    there = _others(demand, answer, facts)
    others = ", ".join(there[:_NAMED])
    if of_version:
        reason = f"only wheels of it for Python {of_version[0]['requires_python']}"
    elif answer["unfit"]:
        reason = wheel_tags.why_none(answer["unfit"], demand.interpreter, system["glibc"], system["arch"] or "")
    else:
        instead = f"{demand.name} {others}" if others else f"no wheel of {demand.name} that fits"
        return Missing(demand, instead, places, there=there)
    return Missing(demand, f"{reason}; of the other versions {others or 'none'} will do", places, there=there)


def _others(demand: WheelDemand, answer: PythonAnswer, facts: Facts) -> list[str]:
    """Return the releases that are there and fit, the nearest first: of the same minor version, then of the same major, the newest."""
    from packaging.version import InvalidVersion, Version

    found: dict[str, Version] = {}
    for row in answer["others"]:
        try:
            version = Version(row["version"])
        except InvalidVersion:
            continue
        if not version.is_prerelease and _serves(row["requires_python"], demand, facts):
            found[row["version"]] = version
    wished = numeric_version.key(demand.version)

    def distance(text: str) -> tuple[bool, bool]:
        return found[text].release[:1] != wished[:1], found[text].release[:2] != wished[:2]

    newest = sorted(found, key=lambda text: found[text], reverse=True)
    return sorted(newest, key=distance)


# what to ask for instead ---------------------------------------------------------------------------------


def _with_example(
    missing: Missing, pairs: Sequence[tuple[WheelDemand, PythonAnswer]], drafted: Draft, rules: Rules
) -> Missing:
    """Return the same with the nearest other wish that the rules take here, and of which every wheel is there."""
    demand = missing.demand
    there = {
        each.name: [
            *_others(each, answer, drafted.context.facts),
            *(file["version"] for file in _of_version(each, answer)),
        ]
        for each, answer in pairs
        if each.environment == demand.environment
    }
    for asked, wish in islice(demand.others(there, drafted.wish), _TRIED):
        if _is_there(wish, demand, there, drafted, rules):
            return replace(missing, example=asked)
    return missing


def _is_there(
    wish: Wish, demand: WheelDemand, there: Mapping[str, Sequence[str]], drafted: Draft, rules: Rules
) -> bool:
    """Say whether a wish can be met, with wheels that are there as far as the index was asked for them."""
    try:
        stack = resolver.resolve(drafted.machine, wish, rules).get("stack")
    except BadInput:
        return False
    context = replace(drafted.context, stack=stack or {})
    other = [each for name in drafted.findings for each in COMPONENTS[name].wheels(context)] if stack else []
    needed = [each for each in other if each.environment == demand.environment]
    return bool(needed) and all(_met(each, there) for each in needed)


def _met(demand: WheelDemand, there: Mapping[str, Sequence[str]]) -> bool:
    versions = there.get(demand.name)
    return versions is None or any(demand.version in (each, each.partition("+")[0]) for each in versions)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node's package index has of a stack: the rules know what fits, only the index what is there.

A part whose version the wish leaves open and that the index lacks is :func:`absent`: the rules choose again without it. One
that was asked for is :func:`missing`: the node is refused, and told which versions there are instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..components.demand import Demand, continues
from ..components.registry import COMPONENTS
from ..model import index_answer
from ..model.stack import Stack
from ..rules import Rules
from ..wish.wish import Wish

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex, PackageInstall

#: A driver package with its branch: nvidia-utils-580-server, libnvidia-cfg1-580, linux-modules-nvidia-580-open-generic.
_BRANCH_IN_NAME = re.compile(
    r"(?:lib|linux-(?:modules|objects)-|xserver-xorg-video-)?nvidia-(?:[a-z0-9]+-)*?(?P<branch>\d{3})(?:-|$)"
)
#: Versions that a sentence names.
_NAMED = 6


@dataclass(frozen=True)
class Missing:
    """A demand that the index cannot meet: what it has instead, in words, and a version to ask for."""

    demand: Demand
    instead: str
    example: str | None


def demands(stack: Stack, wish: Wish) -> list[Demand]:
    """Return what a stack asks of the package index, in the order of the components."""
    return [demand for component in COMPONENTS.values() for demand in component.demands(stack, wish)]


def answered(index: PackageIndex) -> bool:
    """Did the index speak at all? One that could not be read lacks nothing."""
    return all(
        problem["kind"] in ("no-such-package", "unsolvable") or not problem.get("needed", True)
        for problem in index["problems"]
    )


def absent(asked: Iterable[Demand], index: PackageIndex, packages: Sequence[str]) -> dict[str, list[str]]:
    """Return the parts that the index does not have and that the rules may choose again, each with the versions that are there.

    ``packages``: those that would change; of the others the index was not asked. A toolkit of which not even another release
    is there is chosen again too: the resolver then tells which there are.
    """
    found = {}
    for demand in asked:
        wrong = _wrong(demand, index, packages)
        if not wrong or (demand.fixed and demand.again is None):
            continue
        gone = any(not index_answer.candidate(index, name) for name in wrong)
        if demand.again is not None:
            if gone:
                found[demand.again] = offers(demand, index)
        elif demand.version:
            found[demand.key] = _of_another_branch(demand, wrong, index) or offers(demand, index)
    return found


def missing(asked: Iterable[Demand], index: PackageIndex, packages: Sequence[str]) -> list[Missing]:
    """Return the parts that the index cannot give. A Python is none of them: the index says itself which package it lacks."""
    found = []
    for demand in asked:
        wrong = _wrong(demand, index, packages)
        if wrong and demand.refused:
            there = offers(demand, index)
            instead = ", ".join(_of_another_branch(demand, wrong, index)) or _instead(demand, index, there)
            found.append(Missing(demand, instead, there[0] if there else None))
    return found


def offers(demand: Demand, index: PackageIndex) -> list[str]:
    """Return the versions of a part that the index has, as --want takes them: of the same major version first, then newest."""
    names = [name for name in demand.packages if index_answer.versions(index, name)]
    seen = [
        version for name in names[:1] for version in index["packages"][name]["versions"] if _for_cuda(version, demand)
    ]
    seen += [
        version for name, versions in (index.get("others") or {}).items() if demand.of(name) for version in versions
    ]
    upstream = dict.fromkeys(version.split(":", 1)[-1].split("-", 1)[0] for version in seen)
    versions = sorted((each for each in upstream if numeric_version.key(each)), key=numeric_version.key, reverse=True)
    major = numeric_version.major(demand.version) if demand.version else ""
    return sorted(versions, key=lambda each: numeric_version.major(each) != major)[:_NAMED]


def also(stack: Stack, rules: Rules) -> list[str]:
    """Return the names under which other versions of the stack's parts would be found."""
    return sorted({name for component in COMPONENTS.values() for name in component.also(stack, rules)})


def _for_cuda(version: str, demand: Demand) -> bool:
    """Say whether a version such as 2.30.7-1+cuda13.2 is built for the CUDA of the stack."""
    return demand.cuda is None or "+cuda" not in version or f"+cuda{demand.cuda}." in version


def _wrong(demand: Demand, index: PackageIndex, packages: Sequence[str]) -> list[str]:
    """Return the packages of a demand that the index lacks or has in a version that will not do, else those of another driver branch
    that come in their place: a distribution empties the packages of a branch that has ended, and has them depend on the next one's.
    """
    wrong = []
    for name in demand.packages:
        candidate = index_answer.candidate(index, name)
        if name in packages and (not candidate or not demand.accepts(name, candidate)):
            wrong.append(name)
    return wrong or [row["name"] for row in _led_to(demand, index)]


def _led_to(demand: Demand, index: PackageIndex) -> list[PackageInstall]:
    """Return the packages that would be installed and carry another driver branch in their name than the demand's."""
    if demand.branch is None:
        return []
    found = []
    for row in index.get("install") or ():
        named = _BRANCH_IN_NAME.match(row["name"])
        if named and named["branch"] != demand.branch:
            found.append(row)
    return found


def _of_another_branch(demand: Demand, wrong: Sequence[str], index: PackageIndex) -> list[str]:
    """Return packages with versions of another driver branch that stand where the demand's should; none where something else is wrong."""
    if demand.branch is None:
        return []
    came = [f"{row['name']} {row['version']}" for row in _led_to(demand, index) if row["name"] in wrong]
    there = [(name, index_answer.candidate(index, name) or "") for name in wrong]
    other = [f"{name} {version}" for name, version in there if version and not continues(version, f"{demand.branch}.")]
    return (came or other)[:_NAMED]


def _instead(demand: Demand, index: PackageIndex, there: Sequence[str]) -> str:
    """Return what the index has of a part, in words: a package with its versions, else those of its other names."""
    for name in demand.packages:
        versions = index_answer.versions(index, name)
        if versions:
            return f"{name} {', '.join(versions[:_NAMED])}"
    return f"{demand.want} {', '.join(there)}" if there else "none of it"

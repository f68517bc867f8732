# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How far an upgrade goes that moves only what has a published vulnerability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...module_utils.base import numeric_version
from ..components.base import Context
from ..components.registry import COMPONENTS
from ..model import index_answer
from . import upgrading
from .draft import Draft
from .request import Request

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex

    from ..rules import Row, Rules


def to_the_floor(drafted: Draft, index: PackageIndex, rules: Rules) -> Draft:
    """The draft aimed at the lowest versions of the index that have no published vulnerability.

    What is above its floor already, or has none, stays at the version that is there.
    """
    aim = {}
    for component in upgrading.movable(drafted.context, drafted.request):
        names = COMPONENTS[component].versioned(drafted.context)
        if not names:
            continue
        present = numeric_version.upstream(drafted.context.installed.get(names[0], ""))
        floor = _floor(component, drafted.context, rules)
        there = sorted(map(numeric_version.upstream, index_answer.versions(index, names[0])), key=numeric_version.key)
        if (
            present
            and (floor is None or numeric_version.at_least(present, floor["floor"]))
            and _fits(component, present, drafted)
        ):
            aim[component] = present
        elif floor:
            above = [
                each
                for each in there
                if numeric_version.at_least(each, floor["floor"]) and _fits(component, each, drafted)
            ]
            aim[component] = above[0] if above else floor["floor"]
    return replace(drafted, request=replace(drafted.request, aim=aim))


def out_of_reach(context: Context, request: Request, index: PackageIndex | None) -> Iterator[tuple[str, str, str]]:
    """Each component whose floor the index does not reach: its package, the version that is wanted, what there is."""
    for component, version in (request.aim or {}).items():
        name = COMPONENTS[component].versioned(context)[0]
        there = list(map(numeric_version.upstream, index_answer.versions(index or index_answer.NOT_ASKED, name)))
        if version not in there and numeric_version.upstream(context.installed.get(name, "")) != version:
            yield name, version, ", ".join(there) or "none of it"


def _fits(component: str, version: str, drafted: Draft) -> bool:
    """Whether a version is of the branch that was resolved; not every component has one."""
    return COMPONENTS[component].branch(drafted.context.stack) in (None, numeric_version.major(version))


def _floor(component: str, context: Context, rules: Rules) -> Row | None:
    name, branch = COMPONENTS[component].security, COMPONENTS[component].branch(context.stack)
    rows: Sequence[Row] = rules["security"]["rows"]
    return next((row for row in rows if row["component"] == name and row["branch"] in (branch, None)), None)

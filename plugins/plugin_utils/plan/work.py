# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of each component of a plan, and of a step in the middle of it: decided here, done by the roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..components import sources
from ..components.base import Context
from ..components.registry import COMPONENTS
from ..model import sections
from . import measurements, preflight, removal_work

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

    from ..components.base import Component, Inputs, Step
    from ..model.plan import Plan

#: The step that is decided with the plan.
BEGIN = "begin"
#: Parts of a run that are no component and have work too.
_OTHERS: Mapping[str, Mapping[str, Step]] = {
    "preflight": preflight.STEPS,
    "repositories": sources.STEPS,
    measurements.NAME: measurements.STEPS,
}
#: What has a plan of its own, which says what it does first.
_APART: Mapping[str, Mapping[str, Step]] = {"remove": removal_work.STEPS}


def of_plan(plan: Plan, context: Context, only: Sequence[str] = ()) -> Mapping[str, object]:
    """What each component of a plan does first, by its name.

    ``only``: the components of a role used alone, which does its work also where the plan finds nothing to change.
    """
    names = list(plan["components"])
    names += [name for name in only if name not in names and COMPONENTS[name].wanted(context)]
    every = [*_OTHERS, *names] if names else []
    works = {name: steps[BEGIN](context, plan) for name in every if BEGIN in (steps := _steps(name))}
    return _added_once({name: _without_outgrown(name, work, every, context) for name, work in works.items()})


def _without_outgrown(
    component: str, work: Mapping[str, object], every: Sequence[str], context: Context
) -> Mapping[str, object]:
    """The work of a component, which takes away what its program was before it was one file, where nobody needs that any more.

    ``every``: what has work in this plan, so that its program is one file from then on.
    """
    outgrown = COMPONENTS[component].outgrown if component in COMPONENTS else ()
    needed: set[str] = set()
    for name, each in COMPONENTS.items():
        if name != component and each.program and (each.wanted(context) or _may_be_there(each, context.facts)):
            needed |= {each.program.path, *(() if name in every else each.outgrown)}
    gone = [path for path in outgrown if path not in needed]
    absent = work.get("absent")
    return {**work, "absent": [*(absent if isinstance(absent, list) else ()), *gone]} if gone else work


def _may_be_there(component: Component, facts: Facts) -> bool:
    """Whether a unit of a component is on the node. Of one that nobody told of it is not known that it is not."""
    return any(sections.service(facts, unit)["enabled"] != "not-found" for unit in component.units)


def _added_once(works: Mapping[str, Mapping[str, object]]) -> Mapping[str, object]:
    """The same, where a package source that an earlier component adds is not added again."""
    added: set[str] = set()
    found: dict[str, object] = {}
    for component, work in works.items():
        named = work.get("repositories")
        names = [str(name) for name in named if name not in added] if isinstance(named, list) else []
        found[component] = {**work, "repositories": names} if "repositories" in work else work
        added.update(names)
    return found


def of_step(component: str, step: str, plan: Plan, facts: Facts, inputs: Inputs) -> Mapping[str, object]:
    """What a component does next, from a plan that is under way and the node as it is now.

    ``inputs``: variables set for each component. Raises KeyError for a step that the component does not have, and
    :class:`..model.errors.StepRefused` where the run must not go on.
    """
    context = Context(
        facts=facts,
        stack=plan["stack"],
        versions=plan["packages"],
        provision_only=plan["provision_only"],
        cards_missing=plan["cards_missing"],
        cpu_only=plan["cpu_only"],
        variables=inputs,
    )
    return _steps(component)[step](context, plan)


def _steps(component: str) -> Mapping[str, Step]:
    others = {**_OTHERS, **_APART}
    if component in others:
        return others[component]
    return COMPONENTS[component].steps if component in COMPONENTS else {}

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a plan would end that runs on the node: refused with the plan, and again right before the first change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..components import busy
from ..components.base import Context
from ..components.registry import COMPONENTS
from .document import refusal

if TYPE_CHECKING:
    from ..model.in_use import Disturbance
    from ..model.plan import Plan
    from ..model.stack import Refusal


def refusals(plan: Plan, context: Context) -> list[Refusal]:
    """What is not known to be idle. Who looks without root cannot know it, and changes nothing: what is seen to be in use is told."""
    told = ("busy", "unknown") if context.facts["privileged"] else ("busy",)
    return [
        refusal("in-use", busy.text(each), busy.REMEDY)
        for each in _disturbances(context, plan)
        if each.use.state in told and not plan["allow_busy"]
    ]


def refuse(context: Context, plan: Plan) -> None:
    """Raise StepRefused for the first that is not known to be idle."""
    busy.refuse(plan, _disturbances(context, plan))


def _disturbances(context: Context, plan: Plan) -> list[Disturbance]:
    return [each for component in COMPONENTS.values() for each in component.disturbs(context, plan)]

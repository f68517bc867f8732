# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a run that ends before a needed boot leaves to be done, and who does it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from ...module_utils.base import paths
from ..model.plan import Plan
from ..model.report import Resume, Waiting

#: Variables that decide who goes on after the boot, beside those of the run.
VARIABLES = ("gpuwright_resume", "gpuwright_resume_refused")


class Afterwards(TypedDict):
    """What a record says of the boot that is still needed."""

    left: list[Waiting]
    resume: Resume
    rescue: list[str]


def of(plan: Plan, variables: Mapping[str, object]) -> Afterwards:
    """The parts ``left``, ``resume`` and ``rescue`` of a host's record."""
    return {"left": left(plan), "resume": resume(variables), "rescue": list(plan.get("rescue") or ())}


def left(plan: Plan) -> list[Waiting]:
    """The components that wait for the boot, in their order. Everything else was applied before it."""
    reason = plan.get("reboot_reason") or "the driver that is loaded is not the one that is installed"
    return [
        {"component": "reboot", "reason": str(reason)},
        {"component": "validate", "reason": "the node is proven after the boot, with the driver that is loaded then"},
    ]


def resume(variables: Mapping[str, object]) -> Resume:
    """Whether the machine goes on by itself after its boot; where not, why."""
    told = variables.get("gpuwright_resume")
    given = told if isinstance(told, Mapping) else {}
    if not variables.get("gpuwright_local"):
        return _not("only the machine one sits at goes on by itself")
    if variables.get("gpuwright_no_reboot"):
        return _not("--no-reboot was given")
    if "command" not in given:
        return _not(str(given.get("refused") or "the run was not started by the command line"))
    if variables.get("gpuwright_resume_refused"):
        return _not(str(variables["gpuwright_resume_refused"]))
    return {"prepared": True, "why_not": None, "unit": "gpuwright-resume.service", "report": f"{paths.RESUME}/report"}


def _not(why: str) -> Resume:
    return {"prepared": False, "why_not": why, "unit": None, "report": None}

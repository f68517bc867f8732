# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a person has to know of a plan that stops nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ..components.base import Context
from ..components.frameworks import apply as frameworks
from ..components.frameworks import contents
from ..components.nvidia_driver import rollback
from ..components.registry import COMPONENTS
from ..model import index_answer
from ..model.stack import Why
from ..rules import hosts
from . import preflight
from .draft import Draft
from .python_query import Wheels
from .request import Request

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import IndexProblem, PackageIndex

    from ..model.plan import Plan

#: Warnings that only an answer of the package index gives: the look after the work asks it no more.
OF_THE_INDEX = (
    "foreign-source",
    "repository.builder",
    "versions-unverified",
    "wheels-unverified",
    "wheel-yanked",
    "wheels-behind",
    "project-untried",
    "project-source",
)

_UNVERIFIED = (
    "What to do: have it answer this machine (its address and proxy, as pip has them), or name a mirror in gpuwright_mirrors, "
    "and plan again; an environment whose wheels do not come stays as it is"
)


def without_card(context: Context, request: Request) -> list[Why]:
    """What a person has to know first of a machine whose bus carries no card."""
    if context.cpu_only:
        needs_none = (
            "frameworks for the processor and the storage proof" if request.local else "metrics and the storage proof"
        )
        text = f"this machine has no NVIDIA GPU: it gets what needs none, {needs_none}"
        text = hosts.with_others(text, context.facts)
    elif context.cards_missing:
        text = "cards are expected and none is on the bus: everything is installed for the named ones, but without them nothing is proven"
    elif context.provision_only:
        text = "the named cards are not there yet: everything is installed for them, nothing is loaded and no card is proven"
    else:
        return []
    return [{"rule": "no-gpu", "text": text, "source": "gpuwright"}]


def rolled_back(context: Context, request: Request) -> list[Why]:
    """What a person has to know of a node that somebody rolled back."""
    if request.returns:
        return []
    return rollback.told(context.facts, context.stack.get("driver")) + frameworks.returning.told(context)


def unmended(context: Context, request: Request, working: Collection[str]) -> list[Why]:
    """What stays wrong with what is wished and is nothing that a role mends. ``working``: the components that do something."""
    return [
        {"rule": f"{name}.unmended", "text": text, "source": "gpuwright"}
        for name, component in COMPONENTS.items()
        if name not in working and request.covers(name) and component.wanted(context)
        for text in component.unmended(context)
    ]


def others_at_work(context: Context, plan: Plan) -> list[Why]:
    """That somebody changes packages now, where the plan does too."""
    busy = context.facts["packages"]["busy"]
    if not busy or not preflight.touching(plan, "packages"):
        return []
    text = (
        f"{busy} works on packages now. What to do: nothing, up waits for its end (preflight_package_manager_wait seconds); "
        "what it changes may change this plan"
    )
    return [{"rule": "packages.busy", "text": text, "source": "gpuwright"}]


def sources_of_others(problems: Sequence[IndexProblem]) -> list[Why]:
    """Package sources of the machine that do not answer and that nothing of the plan comes from."""
    begin = "a package source of this machine does not answer as it should, and nothing in this plan comes from it: "
    rows = [row for row in problems if not row.get("needed", True)]
    return [{"rule": "foreign-source", "text": begin + row["text"], "source": "gpuwright"} for row in rows]


def unverified(problems: Sequence[IndexProblem]) -> Why:
    """The warning where the index did not answer in time."""
    text = next((row["text"] for row in problems if row["kind"] == "timeout"), "the package index was not asked")
    return {"rule": "versions-unverified", "text": f"exact versions are unverified: {text}", "source": "gpuwright"}


def of_wheels(wheels: Wheels) -> list[Why]:
    """What a person has to know of the Python index: what it did not answer, and what its makers took back (PEP 592)."""
    reasons: dict[str, list[str]] = {}
    for each in wheels.unverified:
        reasons.setdefault(each.reason, []).append(each.demand.text)
    texts = [
        (
            "wheels-unverified",
            f"it is not known whether the Python index has {', '.join(dict.fromkeys(pins))}: {reason}. {_UNVERIFIED}",
        )
        for reason, pins in reasons.items()
    ]
    texts += [
        (
            "wheel-yanked",
            f"{row.file['name']} was taken back by its makers (yanked), and is installed because it is pinned",
        )
        for row in wheels.there
        if row.file["yanked"]
    ]
    return [{"rule": rule, "text": text, "source": "gpuwright"} for rule, text in texts]


def stays_put(drafted: Draft) -> list[Why]:
    """What a person has to know of environments that stay as they are because the Python index lacks what they would be brought to."""
    form = (
        "the Python index of this node has no {lacks}: {path} keeps {there}, which works and is what is wished. What to do: refresh the "
        "mirror, or name one that has it (gpuwright_mirrors), and run again"
    )
    stack, found = drafted.context.stack, []
    for row in contents.environments(stack):
        lacks = drafted.request.absent.get(frameworks.returning.stays_at(row["path"]))
        if lacks:
            there = contents.titles(row["path"], stack)
            text = form.format(lacks=" and ".join(lacks), path=row["path"], there=there)
            found.append(Why(rule="wheels-behind", text=text, source="gpuwright"))
    return found


def enabled(drafted: Draft, index: PackageIndex | None) -> list[Why]:
    """What a person has to know of repositories that are enabled for this run alone."""
    form = (
        "packages of EPEL need the repository {repository}, which is not enabled: it is for this run; an upgrade of everything "
        "leaves out what comes from it, until it is enabled for good ({steps})"
    )
    return [
        {"rule": "repository.builder", "text": form.format(**row), "source": row["source"]}
        for row in drafted.builders
        if row["repository"] in (index or index_answer.NOT_ASKED)["enabled"]
    ]

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machine's firewall, opened for the nodes of its fabric alone: what NCCL and the rendezvous of a job need to reach each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...model.plan import Plan
from ...model.stack import Stack
from ...model.work import Work
from .. import firewall
from ..base import Component, Context, Finding, Manages, Step
from ..firewall import Opening
from ..view import View

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, FirewallOwner

    from ...model.plan import Removes
    from .model import Fabric

NAME = "fabric"
_OWNER: FirewallOwner = "fabric"


def wanted(context: Context) -> bool:
    return NAME in context.stack


def findings(context: Context) -> list[Finding]:
    """In an image that is being built no firewall is at work: it is opened with the cards."""
    return firewall.findings(context.facts, _OWNER, _openings(context.stack["fabric"])) if context.runs_here else []


def manages(_context: Context) -> Manages:
    """The rules are no files of ours: each look sees whether they are there. The seal holds the wish."""
    return Manages()


def inputs(context: Context) -> Mapping[str, object]:
    return dict(context.stack["fabric"])


def _openings(fabric: Fabric) -> list[Opening]:
    return [
        opening
        for network in fabric["networks"]
        for opening in (Opening(network, "tcp", fabric["tcp"]), Opening(network, "udp", fabric["udp"]))
    ]


def begin(context: Context, plan: Plan) -> Work:
    """The commands that open the firewall, and close what is left over."""
    openings = _openings(context.stack["fabric"])
    return {"commands": firewall.commands(context.facts, _OWNER, openings) if context.runs_here else []}


STEPS: Mapping[str, Step] = {"begin": begin}


def judge(view: View, stack: Stack) -> list[Check]:
    """The firewall is open for the fabric, and by gpuwright for nobody else."""
    fabric = stack.get("fabric")
    if fabric is None or not view.gpus:
        return []
    return [firewall.judged("fabric.firewall", view, _OWNER, _openings(fabric))]


def _take_back(facts: Facts) -> list[Finding]:
    """The firewall is closed again."""
    return firewall.take_back(facts, _OWNER)


def _removes(facts: Facts, _files: Sequence[str]) -> Removes:
    return {"fabric_firewall": firewall.closing(facts, _OWNER)}


COMPONENT = Component(
    NAME,
    wanted,
    findings,
    inputs,
    manages,
    parts=("fabric",),
    judge=judge,
    take_back=_take_back,
    undo="close",
    removes=_removes,
    steps=STEPS,
)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the last proof still speaks for a node, and what a new one takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from ..components.base import Context, Finding, not_known
from ..model.proof import AHEAD, age
from .document import change

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageInstall
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import Proof

    from ..model.plan import Plan
    from .request import Request


#: Packages of the tools that a proof measures with.
PROOF_TOOLS = ("fio",)


def missing_tools(context: Context) -> list[str]:
    """What the proof measures with and the node does not have."""
    return [name for name in PROOF_TOOLS if name not in context.installed]


def add_proof(plan: Plan, context: Context, request: Request, sizes: Mapping[str, PackageInstall]) -> None:
    """Put `validate` into the plan where the last proof no longer speaks for this node."""
    proof = context.facts["proof"]
    plan["stack_digest"] = stack_digest(plan)
    if request.only:
        return
    reason = _stale(proof, plan, context, request)
    if reason:
        tools = [] if request.user else missing_tools(context)
        plan["changes"].append(change("validate", Finding("prove", reason, packages=tools), sizes, plan["packages"]))


def stack_digest(plan: Plan) -> str:
    """One digest over all components' inputs: what a proof was given for."""
    return hashlib.sha256(json.dumps(plan["digests"], sort_keys=True).encode()).hexdigest()


def _stale(proof: Proof | None, plan: Plan, context: Context, request: Request) -> str | None:
    if plan["changes"]:
        return "the node is proven after every change"
    reason = outdated(context, request)
    if proof and not reason and proof["stack_digest"] != plan["stack_digest"]:
        return "the wished stack changed since the last proof"
    return reason


def outdated(context: Context, request: Request) -> str | None:
    """Why the last proof does not speak for the node as it is, whatever is planned; None where it does."""
    proof = context.facts["proof"]
    if proof is None and "proof" in context.facts["unknown"]:
        return not_known(context.facts, "proof", "whether the node was proven")
    if proof is None:
        return "the node was never proven"
    if proof["verdict"] != "pass":
        return f"the last proof was {proof['verdict']}"
    if proof["boot_id"] != context.facts["boot"]["id"]:
        return "the node was booted since the last proof"
    if proof["driver"] != context.facts["driver"]["loaded_version"]:
        return "another driver is loaded than the proven one"
    if request.full:
        return "everything is looked at again (full)"
    old = age(proof["time"], context.facts["time"])
    if old is None or not -AHEAD <= old <= timedelta(seconds=request.proof_max_age):
        return f"the last proof is from {proof['time']}"
    return None

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is not as wished, by component: what each finds itself, and what its seal knows beyond it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..components.base import Context, Finding, not_known
from ..components.nvidia_driver import apply as nvidia_driver
from ..components.nvidia_driver import exchange, rollback
from ..components.registry import COMPONENTS, SEALED

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverState, Seal

    from .request import Request


def of_components(context: Context, request: Request) -> dict[str, list[Finding]]:
    """What is not as wished, by component in their order; components that are right are left out."""
    result: dict[str, list[Finding]] = {}
    told: list[Finding] = []
    for name, component in COMPONENTS.items():
        if not request.covers(name) or not component.wanted(context):
            continue
        found = component.findings(context)
        # A package source that several components share is told once, where something else is left to tell.
        found = [finding for finding in found if finding not in told] or found
        told += found
        sealed = _seal_findings(name, context, request) if name in SEALED and request.applied is None else []
        # Packages that were moved behind our back go back, whatever else is not right: only the seal knows that they were moved.
        moved = any(finding.packages for finding in sealed) and not any(finding.packages for finding in found)
        if moved or not found:
            found = sealed + found
        if found:
            result[name] = found
            context = replace(context, driver_changes=nvidia_driver.NAME in result)
    if nvidia_driver.NAME in result and exchange.replaced(context.facts, context.stack["driver"]):
        # Finishing what an exchange of the sets left half done would bring files of both: the exchange itself finishes it.
        return _mended_by_another(result)
    return result


def _mended_by_another(findings: Mapping[str, list[Finding]]) -> dict[str, list[Finding]]:
    """The findings without what would finish a transaction whose place another one takes."""
    return {name: found for name, found in findings.items() if not COMPONENTS[name].mends}


def with_return(
    findings: Mapping[str, list[Finding]], state: DriverState | None, facts: Facts
) -> dict[str, list[Finding]]:
    """The findings with the return to a state. On apt it mends an interrupted package manager itself: finishing first what failed
    would fail. rpm leaves nothing to finish.
    """
    if state is None:
        return dict(findings)
    merged = {**findings, nvidia_driver.NAME: [rollback.finding(state, facts)]}
    if facts["packages"]["manager"] == "apt":
        merged = _mended_by_another(merged)
    return {name: merged[name] for name in COMPONENTS if name in merged}


def _seal_findings(name: str, context: Context, request: Request) -> list[Finding]:
    """The outcome looks right; is there a good seal of these very inputs?"""
    if request.only:
        return []
    if context.facts["seals"] is None:
        return [Finding("adopt", not_known(context.facts, "seals", "whether gpuwright sealed it"))]
    seal = context.facts["seals"].get(name)
    if seal is None:
        return [COMPONENTS[name].adoption(context) or Finding("adopt", "not yet sealed by gpuwright")]
    if seal["state"] == "newer":
        return []
    if seal["state"] == "alone":
        return [Finding("adopt", str(seal["reason"]))]
    if seal["state"] != "good":
        return [Finding("repair", str(seal["reason"]), packages=_moved_packages(seal, context))]
    if seal["digest"] != digest(name, context, request):
        return [Finding("configure", "its inputs changed since it was sealed")]
    if request.full:
        return [Finding("configure", "all components are looked at again (full)")]
    return []


def _moved_packages(seal: Seal, context: Context) -> list[str]:
    """Packages that no longer have their sealed version: these go back to it. What a run that was cut off took away itself does not come
    back: all that is wished is there, and the pins of two builds exclude each other.
    """
    sealed = (seal.get("packages") or {}).items()
    moved = [name for name, version in sealed if context.installed.get(name) != version]
    return [name for name in moved if name in context.installed or seal["state"] != "begun"]


def digest(name: str, context: Context, request: Request) -> str:
    """The digest of a component's inputs: its part of the stack, its variables, and the role that applies them."""
    parts = {
        "stack": COMPONENTS[name].inputs(context),
        "variables": request.inputs.get(name) or {},
        "role": request.role_digests.get(name),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

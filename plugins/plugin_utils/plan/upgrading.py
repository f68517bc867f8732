# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an upgrade moves, to the newest that the wish and the node's package index allow.

Every other verb keeps a sealed version that still satisfies the wish.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...module_utils.base import numeric_version
from ..components.base import Component, Context, Finding
from ..components.registry import COMPONENTS, SEALED

if TYPE_CHECKING:
    from .request import Request


def candidates(context: Context, request: Request) -> list[str]:
    """The packages of which an upgrade wants to know what the index has."""
    return [name for component in movable(context, request) for name in _managed(component, context)]


def companions(context: Context, request: Request) -> list[str]:
    """Members of a component's set that nobody named and that go to its version too. The index was asked for them, so it does not tell
    whether anything else would bring them (nvidia_driver.left_behind): they are named.
    """
    return [name for each in movable(context, request) for name in _members(COMPONENTS[each], context)]


def _members(component: Component, context: Context) -> list[str]:
    versions = context.versions
    builds = {numeric_version.upstream(versions[name]) for name in component.versioned(context) if name in versions}
    return [name for name in component.members(context) if numeric_version.upstream(versions.get(name, "")) in builds]


def of_what_moves(versions: Mapping[str, str], context: Context, request: Request) -> dict[str, str]:
    """The versions without those of components that stay: asked for, and not newer than what is there."""
    asked = replace(context, versions=versions)
    staying = {
        name
        for component in movable(context, request)
        if not COMPONENTS[component].findings(asked) and not _newer(component, asked)
        for name in _managed(component, context)
    }
    return {name: version for name, version in versions.items() if name not in staying}


def with_newer(findings: Mapping[str, list[Finding]], context: Context, request: Request) -> dict[str, list[Finding]]:
    """The findings, and an upgrade for each component that is right and of which the index has something newer."""
    merged = dict(findings)
    for component in movable(context, request):
        newer = _newer(component, context) if component not in findings else None
        if newer:
            merged[component] = [newer]
    return {component: merged[component] for component in COMPONENTS if component in merged}


def movable(context: Context, request: Request) -> list[str]:
    """Return the components that an upgrade may move; nothing of what was adopted is changed."""
    if not request.moves:
        return []
    return [
        name
        for name in SEALED
        if (COMPONENTS[name].security or not request.security)
        and COMPONENTS[name].wanted(context)
        and COMPONENTS[name].adoption(context) is None
    ]


def _managed(component: str, context: Context) -> list[str]:
    return [name for name in COMPONENTS[component].sealed(context).packages if name in context.installed]


def _newer(component: str, context: Context) -> Finding | None:
    installed, versions = context.installed, context.versions
    names = _managed(component, context)
    ahead = [name for name in names if name in versions and _numbers(versions[name]) > _numbers(installed[name])]
    if not ahead:
        return COMPONENTS[component].newer(context)
    first, more = ahead[0], f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
    reason = f"the package index has newer: {first} {versions[first]}{more}"
    return Finding("upgrade", reason, installed[first], versions[first], packages=names)


def _numbers(version: str) -> tuple[int, ...]:
    """A package's version by its numbers, epoch first: of one repository's packages that is their order."""
    epoch, _colon, rest = version.rpartition(":")
    return (int(epoch or 0), *(int(number) for number in re.findall(r"\d+", rest)))

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Calls of the package manager: which packages, at which versions, and what the manager is told with them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model.work import PackageCall
    from .base import Context, Plan

_EPOCH = re.compile(r"^\d+:")


def call(
    context: Context,
    plan: Plan,
    names: Sequence[str],
    *,
    allow_downgrade: bool = False,
    allow_held: bool = False,
) -> PackageCall:
    """One installation of packages at the plan's exact versions; one without a version takes the manager's own choice.

    ``allow_downgrade``: to older versions, and for dnf to erase what a change of flavour takes. ``allow_held``: of packages on hold.
    """
    spec = {"apt": _apt, "dnf": _dnf}.get(context.facts["packages"]["manager"] or "", _apt)
    return {
        "names": list(names),
        "specs": spec(plan, names),
        "allow_downgrade": allow_downgrade,
        "allow_held": allow_held,
    }


def goes_back(plan: Plan, component: str) -> bool:
    """Whether a component's packages may go to older versions: the plan names from and to, and where the exact version that was asked for
    (by a lock, for example) is the older one, that is no accident.
    """
    return any(row["component"] == component and row["action"] == "upgrade" for row in plan["changes"])


def _apt(plan: Plan, names: Sequence[str]) -> list[str]:
    versions: Mapping[str, str] = plan["packages"]
    return [f"{name}={versions[name]}" if versions.get(name) else name for name in names]


def _dnf(plan: Plan, names: Sequence[str]) -> list[str]:
    """The name of kernel headers carries the version already. What the plan's index would bring along in the very version of a named
    package is of one set with it, also where the dependency is a loose one.
    """
    versions: Mapping[str, str] = plan["packages"]
    specs = [
        name if not versions.get(name) or _EPOCH.sub("", versions[name]) in name else f"{name}-{versions[name]}"
        for name in names
    ]
    of_named = {versions[name] for name in names if versions.get(name)}
    return specs + [
        f"{row['name']}-{row['version']}"
        for row in plan["install"]
        if row["name"] not in names and row["version"] in of_named
    ]

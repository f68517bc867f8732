# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Calls of the package manager: which packages, at which versions, and what the manager is told with them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from ..model.plan import Plan
    from ..model.work import PackageCall
    from .base import Context

_EPOCH = re.compile(r"^\d+:")
#: Above 1000, so that the build is the candidate even where a newer one is installed; the very builds go before those of their branch.
_PREFERRED, _BUILD = 1001, 1002


class OfPlan(TypedDict):
    """What a plan says of each call, as options of the module package_call."""

    manager: str | None
    specs: list[str]
    preferences: str
    enabled: list[str]
    left_out: list[str]
    takes: bool
    may_take: list[str]


def call(
    context: Context,
    plan: Plan,
    names: Sequence[str],
    *,
    allow_downgrade: bool = False,
    allow_held: bool = False,
) -> PackageCall:
    """One installation of packages at the plan's exact versions; one without a version takes the manager's own choice.

    ``allow_downgrade``: to older versions. ``allow_held``: of packages on hold.
    """
    return {
        "names": list(names),
        "specs": specs(context.facts["packages"]["manager"], plan, names),
        "allow_downgrade": allow_downgrade,
        "allow_held": allow_held,
    }


def of_plan(plan: Plan, names: Sequence[str]) -> OfPlan:
    """What a plan says of a call for these packages."""
    manager = plan["package_manager"]
    return {
        "manager": manager,
        "specs": specs(manager, plan, names),
        "preferences": preferences(plan) if manager == "apt" else "",
        "enabled": list(plan["enabled"]),
        "left_out": list(plan["left_out"]),
        "takes": bool(plan["takes"]),
        "may_take": list(plan["may_take"]),
    }


def specs(manager: str | None, plan: Plan, names: Sequence[str]) -> list[str]:
    """Packages as their manager takes them, with the plan's versions where it has read them from the index."""
    return _dnf(plan, names) if manager == "dnf" else _apt(plan, names)


def preferences(plan: Plan) -> str:
    """What apt prefers while it installs for a plan (apt_preferences(5)); empty where it is left the choice.

    The very builds that the plan counted on, whatever other source has such a version too, then every package that has a version which
    begins so.
    """
    start = plan["prefer"]
    if not start:
        return ""
    form = "Package: {}\nPin: version {}\nPin-Priority: {}\n\n"
    builds = [row for row in plan["install"] if row["version"].startswith(start)]
    return "".join(form.format(row["name"], row["version"], _BUILD) for row in builds) + form.format(
        "/./", f"{start}*", _PREFERRED
    )


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
    named = [
        name if not versions.get(name) or _EPOCH.sub("", versions[name]) in name else f"{name}-{versions[name]}"
        for name in names
    ]
    of_named = {versions[name] for name in names if versions.get(name)}
    return named + [
        f"{row['name']}-{row['version']}"
        for row in plan["install"]
        if row["name"] not in names and row["version"] in of_named
    ]

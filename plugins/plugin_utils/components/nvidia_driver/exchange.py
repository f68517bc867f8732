# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The driver's whole set of packages is exchanged: it is to come from another source, or of a branch whose packages have other names.

Up to branch 580 NVIDIA and Ubuntu have packages of the same names, and apt exchanges them one for one. From 590 on the names
differ and the files do not, and no package says so: dpkg stops with "trying to overwrite". Within Ubuntu most packages of two
branches conflict, and the firmware of the one that is left stays behind. So the whole old set goes out and the whole new set
comes in by one call of apt. What is replaced is in the mark that a run leaves before its first change, for one that is cut off
in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ....module_utils.base import numeric_version
from ....module_utils.observe import driver as observed
from ....module_utils.observe.driver_set import PINNING
from ...model import sections

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

    from ...model.stack import Stack


_SOURCES = ("nvidia", "distro")
#: The repository that NVIDIA's driver comes from, as the resolver calls it.
_NVIDIA = "nvidia-cuda"
#: The version of a driver's build. Debian's nvidia-kernel-common has a date instead: 20240109+1.
#: Source: https://packages.debian.org/trixie/nvidia-kernel-common
_BUILD = re.compile(r"\d{3}(?:\.\d+)+")


def replaced(facts: Facts, driver: DriverStack) -> dict[str, str]:
    """The installed packages that give way to those of the wished driver, or stay as a part of it: version by name, those of another
    architecture as name:architecture. Empty where the set that is there may become the wished one.
    """
    if facts["packages"]["manager"] != "apt" or driver["adopted"] or driver["source"] not in _SOURCES:
        return {}
    due = _is_from_another(facts, driver) or _has_other_names(facts, driver) or _cut_off(facts, driver)
    return _old(facts) if due else {}


def reason(facts: Facts, driver: DriverStack) -> str:
    """Why the set is exchanged, for a person."""
    there = facts["driver"]["source"] or "an unknown source"
    builds = filter(None, map(_BUILD.search, _old(facts).values()))
    branches = sorted({numeric_version.major(found[0]) for found in builds})
    of_branches = f"branch {' and '.join(branches)}" if branches else "the driver"
    return (
        f"the packages of {of_branches} ({there}) give way to those of branch {driver['branch']} ({driver['source']})"
    )


def addresses(stack: Stack) -> list[str]:
    """Addresses of the repository that alone answers for the driver's packages; empty where the distribution has them, whose
    repositories are kept apart from NVIDIA's by preferences.
    """
    driver = stack.get("driver")
    if not driver or driver["source"] != "nvidia":
        return []
    return [uri for row in stack.get("repositories") or () if row["name"] == _NVIDIA for uri in row["uris"]]


def _is_from_another(facts: Facts, driver: DriverStack) -> bool:
    seen = facts["driver"]
    return seen["owner"] == "packages" and seen["source"] in _SOURCES and seen["source"] != driver["source"]


def _has_other_names(facts: Facts, driver: DriverStack) -> bool:
    """Whether a driver of another branch is there, and packages of the wished one are not there under any version."""
    there: Mapping[str, str] = facts["driver"]["packages"] or {}
    builds = {numeric_version.upstream(there[name]) for name in _of_driver(there) if observed.CORE.match(name)}
    branches = {numeric_version.major(build) for build in builds if _BUILD.fullmatch(build)}
    return bool(branches - {driver["branch"]}) and not there.keys() >= set(_of_driver(driver["packages"]))


def _of_driver(names: Iterable[str]) -> list[str]:
    """Of these packages those that have the driver's version, and are neither built for one kernel nor a pin."""
    return [
        name
        for name in names
        if observed.is_driver_package(name) and not name.startswith("linux-") and not PINNING.match(name)
    ]


def _cut_off(facts: Facts, driver: DriverStack) -> bool:
    """Whether a run began such an exchange and some of it is left to do, or to take back where the wish is another one since."""
    mark = sections.sealed_driver(facts)
    if not mark.get("replaces"):
        return False
    same = (mark["source"], mark["branch"]) == (driver["source"], driver["branch"])
    return bool(_left(facts)) if same else mark["replaces"] != _old(facts)


def _left(facts: Facts) -> dict[str, str]:
    """What an exchange that was cut off has yet to take out or to replace."""
    return dict(
        (sections.sealed_driver(facts).get("replaces") or {}).items() & (facts["driver"]["packages"] or {}).items()
    )


def _old(facts: Facts) -> dict[str, str]:
    """The packages of the driver itself, those of an old set among them of which the core is gone already."""
    return _of_builds(facts) | _left(facts)


def _of_builds(facts: Facts) -> dict[str, str]:
    """The installed packages of the driver itself: those that have the version of one of its builds, and what pins them.

    nvidia-settings or libnvidia-egl-wayland1, which are versioned by themselves, serve a driver of any source.
    """
    there: Mapping[str, str] = facts["driver"]["packages"] or {}
    builds = {numeric_version.upstream(version) for name, version in there.items() if observed.CORE.match(name)}
    return {
        name: version
        for name, version in there.items()
        if numeric_version.upstream(version) in builds or PINNING.match(name)
    }

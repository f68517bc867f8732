# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which installed packages have to stay at one version together with the driver, and what keeps them there.

A meta package's exact version pins nothing underneath: the set is everything that was built from the driver's sources, whether
it was asked for or came as a dependency.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterable, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import driver, packages
from ansible_collections.gpuwright.node.plugins.module_utils.observe.package import Package

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import DriverLock, PackageMove, PinFiles

UNATTENDED_FILE = "/etc/apt/apt.conf.d/52gpuwright-nvidia-driver"
"""What the role nvidia_driver writes for unattended-upgrades."""

PINNING = re.compile(r"^nvidia-driver-pinning-")
"""NVIDIA's packages that carry a preference for apt."""

# Modules that are built for one kernel each come and go with it: held back, the next kernel would boot without a driver.
_FOLLOWS_KERNEL = re.compile(r"^linux-(?:modules|objects|signatures)-nvidia")
# What belongs to the set and does not carry the driver's name: the switch library of NVLink 5 and its subnet manager.
_ALSO = re.compile(r"^(?:libnvsdm|nvlsm(?:$|[-_:]))")
# Sources whose every binary package is the driver's. (firmware-nvidia-graphics comes from Debian's collection of all firmware.)
_SOURCE = re.compile(r"nvidia|^cuda-drivers|^libcuda")
_FOREIGN_SOURCES = frozenset(("firmware-nonfree", "linux-firmware"))

_PATTERN = re.compile(r'"((?:[^"\\]|\\.)*)"\s*;')
_MOVED = re.compile(r"^Inst (\S+) \[([^\]]*)\] \((\S+) ", re.MULTILINE)

SIMULATION = (
    "apt-get",
    "-s",
    "-q",
    "-o",
    "Dir::Cache::pkgcache=",
    "-o",
    "Dir::Cache::srcpkgcache=",
    "-o",
    "Dir::Log::Planner=",
    "-o",
    "Debug::NoLocking=true",
    "dist-upgrade",
)
"""Asks the real apt what an upgrade of everything would do; writes nothing, neither apt's own cache nor the log of its planner."""


def members(found: Mapping[str, Package]) -> list[str]:
    """Names of the set among the installed packages. Pinning packages are no part: they are a lock, not what is locked."""
    seeds = {
        name
        for name, package in found.items()
        if (driver.is_driver_package(name) or _ALSO.match(name)) and package.source not in _FOREIGN_SOURCES
    }
    sources = {found[name].source for name in seeds if _SOURCE.search(found[name].source)}
    kin = {name for name, package in found.items() if package.source in sources and not driver.is_other_package(name)}
    return sorted(name for name in seeds | kin if not PINNING.match(name) and not _FOLLOWS_KERNEL.match(name))


def held(found: Mapping[str, Package], names: list[str]) -> list[str]:
    """Held packages of the driver's family, in the set (`names`) or not: an earlier lock may have left some."""
    return sorted(
        name for name, package in found.items() if package.hold and (name in names or driver.is_driver_package(name))
    )


def excluded(host: Host) -> list[str] | None:
    """The patterns that keep unattended-upgrades from the set; None where the file is not there."""
    text = host.read(UNATTENDED_FILE)
    if text is None:
        return None
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("//", "#")))
    return _PATTERN.findall(lines)


def pins(host: Host, found: Mapping[str, Package]) -> dict[str, PinFiles]:
    """The preference files that each pinning package brought, and those of them that are no longer there.

    They are configuration files: dpkg does not bring back one that was removed.
    """
    seen: dict[str, PinFiles] = {}
    for name in sorted(found):
        if PINNING.match(name):
            text = host.read(f"/var/lib/dpkg/info/{name}.list") or ""
            files = [line for line in text.splitlines() if line.startswith("/etc/apt/preferences.d/")]
            seen[name] = {"files": files, "missing": [path for path in files if not host.stat(path)]}
    return seen


def would_move(host: Host, names: list[str]) -> list[PackageMove] | None:
    """What `apt-get dist-upgrade` would move of the set; None (and unknown, with the reason) where apt did not answer."""
    result = host.run(list(SIMULATION))
    if not result.ok:
        host.unknown("driver.would_move", result.error or "apt-get -s dist-upgrade: " + result.err.strip()[-300:])
        return None
    return moved(result.out, names)


def moved(text: str, names: Iterable[str]) -> list[PackageMove]:
    """What of the named packages a simulation of apt says that it would move."""
    ours = set(names)
    return [{"name": name, "from": old, "to": new} for name, old, new in _MOVED.findall(text) if name in ours]


def observe(host: Host) -> DriverLock:
    """The part `driver.lock` of the observation. apt is only asked on a full look: it takes a second."""
    found = packages.installed(host)
    names = members(found)
    asked = host.full and host.live and packages.manager(host) == "apt" and names
    return {
        "set": names,
        "held": held(found, names),
        "excluded": excluded(host),
        "pins": pins(host, found),
        "would_move": would_move(host, names) if asked else None,
    }

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one lock over the driver's set: what it has to be on a node, and in what it is not so.

Pure, from the observation (``driver.lock``, made by ``module_utils/observe/driver_set.py``) and the pin in the driver's part of the stack.
Two kinds: ``holds`` (every package of the set is held, and NVIDIA's pinning package with it) and ``kernel`` (prebuilt modules: they follow
the kernel, so their branch is in their names and nothing is held).
Unattended upgrades are kept from the set in both: they publish drivers as security updates, and move libraries under a loaded module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....module_utils.observe.driver_set import UNATTENDED_FILE

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverPin

#: Names told one by one before the rest is a number.
_MOST = 6


@dataclass(frozen=True)
class Lock:
    """What a node's lock has to be.

    ``holds``: packages to hold. ``release``: held ones that are no part of it any more. ``excluded``: patterns for
    unattended-upgrades.
    """

    kind: str
    holds: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


def of(facts: Facts, pin: DriverPin) -> Lock:
    """The lock that a driver which gpuwright installed has to have."""
    kind = "holds" if pin.get("hold") else "kernel"
    seen = facts["driver"]["lock"]
    members = tuple(seen["set"])
    if facts["packages"]["manager"] != "apt":
        # The role writes its lines of dnf's list as a whole; what else stands there is another's.
        return Lock(kind, members if kind == "holds" else ())
    # The pin has a version too: an upgrade of everything would move it, and its seal would be broken.
    package = pin.get("package")
    pinning = [package] if package and package in seen["pins"] else []
    holds = (*members, *pinning) if kind == "holds" else ()
    release = tuple(name for name in seen["held"] if name not in holds)
    return Lock(kind, holds, release, tuple(pattern(name) for name in members))


def pattern(name: str) -> str:
    """The regular expression for exactly this package, as unattended-upgrades matches names."""
    return "^" + name.replace(".", r"\.").replace("+", r"\+") + "$"


def differences(facts: Facts, pin: DriverPin) -> list[str]:
    """In what the lock is not as it has to be, one sentence each; empty when it is whole."""
    lock = of(facts, pin)
    held = set(facts["packages"]["holds"] or ())
    found = []
    free = [name for name in lock.holds if name not in held]
    if free:
        found.append(f"not held against unattended upgrades: {_names(free)}")
    if lock.release:
        found.append(f"held, and no part of the lock any more: {_names(lock.release)}")
    if facts["packages"]["manager"] == "apt":
        found += _exclusion(facts, lock) + _pins(facts, pin)
    return found


def _exclusion(facts: Facts, lock: Lock) -> list[str]:
    there = facts["driver"]["lock"]["excluded"]
    if there is None and lock.excluded:
        return [f"{UNATTENDED_FILE}, which keeps unattended upgrades from the set, is missing"]
    if there is not None and sorted(there) != sorted(lock.excluded):
        return [f"{UNATTENDED_FILE} names other packages than those of the set"]
    return []


def _pins(facts: Facts, pin: DriverPin) -> list[str]:
    package = pin.get("package")
    pins = facts["driver"]["lock"]["pins"].get(package or "")
    return [f"{path}, the pin of {package}, is gone" for path in (pins["missing"] if pins else ())]


def moving(facts: Facts) -> list[str]:
    """What the real apt would move of the set; empty where it moves nothing or was not asked (only a full look asks it)."""
    rows = facts["driver"]["lock"]["would_move"] or ()
    return [f"{row['name']} {row['from']} -> {row['to']}" for row in rows]


def files(facts: Facts, pin: DriverPin) -> list[str]:
    """The files that the lock consists of, for the seal."""
    if facts["packages"]["manager"] != "apt":
        return []
    pins = facts["driver"]["lock"]["pins"].get(pin.get("package") or "")
    return [*([UNATTENDED_FILE] if of(facts, pin).excluded else []), *(pins["files"] if pins else ())]


def _names(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more

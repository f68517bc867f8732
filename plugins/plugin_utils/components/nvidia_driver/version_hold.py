# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one lock over the driver's set: what it has to be on a node, and in what it is not so.

Pure, from the observation (``driver.lock``, made by ``module_utils/observe/driver_set.py``) and the pin in the driver's part of the stack.
Two kinds: ``holds`` (every package of the set is held, and NVIDIA's pinning package with it) and ``kernel`` (prebuilt modules: they follow
the kernel, so their branch is in their names and nothing is held).
Unattended upgrades are kept from the set in both: they publish drivers as security updates, and move libraries under a loaded module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from ....module_utils.observe import driver_set
from ....module_utils.observe.driver_set import UNATTENDED_FILE
from ...model.errors import StepRefused
from . import places

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverPin, DriverStack

    from ...model.work import File

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


# --- the work of the role ---------------------------------------------------------------------------------------------

#: What asks apt for an upgrade of everything, without doing it.
_UPGRADE = ["apt-get", "-s", "-q", "-o", "Debug::NoLocking=true", "dist-upgrade"]
#: From the cache: the index was read a moment ago, but for that of a source that did not answer.
_CHECK = ["dnf", "--cacheonly", "--quiet", "--setopt=*.skip_if_unavailable=True", "check-upgrade"]
_GONE = re.compile(r"config-files (\S+)")


class Locking(TypedDict):
    """What locks the set. ``pin``: the pinning package whose file is brought back,
    where it is gone. ``commands`` release and hold, ``files`` and ``absent`` are for unattended upgrades (apt). ``lines`` go into dnf's
    list. ``question`` asks what an upgrade would move; empty where nothing is held.
    """

    pin: str | None
    commands: list[list[str]]
    files: list[File]
    absent: list[str]
    lines: list[str]
    question: list[str]


def work(facts: Facts, driver: DriverStack | None) -> Locking:
    """What the role does to lock a driver: all of the set, and nothing where it is somebody else's."""
    pin: DriverPin = driver["pin"] if driver else {}
    lock, is_apt = of(facts, pin), facts["packages"]["manager"] == "apt"
    excluded = lock.excluded if driver and not driver["adopted"] else ()
    package = pin.get("package") or ""
    pins = facts["driver"]["lock"]["pins"].get(package)
    # All of it at once, and again: apt takes the hold off what it installs, as of the pinning package that is brought back.
    commands = [["apt-mark", "unhold", *lock.release]] if lock.release else []
    commands += [["apt-mark", "hold", *lock.holds]] if lock.holds else []
    return {
        "pin": package if is_apt and pins and pins["missing"] else None,
        "commands": commands if is_apt else [],
        "files": [places.unattended(UNATTENDED_FILE, excluded)] if is_apt and excluded else [],
        "absent": [UNATTENDED_FILE]
        if is_apt and not excluded and facts["driver"]["lock"]["excluded"] is not None
        else [],
        "lines": [] if is_apt else _lines(facts, lock),
        "question": _question(lock, is_apt=is_apt),
    }


def _lines(facts: Facts, lock: Lock) -> list[str]:
    """Lines of the list of dnf's plugin versionlock."""
    there = facts["packages"]["installed"] or {}
    return [f"{name}-{'' if ':' in there[name] else '0:'}{there[name]}.*" for name in lock.holds]


def _question(lock: Lock, *, is_apt: bool) -> list[str]:
    if not lock.holds:
        return []
    return [*_UPGRADE] if is_apt else [*_CHECK, *lock.holds]


def judge(facts: Facts, driver: DriverStack, said: Mapping[str, object]) -> None:
    """Judge the answer to the question of what an upgrade of everything would move (``said``: rc and stdout; empty where nobody asked).

    Raises StepRefused where the lock has no effect.
    """
    text = str(said.get("stdout") or "")
    if facts["packages"]["manager"] != "apt":
        # 0: none; 100: those that are listed.
        if said.get("rc"):
            raise StepRefused(
                f"Expected dnf to keep the driver at its versions. Found that it would take: {text.strip()}. What to do: look whether the "
                "plugin versionlock is switched off (enabled=0 in /etc/dnf/plugins/versionlock.conf, plugins=0 in /etc/dnf/dnf.conf), and "
                "run again."
            )
        return
    moves = driver_set.moved(text, facts["driver"]["lock"]["set"]) if driver["pin"].get("hold") else []
    if moves:
        told = ", ".join(f"{row['name']} {row['from']} -> {row['to']}" for row in moves)
        raise StepRefused(
            f"Expected that an upgrade of everything leaves the driver as it is. Found that apt would move {told}. What to do: look at "
            f"`apt-cache policy {moves[0]['name']}` and at /etc/apt/preferences.d for a preference above the lock's, take it away, then "
            "run again. Until then do not run `apt upgrade` on this host."
        )


def left_pins(said: Iterable[str]) -> list[str]:
    """Pinning packages that gave way to another and left their files in /etc, which apt goes on obeying. ``said``: a line ``STATE NAME`` of
    dpkg-query for each.
    """
    return [match[1] for match in map(_GONE.match, said) if match]

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a machine and a wish to the stack that serves both, or to every reason why none does.

resolve() below is the table of contents; each decision is a module of this package and a pure function:

    source            where the driver comes from         cuda               which toolkits
    branch            which driver branch                 compilers          what nvcc compiles with
    modules           open or proprietary modules         cudnn, nccl,       which libraries beside it
    package_set       desktop or compute                    tensorrt,
                                                            library_archive
    parts             the tables of all parts: what a lock and sources need of one, and what each host wishes for itself
    fabric, firewall  who is let in, and by which firewall  fabric_manager     what NVSwitches need beside the driver
    listeners         whose a port is
    packages          names, pin, headers                 forward            newer CUDA than the driver's, by cuda-compat
    driver, adoption  these together, or what is there    container_toolkit  container toolkit and engine
    foreign           where the driver is not ours       older_kernel       which kernel to boot instead
    repositories      package sources and their keys      frameworks         which wheels
    systems           the operating system                alternatives,      what to wish instead
    unknown           what lies beyond the tables           nearest, possible
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..components.container_toolkit import resolve as container_toolkit
from ..components.container_toolkit.resolve import pulled
from ..components.cuda.resolve import cudnn, forward, library_archive, nccl, tensorrt
from ..components.cuda.resolve import toolkit as cuda
from ..components.cuda.resolve.support import CudaSupport, family_floor
from ..components.frameworks import resolve as frameworks
from ..components.nvidia_driver.resolve import driver, older_kernel
from ..model.stack import Answer, Stack
from ..rules import Row, Rules, age
from ..wish.wish import Wish
from . import foreign, images, repositories, systems, unknown
from .compatibility import compatible
from .log import DESIGN, Entry, Log, Unresolved
from .machine import Machine
from .part import ARCHIVE, HostPart
from .parts import HOST_PARTS, PARTS

__all__ = ["as_far_as_possible", "assumed", "compatible", "resolve", "stack_for"]

_LIBRARIES = (cudnn, nccl, tensorrt)
# Conflicts whose own remedy stays the first: a key or a checksum that can be given, an image's owner, a card to leave out, other wheels,
# a toolkit or a library that is to be had elsewhere, another tag of an image.
_GIVEN = (
    "repository.key",
    "driver.runfile-",
    "driver.preinstalled",
    "driver.of-root",
    "cuda.cards",
    "cuda.glibc",
    "cuda.repository",
    "cuda.default",
    "cuda.runfile-",
    "cuda.distro-place",
    "cuda.modulefiles",
    "tensorrt.cards",
    *(f"{room.PART.key}.archive" for room in _LIBRARIES),
    "frameworks.by-hand",
    "frameworks.cards",
    "frameworks.companions",
    "frameworks.jetson",
    "monitoring.",
    "container-toolkit.image",
)

# Conflicts that another system does not solve.
_ON_ANY_SYSTEM = frozenset(
    {
        "driver.card",
        "driver.cards",
        "cuda.cards",
        "container-toolkit.image",
        *(
            f"frameworks.{what}"
            for what in ("card", "cards", "release", "companions", "together", "partner", "project")
        ),
    }
)

# Rules that are older than this many days miss drivers and wheels that people ask for.
OLD = 90


def resolve(machine: Machine, wish: Wish, rules: Rules) -> Answer:
    """Return the answer of `gpuwright resolve --json`: ok with the stack and why, or not ok with conflicts.

    Pure: the same arguments give the same answer; nothing is read, not even the clock.
    """
    log = Log(rules)
    try:
        stack = forward.where_needed(_decide, machine, wish, rules, log)
    except Unresolved as error:

        def decide(other: Wish) -> Stack:
            return forward.where_needed(_decide, machine, other, rules, Log(rules, trial=True))

        def decide_at_once(other: Wish) -> Stack:
            return _decide(machine, other, rules, Log(rules, trial=True))

        from . import nearest

        better = nearest.remedy(wish, decide, decide_at_once, machine, rules)

        def works(other: Machine) -> bool:
            return stack_for(other, wish, rules) is not None

        named = older_kernel.named(error.conflicts, machine, works)
        entries = [_remedied(entry, better) for entry in named]
        return {
            "ok": False,
            "conflicts": forward.remedied(entries, decide, wish),
            "rules": age(rules, machine.today),
        }
    return _answered(machine, wish, stack, log)


def as_far_as_possible(machine: Machine, wish: Wish, rules: Rules) -> Answer:
    """Return the answer of resolve(); of a wish that cannot be met with what could be decided, which a diagnosis judges by."""
    log = Log(rules)
    try:
        stack = forward.where_needed(_decide, machine, wish, rules, log)
    except Unresolved as error:
        stack = error.stack
    return _answered(machine, wish, stack, log)


def _answered(machine: Machine, wish: Wish, stack: Stack, log: Log) -> Answer:
    _age(machine, log)
    return {
        "ok": True,
        "gpus": [card.as_dict() for card in machine.cards],
        "os": machine.os,
        "arch": machine.arch,
        "assumed": assumed(machine, wish, log.rules),
        "warnings": log.warnings,
        "stack": stack,
        "why": log.why,
        "rules": age(log.rules, machine.today),
    }


def assumed(machine: Machine, wish: Wish, rules: Rules) -> dict[str, str | bool]:
    """Return what was taken for granted of a machine that nobody looked at: to state it changes nothing. A Python that is asked for
    and that the system does not have is taken to be there.
    """
    python = machine.assumed.get("python")
    if python is None:
        return dict(machine.assumed)
    pythons = [str(python), *frameworks.asked_beyond(machine, wish, rules)]
    return {**machine.assumed, "python": ",".join(pythons)}


def stack_for(machine: Machine, wish: Wish, rules: Rules) -> Stack | None:
    """Return only the stack of resolve()'s answer, None where there is none: without the search for a better wish."""
    try:
        return forward.where_needed(_decide, machine, wish, rules, Log(rules, trial=True))
    except Unresolved:
        return None


def _age(machine: Machine, log: Log) -> None:
    """Warn of rules that know nothing of what appeared since."""
    days = age(log.rules, machine.today)["age_days"]
    if days > OLD:
        text = f"the rules are of {log.rules['generated']}, {days} days old: what appeared since is not in them; install a newer gpuwright"
        log.warn("rules.age", text, "compat/*.yaml (updated)")


def _remedied(entry: Entry, better: str | None) -> Entry:
    """Put the wish that works into a conflict; a key that can be given, a card to leave out, other wheels, stay the first remedy, and
    another kernel the second.
    """
    if better is None:
        return entry
    if entry["rule"] == older_kernel.RULE:
        return {**entry, "remedy": f"{better}, or {entry['remedy']}"}
    given = entry["rule"].startswith(_GIVEN) and entry["remedy"] != cuda.ANOTHER
    return {**entry, "remedy": f"{entry['remedy']}; or {better}" if given else better}


def _decide(machine: Machine, wish: Wish, rules: Rules, log: Log) -> Stack:
    """Make every decision in its order. Raises Unresolved with the reasons of all that could not be made."""
    wish = foreign.without_useless(machine, foreign.allowed(machine, wish, log), log)
    foreign.name_others(machine, log)
    beyond = list(unknown.versions(wish, rules))
    if beyond:
        raise Unresolved(*beyond)
    if machine.environment == "jetson" and not wish.frameworks and not wish.projects:
        return {}
    system = foreign.repository(machine, _system(machine, wish, log), log)
    systems.warn(machine, system, log)
    if not machine.cards:
        return _without_cards(machine, wish, system, log)
    stack: Stack = {}
    try:
        support = _driver(machine, wish, system, stack, log)
    except Unresolved as error:
        if log.trial:
            raise
        raise Unresolved(*error.conflicts, *_besides(machine, wish, system, rules)) from None
    if wish.cuda_compat:
        support = forward.extended(support, machine, rules)
    _toolkits(machine, wish, system, support, stack, log)
    _of_host(machine, wish, system, stack, log)
    _environments(machine, wish, support, stack, log)
    if wish.by_hand:
        log.conflicts += frameworks.told_by_hand(machine, wish, support, stack, log)
    if machine.user is None:
        stack["repositories"] = log.attempt(repositories.choose, machine, wish, system, stack, log) or []
    _floor(stack, rules)
    if log.conflicts:
        raise Unresolved(*log.conflicts, stack=stack)
    return stack


def _system(machine: Machine, wish: Wish, log: Log) -> Row:
    """Return the row of the system. Raises Unresolved for one that is not served, with what could not be had on another one either."""
    try:
        return systems.find(machine, log.rules)
    except Unresolved as error:
        if log.trial or not machine.cards:
            raise
        served = systems.nearest(machine.os, log.rules)
        elsewhere = replace(machine, os=served["os"], derived=None, kernel=served["kernel"], glibc=served["glibc"])
        against: list[Entry] = []
        try:
            _decide(elsewhere, wish, log.rules, Log(log.rules))
        except Unresolved as other:
            against = [each for each in other.conflicts if each["rule"] in _ON_ANY_SYSTEM]
        raise Unresolved(*error.conflicts, *against) from None


def _of_host(machine: Machine, wish: Wish, system: Row, stack: Stack, log: Log) -> None:
    """Put what is set of the cards into the stack, and how containers get them."""
    _put(HOST_PARTS, machine, wish, system, stack, log)
    if wish.container_toolkit:
        toolkit = log.attempt(container_toolkit.choose, machine, wish, system, stack.get("driver"), log)
        if toolkit is not None:
            stack["container_toolkit"] = toolkit
            fitting = partial(images.choose, machine, wish, stack, log.rules)
            judge = partial(images.judge, machine=machine, wish=wish, stack=stack, rules=log.rules)
            ahead = log.attempt(pulled.choose, wish, toolkit["engine"], fitting, judge, log)
            if ahead:
                toolkit["engine"]["images"] = ahead


def _put(parts: Iterable[HostPart], machine: Machine, wish: Wish, system: Row, stack: Stack, log: Log) -> None:
    """Put what a host wishes for itself into the stack."""
    for part in parts:
        found = log.attempt(part.choose, machine, wish, system, stack, log)
        if found is not None:
            stack.update(cast("Stack", {part.key: found}))


def _environments(machine: Machine, wish: Wish, support: CudaSupport, stack: Stack, log: Log) -> None:
    """Put the frameworks into the stack as far as they are wished, and what their CUDA needs beside the driver."""
    if wish.frameworks or wish.projects:
        found = log.attempt(frameworks.choose, machine, wish, support, log, _built(stack))
        if found is not None:
            stack["frameworks"] = found
            cudnn.beside_wheels(stack, log)
    if wish.cuda_compat:
        compat = forward.choose(stack, support, log)
        if compat is not None:
            stack["cuda_compat"] = compat
        forward.lead(stack, support, log.rules)


def _besides(machine: Machine, wish: Wish, system: Row, rules: Rules) -> list[Entry]:
    """Return what else cannot be had where it is the wish for a driver that cannot be met: all that another driver leaves so."""
    log = Log(rules)
    free = replace(
        wish, driver_source=None, driver_branch=None, driver_version=None, driver_modules=None, driver_set=None
    )
    support = log.attempt(_driver, machine, free, system, {}, log) if free != wish else None
    if support is None:
        return []
    _toolkits(machine, wish, system, support, {}, log)
    log.attempt(frameworks.choose, machine, wish, support, log)
    return log.conflicts


def _built(stack: Stack) -> list[str]:
    """Return the toolkits of a stack, which what goes on top of it is compiled with."""
    return [entry["version"] for entry in stack.get("cuda", ())]


def _floor(stack: Stack, rules: Rules) -> None:
    """Raise the driver's minimum to what the chosen toolkits and wheels need."""
    if "driver" not in stack:
        return
    versions = [*_built(stack), *(entry["cuda"] for entry in stack.get("frameworks", ()))]
    asking = [version for version in versions if version and not forward.covers(stack, version)]
    families = [family_floor(numeric_version.major(version), rules) for version in asking]
    floors = [row["driver"] for row in families if row]
    stack["driver"]["minimum"] = numeric_version.highest(stack["driver"].get("minimum"), *floors)


def _driver(machine: Machine, wish: Wish, system: Row, stack: Stack, log: Log) -> CudaSupport:
    """Put the driver into the stack and return what it can run; where it is somebody else's, only the latter."""
    if not machine.brings_own_driver:
        chosen = driver.choose(machine, wish, system, log)
        stack["driver"] = chosen.stack
        return chosen.support
    return foreign.support(machine, wish, system, log)


def _toolkits(machine: Machine, wish: Wish, system: Row, support: CudaSupport, stack: Stack, log: Log) -> None:
    """Put CUDA and its libraries into the stack as far as they are wished; these follow the toolkit's major version."""
    chosen = log.attempt(cuda.choose, machine, wish, system, support, log) if wish.cuda else None
    if chosen:
        stack["cuda"] = chosen
    if not (wish.cudnn or wish.nccl or wish.tensorrt) or (wish.cuda and not chosen):
        return
    versions = [entry["version"] for entry in chosen or ()]
    if not versions:
        versions = _of_libraries(machine, replace(wish, cuda_source=None), system, support, log)
    for room in _LIBRARIES:
        key = room.PART.key
        found: object = None
        if getattr(wish, key) and getattr(wish, f"{key}_source") == ARCHIVE:
            found = log.attempt(library_archive.choose, room.ARCHIVES, chosen or (), machine, wish, log)
        elif getattr(wish, key) and versions:
            found = log.attempt(room.choose, machine, wish, system, versions, log)
        if found is not None:
            stack.update(cast("Stack", {key: found}))


def _of_libraries(machine: Machine, wish: Wish, system: Row, support: CudaSupport, log: Log) -> list[str]:
    """Return the CUDA of libraries where nobody wishes a toolkit: of the newest major that has them as they are asked for."""
    best = log.attempt(cuda.best, None, machine, wish, system, support, log)
    if not best:
        return []
    for row in sorted(log.rules["cuda"]["families"], key=lambda row: -int(row["major"])):
        trial = Log(log.rules, trial=True)
        try:
            version = best
            if row["major"] != numeric_version.major(best):
                version = cuda.best(row["major"], machine, wish, system, support, trial)
            for room in _LIBRARIES:
                if getattr(wish, f"{room.PART.key}_version"):
                    room.choose(machine, wish, system, [version], trial)
        except Unresolved:
            continue
        return [version]
    return [best]


def _without_cards(machine: Machine, wish: Wish, system: Row, log: Log) -> Stack:
    """Return the stack of a machine without NVIDIA GPU: framework environments for the CPU, its exporter, and a server of metrics."""
    left = [part.want for part in PARTS if part.cards and getattr(wish, part.key)]
    left += [part.want for part in HOST_PARTS if part.cards and part.want and getattr(wish, part.key)]
    if left:
        log.warn("gpu.none", f"no NVIDIA GPU: {', '.join(left)} left out", DESIGN)
    stack: Stack = {}
    if wish.frameworks or wish.projects:
        stack["frameworks"] = frameworks.choose(machine, wish, None, log)
    _put((part for part in HOST_PARTS if not part.cards), machine, wish, system, stack, log)
    sources = log.attempt(repositories.choose, machine, wish, system, stack, log)
    if log.conflicts:
        raise Unresolved(*log.conflicts, stack=stack)
    return (
        {**stack, "repositories": sources or []} if sources or any(part.key in stack for part in HOST_PARTS) else stack
    )

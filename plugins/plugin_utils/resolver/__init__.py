# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a machine and a wish to the stack that serves both, or to every reason why none does.

resolve() below is the table of contents; each decision is a module of this package and a pure function:

    source            where the driver comes from         cuda               which toolkits
    branch            which driver branch                 compilers          what nvcc compiles with
    modules           open or proprietary modules         cudnn, nccl,       which libraries beside it
    package_set       desktop or compute                    tensorrt
    mig               into what the cards are parted
    gpu_settings      power limit, clocks, ECC, compute mode and persistence mode of the cards
    packages          names, pin, headers                 forward            newer CUDA than the driver's, by cuda-compat
    driver, adoption  these together, or what is there    container_toolkit  container toolkit and engine
    foreign           where the driver is not ours       older_kernel       which kernel to boot instead
    repositories      package sources and their keys      frameworks         which wheels
    systems           the operating system                alternatives,      what to wish instead
                                                            nearest
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base import dotted

from ..rules import Row, Rules, age
from ..wish import Wish
from . import (
    container_toolkit,
    cuda,
    cudnn,
    driver,
    foreign,
    forward,
    frameworks,
    gpu_settings,
    mig,
    nccl,
    nearest,
    older_kernel,
    repositories,
    systems,
    tensorrt,
)
from .compatibility import compatible
from .log import DESIGN, Entry, Log, Unresolved
from .power import Power, family_floor
from .situation import Situation

__all__ = ["compatible", "resolve", "stack_for"]

# Conflicts whose own remedy stays the first: a key or a checksum that can be given, an image's owner, a card to leave out, other wheels,
# a toolkit that is to be had elsewhere.
_GIVEN = (
    "repository.key",
    "driver.runfile-",
    "driver.preinstalled",
    "cuda.cards",
    "cuda.repository",
    "tensorrt.cards",
    "frameworks.cards",
    "frameworks.jetson",
)

# Rules that are older than this many days miss drivers and wheels that people ask for.
OLD = 90


def resolve(situation: Situation, wish: Wish, rules: Rules) -> dict[str, Any]:
    """Return the answer of `gpuwright resolve --json`: ok with the stack and why, or not ok with conflicts.

    Pure: the same arguments give the same answer; nothing is read, not even the clock.
    """
    log = Log(rules)
    try:
        stack = forward.where_needed(_decide, situation, wish, rules, log)
    except Unresolved as error:

        def decide(other: Wish) -> dict[str, Any]:
            return forward.where_needed(_decide, situation, other, rules, Log(rules, trial=True))

        better = nearest.remedy(wish, decide, situation, rules)

        def works(other: Situation) -> bool:
            return stack_for(other, wish, rules) is not None

        named = older_kernel.named(error.conflicts, situation, works)
        entries = [_remedied(entry, better) for entry in named]
        return {
            "ok": False,
            "conflicts": forward.remedied(entries, decide, wish),
            "rules": age(rules, situation.today),
        }
    _age(situation, log)
    return {
        "ok": True,
        "gpus": [card.as_dict() for card in situation.cards],
        "os": situation.os,
        "arch": situation.arch,
        "assumed": dict(situation.assumed),
        "warnings": log.warnings,
        "stack": stack,
        "why": log.why,
        "rules": age(rules, situation.today),
    }


def stack_for(situation: Situation, wish: Wish, rules: Rules) -> dict[str, Any] | None:
    """Return only the stack of resolve()'s answer, None where there is none: without the search for a better wish."""
    try:
        return forward.where_needed(_decide, situation, wish, rules, Log(rules, trial=True))
    except Unresolved:
        return None


def _age(situation: Situation, log: Log) -> None:
    """Warn of rules that know nothing of what appeared since."""
    days = age(log.rules, situation.today)["age_days"]
    if days > OLD:
        text = f"the rules are of {log.rules['generated']}, {days} days old: what appeared since is not in them; install a newer gpuwright"
        log.warn("rules.age", text, "compat/*.yaml (updated)")


def _remedied(entry: dict[str, str], better: str | None) -> dict[str, str]:
    """Put the wish that works into a conflict; a key that can be given, a card to leave out, other wheels, stay the first remedy, and
    another kernel the second.
    """
    if better is None:
        return entry
    if entry["rule"] == older_kernel.RULE:
        return {**entry, "remedy": f"{better}, or {entry['remedy']}"}
    given = entry["rule"].startswith(_GIVEN) and entry["remedy"] != cuda.ANOTHER
    return {**entry, "remedy": f"{entry['remedy']}; or {better}" if given else better}


def _decide(situation: Situation, wish: Wish, rules: Rules, log: Log) -> dict[str, Any]:
    """Make every decision in its order. Raises Unresolved with the reasons of all that could not be made."""
    wish = foreign.allowed(situation, wish, log)
    foreign.name_others(situation, log)
    if situation.environment == "jetson" and not wish.frameworks:
        return {}
    system = foreign.repository(situation, systems.find(situation, rules), log)
    systems.warn(situation, system, log)
    if not situation.cards:
        return _without_cards(situation, wish, log)
    stack: dict[str, Any] = {}
    try:
        power = _driver(situation, wish, system, stack, log)
    except Unresolved as error:
        if log.trial:
            raise
        raise Unresolved(*error.conflicts, *_besides(situation, wish, system, rules)) from None
    if wish.cuda_compat:
        power = forward.extended(power, situation, rules)
    _toolkits(situation, wish, system, power, stack, log)
    _put(stack, "mig", log.attempt(mig.choose, situation, wish, log))
    _put(stack, "gpu_settings", log.attempt(gpu_settings.choose, situation, wish, log))
    if wish.container_toolkit:
        stack["container_toolkit"] = container_toolkit.choose(situation, wish, system, stack.get("driver"), log)
    if wish.frameworks:
        _put(stack, "frameworks", log.attempt(frameworks.choose, situation, wish, power, log, _built(stack)))
    if wish.cuda_compat:
        _put(stack, "cuda_compat", forward.choose(stack, power, log))
        forward.lead(stack, power, rules)
    _put(stack, "repositories", log.attempt(repositories.choose, situation, wish, system, stack, log) or [])
    if log.conflicts:
        raise Unresolved(*log.conflicts)
    _floor(stack, rules)
    return stack


def _besides(situation: Situation, wish: Wish, system: Row, rules: Rules) -> list[Entry]:
    """Return what else cannot be had where it is the wish for a driver that cannot be met: all that another driver leaves so."""
    log = Log(rules)
    free = replace(
        wish, driver_source=None, driver_branch=None, driver_version=None, driver_modules=None, driver_set=None
    )
    power = log.attempt(_driver, situation, free, system, {}, log) if free != wish else None
    if power is None:
        return []
    _toolkits(situation, wish, system, power, {}, log)
    log.attempt(frameworks.choose, situation, wish, power, log)
    return log.conflicts


def _built(stack: dict[str, Any]) -> list[str]:
    """Return the toolkits of a stack, which what goes on top of it is compiled with."""
    return [entry["version"] for entry in stack.get("cuda", ())]


def _floor(stack: dict[str, Any], rules: Rules) -> None:
    """Raise the driver's minimum to what the chosen toolkits and wheels need."""
    if "driver" not in stack:
        return
    versions = [*_built(stack), *(entry["cuda"] for entry in stack.get("frameworks", ()))]
    asking = [version for version in versions if version and not forward.covers(stack, version)]
    families = [family_floor(dotted.major(version), rules) for version in asking]
    floors = [row["driver"] for row in families if row]
    stack["driver"]["minimum"] = dotted.highest(stack["driver"]["minimum"], *floors)


def _driver(situation: Situation, wish: Wish, system: Row, stack: dict[str, Any], log: Log) -> Power:
    """Put the driver into the stack and return what it can run; where it is somebody else's, only the latter."""
    if not situation.brings_own_driver:
        chosen = driver.choose(situation, wish, system, log)
        stack["driver"] = chosen.stack
        return chosen.power
    return foreign.power(situation, wish, system, log)


def _toolkits(situation: Situation, wish: Wish, system: Row, power: Power, stack: dict[str, Any], log: Log) -> None:
    """Put CUDA and its libraries into the stack as far as they are wished; these follow the toolkit's major version."""
    chosen = log.attempt(cuda.choose, situation, wish, system, power, log) if wish.cuda else None
    if chosen:
        stack["cuda"] = chosen
    if not (wish.cudnn or wish.nccl or wish.tensorrt) or (wish.cuda and not chosen):
        return
    versions = [entry["version"] for entry in chosen or ()]
    if not versions:
        best = log.attempt(cuda.best, None, situation, system, power, log)
        versions = [best] if best else []
    if versions and wish.cudnn:
        _put(stack, "cudnn", log.attempt(cudnn.choose, situation, wish, system, versions, log))
    if versions and wish.nccl:
        _put(stack, "nccl", log.attempt(nccl.choose, wish, system, versions, log))
    if versions and wish.tensorrt:
        _put(stack, "tensorrt", log.attempt(tensorrt.choose, situation, wish, system, versions, log))


def _put(stack: dict[str, Any], key: str, value: Any) -> None:
    if value is not None:
        stack[key] = value


def _without_cards(situation: Situation, wish: Wish, log: Log) -> dict[str, Any]:
    """Return the stack of a machine without NVIDIA GPU: framework environments for the CPU."""
    named = {
        "driver": wish.driver,
        "cuda": wish.cuda,
        "cudnn": wish.cudnn,
        "nccl": wish.nccl,
        "tensorrt": wish.tensorrt,
        "cuda-compat": wish.cuda_compat,
        "container-toolkit": wish.container_toolkit,
    }
    left = [name for name, wished in named.items() if wished]
    if left:
        log.warn("gpu.none", f"no NVIDIA GPU: {', '.join(left)} left out", DESIGN)
    if not wish.frameworks:
        return {}
    return {"frameworks": frameworks.choose(situation, wish, None, log)}

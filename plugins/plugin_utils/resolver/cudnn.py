# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""cuDNN as packages, for those who compile against it; wheels bring their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..model.lock import LockCudnn
from ..model.stack import Cudnn, Stack
from ..rules import Row, Rules
from ..wish import Wish
from . import part
from .log import Log, Unresolved, conflict, offered
from .machine import Machine
from .naming import component, names


def choose(machine: Machine, wish: Wish, system: Row, cuda_versions: Sequence[str], log: Log) -> Cudnn:
    """Return version (None: the newest of the index) and packages for the CUDA majors in use. Raises Unresolved."""
    majors = sorted({numeric_version.major(cuda) for cuda in cuda_versions}, key=int)
    last = _ceiling(machine, majors, log)
    version = wish.cudnn_version or (_last_there(last, machine, log) if last else None)
    if version:
        _check(version, majors, machine, last, log)
    old = version is not None and numeric_version.major(version) == "8"
    row = component("cudnn8" if old else "cudnn9", log.rules)
    packages = [name.replace("{major}", major) for major in majors for name in names(row, system)]
    if last and not wish.cudnn_version:
        text = f"cuDNN {version}: the last one that serves every card and CUDA {', '.join(majors)}"
        log.decided("cudnn.version", text, log.cite("cudnn", last))
        if not last["confirmed"]:
            log.warn("cudnn.unconfirmed", f"that {version} is the last one is not confirmed", log.cite("cudnn", last))
    else:
        text = (
            f"cuDNN {version}: asked for"
            if version
            else "cuDNN: the newest of the machine's package index, no card limits it"
        )
        log.decided("cudnn.version", text, log.cite("packages", row))
    return {"version": version, "packages": list(dict.fromkeys(packages))}


def limits(capabilities: Collection[str], majors: Sequence[str], ceilings: Sequence[Row]) -> list[Row]:
    """Return the rows that limit cuDNN for these compute capabilities and CUDA majors."""
    found = []
    for row in ceilings:
        below = row.get("below_compute_capability")
        if below and any(not numeric_version.at_least(each, below) for each in capabilities):
            found.append(row)
        if row.get("cuda_major") in majors:
            found.append(row)
    return found


def _capabilities(machine: Machine) -> list[str]:
    return [card.compute_capability for card in machine.cards if card.compute_capability]


def _ceiling(machine: Machine, majors: Sequence[str], log: Log) -> Row | None:
    found = limits(_capabilities(machine), majors, log.rules["cudnn"]["ceilings"])
    return min(found, key=lambda row: numeric_version.key(row["last"])) if found else None


def _last_there(last: Row, machine: Machine, log: Log) -> str:
    """Return the last version that serves; where the machine's package index lacks it, the newest older one that it has.

    Raises Unresolved where it has none.
    """
    ceiling = str(last["last"])
    there = machine.absent.get(f"cudnn={ceiling}")
    if there is None:
        return ceiling
    major = numeric_version.major(ceiling)
    older = [each for each in there if numeric_version.major(each) == major and numeric_version.at_least(ceiling, each)]
    if older:
        return max(older, key=numeric_version.key)
    text = f"the machine's package index has neither cuDNN {ceiling}, the last that serves, nor an older one{offered(there)}"
    remedy = "use a mirror that carries it, or leave cuDNN out (frameworks bring their own)"
    raise Unresolved(conflict("cudnn.absent", text, log.cite("cudnn", last), remedy))


def _check(version: str, majors: Sequence[str], machine: Machine, last: Row | None, log: Log) -> None:
    """Raise Unresolved where a version serves a card or a CUDA major not."""
    entries = []
    if last and not numeric_version.at_least(last["last"], version):
        card = min(machine.cards, key=lambda each: numeric_version.key(each.compute_capability or "99"))
        old_card = f"the {card.name} (compute capability {card.compute_capability})"
        who = old_card if last.get("below_compute_capability") else f"CUDA {last['cuda_major']}"
        text = f"cuDNN {version} does not serve {who} any more, {last['last']} was the last that did"
        entries.append(conflict("cudnn.ceiling", text, log.cite("cudnn", last), f"use cudnn={last['last']}"))
    for row in log.rules["cudnn"]["floors"]:
        for_card = row.get("from_compute_capability")
        needed = row.get("cuda_major") in majors or (
            for_card and any(numeric_version.at_least(each, for_card) for each in _capabilities(machine))
        )
        if needed and not numeric_version.at_least(version, row["first"]):
            who = (
                f"CUDA {row['cuda_major']}" if row.get("cuda_major") else f"cards from compute capability {for_card} on"
            )
            text = f"cuDNN {version} does not serve {who}, {row['first']} is the first that does"
            entries.append(
                conflict(
                    "cudnn.floor", text, log.cite("cudnn", row), f"use cudnn={row['first']}, or leave the version out"
                )
            )
    if entries:
        raise Unresolved(*entries)


def _as_locked(found: Cudnn) -> LockCudnn:
    """Return cuDNN as a lock has it: of archives their names, in which their versions and CUDA major versions are."""
    row: LockCudnn = {"version": found["version"], "packages": found["packages"]}
    archives = [each["name"] for each in found.get("archives") or ()]
    return {**row, "source": part.ARCHIVE, "archives": archives} if archives else row


def _wants(found: LockCudnn) -> Iterator[str]:
    # Archives of several versions are each the newest for its toolkit: no one version could be wished.
    several = len({name.partition("_cuda")[0] for name in found.get("archives") or ()}) > 1
    yield f"cudnn={found['version']}" if found["version"] and not several else "cudnn"
    if found.get("source"):
        yield f"cudnn-source={found['source']}"


def _exactly(found: Cudnn, stack: Stack, machine: Machine, rules: Rules) -> LockCudnn:
    exact = cast("Cudnn", _LIBRARY.exactly(found, stack, machine, rules))
    return _as_locked(exact)


_LIBRARY = part.library("cudnn", "cuDNN", part.PACKAGED, lambda rules: rules["cudnn"]["versions"])
PART = replace(
    _LIBRARY,
    shape={**part.PACKAGED, "source?": str, "archives?": [str]},
    wants=_wants,
    exactly=_exactly,
    as_locked=_as_locked,
)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""cuDNN as packages, for those who compile against it; wheels bring their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....model.stack import Stack
from ....resolver import part
from ....resolver.log import Log, Unresolved, conflict, offered
from ....resolver.machine import Machine
from ....resolver.naming import component, names
from ....rules import Row, Rules, cite
from ....wish.wish import Wish
from ..model import Cudnn
from .library_archive import Archives, Published


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


def beside_wheels(stack: Stack, log: Log) -> None:
    """Warn where the wheels of a framework would load a part of the machine's cuDNN, which is of another build."""
    there = stack.get("cudnn")
    if there is None:
        return
    for entry in stack.get("frameworks", ()):
        row = _clash(entry["cudnn"], there["version"], log.rules)
        if row:
            text = (
                f"{entry['name']} {entry['version']} brings cuDNN {entry['cudnn']} without {row['library']} and loads that of the "
                f"machine's cuDNN {there['version'] or '(the newest)'}: {row['text']}; ask for cudnn={entry['cudnn']}, or leave cuDNN out"
            )
            log.warn("cudnn.beside-wheels", text, log.cite("cudnn", row))


def _clash(wheel: str | None, there: str | None, rules: Rules) -> Row | None:
    """Return why a wheel's build does not go with the machine's, None being the newest of the index."""
    at_least = numeric_version.at_least
    rows: list[Row] = rules["cudnn"]["clashes"] if wheel and wheel != there else []
    of_wheel = (
        row for row in rows if wheel and at_least(wheel, row["wheel_from"]) and at_least(row["wheel_to"], wheel)
    )
    return next((row for row in of_wheel if there is None or at_least(there, row["system_from"])), None)


def _published(rules: Rules) -> Iterator[Published]:
    for row in rules["cudnn"]["archives"]:
        for arch in _ARCH:
            yield _archive(row["version"], row["cuda_major"], arch, row[arch], cite(rules, "cudnn", row))


def _archive(version: str, major: str, arch: str, sha256: str, source: str = "the wish") -> Published:
    """Return an archive of cuDNN: its name follows from what it is."""
    folder = f"linux-{_ARCH[arch]}"
    place = f"cudnn/{folder}/cudnn-{folder}-{version}_cuda{major}-archive.tar.xz"
    return Published(version, major, arch, place, sha256, source)


def _serves(version: str, major: str, machine: Machine, rules: Rules) -> bool:
    capabilities = _capabilities(machine)
    lasts = [row["last"] for row in limits(capabilities, [major], rules["cudnn"]["ceilings"])]
    firsts = [
        row["first"]
        for row in rules["cudnn"]["floors"]
        if row.get("cuda_major") == major
        or any(numeric_version.at_least(each, row.get("from_compute_capability") or "99") for each in capabilities)
    ]
    return all(numeric_version.at_least(last, version) for last in lasts) and all(
        numeric_version.at_least(version, first) for first in firsts
    )


#: What an architecture is called in the names of archives.
_ARCH = {"x86_64": "x86_64", "aarch64": "sbsa"}
ARCHIVES = Archives(
    "cudnn", "cuDNN", "compat/cudnn.yaml (archives)", "nvidia-redist-cudnn", _published, _serves, given=_archive
)
PART = part.library("cudnn", "cuDNN", lambda rules: rules["cudnn"]["versions"])

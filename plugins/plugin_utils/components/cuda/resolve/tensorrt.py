# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""TensorRT as packages. Each generation has names of its own, and drops cards that the one before it served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import part
from ....resolver.log import Entry, Log, Unresolved, conflict, offered
from ....resolver.machine import Card, Machine
from ....resolver.naming import component, names
from ....rules import Row, Rules, cite
from ....wish.wish import Wish
from ..model import TensorRt
from .library_archive import Archives, Published


def choose(machine: Machine, wish: Wish, system: Row, cuda_versions: Sequence[str], log: Log) -> TensorRt:
    """Return version (None: the newest of its generation in the index), packages and the CUDA major they are built for.

    The newest release that serves every card and has packages for CUDA is taken. Raises Unresolved.
    """
    major = max((numeric_version.major(cuda) for cuda in cuda_versions), key=int)
    row = _release(machine, wish.tensorrt_version, major, log)
    package = _packages(row, log)
    limited = wish.tensorrt_version is None and row is not _newest(numeric_version.major(row["version"]), log)
    version = wish.tensorrt_version or (row["version"] if limited else None)
    _explain(row, version, limited, wish, major, log)
    return {
        "version": version,
        "generation": numeric_version.major(row["version"]),
        "packages": names(package, system),
        "cuda": major,
    }


def _release(machine: Machine, asked: str | None, major: str, log: Log) -> Row:
    """Return the newest release that fits, or raise Unresolved with the reasons of the newest that came nearest."""
    rows = [row for row in _published(log) if asked in (None, row["version"])]
    nearest: list[Entry] = []
    for row in reversed(rows):
        reasons = [*_obstacles(row, machine.cards, major, log), *_absent(row, machine)]
        if not reasons:
            return row
        if not nearest or len(reasons) < len(nearest):
            nearest = reasons
    raise Unresolved(*(_pair(machine.cards, major, log) if asked is None else []) or nearest)


def _published(log: Log) -> list[Row]:
    """Return the releases that packages are known for, oldest first; the wheels' post-releases are none."""
    rows: list[Row] = log.rules["libraries"]["tensorrt"]
    known = {each["what"] for each in log.rules["packages"]["components"]}
    return [
        row
        for row in rows
        if f"tensorrt{numeric_version.major(row['version'])}" in known and ".post" not in row["version"]
    ]


def _newest(generation: str, log: Log) -> Row:
    return next(row for row in reversed(_published(log)) if numeric_version.major(row["version"]) == generation)


def _packages(row: Row, log: Log) -> Row:
    return component(f"tensorrt{numeric_version.major(row['version'])}", log.rules)


def _obstacles(row: Row, cards: Sequence[Card], major: str, log: Log) -> list[Entry]:
    """Return why a release does not do: cards it does not serve, a CUDA major it has no packages for."""
    entries = []
    for card in cards:
        if not _serves(row, card, log.rules):
            text = f"TensorRT {row['version']} does not serve the {card.name} (compute capability {card.compute_capability})"
            remedy = "leave the version out: the newest that serves the card is taken then"
            entries.append(conflict("tensorrt.card", text, log.cite("libraries", row), remedy))
    package = _packages(row, log)
    majors = [each for each in row["deb_cuda"] or row["cuda"] if each in package["cuda_majors"]]
    if major not in majors:
        text = f"TensorRT {row['version']} has packages for CUDA {', '.join(majors)}, not for CUDA {major}"
        entries.append(conflict("tensorrt.cuda", text, log.cite("packages", package), "use another CUDA version"))
    return entries


def _absent(row: Row, machine: Machine) -> list[Entry]:
    there = machine.absent.get(f"tensorrt={row['version']}")
    if there is None:
        return []
    text = f"the machine's package index has no TensorRT {row['version']}{offered(there)}"
    remedy = "use a mirror that carries it, or leave TensorRT out"
    return [conflict("tensorrt.absent", text, "the machine's package index", remedy)]


def _serves(row: Row, card: Card, rules: Rules) -> bool:
    """Say whether a release serves a card: by its own row, and by what is known of a span of releases."""
    capability = card.compute_capability
    return capability is None or all(_spans(each, capability) for each in (row, *_limits(row["version"], rules)))


def _limits(version: str, rules: Rules) -> list[Row]:
    rows: list[Row] = rules["libraries"]["limits"]
    return [
        row
        for row in rows
        if row["library"] == "tensorrt"
        and (row["from_version"] is None or numeric_version.at_least(version, row["from_version"]))
        and (row["to_version"] is None or numeric_version.at_least(row["to_version"], version))
    ]


def _spans(row: Row, capability: str) -> bool:
    oldest, newest = row["min_compute_capability"], row["max_compute_capability"]
    return (oldest is None or numeric_version.at_least(capability, oldest)) and (
        newest is None or numeric_version.at_least(newest, capability)
    )


def _pair(cards: Sequence[Card], major: str, log: Log) -> list[Entry]:
    """Return the clash of the first two cards of a machine that no release serves together, each served by some."""
    served = {
        card: {row["version"] for row in _published(log) if not _obstacles(row, [card], major, log)} for card in cards
    }
    for index, one in enumerate(cards):
        for other in cards[index + 1 :]:
            if served[one] and served[other] and not served[one] & served[other]:
                text = f"no release of TensorRT for CUDA {major} serves both the {one.name} and the {other.name}"
                remedy = f"leave one card unmanaged: gpuwright_gpus_ignore: ['{other.name}'], or ['{one.name}']"
                return [conflict("tensorrt.cards", text, "compat/libraries.yaml (tensorrt)", remedy)]
    return []


def _explain(row: Row, version: str | None, limited: bool, wish: Wish, major: str, log: Log) -> None:
    if wish.tensorrt_version:
        text = f"TensorRT {version} for CUDA {major}: asked for"
    elif limited:
        text = f"TensorRT {version}: the last that serves every card and CUDA {major}"
    else:
        text = f"TensorRT {numeric_version.major(row['version'])}: the newest of the package index for CUDA {major}"
    log.decided("tensorrt.version", text, log.cite("libraries", row))
    package = _packages(row, log)
    if not (row["confirmed"] and package["confirmed"]):
        log.warn(
            "tensorrt.unconfirmed",
            f"what is known of TensorRT {row['version']} is not confirmed",
            log.cite("packages", package),
        )


def _published_archives(rules: Rules) -> Iterator[Published]:
    for row in rules["libraries"]["tensorrt_archives"]:
        version = row["version"]
        yield Published(
            version,
            numeric_version.major(row["cuda"]),
            row["arch"],
            f"{'.'.join(version.split('.')[:3])}/tars/{row['name']}",
            row["sha256"],
            cite(rules, "libraries", row),
            row["size"],
            _is_confirmed(version, rules),
        )


def _is_confirmed(version: str, rules: Rules) -> bool:
    return all(row["confirmed"] for row in _releases(version, rules))


def _releases(version: str, rules: Rules) -> list[Row]:
    return [row for row in rules["libraries"]["tensorrt"] if row["version"] == version]


def _serves_all(version: str, major: str, machine: Machine, rules: Rules) -> bool:
    """Say whether a version serves a CUDA major version, as all of its forms together do, and every card."""
    return any(
        major in row["cuda"] and all(_serves(row, card, rules) for card in machine.cards)
        for row in _releases(version, rules)
    )


ARCHIVES = Archives(
    "tensorrt",
    "TensorRT",
    "compat/libraries.yaml (tensorrt_archives)",
    "nvidia-tensorrt",
    _published_archives,
    _serves_all,
)
PART = part.library("tensorrt", "TensorRT", lambda rules: rules["libraries"]["tensorrt"])

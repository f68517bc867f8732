# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CUDA toolkits: which versions, and how the driver runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import dotted

from ..model.lock import LockToolkit
from ..model.stack import CudaToolkit, Stack
from ..rules import Row, Rules
from ..wish import Wish
from . import compilers, targets
from .log import Entry, Log, Unresolved, conflict, offered
from .naming import component
from .part import CUDA_SOURCE, Part
from .power import Power, native_floor
from .situation import Card, Situation

#: Where no wish near to it can be met; else that one is named.
ANOTHER = "use another CUDA version"


def choose(situation: Situation, wish: Wish, system: Row, power: Power, log: Log) -> list[CudaToolkit]:
    """Return the toolkits of the stack, one for each version that was asked for; the best one for none.

    Raises Unresolved with every reason.
    """
    wanted = wish.cuda_versions or (None,)
    chosen = [_one(version, situation, system, power, log) for version in wanted]
    return list({entry["version"]: entry for entry in chosen}.values())


def best(wanted: str | None, situation: Situation, system: Row, power: Power, log: Log) -> str:
    """Return the toolkit version (12.8) that fits best: native before minor-version, then the newest native one, or
    the one nearest to native. Raises Unresolved where none fits.
    """
    remedy = _newest_for(situation, log)
    reasons = {cuda: _obstacles(cuda, remedy, situation, system, power, log) for cuda in _versions(wanted, log)}
    usable = [cuda for cuda, entries in reasons.items() if not entries]
    if wanted is None:
        usable = [cuda for cuda in usable if compilers.compiles(cuda, situation, log.rules)]
    # What is not confirmed is taken only where nothing else is left.
    fitting = [cuda for cuda in usable if _confirmed(cuda, log)] or usable
    if not fitting:
        raise Unresolved(*(_pair(situation.cards, log) or _nearest(wanted, reasons, situation, power, log)))
    native = [cuda for cuda in fitting if power.mode(cuda, log.rules) == "native"]
    if native:
        return max(native, key=dotted.key)
    return max(fitting, key=dotted.key) if wanted else min(fitting, key=lambda cuda: _distance(cuda, power))


def _obstacles(cuda: str, instead: str, situation: Situation, system: Row, power: Power, log: Log) -> list[Entry]:
    """Return why a toolkit cannot be used on a machine; instead is the remedy where it has no code for a card."""
    entries = []
    row = targets.toolkit_targets(cuda, log.rules)
    source = log.cite("cuda", row) if row else "compat/cuda.yaml (targets)"
    for card in targets.toolkit_lacks(cuda, situation.cards, log.rules):
        text = f"CUDA {cuda} has no code for the {card.name} (compute capability {card.compute_capability})"
        entries.append(conflict("cuda.card", text, source, instead))
    if power.mode(cuda, log.rules) is None:
        floor = native_floor(cuda, log.rules)
        text = f"CUDA {cuda} does not run on the driver chosen, which brings CUDA {power.cuda} (native from {floor} on)"
        entries.append(
            conflict("cuda.driver", text, "compat/cuda.yaml (families)", "use a newer driver, or an older CUDA")
        )
    if not dotted.at_least(cuda, system["cuda_first"]):
        text = f"NVIDIA's repository for {system['os']} begins at CUDA {system['cuda_first']}, it has no {cuda}"
        # What is to be had elsewhere is no way out where the toolkit would not work here.
        where = None if entries else _elsewhere(cuda, situation, system, log)
        entries.append(conflict("cuda.repository", text, log.cite("systems", system), where or ANOTHER))
    if f"cuda={cuda}" in situation.absent:
        text = f"the machine's package index has no CUDA toolkit {cuda}{offered(situation.absent[f'cuda={cuda}'])}"
        entries.append(conflict("cuda.absent", text, "the machine's package index", ANOTHER))
    return entries


def _elsewhere(cuda: str, situation: Situation, system: Row, log: Log) -> str | None:
    """Return where else a toolkit is to be had: another system's repository, NVIDIA's file, an image of containers."""
    rows = log.rules["systems"]["rows"]
    kin = (row["os"] for row in rows if row["id"] == system["id"] and dotted.at_least(cuda, row["cuda_first"]))
    ways = [f"NVIDIA's repository for {name}" for name in list(kin)[-1:]]
    row = next((each for each in log.rules["cuda"]["elsewhere"] if each["cuda"] == cuda), None)
    if row and situation.arch in row["arch"]:
        suffix = "_sbsa" if situation.arch == "aarch64" else ""
        file = f"cuda_{row['release']}_{row['driver']}_linux{suffix}.run"
        ways.append(f"NVIDIA's file {file} (with --toolkit, which leaves the driver alone)")
    if row and row["image"] and situation.arch == "x86_64":
        ways.append(f"the container image {row['image']}")
    return f"CUDA {cuda} is still to be had in {', in '.join(ways)}" if ways else None


def _one(version: str | None, situation: Situation, system: Row, power: Power, log: Log) -> CudaToolkit:
    cuda = best(version, situation, system, power, log)
    mode = power.mode(cuda, log.rules)
    major, minor = cuda.split(".")[:2]
    row = component("cuda", log.rules)
    fill = {"{major}": major, "{minor}": minor}
    packages = [_filled(name, fill) for name in row["packages"]]
    entry: CudaToolkit = {"version": cuda, "mode": mode, "packages": packages, "path": _filled(row["path"], fill)}
    if version and len(dotted.key(version)) > 2:
        entry["release"] = version
    _explain(entry, version, power, situation, system, log)
    return entry


def _filled(text: str, fill: dict[str, str]) -> str:
    for name, value in fill.items():
        text = text.replace(name, value)
    return text


def _explain(
    entry: CudaToolkit, version: str | None, power: Power, situation: Situation, system: Row, log: Log
) -> None:
    cuda = entry["version"]
    rows = [row for row in log.rules["cuda"]["rows"] if row["cuda"] == cuda]
    citation = log.cite("cuda", rows[0])
    why = "asked for" if version else "the newest that the driver brings in full and that has code for every card"
    if not version and entry["mode"] != "native":
        why = "the nearest to the driver that this machine can use"
    log.decided("cuda.version", f"CUDA {cuda}: {why}", citation)
    if entry["mode"] == "minor-version":
        text = f"CUDA {cuda} runs in minor-version mode: the driver brings CUDA {power.cuda}, what is new since and its PTX do not work"
        log.warn("cuda.minor-version", text, log.cite("cuda", log.rules["cuda"]["families"][0]))
    if not _confirmed(cuda, log):
        log.warn("cuda.unconfirmed", f"what is known of CUDA {cuda} is not confirmed", citation)
    compilers.warn(cuda, situation, system, log)
    for doubt in log.rules["systems"]["doubts"]:
        if (doubt["os"], doubt["what"], doubt["version"]) == (situation.os, "cuda", cuda):
            log.warn("repository.doubt", doubt["text"], log.cite("systems", doubt))


def _versions(wanted: str | None, log: Log) -> list[str]:
    """Return the minor versions that a wish such as 12, 12.8 or 12.8.1 means, all for none; oldest first."""
    rows = log.rules["cuda"]["rows"]
    return list(dict.fromkeys(row["cuda"] for row in rows if wanted is None or dotted.belongs(row["release"], wanted)))


def _confirmed(cuda: str, log: Log) -> bool:
    return any(row["confirmed"] for row in log.rules["cuda"]["rows"] if row["cuda"] == cuda)


def _distance(cuda: str, power: Power) -> tuple[bool, tuple[int, ...]]:
    return dotted.major(cuda) != dotted.major(power.cuda), dotted.key(cuda)


def _newest_for(situation: Situation, log: Log) -> str:
    usable = targets.toolkits_for(situation.cards, log.rules)
    return f"use cuda={usable[-1]}" if usable else "leave the toolkit out"


def _pair(all_cards: Sequence[Card], log: Log) -> list[Entry]:
    """Return the clash of the first two cards of a machine that no toolkit has code for together."""
    cards = list({card.name: card for card in all_cards}.values())
    for index, one in enumerate(cards):
        for other in cards[index + 1 :]:
            alone = targets.toolkits_for([one], log.rules) and targets.toolkits_for([other], log.rules)
            if alone and not targets.toolkits_for([one, other], log.rules):
                text = (
                    f"no CUDA toolkit has code for both the {one.name} (compute capability {one.compute_capability}) "
                    f"and the {other.name} ({other.compute_capability})"
                )
                remedy = f"leave one card unmanaged: gpuwright_gpus_ignore: ['{other.name}'], or ['{one.name}']"
                return [conflict("cuda.cards", text, "compat/cuda.yaml (targets)", remedy)]
    return []


def _nearest(
    wanted: str | None, reasons: dict[str, list[Entry]], situation: Situation, power: Power, log: Log
) -> list[Entry]:
    """Return the reasons of the version that came nearest; for no wish those of the newest that the driver runs and
    of the newest that has code for every card.
    """
    named = [cuda for cuda, entries in reasons.items() if entries]
    if not named:
        text = "no CUDA toolkit is both confirmed and usable with this machine's C library"
        return [conflict("cuda.none", text, "compat/systems.yaml (glibc)", "ask for a version by name: cuda=12.9")]
    if wanted is not None:
        return reasons[min(named, key=lambda cuda: (len(reasons[cuda]), tuple(-number for number in dotted.key(cuda))))]
    runs = [cuda for cuda in named if power.mode(cuda, log.rules) == "native"]
    coded = [cuda for cuda in targets.toolkits_for(situation.cards, log.rules) if cuda in named]
    chosen = dict.fromkeys([*runs[-1:], *coded[-1:]] or named[-1:])
    return [entry for cuda in chosen for entry in reasons[cuda]]


def _wants(toolkits: Sequence[LockToolkit]) -> Iterator[str]:
    for toolkit in toolkits:
        yield f"cuda={toolkit['release'] or toolkit['version']}"


def _exactly(
    toolkits: Sequence[CudaToolkit], _stack: Stack, _situation: Situation, rules: Rules
) -> list[dict[str, object]]:
    return [
        {**toolkit, "release": toolkit.get("release") or _release(toolkit["version"], rules)} for toolkit in toolkits
    ]


def _release(cuda: str, rules: Rules) -> str | None:
    """Return the newest release (12.8.1) of a CUDA version (12.8); None where only its first two numbers are known.

    A release whose row is not confirmed counts: what is not confirmed there is its driver, not that it exists.
    """
    found = [row["release"] for row in rules["cuda"]["rows"] if row["cuda"] == cuda]
    newest = max(found, key=dotted.key, default="")
    return newest if len(dotted.key(newest)) > 2 else None


PART = Part(
    "cuda",
    "CUDA toolkit",
    [{"version": str, "release": (str, type(None)), "packages": [str]}],
    _wants,
    _exactly,
    is_open=lambda toolkit: not toolkit["release"],
    source=CUDA_SOURCE,
    left_out=("jetson",),
)

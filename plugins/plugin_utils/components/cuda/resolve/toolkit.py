# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CUDA toolkits: which versions, and how the driver runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....model.lock import LockToolkit
from ....model.stack import Stack
from ....resolver import targets
from ....resolver.log import DESIGN, Entry, Log, Unresolved, conflict, offered
from ....resolver.machine import Card, Machine
from ....resolver.naming import component
from ....resolver.part import CUDA_SOURCE, DISTRO, RUNFILE, Part
from ....rules import Row, Rules
from ....wish.wish import Wish
from ..model import CudaToolkit
from ..wish import KEEP
from . import compilers
from . import distro as cuda_distro
from . import runfile as cuda_runfile
from .support import CudaSupport, native_floor

#: Where no wish near to it can be met; else that one is named.
ANOTHER = "use another CUDA version"


def choose(machine: Machine, wish: Wish, system: Row, support: CudaSupport, log: Log) -> list[CudaToolkit]:
    """Return the toolkits of the stack, one for each version that was asked for; the best one for none.

    Raises Unresolved with every reason.
    """
    wanted = wish.cuda_versions or (None,)
    if wish.cuda_source == RUNFILE:
        cuda_runfile.refuse_several(wanted, wish)
    chosen = [_one(version, machine, wish, system, support, log) for version in wanted]
    toolkits = list({entry["version"]: entry for entry in chosen}.values())
    default = _default(toolkits, wish) if wish.cuda_source != DISTRO else None
    if default:
        default["default"] = True
    if wish.cuda_modulefiles:
        _add_modulefiles(toolkits, machine)
    return toolkits


def _default(toolkits: Sequence[CudaToolkit], wish: Wish) -> CudaToolkit | None:
    """Return the toolkit that /usr/local/cuda has to be: the newest of the version that is asked for; None where it is left alone.

    Raises Unresolved where no toolkit of that version is wished.
    """
    asked = wish.cuda_default
    if asked == KEEP:
        return None
    fitting = [entry for entry in toolkits if not asked or _is_of(entry, asked)]
    if not fitting:
        there = ", ".join(entry["version"] for entry in toolkits)
        text = f"/usr/local/cuda is to be CUDA {asked}, and the toolkits that are wished are {there}"
        remedy = f"name it among the toolkits too (cuda={asked}), or ask for one of these (cuda_default: {toolkits[0]['version']})"
        raise Unresolved(conflict("cuda.default", text, DESIGN, remedy))
    return max(fitting, key=lambda entry: numeric_version.key(entry["version"]))


def _is_of(entry: CudaToolkit, asked: str) -> bool:
    """Say whether a toolkit is of a version such as 12, 12.8 or 12.8.1."""
    version = entry["version"]
    return numeric_version.belongs(version, asked) or numeric_version.belongs(asked, version)


def _add_modulefiles(toolkits: Sequence[CudaToolkit], machine: Machine) -> None:
    """Put into each toolkit where its modulefiles are. Of a machine that nobody looked at that is not known.

    Raises Unresolved where no module system is installed that would read them.
    """
    if machine.module_directories == ():
        text = (
            "modulefiles are wished, and neither environment-modules nor Lmod is installed as the system packages them"
        )
        remedy = "install the package environment-modules or lmod (EPEL: Lmod), or leave cuda_modulefiles out"
        raise Unresolved(conflict("cuda.modulefiles", text, "the machine's facts", remedy))
    for entry in toolkits:
        entry["modulefiles"] = [f"{place}/cuda/{entry['version']}" for place in machine.module_directories or ()]


def best(wanted: str | None, machine: Machine, wish: Wish, system: Row, support: CudaSupport, log: Log) -> str:
    """Return the toolkit version (12.8) that fits best: native before minor-version, then the newest native one, or
    the one nearest to native. Raises Unresolved where none fits.
    """
    remedy = _newest_for(machine, log)

    def obstacles(cuda: str) -> list[Entry]:
        entries = _obstacles(cuda, remedy, machine, support, log)
        if wish.cuda_source == RUNFILE:
            return entries + cuda_runfile.obstacles(cuda, wanted, machine, wish, system, log.rules)
        if wish.cuda_source == DISTRO:
            own = cuda_distro.version(machine.os, log.rules)
            fits = own is not None and not _obstacles(own, remedy, machine, support, log)
            return entries + cuda_distro.obstacles(cuda, wanted, machine, wish, log.rules, fits=fits)
        # What is to be had elsewhere is no way out where the toolkit would not work here.
        return entries + _lacking(cuda, machine, system, log, named=not entries)

    versions = _versions(wanted, log)
    if wanted is None and wish.cuda_source == DISTRO:
        # One reason each: no other version could be had there.
        versions = [cuda_distro.version(machine.os, log.rules) or versions[-1]]
    reasons = {cuda: obstacles(cuda) for cuda in versions}
    if wanted is None and wish.cuda_source != DISTRO:
        reasons = {cuda: entries or _not_compiling(cuda, machine, log) for cuda, entries in reasons.items()}
    usable = [cuda for cuda, entries in reasons.items() if not entries]
    # What is not confirmed is taken only where nothing else is left.
    fitting = [cuda for cuda in usable if _confirmed(cuda, log)] or usable
    if not fitting:
        raise Unresolved(*(_pair(machine.cards, log) or _nearest(wanted, reasons, machine, support, log)))
    native = [cuda for cuda in fitting if support.mode(cuda, log.rules) == "native"]
    if native:
        return max(native, key=numeric_version.key)
    return max(fitting, key=numeric_version.key) if wanted else min(fitting, key=lambda cuda: _distance(cuda, support))


def _obstacles(cuda: str, instead: str, machine: Machine, support: CudaSupport, log: Log) -> list[Entry]:
    """Return why a toolkit cannot be used on a machine; instead is the remedy where it has no code for a card."""
    entries = []
    row = targets.toolkit_targets(cuda, log.rules)
    source = log.cite("cuda", row) if row else "compat/cuda.yaml (targets)"
    for card in targets.toolkit_lacks(cuda, machine.cards, log.rules):
        text = f"CUDA {cuda} has no code for the {card.name} (compute capability {card.compute_capability})"
        last = numeric_version.highest(*targets.toolkits_for([card], log.rules))
        if last and not numeric_version.at_least(last, cuda):
            text += f"; {last} is the last that has"
        entries.append(conflict("cuda.card", text, source, instead))
    if support.mode(cuda, log.rules) is None:
        floor = native_floor(cuda, log.rules)
        text = (
            f"CUDA {cuda} does not run on the driver chosen, which brings CUDA {support.cuda} (native from {floor} on)"
        )
        entries.append(
            conflict("cuda.driver", text, "compat/cuda.yaml (families)", "use a newer driver, or an older CUDA")
        )
    return entries


def _not_compiling(cuda: str, machine: Machine, log: Log) -> list[Entry]:
    """Return why a toolkit that nobody names is not taken: it compiles nothing here. Who names it gets it, and a warning."""
    return [
        conflict(
            "cuda.glibc",
            f"CUDA {cuda} on glibc {machine.glibc}: {limit['text']}",
            log.cite("systems", limit),
            f"ask for cuda={cuda} (what is compiled already runs with it)",
        )
        for limit in compilers.glibc_limits(cuda, machine, log.rules)
    ]


def _lacking(cuda: str, machine: Machine, system: Row, log: Log, *, named: bool) -> list[Entry]:
    """Return why NVIDIA's repository has no toolkit for a machine; ``named``: with where else it is to be had."""
    entries = []
    if not numeric_version.at_least(cuda, system["cuda_first"]):
        text = f"NVIDIA's repository for {system['os']} begins at CUDA {system['cuda_first']}, it has no {cuda}"
        where = _elsewhere(cuda, machine, system, log) if named else None
        entries.append(conflict("cuda.repository", text, log.cite("systems", system), where or ANOTHER))
    if f"cuda={cuda}" in machine.absent:
        text = f"the machine's package index has no CUDA toolkit {cuda}{offered(machine.absent[f'cuda={cuda}'])}"
        entries.append(conflict("cuda.absent", text, "the machine's package index", ANOTHER))
    return entries


def _elsewhere(cuda: str, machine: Machine, system: Row, log: Log) -> str | None:
    """Return where else a toolkit is to be had: another system's repository, NVIDIA's file, an image of containers."""
    rows = log.rules["systems"]["rows"]
    kin = (row["os"] for row in rows if row["id"] == system["id"] and numeric_version.at_least(cuda, row["cuda_first"]))
    ways = [f"NVIDIA's repository for {name}" for name in list(kin)[-1:]]
    row = next((each for each in log.rules["cuda"]["elsewhere"] if each["cuda"] == cuda), None)
    if row and machine.arch in row["arch"]:
        suffix = "_sbsa" if machine.arch == "aarch64" else ""
        file = f"cuda_{row['release']}_{row['driver']}_linux{suffix}.run"
        known = row["release"] in cuda_runfile.checked(machine, log.rules)
        how = "cuda-source=runfile" if known else "with --toolkit, which leaves the driver alone"
        ways.append(f"NVIDIA's file {file} ({how})")
    if row and row["image"] and machine.arch == "x86_64":
        ways.append(f"the container image {row['image']}")
    return f"CUDA {cuda} is still to be had in {', in '.join(ways)}" if ways else None


def _one(version: str | None, machine: Machine, wish: Wish, system: Row, support: CudaSupport, log: Log) -> CudaToolkit:
    cuda = best(version, machine, wish, system, support, log)
    mode = support.mode(cuda, log.rules)
    if wish.cuda_source == DISTRO:
        entry = cuda_distro.of_toolkit(cuda, mode, machine, log)
        if version and len(numeric_version.key(version)) > 2:
            entry["release"] = version
        _explain(entry, version, support, machine, system, log)
        return entry
    major, minor = cuda.split(".")[:2]
    row = component("cuda", log.rules)
    fill = {"{major}": major, "{minor}": minor}
    packages = [_filled(name, fill) for name in row["packages"]]
    entry = {"version": cuda, "mode": mode, "packages": packages, "path": _filled(row["path"], fill)}
    if version and len(numeric_version.key(version)) > 2:
        entry["release"] = version
    if wish.cuda_source == RUNFILE:
        entry["source"] = RUNFILE
        entry["runfile"] = cuda_runfile.of_toolkit(cuda, version, machine, wish, log.rules)
        entry["packages"] = cuda_runfile.packages(system, log.rules)
        text = f"CUDA {cuda} comes from NVIDIA's file {entry['runfile']['name']}, without its driver"
        log.decided("cuda.runfile", text, "compat/cuda_runfile.yaml (files)")
    else:
        entry["compiler"] = _filled(row["compiler"], fill)
    compiler = compilers.host_compiler(cuda, machine, system, log.rules)
    if compiler:
        entry["host_compiler"] = compiler
    _explain(entry, version, support, machine, system, log)
    return entry


def _filled(text: str, fill: dict[str, str]) -> str:
    for name, value in fill.items():
        text = text.replace(name, value)
    return text


def _explain(
    entry: CudaToolkit, version: str | None, support: CudaSupport, machine: Machine, system: Row, log: Log
) -> None:
    cuda = entry["version"]
    rows = [row for row in log.rules["cuda"]["rows"] if row["cuda"] == cuda]
    citation = log.cite("cuda", rows[0])
    distro = entry.get("source") == DISTRO
    why = "asked for" if version else "the newest that the driver brings in full and that has code for every card"
    if distro and not version:
        why = "the one that the archive has"
    elif not version and entry["mode"] != "native":
        why = "the nearest to the driver that this machine can use"
    log.decided("cuda.version", f"CUDA {cuda}: {why}", citation)
    if entry["mode"] == "minor-version":
        text = f"CUDA {cuda} runs in minor-version mode: the driver brings CUDA {support.cuda}, what is new since and its PTX do not work"
        log.warn("cuda.minor-version", text, log.cite("cuda", log.rules["cuda"]["families"][0]))
    if not _confirmed(cuda, log):
        log.warn("cuda.unconfirmed", f"what is known of CUDA {cuda} is not confirmed", citation)
    if not distro:
        unable = compilers.warn(cuda, machine, system, log)
        if unable:
            entry["unable"] = "; ".join(unable)
    capabilities = {card.compute_capability for card in machine.cards if card.compute_capability}
    entry["capabilities"] = sorted(capabilities, key=numeric_version.key)
    for doubt in log.rules["systems"]["doubts"]:
        if (doubt["os"], doubt["what"], doubt["version"]) == (machine.os, "cuda", cuda):
            log.warn("repository.doubt", doubt["text"], log.cite("systems", doubt))


def _versions(wanted: str | None, log: Log) -> list[str]:
    """Return the minor versions that a wish such as 12, 12.8 or 12.8.1 means, all for none; oldest first."""
    rows = log.rules["cuda"]["rows"]
    return list(
        dict.fromkeys(row["cuda"] for row in rows if wanted is None or numeric_version.belongs(row["release"], wanted))
    )


def _confirmed(cuda: str, log: Log) -> bool:
    return any(row["confirmed"] for row in log.rules["cuda"]["rows"] if row["cuda"] == cuda)


def _distance(cuda: str, support: CudaSupport) -> tuple[bool, tuple[int, ...]]:
    return numeric_version.major(cuda) != numeric_version.major(support.cuda), numeric_version.key(cuda)


def _newest_for(machine: Machine, log: Log) -> str:
    usable = targets.toolkits_for(machine.cards, log.rules)
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
    wanted: str | None, reasons: dict[str, list[Entry]], machine: Machine, support: CudaSupport, log: Log
) -> list[Entry]:
    """Return the reasons of the version that came nearest; for no wish those of the newest that the driver runs and
    of the newest that has code for every card.
    """
    named = [cuda for cuda, entries in reasons.items() if entries]
    if not named:
        text = "no CUDA toolkit is both confirmed and usable with this machine's C library"
        return [conflict("cuda.none", text, "compat/systems.yaml (glibc)", "ask for a version by name: cuda=12.9")]
    if wanted is not None:
        return reasons[
            min(named, key=lambda cuda: (len(reasons[cuda]), tuple(-number for number in numeric_version.key(cuda))))
        ]
    runs = [cuda for cuda in named if support.mode(cuda, log.rules) == "native"]
    coded = [cuda for cuda in targets.toolkits_for(machine.cards, log.rules) if cuda in named]
    chosen = dict.fromkeys([*runs[-1:], *coded[-1:]] or named[-1:])
    return [entry for cuda in chosen for entry in reasons[cuda]]


def _wants(toolkits: Sequence[LockToolkit]) -> Iterator[str]:
    for toolkit in toolkits:
        yield f"cuda={toolkit['release'] or toolkit['version']}"
    # All of them come from one.
    yield from dict.fromkeys(f"cuda-source={toolkit['source']}" for toolkit in toolkits if toolkit.get("source"))


def _exactly(toolkits: Sequence[CudaToolkit], _stack: Stack, machine: Machine, rules: Rules) -> list[dict[str, object]]:
    return [{**toolkit, "release": _exact(toolkit, machine, rules)} for toolkit in toolkits]


def _exact(toolkit: CudaToolkit, machine: Machine, rules: Rules) -> str | None:
    """Return the release that a toolkit will be; a file and a distribution's archive have one alone."""
    if "runfile" in toolkit:
        return toolkit["runfile"]["release"]
    if toolkit.get("source") == DISTRO:
        return cuda_distro.release(machine.os, rules)
    return toolkit.get("release") or _release(toolkit["version"], rules)


def _release(cuda: str, rules: Rules) -> str | None:
    """Return the newest release (12.8.1) of a CUDA version (12.8); None where only its first two numbers are known.

    A release whose row is not confirmed counts: what is not confirmed there is its driver, not that it exists.
    """
    found = [row["release"] for row in rules["cuda"]["rows"] if row["cuda"] == cuda]
    newest = max(found, key=numeric_version.key, default="")
    return newest if len(numeric_version.key(newest)) > 2 else None


PART = Part(
    "cuda",
    "CUDA toolkit",
    _wants,
    _exactly,
    is_open=lambda toolkit: not toolkit["release"],
    source=CUDA_SOURCE,
    is_packaged=lambda toolkits: any("source" not in each for each in toolkits),
    left_out=("jetson",),
)

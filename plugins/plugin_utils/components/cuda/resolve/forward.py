# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Forward compatibility: CUDA of a major version newer than the driver's, by the package cuda-compat on data-centre cards.

Never unasked. With cuda-compat=auto it is taken only where nothing works without it; otherwise a conflict names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....model.stack import Stack
from ....resolver.log import Entry, Log, Unresolved, conflict
from ....resolver.machine import Card, Machine
from ....resolver.naming import component
from ....resolver.part import CUDA_SOURCE, Part
from ....rules import Row, Rules
from ....wish.wish import Wish
from ..model import CudaCompat
from .support import CudaSupport

Decide = Callable[[Machine, Wish, Rules, Log], Stack]

# Reasons that a newer driver would take away: the package brings the part of one that CUDA needs.
_OF_THE_DRIVER = ("driver.floor-cuda", "cuda.driver", "frameworks.driver")
_REMEDY = "add cuda-compat=auto, which leaves the driver as it is"


# what the rules know -----------------------------------------------------------------------------------


def base(branch: str, rules: Rules) -> Row | None:
    """Return the row of a driver branch that cuda-compat was built for."""
    rows: list[Row] = rules["cuda"]["forward"]
    return next((row for row in rows if row["branch"] == branch), None)


def versions(branch: str, cards: Iterable[Card], rules: Rules) -> tuple[str, ...]:
    """Return the CUDA versions (13.0, oldest first) that cuda-compat runs on a branch, on every one of the cards."""
    row = base(branch, rules)
    kinds = {card.kind for card in cards}
    if row is None or not kinds or not kinds <= set(row["classes"]):
        return ()
    known = dict.fromkeys(each["cuda"] for each in rules["cuda"]["rows"])
    return tuple(
        cuda
        for cuda in known
        if numeric_version.at_least(cuda, row["first"]) and numeric_version.at_least(row["last"], cuda)
    )


def package(cuda: str, rules: Rules) -> tuple[str, str]:
    """Return the name of the package for a CUDA version (13.0), and the directory of its libraries."""
    row = component("cuda-compat", rules)
    major, minor = cuda.split(".")[:2]
    name, path = (
        text.replace("{major}", major).replace("{minor}", minor) for text in (row["packages"][0], row["path"])
    )
    return name, path


# while deciding ----------------------------------------------------------------------------------------


def where_needed(decide: Decide, machine: Machine, wish: Wish, rules: Rules, log: Log) -> Stack:
    """Decide without forward compatibility; with it only where it is wished and nothing works without.

    Raises Unresolved.
    """
    if not wish.cuda_compat:
        return decide(machine, wish, rules, log)
    trial = Log(rules, trial=True)
    try:
        stack = decide(machine, replace(wish, cuda_compat=False), rules, trial)
    except Unresolved:
        return _needed(decide, machine, wish, rules, log)
    log.why += trial.why
    log.warnings += trial.warnings
    log.decided("cuda.compat", "no cuda-compat: the driver runs every CUDA that was chosen without it", "the wish")
    return stack


def extended(support: CudaSupport, machine: Machine, rules: Rules) -> CudaSupport:
    """Return what a driver runs together with cuda-compat."""
    if support.newest is None:
        return support
    return replace(support, forward=versions(numeric_version.major(support.newest), machine.cards, rules))


def lifts(cuda: str | None, branch: str, machine: Machine, rules: Rules) -> bool:
    """Say whether cuda-compat spares a branch the newer driver that a CUDA version (13, 13.0.2) needs."""
    if cuda is None:
        return False
    found = versions(branch, machine.cards, rules)
    return any(numeric_version.belongs(each, cuda) or numeric_version.belongs(cuda, each) for each in found)


def covers(stack: Stack, cuda: str) -> bool:
    """Say whether it is the stack's cuda-compat that runs a CUDA version: it then asks nothing of the driver."""
    compat = stack.get("cuda_compat")
    return compat is not None and numeric_version.major(cuda) == numeric_version.major(compat["version"])


def choose(stack: Stack, support: CudaSupport, log: Log) -> CudaCompat | None:
    """Return the package for the newest CUDA of the stack that the driver alone does not run; None where there is none."""
    chosen = [entry["version"] for entry in stack.get("cuda", ())]
    chosen += [entry["cuda"] for entry in stack.get("frameworks", ()) if entry["cuda"]]
    needed = [cuda for cuda in chosen if support.mode(cuda, log.rules) == "forward"]
    row = base(numeric_version.major(support.newest), log.rules) if support.newest else None
    if not needed or row is None:
        return None
    cuda = max(needed, key=numeric_version.key)
    name, path = package(cuda, log.rules)
    source = log.cite("cuda", row)
    log.decided("cuda.compat", f"{name}: it runs CUDA {cuda} on driver branch {row['branch']} (forward)", source)
    text = f"CUDA {cuda} runs only in programs that are started with LD_LIBRARY_PATH={path}; the machine's loader path is left alone"
    log.warn("cuda.compat-path", text, source)
    if not row["supported"]:
        text = f"NVIDIA does not support cuda-compat on branch {row['branch']} (any more): it ended, or is a new-feature branch"
        log.warn("cuda.compat-base", text, source)
    return {"version": cuda, "package": name, "path": path}


def lead(stack: Stack, support: CudaSupport, rules: Rules) -> None:
    """Name in each environment whose CUDA the driver alone does not run the directory that has to be searched first."""
    compat = stack.get("cuda_compat")
    if compat is None:
        return
    for entry in stack.get("frameworks", ()):
        if entry["cuda"] and support.mode(entry["cuda"], rules) == "forward":
            entry["loader_path"] = compat["path"]


# where nothing works -----------------------------------------------------------------------------------


def remedied(entries: Sequence[Entry], decide: Callable[[Wish], Stack], wish: Wish) -> list[Entry]:
    """Name cuda-compat in the conflicts about the driver, where it was not asked for and would solve them all."""
    mine = [entry for entry in entries if entry["rule"] in _OF_THE_DRIVER]
    if wish.cuda_compat or not mine:
        return list(entries)
    try:
        decide(replace(wish, cuda_compat=True))
    except Unresolved:
        return list(entries)
    return [{**entry, "remedy": f"{entry['remedy']}, or {_REMEDY}"} if entry in mine else entry for entry in entries]


def _needed(decide: Decide, machine: Machine, wish: Wish, rules: Rules, log: Log) -> Stack:
    try:
        return decide(machine, wish, rules, log)
    except Unresolved as error:
        if any(entry["rule"] in _OF_THE_DRIVER for entry in error.conflicts):
            raise Unresolved(*error.conflicts, *_obstacles(machine, wish, rules), stack=error.stack) from None
        raise


def _obstacles(machine: Machine, wish: Wish, rules: Rules) -> list[Entry]:
    """Return why cuda-compat does not help here."""
    source = "compat/cuda.yaml (forward)"
    instead = "use a newer driver, or an older CUDA"
    other = next((card for card in machine.cards if card.kind != "datacenter"), None)
    if other:
        text = f"cuda-compat is for data-centre cards, the {other.name} is none"
        return [conflict("cuda.compat-card", text, source, instead)]
    there = numeric_version.major(machine.driver.version) if machine.driver else None
    branch = wish.driver_branch or there
    if branch and base(branch, rules) is None:
        known = ", ".join(row["branch"] for row in rules["cuda"]["forward"])
        text = f"driver branch {branch} is no base for cuda-compat, which is known for {known}"
        return [conflict("cuda.compat-base", text, source, instead)]
    return []


def _wants(_part: CudaCompat) -> Iterator[str]:
    yield "cuda-compat=auto"


PART = Part(
    "cuda_compat",
    "forward-compatibility package",
    _wants,
    source=CUDA_SOURCE,
    left_out=("jetson",),
)

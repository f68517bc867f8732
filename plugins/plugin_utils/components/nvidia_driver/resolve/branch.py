# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which driver branch.

Every branch of a source is held against the cards, the kernel, the wish and its own end of life; of those that
pass, the preferred one is taken: not ended nor within 180 days of it, long-term before production before new-feature,
newest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, timedelta

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import cards, systems, unmanaged
from ....resolver.log import Entry, conflict, offered
from ....resolver.machine import Machine
from ....rules import Row, Rules, cite
from ....wish.wish import Wish
from ...cuda.resolve import forward
from ...cuda.resolve import support as cuda_support
from . import modules, runfile
from .candidate import Candidate

END_IS_NEAR = timedelta(days=180)
# A failure of every build is a floor that no build reaches.
_NO_BUILD = "99999"
_TYPES = {"long-term": 0, "production": 1, "new-feature": 2}


@dataclass(frozen=True)
class Floor:
    """A lowest driver build, and what asks for it; cuda is the CUDA version (13, 12.8) that does, kernel the first kernel."""

    build: str
    rule: str
    text: str
    source: str
    cuda: str | None = None
    kernel: str | None = None


def candidates(
    machine: Machine, wish: Wish, source: str, system: Row, rules: Rules
) -> tuple[list[Candidate], dict[str, list[Entry]]]:
    """Return the branches of a source that pass, best first; and for the others, by branch, every reason."""
    passed: list[Candidate] = []
    failed: dict[str, list[Entry]] = {}
    wished = wished_floors(wish, rules)
    for row, build, prebuilt in carried(source, system, rules):
        if wish.driver_branch and row["branch"] != wish.driver_branch:
            continue
        flavour, reasons = modules.choose(machine, wish, row, source, rules)
        floors = of_branch(wished, row["branch"], machine, wish, rules)
        minimum, more = _lowest(machine, wish, row, source, build, flavour, floors, rules)
        reasons += _unserved(machine, row, rules) + more + _absent(machine, row)
        if reasons or flavour is None:
            failed[row["branch"]] = reasons
        else:
            passed.append(Candidate(row, source, flavour, build, minimum, prebuilt))
    return sorted(passed, key=lambda each: _rank(each, machine.today)), failed


def lifetime(row: Row, today: date) -> str:
    """Return "alive", "ending" (within 180 days), "unknown" (no end was promised) or "ended"."""
    if not row["eol"]:
        return "unknown"
    left = date.fromisoformat(row["eol"]) - today
    if left < timedelta(0):
        return "ended"
    return "ending" if left <= END_IS_NEAR else "alive"


def order_of_life(row: Row, today: date) -> int:
    """Return 0 for a branch that lives for longer than 180 days, 2 for one that has ended, 1 for those between."""
    return {"alive": 0, "ending": 1, "unknown": 1, "ended": 2}[lifetime(row, today)]


def wished_floors(wish: Wish, rules: Rules) -> list[Floor]:
    """Return the lowest drivers that the wished CUDA versions and wheel variants need."""
    floors = []
    for version in wish.cuda_versions:
        floors += _family(version, f"CUDA {version}", rules)
    for framework in wish.frameworks:
        if framework.cuda_major:
            floors += _family(framework.cuda_major, f"{framework.name} of the variant {framework.variant}", rules)
    return floors


def of_branch(floors: list[Floor], branch: str, machine: Machine, wish: Wish, rules: Rules) -> list[Floor]:
    """Return the wished floors that hold for a branch: cuda-compat, where it is wished, spares one the newer driver."""
    if not wish.cuda_compat:
        return floors
    return [floor for floor in floors if not forward.lifts(floor.cuda, branch, machine, rules)]


def _family(cuda: str, who: str, rules: Rules) -> list[Floor]:
    row = cuda_support.family_floor(numeric_version.major(cuda), rules)
    if row is None:
        return []
    text = f"{who} needs a driver from {row['driver']} on"
    return [Floor(row["driver"], "driver.floor-cuda", text, cite(rules, "cuda", row), cuda)]


def carried(source: str, system: Row, rules: Rules) -> Iterable[tuple[Row, str | None, bool]]:
    """Yield each branch that a source carries for a system, with the build where only one is carried."""
    for row in rules["driver_branches"]["rows"]:
        if source == "runfile":
            if runfile.serves(row["branch"], rules) and _packaged(row, rules):
                yield row, None, False
            continue
        if source == "nvidia":
            if int(row["branch"]) >= int(system["nvidia_first_branch"]) and _packaged(row, rules):
                yield row, None, False
            continue
        carried = systems.distro_driver(system, row["branch"], rules)
        if carried:
            yield row, carried["build"], carried["prebuilt"]


def _packaged(row: Row, rules: Rules) -> bool:
    """Branches of which no build is known were never in the repository."""
    del rules
    return row["latest"] is not None


def _rank(candidate: Candidate, today: date) -> tuple[int, bool, int, int]:
    return (
        order_of_life(candidate.row, today),
        not candidate.row["confirmed"],
        _TYPES[candidate.row["type"]],
        -int(candidate.branch),
    )


def _unserved(machine: Machine, row: Row, rules: Rules) -> list[Entry]:
    entries = []
    for card, number in machine.kinds:
        if cards.served(card, row, rules):
            continue
        text = f"driver branch {row['branch']} does not drive the {card.name} (compute capability {card.compute_capability})"
        last = cards.last_branch(card, rules)
        if last and int(last) < int(row["branch"]):
            text += f"; {last} is the last that does"
        source = cite(rules, "driver_branches", row)
        if card in machine.beside:
            entries.append(unmanaged.dark(card, text, source))
        else:
            entries += [conflict("driver.card", text, source, "use a branch that drives it: gpuwright gpus")] * number
    return entries


def _absent(machine: Machine, row: Row) -> list[Entry]:
    there = machine.absent.get(f"driver={row['branch']}")
    if there is None:
        return []
    text = f"the machine's package index has no packages of driver branch {row['branch']}{offered(there)}"
    return [
        conflict(
            "driver.absent", text, "the machine's package index", "use another branch, or a mirror that carries it"
        )
    ]


def _lowest(  # noqa: PLR0913 - each is a fact of its own
    machine: Machine,
    wish: Wish,
    row: Row,
    source: str,
    build: str | None,
    flavour: str | None,
    floors: list[Floor],
    rules: Rules,
) -> tuple[str | None, list[Entry]]:
    """Return the lowest build that will do (None: any of the branch), and why the builds that there are do not."""
    demands = [*floors, *_card_floors(machine, row, rules), *_kernel_floors(machine, row, source, flavour, rules)]
    newest = wish.driver_version or build or row["latest"]
    reasons = []
    for floor in demands:
        if numeric_version.at_least(newest, floor.build):
            continue
        text = f"{floor.text}; {'asked for' if wish.driver_version else 'the newest of branch ' + row['branch']} is {newest}"
        reasons.append(conflict(floor.rule, text, floor.source, _remedy(floor)))
    if wish.driver_version and build and not numeric_version.at_least(build, wish.driver_version):
        text = f"the distribution carries {build}, not {wish.driver_version}"
        reasons.append(
            conflict("driver.distro-build", text, "compat/systems.yaml (distro_drivers)", "use driver-source=nvidia")
        )
    return numeric_version.highest(*(floor.build for floor in demands)), reasons


def _remedy(floor: Floor) -> str:
    ways = [] if floor.build == _NO_BUILD else [f"use a driver from {floor.build} on"]
    if floor.kernel:
        ways.append(f"boot a kernel older than {floor.kernel}")
    return ", or ".join(ways)


def _card_floors(machine: Machine, row: Row, rules: Rules) -> list[Floor]:
    floors = []
    for card, number in machine.kinds:
        found = cards.first_build(card, row["branch"], rules)
        if found:
            text = f"the {card.name} is driven from build {found[0]} of branch {row['branch']} on"
            source = cite(rules, "driver_branches", found[1])
            floors += [Floor(found[0], "driver.floor-card", text, source)] * number
    return floors


def _kernel_floors(machine: Machine, row: Row, source: str, flavour: str | None, rules: Rules) -> list[Floor]:
    floors = []
    for failure in modules.failures(machine, row, source, rules):
        if failure["modules"] not in ("any", flavour):
            continue
        which = f" below {failure['builds_below']}" if failure["builds_below"] else ""
        doubt = "" if failure["confirmed"] else " (one report, not confirmed)"
        text = f"builds of branch {row['branch']}{which} do not compile on kernel {machine.kernel}{doubt}"
        floor = Floor(failure["builds_below"] or _NO_BUILD, "driver.kernel", text, cite(rules, "kernels", failure))
        floors.append(replace(floor, kernel=failure["kernel_first"]))
    return floors

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Open or proprietary kernel modules."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver import cards, unmanaged
from ....resolver.log import Entry, conflict
from ....resolver.machine import Card, Machine
from ....rules import Row, Rules, cite
from ....wish.wish import Wish

# On GeForce and workstation cards the open modules were alpha quality before this branch.
OPEN_FOR_EVERYONE = 545


def choose(machine: Machine, wish: Wish, branch: Row, source: str, rules: Rules) -> tuple[str | None, list[Entry]]:
    """Return the flavour for a branch, open where both work; or None with the reasons why there is none."""
    carried = _carried(machine, branch, source, rules)
    left = [each for each in branch["modules"] if carried is None or each in carried["modules"]]
    reasons = _of_cards(machine, left, branch, rules)
    if wish.driver_modules and not reasons:
        reasons = _of_wish(wish.driver_modules, left, machine, branch, carried, rules)
    if reasons:
        return None, reasons
    return _preferred(left, machine, branch, source, rules), []


def _carried(machine: Machine, branch: Row, source: str, rules: Rules) -> Row | None:
    """Return the row of a distribution that does not have all kinds of a branch's modules; None where it has."""
    rows = rules["systems"]["distro_drivers"] if source == "distro" else ()
    mine = (row for row in rows if (row["os"], row["branch"]) == (machine.os, branch["branch"]) and row.get("modules"))
    return next(mine, None)


def failures(machine: Machine, branch: Row, source: str, rules: Rules) -> list[Row]:
    """Return the rows of builds of a branch that fail on the machine's kernel; none where the kernel is not known."""
    kernel = machine.kernel
    if not kernel:
        return []
    return [
        row
        for row in known_failures(branch, source, rules)
        # Of a kernel of which only the series is said (6.12) the newest one is meant.
        if numeric_version.at_least(kernel, row["kernel_first"]) or numeric_version.belongs(row["kernel_first"], kernel)
    ]


def known_failures(branch: Row, source: str, rules: Rules) -> list[Row]:
    """Return the rows of builds of a branch that fail on some kernel."""
    rows = rules["kernels"]["rows"]
    return [row for row in rows if row["branch"] == branch["branch"] and row["from"] in ("any", source)]


def _of_cards(machine: Machine, left: list[str], branch: Row, rules: Rules) -> list[Entry]:
    """Narrow what is left by each card; the card that leaves nothing is named together with the one it clashes with."""
    earlier: list[Card] = []
    for card, _number in machine.kinds:
        allowed = cards.flavours(card, rules)
        if not [each for each in left if each in allowed]:
            return [_clash(card, earlier, allowed, machine, branch, rules)]
        left[:] = [each for each in left if each in allowed]
        earlier.append(card)
    return []


def _clash(card: Card, earlier: list[Card], allowed: list[str], machine: Machine, branch: Row, rules: Rules) -> Entry:
    other = next((each for each in earlier if not set(cards.flavours(each, rules)) & set(allowed)), None)
    row = cards.architecture(card, rules)
    source = cite(rules, "gpus", row) if row else "compat/gpus.yaml (architectures)"
    if other is None:
        text = f"branch {branch['branch']} has no {allowed[0]} kernel modules, the only ones for the {card.name}"
        return conflict("driver.modules-branch", text, source, "use a branch that has them")
    text = (
        f"the {other.name} works only with {cards.flavours(other, rules)[0]} kernel modules and the {card.name} only with "
        f"{allowed[0]} ones; a machine loads one kind"
    )
    beside = next((each for each in (card, other) if each in machine.beside), None)
    if beside:
        return unmanaged.dark(beside, text, source)
    return conflict("driver.modules-cards", text, source, unmanaged.remedy([card, other], machine))


def _of_wish(
    wished: str, left: list[str], machine: Machine, branch: Row, carried: Row | None, rules: Rules
) -> list[Entry]:
    if wished in left:
        left[:] = [wished]
        return []
    if carried is not None and wished not in carried["modules"] and wished in branch["modules"]:
        text = f"the {wished} kernel modules of branch {branch['branch']} cannot be installed from the packages of {machine.os}"
        remedy = f"use driver-modules={carried['modules'][0]}, or take them from NVIDIA: driver-source=nvidia"
        return [conflict("driver.modules-distro", text, cite(rules, "systems", carried), remedy)]
    if wished not in branch["modules"]:
        text = f"branch {branch['branch']} has no {wished} kernel modules"
        return [
            conflict(
                "driver.modules-wish", text, cite(rules, "driver_branches", branch), f"use driver-modules={left[0]}"
            )
        ]
    card = next(each for each in machine.cards if wished not in cards.flavours(each, rules))
    text = f"{wished} kernel modules do not work with the {card.name} (compute capability {card.compute_capability})"
    row = cards.architecture(card, rules)
    source = cite(rules, "gpus", row) if row else "compat/gpus.yaml (architectures)"
    return [conflict("driver.modules-wish", text, source, f"use driver-modules={left[0]}")]


def _preferred(left: list[str], machine: Machine, branch: Row, source: str, rules: Rules) -> str:
    if "open" not in left:
        return left[0]
    if "proprietary" in left:
        young = int(branch["branch"]) < OPEN_FOR_EVERYONE and any(card.kind != "datacenter" for card in machine.cards)
        if young or _open_fails(machine, branch, source, rules):
            return "proprietary"
    return "open"


def _open_fails(machine: Machine, branch: Row, source: str, rules: Rules) -> bool:
    """Say whether the open modules of a branch are known to fail here; an unknown kernel is taken for the newest."""
    rows = failures(machine, branch, source, rules) if machine.kernel else known_failures(branch, source, rules)
    return any(row["modules"] == "open" for row in rows)

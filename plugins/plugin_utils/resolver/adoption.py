# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A driver that is there already: does it satisfy cards and wish?"""

from __future__ import annotations

from collections.abc import Collection

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..components.cuda.resolve import support as cuda_support
from ..components.nvidia_driver.resolve import branch
from ..rules import Row, Rules, cite
from ..wish.wish import Wish
from . import cards
from .log import Entry, conflict
from .machine import InstalledDriver, Machine

_MANAGER = "nvidia-fabricmanager"
_KEEP = "leave the wish out to keep the driver that is there"


def shortcomings(installed: InstalledDriver, machine: Machine, wish: Wish, rules: Rules) -> list[Entry]:
    """Return everything that the driver does not satisfy; empty where it can stay as it is."""
    return [
        *_of_wish(installed, wish),
        *_of_cards(installed, machine, rules),
        *_of_floors(installed, machine, wish, rules),
    ]


def lacks_fabric_manager(installed: InstalledDriver, machine: Machine) -> bool:
    """Say whether the fabric manager of a driver from packages is absent or of another version where there are NVSwitches."""
    if installed.owner != "packages" or not installed.source or not (machine.nvswitch or machine.nvlink5):
        return False
    if machine.installed is None:
        return False  # nobody looked
    there = [version for name, version in machine.installed.items() if name.startswith(_MANAGER)]
    return installed.version not in map(numeric_version.upstream, there)


def branch_of(installed: InstalledDriver, rules: Rules) -> Row | None:
    """Return the row of the driver's branch; None for a branch the rules do not know."""
    rows: list[Row] = rules["driver_branches"]["rows"]
    return next((row for row in rows if row["branch"] == numeric_version.major(installed.version)), None)


def kernel_module(packages: Collection[str], source: str | None) -> str:
    """Return how modprobe calls the module that came with these packages: Debian's have names of their own."""
    if source != "distro":
        return "nvidia"
    names = {"nvidia-kernel-dkms": "nvidia-current", "nvidia-open-kernel-dkms": "nvidia-current-open"}
    return next((module for package, module in names.items() if package in packages), "nvidia")


def support_of(installed: InstalledDriver, rules: Rules) -> cuda_support.CudaSupport:
    """Return what the driver can run; of an unknown branch, what the newest older one could."""
    branch = numeric_version.major(installed.version)
    return cuda_support.of_branch(cuda_support.near_branch(branch, rules), installed.version)


def _of_wish(installed: InstalledDriver, wish: Wish) -> list[Entry]:
    wished = (
        ("driver-source", wish.driver_source, installed.source),
        ("driver", wish.driver_version, installed.version),
        ("driver", wish.driver_branch, numeric_version.major(installed.version)),
        ("driver-modules", wish.driver_modules, installed.modules),
    )
    entries = []
    for name, asked, found in wished:
        if asked and asked != found:
            there = f"{found} is there" if found else "what is there cannot be told"
            text = f"{name}={asked} is asked for, {there}"
            entries.append(conflict("driver.installed", text, "the machine's facts", _KEEP))
    return entries


def _of_cards(installed: InstalledDriver, machine: Machine, rules: Rules) -> list[Entry]:
    row = branch_of(installed, rules)
    entries = []
    for card in machine.cards:
        found = cards.first_build(card, numeric_version.major(installed.version), rules)
        if row and not cards.served(card, row, rules):
            text = f"driver {installed.version} does not drive the {card.name}"
            entries.append(
                conflict("driver.card", text, cite(rules, "driver_branches", row), "use a branch that drives it")
            )
        elif found and not numeric_version.at_least(installed.version, found[0]):
            text = f"driver {installed.version} does not drive the {card.name}, build {found[0]} is the first that does"
            entries.append(
                conflict("driver.floor-card", text, cite(rules, "driver_branches", found[1]), f"use driver={found[0]}")
            )
        if installed.modules and installed.modules not in cards.flavours(card, rules):
            text = f"the {installed.modules} kernel modules that are there do not work with the {card.name}"
            entries.append(
                conflict("driver.modules-card", text, "compat/gpus.yaml (architectures)", "have the driver replaced")
            )
    return entries


def _of_floors(installed: InstalledDriver, machine: Machine, wish: Wish, rules: Rules) -> list[Entry]:
    floors = branch.wished_floors(wish, rules)
    return [
        conflict(
            floor.rule,
            f"{floor.text}, {installed.version} is there",
            floor.source,
            f"use a driver from {floor.build} on",
        )
        for floor in branch.of_branch(floors, numeric_version.major(installed.version), machine, wish, rules)
        if not numeric_version.at_least(installed.version, floor.build)
    ]

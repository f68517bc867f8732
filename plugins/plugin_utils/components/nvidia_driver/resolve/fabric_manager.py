# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What boards with NVSwitches need beside the driver: without the fabric manager CUDA does not start there (error 802).

The packages of the driver's own version (fabric manager, NSCQ, IMEX) are told apart from those with a calendar of their own
(nvlsm): the former have to be exactly as old as the driver, the fabric manager refuses to start otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....resolver.log import Log, Unresolved, conflict
from ....resolver.machine import Machine
from ....rules import Row, Rules
from ....wish.wish import Wish
from .candidate import Candidate, within

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverFabric

MANAGER = "nvidia-fabricmanager.service"
SOURCE = "compat/packages.yaml (fabric_manager, nscq, imex, nvlink5)"
#: Where a site names the nodes that share memory.
NODES = "/etc/nvidia-imex/nodes_config.cfg"


def choose(candidate: Candidate, machine: Machine, wish: Wish, system: Row, rules: Rules) -> DriverFabric | None:
    """Return packages, those of them that follow the driver's version exactly, services and kernel modules; None where there is
    no NVSwitch and no rack.

    Raises Unresolved where the source of the driver has not what the fabric needs.
    """
    rack = _is_rack(machine, wish)
    if not (machine.nvswitch or machine.nvlink5 or rack):
        return None
    exact: list[str] = []
    services: list[str] = []
    loaded: list[str] = []
    others: list[str] = []
    if machine.nvswitch or machine.nvlink5:
        exact += _names("fabric_manager", candidate, system, rules) + _names("nscq", candidate, system, rules)
        services.append(MANAGER)
    if rack:
        exact += _names("imex", candidate, system, rules)
    if machine.nvlink5:
        row = _nvlink5(candidate, rules)
        others, loaded = row["packages"], row["modules"]
    return {"packages": [*exact, *others], "exact": exact, "services": services, "modules": list(loaded)}


def flavoured(chosen: DriverFabric | None, candidate: Candidate, package_set: str, system: Row) -> None:
    """Raise Unresolved where Ubuntu's packages of the fabric would stand beside its desktop packages: they need the build's
    nvidia-kernel-common of the flavour -server, which excludes the desktop's.
    """
    if not chosen or candidate.source != "distro" or system["family"] != "ubuntu" or package_set == "compute":
        return
    text = f"{system['name']} has {', '.join(chosen['exact'])} for its compute packages (-server) alone, not beside the desktop's"
    raise Unresolved(
        conflict(
            "driver.fabric-set", text, SOURCE, "use driver-set=compute, or take it from NVIDIA: driver-source=nvidia"
        )
    )


def explain(chosen: DriverFabric | None, machine: Machine, log: Log) -> None:
    """Say why the packages are there, and what is left to the site."""
    if machine.assumed.get("nvswitch"):
        text = f"{len(machine.cards)} cards of the form SXM are a board with NVSwitches; say --assume nvswitch=false where there are none"
        log.decided("driver.fabric-assumed", text, "compat/gpus.yaml (boards)")
    if chosen and MANAGER in chosen["services"]:
        log.decided("driver.fabric", "the NVSwitches need the fabric manager, of exactly the driver's version", SOURCE)
    if any(name.startswith("nvidia-imex") for name in (chosen["packages"] if chosen else ())):
        text = (
            f"nvidia-imex is installed and not started: the addresses of the rack's nodes have to be in {NODES} first"
        )
        log.warn("driver.imex", text, SOURCE)


def _is_rack(machine: Machine, wish: Wish) -> bool:
    """Say whether the machine is a tray of an NVL72 rack, whose nodes share memory: asked for, or told by its cards."""
    if wish.driver_imex is not None:
        return wish.driver_imex
    return any(card.name in ("GB200", "GB300") for card in machine.cards)


def _names(table: str, candidate: Candidate, system: Row, rules: Rules) -> list[str]:
    """Return the packages of a table; raises Unresolved where the source of the driver has none."""
    for row in rules["packages"][table]:
        if row.get("family") not in (None, system["family"]):
            continue
        if row["from"] == candidate.source and within(candidate.branch, row):
            return [name.replace("{branch}", candidate.branch) for name in row["packages"]]
    text = f"no {table.replace('_', ' ')} of branch {candidate.branch} is known from {candidate.source}"
    raise Unresolved(
        conflict("driver.fabric", text, "compat/packages.yaml", "take the driver from NVIDIA: driver-source=nvidia")
    )


def _nvlink5(candidate: Candidate, rules: Rules) -> Row:
    for row in rules["packages"]["nvlink5"]:
        found: Row = row
        if candidate.source in row["from"] and int(candidate.branch) >= int(row["first_branch"]):
            return found
    text = f"the subnet manager of an NVLink 5 fabric (nvlsm) is not to be had for branch {candidate.branch} from {candidate.source}"
    raise Unresolved(
        conflict("driver.nvlsm", text, "compat/packages.yaml", "take the driver from NVIDIA: driver-source=nvidia")
    )

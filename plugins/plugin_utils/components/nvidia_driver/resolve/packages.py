# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The names of the driver's packages, and what keeps them in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....resolver import systems
from ....resolver.log import Unresolved, conflict
from ....resolver.machine import Machine
from ....rules import Row, Rules
from ....wish.wish import Wish
from ..model import DriverNames
from . import fabric_manager, kernel_flavours
from .candidate import Candidate, within

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import (
        DriverPin,
        PrecompiledModule,
    )


def of_driver(
    candidate: Candidate,
    package_set: str,
    machine: Machine,
    wish: Wish,
    system: Row,
    rules: Rules,
) -> DriverNames:
    """Return packages (in install order), pin, build, kernel_module and headers of a driver.

    Raises Unresolved where no names are known.
    """
    row = _row(candidate, package_set, system, rules)
    names = [filled for name in row["packages"] for filled in _filled(name, candidate, machine, system)]
    of_next = _module_of_next(row, candidate, machine)
    headers = systems.headers(machine, system, rules)
    switched = fabric_manager.choose(candidate, machine, wish, system, rules)
    fabric_manager.flavoured(switched, candidate, package_set, system)
    beside = switched["packages"] if switched else []
    # Modules built for each kernel follow the kernel; held back, the next kernel would boot without a driver. Their names
    # carry the branch, which is lock enough.
    pin = _pin(candidate, wish, [] if row["build"] == "prebuilt-signed" else [*names, *beside], system, rules)
    before = [name for name in (pin.get("package"), pin.get("plugin")) if name]
    if row["build"] == "dkms":
        before.append(headers)
    result: DriverNames = {
        "packages": [*before, *([of_next["package"]] if of_next else []), *names, *beside],
        "pin": pin,
        "build": row["build"],
        "kernel_module": row["kernel_module"],
        "headers": headers,
    }
    if of_next:
        result["module_of_next"] = of_next
    if switched:
        result["fabric"] = switched
    return result


def _row(candidate: Candidate, package_set: str, system: Row, rules: Rules) -> Row:
    for row in rules["packages"]["driver"]:
        same = row["from"] == candidate.source and row["family"] == system["family"]
        if same and row["set"] == package_set and row["modules"] == candidate.modules and within(candidate.branch, row):
            found: Row = row
            return found
    text = f"no {package_set} packages with {candidate.modules} modules of branch {candidate.branch} are known for {system['os']}"
    raise Unresolved(conflict("driver.packages", text, "compat/packages.yaml", "use another branch or driver-source"))


def _filled(name: str, candidate: Candidate, machine: Machine, system: Row) -> list[str]:
    """Return the package's name; of modules that are built for each kernel series, one name a series that may boot."""
    plain = name.replace("{branch}", candidate.branch)
    if "{series}" not in plain:
        return [plain]
    return [plain.replace("{series}", series) for series in kernel_flavours.every_series(machine, system)]


def _module_of_next(row: Row, candidate: Candidate, machine: Machine) -> PrecompiledModule | None:
    """Return the package with the signed module of exactly the kernel that boots next: the series' own may lag behind it."""
    if row["build"] != "prebuilt-signed" or machine.installed is None or not machine.kernel:
        return None
    name = next((name for name in row["packages"] if "{series}" in name), None)
    if name is None:
        return None
    package = name.replace("{branch}", candidate.branch).replace("{series}", machine.kernel)
    return {"kernel": machine.kernel, "package": package}


def _pin(candidate: Candidate, wish: Wish, held: list[str], system: Row, rules: Rules) -> DriverPin:
    """Return what locks the driver: holds, and NVIDIA's pinning package where there is one.

    The pinning package alone would not do. That of a branch leaves its builds free: an upgrade of everything would still move the driver
    under a loaded module. Those of 580 do not cover the names without a branch (nvidia-persistenced, nvidia-imex), of which the newest
    branch would come (reported, see compat/packages.yaml, pinning). dnf holds by a plugin, which is a package of its own; the module
    stream narrows what it sees to the branch.
    """
    for row in rules["packages"]["pinning"]:
        if row["from"] == candidate.source and system["family"] in row["families"] and within(candidate.branch, row):
            package = row["package"].replace("{version}", wish.driver_version or candidate.branch)
            return {"package": package, "hold": held}
    pin: DriverPin = {"hold": held}
    stream = _stream(candidate, system, rules)
    if stream:
        pin["stream"] = stream
    plugins = [row["package"] for row in rules["packages"]["versionlock"] if row["family"] == system["family"]]
    if plugins and held:
        pin["plugin"] = plugins[0]
    return pin


def _stream(candidate: Candidate, system: Row, rules: Rules) -> str | None:
    """Return the module stream of a branch (nvidia-driver:580-open) where the system has modularity."""
    if not system.get("modularity"):
        return None
    rows = rules["packages"]["streams"]
    fitting = (row for row in rows if (row["from"], row["modules"]) == (candidate.source, candidate.modules))
    return next((str(row["stream"]).replace("{branch}", candidate.branch) for row in fitting), None)

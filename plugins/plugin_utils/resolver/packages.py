# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The names of the driver's packages, and what keeps them in place."""

from __future__ import annotations

from typing import Any

from ..rules import Row, Rules
from ..situation import Situation
from ..wish import Wish
from . import systems
from .branch import Candidate
from .log import Unresolved, conflict


def of_driver(
    candidate: Candidate,
    package_set: str,
    situation: Situation,
    wish: Wish,
    system: Row,
    rules: Rules,
) -> dict[str, Any]:
    """Return packages (in install order), pin, build, kernel_module and headers of a driver.

    Raises Unresolved where no names are known.
    """
    row = _row(candidate, package_set, system, rules)
    names = [_filled(name, candidate, situation, system) for name in row["packages"]]
    headers = systems.headers(situation, system, rules)
    fabric = _fabric(candidate, situation, rules)
    # Modules built for each kernel follow the kernel; held back, the next kernel would boot without a driver. Their names
    # carry the branch, which is lock enough.
    pin = _pin(candidate, wish, [] if row["build"] == "prebuilt-signed" else [*names, *fabric], rules)
    before = [pin["package"]] if "package" in pin else []
    if row["build"] == "dkms":
        before.append(headers)
    result: dict[str, Any] = {
        "packages": [*before, *names, *fabric],
        "pin": pin,
        "build": row["build"],
        "kernel_module": row["kernel_module"],
        "headers": headers,
    }
    if fabric:
        result["fabric"] = {"packages": fabric, "services": ["nvidia-fabricmanager.service"]}
    return result


def _row(candidate: Candidate, package_set: str, system: Row, rules: Rules) -> Row:
    for row in rules["packages"]["driver"]:
        same = row["from"] == candidate.source and row["family"] == system["family"]
        if same and row["set"] == package_set and row["modules"] == candidate.modules and _in(candidate.branch, row):
            found: Row = row
            return found
    text = f"no {package_set} packages with {candidate.modules} modules of branch {candidate.branch} are known for {system['os']}"
    raise Unresolved(conflict("driver.packages", text, "compat/packages.yaml", "use another branch or driver-source"))


def _in(branch: str, row: Row) -> bool:
    above = row["first_branch"] is None or int(branch) >= int(row["first_branch"])
    return above and (row["last_branch"] is None or int(branch) <= int(row["last_branch"]))


def _filled(name: str, candidate: Candidate, situation: Situation, system: Row) -> str:
    return name.replace("{branch}", candidate.branch).replace("{series}", systems.series(situation, system) or "")


def _pin(candidate: Candidate, wish: Wish, names: list[str], rules: Rules) -> dict[str, Any]:
    """Return the pinning package of NVIDIA's repository where there is one, else the packages to hold; never both."""
    for row in rules["packages"]["pinning"]:
        if row["from"] == candidate.source and _in(candidate.branch, row):
            return {"package": row["package"].replace("{version}", wish.driver_version or candidate.branch)}
    return {"hold": names}


def _fabric(candidate: Candidate, situation: Situation, rules: Rules) -> list[str]:
    """Return what NVSwitch boards need: without the fabric manager CUDA does not start there."""
    if not situation.nvswitch:
        return []
    rows = [
        row
        for row in rules["packages"]["fabric_manager"]
        if row["from"] == candidate.source and _in(candidate.branch, row)
    ]
    names = [name.replace("{branch}", candidate.branch) for row in rows[:1] for name in row["packages"]]
    if situation.nvlink5:
        names += [name for row in rules["packages"]["nvlink5"] for name in row["packages"]]
    return names

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is not as wished where the driver comes from a file of NVIDIA's, or has to give way to packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...model.errors import StepRefused
from ..base import Context, Finding, missing_packages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

#: The program by which an installation of a .run file is taken away.
UNINSTALLER = "/usr/bin/nvidia-uninstall"


def findings(context: Context, driver: DriverStack) -> list[Finding]:
    """The tools that the installer compiles with, and the very build and flavour that it brought."""
    missing = missing_packages(context, driver["packages"])
    seen = context.facts["driver"]
    there = seen["user_version"] if seen["owner"] == "runfile" else None
    after = f"{driver['version']} ({driver['modules']} modules)"
    name = driver["runfile"]["name"] if driver["runfile"] else "none"
    files = [name]
    if there is None:
        reason = f"no driver of a .run file is there, {name} is wished"
        return [Finding("install", reason, seen["user_version"], after, packages=missing, files=files)]
    if there != driver["version"]:
        reason = f"the .run file installed {there}, wished is {driver['version']}"
        return [Finding("upgrade", reason, there, after, packages=missing, files=files)]
    there_are = flavour(context.facts)
    if there_are not in (None, driver["modules"]):
        reason = f"the .run file installed the {there_are} modules, wished are the {driver['modules']} ones"
        return [Finding("upgrade", reason, there, after, packages=missing, files=files)]
    if missing:
        reason = f"what rebuilds the module for another kernel is missing: {', '.join(missing)}"
        return [Finding("configure", reason, packages=missing)]
    return []


def displaced(driver: DriverStack) -> list[Finding]:
    """The installation by a .run file that has to go before packages come."""
    if not driver.get("displaces"):
        return []
    reason = "a driver of a .run file is in the way of the packages: its own uninstaller takes it away"
    return [Finding("remove", reason, driver["displaces"], files=[UNINSTALLER])]


def flavour(facts: Facts) -> str | None:
    """The flavour of the module for the next kernel, by its licence; None where there is no module to ask."""
    module = facts["kernel"]["available"].get("nvidia")
    return flavour_of(module["license"] if module else None)


def flavour_of(licence: str | None) -> str | None:
    """The flavour that a licence stands for."""
    if not licence:
        return None
    return "open" if "GPL" in licence else "proprietary"


def is_there(facts: Facts, driver: DriverStack) -> bool:
    """Whether the installer brought this very build, in this flavour, for the kernel that boots next."""
    module, seen = facts["kernel"]["available"].get("nvidia"), facts["driver"]
    return (
        seen["owner"] == "runfile"
        and module is not None
        and seen["user_version"] == module["version"] == driver["version"]
        and (flavour(facts) or "proprietary") == driver["modules"]
    )


def uninstalled(facts: Facts, ended: Mapping[str, object]) -> None:
    """Judge what the file's own uninstaller left; ``ended``: how it ended (rc, stdout, stderr).

    Raises StepRefused where the driver is still there.
    """
    if facts["driver"]["owner"] != "runfile":
        return
    raise StepRefused(
        f"Expected {UNINSTALLER} to take the driver away. Found {facts['driver']['user_version'] or 'it'} still there "
        f"(exit {ended['rc']}): {ended['stderr'] or ended['stdout']} Nothing else was changed. What to do: read "
        "/var/log/nvidia-uninstall.log, end what uses the cards, and run again."
    )

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The data-centre part of the component nvidia_driver: fabric manager, NSCQ, IMEX at exactly the driver's version, and the kernel
modules that are loaded beside the driver's own (ib_umad, nvidia-peermem).

The fabric manager refuses to start beside a driver of another version, and without it CUDA fails with error 802.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.numeric_version import upstream

from ...model import index_answer, sections
from ..base import Context, Finding

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverFabric, DriverStack


MANAGER = "nvidia-fabricmanager.service"
PEERMEM = "nvidia_peermem"
MODULES_FILE = "/etc/modules-load.d/gpuwright-nvidia.conf"


def part(driver: DriverStack) -> DriverFabric:
    """The fabric's part of a driver's stack; without anything where the machine has none."""
    return driver.get("fabric") or {"packages": [], "exact": [], "services": [], "modules": []}


def modules(driver: DriverStack) -> list[str]:
    """Kernel modules that have to be loaded at boot beside the driver's own."""
    return [*part(driver)["modules"], *([PEERMEM] if driver.get("peermem") else [])]


def findings(context: Context, driver: DriverStack) -> list[Finding]:
    """What of the fabric is not as wished. The packages are there: where one is missing the driver's own findings tell."""
    found = _version_findings(context, driver) + _module_findings(context, driver)
    return found or _service_findings(context, driver)


def files(driver: DriverStack) -> list[str]:
    """Files that the seal records."""
    return [MODULES_FILE] if modules(driver) else []


def services(context: Context, driver: DriverStack) -> list[str]:
    """Services that the seal records: only where the cards are, in an image they would fail."""
    return [name for name in part(driver)["services"] if context.runs_here]


def restarts(context: Context, driver: DriverStack) -> bool:
    """Whether the fabric manager is restarted: its program was replaced under it, so that what runs is of another version."""
    return bool(
        MANAGER in services(context, driver) and _driver_runs(context) and context.facts["fabric"]["manager_stale"]
    )


def _version_findings(context: Context, driver: DriverStack) -> list[Finding]:
    wished = context.facts["driver"]["user_version"]
    wrong = [
        name
        for name in part(driver)["exact"]
        if wished and name in context.installed and upstream(context.installed[name]) != wished
    ]
    if not wrong:
        return []
    before = context.installed[wrong[0]]
    reason = f"{wrong[0]} is {before}, the driver is {wished}: they have to be exactly the same, or CUDA fails with error 802"
    return [Finding("upgrade", reason, before, wished, packages=wrong, services=services(context, driver))]


def _module_findings(context: Context, driver: DriverStack) -> list[Finding]:
    seen = context.facts["fabric"]
    late = [name for name in modules(driver) if name not in seen["modules_at_boot"]]
    if late:
        return [Finding("configure", f"not loaded at boot: {', '.join(late)}", files=[MODULES_FILE])]
    absent = [name for name in modules(driver) if name not in seen["modules_loaded"]]
    if absent and _driver_runs(context):
        return [Finding("configure", f"not loaded: {', '.join(absent)}")]
    return []


def _driver_runs(context: Context) -> bool:
    """The driver that is installed is the one that is loaded. Before that the fabric manager cannot start."""
    driver = context.facts["driver"]
    return (
        context.runs_here
        and driver["loaded_version"] is not None
        and driver["loaded_version"] == driver["user_version"]
    )


def _service_findings(context: Context, driver: DriverStack) -> list[Finding]:
    for name in services(context, driver):
        state = sections.service(context.facts, name)
        if state["enabled"] not in ("enabled", None):
            return [Finding("configure", f"{name} is not enabled at boot", services=[name])]
        if not _driver_runs(context):
            continue
        if state["active"] in ("inactive", "failed"):
            return [Finding("configure", f"{name} is {state['active']}: CUDA fails with error 802", services=[name])]
        if name == MANAGER and context.facts["fabric"]["manager_stale"]:
            return [Finding("configure", f"{name} runs with a program that was replaced since", services=[name])]
    return []


# --- exactly the driver's version, from the index ---------------------------------------------------------------------


def keep(context: Context, driver: DriverStack, packages: Iterable[str], ours: str) -> dict[str, str]:
    """What the versions of the fabric's packages begin with, where the driver's is known already.

    ``packages``: those that would change. ``ours``: the version, or its beginning, that the driver is held to. Revisions differ
    (-0ubuntu1 of the driver, -1 of the fabric manager), so that only what stands before is compared.
    """
    asked = list(packages)
    lead = _lead(context, driver, asked, ours)
    return {name: f"{lead}-" for name in part(driver)["exact"] if lead and name in asked}


def _lead(context: Context, driver: DriverStack, packages: list[str], ours: str) -> str | None:
    """The driver's version that the fabric follows; None where only the index will tell."""
    if "-" in ours:
        return upstream(ours)
    beside = set(part(driver)["packages"])
    moves = any(name in driver["packages"] and name not in beside for name in packages)
    there: str | None = context.facts["driver"]["user_version"]
    return None if moves else there


def narrowed(
    driver: DriverStack, versioned: Iterable[str], packages: Iterable[str], index: PackageIndex
) -> dict[str, str]:
    """What the index has to be held to where it would take another build of the fabric's packages than of the driver; empty
    where it would not, and where it has no such build.

    ``versioned``: packages that carry the driver's version. ``packages``: those that would change.
    """
    found = index_answer.candidates(index)
    asked = [name for name in packages if name in found]
    exact = [name for name in part(driver)["exact"] if name in asked]
    leads = [upstream(found[name]) for name in versioned if name in asked and name not in exact]
    if not leads:
        return {}
    others = [name for name in exact if upstream(found[name]) != leads[0]]
    there = [name for name in others if leads[0] in map(upstream, index_answer.versions(index, name))]
    return dict.fromkeys(there, f"{leads[0]}-")


def mismatch(
    context: Context, driver: DriverStack, versioned: Iterable[str], index: PackageIndex
) -> tuple[str, str] | None:
    """Why the versions that the index gave cannot work together, and what to do; None where they can."""
    exact = [name for name in part(driver)["exact"] if name in context.versions]
    others = [name for name in versioned if name in context.versions and name not in exact]
    wished = upstream(context.versions[others[0]]) if others else context.facts["driver"]["user_version"]
    wrong = [name for name in exact if wished and upstream(context.versions[name]) != wished]
    if not wrong:
        return None
    found = f"the package index has {context.versions[wrong[0]]}"
    text = f"{wrong[0]} has to be exactly of the driver's version {wished}, and {found}"
    common = _common([*exact, *others], index)
    remedy = (
        f"ask for the newest version that all of them have: driver={common}"
        if common
        else "choose another branch or source"
    )
    return text, f"{remedy}; or name a mirror that is complete (gpuwright_mirrors)"


def _common(names: Iterable[str], index: PackageIndex) -> str | None:
    """The newest version of which the index has every package."""
    offered = [set(map(upstream, index_answer.versions(index, name))) for name in names]
    return max(set.intersection(*offered), key=numeric_version.key, default=None)

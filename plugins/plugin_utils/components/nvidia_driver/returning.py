# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The way back to a driver that worked, as data (``plan.restore``, see plan/rollback.py): every package of it at the version that it had,
from the index or from the files that were kept, and what came since removed, in one transaction; or NVIDIA's file run again.

What is there after it is compared, whatever the package manager or the installer says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import words

from ...model.errors import StepRefused
from ...model.plan import Plan, Restore
from ..base import Context
from . import runfile, swap, version_hold

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack


class Return(TypedDict):
    """``moves``: whether packages come or go. ``uninstalls``: a driver of NVIDIA's file is in
    their way. ``hold`` and ``unhold`` are commands. The rest is for dnf.
    """

    moves: bool
    uninstalls: bool
    hold: list[str]
    unhold: list[str]
    install: dict[str, str]
    files: dict[str, str]
    remove: list[str]
    streams: dict[str, str]


class Restored(TypedDict):
    """What is done once the driver is back: ``locks`` what is there, or only keeps ``unattended`` upgrades from it."""

    locks: bool
    unattended: bool
    lock: version_hold.Locking


class Given(TypedDict):
    """``uninstalled``: what the uninstaller of NVIDIA's file answered."""

    uninstalled: Mapping[str, object]


def work(context: Context, plan: Plan) -> Return:
    """What the role does on the way back."""
    restore = _restore(plan)
    free = [name for name in restore["unhold"] if name not in restore["remove"]]
    return {
        "moves": _moves(plan),
        "uninstalls": context.facts["driver"]["owner"] == "runfile",
        "hold": ["apt-mark", "hold", *restore["hold"]] if restore["hold"] else [],
        "unhold": ["apt-mark", "unhold", *free] if free else [],
        "install": restore["packages"],
        "files": restore["files"],
        "remove": restore["remove"],
        "streams": restore["streams"],
    }


def exchange(context: Context, plan: Plan) -> swap.Exchange:
    """The one transaction of apt. Of the packages that go only those are named that are there."""
    return swap.of(context, _restore(plan)["install"], _restore(plan)["remove"])


def restored(context: Context, plan: Plan) -> Restored:
    """What locks the driver that is back; of a driver of NVIDIA's file no lock stays of packages that are gone."""
    lock, restore = version_hold.work(context.facts, _driver(plan)), _restore(plan)
    is_apt, of_file = context.facts["packages"]["manager"] == "apt", restore["source"] == "runfile"
    return {
        # Of packages the transaction of apt has the holds.
        "locks": of_file or (not is_apt and _moves(plan)),
        "unattended": is_apt and not of_file,
        "lock": lock,
    }


def returned(context: Context, plan: Plan) -> dict[str, object]:
    """Compare what is there with what worked. Raises StepRefused where it differs."""
    facts, restore, driver = context.facts, _restore(plan), _driver(plan)
    there = facts["driver"]["packages"] or {}
    of_file = restore["source"] == "runfile"
    due = of_file and (driver is None or not runfile.is_there(facts, driver))
    if there == restore["packages"] and not facts["packages"]["interrupted"] and not due:
        return {}
    version = restore["version"]
    expected = (
        f"driver {version} of its file"
        if of_file
        else f"the {words.count(len(restore['packages']), 'packages')} of driver {version}"
    )
    differ = dict.fromkeys(name for name, _version in there.items() ^ restore["packages"].items())
    raise StepRefused(
        f"Expected {expected}, and nothing half done. Found driver {facts['driver']['user_version'] or 'none'}; packages that differ: "
        f"{', '.join(sorted(differ)) or 'none'} {facts['packages']['interrupted_detail'] or ''}. What to do: read /var/log/apt/term.log, "
        "the log of dnf or /var/log/nvidia-installer.log, correct what it names, then run gpuwright rollback again."
    )


def uninstalled(context: Context, plan: Plan) -> dict[str, object]:
    """Judge what the uninstaller of NVIDIA's file left. Raises StepRefused where the driver is still there."""
    runfile.uninstalled(context.facts, cast("Given", plan["given"])["uninstalled"])
    return {}


def _moves(plan: Plan) -> bool:
    """Whether packages come or go."""
    return bool(_restore(plan)["install"] or _restore(plan)["remove"])


def _restore(plan: Plan) -> Restore:
    """The work of the return, which this plan is one of."""
    return cast("Restore", plan["restore"])


def _driver(plan: Plan) -> DriverStack | None:
    """The driver that is returned to; none where somebody else's is left to them."""
    driver: DriverStack | None = plan["stack"].get("driver")
    return driver

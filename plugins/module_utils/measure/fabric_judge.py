# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of the fabric manager of NVSwitch boards, from an observation alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.base.numeric_version import upstream
from ansible_collections.gpuwright.node.plugins.module_utils.base.view import UP, View

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

MANAGER = "nvidia-fabricmanager.service"
# Of such a driver nothing is changed.
_BY_HAND = "beside a driver of a .run file or an image install nvidia-fabricmanager of that version yourself and enable its service"


def judge_fabric(view: View) -> List[Check]:
    """Hosts with NVSwitches, on the bus or behind NVLink 5, need the fabric manager, of exactly the driver's version."""
    if not view.get("pci.nvswitches") and not view.get("pci.nvlink5"):
        return _without_switches(view)
    result = [_runs(view), _version(view)]
    if view.get("pci.nvlink5"):
        result.append(_subnet_transport(view))
    return result


def _without_switches(view: View) -> List[Check]:
    """The fabric manager of a guide for other machines: it fails, and what is looked for is no fault of the cards."""
    state = (view.get("services") or {}).get(MANAGER)
    known = view.get("pci.nvswitches") is not None and view.get("pci.nvlink5") is not None
    if not known or not isinstance(state, Mapping) or state.get("active") != "failed":
        return []
    reason = "the fabric manager failed, and there is no NVSwitch here that it could manage: no card needs it"
    return [
        checks.failed(
            "fabricmanager",
            "warning",
            measured="failed",
            reason=reason,
            action="configure",
            remedy=f"'systemctl disable --now {MANAGER}', or remove its package",
        )
    ]


def _runs(view: View) -> Check:
    state = (view.get("services") or {}).get(MANAGER)
    if not isinstance(state, Mapping):
        reason = view.why_unknown("services") or "the observation does not tell"
        return checks.incomplete("fabricmanager", f"it is not known whether the fabric manager runs: {reason}")
    ok = state.get("active") == "active"
    cause = "is not installed" if state.get("enabled") == "not-found" else f"is {state.get('active')}"
    return checks.judged(
        "fabricmanager",
        ok,
        measured=state.get("active"),
        expected="active",
        reason=None
        if ok
        else f"the host has NVSwitches and the fabric manager {cause}: CUDA fails with error 802 (system not yet initialized), "
        "although nvidia-smi shows the cards",
        action="restart_service",
        remedy=f"{UP}, which installs it at exactly the driver's version and starts it; {_BY_HAND}; its log (journalctl -u) says "
        "why it stopped",
    )


def _version(view: View) -> Check:
    """It refuses to start beside a driver of another version."""
    installed = view.get("packages.installed") or {}
    found = next((version for name, version in installed.items() if name.startswith("nvidia-fabricmanager")), None)
    driver = view.get("driver.loaded_version") or view.get("driver.user_version")
    if found is None or driver is None:
        which = "fabric manager" if found is None else "driver"
        return checks.skipped("fabricmanager.version", f"no {which} is installed by a package", expected=driver)
    ok = upstream(found) == driver
    return checks.judged(
        "fabricmanager.version",
        ok,
        measured=upstream(found),
        expected=driver,
        reason=None
        if ok
        else f"the fabric manager is {upstream(found)} and the driver {driver}: it only starts where both are exactly the same",
        action="install",
        remedy=f"{UP}, which takes the build of the driver's version from the package index; {_BY_HAND}",
    )


def _subnet_transport(view: View) -> Check:
    ok = "ib_umad" in (view.get("fabric.modules_loaded") or ())
    return checks.judged(
        "fabric.ib_umad",
        ok,
        measured=ok,
        expected=True,
        reason=None
        if ok
        else "the module ib_umad is not loaded: the subnet manager of an NVLink 5 fabric (nvlsm) speaks through it",
        action="configure",
        remedy=f"{UP}, which loads it now and at each boot",
    )

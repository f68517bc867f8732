# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of what only data-centre machines have: the fabric manager of NVSwitch boards, and RDMA into a card's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.base.numeric_version import upstream

from ..components.nvidia_driver.fabric import MANAGER
from ..components.view import UP, View

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.stack import Stack


#: PCI class of cards without a display output: those of data centres.
_CONTROLLER_3D = "0302"


def judge_fabric(view: View) -> list[Check]:
    """Hosts with NVSwitches, on the bus or behind NVLink 5, need the fabric manager, of exactly the driver's version."""
    if not view.get("pci.nvswitches") and not view.get("pci.nvlink5"):
        return []
    result = [_runs(view), _version(view)]
    if view.get("pci.nvlink5"):
        result.append(_subnet_transport(view))
    return result


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
        remedy=f"{UP}, which installs it at exactly the driver's version and starts it; its log (journalctl -u) says why it stopped",
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
        remedy=f"{UP}, which takes the build of the driver's version from the package index",
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


def judge_peermem(view: View, stack: Stack) -> list[Check]:
    """nvidia-peermem where it is wished; elsewhere it is only named where it could be of use."""
    driver = stack.get("driver")
    wished = bool(driver and driver.get("peermem"))
    loaded = "nvidia_peermem" in (view.get("fabric.modules_loaded") or ())
    if wished:
        check = checks.judged(
            "driver.peermem",
            loaded,
            "warning",
            measured=loaded,
            expected=True,
            reason=None
            if loaded
            else "nvidia-peermem is wished and not loaded: RDMA does not reach the cards' memory by it",
            action="configure",
            remedy=UP,
        )
        return [check]
    cards = [gpu for gpu in view.get("pci.gpus") or () if gpu.get("class") == _CONTROLLER_3D]
    if not cards or not view.get("pci.network_adapters") or loaded:
        return []
    reason = (
        "there are RDMA adapters beside data-centre cards, and nvidia-peermem is not loaded: set nvidia_driver_peermem where "
        "the InfiniBand stack does not use DMA-BUF (it does with the open kernel modules and Linux 5.12 or newer)"
    )
    return [checks.skipped("driver.peermem", reason, "info")]

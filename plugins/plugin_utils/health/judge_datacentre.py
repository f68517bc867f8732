# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of what only data-centre machines have: RDMA into a card's memory. Their fabric: module_utils/measure/fabric_judge.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from ..components.view import UP, View

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ..model.stack import Stack


#: PCI class of cards without a display output: those of data centres.
_CONTROLLER_3D = "0302"


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
    cards = [gpu for gpu in view.gpus if gpu.get("class") == _CONTROLLER_3D]
    if not cards or not view.get("pci.network_adapters") or loaded:
        return []
    if view.get("driver.loaded_modules") == "proprietary" and "InfiniBand" in (view.get("fabric.link_layers") or ()):
        return [
            checks.failed(
                "driver.peermem",
                "warning",
                measured=loaded,
                expected=True,
                reason="InfiniBand does not reach the cards' memory (GPUDirect RDMA): nvidia-peermem is not loaded, and the proprietary "
                "modules have no DMA-BUF in its place",
                action="configure",
                remedy="modprobe nvidia_peermem, and a line nvidia_peermem in a file of /etc/modules-load.d (nvidia_driver_peermem: true "
                "has gpuwright up do both); or take the open modules (--want driver-modules=open)",
            )
        ]
    reason = (
        "there are RDMA adapters beside data-centre cards, and nvidia-peermem is not loaded: set nvidia_driver_peermem where "
        "the InfiniBand stack does not use DMA-BUF (it does with the open kernel modules and Linux 5.12 or newer)"
    )
    return [checks.skipped("driver.peermem", reason, "info")]

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The components of a node, in the order in which they are applied.

To add one: a module here with a ``COMPONENT`` (see :class:`.base.Component`), a role of the same name, its place in the order below,
and a task in ``playbooks/site.yml`` at the same place (a test holds the two orders equal). Its rooms on the lower floors, and the tables
there: docs/adr/0013-one-room-a-component.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    container_toolkit,
    cuda,
    fabric,
    frameworks,
    gpu_log,
    gpu_settings,
    mig,
    monitoring_exporters,
    monitoring_server,
    nouveau_blacklist,
    nvidia_driver,
    reboot,
    repair,
    watch,
)
from .base import Component, Context, Finding, Manages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge

    from ..model.stack import Stack

# Nouveau comes after the driver: it is only taken away once a module for the next kernel is verified, so that a cut in
# between never leaves a screen without a driver.
_ROOMS = (
    repair,
    nvidia_driver,
    nouveau_blacklist,
    mig,
    gpu_settings,
    cuda,
    container_toolkit,
    frameworks,
    gpu_log,
    watch,
    fabric,
    monitoring_exporters,
    monitoring_server,
    reboot,
)
COMPONENTS: dict[str, Component] = {room.COMPONENT.name: room.COMPONENT for room in _ROOMS}

#: Components that leave a seal.
SEALED = tuple(name for name, component in COMPONENTS.items() if component.manages)


def wishes_of_cards(stack: Stack) -> dict[str, smi_judge.Expected]:
    """What is wished of single cards, by bus id, so that no check warns of what somebody asked for."""
    return {place: wish for each in COMPONENTS.values() for place, wish in each.wishes_of_cards(stack).items()}


__all__ = ["COMPONENTS", "SEALED", "Component", "Context", "Finding", "Manages", "wishes_of_cards"]

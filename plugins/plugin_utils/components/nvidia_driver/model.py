# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a driver is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import (
        DriverFabric,
        DriverPin,
        DriverStack,
        PrecompiledModule,
        Runfile,
    )


class DriverNames(TypedDict):
    """What a driver is installed by."""

    packages: list[str]
    """In the order of installation"""
    pin: DriverPin
    build: str
    kernel_module: str
    headers: str
    version: NotRequired[str]
    module_of_next: NotRequired[PrecompiledModule]
    fabric: NotRequired[DriverFabric]
    runfile: NotRequired[Runfile]


class Parts(TypedDict, total=False):
    """Its key of a stack."""

    driver: DriverStack

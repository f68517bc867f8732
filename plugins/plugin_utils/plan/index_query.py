# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a draft asks the package index for once more, and what the index turned out not to have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..components.nvidia_driver import apply as nvidia_driver
from ..components.nvidia_driver import fabric, kernels
from . import availability, findings
from .draft import Draft

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex


def absent(drafted: Draft, index: PackageIndex) -> dict[str, list[str]]:
    """Parts of the stack that the index turned out not to have, with the versions that are there; empty where it did not answer.
    A lock leaves nothing to choose again but the headers, which it says nothing of.
    """
    if drafted.state is not None or not availability.answered(index):
        return {}
    found = kernels.headers_absent(index, drafted.context)
    if drafted.request.lock is None:
        demands = availability.demands(drafted.context.stack, drafted.wish)
        found |= availability.absent(demands, index, drafted.packages)
    return {key: there for key, there in found.items() if key not in drafted.request.absent}


def missing(drafted: Draft, index: PackageIndex | None) -> list[availability.Missing]:
    """What the node's index was asked for and does not have."""
    if index is None or drafted.state is not None or not availability.answered(index):
        return []
    demands = availability.demands(drafted.context.stack, drafted.wish)
    return availability.missing(demands, index, drafted.packages)


def tightened(drafted: Draft, index: PackageIndex | None) -> Draft | None:
    """The draft to ask the index with once more, where driver and fabric manager, or the driver and another package of its set, would
    else be of two versions, or where a kernel would come without its modules.
    """
    driver, context = drafted.context.stack.get("driver"), drafted.context
    if driver is None or index is None or drafted.narrow or drafted.state or not availability.answered(index):
        return None
    narrow = fabric.narrowed(driver, nvidia_driver.carriers(driver), drafted.packages, index)
    companions = []
    if nvidia_driver.NAME in drafted.findings and not context.companions and not drafted.replaced:
        companions = [*nvidia_driver.left_behind(context, index), *kernels.whole(index.get("install") or (), context)]
    if not (narrow or companions):
        return None
    wider = replace(context, companions=companions)
    return replace(drafted, narrow=narrow, context=wider, findings=findings.of_components(wider, drafted.request))

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Modules that a distribution signs come some days after its kernels: is there one for the kernel that boots next?"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ...model import index_answer

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.index import PackageIndex

    from ...model.stack import Stack


class Behind(TypedDict):
    """Why a node has to wait, and what a person may do."""

    text: str
    remedy: str


def package_of_next(stack: Stack) -> str | None:
    """Return the package with the signed module of exactly the kernel that boots next; None where the driver is built here."""
    driver = stack.get("driver")
    module = driver.get("module_of_next") if driver else None
    return module["package"] if module else None


def behind(stack: Stack, index: PackageIndex | None, asked: list[str]) -> Behind | None:
    """Return why a node has to wait where its index has no signed module for the kernel that boots next (text, remedy)."""
    driver = stack.get("driver")
    module = driver.get("module_of_next") if driver else None
    if not module or index is None or module["package"] not in asked:
        return None
    if index_answer.candidate(index, module["package"]):
        return None
    text = (
        f"the signed modules lag behind the kernel: the package index has no {module['package']}, and kernel {module['kernel']} boots next;"
        " it would come up without a driver"
    )
    remedy = (
        "wait until the distribution has published it (usually days) and run apt update, make an older kernel boot (GRUB_DEFAULT) whose"
        " modules are there, or build the module on the machine: driver-source=nvidia (with Secure Boot its key has to be enrolled)"
    )
    return {"text": text, "remedy": remedy}

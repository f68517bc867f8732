# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A kernel for which the wished driver does not build: another one that is installed may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ....resolver.log import Entry
from ....resolver.machine import Machine

RULE = "driver.kernel"


def named(entries: list[Entry], machine: Machine, works: Callable[[Machine], bool]) -> list[Entry]:
    """Return the conflicts, those of a kernel with the newest installed one with which the wish can be met as their remedy."""
    others = sorted((each for each in machine.kernels if each != machine.kernel), key=numeric_version.key, reverse=True)
    if not others or not any(entry["rule"] == RULE for entry in entries):
        return entries
    fitting = next((each for each in others if works(replace(machine, kernel=each))), None)
    if fitting is None:
        return entries
    remedy = f"boot kernel {fitting}, which is installed: make it the default of the boot menu (GRUB_DEFAULT, then update-grub)"
    return [{**entry, "remedy": remedy} if entry["rule"] == RULE else entry for entry in entries]

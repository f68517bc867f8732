# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Filters of the roles nvidia_driver and repair: what programs of the node said, read by our own functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base import simulated
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.nvidia_driver import (
    driver_module,
    swap,
    version_hold,
)


def said(results: Iterable[Mapping[str, object]], key: str) -> str:
    """What the rounds of a loop said under a key (``stderr``, ``msg``), in one line; empty where none said anything."""
    return " ".join(str(result[key]) for result in results if result.get(key))


def dkms_sources(files: Iterable[Mapping[str, str]]) -> list[driver_module.DkmsModule]:
    """The modules whose sources are in the directories that ansible.builtin.find found."""
    return driver_module.dkms_sources(found["path"] for found in files)


def taken_beyond(trial: str, may_take: Iterable[str]) -> list[str]:
    """What apt, by its simulation, would remove or take to an older version of other packages than those that it may."""
    return simulated.beyond(trial, (), may_take)


class FilterModule:
    """Names of the filters."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Filters by name, as Ansible asks for them."""
        return {
            "dkms_installed": driver_module.dkms_installed,
            "dkms_sources": dkms_sources,
            "driver_left_pins": version_hold.left_pins,
            "driver_swap": swap.words,
            "said": said,
            "taken_beyond": taken_beyond,
        }

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Filters over what a proof measured: its checks, and why they prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ansible_collections.gpuwright.node.plugins.plugin_utils.model import measured
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import loads

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check


def measured_checks(results: Iterable[measured.Measured], gaps: Iterable[Check] = ()) -> list[Check]:
    """The checks of all results of tasks, then those of what was not measured."""
    return [*measured.checks(results), *gaps]


class FilterModule:
    """Names of the filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name, as Ansible asks for them."""
        return {
            "load_figures": loads.of_results,
            "measured_checks": measured_checks,
            "not_proven": measured.not_proven,
        }

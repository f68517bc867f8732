"""What `gpuwright status` shows: hosts that do not differ in one row, and the fleet by version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwright import console, knowledge
from gpuwright.show import hosts_not_worked_on, report_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.gpuwright.node.plugins.plugin_utils.model.plan import Plan

__all__ = ["fleet", "report_place"]


def fleet(
    plans: Mapping[str, Plan], unreachable: Mapping[str, str], failed: Mapping[str, str], *, each: bool = False
) -> None:
    """Show the hosts, equal ones together (each by itself where `each`), those that are not good first, and the fleet by version."""
    of = knowledge.fleet()
    if plans:
        console.out(console.table(of.rows(plans, each=each), of.HEADINGS, indent=0))
    hosts_not_worked_on(unreachable, failed)
    summary = of.summary(plans)
    if summary:
        console.out(summary)

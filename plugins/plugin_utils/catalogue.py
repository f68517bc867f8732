# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the rules know of a card: `gpuwright gpus`."""

from __future__ import annotations

from typing import Any

from . import gpus
from .resolver import cards, frameworks, targets
from .rules import Row, Rules


def find(pattern: str | None, rules: Rules) -> list[dict[str, Any]]:
    """Return what is known of every card whose name holds the words of the pattern (all cards for None or "").

    Raises BadInput with near names where there is none.
    """
    return [describe(row, rules) for row in gpus.matching(pattern, rules)]


def describe(row: Row, rules: Rules) -> dict[str, Any]:
    """Return what a person asks about a card: branches that serve it, modules, CUDA, the newest torch."""
    card = cards.from_row(row)
    branches = [each["branch"] for each in rules["driver_branches"]["rows"] if cards.served(card, each, rules)]
    toolkits = targets.toolkits_for([card], rules)
    newest = frameworks.newest_for([card], "x86_64", rules)
    return {
        **{
            key: row[key]
            for key in ("name", "class", "architecture", "compute_capability", "memory_gb", "nvlink_gbs", "pci")
        },
        "tdp_w": row["tdp_w"],
        "bandwidth_gbs": row["bandwidth_gbs"],
        "modules": cards.flavours(card, rules),
        "branches": branches,
        "cuda": [toolkits[0], toolkits[-1]] if toolkits else [],
        "pytorch": newest,
        "confirmed": row["confirmed"],
    }

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Running work on the cards, which no change is made under."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import sections
from ..model.errors import StepRefused

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Process

    from .base import Context

#: Processes that a refusal names.
_MOST_NAMED = 5
_COMPUTES, _DRAWS = ("C", "M+C"), "G"


def computing(context: Context, *, drawing_too: bool = False) -> list[Process]:
    """Processes that make a card busy. nvidia-smi's types: C computes, M+C computes through MPS; one of type G draws the desktop.

    ``drawing_too``: with those that compute and draw (C+G).
    """
    every = [process for card in sections.cards(context.facts) for process in card.get("processes") or ()]
    if drawing_too:
        return [process for process in every if process["type"] != _DRAWS]
    return [process for process in every if process["type"] in _COMPUTES]


def refusal(why: str, processes: list[Process], or_else: str = "") -> StepRefused:
    """What is said where cards have to be idle. ``or_else``: another way out than to wait."""
    named = ", ".join(f"{process['name']} (pid {process['pid']})" for process in processes[:_MOST_NAMED])
    return StepRefused(
        f"Expected idle cards, because {why}. Found {len(processes)} computing: {named}. "
        f"What to do: let the work end or stop it and run again{or_else}."
    )

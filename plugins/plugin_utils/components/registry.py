# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The components, in the order in which they are applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .composed.apply import COMPONENTS

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.measure import smi_judge

    from ..model.stack import Stack

#: Components that leave a seal.
SEALED = tuple(name for name, component in COMPONENTS.items() if component.manages)


def wishes_of_cards(stack: Stack) -> dict[str, smi_judge.Expected]:
    """What is wished of single cards, by bus id, so that no check warns of what somebody asked for."""
    return {place: wish for each in COMPONENTS.values() for place, wish in each.wishes_of_cards(stack).items()}


__all__ = ["COMPONENTS", "SEALED", "wishes_of_cards"]

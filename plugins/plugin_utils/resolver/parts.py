# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is asked of all parts of a stack."""

from __future__ import annotations

from collections.abc import Mapping

from ..components.composed.resolve import HOST_PARTS, PARTS
from ..wish.wish import Wish

__all__ = ["HOST_PARTS", "PARTS", "from_source", "without_cards"]


def from_source(stack: Mapping[str, object], source: str) -> list[str]:
    """Return what comes from a package source that several parts share, for a person."""
    shares = [part.sources(part.of(stack)) for part in HOST_PARTS if part.key in stack]
    return [each[source] for each in shares if source in each]


def without_cards(wish: Wish) -> bool:
    """Say whether something is wished that a host has also without a card."""
    return any(getattr(wish, part.key) for part in HOST_PARTS if not part.cards)

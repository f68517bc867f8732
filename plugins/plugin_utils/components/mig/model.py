# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of MIG."""

from __future__ import annotations

from typing import TypedDict


class MigCard(TypedDict):
    """Layout of one card."""

    index: int
    bus_id: str | None
    name: str
    profiles: list[str]
    """Largest first; none: MIG off"""


class Mig(TypedDict):
    """MIG layout of a machine."""

    cards: list[MigCard]


class Parts(TypedDict, total=False):
    """Its key of a stack."""

    mig: Mig

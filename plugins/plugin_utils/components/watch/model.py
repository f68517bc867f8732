# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of a node that watches itself."""

from __future__ import annotations

from typing import TypedDict


class WatchedCards(TypedDict):
    """Cards that have to be there; ``count`` None: as many as the driver's seal names."""

    count: int | None
    names: list[str] | None
    ignore: list[str]
    pcie_lanes: dict[str, int]


class Watch(TypedDict):
    """How a node watches itself, and who is told. The webhook's address is a secret and not here."""

    minutes: int
    textfile_directory: str
    proof_max_age: int
    """Seconds"""
    mail: list[str]
    smtp: str | None
    """HOST or HOST:PORT; None: the sendmail of the machine"""
    cards: WatchedCards


class Parts(TypedDict, total=False):
    """Its key of a stack."""

    watch: Watch

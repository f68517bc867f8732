# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of the light log of the cards."""

from __future__ import annotations

from typing import TypedDict


class GpuLog(TypedDict):
    """The light log of the cards: for how many days it is kept."""

    days: int


class Parts(TypedDict, total=False):
    """Its key of a stack."""

    gpu_log: GpuLog

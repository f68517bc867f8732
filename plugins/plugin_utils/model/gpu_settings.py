# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of the settings of the cards."""

from __future__ import annotations

from typing import TypedDict


class Settings(TypedDict, total=False):
    """Settings of a card. An absent one is left as it is, None is the default of the card."""

    power_limit: float | None
    """W"""
    clocks: list[int] | None
    """Lowest and highest clock of the multiprocessors (MHz)"""
    application_clocks: list[int] | None
    """Clocks of the memory and of the multiprocessors (MHz)"""
    ecc: bool | None
    compute_mode: str | None
    """As nvidia-smi calls it"""
    persistence: bool | None


class SettingsCard(TypedDict):
    """Settings of one card of a machine."""

    index: int
    bus_id: str | None
    name: str
    settings: Settings


class GpuSettings(TypedDict):
    """Settings of the cards of a machine."""

    cards: list[SettingsCard]

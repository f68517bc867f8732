# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of the settings of the cards."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.measure.card_wishes import SettingsCard


class GpuSettings(TypedDict):
    """Settings of the cards of a machine."""

    cards: list[SettingsCard]


class Parts(TypedDict, total=False):
    """Its key of a stack."""

    gpu_settings: GpuSettings

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tell a power brake that lasts from one that passes.

A card brakes for a moment when its power supply asks for it, which a peak of load may do on a good machine. One that brakes at
each of three looks is held back by its supply, its cables or the board.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, List, Optional

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import SmiData

LOOKS = 3
PAUSE_SECONDS = 1.0
BRAKE = "hw_power_brake_slowdown"
PASSING = "hw_power_brake_passing"
# What nvidia-smi says beside any of the two hardware reasons.
EITHER, HEAT = "hw_slowdown", "hw_thermal_slowdown"


def settle(data: SmiData, look: Callable[[], Optional[SmiData]], pause: Callable[[float], None] = time.sleep) -> None:
    """Look again at cards that brake; where one does not brake at each look, its reasons name the brake as passing.

    ``look`` asks nvidia-smi once more; ``None`` means that it gave no answer, and then the brake stays.
    """
    for _again in range(LOOKS - 1):
        braking = [gpu for gpu in data["gpus"] if BRAKE in (gpu["throttle"] or ())]
        if not braking:
            return
        pause(PAUSE_SECONDS)
        later = look()
        if later is None:
            return
        now = {gpu["pci_bus_id"]: gpu["throttle"] for gpu in later["gpus"]}
        for gpu in braking:
            reasons = now.get(gpu["pci_bus_id"])
            if reasons is not None and BRAKE not in reasons:
                gpu["throttle"] = passed(gpu["throttle"] or [])


def passed(reasons: List[str]) -> List[str]:
    """The reasons of a card whose brake did not last."""
    gone = (BRAKE,) if HEAT in reasons else (BRAKE, EITHER)
    return [reason for reason in reasons if reason not in gone] + [PASSING]

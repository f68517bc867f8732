# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What it means that an error comes again after a boot: the next step of what a person does, from a reset to the hardware.

gpud does so too: after two reboots that did not end an error it asks for an inspection of the hardware (github leptonai/gpud
components/accelerator/nvidia/xid/health_state.go). What an application did is no step of these: it comes again with it.
"""

from __future__ import annotations

from typing import Sequence, Tuple

#: In the order in which they are tried.
STEPS = ("reset_gpu", "reboot", "check_hardware")
_REMEDIES = {
    "reboot": "it came again after a boot: reboot the machine now, a reset is not enough",
    "check_hardware": "it came again after a boot: power the machine off and on, reseat what it names and check its power and heat, "
    "then have it replaced",
}


def stepped_up(action: str, remedy: str, boots: Sequence[int]) -> Tuple[str, str]:
    """Action and remedy of an error that came in these earlier boots too: one step further for each."""
    if action not in STEPS[:-1] or not boots:
        return action, remedy
    further = STEPS[min(STEPS.index(action) + len(boots), len(STEPS) - 1)]
    return further, f"{_REMEDIES[further]} ({remedy})"


def named(boots: Sequence[int]) -> str:
    """The earlier boots in words; nothing where there are none."""
    if not boots:
        return ""
    return f"{'boot' if len(boots) == 1 else 'boots'} {', '.join(map(str, boots))}"

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Desktop packages or compute only."""

from __future__ import annotations

from ....resolver.log import DESIGN, Log
from ....resolver.machine import Machine
from ....wish.wish import Wish


def choose(machine: Machine, wish: Wish, log: Log) -> str:
    """Return "desktop" where an NVIDIA connector drives a screen, else "compute"; the wish wins."""
    if wish.driver_set:
        log.decided("driver.set", f"{wish.driver_set} packages: asked for", "the wish")
        return wish.driver_set
    if machine.screen:
        log.decided("driver.set", "desktop packages: a connector of an NVIDIA card drives a screen", DESIGN)
        return "desktop"
    log.decided("driver.set", "compute packages only: no NVIDIA card drives a screen", DESIGN)
    return "compute"

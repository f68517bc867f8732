# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The light log of the cards, where the machine has the nvidia-smi that fills it."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base import words

from ...resolver.log import Log
from ...resolver.machine import Machine
from ...resolver.part import HostPart
from ...wish.wish import Wish
from .model import GpuLog
from .wish import DAYS

_JETSON = "docs.nvidia.com/jetson: nvidia-smi is there since JetPack 6 and has no utilization, memory or power of the card (assumed)"
#: What a card at full load writes in a day; tests/unit/sim/test_gpu_log.py holds it to what the program writes.
MIB_A_CARD_AND_DAY = 0.35


def choose(machine: Machine, wish: Wish, log: Log) -> GpuLog | None:
    """Return None without a wish, else for how many days the log is kept."""
    if wish.gpu_log is None:
        return None
    days = wish.gpu_log if isinstance(wish.gpu_log, int) else DAYS
    most = MIB_A_CARD_AND_DAY * days * len(machine.cards)
    log.decided(
        "gpu-log", f"a line a card and minute for {words.count(days, 'days')}, at most {most:.0f} MiB", "the wish"
    )
    return {"days": days}


HOST_PART = HostPart(
    "gpu_log",
    "gpu-log",
    lambda machine, wish, _system, _stack, log: choose(machine, wish, log),
    useless={
        "jetson": ("gpu-log.jetson", "gpu-log left out: the nvidia-smi of a Jetson tells none of its values", _JETSON)
    },
)

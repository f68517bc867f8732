# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The light log of the cards, where the machine has the nvidia-smi that fills it."""

from __future__ import annotations

from dataclasses import replace

from ..model.gpu_log import GpuLog
from ..wish import Wish
from .log import Log
from .machine import Machine

_JETSON = "docs.nvidia.com/jetson: nvidia-smi is there since JetPack 6 and has no utilization, memory or power of the card (assumed)"
#: What a card at full load writes in a day; tests/unit/sim/test_gpu_log.py holds it to what the program writes.
MIB_A_CARD_AND_DAY = 0.35


def allowed(machine: Machine, wish: Wish, log: Log) -> Wish:
    """Return the wish without the log on a machine whose nvidia-smi tells nothing of its card, and say so."""
    if wish.gpu_log is None or machine.environment != "jetson":
        return wish
    log.warn("gpu-log.jetson", "gpu-log left out: the nvidia-smi of a Jetson tells none of its values", _JETSON)
    return replace(wish, gpu_log=None)


def choose(machine: Machine, wish: Wish, log: Log) -> GpuLog | None:
    """Return None without a wish, else for how many days the log is kept."""
    if wish.gpu_log is None:
        return None
    most = MIB_A_CARD_AND_DAY * wish.gpu_log * len(machine.cards)
    log.decided("gpu-log", f"a line a card and minute for {wish.gpu_log} days, at most {most:.0f} MiB", "the wish")
    return {"days": wish.gpu_log}

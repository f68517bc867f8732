# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a node watches itself, where it has cards to watch."""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base import words

from ...model.proof import MAX_AGE
from ...resolver.log import Log
from ...resolver.part import HostPart
from ...wish.wish import Wish
from .model import Watch
from .wish import MINUTES

_JETSON = "docs.nvidia.com/jetson: nvidia-smi is there since JetPack 6 and tells nothing that could be judged (assumed)"


def choose(wish: Wish, log: Log) -> Watch | None:
    """Return None without a wish, else how often it looks, where its metrics are, and who is told."""
    if wish.watch is None:
        return None
    settings, minutes = wish.watch_settings, wish.watch if isinstance(wish.watch, int) else MINUTES
    told = f"; mail to {', '.join(settings.mail)}" if settings.mail else ""
    text = f"the node looks at itself every {words.count(minutes, 'minutes')}; metrics in {wish.metrics}{told}"
    log.decided("watch", text, "the wish")
    expected = wish.gpus_expected
    return {
        "minutes": minutes,
        "textfile_directory": wish.metrics,
        "proof_max_age": settings.proof_max_age or MAX_AGE,
        "mail": list(settings.mail),
        "smtp": settings.smtp,
        "cards": {
            "count": len(expected) if isinstance(expected, tuple) else expected,
            "names": list(expected) if isinstance(expected, tuple) else None,
            "ignore": list(wish.gpus_ignore),
            "pcie_lanes": dict(wish.gpus_pcie_lanes),
        },
    }


HOST_PART = HostPart(
    "watch",
    "watch",
    lambda _machine, wish, _system, _stack, log: choose(wish, log),
    useless={
        "jetson": (
            "watch.jetson",
            "watch left out: the nvidia-smi of a Jetson tells nothing that could be judged",
            _JETSON,
        )
    },
)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who works on a node: user, controller and process of a run, as `user@controller:pid`.

A run that was killed leaves its lock behind. The controller that it ran on can see that it is dead, so its lock does not bar
the run that heals the node.
"""

from __future__ import annotations

import getpass
import os
import platform
from pathlib import Path


def of_this_run() -> str:
    """The owner to write into a lock. An action runs in a child of the process that is meant."""
    return f"{getpass.getuser()}@{platform.node()}:{os.getppid()}"


def is_dead(owner: str) -> bool:
    """Say whether that was a run of this very controller that no longer lives; of others nothing is known."""
    who, _colon, process = owner.rpartition(":")
    return who.endswith(f"@{platform.node()}") and process.isdecimal() and not _lives(int(process))


def _lives(process: int) -> bool:
    """A process that ended and was not collected by its parent (a zombie) still takes signals, but it does nothing."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is there, and somebody else's
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True  # no /proc here: what takes signals lives
    return state not in ("Z", "X")

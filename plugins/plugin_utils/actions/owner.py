# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who works on a node: user, controller and process of a run, as `user@controller:pid:start:where`.

A run that was killed leaves its lock behind. The controller that it ran on can see that it is dead, so its lock does not bar
the run that heals the node. A name and a number do not tell that it is the same controller: many containers have one name, each counts its
processes from 1, and numbers come again. `start` is when the process began, and `where` a digest of the machine, its boot, and the
namespaces in which these two numbers hold.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
from pathlib import Path

_ROOT = Path("/")
_DEAD = ("Z", "X")
"""States of a process that ended and was not collected by its parent: it still takes signals, but it does nothing."""


def of_this_run(root: Path = _ROOT) -> str:
    """The owner to write into a lock. An action runs in a child of the process that is meant."""
    return of_process(os.getppid(), root)


def of_process(process: int, root: Path = _ROOT) -> str:
    """A process of this controller, as the owner of a lock."""
    known = f"{getpass.getuser()}@{platform.node()}:{process}"
    where, (_state, start) = _where(root), _process(process, root)
    return f"{known}:{start}:{where}" if start and where else known


def is_dead(owner: str, root: Path = _ROOT) -> bool:
    """Say whether that was a run of this very controller that no longer lives; of others nothing is known."""
    process, start, where = ["", "", "", *owner.split(":")][-3:]
    if not (process.isdecimal() and start.isdecimal() and where == _where(root)):
        return False
    state, now = _process(int(process), root)
    if now is None:
        return not _may_be_there(int(process))
    return now != start or state in _DEAD


def _where(root: Path) -> str | None:
    """This machine, its boot, and what its numbers of processes and their times count in; None where that cannot be told."""
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        spaces = [(root / "proc/self/ns/pid").readlink(), *_of_time(root)]
    except (OSError, ValueError):
        return None
    known = "\n".join([_machine_id(root), boot.strip(), *map(str, spaces)])
    # Not the id itself: machine-id(5) wants it kept from others.
    return hashlib.sha256(known.encode()).hexdigest()[:32]


def _of_time(root: Path) -> list[Path]:
    """The namespace in which the start of a process counts; none before Linux 5.6."""
    try:
        return [(root / "proc/self/ns/time").readlink()]
    except OSError:
        return []


def _machine_id(root: Path) -> str:
    """Empty in many containers, which their namespace tells apart."""
    try:
        return (root / "etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _process(number: int, root: Path) -> tuple[str | None, str | None]:
    """The state of a process, and when it began, in ticks since the boot (proc_pid_stat(5)); nothing where it is not to be seen."""
    try:
        # The name, in parentheses, may have any character.
        fields = (root / f"proc/{number}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return None, None


def _may_be_there(number: int) -> bool:
    """Whether a process that /proc does not show is there: it may hide those of others."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

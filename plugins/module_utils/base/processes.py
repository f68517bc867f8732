# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Processes as /proc tells them: who holds the cards, and who lives in a root of its own (a container, a chroot).

Imported by node_facts, and on the node by the programs that a service runs at every boot.
"""

from __future__ import annotations

import os
import re
import stat
from typing import List, Optional, Tuple, TypedDict, Union


# Python 3.8 runs this too: the aliases below are evaluated.
class Holder(TypedDict):
    """A process that holds cards. `devices`: what it has open, without the directory."""

    pid: int
    name: str
    devices: List[str]


Seen = Tuple[List[Holder], Optional[str]]

# What only who uses a card has open. nvidiactl and nvidia-modeset alone are a question to the driver. In a root of its own the place of
# the directory may not be told.
_DEVICE = re.compile(r"(?:/dev)?/(nvidia(?:\d+|-uvm|-caps/nvidia-cap\d+))(?: \(deleted\))?")
_DELETED = " (deleted)"
# Services of the driver itself and its monitors, which hold cards all day and lose nothing: root's, or a system account's.
_SERVICES = frozenset(
    (
        "/usr/bin/nvidia-persistenced",
        "/usr/bin/nv-fabricmanager",
        "/usr/bin/nv-hostengine",
        "/usr/bin/dcgm-exporter",
        "/usr/bin/nvidia-imex",
        "/usr/bin/nvidia-powerd",
        "/opt/nvidia/nvlsm/sbin/nvlsm",
    )
)
# Tools that ask a card, and what draws the desktop: whoever runs them.
_ASKS_OR_DRAWS = frozenset(
    (
        "/usr/bin/nvidia-smi",
        "/usr/bin/nvidia-modprobe",
        "/usr/bin/nvidia-ctk",
        "/usr/bin/nvidia-settings",
        "/usr/bin/Xorg",
        "/usr/lib/xorg/Xorg",
        "/usr/libexec/Xorg",
        "/usr/bin/Xwayland",
        "/usr/bin/gnome-shell",
        "/usr/bin/kwin_wayland",
        "/usr/bin/kwin_x11",
        "/usr/bin/plasmashell",
        "/usr/bin/cinnamon",
        "/usr/bin/cosmic-comp",
        "/usr/bin/sway",
        "/usr/bin/weston",
        "/usr/bin/xfwm4",
    )
)
# Accounts of services: those of packages, and those that systemd makes for DynamicUser= (systemd.exec(5)).
_FIRST_PERSON = 1000
_DYNAMIC = range(61184, 65520)
_GONE = (FileNotFoundError, ProcessLookupError)


def numbers(root: str = "/") -> List[int]:
    """Ids of all processes. Raises OSError."""
    return sorted(int(name) for name in os.listdir(os.path.join(root, "proc")) if name.isdigit())


def holders(root: str = "/", owner: int = 0) -> Seen:
    """Who holds cards, without those that are known to compute nothing; and why not all processes could be looked at, None where they were.

    `owner`: whose programs are known; tests give another one than root.
    """
    try:
        pids = numbers(root)
    except OSError as exc:
        # Nothing runs in a tree that is looked at.
        return [], None if root != "/" else f"/proc could not be listed: {exc.strerror or exc}"
    looks = [(pid, _look(root, pid, owner)) for pid in pids]
    unread = [pid for pid, seen in looks if seen is False]
    more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
    why = f"the open files of process {unread[0]}{more} could not be read" if unread else None
    return [seen for _pid, seen in looks if not isinstance(seen, bool)], why


def of_card(minor: Optional[int]) -> List[str]:
    """Who holds a card, by the number of its device, any card where that is not told. That nobody can tell who does is a use of it, too."""
    found, unread = holders()
    names = [
        "{name} (pid {pid})".format(**each) for each in found if minor is None or f"nvidia{minor}" in each["devices"]
    ]
    return names or ([unread] if unread else [])


def in_own_root(pid: int, root: str = "/") -> Optional[bool]:
    """Whether a process has another root directory than this one: it runs in a container or a chroot. None where that cannot be seen."""
    try:
        theirs, ours = os.stat(_end(root, pid, "root")), os.stat(root)
    except OSError:
        return None
    return (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)


def is_roots(pid: int, root: str = "/") -> bool:
    """Whether root runs a process: whoever else does may give it any name. Of a tree that is looked at, whoever it belongs to."""
    try:
        return os.stat(_place(root, pid)).st_uid == os.stat(root).st_uid
    except OSError:
        return False


def _place(root: str, pid: int, *names: str) -> str:
    return os.path.join(root, "proc", str(pid), *names)


def _end(root: str, pid: int, name: str) -> str:
    """Where a link of a process leads: the kernel follows its own, to a file that was deleted too; that of a tree stays inside it."""
    link = _place(root, pid, name)
    return link if root == "/" else os.path.join(root, os.readlink(link).lstrip("/"))


def _look(root: str, pid: int, owner: int) -> Union[Holder, bool]:
    """A process that holds cards; True where it holds none, or has ended, and False where nobody can tell."""
    try:
        devices = _devices(root, pid)
        if devices and not _is_known(root, pid, owner):
            return {"pid": pid, "name": _name(root, pid), "devices": devices}
    except _GONE:
        return True
    except OSError:
        return False
    return True


def _devices(root: str, pid: int) -> List[str]:
    """The devices of cards that a process has open. Raises OSError."""
    directory = _place(root, pid, "fd")
    found = set()
    for name in os.listdir(directory):
        try:
            match = _DEVICE.fullmatch(os.readlink(os.path.join(directory, name)))
        except FileNotFoundError:
            continue  # closed since
        if match:
            found.add(match.group(1))
    return sorted(found)


def _is_known(root: str, pid: int, owner: int) -> bool:
    """Whether a process is of a program that computes nothing: by where the program is, whose it is, and who runs it. The name that it
    gives itself tells nothing. Raises OSError.
    """
    program = os.readlink(_place(root, pid, "exe"))
    program = program[: -len(_DELETED)] if program.endswith(_DELETED) else program
    if program not in _SERVICES | _ASKS_OR_DRAWS or in_own_root(pid, root) is not False:
        return False
    file, user = os.stat(_end(root, pid, "exe")), os.stat(_place(root, pid)).st_uid
    if file.st_uid != owner or file.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    return program in _ASKS_OR_DRAWS or user == owner or user < _FIRST_PERSON or user in _DYNAMIC


def _name(root: str, pid: int) -> str:
    with open(_place(root, pid, "comm"), encoding="utf-8", errors="replace") as stream:
        return stream.read().strip()

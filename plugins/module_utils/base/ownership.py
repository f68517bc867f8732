# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a path is in root's hands alone: it, every directory above it, and every link on the way.

Root runs, reads as its own and writes through only such paths; a user who works without root only those that are root's or the user's.
Whoever may write one of the directories can put something else into the place of what was looked at; once all of them are root's, nobody
can, and a look does not age.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from typing import NamedTuple, Sequence

_MAX_LINKS = 40
_ACL = "system.posix_acl_access"
#: uv (0.13) leaves this file in each environment that it installs into, and everybody may write it. It is locked; nobody reads or runs it.
_LOCK_FILE = ".lock"
#: Where our uv works, a directory of root's that nobody else enters (observe.environment_builds): its cache has such files too.
_ASIDE = "/.uv/"
#: What makes a directory an environment.
_CONFIGURATION = "pyvenv.cfg"


def trusted(euid: int | None = None) -> Sequence[int]:
    """Whose paths this process may run and fill: root's, and those of the user that it is."""
    mine = os.geteuid() if euid is None else euid
    return (0,) if mine == 0 else (0, mine)


class Offence(NamedTuple):
    """The first thing on the way to a path that somebody else may change."""

    path: str
    text: str
    """The path, and whose it is or who may write it: ``/home/alice, which belongs to alice``."""


def offence(path: str, owners: Sequence[int] = (0,), sticky: bool = False) -> Offence | None:
    """The first thing on the way to the absolute `path` that another than `owners` (user ids) may change; None where there is none.

    A directory that everybody may write and that is sticky (/tmp) is passed where what lies in it belongs to the owners. With `sticky` the
    way may end in such a directory, for what is made there under a name that nobody can foresee, or is judged again once it is made.
    What is not there has no offence of its own.
    """
    todo = path.split("/")[::-1]
    here, links = "/", 0
    found = _fault(here, os.lstat(here), owners)
    while todo and not found:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = os.path.dirname(here)
            continue
        entry = os.path.join(here, part)
        try:
            status = os.lstat(entry)
        except (FileNotFoundError, NotADirectoryError):
            break
        except OSError as exc:
            return Offence(entry, f"{entry}, which cannot be looked at ({exc.strerror})")
        found = _fault(entry, status, owners)
        if not stat.S_ISLNK(status.st_mode):
            here = entry
            continue
        links += 1
        if links > _MAX_LINKS:
            return Offence(entry, f"{entry}, a link that leads nowhere")
        target = os.readlink(entry)
        here = "/" if target.startswith("/") else here
        todo += target.split("/")[::-1]
    if not found and not sticky and _is_shared(os.lstat(here)):
        return Offence(here, f"{here}, in which everybody may make something")
    return found


def offence_below(path: str, owners: Sequence[int] = (0,)) -> Offence | None:
    """As :func:`offence`, for all that lies below `path` too, but for the lock files of environments."""
    found = offence(path, owners)
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            entry = os.path.join(folder, name)
            status = os.lstat(entry)
            ours = _ASIDE in folder and name.endswith(_LOCK_FILE)
            if (ours or _is_environments_lock(name, folder == path or _CONFIGURATION in files)) and _is_plain(
                status, owners
            ):
                continue
            found = found or _fault(entry, status, owners)
            if not found and (stat.S_ISLNK(status.st_mode) or _is_shared(status)):
                found = offence(entry, owners)
            if found:
                return found
    return found


def refusal(path: str, found: Offence, remedy: str, owners: Sequence[int] = (0,)) -> str:
    """Why root, or another one of the `owners`, leaves `path` alone, for a person."""
    whose = " or ".join(map(_user, reversed(owners)))
    return (
        f"Expected {path} to belong to {whose}, with all directories above it and all that lies in it, and nobody else to write there. "
        f"Found {found.text}. What to do: {remedy}"
    )


def _fault(path: str, status: os.stat_result, owners: Sequence[int]) -> Offence | None:
    """What is wrong with one entry; of a link only its owner counts, and a shared directory is judged by what follows it."""
    if status.st_uid not in owners:
        return Offence(path, f"{path}, which belongs to {_user(status.st_uid)}")
    if stat.S_ISLNK(status.st_mode) or _is_shared(status) or not status.st_mode & 0o022:
        return None
    if status.st_mode & 0o002:
        return Offence(path, f"{path}, which everybody may write")
    return None if _has_no_others(path, status.st_gid, owners) else Offence(path, f"{path}, which a group may write")


def _is_environments_lock(name: str, inside: bool) -> bool:
    return inside and name == _LOCK_FILE


def _is_plain(status: os.stat_result, owners: Sequence[int]) -> bool:
    """Whether it is a file of the owners that nobody can run, whoever may write it."""
    return stat.S_ISREG(status.st_mode) and not status.st_mode & 0o111 and status.st_uid in owners


def _is_shared(status: os.stat_result) -> bool:
    """Whether others may make entries of their own in a directory, and touch no other's."""
    return stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX) and bool(status.st_mode & 0o022)


def _has_no_others(path: str, gid: int, owners: Sequence[int]) -> bool:
    """Whether a group is the private one of an owner (umask 002 is usual with these), and no access list says more than the mode."""
    names = {_user(uid) for uid in owners}
    with contextlib.suppress(OSError):
        if _ACL in os.listxattr(path):
            return False
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    members = set(group.gr_mem) | {user.pw_name for user in pwd.getpwall() if user.pw_gid == gid}
    return group.gr_name in names and members <= names


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"

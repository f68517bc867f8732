# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directory of a run on the controller: its user's alone, or refused.

It holds what was seen of every host and what was asked. Once nobody else can write it, or put another directory in its place, what is
written there goes nowhere else.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.gpuwright.node.plugins.module_utils import ownership


class RefusedError(Exception):
    """The directory is not its user's alone; the text says who else may change it."""


def make(path: Path) -> Path:
    """Make the directory where it is missing, closed to others; its real path.

    Raises:
        RefusedError: it, or a directory above it, is somebody else's or may be written by somebody else.
        OSError: it cannot be made.
    """
    ours = (os.geteuid(),)
    # What is missing in a directory like /tmp is made here, or was made by somebody else just now: it is judged again.
    _judge(path, (0, *ours), sticky=True)
    for folder in (*reversed(path.parents), path):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    real = path.resolve()
    _judge(path, (0, *ours))
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if found.st_uid not in ours:
            raise RefusedError(f"{real}, which belongs to root")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return real


def is_own_file(path: Path) -> bool:
    """Whether a path is a regular file of this user, and no link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def write(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Replace a file in one step, readable by its user alone: a reader sees the old one or the new one, whole. No link is followed."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _judge(path: Path, owners: Sequence[int], *, sticky: bool = False) -> None:
    found = ownership.offence(str(path), owners, sticky=sticky)
    if found:
        raise RefusedError(found.text)

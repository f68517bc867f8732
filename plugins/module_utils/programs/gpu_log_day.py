# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A day of the log of the cards (gpu_log.py): read it where it lies, and pack it for the way to the controller."""

from __future__ import annotations

import base64
import errno
import os
import re
import stat
import time
import zlib
from typing import Optional

from ansible_collections.gpuwright.node.plugins.module_utils.programs import gpu_log

#: Bytes of a day that are read. One of eight cards has less than two million.
MOST = 20 * 1024**2
#: Characters of a packed one; the gate on the controller takes in no more.
MOST_PACKED = 3_500_000
_DAY = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")


class DayError(Exception):
    """There is no log of that day that can be read; the text is for a person."""


def is_day(text: str) -> bool:
    """Whether a text is a day such as 2026-11-27."""
    try:
        time.strptime(text, "%Y-%m-%d")
    except ValueError:
        return False
    return bool(_DAY.match(text))


def read(day: str, directory: str = gpu_log.DIRECTORY) -> bytes:
    """The log of a day. Raises DayError."""
    path = os.path.join(directory, gpu_log.name_of(day))
    try:
        content = _content(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise DayError(f"there is no log of the cards of {day} ({path})") from None
        raise DayError(f"{path} cannot be read: {error.strerror}") from None
    if content is None:
        raise DayError(f"{path} is no file")
    if len(content) > MOST:
        raise DayError(f"{path} has more than {MOST // 1024**2} MiB, which no log of a day has")
    return content


def _content(path: str) -> Optional[bytes]:
    """What is in a file, as far as one byte more than may be; None where it is none."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with open(handle, "rb", closefd=False) as stream:
            return stream.read(MOST + 1)
    finally:
        os.close(handle)


def pack(content: bytes) -> str:
    """A log as text without a comma or a line, which :func:`unpack` reads. Raises DayError where it is too much all the same."""
    text = base64.b64encode(zlib.compress(content, 9)).decode("ascii")
    if len(text) > MOST_PACKED:
        raise DayError(f"the log has {len(text)} characters when packed, and at most {MOST_PACKED} are taken in")
    return text


def unpack(text: str) -> bytes:
    """What was packed, and never more than a log may have. Raises DayError."""
    try:
        opened = zlib.decompressobj()
        content = opened.decompress(base64.b64decode(text, validate=True), MOST + 1)
    except (ValueError, zlib.error):
        raise DayError("the log came broken") from None
    if len(content) > MOST or not opened.eof:
        raise DayError(f"the log came broken, or has more than {MOST // 1024**2} MiB")
    return content

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Dotted version numbers: 580.95.05, 13.0, 6.12.107+deb13-amd64."""

from __future__ import annotations

import re
from functools import lru_cache

# No version has a longer number; a text of thousands of digits would be an error to make a number of.
_NUMBERS = re.compile(r"\d{1,18}")


@lru_cache(maxsize=4096)
def key(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare by: "580.95.05" gives (580, 95, 5).

    What follows the first character that is neither digit nor dot is left out, so that
    a kernel release such as "6.12.107+deb13-amd64" compares by 6.12.107.
    """
    head = re.match(r"[\d.]*", version)
    return tuple(int(number) for number in _NUMBERS.findall(head.group() if head else ""))


@lru_cache(maxsize=16384)
def at_least(version: str, floor: str) -> bool:
    """Say whether a version is the floor or above it; missing parts count as zero."""
    left, right = key(version), key(floor)
    if len(left) == len(right):
        return left >= right
    width = max(len(left), len(right))
    return left + (0,) * (width - len(left)) >= right + (0,) * (width - len(right))


def highest(*versions: str | None) -> str | None:
    """Return the highest of the versions that are given, None when none is."""
    known = [version for version in versions if version]
    return max(known, key=key) if known else None


def major(version: str) -> str:
    """Return the first number of a version as text: "13.0" gives "13"."""
    return version.split(".", 1)[0]


def belongs(version: str, prefix: str) -> bool:
    """Say whether a version is the prefix or a refinement of it: 2.8.0 belongs to 2.8, 2.80 does not."""
    wanted = key(prefix)
    return key(version)[: len(wanted)] == wanted


def upstream(version: str) -> str:
    """Return a package's version without epoch and revision: "1:580.95.05-0ubuntu1" gives "580.95.05"."""
    return version.split(":", 1)[-1].split("-", 1)[0]

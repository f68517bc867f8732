# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions of Debian packages in dpkg's order (deb-version(7)), which apt's words tell in no form that stays the same."""

from __future__ import annotations

import re

# Each step compares what is no digit, then the number behind it.
_STEP = re.compile(r"([^0-9]*)([0-9]*)")
#: Behind every letter, before every other sign.
_OTHER_SIGN = 256


def is_older(one: str, other: str) -> bool:
    """Whether a version comes before another one."""
    return _key(one) < _key(other)


def _key(version: str) -> tuple[int, list[object], list[object]]:
    epoch, colon, rest = version.rpartition(":")
    upstream, dash, revision = rest.rpartition("-")
    return (
        int(epoch) if colon and epoch.isdigit() else 0,
        _steps(upstream if dash else rest),
        _steps(revision if dash else "0"),
    )


def _steps(text: str) -> list[object]:
    return [([*map(_weight, signs), 0], int(number or 0)) for signs, number in _STEP.findall(text)]


def _weight(sign: str) -> int:
    if sign == "~":
        return -1
    return ord(sign) if sign.isalpha() else ord(sign) + _OTHER_SIGN

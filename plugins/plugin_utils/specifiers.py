# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Version ranges as pip writes them: ">=2.7,<2.10", "==2.8.*".

The package that pip itself uses costs 20 ms to load, more than a whole resolution; plain numbers need none of it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ansible_collections.gpuwright.node.plugins.module_utils import dotted

_PART = re.compile(r"^(?P<operator>~=|==|!=|>=|<=|>|<)\s*(?P<version>\d+(?:\.\d+)*)(?P<any>\.\*)?$")

_VERSION = re.compile(r"^\d+(?:\.\d+)*$")

Part = tuple[str, str, bool]


def is_range(specifier: str) -> bool:
    """Say whether a text is a range of plain versions."""
    return _parts(specifier) is not None


def matches(version: str, specifier: str) -> bool:
    """Say whether a version is in a range; "" is every version. Raises ValueError for a text that is no range."""
    if not specifier:
        return True
    parts = _parts(specifier)
    if parts is None:
        raise ValueError(f"{specifier!r} is no version range")
    return all(_holds(version, part) for part in parts)


def is_version(text: str) -> bool:
    """Say whether a text is a plain version: no pre-release, no build of one's own."""
    return bool(_VERSION.match(text))


def is_pin(specifier: str) -> bool:
    """Say whether only one version is in a range."""
    return any(operator == "==" and not below for operator, _, below in _parts(specifier) or ())


def upper_bound(specifier: str) -> bool:
    """Say whether a range ends: nothing new can come into it for ever."""
    return any(operator in ("<", "<=", "==", "~=") for operator, _, _ in _parts(specifier) or ())


@lru_cache(maxsize=1024)
def _parts(specifier: str) -> tuple[Part, ...] | None:
    found = []
    for text in specifier.split(","):
        part = _PART.match(text.strip())
        if part is None or (part["any"] and part["operator"] not in ("==", "!=")):
            return None
        if part["operator"] == "~=" and "." not in part["version"]:
            return None
        found.append((part["operator"], part["version"], bool(part["any"])))
    return tuple(found)


def _holds(version: str, part: Part) -> bool:
    operator, wanted, with_all_below = part
    if operator == "~=":
        return dotted.at_least(version, wanted) and dotted.belongs(version, wanted.rsplit(".", 1)[0])
    if operator in ("==", "!="):
        same = dotted.belongs(version, wanted) if with_all_below else _equal(version, wanted)
        return same == (operator == "==")
    if operator in (">=", "<"):
        return dotted.at_least(version, wanted) == (operator == ">=")
    return dotted.at_least(wanted, version) == (operator == "<=")


def _equal(one: str, other: str) -> bool:
    return dotted.at_least(one, other) and dotted.at_least(other, one)

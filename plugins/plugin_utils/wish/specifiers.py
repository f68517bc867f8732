# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Version ranges as pip writes them: ">=2.7,<2.10", "==2.8.*". Read by the package that pip itself uses.

It takes longer to load than most answers take, so it is loaded where the first range is read, and what it said is remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_RELEASE = lazy(r"^\d+(?:\.\d+)*(?:\.post\d+)?$")
# Longer than any version is, and short enough for everything that turns digits into numbers.
_LONGEST = 200


def is_range(specifier: str) -> bool:
    """Say whether a text is a range of releases; a build of one's own (+cu121) is in none."""
    return 0 < len(specifier) <= _LONGEST and "+" not in specifier and _read(specifier) is not None


@lru_cache(maxsize=16384)
def matches(version: str, specifier: str) -> bool:
    """Say whether a version is in a range; "" is every version. Raises ValueError for a text that is no range."""
    if not specifier:
        return True
    if len(specifier) > _LONGEST:
        return False
    read = _read(specifier)
    if read is None or "+" in specifier:
        raise ValueError(f"{specifier!r} is no version range")
    return read.contains(version, prereleases=True)


def is_version(text: str) -> bool:
    """Say whether a text is a release: no pre-release, no build of one's own."""
    return bool(_RELEASE.match(text))


def is_pin(specifier: str) -> bool:
    """Say whether only one version is in a range."""
    return any(part.operator in ("==", "===") and not part.version.endswith(".*") for part in _read(specifier) or ())


def bound(specifier: str) -> str | None:
    """Return the one version that a range is about: what ==2.16.*, >=2.16 and <1.13 name; None where there are several, or none."""
    parts = list(_read(specifier) or ())
    return parts[0].version.removesuffix(".*") if len(parts) == 1 else None


def upper_bound(specifier: str) -> bool:
    """Say whether a range ends: nothing new can come into it for ever."""
    return any(part.operator in ("<", "<=", "==", "===", "~=") for part in _read(specifier) or ())


@lru_cache(maxsize=1024)
def _read(specifier: str) -> SpecifierSet | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(specifier)
    except InvalidSpecifier:
        return None

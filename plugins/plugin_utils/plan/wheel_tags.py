# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tags of wheels that an interpreter on a node takes, from what is known of the node, and why a wheel has none of them.

The library `packaging`, which pip has inside, makes them; it is one of ansible-core's own requirements. It is loaded where a wheel is asked
for, because it takes longer to load than most plans take.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

if TYPE_CHECKING:
    from packaging.tags import Tag

#: The glibc of a node that does not say its own: new enough for every wheel, so that none is refused for it.
_NEWEST_GLIBC = 99
#: The first glibc that a manylinux tag names, by architecture; others joined with PEP 599 (2.17).
_FIRST_GLIBC = {"x86_64": 5, "i686": 5}
#: Older names of some (PEP 513, PEP 571, PEP 599).
_OLD_NAMES = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}


def taken(python: str, glibc: str | None, arch: str) -> list[str]:
    """Return the tags, best first. ``python`` is the interpreter's version (3.13), CPython with its lock; ``glibc`` None is unknown."""
    return [str(tag) for tag in _taken(python, glibc, arch)]


@lru_cache(maxsize=8)
def _taken(python: str, glibc: str | None, arch: str) -> list[Tag]:
    from packaging import tags

    version, platforms = numeric_version.key(python)[:2], _platforms(glibc, arch)
    name = "cp{}{}".format(*version)
    return [
        *tags.cpython_tags(version, abis=[name], platforms=platforms),
        *tags.compatible_tags(version, name, platforms),
    ]


def _platforms(glibc: str | None, arch: str) -> list[str]:
    """Return the platforms of a node, the newest first: every glibc up to its own (PEP 600)."""
    minor = _minor(glibc)
    names = []
    for each in range(minor, _FIRST_GLIBC.get(arch, 17) - 1, -1):
        names.append(f"manylinux_2_{each}_{arch}")
        if each in _OLD_NAMES:
            names.append(f"{_OLD_NAMES[each]}_{arch}")
    return [*names, f"linux_{arch}"]


def _minor(glibc: str | None) -> int:
    numbers = numeric_version.key(glibc or "")
    return min(numbers[1], _NEWEST_GLIBC) if len(numbers) > 1 and numbers[0] == 2 else _NEWEST_GLIBC


def why_none(files: Sequence[str], python: str, glibc: str | None, arch: str) -> str:
    """Return why none of these wheels is taken, as the rest of a sentence about them: the first thing that none of them has."""
    tags = [tag for name in files for tag in _tags(name)]
    here = [tag for tag in tags if tag.platform == "any" or tag.platform.endswith(f"_{arch}")]
    if not here:
        others = sorted({_arch(tag.platform) for tag in tags if "linux" in tag.platform})
        return f"wheels for {', '.join(others) or 'other systems'} alone, and this node is {arch}"
    pairs = {(tag.interpreter, tag.abi) for tag in _taken(python, glibc, arch)}
    fitting = [tag for tag in here if (tag.interpreter, tag.abi) in pairs]
    if not fitting:
        return f"wheels for {', '.join(dict.fromkeys(_python(tag) for tag in here))} alone, and not for Python {python}"
    needed = [found for tag in fitting if (found := _glibc(tag.platform))]
    if needed:
        return f"wheels for glibc 2.{min(needed)} or newer, and this node has {glibc or 'an unknown one'}"
    return "wheels for other systems alone"


def _tags(name: str) -> list[Tag]:
    """Return the tags of a wheel by its name; none of one that breaks the rules for names."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    from packaging.version import InvalidVersion

    try:
        return sorted(parse_wheel_filename(name)[3], key=str)
    except (InvalidWheelFilename, InvalidVersion):
        return []


def _arch(platform: str) -> str:
    return next((each for each in ("x86_64", "aarch64", "i686") if platform.endswith(each)), platform)


def _python(tag: Tag) -> str:
    """Return the Python of a tag for a person: cp313 is 3.13, its variant without the lock 3.13t."""
    digits = tag.interpreter[2:]
    version = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"Python {version}{'t' if tag.abi.endswith('t') else ''}"


def _glibc(platform: str) -> int | None:
    """Return the minor version of the glibc 2 that a platform needs; None where it names none."""
    for minor, name in _OLD_NAMES.items():
        if platform.startswith(f"{name}_"):
            return minor
    parts = platform.split("_")
    return int(parts[2]) if parts[:2] == ["manylinux", "2"] and len(parts) > 3 and parts[2].isdigit() else None

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an environment is made of: names of distributions, and the packages that make it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

# Packages of which an environment has one set: what another variant left behind is loaded too.
_ONE_OF = re.compile("({})$".format("|".join(each.one_of for each in ABOUT.values() if each.one_of)))
# What has ensurepip beside an interpreter of the distribution: on Red Hat it is the interpreter's own package.
_VENV = {"debian": "-venv", "redhat": ""}


def name(pin: str) -> str:
    """The distribution that a requirement names, as an index spells it."""
    return re.split(r"[\[=<>!~ ]", pin, maxsplit=1)[0].lower().replace("_", "-")


def left_behind(requirements: Sequence[str], present: Iterable[str]) -> list[str]:
    """What another variant left of packages of which there is one set, sorted. pip leaves it where it is."""
    required = {name(pin) for pin in requirements}
    return [each for each in sorted(present) if _ONE_OF.match(each) and each not in required]


def satisfied(pin: str, present: Mapping[str, str]) -> bool:
    """Is the exact pin installed? The local version counts only where the pin names one (2.14.1+cu130)."""
    version = present.get(name(pin))
    wished = pin.split("==", 1)[1]
    if version is None:
        return False
    return version == wished or ("+" not in wished and version.split("+", 1)[0] == wished)


def interpreters(version: str) -> list[str]:
    """The names under which distributions package a Python with all that an environment needs."""
    return list(dict.fromkeys(f"python{version}{suffix}" for suffix in _VENV.values()))


def maker(version: str, family: str) -> str:
    """The package of a family of systems that makes environments of a Python's version."""
    return f"python{version}{_VENV.get(family, '')}"

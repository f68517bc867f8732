# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an environment is made of: names of distributions, and the packages that make it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ...wish import specifiers

if TYPE_CHECKING:
    from ...model.stack import Stack
    from .model import FrameworkEnvironment, Install

# Packages of which an environment has one set: what another variant left behind is loaded too.
_ONE_OF = re.compile("({})$".format("|".join(each.one_of for each in ABOUT.values() if each.one_of)))
# What has ensurepip beside an interpreter of the distribution: on Red Hat it is the interpreter's own package.
_VENV = {"debian": "-venv", "redhat": ""}


def name(pin: str) -> str:
    """The distribution that a requirement names, as an index spells it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[=<>!~ ;]", pin, maxsplit=1)[0].lower())


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


def meets(requirement: str, present: Mapping[str, str]) -> bool:
    """Is something installed that a requirement takes? One that is no plain range is left to the role."""
    version = present.get(name(requirement))
    specifier = re.sub(r"^[^\[=<>!~ ]+(\[[^\]]*\])?", "", requirement).strip()
    if version is None or not specifiers.is_range(specifier):
        return version is not None
    return specifiers.matches(version.split("+", 1)[0], specifier)


def limit(requirement: str) -> str:
    """A requirement as pip takes it for a constraint: without extras; empty where it limits nothing."""
    found = re.sub(r"\[[^\]]*\]", "", requirement)
    return found if re.search(r"[=<>!~]", found) else ""


def is_pin(requirement: str) -> bool:
    """Is a requirement one of exactly one version?"""
    return re.fullmatch(r"[^\[=<>!~ ;]+(\[[^\]]*\])?==[^,*=<>!~]+", requirement) is not None


def environments(stack: Stack) -> list[FrameworkEnvironment]:
    """One row for each environment: those of several frameworks in one have the same contents."""
    return list({row["path"]: row for row in reversed(stack.get("frameworks") or ())}.values())[::-1]


def titles(path: str, stack: Stack) -> str:
    """The frameworks of an environment, with their versions."""
    rows = [row for row in stack.get("frameworks") or () if row["path"] == path]
    return " and ".join(f"{row['name']} {row['version']}" for row in rows)


def installs(framework: FrameworkEnvironment) -> list[Install]:
    """What each framework of an environment brings."""
    origin = {key: value for key, value in framework.items() if key in ("index_url", "dependencies_url", "from_source")}
    one = {
        "name": framework["name"],
        "variant": framework.get("variant"),
        "requirements": framework["requirements"],
        **origin,
    }
    return framework.get("installs") or [cast("Install", one)]


def public_index(framework: FrameworkEnvironment) -> str | None:
    """The index of what has none of its own; None for the host's."""
    return next((each["dependencies_url"] for each in installs(framework) if each.get("dependencies_url")), None)


def indexes(framework: FrameworkEnvironment) -> list[str]:
    """The indexes that the wheels of an environment come from, its own first; "" is the host's, and none at all is that too."""
    several = installs(framework)
    own = list(dict.fromkeys(each["index_url"] for each in several if each.get("index_url")))
    rest = public_index(framework)
    if rest:
        return list(dict.fromkeys([*own, rest]))
    beside = framework.get("others") or any(not each.get("index_url") for each in several)
    return [*own, ""] if own and beside else own


def interpreters(version: str) -> list[str]:
    """The names under which distributions package a Python with all that an environment needs."""
    return list(dict.fromkeys(f"python{version}{suffix}" for suffix in _VENV.values()))


def maker(version: str, family: str) -> str:
    """The package of a family of systems that makes environments of a Python's version."""
    return f"python{version}{_VENV.get(family, '')}"

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the environments ask of the Python index: the pins that pip would have to install now, and the indexes that each may come from.

What the pins need besides (torch's nvidia-* wheels) is not asked for: only pip knows what that is. A lock names all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ...wish import specifiers
from ..demand import WheelDemand
from . import contents

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PythonEnvironment

    from ...model.stack import FrameworkEnvironment
    from ...wish import Wish
    from ..base import Context


def wheels(context: Context) -> list[WheelDemand]:
    """Return what pip would be asked to install; nothing of an environment that has it."""
    return [demand for framework in context.stack.get("frameworks") or () for demand in _of(framework, context)]


def _of(framework: FrameworkEnvironment, context: Context) -> list[WheelDemand]:
    environment = (context.facts["environments"] or {}).get(framework["path"])
    anew = _anew(framework, environment, context)
    present = environment["packages"] if environment and not anew else {}
    locked = framework.get("wheels") or ()
    named = [f"{wheel['name']}=={wheel['version']}" for wheel in locked]
    lacking = [pin for pin in (*framework["requirements"], *named) if not contents.satisfied(pin, present)]
    if locked:
        # Of a lock pip installs everything again, each file by its hash, whichever index it comes from.
        urls = _urls(framework, "index_url", "dependencies_url")
        hashes = {pin: wheel["sha256"] for pin, wheel in zip(named, locked, strict=True)}
        return [_demand(framework, pin, urls, hashes[pin]) for pin in named] if lacking else []
    return [_demand(framework, pin, _urls(framework, "index_url")) for pin in dict.fromkeys(lacking)]


def _anew(framework: FrameworkEnvironment, environment: PythonEnvironment | None, context: Context) -> bool:
    """Is the environment made anew, whatever is in it?"""
    if environment is None or environment.get("damage") or framework["path"] in context.condemned:
        return True
    python = environment.get("python")
    other = python and not numeric_version.belongs(str(python), str(framework["interpreter"]))
    return bool(other or contents.left_behind(framework["requirements"], environment["packages"]))


def _urls(framework: FrameworkEnvironment, *keys: str) -> list[str]:
    given: Mapping[str, object] = framework
    return list(dict.fromkeys(str(given[key]) for key in keys if given.get(key)))


def _demand(framework: FrameworkEnvironment, pin: str, urls: Sequence[str], sha256: Sequence[str] = ()) -> WheelDemand:
    name = contents.name(pin)
    return WheelDemand(
        environment=framework["path"],
        interpreter=str(framework["interpreter"]),
        name=name,
        version=pin.split("==", 1)[1],
        urls=urls,
        sha256=sha256,
        source=name in (framework.get("from_source") or ()),
        # What a lock names is chosen when it is made.
        others=WheelDemand.others if sha256 else partial(_others, framework),
    )


def _others(
    framework: FrameworkEnvironment, there: Mapping[str, Sequence[str]], wish: Wish
) -> Iterator[tuple[str, Wish]]:
    """Yield the releases of a framework of which its own distribution is there, in the order in which that is told."""
    about = ABOUT[framework["name"]]
    # The first pin is the framework's own: the others go with it.
    for found in there.get(contents.name(framework["requirements"][0]), ()):
        public, _plus, local = found.partition("+")
        if not specifiers.is_version(public):
            continue
        variant = local if local and about.local else framework["variant"]
        frameworks = tuple(
            replace(each, specifier=f"=={public}", variant=variant) if each.name == framework["name"] else each
            for each in wish.frameworks
        )
        yield about.asked(public, variant), replace(wish, frameworks=frameworks)

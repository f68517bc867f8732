# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the environments ask of the Python index: the pins that would have to be installed now, and the indexes that each may come from.

What the pins need besides (torch's nvidia-* wheels) is not asked for: only pip knows what that is. A lock names all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ...rules import load_rules
from ...wish import specifiers
from ..demand import WheelDemand
from . import contents, differences
from .resolve import left_open

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts

    from ...wish.wish import Wish
    from ..base import Context
    from .model import FrameworkEnvironment, Install


def wheels(context: Context) -> list[WheelDemand]:
    """Return what the index would be asked for: all that an environment is made of which is built, nothing of one that is not."""
    return [demand for framework in built(context) for demand in _of(framework, _left_open(framework, context))]


def built(context: Context) -> list[FrameworkEnvironment]:
    """Return the environments that are built."""
    environments = context.facts["environments"] or {}
    return [
        framework
        for framework in contents.environments(context.stack)
        if differences.is_built(framework, environments.get(framework["path"]), context)
    ]


def _left_open(framework: FrameworkEnvironment, context: Context) -> list[str]:
    rows = [each for each in context.stack.get("frameworks") or () if each["path"] == framework["path"]]
    return left_open(rows, load_rules())


def whole_version(interpreter: str, facts: Facts) -> str:
    """Return the version of a Python with its patch release. One that is not there yet is a late one."""
    versions = [str(each["version"]) for each in facts["python"]["interpreters"]]
    whole = [each for each in versions if numeric_version.belongs(each, interpreter) and each.count(".") > 1]
    return whole[0] if whole else f"{interpreter}.99"


def _of(framework: FrameworkEnvironment, chosen: Sequence[str]) -> list[WheelDemand]:
    """Return what an environment is made of. ``chosen``: libraries that the rules pinned within a range."""
    locked = framework.get("wheels")
    if locked:
        # By its hash a file is the same, whichever index it comes from.
        urls = contents.indexes(framework)
        return [_demand(framework, f"{row['name']}=={row['version']}", urls, row["sha256"]) for row in locked]
    demands = [
        _demand(framework, pin, [install["index_url"]] if install.get("index_url") else [], of=install)
        for install in contents.installs(framework)
        for pin in dict.fromkeys(install["requirements"])
    ]
    rest = contents.public_index(framework)
    pinned = [each for each in framework.get("others") or () if contents.is_pin(each)]
    demands += [_demand(framework, pin, [rest] if rest else []) for pin in pinned]
    return demands + [replace(_demand(framework, pin, contents.indexes(framework)), chosen=True) for pin in chosen]


def _demand(
    framework: FrameworkEnvironment,
    pin: str,
    urls: Sequence[str],
    sha256: Sequence[str] = (),
    of: Install | None = None,
) -> WheelDemand:
    name = contents.name(pin)
    return WheelDemand(
        environment=framework["path"],
        interpreter=str(framework["interpreter"]),
        name=name,
        version=pin.split("==", 1)[1],
        urls=urls,
        sha256=sha256,
        source=name in ((of or framework).get("from_source") or ()),
        # What a lock names is chosen when it is made, and what a project pins in its file.
        others=partial(_others, framework, of) if of else WheelDemand.others,
    )


def _others(
    framework: FrameworkEnvironment, install: Install, there: Mapping[str, Sequence[str]], wish: Wish
) -> Iterator[tuple[str, Wish]]:
    """Yield the releases of a framework of which its own distribution is there, in the order in which that is told."""
    about, name = ABOUT[install["name"]], framework.get("environment")
    # The first pin is the framework's own: the others go with it.
    for found in there.get(contents.name(install["requirements"][0]), ()):
        public, _plus, local = found.partition("+")
        if not specifiers.is_version(public):
            continue
        variant = local if local and about.local else install["variant"]
        frameworks = tuple(
            replace(each, specifier=f"=={public}", variant=variant)
            if (each.name, each.environment) == (about.name, name)
            else each
            for each in wish.frameworks
        )
        asked = about.asked(public, variant)
        yield f"{asked}@{name}" if name else asked, replace(wish, frameworks=frameworks)

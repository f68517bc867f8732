# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The way back to environments that were in use before, and staying there: as a wish for their very releases.

Whether the build that is kept is what such a wish resolves to, is then seen as of any other environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ...model import sections
from ...wish import FrameworkWish, Wish, specifiers

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, KeptEnvironment

    from ...model.frameworks import FrameworkEnvironment, KeptFramework
    from ...model.stack import Stack, Why
    from ..base import Context

_VARIANT = re.compile(r"[a-z0-9-]+", re.ASCII)

#: Wishes for the releases of frameworks, by their keys (pytorch, pytorch@research).
Pins = Mapping[str, FrameworkWish]


def targets(facts: Facts, wish: Wish) -> dict[str, tuple[str, FrameworkWish]]:
    """What a node can return to, by the key of the framework: when it gave way, and the wish for it."""
    found = {}
    for framework in wish.frameworks:
        environment = (facts["environments"] or {}).get(f"{wish.frameworks_path}/{framework.directory}")
        kept = environment.get("kept") if environment else None
        pin = _of_kept(framework, kept) if kept else None
        if kept and pin:
            found[framework.key] = (kept["gave_way"] or "", pin)
    return found


def _of_kept(framework: FrameworkWish, kept: KeptEnvironment) -> FrameworkWish | None:
    """The wish for what a build has; None where the framework itself is not in it."""
    about = ABOUT[framework.name]
    for package, version in kept["packages"].items():
        public, _plus, local = version.partition("+")
        named = re.fullmatch(about.variant_in_name, package) if about.variant_in_name else None
        if named or package == about.package:
            return _pin(framework, public, named[1] if named else local if about.local else "")
    return None


def _pin(framework: FrameworkWish, version: str, variant: str) -> FrameworkWish | None:
    """The wish for one release. What a node says is believed where it is a version."""
    if not specifiers.is_version(version) or (variant and not _VARIANT.fullmatch(variant)):
        return None
    return replace(framework, specifier=f"=={version}", variant=variant or framework.variant)


def staying(facts: Facts, wish: Wish) -> dict[str, FrameworkWish]:
    """The releases that a rollback led to, by the seal, where the wish is the one of then."""
    seal = sections.seal(facts, "frameworks")
    rows: object = seal["stack"] if seal else None
    return pinned(rows if isinstance(rows, list) else (), wish)


def pinned(rows: Iterable[object], wish: Wish) -> dict[str, FrameworkWish]:
    """The releases of those rows of a stack that a rollback led to, for a wish that is the one of then."""
    found = {}
    known = {_key(row): row for row in rows if isinstance(row, Mapping)}
    for framework in wish.frameworks:
        row = known.get(framework.key, {})
        if row.get("stays") == asked(framework):
            pin = _pin(framework, str(row.get("version")), str(row.get("variant") or ""))
            if pin is not None:
                found[framework.key] = pin
    return found


def _key(row: Mapping[str, object]) -> str:
    """The key of a framework of a stack, as that of a wish."""
    named = row.get("environment")
    return f"{row.get('name')}@{named}" if named else str(row.get("name"))


def asked(framework: FrameworkWish) -> KeptFramework:
    """What a wish says of a framework: a rollback stays for as long as this is the same."""
    return {"specifier": framework.specifier, "variant": framework.variant}


def held(wish: Wish, pins: Pins) -> Wish:
    """A wish with the releases that are returned to, or stayed at."""
    return replace(wish, frameworks=tuple(pins.get(each.key, each) for each in wish.frameworks))


def marked(stack: Stack, wish: Wish, pins: Pins) -> Stack:
    """A stack that says of what was returned to for which wish it stays there."""
    rows = stack.get("frameworks")
    if not rows or not pins:
        return stack
    stays = {each.key: asked(each) for each in wish.frameworks if each.key in pins}
    marked_rows = [
        cast("FrameworkEnvironment", {**row, "stays": stays[_key(row)]}) if _key(row) in stays else row for row in rows
    ]
    return {**stack, "frameworks": marked_rows}


def told(context: Context) -> list[Why]:
    """That an environment was rolled back and stays there."""
    return [
        {
            "rule": "rolled-back",
            "text": (
                f"{row['path']} was rolled back to {row['name']} {row['version']}: it stays there until the wish for {row['name']} "
                "changes, or gpuwright upgrade is asked for"
            ),
            "source": "gpuwright",
        }
        for row in context.stack.get("frameworks") or ()
        if row.get("stays") is not None
    ]

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The way back to environments that were in use before, and staying there: a wish for their very releases says what they go with.

What is in them is what the kept build has, not what such a wish would resolve to today: a return restores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT

from ...model import sections
from ...model.wish import Project, Requirement
from ...wish import specifiers
from ...wish.wish import FrameworkWish, Wish
from . import contents, differences
from .resolve import pins as libraries

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, KeptEnvironment, PythonEnvironment

    from ...model.stack import Stack, Why
    from ..base import Context
    from .model import FrameworkEnvironment, KeptFramework

#: Keys of a row that say what is in an environment.
_CONTENTS = ("requirements", "others", "constraints", "interpreter", "loader_path")
_VARIANT = re.compile(r"[a-z0-9-]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_PYTHON = re.compile(r"3\.[0-9]{1,2}", re.ASCII)

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


def sealed(facts: Facts) -> Sequence[object]:
    """The rows of the stack that the seal has."""
    seal = sections.seal(facts, "frameworks")
    rows: object = seal["stack"] if seal else None
    return rows if isinstance(rows, list) else ()


def pins_of_seal(facts: Facts) -> dict[str, list[str]]:
    """The versions of libraries that the environments of the seal are held to."""
    return {
        libraries.sealed_of(str(row.get("path")), contents.name(limit)): [limit.split("==", 1)[1]]
        for row in sealed(facts)
        if isinstance(row, Mapping)
        for limit in _texts(row.get("constraints"))
        if contents.is_pin(limit)
    }


def stays_at(path: str) -> str:
    """What says of an environment, among what an index lacks, that it stays as it is."""
    return f"environment={path}"


def may_stay(context: Context, wish: Wish, path: str) -> bool:
    """Whether an environment is as it was sealed, works, and is what is wished: it may stay so where the index lacks what comes next."""
    there = context.facts["environments"]
    environment = there.get(path) if there else None
    rows = [row for row in sealed(context.facts) if isinstance(row, Mapping) and row.get("path") == path]
    wished = [each for each in wish.frameworks if f"{wish.frameworks_path}/{each.directory}" == path]
    known = {_key(row): row for row in rows}
    return (
        environment is not None
        and bool(wished)
        and all(_as_wished(each, known.get(each.key, {})) for each in wished)
        and all(_is_whole(row, environment) for row in rows)
        and not differences.of_health(path, environment, context)
    )


def _is_whole(row: Mapping[str, object], environment: PythonEnvironment) -> bool:
    """Whether an environment has all that a row of a seal says."""
    asked_for = [text for key in ("requirements", "others", "constraints") for text in _texts(row.get(key))]
    return all(asked_for) and not differences.of_contents(cast("FrameworkEnvironment", row), environment)


def _as_wished(framework: FrameworkWish, row: Mapping[str, object]) -> FrameworkWish | None:
    """The wish for the release of a row of a seal, where that is what is wished; else None."""
    version = str(row.get("version"))
    pin = _pin(framework, version, str(row.get("variant") or ""))
    fits = pin and specifiers.matches(version, framework.specifier) and framework.variant in (None, pin.variant)
    return pin if fits else None


def staying_put(facts: Facts, wish: Wish, absent: Mapping[str, Sequence[str]]) -> dict[str, FrameworkWish]:
    """The releases of the seal, for environments that stay as they are because the index lacks what they would be brought to."""
    known = {
        _key(row): row for row in sealed(facts) if isinstance(row, Mapping) and stays_at(str(row.get("path"))) in absent
    }
    found = {each.key: _as_wished(each, known[each.key]) for each in wish.frameworks if each.key in known}
    return {key: pin for key, pin in found.items() if pin is not None}


def as_sealed(wish: Wish, facts: Facts, *, alone: bool) -> Wish:
    """A wish for the environments that the seal has, where none is wished by name. ``alone``: without a seal for none, else as it was."""
    rows = [row for row in sealed(facts) if isinstance(row, Mapping)]
    pins = [pin for row in rows if (pin := _of_row(row))]
    if not pins:
        return replace(wish, frameworks=(), projects=()) if alone else wish
    known = [row for row in rows if _of_row(row)]
    pythons = {
        _directory(row): str(row["interpreter"]) for row in known if _PYTHON.fullmatch(str(row.get("interpreter")))
    }
    besides = {_directory(row): [each for each in _texts(row.get("others")) if _is_requirement(each)] for row in known}
    return replace(
        wish,
        frameworks=tuple(pins),
        projects=tuple(
            Project(name, tuple(Requirement(text, "the seal") for text in texts))
            for name, texts in besides.items()
            if texts
        ),
        pythons=pythons,
        jupyter=any(row.get("kernel") for row in known),
        frameworks_path=_place(known, wish.frameworks_path),
    )


def _of_row(row: Mapping[str, object]) -> FrameworkWish | None:
    """The wish for a row of a seal; None for what is none."""
    name, named = str(row.get("name")), row.get("environment")
    if name not in ABOUT or (named is not None and not _NAME.fullmatch(str(named))):
        return None
    wished = FrameworkWish(name, text=_key(row), environment=str(named) if named else None)
    return _pin(wished, str(row.get("version")), str(row.get("variant") or ""))


def _is_requirement(text: str) -> bool:
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Parsed

    try:
        return not Parsed(text).url
    except InvalidRequirement:
        return False


def _directory(row: Mapping[str, object]) -> str:
    return str(row.get("environment") or row.get("name"))


def _place(rows: Iterable[Mapping[str, object]], usual: str) -> str:
    """The directory in which the environments of a seal lie, where it is one and the same."""
    above = {PurePosixPath(str(row.get("path"))).parent for row in rows}
    found = above.pop() if len(above) == 1 else PurePosixPath(usual)
    return str(found) if found.is_absolute() and ".." not in found.parts else usual


def pinned(rows: Iterable[object], wish: Wish) -> dict[str, FrameworkWish]:
    """The releases of those rows of a stack that a rollback led to, for a wish that is the one of then."""
    found = {}
    known = {_key(row): row for row in rows if isinstance(row, Mapping)}
    for framework in wish.frameworks:
        row = known.get(framework.key, {})
        stays = row.get("stays")
        if isinstance(stays, Mapping) and {key: stays.get(key) for key in asked(framework)} == asked(framework):
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


def marked(stack: Stack, wish: Wish, pins: Pins, rows: Iterable[object]) -> Stack:
    """A stack that says of what was returned to for which wish it stays there, with what the ``rows`` of then had."""
    found = stack.get("frameworks")
    if not found or not pins:
        return stack
    stays = {each.key: asked(each) for each in wish.frameworks if each.key in pins}
    known = {_key(row): row for row in rows if isinstance(row, Mapping)}
    return {**stack, "frameworks": [_marked(row, stays, known.get(_key(row), {})) for row in found]}


def _marked(
    row: FrameworkEnvironment, stays: Mapping[str, KeptFramework], before: Mapping[str, object]
) -> FrameworkEnvironment:
    if _key(row) not in stays:
        return row
    wished = list(row.get("others") or ())
    then = before.get("stays")
    # Where something else is asked for besides by now, the environment moves on in that.
    contents_then = _contents_of(before) if isinstance(then, Mapping) and then.get("others") == wished else {}
    return _with(row, contents_then, stays={**stays[_key(row)], "others": wished})


def _contents_of(row: Mapping[str, object]) -> Mapping[str, object]:
    """What a row that stays says of its contents; nothing where a requirement of it is none."""
    pins = [*_texts(row.get("requirements")), *_texts(row.get("others"))]
    if not pins or not all(contents.is_pin(pin) for pin in pins):
        return {}
    return {key: row[key] for key in _CONTENTS if key in row}


def _texts(value: object) -> list[str]:
    return [each if isinstance(each, str) else "" for each in value] if isinstance(value, list) else []


def _with(row: FrameworkEnvironment, held: Mapping[str, object], **more: object) -> FrameworkEnvironment:
    """A row with other contents; a lock's wheels are of its own."""
    kept = {key: value for key, value in row.items() if not held or key not in (*_CONTENTS, "wheels")}
    return cast("FrameworkEnvironment", {**kept, **held, **more})


def restored(stack: Stack, wish: Wish, returned: Pins, facts: Facts) -> Stack:
    """A stack whose environments that are returned to have what their kept builds have."""
    environments, rows = facts["environments"], stack.get("frameworks") or ()
    if not environments:
        # None can be returned to that nobody saw.
        return stack
    paths = {row["path"] for row in rows if _key(row) in returned}
    every = {each.key: each for each in wish.frameworks}
    made = [
        _restored(row, environments[row["path"]], every[_key(row)]) if row["path"] in paths else row for row in rows
    ]
    return {**stack, "frameworks": made} if paths else stack


def _restored(row: FrameworkEnvironment, environment: PythonEnvironment, wish: FrameworkWish) -> FrameworkEnvironment:
    kept, wished = environment["kept"], list(row.get("others") or ())
    if kept is None:
        return row
    there = kept["packages"]
    required = [contents.name(pin) for pin in row["requirements"]]
    besides = {contents.name(each) for each in wished} | set(changed(environment))
    held: dict[str, object] = {
        "requirements": [f"{name}=={there[name]}" for name in required if name in there],
        "others": [f"{name}=={there[name]}" for name in sorted(besides) if name in there and name not in required],
        "constraints": [],
        "interpreter": ".".join(str(kept["python"] or row["interpreter"]).split(".")[:2]),
    }
    if kept["loader_path"]:
        held["loader_path"] = kept["loader_path"]
    return _with(row, held, stays={**asked(wish), "others": wished}, restores=True)


def changed(environment: PythonEnvironment) -> list[str]:
    """The distributions that the kept build has in another version, or alone; then those that it has not."""
    kept, now = environment.get("kept"), environment["packages"]
    there = kept["packages"] if kept else {}
    return sorted(name for name in there if now.get(name) != there[name]) + sorted(set(now) - set(there))


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

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Seals and the record of the proof: made from the node as it is, and written.

Each is written to a temporary file, synced and renamed: a cut of power leaves the old record or the new one.
"""

from __future__ import annotations

import calendar
import json
import os
import tempfile
import time
from typing import TYPE_CHECKING, Callable, Mapping, Sequence, TypedDict, TypeVar

from ansible_collections.gpuwright.node.plugins.module_utils.base import redact, versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import services
from ansible_collections.gpuwright.node.plugins.module_utils.records import seals

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Service
    from ansible_collections.gpuwright.node.plugins.module_utils.observe.package import Package


T = TypeVar("T")


class Wanted(TypedDict, total=False):
    """What is to be sealed of a component, or marked while it changes."""

    digest: str
    stack: Mapping[str, object] | None
    gpus: list[str]
    manages: Mapping[str, Sequence[str]]


def from_iso(text: str) -> float:
    """Seconds since 1970 of a time as `seals.iso` writes it; 0 for anything else."""
    try:
        return float(calendar.timegm(time.strptime(text, seals.TIME_FORMAT)))
    except (ValueError, TypeError):
        return 0.0


def make(
    host: Host,
    component: str,
    given: Wanted,
    installed: Mapping[str, Package],
    services: Mapping[str, Service],
) -> seals.Record:
    """A seal with the real values of the node.

    `given`: digest, stack, gpus, manages (files, light_files, packages, services, environments). `installed`: packages by name.
    Raises SealError when something that is to be sealed is not there.
    """
    manages = given.get("manages") or {}
    missing: list[str] = []

    def each(kind: str, look: Callable[[str], T | None]) -> dict[str, T | None]:
        values: dict[str, T | None] = {}
        for name in manages.get(kind) or []:
            values[name] = look(name)
            if values[name] is None:
                missing.append(name)
        return values

    seal = {
        "schema": seals.SCHEMA,
        "component": component,
        "gpuwright": versions.COLLECTION,
        "written": seals.iso(time.time()),
        "digest": given.get("digest"),
        "stack": given.get("stack") or {},
        "gpus": given.get("gpus") or [],
        "files": each("files", lambda path: seals.file_record(host, path)),
        "light_files": each("light_files", lambda path: seals.light_record(host, path)),
        "packages": each("packages", lambda name: installed[name].version if name in installed else None),
        "services": each("services", lambda unit: dict(services[unit]) if unit in services else None),
        "environments": {
            path: {"record": record}
            for path, record in each("environments", lambda path: seals.environment_record(host, path)).items()
        },
    }
    if missing:
        raise seals.SealError(
            "{} cannot be sealed: not found on the node: {}".format(component, ", ".join(sorted(missing)))
        )
    return seal


def begun(host: Host, component: str, given: Wanted, present: seals.Record | None, alone: bool = False) -> seals.Record:
    """What stands in place of a seal while a run changes its component; after a role that was used alone it stays.

    It names what the run is about to write, for taking back knows it by this: ``files``, by path, of which nobody knows yet what they will
    be, with the digest of what ``stood`` there before; ``environments``; and ``services``, units that nobody had.

    It keeps what a later run has to know when this one is cut off: that the component is ours, the cards that were seen, and
    the versions that the set had. A role used alone has moved these as it was told, and those that give way to another source's
    (`replaces`) do not come back.
    """
    old, stack = present or {}, given.get("stack") or {}
    return {
        **_about_to_be(host, old, given.get("manages") or {}),
        "schema": seals.SCHEMA,
        "component": component,
        "gpuwright": versions.COLLECTION,
        "written": seals.iso(time.time()),
        "begun": True,
        "alone": alone,
        "stack": stack,
        "gpus": given.get("gpus") or old.get("gpus") or [],
        "packages": {} if alone or "replaces" in stack else old.get("packages") or {},
    }


def _about_to_be(host: Host, old: seals.Record, manages: Mapping[str, Sequence[str]]) -> seals.Record:
    files, known = manages.get("files") or [], old.get("files") or {}
    stood = {path: seals.digest(host, path) for path in files if path not in known}
    units = [
        unit
        for unit in manages.get("services") or []
        if not services.has_file(host, unit) or f"{services.ADMINISTRATORS}{unit}" in known
    ]
    return {
        "files": {**known, **dict.fromkeys(files)},
        "stood": {**(old.get("stood") or {}), **{path: found for path, found in stood.items() if found}},
        "services": {**{unit: {} for unit in units}, **(old.get("services") or {})},
        "environments": {**{path: {} for path in manages.get("environments") or []}, **(old.get("environments") or {})},
    }


def left(host: Host, mark: seals.Record) -> seals.Record:
    """The mark of a role that was used alone and has ended, with what it wrote."""
    there = {path: found or seals.file_record(host, path) for path, found in (mark.get("files") or {}).items()}
    return {**mark, "files": there}


# Writing


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(host: Host, path: str, mode: int) -> str:
    """The directory on disk, made with `mode` where it is missing."""
    real = host.at(path)
    if not os.path.isdir(real):
        os.makedirs(os.path.dirname(real), mode=0o755, exist_ok=True)
        os.mkdir(real, mode)
    return real


def write_object(host: Host, path: str, record: Mapping[str, object], directory_mode: int = 0o700) -> None:
    """Write a record, without credentials, so that it survives a cut of power in whole: temporary file, fsync, rename, fsync of
    the directory.
    """
    directory = make_directory(host, os.path.dirname(path), directory_mode)
    name = os.path.basename(path)
    descriptor, temporary = tempfile.mkstemp(prefix="." + name + ".", dir=directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(redact.document(record), stream, indent=1, sort_keys=True)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, os.path.join(directory, name))
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_directory(directory)


def remove(host: Host, named: list[str]) -> list[str]:
    """Remove records, with the directories synced; the paths that were there."""
    gone = []
    for path in named:
        try:
            os.unlink(host.at(path))
        except FileNotFoundError:
            continue
        gone.append(path)
    for directory in sorted({os.path.dirname(path) for path in gone}):
        _sync_directory(host.at(directory))
    return gone

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node answers before a removal: programs that only read, paths, what dnf would remove besides, and the host's own files that were
put aside. Nothing is changed. What a program did not say has no exit status, or another one than 0.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.packages import dnf_python, sources

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

#: Lines of an answer that are passed on, and characters of each.
_LINES, _LINE = 20_000, 400


class Answer(TypedDict):
    """What a program printed."""

    item: list[str]
    rc: int | None
    stdout_lines: list[str]
    error: str | None


class There(TypedDict):
    """Whether a path leads to something."""

    exists: bool


class Looked(TypedDict):
    """What was found at a path."""

    item: str
    stat: There


class Aside(TypedDict):
    """A file that was put aside, and what stands in its place now: nothing (``absent``), the ``same``, byte for byte what we ``left`` of
    it, something that was written since with our marks in it (``marked``), or without (``other``).
    """

    path: str
    now: str


class Trial(TypedDict):
    """What dnf would remove besides, or why it does not say."""

    others: list[str]
    untried: str | None


def asked(host: Host, command: Sequence[str]) -> Answer:
    """What a program answers in its time."""
    result = host.run(list(command))
    lines = [line[:_LINE] for line in result.out.splitlines()]
    return {
        "item": list(command),
        "rc": result.rc if len(lines) <= _LINES else None,
        "stdout_lines": lines[:_LINES],
        "error": result.error or (result.err.strip()[-_LINE:] or None if result.rc else None),
    }


def looked(host: Host, path: str) -> Looked:
    """Whether a path, or a link that leads nowhere, is there."""
    return {"item": path, "stat": {"exists": host.exists(path) or host.link(path) is not None}}


def trial(rpms: Sequence[str]) -> Trial:
    """The removal in dnf, tried without doing it."""
    if not rpms:
        return {"others": [], "untried": None}
    answer = dnf_python.tried({"remove": list(rpms)})
    others = list(answer.get("others") or ())
    reason = answer.get("failed") or answer.get("refused")
    return {"others": others, "untried": None if others else reason}


def aside(host: Host) -> list[Aside]:
    """The files that were put aside."""
    found: list[Aside] = []
    for directory, _directories, names in os.walk(host.at(paths.BACKUP)):
        for name in names:
            below = os.path.relpath(os.path.join(directory, name), host.at(paths.BACKUP))
            path = f"{paths.BACKUP}/{below}"
            found.append({"path": path, "now": _now(host, path, "/" + below)})
    return sorted(found, key=lambda each: each["path"])


def _now(host: Host, kept: str, place: str) -> str:
    if host.link(place) is None and not host.exists(place):
        return "absent"
    there, before = host.read_bytes(place), host.read_bytes(kept)
    if there is None or before is None:
        return "other"
    if there == before:
        return "same"
    restored = sources.restored(there)
    return "other" if restored == there else "left" if restored == before else "marked"

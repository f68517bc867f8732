# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the role is told, as data."""

from __future__ import annotations

from typing import TypedDict

from ...model.work import Unit, Work
from ..daemon_json import PutBack


class RootlessWork(TypedDict):
    """What is done for containers of users without root: ``record`` of the ranges that are given (None where none is), ``commands`` that
    give them, ``users`` who have to be able to use theirs.
    """

    record: Merged | None
    commands: list[list[str]]
    users: list[str]


class Pull(TypedDict):
    """An image that is pulled ahead, with its registry, and the engine that pulls it."""

    engine: str
    image: str


class Toolkit(Work):
    """The work of the role. ``refusal``: why it must not begin, as one text for a person; None where it may.

    ``reads``: a file that it reads on the node for the next step, because what it says stays off the records; None where there is none.
    ``rootless``: what is done for users without root; None where none is named.
    ``images``: what is pulled in the end, where it is not there.
    """

    refusal: str | None
    reads: str | None
    rootless: RootlessWork | None
    images: list[Pull]


class Place(TypedDict):
    """A directory and its mode."""

    path: str
    mode: str


class Merged(TypedDict, total=False):
    """A file to write. Without ``mode`` one is there, and keeps its own.
    ``validate``: a command that says whether the content is right, as Ansible's modules take it.
    """

    path: str
    content: str
    mode: str
    validate: str


class Kept(TypedDict):
    """A file, and where a copy of it is kept."""

    src: str
    dest: str


class Given(TypedDict, total=False):
    """``check``: whether the run is in check mode. ``content``: what was read, in base64, or nothing."""

    check: bool
    content: str


class Engine(TypedDict):
    """An engine whose configuration is looked after: ``title`` and ``config`` for a person, ``unit`` without its ending.

    ``enabled``: whether it is to start at boot, and ``state``: the one that it is brought to; None where that stays as it is.
    ``left``: it has not read its configuration, and its restart is left to a person; ``why``, where something runs in it.
    """

    title: str
    config: str
    unit: str
    enabled: bool | None
    state: str | None
    left: bool
    why: str


class Installed(TypedDict):
    """What is to be done once the packages are there.

    ``refusal``: why nothing is to be done, as one text for a person; None where it may. ``files``: the engines' own configurations;
    ``put_back``: copies that were kept, to their places; ``own``: files of ours for systemd. ``absent``: what goes, after what is written.
    ``directory``: of a setting that is taken back, removed where nothing else is inside; None where the setting stays. ``units``: those
    that are enabled.
    """

    refusal: str | None
    places: list[Place]
    kept: list[Kept]
    put_back: list[PutBack]
    files: list[Merged]
    own: list[Merged]
    absent: list[str]
    directory: str | None
    engines: list[Engine]
    units: list[Unit]

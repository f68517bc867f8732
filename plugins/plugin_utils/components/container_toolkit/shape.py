# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the role is told, as data."""

from __future__ import annotations

from typing import TypedDict

from ...model.work import Unit, Work


class Toolkit(Work):
    """The work of the role. ``refusal``: why it must not begin, as one text for a person; None where it may.

    ``reads``: a file that it reads on the node for the next step, because what it says stays off the records; None where there is none.
    """

    refusal: str | None
    reads: str | None


class Place(TypedDict, total=False):
    """A path and how it has to be: ``state`` is directory or absent."""

    path: str
    state: str
    mode: str


class Merged(TypedDict, total=False):
    """A file to write. Without ``mode`` it keeps its own. ``backup``: what was there is kept beside it.
    ``validate``: a command that says whether the content is right, as Ansible's modules take it.
    """

    path: str
    content: str
    mode: str
    backup: bool
    validate: str


class Kept(TypedDict):
    """A file, and where a copy of it is kept."""

    src: str
    dest: str


class Given(TypedDict, total=False):
    """``check``: whether the run is in check mode. ``content``: what was read, in base64, or nothing."""

    check: bool
    content: str


class Ending(TypedDict):
    """How the work ends. ``left``: the engine has not read its configuration, and its restart is left to a person."""

    units: list[Unit]
    left: bool


class Engine(TypedDict):
    """The engine for a person (``title``, ``config``, ``unit``), and the program that lists what runs in it (``running``)."""

    title: str
    config: str
    unit: str
    running: list[str]


class Installed(TypedDict):
    """What is to be done once the packages are there.

    ``refusal``: why nothing is to be done, as one text for a person; None where it may. ``directory``: of a setting that is taken back,
    removed where nothing else is inside; None where the setting stays. ``asks``: the engine has not read its configuration, so that it
    matters whether containers run. ``idle`` and ``busy``: how the work ends where none does, and where some do.
    """

    refusal: str | None
    engine: Engine
    places: list[Place]
    kept: list[Kept]
    files: list[Merged]
    directory: str | None
    asks: bool
    idle: Ending
    busy: Ending

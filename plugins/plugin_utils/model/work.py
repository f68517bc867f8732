# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of a component, as data: what its role does, decided before the first task of it runs."""

from __future__ import annotations

from typing import TypedDict


class File(TypedDict):
    """A file that root owns: written where its content differs. ``mode`` is octal text such as "0644"."""

    path: str
    content: str
    mode: str


class Unit(TypedDict, total=False):
    """A systemd unit and how it has to be; a key that is absent is left as it is. ``state``: started, stopped or restarted."""

    name: str
    enabled: bool
    state: str


class PackageCall(TypedDict):
    """One call of the package manager. ``specs`` are packages as it takes them, with their exact versions where these are known."""

    names: list[str]
    specs: list[str]
    allow_downgrade: bool
    allow_held: bool


class Work(TypedDict, total=False):
    """What a component's role may be told to do; a component adds keys of its own by a subclass.

    ``repositories``: the names of the package sources that are added first. ``packages``: calls of the package manager, in their order.
    ``files`` are written, and what ``absent`` names is removed. ``modules``: kernel modules to load, as modprobe takes them.
    ``commands``: programs with their arguments.
    """

    repositories: list[str]
    packages: list[PackageCall]
    files: list[File]
    absent: list[str]
    units: list[Unit]
    modules: list[str]
    commands: list[list[str]]


class ContainerQuestion(TypedDict):
    """What a proof asks of a container engine: the options of container_check. ``left_out``: why no container is started; None where one
    is.
    """

    engine: str
    images: list[str]
    ways: list[str]
    unlinked: list[str]
    smi: str
    left_out: str | None


class Blank(TypedDict):
    """A secret in the text of a file: its mark there, and where in the variables of the role it is."""

    mark: str
    keys: list[str | int]

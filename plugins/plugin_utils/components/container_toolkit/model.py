# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack and a lock have of the container toolkit and the engines."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class _Engine(TypedDict):
    name: str
    packages: list[str]
    """None where another engine is there and is kept"""


class Engine(_Engine, total=False):
    """Container engine."""

    settings: dict[str, object]
    """What is wished of daemon.json, as Docker takes it; absent where nothing is"""
    source: str
    """docker where it comes from Docker's own repository; absent where it is the distribution's, or is there and kept"""
    images: list[str]
    """Images that are pulled ahead, with their registries; absent where none is wished"""


class Specified(TypedDict):
    """Packages of a version that a specifier names."""

    version_spec: str
    packages: list[str]


class Rootless(TypedDict):
    """Containers of users without root."""

    users: list[str]
    packages: list[str]


class ContainerToolkit(Specified):
    """Container toolkit and engine."""

    engine: Engine
    rootless: NotRequired[Rootless]
    """Absent where no user is named"""


class LockedToolkit(TypedDict, total=False):
    """What the stack of a lock has of the container toolkit."""

    container_toolkit: Specified


class Parts(TypedDict, total=False):
    """Its key of a stack."""

    container_toolkit: ContainerToolkit

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a stack has of the environments of frameworks."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from ...model.definition import Least, Matches


class LockedWheel(TypedDict):
    """Wheel that a lock names. It becomes a line of a file that pip reads."""

    name: Annotated[str, Matches(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    version: Annotated[str, Matches(r"^[A-Za-z0-9.+!_-]+$")]
    sha256: Annotated[list[Annotated[str, Matches(r"^[0-9a-f]{64}$")]], Least(1)]
    """Of each file that it may come as"""


class Origin(TypedDict, total=False):
    """Where the wheels of an environment come from: its own index, that of what it depends on, and packages built from source."""

    index_url: str
    dependencies_url: str
    from_source: list[str]


class Install(Origin):
    """What one framework of several brings into an environment, and where it comes from."""

    name: str
    variant: str
    requirements: list[str]


class KeptFramework(TypedDict):
    """What a wish said of a framework when its environment was rolled back."""

    specifier: str
    variant: str | None
    others: NotRequired[list[str]]
    """What was asked for besides, in the same environment; gpuwright did not always remember it"""


class Contents(Origin):
    """What is installed in an environment; ``index_url`` where it does not come from the host's own index."""

    requirements: list[str]
    constraints: list[str]
    cudnn: str | None
    """None where it is not known"""
    loader_path: NotRequired[str]
    wheels: NotRequired[list[LockedWheel]]
    stays: NotRequired[KeptFramework]
    """Where a rollback led to it: for which wish it stays"""
    restores: NotRequired[bool]
    """Whether the build that was in use before comes back, whatever is wished"""
    others: NotRequired[list[str]]
    """What is installed besides, as pip takes it: a project's requirements, and what a Jupyter kernel needs"""
    installs: NotRequired[list[Install]]
    """Where several frameworks are in one environment: what each of them brings"""


class Named(TypedDict, total=False):
    """Name of an environment, where it is not a framework's own, and the directory of its Jupyter kernel, where one is wished."""

    environment: str
    kernel: str


class FrameworkEnvironment(Contents, Named):
    """Virtual environment of a framework."""

    name: str
    version: str
    variant: str
    cuda: str | None
    """CUDA of the wheels; None: wheels for the processor"""
    python: list[str]
    """Python versions that have wheels"""
    interpreter: str
    path: str


class Parts(TypedDict, total=False):
    """Its key of a stack."""

    frameworks: list[FrameworkEnvironment]

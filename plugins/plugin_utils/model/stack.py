# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The resolved stack of a machine, and what is answered with it. The parts of a component are in its
`model.py`.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from ..components.composed.model import Parts


class RepositoryKey(TypedDict):
    """Key that signs a package source."""

    url: str
    fingerprint: str | None
    path: str


Exclusion = TypedDict("Exclusion", {"release": str | None, "packages": list[str], "except": list[str]})
"""Packages that are not taken from a package source (release None: from none)."""


class Displaced(TypedDict):
    """File of the host that is in the way of a package source."""

    file: str
    reason: str
    uris: list[str]
    whole: bool
    """Whether nothing else is in it"""


class Repository(TypedDict):
    """Package source."""

    name: str
    upstream: str | None
    uris: list[str]
    suites: list[str]
    components: list[str]
    file: str
    key: NotRequired[RepositoryKey]
    signed: NotRequired[str]
    """What the key signs (index, packages), of dnf"""
    exclude: NotRequired[Exclusion]
    displaces: NotRequired[list[Displaced]]
    from_host: NotRequired[bool]
    signed_by: NotRequired[str | None]


class Builder(TypedDict):
    """Repository of the system that is there and not enabled."""

    repository: str
    steps: str
    """What enables it for good"""
    source: str


class Stack(Parts, total=False):
    """Resolved stack: the parts that are wished."""

    repositories: list[Repository]


class Why(TypedDict):
    """Decision or warning, with the rule and where it was read."""

    rule: str
    text: str
    source: str


class Conflict(Why):
    """Reason why a wish cannot be met."""

    remedy: str


class Refusal(Why):
    """Reason why a run must not begin; a conflict is one."""

    remedy: str | None


class CardName(TypedDict):
    """Card of a machine."""

    name: str
    architecture: str | None
    compute_capability: str | None


class RulesAge(TypedDict):
    """Date of the rules, and their age (days)."""

    generated: str
    age_days: int


class NewerImage(TypedDict):
    """Release of an image that is newer than the one named, and whose CUDA does not run in full."""

    tag: str
    cuda: str
    mode: str


class Image(Why):
    """Image of a container that fits what was resolved, and why; or why none does, and then without a tag."""

    name: str
    """Repository within its registry, such as nvidia/cuda"""
    tag: str | None
    reference: str | None
    """What a container engine takes, with the registry"""
    cuda: str | None
    """First two numbers, such as 13.0"""
    mode: str | None
    """How the driver runs its CUDA (native, minor-version, forward)"""
    version: str | None
    """Of the framework; None where it was not read, and for nvidia/cuda"""
    tags: NotRequired[list[str]]
    """All kinds that were read of nvidia/cuda, the smallest first"""
    newer: NotRequired[NewerImage]


class Answer(TypedDict):
    """Answer of the resolver. Only ``ok`` and ``rules`` are always there."""

    ok: bool
    rules: RulesAge
    conflicts: NotRequired[list[Conflict]]
    gpus: NotRequired[list[CardName]]
    os: NotRequired[str]
    arch: NotRequired[str]
    assumed: NotRequired[dict[str, str | bool]]
    warnings: NotRequired[list[Why]]
    stack: NotRequired[Stack]
    why: NotRequired[list[Why]]
    images: NotRequired[list[Image]]

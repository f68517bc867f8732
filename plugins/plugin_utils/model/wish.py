# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fields of a wish while they are read, and the wish for one framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

_CUDA_OF_VARIANT = lazy(r"^cu(?:da)?(\d\d)")


@dataclass(frozen=True)
class FrameworkWish:
    """A framework as it was asked for: a specifier such as ">=2.7" ("" for any), a variant such as "cu121"."""

    name: str
    specifier: str = ""
    variant: str | None = None
    text: str = ""
    environment: str | None = None
    """The named environment that it belongs to; None: the one of its own"""
    marker: str = ""
    """Environment marker (PEP 508) under which it is wished, of a project's requirement"""
    origin: str = ""
    """File and line of a project that ask for it"""

    @property
    def key(self) -> str:
        """What tells it from the other frameworks of a wish, as --want takes it: pytorch, pytorch@research."""
        return f"{self.name}@{self.environment}" if self.environment else self.name

    @property
    def directory(self) -> str:
        """The name of its environment below the directory of all environments."""
        return self.environment or self.name

    @property
    def cuda_major(self) -> str | None:
        """The CUDA major version that the variant names: 12 of cu121, of cuda12 and of cuda120."""
        named = _CUDA_OF_VARIANT.match(self.variant or "")
        return named[1] if named else None


@dataclass(frozen=True)
class Requirement:
    """A requirement as pip takes it (PEP 508), and the file and line that it comes from. ``variant``: the one that the index means from
    which the file takes it.
    """

    text: str
    origin: str
    variant: str | None = None


@dataclass(frozen=True)
class Project:
    """What a project asks of its environment besides the frameworks that gpuwright chooses.

    ``requirements`` are installed, ``constraints`` hold for what is installed. ``python``: the range that it runs on, with the file that
    says so; None for any. ``notes``: what its file says and is not followed.
    """

    environment: str
    requirements: tuple[Requirement, ...] = ()
    constraints: tuple[Requirement, ...] = ()
    python: Requirement | None = None
    notes: tuple[Requirement, ...] = ()


#: The fields of a wish that were read so far, by name, see wish.Wish.
Values = dict[str, Any]

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a component asks of a node's package index, and of its Python index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..wish.wish import Wish


@dataclass(frozen=True)
class Demand:
    """A part of the stack as the package index has to have it.

    ``want`` and ``version`` are as --want takes them. ``fixed``: the wish says so, nothing else may be taken. ``relation``
    stands between the two. ``accepts`` says of a package and a version whether they will do. ``cuda``: the CUDA major that a
    library is built for, where packages of one name are built for several. ``branch``: the one that a
    distribution's driver has to be of. ``again``: what the rules choose again although the wish says it, where a package is not there in
    any version; the resolver then tells which there are. ``of``: whether a package that was asked for besides is of this part.
    ``refused``: whether the node is refused where the index lacks it.
    """

    want: str
    version: str
    packages: Sequence[str]
    accepts: Callable[[str, str], bool]
    fixed: bool = True
    relation: str = "="
    cuda: str | None = None
    branch: str | None = None
    again: str | None = None
    of: Callable[[str], bool] = lambda _name: False
    refused: bool = True

    @property
    def key(self) -> str:
        """The part as it is called where the rules choose again."""
        return f"{self.want}={self.version}"

    @property
    def text(self) -> str:
        """The part for a person."""
        return f"{self.want}{self.relation}{self.version}" if self.version else self.want


@dataclass(frozen=True)
class WheelDemand:
    """A pinned distribution, as a node's Python index has to have it for an environment.

    ``environment``: its path. ``interpreter``: the version of its Python, such as 3.13.
    ``urls``: the indexes that it may come from, none for the node's own. ``sha256``: the files that will do, none where any will.
    ``source``: whether it is built from its source. ``chosen``: the rules pinned it within a range, and take another one that is there.
    ``others``: what may be wished instead, from the versions that are there by
    distribution, the nearest first: as --want takes it, and the wish with it.
    """

    environment: str
    interpreter: str
    name: str
    version: str
    urls: Sequence[str] = ()
    sha256: Sequence[str] = ()
    source: bool = False
    chosen: bool = False
    others: Callable[[Mapping[str, Sequence[str]], Wish], Iterable[tuple[str, Wish]]] = field(
        default=lambda _there, _wish: (), compare=False
    )

    @property
    def text(self) -> str:
        """The pin for a person."""
        return f"{self.name}=={self.version}"


def continues(version: str, prefix: str) -> bool:
    """Say whether a package's version, its epoch left out, begins as wished. A star in that stands for anything."""
    upstream = version.split(":", 1)[-1]
    return fnmatchcase(upstream, f"{prefix}*") if "*" in prefix else upstream.startswith(prefix)


def begins(starts: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Return what says of a package and a version whether that begins as it has to. ``starts``: beginnings by package."""
    return lambda name, found: continues(found, starts.get(name, ""))

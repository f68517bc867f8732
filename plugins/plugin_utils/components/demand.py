# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a component asks of a node's package index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


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


def continues(version: str, prefix: str) -> bool:
    """Say whether a package's version, its epoch left out, begins as wished. A star in that stands for anything."""
    upstream = version.split(":", 1)[-1]
    return fnmatchcase(upstream, f"{prefix}*") if "*" in prefix else upstream.startswith(prefix)


def begins(starts: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Return what says of a package and a version whether that begins as it has to. ``starts``: beginnings by package."""
    return lambda name, found: continues(found, starts.get(name, ""))

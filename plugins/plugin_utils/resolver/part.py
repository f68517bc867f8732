# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a part of the stack is to a lock, to the package sources, and on machines that have it from another one or cannot have it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast, get_args, get_origin

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..components.cuda.model import Library
from ..model import definition
from ..model.lock import LockLibrary, LockLibraryForCuda, LockStack
from ..model.stack import Stack
from ..rules import Row, Rules
from ..wish.wish import Wish
from .log import Log
from .machine import Machine

#: Package sources: NVIDIA's CUDA repository, the container toolkit's, and what Red Hat's family has besides its own.
CUDA_SOURCE = "nvidia-cuda"
TOOLKIT_SOURCE = "nvidia-container-toolkit"
EPEL = "epel"
#: What a part has of the CUDA repository where it brings DCGM: said to a person, and asked for by who runs its diagnostic.
OF_DCGM = "DCGM"
#: Sources of CUDA toolkits other than that repository: a file of NVIDIA's each, and the distribution's archive.
RUNFILE, DISTRO = "runfile", "distro"
#: The source of a library that is a tar archive for each toolkit.
ARCHIVE = "archive"

_VERSION = lazy(r"\d+(\.\d+)+", re.ASCII)


class Place(NamedTuple):
    """A vendor's package source: its name, which is that of its upstream too, its address, for apt the suites and their components, and its
    key.
    """

    name: str
    uri: str
    suites: Sequence[str]
    components: Sequence[str]
    key_url: str
    fingerprint: str | None


def _as_it_is(part: object, _stack: Stack, _machine: Machine, _rules: Rules) -> object:
    return part


def _all_alike(_theirs: object, *, adopted: bool) -> tuple[str, ...]:
    del adopted
    return ()


@dataclass(frozen=True)
class Part:
    """A part of the stack.

    key: in the stack, and the field of a wish that says whether it is wished. title: for a person.
    wants: the part of a lock as --want takes it.
    exactly: the part of a stack with the newest version that the rules know, where it is left open.
    as_locked: the part of a stack by the keys of a lock, where a lock says it otherwise.
    version_key: what tells its version. is_open: whether one of its rows has no exact version.
    uncompared: keys of a lock that may differ on a node; ``adopted``: the node's driver is another one's.
    of_kernel: beginnings of packages that follow a node's kernel, and of which a lock says nothing.
    source: the vendor's package source that it comes from. is_packaged: whether it comes from there, as the stack has it.
    places: package sources that something of it comes from besides, as the stack has it.
    left_out: kinds of machines on which another one brings it.
    cards: whether a machine without a card is without it.
    """

    key: str
    title: str
    wants: Callable[[Any], Iterator[str]]
    exactly: Callable[[Any, Stack, Machine, Rules], object] = _as_it_is
    as_locked: Callable[[Any], Any] = lambda part: part
    version_key: str = "version"
    is_open: Callable[[Any], bool] = lambda _row: False
    uncompared: Callable[..., Sequence[str]] = _all_alike
    of_kernel: tuple[str, ...] = ()
    source: str | None = None
    is_packaged: Callable[[Any], bool] = lambda _part: True
    places: Callable[..., Sequence[Place]] = lambda *_arguments: ()
    left_out: Sequence[str] = ()
    cards: bool = True

    def of(self, stack: Mapping[str, object]) -> Any:
        """Return what a stack has of it; None where it has nothing."""
        return stack.get(self.key)

    @property
    def row(self) -> type:
        """What a lock holds of it, or of each of it where there may be several."""
        return cast("type", get_args(self._held)[0] if self.several else self._held)

    @property
    def several(self) -> bool:
        """Whether a stack has a list of it."""
        return get_origin(self._held) is list

    @property
    def _held(self) -> object:
        """What the definition of a lock says of it."""
        return definition.keys(LockStack)[self.key].annotation

    @property
    def want(self) -> str:
        """Its name as --want takes it."""
        return self.key.replace("_", "-")

    @property
    def has_own_source(self) -> bool:
        """Whether it comes from a vendor's package source other than NVIDIA's CUDA repository."""
        return self.source not in (None, CUDA_SOURCE)


@dataclass(frozen=True)
class HostPart:
    """A part of the stack that each host wishes for itself, so that no lock says anything of it.

    key: in the stack, and the field of a wish that says whether it is wished. want: its name as --want takes it, "" where it has none.
    choose: what the stack has of it, from the stack as it is until then; None without a wish. Raises Unresolved.
    useless: kinds of machines that can do nothing with it, each with the rule, what is said and where that was read.
    sources: the package sources that several parts share, each with what of it comes from there, for a person, as the stack has it.
    places: package sources that something of it comes from besides, as the stack has it.
    cards: whether a machine without a card is without it.
    """

    key: str
    want: str
    choose: Callable[[Machine, Wish, Row, Stack, Log], object]
    useless: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    sources: Callable[[Any], Mapping[str, str]] = lambda _part: {}
    places: Callable[..., Sequence[Place]] = lambda *_arguments: ()
    cards: bool = True

    def of(self, stack: Mapping[str, object]) -> Any:
        """Return what a stack has of it; None where it has nothing."""
        return stack.get(self.key)


def library(key: str, title: str, rows: Callable[[Rules], list[Row]]) -> Part:
    """Return the part of a library that NVIDIA's CUDA repository has; ``rows``: its releases in the rules."""

    def wants(part: LockLibrary) -> Iterator[str]:
        # Archives of several versions are each the newest for its toolkit: no one version could be wished.
        several = len({_version_in(name) for name in part.get("archives") or ()}) > 1
        yield f"{key}={part['version']}" if part["version"] and not several else key
        if part.get("source"):
            yield f"{key}-source={part['source']}"

    def exactly(part: Library, stack: Stack, machine: Machine, rules: Rules) -> LockLibraryForCuda:
        majors = {numeric_version.major(toolkit["version"]) for toolkit in stack.get("cuda") or ()}
        return {**_as_locked(part), "version": _newest(part, majors, machine.arch, rows(rules))}

    return Part(
        key,
        title,
        wants,
        exactly,
        _as_locked,
        is_open=lambda part: not part["version"],
        source=CUDA_SOURCE,
        is_packaged=lambda part: not part.get("archives"),
        left_out=("jetson",),
    )


def _as_locked(part: Library) -> LockLibraryForCuda:
    """Return a library as a lock has it: of archives their names, in which their versions and their CUDA are."""
    row: LockLibraryForCuda = {"version": part["version"], "packages": part["packages"]}
    if "cuda" in part:
        row["cuda"] = part["cuda"]
    archives = [each["name"] for each in part.get("archives") or ()]
    return {**row, "source": ARCHIVE, "archives": archives} if archives else row


def _version_in(name: str) -> str:
    """Return the version in an archive's name: its first number with a point."""
    found = _VERSION.search(name)
    return found.group() if found else name


def _newest(part: Library, majors: set[str], arch: str, rows: Sequence[Row]) -> str | None:
    """Return the version of a library; where it is open the newest that was published for the CUDA majors.

    TensorRT may be left open within a generation (10) or a minor version (10.13).
    """
    start = part.get("version") or part.get("generation") or ""
    if len(numeric_version.key(start)) > 2:
        return str(start)
    wanted = {part["cuda"]} if part.get("cuda") else majors or _majors(part["packages"])
    fitting = [row for row in rows if not row.get("yanked") and ".post" not in row["version"]]
    fitting = [row for row in fitting if not start or numeric_version.belongs(row["version"], start)]
    fitting = [row for row in fitting if wanted <= _published_for(row, arch)]
    sure = [row for row in fitting if row["confirmed"]] or fitting
    return max((row["version"] for row in sure), key=numeric_version.key, default=part.get("version"))


def _published_for(row: Row, arch: str) -> set[str]:
    """Return the CUDA majors that a row of a library names for an architecture."""
    if "variants" in row:
        return {variant[2:] for variant, arches in row["variants"].items() if arch in arches}
    return {str(major) for major in row.get("cuda_majors") or row.get("cuda") or ()}


def _majors(packages: Iterable[str]) -> set[str]:
    """Return the CUDA majors in names such as libcudnn9-cuda-12."""
    return {name.rpartition("-cuda-")[2] for name in packages if "-cuda-" in name}

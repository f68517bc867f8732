# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a wish may be met at all where parts of it may be anything.

The question is asked for every step of the search for a nearer wish, so it is answered by few trials: each component is tried alone beside
what it needs, and what two drivers or two toolkits decide alike is tried once. But for the driver that it needs, no component loosens what
another one asks for, and each driver is tried: a wish of which one component cannot be met so cannot be met. The other way round it need
not hold; nearest tries whole wishes before it names one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..components.cuda.resolve import cudnn, forward, nccl, tensorrt
from ..components.cuda.resolve import support as cuda_support
from ..components.cuda.resolve import toolkit as cuda
from ..model.stack import Stack
from ..rules import Row, Rules
from ..wish.wish import Wish
from . import foreign, systems, unknown
from .alternatives import Part
from .log import Log, Unresolved
from .machine import Machine
from .part import ARCHIVE

Decide = Callable[[Wish], Stack]
Library = Callable[[Machine, Wish, Row, Sequence[str], Log], object]

# Each is chosen by what is wished of it and by the major versions of the toolkits beside it.
_LIBRARIES: dict[str, Library] = {each.PART.key: each.choose for each in (cudnn, nccl, tensorrt)}


class TooMany(Exception):
    """The search is given up: a person waits for the answer."""


@dataclass(frozen=True)
class Trials:
    """Trying wishes, each once, and no more than limit."""

    decide: Decide
    limit: int
    #: By the wish's own words: it holds mappings, which have no hash.
    tried: dict[str, Stack | None] = field(default_factory=dict)

    def stack(self, wish: Wish) -> Stack | None:
        """Return what a wish resolves to, None where it does not. Raises TooMany."""
        words = repr(wish)
        if words not in self.tried:
            if len(self.tried) == self.limit:
                raise TooMany
            self.tried[words] = self._decided(wish)
        return self.tried[words]

    def works(self, wish: Wish) -> bool:
        """Say whether a wish can be met. Raises TooMany."""
        return self.stack(wish) is not None

    def _decided(self, wish: Wish) -> Stack | None:
        try:
            return self.decide(wish)
        except Unresolved:
            return None


@dataclass(frozen=True)
class Possible:
    """The question for one machine. trials decide with forward compatibility wherever it is wished: that loosens, and is one decision."""

    trials: Trials
    machine: Machine
    rules: Rules
    #: By the wish for a driver, and what of it may change: one wish for each driver that comes of it.
    drivers: dict[tuple[str, ...], list[Wish]] = field(default_factory=dict)
    #: By the wish for a driver and for toolkits, and what of it may change: the major versions of the toolkits that come of it.
    toolkits: dict[tuple[str, ...], list[list[str]]] = field(default_factory=dict)
    #: By the CUDA versions that a driver runs: the first wish that brought one.
    running: dict[tuple[str, ...], Wish] = field(default_factory=dict)
    #: By name, version and the major versions of the toolkits.
    libraries: dict[tuple[str, ...], bool] = field(default_factory=dict)
    #: How often it was asked: a question that was tried already costs time too.
    asked: Iterator[int] = field(default_factory=count)

    def __call__(self, wish: Wish, changed: Sequence[Part]) -> bool:
        """Say whether a wish may be met where these parts may be anything, what they are included. Raises TooMany."""
        if next(self.asked) == self.trials.limit:
            raise TooMany
        if self._beyond(wish, changed):
            return False
        return any(
            self._toolkits(driver, wish, changed) and self._wheels(driver, wish, changed)
            for driver in self._drivers(only(wish), _of("driver", changed))
        )

    def _beyond(self, wish: Wish, changed: Sequence[Part]) -> bool:
        """Say whether what is kept of a wish asks for a version that the tables do not know: then nothing else is decided."""
        for part in changed:
            wish = part.leave(wish)
        log = Log(self.rules, trial=True)
        meant = foreign.without_useless(self.machine, foreign.allowed(self.machine, wish, log), log)
        return any(unknown.versions(meant, self.rules))

    def _drivers(self, wish: Wish, changed: Sequence[Part]) -> list[Wish]:
        """Return one wish for each build of a driver that comes of a wish, and of what may move a driver of which it says nothing."""
        asked = repr(wish), *(each.name for each in changed)
        if asked not in self.drivers:
            found: dict[tuple[str | None, ...], Wish] = {}
            for each in (wish, *self._moved(wish)):
                for other in _probed(each, changed):
                    stack = self.trials.stack(other)
                    if stack is not None:
                        found.setdefault(_build(stack), other)
            self.drivers[asked] = list(found.values())
        return self.drivers[asked]

    def _moved(self, wish: Wish) -> Iterator[Wish]:
        """Yield a wish for each branch that a framework may ask for: a toolkit and its libraries follow the driver that comes of it."""
        if not wish.driver_branch:
            rows = self.rules["driver_branches"]["rows"]
            yield from (replace(wish, driver_branch=row["branch"]) for row in rows if row["latest"])

    def _toolkits(self, driver: Wish, wish: Wish, changed: Sequence[Part]) -> bool:
        """Say it of CUDA beside a driver, and of each library beside CUDA: without a toolkit they follow the one that would be chosen."""
        # What archives serve is asked when a whole wish is tried.
        packaged = [name for name in _LIBRARIES if getattr(wish, f"{name}_source") != ARCHIVE]
        libraries = [name for name in packaged if getattr(wish, name)]
        if not wish.cuda and not libraries:
            return True
        # Where CUDA is not put there from here, its libraries are not either.
        return any(
            not majors or all(self._library(name, majors, wish, changed) for name in libraries)
            for majors in self._majors(driver, wish, _of("cuda", changed))
        )

    def _majors(self, driver: Wish, wish: Wish, changed: Sequence[Part]) -> list[list[str]]:
        """Return the major versions of the toolkits that may be beside a driver, each set of them once."""
        asked = repr(driver), str(wish.cuda), *wish.cuda_versions, *(each.name for each in changed)
        if asked not in self.toolkits:
            # Without a toolkit its source says nothing: the libraries are NVIDIA's.
            several = (
                self.trials.stack(
                    replace(
                        driver,
                        cuda=True,
                        cuda_versions=other.cuda_versions,
                        cuda_source=other.cuda_source if wish.cuda else None,
                    )
                )
                for other in _probed(wish, changed)
            )
            chosen = [stack.get("cuda", []) for stack in several if stack is not None]
            found = [sorted({numeric_version.major(each["version"]) for each in toolkits}) for toolkits in chosen]
            if not wish.cuda:
                # A library that is asked for by version is that of an older CUDA, where the newest has it not.
                newest = max((int(major) for majors in found for major in majors), default=0)
                known = [str(row["major"]) for row in self.rules["cuda"]["families"]]
                found += [[major] for major in known if int(major) < newest]
            self.toolkits[asked] = [majors for place, majors in enumerate(found) if majors not in found[:place]]
        return self.toolkits[asked]

    def _library(self, name: str, majors: Sequence[str], wish: Wish, changed: Sequence[Part]) -> bool:
        """Say it of a library beside toolkits of these major versions."""
        return any(self._chosen(name, majors, other) for other in _probed(wish, _of(name, changed)))

    def _chosen(self, name: str, majors: Sequence[str], wish: Wish) -> bool:
        asked = name, str(getattr(wish, f"{name}_version")), *majors
        if asked not in self.libraries:
            log = Log(self.rules, trial=True)
            system = foreign.repository(self.machine, systems.find(self.machine, self.rules), log)
            try:
                _LIBRARIES[name](self.machine, wish, system, majors, log)
            except Unresolved:
                self.libraries[asked] = False
            else:
                self.libraries[asked] = True
        return self.libraries[asked]

    def _wheels(self, driver: Wish, wish: Wish, changed: Sequence[Part]) -> bool:
        """Say it of each framework beside a driver, with the Python of all, and those of single environments."""
        base = self.running.setdefault(self._runs(driver), driver) if wish.frameworks else driver
        return any(
            all(self._framework(each.key, _beside(base, other), wish, changed) for each in wish.frameworks)
            for other in _probed(wish, _of("python", changed))
        )

    def _framework(self, name: str, base: Wish, wish: Wish, changed: Sequence[Part]) -> bool:
        return any(
            self.trials.works(replace(base, frameworks=tuple(each for each in other.frameworks if each.key == name)))
            for other in _probed(wish, _of(name, changed))
        )

    def _runs(self, wish: Wish) -> tuple[str, ...]:
        """Return what of the driver that comes of a wish decides on wheels: the CUDA versions that it runs."""
        driver = (self.trials.stack(wish) or {}).get("driver")
        if driver is None:
            return ()
        support = cuda_support.of_stack(driver, systems.find(self.machine, self.rules), self.rules)
        if wish.cuda_compat:
            support = forward.extended(support, self.machine, self.rules)
        known = dict.fromkeys(each["cuda"] for each in self.rules["cuda"]["rows"])
        return tuple(cuda for cuda in known if support.mode(cuda, self.rules))


def _beside(base: Wish, wish: Wish) -> Wish:
    """Return a wish for a driver with what a wish says of Pythons and projects."""
    return replace(base, python=wish.python, pythons=wish.pythons, projects=wish.projects)


def _of(component: str, changed: Sequence[Part]) -> list[Part]:
    return [each for each in changed if each.component == component]


def _probed(wish: Wish, changed: Sequence[Part]) -> Iterator[Wish]:
    """Yield what stands for every wish in which the changed parts may be anything."""
    if not changed:
        yield wish
        return
    first, *rest = changed
    for probe in first.probes or [first.leave]:
        yield from _probed(probe(wish), rest)


def _build(stack: Stack) -> tuple[str | None, ...]:
    """Return what tells one driver from another; nothing where it is somebody else's, of which there is one."""
    driver = stack.get("driver")
    return (driver["branch"], driver["version"], driver["build"]) if driver else ()


def only(wish: Wish, *components: str) -> Wish:
    """Return what a wish says of the driver and of these components."""
    with_cuda, with_cudnn = cuda.PART.key in components, cudnn.PART.key in components
    with_nccl, with_tensorrt = nccl.PART.key in components, tensorrt.PART.key in components
    return replace(
        wish,
        cuda=wish.cuda and with_cuda,
        cuda_versions=wish.cuda_versions if with_cuda else (),
        cudnn=wish.cudnn and with_cudnn,
        cudnn_version=wish.cudnn_version if with_cudnn else None,
        nccl=wish.nccl and with_nccl,
        nccl_version=wish.nccl_version if with_nccl else None,
        tensorrt=wish.tensorrt and with_tensorrt,
        tensorrt_version=wish.tensorrt_version if with_tensorrt else None,
        frameworks=tuple(each for each in wish.frameworks if each.key in components),
    )

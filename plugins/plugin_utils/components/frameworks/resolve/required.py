# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What else an environment has to hold: a project's requirements, and the pins of the frameworks that are in it already.

What a framework pins or limits is judged against that here; what neither names is left to the installer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ....model.wish import Requirement
from ....resolver.log import Entry, conflict
from ....wish import specifiers
from ..model import Contents
from . import pins
from .offer import Offer

if TYPE_CHECKING:
    from packaging.requirements import Requirement as Parsed

# What is kept of requirements that were read: as many as a project may have.
_MOST = 16384
RULE = "frameworks.together"
# How the builds of one release are told apart: 2.0.2+cu117, 2.0.2+cpu.
_OF_CUDA = lazy(r"nvidia-[a-z0-9-]+-cu(1[123])")
_BUILD = lazy(r"cu[0-9]{2,4}|cpu")
ANOTHER = "ask for another release of one of them, or give each an environment of its own"


@dataclass(frozen=True)
class Limits:
    """What a release has to fit. ``required``: what else is in its environment; ``cuda``: the CUDA major version of that, None for any;
    ``toolkits``: those of which one has to compile extensions for it, none for any. ``wished``: the other frameworks of the environment,
    chosen or not, for what is said where there is no release. ``newest``: what goes beside it has to be in its newest release.
    """

    required: Sequence[Requirement] = ()
    cuda: str | None = None
    cuda_of: str = ""
    toolkits: Sequence[str] = ()
    wished: Sequence[Requirement] = ()
    newest: bool = False

    @property
    def in_environment(self) -> bool:
        """Whether something else is in its environment."""
        return bool(self.required or self.cuda)


NONE = Limits()


def applies(marker: str, python: str, arch: str) -> bool:
    """Say whether an environment marker holds for a Python and an architecture of Linux."""
    if not marker:
        return True
    from packaging.markers import Marker

    return Marker(marker).evaluate(_variables(python, arch))


def applying(required: Iterable[Requirement], python: str, arch: str) -> list[Requirement]:
    """Return the requirements whose markers hold, without them."""
    found = []
    for each in required:
        parsed = _parsed(each.text)
        if applies(str(parsed.marker or ""), python, arch):
            found.append(Requirement(_without_marker(parsed), each.origin))
    return found


@lru_cache(maxsize=_MOST)
def name(text: str) -> str:
    """Return the distribution that a requirement names, as an index spells it."""
    from packaging.utils import canonicalize_name

    return canonicalize_name(_parsed(text).name)


def as_constraint(text: str) -> str:
    """Return a requirement as pip takes it for a constraint: without extras."""
    parsed = _parsed(text)
    return f"{parsed.name}{parsed.specifier}"


def is_limit(text: str) -> bool:
    """Say whether a requirement says which versions will do."""
    return bool(specifier(text))


@lru_cache(maxsize=_MOST)
def specifier(text: str) -> str:
    """Return which versions a requirement allows; "" for all."""
    return str(_parsed(text).specifier)


@lru_cache(maxsize=_MOST)
def exact(text: str) -> str | None:
    """Return the version that a requirement pins; None where it leaves a choice."""
    found = [each.version for each in _parsed(text).specifier if each.operator in ("==", "===")]
    return found[0] if len(found) == 1 and not found[0].endswith(".*") else None


def of_cuda(offers: Sequence[Offer], limits: Limits) -> Sequence[Offer]:
    """Return the builds of a release that are of the CUDA that is in the environment; all where none is, for then that is the reason."""
    return [offer for offer in offers if not _of_another(offer, limits)] or offers


def _of_another(offer: Offer, limits: Limits) -> bool:
    return bool(limits.cuda and offer.cuda and numeric_version.major(offer.cuda) != limits.cuda)


def clashes(offer: Offer, contents: Contents, limits: Limits) -> list[Entry]:
    """Return why a release cannot be beside what else has to be in its environment."""
    found = []
    of_another = _of_another(offer, limits)
    if of_another and offer.cuda:
        text = f"{offer.title} is built with CUDA {numeric_version.major(offer.cuda)}, {limits.cuda_of} with CUDA {limits.cuda}"
        found.append(conflict(RULE, text, "the wheels of both", "give each an environment of its own"))
    for each in limits.required:
        held = next((text for text in _of(name(each.text), offer, contents) if not agree(each.text, text)), None)
        if held:
            text = f"{each.origin} asks for {each.text}, and {offer.title} goes with {held}"
            found.append(conflict(RULE, text, each.origin, ANOTHER))
        elif _other_build(each.text, offer, contents):
            version, _plus, build = (exact(each.text) or "").partition("+")
            ours = f"{offer.title} goes with what is built for {offer.variant}"
            text = f"{each.origin} asks for {each.text}, which is built for {build}, and {ours}"
            same = f"name {name(each.text)}=={version}+{offer.variant} in {each.origin}, or the release of {build} of what it goes with"
            found.append(conflict(RULE, text, each.origin, same))
        elif other_cuda(each.text, offer) and not of_another:  # else that is what it follows from
            text = f"{each.origin} asks for {each.text}, and {offer.title} brings CUDA {numeric_version.major(offer.cuda or '')}"
            found.append(conflict(RULE, text, each.origin, ANOTHER))
        elif offer.cuda and pins.is_unknown(offer, name(each.text)):
            text = f"{each.origin} asks for {each.text}, and which one {offer.title} brings is not known"
            found.append(conflict(RULE, text, each.origin, ANOTHER))
    return found


def other_cuda(text: str, offer: Offer) -> bool:
    """Say whether a requirement pins a library of another CUDA than the one that a release brings: nvidia-cudnn-cu12 beside cu118."""
    found = _OF_CUDA.fullmatch(name(text))
    return bool(found and offer.cuda and exact(text) and found[1] != numeric_version.major(offer.cuda))


def _other_build(text: str, offer: Offer, contents: Contents) -> bool:
    """Say whether a requirement pins what comes with a release in another build: torchaudio 2.0.2+cu117 beside torch 2.0.1+cu118."""
    build = (exact(text) or "").partition("+")[2]
    ours = offer.title.partition("+")[2]
    return bool(
        ours and _BUILD.fullmatch(build) and build != ours and name(text) in map(name, contents["requirements"])
    )


def held(offer: Offer, contents: Contents) -> Iterator[str]:
    """Yield what a release holds: its pins and constraints, of what was chosen here the range that it was chosen from."""
    yield from contents["requirements"]
    for limit in contents["constraints"]:
        open_range = pins.open_range(offer, name(limit))
        yield f"{name(limit)}{open_range}" if open_range else limit


def _of(distribution: str, offer: Offer, contents: Contents) -> Iterator[str]:
    """Yield what a release holds of one distribution."""
    yield from (each for each in held(offer, contents) if name(each) == distribution)


@lru_cache(maxsize=_MOST)
def agree(one: str, other: str) -> bool:
    """Say whether two requirements of one distribution may be met by one version, as far as one of them pins it."""
    pinned, specifier = exact(one), str(_parsed(other).specifier)
    if pinned is None:
        pinned, specifier = exact(other), str(_parsed(one).specifier)
    if pinned is None:
        return True
    wished = exact(f"x{specifier}") if specifier else None
    if wished is not None:
        short, long = sorted((pinned, wished), key=lambda version: "+" in version)
        return short == long or ("+" not in short and long.partition("+")[0] == short)
    return specifiers.matches(pinned.partition("+")[0], specifier)


def _without_marker(parsed: Parsed) -> str:
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return f"{parsed.name}{extras}{parsed.specifier}"


def _variables(python: str, arch: str) -> Mapping[str, str]:
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": arch,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


@lru_cache(maxsize=_MOST)
def _parsed(text: str) -> Parsed:
    from packaging.requirements import Requirement as Parsed

    return Parsed(text)

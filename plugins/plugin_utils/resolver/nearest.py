# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nearest wish that works, for a person whose own cannot be met.

The parts of the wish are given up one after the other, then several together, until one resolves; what came out for
the parts given up is what is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..wish import FrameworkWish, Wish
from .log import Unresolved

Stack = dict[str, Any]
Decide = Callable[[Wish], Stack]


@dataclass(frozen=True)
class Part:
    """A part of a wish: how it is given up, and how what came instead is written ("" where nothing came)."""

    name: str
    give_up: Callable[[Wish], Wish]
    instead: Callable[[Stack], str]


def remedy(wish: Wish, decide: Decide) -> str | None:
    """Return what to ask for instead, such as "ask for driver=580"; None where no part of the wish is to blame.

    Where giving up either of two parts helps, both are named.
    """
    alone: list[str] = []
    for parts in _attempts(wish):
        if alone and (len(parts) > 1 or parts[0] in _COMPONENTS or len(alone) == 2):
            break
        relaxed = wish
        for part in parts:
            relaxed = part.give_up(relaxed)
        try:
            stack = decide(relaxed)
        except Unresolved:
            continue
        found = " and ".join(dict.fromkeys(text for part in parts if (text := part.instead(stack))))
        if len(parts) > 1 or parts[0] in _COMPONENTS:
            return found
        alone = list(dict.fromkeys([*alone, found]))
    return ", or ".join(alone) or None


def _attempts(wish: Wish) -> Iterator[list[Part]]:
    """Yield the parts to give up: each alone, the driver's together, everything about versions, then whole components."""
    present = [part for part in _VERSIONS if part.give_up(wish) != wish]
    yield from ([part] for part in present)
    driver = [part for part in present if part.name == "driver"]
    if len(driver) > 1:
        yield driver
    if len(present) > len(driver):
        yield present
    components = [part for part in _COMPONENTS if part.give_up(wish) != wish]
    yield from ([part] for part in components)
    yield from ([*present, part] for part in components)
    if len(components) > 1:
        yield [*present, *components]


def _any_framework(wish: Wish) -> Wish:
    return replace(wish, frameworks=tuple(FrameworkWish(each.name, text=each.name) for each in wish.frameworks))


def _driver(stack: Stack) -> str:
    return f"ask for driver={stack['driver']['branch']}" if "driver" in stack else ""


def _of_driver(key: str) -> Callable[[Stack], str]:
    return lambda stack: f"ask for driver-{key}={stack['driver'][key]}" if "driver" in stack else ""


def _cuda(stack: Stack) -> str:
    return f"ask for cuda={stack['cuda'][0]['version']}" if "cuda" in stack else ""


def _cudnn(stack: Stack) -> str:
    if "cudnn" not in stack:
        return ""
    version = stack["cudnn"]["version"]
    return f"ask for cudnn={version}" if version else "ask for cudnn without a version"


def _framework(stack: Stack) -> str:
    if "frameworks" not in stack:
        return ""
    chosen = stack["frameworks"][0]
    return f"ask for pytorch={chosen['version']}+{chosen['variant']}"


def _python(stack: Stack) -> str:
    return f"ask for python={stack['frameworks'][0]['interpreter']}" if "frameworks" in stack else ""


_VERSIONS = (
    Part("python", lambda wish: replace(wish, python=None), _python),
    Part("pytorch", _any_framework, _framework),
    Part("cudnn", lambda wish: replace(wish, cudnn_version=None), _cudnn),
    Part("cuda", lambda wish: replace(wish, cuda_versions=()), _cuda),
    Part("driver", lambda wish: replace(wish, driver_version=None), _driver),
    Part("driver", lambda wish: replace(wish, driver_version=None, driver_branch=None), _driver),
    Part("driver", lambda wish: replace(wish, driver_modules=None), _of_driver("modules")),
    Part("driver", lambda wish: replace(wish, driver_source=None), _of_driver("source")),
)
_COMPONENTS = (
    Part(
        "cuda",
        lambda wish: replace(wish, cuda=False, cuda_versions=()),
        lambda _: "leave the CUDA toolkit out (frameworks bring their own CUDA)",
    ),
    Part(
        "cudnn",
        lambda wish: replace(wish, cudnn=False, cudnn_version=None),
        lambda _: "leave cuDNN out (frameworks bring their own)",
    ),
    Part("pytorch", lambda wish: replace(wish, frameworks=()), lambda _: "leave PyTorch out"),
)

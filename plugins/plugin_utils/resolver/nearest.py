# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nearest wish that works, for a person whose own cannot be met.

The parts of the wish are given up one after the other, then several together, until one resolves; what came out for
the parts given up is what is proposed. A proposal is resolved once more, as it will be asked: only one that works is made.
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
class Proposal:
    """What to ask for instead: its words, and the wish that follows them."""

    text: str
    follow: Callable[[Wish], Wish]


@dataclass(frozen=True)
class Part:
    """A part of a wish: how it is given up, and what is proposed for what came instead (None where nothing is)."""

    name: str
    give_up: Callable[[Wish], Wish]
    instead: Callable[[Stack], Proposal | None]
    component: bool = False


def remedy(wish: Wish, decide: Decide) -> str | None:
    """Return what to ask for instead, such as "ask for driver=580"; None where no part of the wish is to blame.

    Where giving up either of two parts helps, both are named.
    """
    alone: list[str] = []
    for parts in _attempts(wish):
        severe = len(parts) > 1 or parts[0].component
        if alone and (severe or len(alone) == 2):
            break
        found = _proposed(wish, parts, decide)
        if found is None:
            continue
        if severe:
            return found
        alone = list(dict.fromkeys([*alone, found]))
    return ", or ".join(alone) or None


def _proposed(wish: Wish, parts: list[Part], decide: Decide) -> str | None:
    """Return the words of what works without these parts; None where nothing does, or not as it would be asked."""
    relaxed = wish
    for part in parts:
        relaxed = part.give_up(relaxed)
    try:
        stack = decide(relaxed)
        proposals = [proposal for part in parts if (proposal := part.instead(stack))]
        followed = relaxed
        for proposal in proposals:
            followed = proposal.follow(followed)
        if followed != relaxed:
            decide(followed)
    except Unresolved:
        return None
    return " and ".join(dict.fromkeys(proposal.text for proposal in proposals)) or None


def _attempts(wish: Wish) -> Iterator[list[Part]]:
    """Yield the parts to give up: each alone, the driver's together, everything about versions, then whole components."""
    present = [part for part in _versions(wish) if part.give_up(wish) != wish]
    yield from ([part] for part in present)
    driver = [part for part in present if part.name == "driver"]
    if len(driver) > 1:
        yield driver
    frameworks = [part for part in present if part.name in ("python", "framework")]
    if len(frameworks) > 1:
        yield frameworks
    if len(present) > len(driver) and present != frameworks:
        yield present
    components = [part for part in _components(wish) if part.give_up(wish) != wish]
    yield from ([part] for part in components)
    yield from ([*present, part] for part in components)
    if len(components) > 1:
        yield [*present, *components]


# versions ----------------------------------------------------------------------------------------------


def _versions(wish: Wish) -> list[Part]:
    frameworks = [_framework(each.name) for each in wish.frameworks]
    return [
        Part("python", lambda each: replace(each, python=None), _python),
        *frameworks,
        *(_library(name) for name in ("cudnn", "nccl", "tensorrt")),
        Part("cuda", lambda each: replace(each, cuda_versions=()), _cuda),
        Part("driver", lambda each: replace(each, driver_version=None), _driver),
        Part("driver", lambda each: replace(each, driver_version=None, driver_branch=None), _driver),
        Part("driver", lambda each: replace(each, driver_modules=None), _of_driver("modules")),
        Part("driver", lambda each: replace(each, driver_source=None), _of_driver("source")),
    ]


def _changed(text: str, **changes: Any) -> Proposal:
    return Proposal(f"ask for {text}", lambda wish: replace(wish, **changes))


def _framework(name: str) -> Part:
    def instead(stack: Stack) -> Proposal | None:
        chosen = _chosen(stack, name)
        if chosen is None:
            return None
        version, variant = chosen["version"], chosen["variant"]
        text = _AS_ASKED[name].format(version=version, variant=variant)
        wished = FrameworkWish(name, f"=={version}", variant, text)
        return Proposal(f"ask for {text}", lambda wish: _with(wish, wished))

    return Part("framework", lambda wish: _with(wish, FrameworkWish(name, text=name)), instead)


# How a framework is asked for by release and variant.
_AS_ASKED = {
    "pytorch": "pytorch={version}+{variant}",
    "tensorflow": "tensorflow={version}",
    "jax": "jax[{variant}]=={version}",
    "dali": "dali={version}+{variant}",
}


def _with(wish: Wish, framework: FrameworkWish) -> Wish:
    """Return the wish with another one for a framework that it holds."""
    return replace(
        wish, frameworks=tuple(framework if each.name == framework.name else each for each in wish.frameworks)
    )


def _chosen(stack: Stack, name: str) -> dict[str, Any] | None:
    return next((each for each in stack.get("frameworks", ()) if each["name"] == name), None)


def _python(stack: Stack) -> Proposal | None:
    found = [each["interpreter"] for each in stack.get("frameworks", ())]
    return _changed(f"python={found[0]}", python=found[0]) if found else None


def _library(name: str) -> Part:
    key = f"{name}_version"
    without: dict[str, Any] = {key: None}

    def instead(stack: Stack) -> Proposal | None:
        if name not in stack:
            return None
        version = stack[name]["version"]
        return _changed(f"{name}={version}", **{key: version}) if version else _changed(f"{name} without a version")

    return Part(name, lambda wish: replace(wish, **without), instead)


def _cuda(stack: Stack) -> Proposal | None:
    if "cuda" not in stack:
        return None
    version = stack["cuda"][0]["version"]
    return _changed(f"cuda={version}", cuda_versions=(version,))


def _driver(stack: Stack) -> Proposal | None:
    if "driver" not in stack:
        return None
    branch = stack["driver"]["branch"]
    return _changed(f"driver={branch}", driver_branch=branch, driver_version=None)


def _of_driver(key: str) -> Callable[[Stack], Proposal | None]:
    without: dict[str, Any] = {f"driver_{key}": None}

    def instead(stack: Stack) -> Proposal | None:
        if "driver" not in stack:
            return None
        value = stack["driver"][key]
        if value not in ("nvidia", "distro", "open", "proprietary"):
            # Adopted from somewhere that has no name to ask for.
            return Proposal(f"leave driver-{key} out", lambda wish: replace(wish, **without))
        return _changed(f"driver-{key}={value}", **{f"driver_{key}": value})

    return instead


# whole components --------------------------------------------------------------------------------------


def _components(wish: Wish) -> list[Part]:
    return [
        _without("the CUDA toolkit out (frameworks bring their own CUDA)", cuda=False, cuda_versions=()),
        _without("cuDNN out (frameworks bring their own)", cudnn=False, cudnn_version=None),
        _without("NCCL out (frameworks bring their own)", nccl=False, nccl_version=None),
        _without("TensorRT out", tensorrt=False, tensorrt_version=None),
        *(_without_framework(each.name) for each in wish.frameworks),
    ]


def _without(text: str, **changes: Any) -> Part:
    proposal = Proposal(f"leave {text}", lambda wish: wish)
    return Part("component", lambda wish: replace(wish, **changes), lambda _: proposal, component=True)


_TITLES = {"pytorch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "dali": "DALI"}


def _without_framework(name: str) -> Part:
    proposal = Proposal(f"leave {_TITLES[name]} out", lambda wish: wish)
    return Part(
        "component",
        lambda wish: replace(wish, frameworks=tuple(each for each in wish.frameworks if each.name != name)),
        lambda _: proposal,
        component=True,
    )

"""What a conflict proposes, as wishes that can be tried."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.stack import Conflict
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import Machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import Rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.property import naive

_ASK = re.compile(
    r"^ask for (?P<name>[a-z-]+(?:\[[^\]]*\])?)(?P<spec>[=<>!~]\S+| without a version)?(?: in place of cuda=(?P<instead>\S+))?$"
)
_LIBRARIES = ("cudnn", "nccl", "tensorrt")
_NOTE = re.compile(r" \((the newest that fit|\d+ (is|ended) )[^)]*\)$")
_LEAVE_OUT = {
    "driver-modules": "driver-modules",
    "driver-source": "driver-source",
    "the CUDA toolkit": "cuda",
    "cuDNN": "cudnn",
    "NCCL": "nccl",
    "TensorRT": "tensorrt",
    "PyTorch": "pytorch",
    "TensorFlow": "tensorflow",
    "JAX": "jax",
    "DALI": "dali",
    "CuPy": "cupy",
    "vLLM": "vllm",
    "LMDB": "lmdb",
    "ONNX Runtime": "onnxruntime",
}

# What says where a component comes from asks for the component too.
_WITH = {name: (name, f"{name}-source") for name in ("cuda", *_LIBRARIES)}


def proposed(wants: Sequence[str], conflicts: Iterable[Conflict]) -> list[tuple[str, ...]]:
    """The wishes that the conflicts' remedies propose in place of one, the nearest first; a remedy in other words proposes none."""
    found: list[tuple[str, ...]] = []
    for alternative in _alternatives(conflicts):
        changed = _changed(wants, alternative)
        if changed is not None and changed not in found:
            found.append(changed)
    return found


def _alternatives(conflicts: Iterable[Conflict]) -> Iterator[list[str]]:
    """The steps of each alternative that the conflicts' remedies name."""
    for conflict in conflicts:
        for alternative in re.split(r"[,;] or ", conflict["remedy"]):
            yield _NOTE.sub("", alternative).split(" and ")


def _changed(wants: Sequence[str], steps: Sequence[str]) -> tuple[str, ...] | None:
    """The wish with every step of an alternative taken; None where one is in other words than those that are tried."""
    result = list(wants)
    for step in steps:
        asked = _ASK.match(step)
        left_out = re.match(r"^leave (.+?) out( \(.*\))?$", step)
        if asked and not asked["instead"]:
            spec = "" if asked["spec"] == " without a version" else asked["spec"] or ""
            result = list(_replaced(result, asked["name"], spec))
        elif left_out and left_out.group(1) in _LEAVE_OUT:
            name = _LEAVE_OUT[left_out.group(1)]
            result = [want for want in result if naive.component(want) not in _WITH.get(name, (name,))]
        else:
            return None
    return tuple(result)


def _replaced(wants: Sequence[str], name: str, spec: str) -> Iterator[str]:
    """The wants with one component asked for in another way, where it was asked for already, else at the end."""
    plain = naive.component(name)
    done = False
    for want in wants:
        if naive.component(want) != plain:
            yield want
        elif not done:
            yield name + spec
            done = True
    if not done:
        yield name + spec


# wishes that are no list of wants ----------------------------------------------------------------------


def each_resolves(plain: Callable[..., Any]) -> Callable[..., Any]:
    """resolver.resolve, which fails where a wish that a refusal proposes is refused as well."""

    def resolve(where: Machine, wish: Wish, rules: Rules) -> Any:
        answer = plain(where, wish, rules)
        for other in followed(wish, answer.get("conflicts", ()), rules):
            again = plain(where, other, rules)
            assert again["ok"], (answer["conflicts"], other, again["conflicts"])
        return answer

    return resolve


def watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try what every refusal of a test proposes."""
    monkeypatch.setattr(resolver, "resolve", each_resolves(resolver.resolve))


def followed(wish: Wish, conflicts: Iterable[Conflict], rules: Rules) -> list[Wish]:
    """The wishes that the conflicts' remedies propose in place of one, the nearest first."""
    found = (_followed(wish, steps, rules) for steps in _alternatives(conflicts))
    return [other for other in found if other is not None]


def _followed(wish: Wish, steps: Sequence[str], rules: Rules) -> Wish | None:
    """The wish with every step taken; None where one is in other words than those that are tried."""
    for step in steps:
        asked = _ASK.match(step)
        left_out = re.match(r"^leave (.+?) out( \(.*\))?$", step)
        if asked:
            wish = _asking(wish, asked, rules)
        elif left_out and left_out.group(1) in _LEAVE_OUT:
            wish = _without(wish, _LEAVE_OUT[left_out.group(1)])
        else:
            return None
    return wish


def _asking(wish: Wish, asked: re.Match[str], rules: Rules) -> Wish:
    spec = "" if asked["spec"] == " without a version" else asked["spec"] or ""
    if asked["instead"]:
        kept = [spec.lstrip("=") if each == asked["instead"] else each for each in wish.cuda_versions]
        return replace(wish, cuda_versions=tuple(dict.fromkeys(kept)))
    other = Wish.from_wants([asked["name"] + spec], rules)
    mine = {each.name: each for each in other.frameworks}
    frameworks = tuple(mine.pop(each.name, each) for each in wish.frameworks) + tuple(mine.values())
    if not spec and asked["name"] in _LIBRARIES:
        wish = _changed_in(wish, {f"{asked['name']}_version": None})
    return replace(wish.overlaid(replace(other, frameworks=())), frameworks=frameworks)


def _without(wish: Wish, name: str) -> Wish:
    if name in ("driver-modules", "driver-source"):
        return _changed_in(wish, {name.replace("-", "_"): None})
    if name == "cuda":
        return replace(wish, cuda=False, cuda_versions=())
    if name in _LIBRARIES:
        return _changed_in(wish, {name: False, f"{name}_version": None})
    return replace(wish, frameworks=tuple(each for each in wish.frameworks if each.name != name))


def _changed_in(wish: Wish, changes: Mapping[str, Any]) -> Wish:
    return replace(wish, **changes)

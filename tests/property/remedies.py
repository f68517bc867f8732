"""What a conflict proposes, as wishes that can be tried."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.property import naive

_ASK = re.compile(r"^ask for (?P<name>[a-z-]+(?:\[[^\]]*\])?)(?P<spec>[=<>!~]\S+| without a version)?$")
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
}


def proposed(wants: Sequence[str], conflicts: Iterable[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """The wishes that the conflicts' remedies propose in place of one, the nearest first; a remedy in other words proposes none."""
    found: list[tuple[str, ...]] = []
    for conflict in conflicts:
        for alternative in re.split(r"[,;] or ", conflict["remedy"]):
            changed = _changed(wants, _NOTE.sub("", alternative).split(" and "))
            if changed is not None and changed not in found:
                found.append(changed)
    return found


def _changed(wants: Sequence[str], steps: Sequence[str]) -> tuple[str, ...] | None:
    """The wish with every step of an alternative taken; None where one is in other words than those that are tried."""
    result = list(wants)
    for step in steps:
        asked = _ASK.match(step)
        left_out = re.match(r"^leave (.+?) out( \(.*\))?$", step)
        if asked:
            spec = "" if asked["spec"] == " without a version" else asked["spec"] or ""
            result = list(_replaced(result, asked["name"], spec))
        elif left_out and left_out.group(1) in _LEAVE_OUT:
            result = [want for want in result if naive.component(want) != _LEAVE_OUT[left_out.group(1)]]
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

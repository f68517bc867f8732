"""Every remedy of a refusal that is a wish, in whatever words, is carried out: what it was said of is gone then, or has moved on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hypothesis import assume, example, given

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.stack import Conflict
from tests.property import naive, remedies
from tests.property.machines import Question, answer_to, questions

_OTHERS = (
    *("driver", "driver-source", "driver-modules", "driver-set"),
    *(
        "cuda",
        "cuda-source",
        "cuda-compat",
        "cudnn",
        "cudnn-source",
        "nccl",
        "nccl-source",
        "tensorrt",
        "tensorrt-source",
    ),
    *("container-image", "container-engine", "container-engine-source", "monitoring", "python"),
)
_WISH = re.compile(
    rf"(?<![\w./-])((?:{'|'.join(sorted((*_OTHERS, *ABOUT), key=len, reverse=True))})(?:\[[\w,-]+\])?(?:==?|>=)[\w.+:/-]*\w)(?![\w=])"
)
_OPEN = re.compile(r"ask for (\w+) without a version")
_OUT = re.compile(r"leave (.+?) out")
_SYSTEM = re.compile(r"^use ((?:ubuntu|debian|rhel|rocky|almalinux)-[\d.]+)$")
_NEWER = re.compile(r"^use a driver from (\d+)[\d.]* on$")


def carried_out(question: Question, remedy: str) -> Iterator[Question]:
    """Each way of a remedy that is a wish, or names a system, as the question that a person asks then."""
    for way in re.split(r"[,;] or ", remedy):
        system, newer = _SYSTEM.match(way), _NEWER.match(way)
        wishes = [f"driver={newer[1]}"] if newer else [*_WISH.findall(way), *_OPEN.findall(way)]
        out = [remedies._LEAVE_OUT[each] for each in _OUT.findall(way) if each in remedies._LEAVE_OUT]
        if system and "os" in question.machine:
            yield Question({**question.machine, "os": system[1]}, question.wants)
        elif wishes or out:
            left = {name for each in out for name in remedies._WITH.get(each, (each,))}
            wants = [want for want in question.wants if naive.component(want) not in left]
            for wish in wishes:
                wants = list(remedies._replaced(wants, *_parted(wish)))
            yield question.wanting(*wants)


def _parted(wish: str) -> tuple[str, str]:
    name = re.split(r"[=<>]", wish, maxsplit=1)[0]
    return name, wish[len(name) :]


def _same(one: Conflict, other: Conflict) -> bool:
    """Whether the same is said once more; with another remedy a person has come further."""
    return (one["rule"], one["text"], one["remedy"]) == (other["rule"], other["text"], other["remedy"])


def unmoved(question: Question) -> Iterator[str]:
    """What is said again, in the same words, after its remedy was carried out."""
    answer = answer_to(question)
    for entry in answer.get("conflicts", ()):
        for other in carried_out(question, entry["remedy"]):
            again = answer_to(other)
            if any(_same(entry, each) for each in again.get("conflicts", ())):
                yield f"{entry['rule']}: {entry['text']} -- {entry['remedy']} -- {other.wants}"


def _asked(card: str, os: str, *wants: str, **machine: object) -> Question:
    return Question(
        {"gpus": [card], "os": os, "arch": "x86_64", "assume": [], "today": "2026-11-20", "keys": {}, **machine}, wants
    )


@example(_asked("GeForce RTX 4090", "ubuntu24", "pytorch"))
@example(_asked("GeForce RTX 4090", "debian-11"))
@example(_asked("GeForce RTX 5090", "ubuntu-24.04", "tensorflow"))
@example(_asked("GeForce RTX 5090", "ubuntu-24.04", "torch==2.3.0"))
@example(_asked("GeForce RTX 4090", "ubuntu-26.04", "tensorflow"))
@example(_asked("GeForce RTX 4090", "debian-13", "torch==2.3.0"))
@example(_asked("Tesla V100 SXM2 16GB", "debian-12", "cuda", assume=["glibc=2.41"]))
@example(_asked("Tesla V100 SXM2 16GB", "debian-13", "cuda"))
@example(_asked("GeForce RTX 3090", "ubuntu-22.04", "driver=550", "container-image=nvcr.io/nvidia/pytorch:25.10-py3"))
@example(_asked("GeForce RTX 4090", "ubuntu-24.04", "torch==2.16"))
@example(_asked("GeForce RTX 4090", "ubuntu-24.04", "cuda=9.2", "cudnn=7.6"))
@example(_asked("GeForce RTX 4090", "ubuntu-22.04", "torch==2.5.1", "xformers"))
@example(_asked("A100 SXM4 40GB", "rhel-9", "vllm==0.20.2"))
@given(questions)
def test_a_remedy_that_is_a_wish_takes_away_what_it_was_said_of(question: Question) -> None:
    faults = list(unmoved(question))
    assume(faults or "conflicts" in answer_to(question))
    assert not faults, faults


def test_a_wish_is_found_in_a_remedy_whatever_words_are_around_it() -> None:
    asked = _asked("GeForce RTX 4090", "ubuntu-24.04", "cuda=11.8", "pytorch")

    def wants(remedy: str) -> list[tuple[str, ...]]:
        return [each.wants for each in carried_out(asked, remedy)]

    assert wants("use cuda=12.8, or ask for driver=580 (580 is long-term)") == [
        ("cuda=12.8", "pytorch"),
        ("cuda=11.8", "pytorch", "driver=580"),
    ]
    assert wants("add cuda-compat=auto, which leaves the driver as it is") == [
        ("cuda=11.8", "pytorch", "cuda-compat=auto")
    ]
    assert wants("boot a kernel older than 6.12") == []
    assert [each.machine["os"] for each in carried_out(asked, "use debian-13")] == ["debian-13"]
    assert naive.component("pytorch") == "pytorch"

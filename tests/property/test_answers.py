"""What holds for any machine and any wish that can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, event, example, given, settings
from hypothesis import strategies as st

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.stack import Stack
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import alternatives, images
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.log import Log
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import ASSUMPTIONS
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.possible import Possible, Trials
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.property import naive, nearer, remedies
from tests.property.machines import (
    RULES,
    WANTS,
    Question,
    answer_to,
    beside,
    machine_of,
    monitored,
    questions,
    wish_of,
)


def answered(question: Question) -> dict[str, Any]:
    """The answer; a run's statistics count its kind."""
    answer = answer_to(question)
    event("ok" if answer["ok"] else "conflict")
    return answer


def _described(card: str, os: str, *wants: str, today: str = "2026-11-20", **more: Any) -> Question:
    machine = {"gpus": [card], "os": os, "arch": "x86_64", "assume": [], "today": today, "keys": {}}
    return Question({**machine, **more}, wants)


JETSON = _described("Jetson AGX Thor (T5000)", "ubuntu-22.04", "container-toolkit", today="2027-02-01", arch="aarch64")


# Eight cards on a board: that it has NVSwitches is assumed, and a decision says so.
NVSWITCHES = _described("A100 SXM4 40GB", "ubuntu-22.04", gpus=["A100 SXM4 40GB"] * 8)


# Wheels beside a toolkit that compiles no extensions for them: two versions that hardly ever are drawn together.
BESIDE = _described("GeForce RTX 4090", "ubuntu-24.04", "cuda=12.8", "pytorch==2.15.0")


# A Python that is asked for has wheels that the machine's own has not: left to the resolver, it says nothing about the one that was wished.
PYTHON_OF_ITS_OWN = _described("GeForce GTX 950", "ubuntu-24.04", "python=3.9", "dali==1.23.0", "cuda=11")


# A toolkit that is to be had nowhere: to leave it out, which was proposed, gives the wheels no Python.
NOT_BY_LEAVING_OUT = _described("GeForce RTX 4090", "ubuntu-24.04", "cuda=10.2", "pytorch==2.3.0", "python=3.13")


@example(JETSON)
@example(BESIDE)
@settings(max_examples=settings.default.max_examples * 4)  # type: ignore[union-attr]  # a profile is loaded
@given(questions)
def test_an_answer_satisfies_every_rule_when_checked_from_the_tables_alone(question: Question) -> None:
    answer = answered(question)
    if answer["ok"]:
        where = machine_of(question, wish_of(question))
        assert not naive.faults(where, question.wants, answer)
        assert not naive.better_branches(where, question.wants, answer)


# Each is bound to one thing that hardly ever is drawn together with it: a CUDA, a driver, a torch that its metadata does not name.
def _bound(*lines: str, driver: str = "") -> Question:
    asked = _described("GeForce RTX 4090", "ubuntu-24.04", *([f"driver={driver}"] if driver else []))
    return Question(asked.machine, asked.wants, lines)


@example(_bound("torch==2.5.1+cu124", "bitsandbytes==0.42.0"))
@example(_bound("torch==2.9.0+cu128", "cuda-python", driver="570"))
@example(_bound("torch==2.8.0", "torchcodec"))
@example(Question(_described("Tesla K80", "ubuntu-22.04").machine, (), ("torch==1.13.0+cu116", "flash-attn")))
@settings(max_examples=settings.default.max_examples * 2)  # type: ignore[union-attr]  # a profile is loaded
@given(beside())
def test_what_stands_beside_a_framework_satisfies_the_tables_or_is_refused_by_them(question: Question) -> None:
    answer = answered(question)
    where = machine_of(question, wish_of(question))
    if answer["ok"]:
        assert not naive.faults(where, question.wants, answer, question.lines)
        return
    # A torch that is free is another one without the line, and a build that is named is the same.
    alone = answer_to(Question(question.machine, question.wants, question.lines[:1]))
    refused = {entry["rule"] for entry in answer["conflicts"]} == {"frameworks.companions"}
    if refused and alone["ok"] and "+" in question.lines[0]:
        assert list(naive.companions.faults(where, alone["stack"], question.lines))


@example(JETSON)
@given(questions)
def test_the_images_beside_an_answer_satisfy_the_tables(question: Question) -> None:
    answer = answered(question)
    if answer["ok"]:
        wish = wish_of(question)
        where = machine_of(question, wish)
        found = images.choose(where, wish, answer["stack"], RULES)
        assert not list(naive.images.faults(where, answer["stack"], found))


@settings(max_examples=settings.default.max_examples * 4)  # type: ignore[union-attr]  # a profile is loaded
@given(monitored())
def test_the_exporters_of_an_answer_satisfy_the_tables(question: Question) -> None:
    answer = answered(question)
    if answer["ok"]:
        where = machine_of(question, wish_of(question))
        assert not list(naive.exporters.faults(where, question.wants, answer["stack"]))


@given(questions, st.data())
def test_a_wish_that_is_added_loosens_none_that_was_there(question: Question, data: st.DataObject) -> None:
    before = answered(question)
    named = {naive.component(want) for want in question.wants}
    other = data.draw(st.sampled_from(sorted(WANTS.keys() - named)).flatmap(WANTS.__getitem__))
    after = answered(question.wanting(*question.wants, other))
    if not after["ok"]:
        assert after["conflicts"]
        return
    where = machine_of(question, wish_of(question))
    assert not naive.unmet([*question.wants, other], after["stack"], naive.leaves_out(where))
    if before["ok"]:
        assert before["stack"].keys() <= after["stack"].keys()


@example(NOT_BY_LEAVING_OUT)
@given(questions)
def test_what_a_conflict_proposes_resolves(question: Question) -> None:
    answer = answered(question)
    assume(not answer["ok"])
    for entry in answer["conflicts"]:
        assert entry["rule"]
        assert entry["text"]
        assert entry["source"]
        assert entry["remedy"]
    for wants in remedies.proposed(question.wants, answer["conflicts"]):
        again = answer_to(question.wanting(*wants))
        assert again["ok"], (wants, again)


@example(PYTHON_OF_ITS_OWN)
@example(NOT_BY_LEAVING_OUT)
@given(questions)
def test_no_nearer_wish_than_the_one_that_is_proposed_resolves(question: Question) -> None:
    answer = answered(question)
    assume(not answer["ok"])
    proposed = remedies.proposed(question.wants, answer["conflicts"])

    def works(wants: Sequence[str]) -> bool:
        other = question.wanting(*wants)
        wish = wish_of(other)
        return resolver.stack_for(machine_of(other, wish), wish, RULES) is not None

    found = list(nearer.faults(question.wants, proposed, works))
    assert not found, (found, proposed, answer["conflicts"])


# Several toolkits, of which one may change and another may not.
SEVERAL_TOOLKITS = _described("GeForce RTX 5090", "ubuntu-24.04", "cuda=12.6", "cuda=12.4", "cudnn")


@example(PYTHON_OF_ITS_OWN, None)
@example(SEVERAL_TOOLKITS, None)
@given(questions, st.data())
def test_a_wish_that_can_be_met_is_never_held_for_impossible(question: Question, data: st.DataObject | None) -> None:
    wish = wish_of(question)
    machine = machine_of(question, wish)

    def decide(other: Wish) -> Stack:
        return resolver._decide(machine, other, RULES, Log(RULES, trial=True))

    possible = Possible(Trials(decide, 10_000), machine, RULES)
    for part in alternatives.parts(wish, machine, RULES):
        others = [each.follow(wish) for each in part.alternatives]
        several = [data.draw(st.sampled_from(others))] if data and others else others
        for other in several:
            if resolver.stack_for(machine, other, RULES) is not None:
                assert possible(wish, [part]), part.name
                assert possible(other, []), part.name
    if resolver.stack_for(machine, wish, RULES) is not None:
        assert possible(wish, [])


def _decided(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what only says that something is assumed, and without remedies: another Python is one only where nobody stated
    which the machine has.
    """
    conflicts = [{**each, "remedy": None} for each in answer.get("conflicts", ())]
    why = [each["rule"] for each in answer.get("why", ()) if not each["rule"].endswith("-assumed")]
    return {**answer, "assumed": None, "conflicts": conflicts, "why": why}


@example(_described("GeForce GTX 950", "ubuntu-24.04", "dali==1.22.0"))
@example(NVSWITCHES)
@given(questions)
def test_to_state_what_was_assumed_changes_nothing(question: Question) -> None:
    assume("facts" not in question.machine)
    answer = answered(question)
    where = machine_of(question, wish_of(question))
    taken = resolver.assumed(where, wish_of(question), RULES)
    words = {key: str(value).lower() for key, value in taken.items() if key in ASSUMPTIONS}
    stated = [*question.machine["assume"], *(f"{key}={value}" for key, value in words.items())]
    again = answer_to(Question({**question.machine, "assume": stated}, question.wants))
    assert _decided(again) == _decided(answer)


@settings(max_examples=50, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(questions, min_size=10, max_size=10))
def test_the_same_question_twice_gives_the_same_bytes(asked: list[Question]) -> None:
    first, second = ([json.dumps(answer_to(each)) for each in asked] for _ in range(2))
    assert first == second


@pytest.fixture(scope="module")
def sample() -> list[Question]:
    """A few hundred questions, the same ones each time."""
    found: list[Question] = []

    @settings(max_examples=300, phases=[Phase.generate], derandomize=True, database=None)
    @given(questions)
    def collect(question: Question) -> None:
        found.append(question)

    collect()
    return found


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_another_process_with_another_hash_seed_gives_the_same_bytes(sample: list[Question], seed: str) -> None:
    asked = json.dumps([asdict(each) for each in sample])
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.property.ask"]
    ended = subprocess.run(command, input=asked, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    here = [json.dumps(answer_to(each)) for each in sample]
    assert ended.stdout.splitlines() == here

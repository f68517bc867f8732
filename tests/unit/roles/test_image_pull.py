"""Pulling an image: only where it is not there, and a failure in one sentence with what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import image_pull
from ansible_collections.gpuwright.node.plugins.modules import container_image
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.unit.modules import run_module

IMAGE = "registry.example:5000/nvidia/cuda:13.0"
LACKS = {
    "docker": Result(1, "", f"Error response from daemon: No such image: {IMAGE}\n", 0, None),
    "podman": Result(1, "", "", 0, None),
}
DONE = Result(0, "sha256:0", "", 0, None)


class Engine:
    def __init__(self, *answers: Result) -> None:
        self.answers = list(answers)
        self.calls: list[list[str]] = []

    def __call__(self, argv: Sequence[str], /, *, timeout: float) -> Result:
        self.calls.append(list(argv))
        return self.answers.pop(0)


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_an_image_is_pulled_where_it_is_not_there(engine: str) -> None:
    program = Engine(LACKS[engine], DONE)
    assert image_pull.bring(engine, IMAGE, 10, program)
    assert program.calls[-1] == [engine, "pull", "--quiet", IMAGE]
    there = Engine(DONE)
    assert not image_pull.bring(engine, IMAGE, 10, there)
    assert len(there.calls) == 1


@pytest.mark.parametrize(
    ("said", "todo"),
    [
        ("manifest for registry.example:5000/nvidia/cuda:13.0 not found: manifest unknown", "correct the tag"),
        ("pull access denied for nvidia/cuda, may require 'docker login'", "docker login registry.example:5000"),
        ("unauthorized: authentication required", "docker login registry.example:5000"),
        ("toomanyrequests: You have reached your pull rate limit.", "wait an hour"),
        ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "free the disk"),
        ("dial tcp: lookup registry.example on 10.0.0.1:53: no such host", "reaches registry.example:5000"),
        ("dial tcp 10.0.0.1:5000: connect: connection refused", "reaches registry.example:5000"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "certificate of registry.example:5000"),
        ("something else", "read what docker says"),
    ],
)  # fmt: skip
def test_a_failure_is_one_sentence_with_what_to_do(said: str, todo: str) -> None:
    with pytest.raises(image_pull.PullError) as failed:
        image_pull.bring("docker", IMAGE, 10, Engine(LACKS["docker"], Result(1, "", said, 0, None)))
    text = str(failed.value)
    assert text.startswith(f"Expected docker to pull {IMAGE}. Found: ")
    assert (said in text, todo in text.partition("What to do: ")[2]) == (True, True)


def test_a_password_that_an_engine_repeats_is_taken_out() -> None:
    said = "Get https://alice:hunter2@registry.example/v2/: connection refused"
    with pytest.raises(image_pull.PullError) as failed:
        image_pull.bring("docker", IMAGE, 10, Engine(LACKS["docker"], Result(1, "", said, 0, None)))
    assert "hunter2" not in str(failed.value)


def test_an_engine_that_does_not_answer_is_not_without_the_image() -> None:
    for answer in (Result(1, "", "Cannot connect to the Docker daemon", 0, None), Result(None, "", "", 0, "no docker")):
        with pytest.raises(image_pull.PullError, match="Expected docker to pull"):
            image_pull.bring("docker", IMAGE, 10, Engine(answer))
    with pytest.raises(image_pull.PullError, match="What to do"):
        image_pull.is_there("podman", IMAGE, Engine(Result(125, "", "storage is locked", 0, None)))


def test_check_mode_says_what_would_be_pulled_and_pulls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def answered(*answers: Result) -> Any:
        program = Engine(*answers)
        monkeypatch.setattr(image_pull, "is_there", lambda engine, image: _there(engine, image, program))
        monkeypatch.setattr(image_pull, "bring", lambda *_: pytest.fail("pulled"))
        return run_module(container_image, check=True, engine="docker", image=IMAGE)["changed"]

    def _there(engine: str, image: str, program: Engine) -> bool:
        answer = program([engine, image], timeout=1)
        if answer.error:
            raise image_pull.PullError(answer.error)
        return answer.ok

    assert answered(LACKS["docker"])
    assert not answered(DONE)
    # The engine of this same plan is not installed yet.
    assert answered(Result(None, "", "", 0, "docker could not be run"))


def test_what_would_be_an_option_is_refused_and_an_answer_passes_the_gate() -> None:
    assert run_module(container_image, engine="docker", image="--all-tags:1")["failed"]
    assert run_module(container_image, engine="docker", image="nvidia/cuda:13")["failed"]
    answer = {"changed": True, "pulled": True}
    assert json.loads(gate.admit("container_image", json.dumps(answer))) == answer

"""Asking for the cards in containers: what is started and ended, what nvidia-smi says there, and what is never a pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import containers
from ansible_collections.gpuwright.node.plugins.modules import container_check
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.unit.modules import run_module

IMAGE = "docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
ONE, TWO = "GPU-6d2ab1b5-7a3e-8f0c-2a55-0f0e0d0c0b0a", "GPU-7d2ab1b5-7a3e-8f0c-2a55-0f0e0d0c0b0b"
PART = "MIG-1f0c9d1e-5a5e-5b6f-9c4d-1a2b3c4d5e6f"
# As nvidia-smi 580 lists them.
LISTED = (
    f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {ONE})\n  MIG 1g.10gb     Device  0: (UUID: {PART})\n"
    f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {TWO})\n"
)
LOST = "Failed to initialize NVML: Unknown Error\n"


def said(rc: int | None, out: str = "", err: str = "", error: str | None = None) -> run.Result:
    return run.Result(rc, out, err, 0.1, error)


class Engine:
    """An engine that answers by what a command line contains, the first that matches; everything else is well. It remembers all calls."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"host": said(0, LISTED), "exec": said(0, LISTED), **answers}
        self.calls: list[list[str]] = []
        self.reloaded = False

    def __call__(self, argv: Sequence[str], /, *, timeout: float) -> run.Result:
        words = list(argv)
        self.calls.append(words)
        kind = "host" if words[0] == "nvidia-smi" else words[1]
        if kind == "daemon-reload":
            self.reloaded = True
        answer = self.answers.get("again" if kind == "exec" and self.reloaded and "again" in self.answers else kind)
        if callable(answer):
            answer = answer(words)
        return answer or said(0)

    def named(self, kind: str) -> list[str]:
        """The names of the containers of all calls of a kind."""
        found = [words for words in self.calls if words[1] == kind]
        return [words[words.index("--name") + 1] if kind == "run" else words[-1] for words in found]


def prove(engine: Engine, *ways: str, unlinked: Sequence[str] = (), kind: str = "docker") -> Any:
    question = containers.Question(kind, [IMAGE], ways or ("gpus", "cdi"), unlinked, "nvidia-smi", 10)
    return containers.prove(question, engine, lambda _seconds: None)


def ended(found: Any) -> list[tuple[str, str]]:
    return [(check["id"], check["status"]) for check in found]


def test_each_way_is_asked_and_asked_again_after_a_reload() -> None:
    engine = Engine()
    found = prove(engine)
    assert ended(found) == [("container.cards", "pass")] * 2 + [("container.reload", "pass")] * 2
    assert ["systemctl", "daemon-reload"] in engine.calls
    starts = [words for words in engine.calls if words[1] == "run"]
    assert [words[words.index("--entrypoint") - 2 : words.index("--entrypoint")] for words in starts] == [
        ["--gpus", "all"],
        ["--device", "nvidia.com/gpu=all"],
    ]
    for words in starts:
        assert words[4:8] == ["--pull", "never", "--network", "none"]
        assert ("--rm" in words, "--volume" in words, words[-3:]) == (True, False, ["sleep", IMAGE, "900"])


def test_podman_is_let_at_the_nodes_where_selinux_forbids_them() -> None:
    engine = Engine()
    prove(engine, "cdi", kind="podman")
    (start,) = [words for words in engine.calls if words[1] == "run"]
    assert start[start.index("--security-opt") + 1] == "label=disable"


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"run": said(125, err="no such device")},
        {"run": said(None, error="docker did not answer within 10 s")},
        {"exec": said(255, LOST)},
        {"daemon-reload": said(1)},
    ],
)
def test_every_container_is_ended(broken: Any) -> None:
    engine = Engine(**broken)
    prove(engine)
    assert len(set(engine.named("run"))) == 2
    assert engine.named("rm") == engine.named("run")
    assert all(name.startswith("gpuwright-check-") for name in engine.named("rm"))


def test_it_is_ended_where_the_check_itself_breaks() -> None:
    def breaks(_words: list[str]) -> run.Result:
        raise KeyboardInterrupt

    engine = Engine(exec=breaks)
    with pytest.raises(KeyboardInterrupt):
        prove(engine)
    assert engine.named("rm") == engine.named("run")


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {ONE})\n", f"it lacks {TWO}, {PART}"),
        (LISTED.replace(PART, "MIG-other"), f"it lacks {PART}; it has MIG-other, which the host has not"),
        (LISTED + "GPU 2: other (UUID: GPU-more)\n", "it has GPU-more, which the host has not"),
        ("", "it lacks"),
    ],
)
def test_other_cards_than_the_hosts_fail_and_are_named(listed: str, words: str) -> None:
    first, reload = prove(Engine(exec=said(0, listed)), "cdi")
    assert (first["status"], words in first["reason"]) == ("fail", True)
    # None that saw the cards could lose them: that is no pass.
    assert (reload["id"], reload["status"]) == ("container.reload", "incomplete")


@pytest.mark.parametrize(
    "words",
    [
        # No node of the card, and none of the driver itself: Podman 4.3.1 and nvidia-smi 580.159.04 on an H200.
        "No devices found.",
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is "
            "installed and running."
        ),
        # No library of the driver.
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly "
            "installed and present in your system.\nPlease also try adding directory that contains libnvidia-ml.so to your system PATH."
        ),
    ],
)
def test_what_nvidia_smi_says_of_a_container_that_lacks_something_is_told(words: str) -> None:
    first, _reload = prove(Engine(exec=said(9, words + "\n")), "cdi", kind="podman")
    assert (first["status"], first["evidence"]) == ("fail", words)
    assert first["reason"].endswith(f"it lacks {ONE}, {TWO}, {PART}")


def test_a_container_that_is_ended_is_not_waited_for() -> None:
    engine = Engine()
    prove(engine)
    starts = [words for words in engine.calls if words[1] == "run"]
    assert [words[words.index("--stop-timeout") + 1] for words in starts] == ["0", "0"]


def test_cards_that_a_reload_takes_away_fail() -> None:
    first, again = prove(Engine(again=said(255, LOST)), "cdi")
    assert (first["status"], again["id"], again["status"]) == ("pass", "container.reload", "fail")
    assert "after a systemctl daemon-reload" in again["reason"]
    assert again["evidence"] == LOST.strip()


def test_cards_of_a_program_that_ended_with_an_error_are_no_pass() -> None:
    (first, *_rest) = prove(Engine(exec=said(14, LISTED)), "cdi")
    assert first["status"] == "fail"


def test_without_links_systemd_is_not_asked_to_read_its_units() -> None:
    engine = Engine()
    first, reload = prove(engine, "cdi", unlinked=["/dev/nvidia0"])
    assert (first["status"], reload["status"]) == ("pass", "incomplete")
    assert "/dev/nvidia0" in reload["reason"]
    assert not engine.reloaded


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (
            said(125, err='could not select device driver "" with capabilities: [[gpu]]'),
            "fail",
            "container.daemon_json",
        ),
        (
            said(127, err='exec: "nvidia-container-runtime-hook": executable file not found'),
            "fail",
            "systemctl restart docker.service",
        ),
        (said(126, err="CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all"), "fail", "refresh"),
        (
            said(125, err="Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"),
            "fail",
            "refresh",
        ),
        (
            said(126, err="Error: crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted: OCI permission denied"),
            "incomplete",
            "by hand",
        ),
        (said(125, err="nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0"), "fail", "auto"),
        (said(127, err='exec: "sleep": executable file not found in $PATH'), "incomplete", "with a shell"),
        (said(125, err="Cannot connect to the Docker daemon at unix:///var/run/docker.sock."), "incomplete", "by hand"),
        (said(None, error="docker did not answer within 10 s"), "incomplete", "by hand"),
    ],
)
def test_a_container_that_does_not_start_tells_why_and_what_to_do(answer: run.Result, status: str, words: str) -> None:
    first, _reload = prove(Engine(run=answer), "cdi")
    assert (first["status"], words in first["remedy"]) == (status, True)
    assert first["evidence"]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"image": said(1, err=f"Error: No such image: {IMAGE}")}, "has none of the images"),
        ({"image": said(125, err=f"Error: inspecting object: {IMAGE}: image not known")}, "has none of the images"),
        ({"image": said(1, err="Cannot connect to the Docker daemon")}, "cannot be asked"),
        (
            {"image": said(125, err="Error: please update to v2.0.1 or later: outdated conmon version")},
            "for its images",
        ),
        ({"host": said(9, LOST)}, "lists no card"),
        ({"host": said(0, "No devices were found")}, "lists no card"),
    ],
)
def test_what_could_not_be_asked_is_incomplete_and_starts_nothing(broken: Any, words: str) -> None:
    engine = Engine(**broken)
    (check,) = prove(engine)
    assert (check["status"], words in check["reason"]) == ("incomplete", True)
    assert engine.named("run") == []


def test_an_answer_passes_the_gate_and_words_of_a_container_do_no_harm() -> None:
    found = prove(Engine(exec=said(0, "\x1b[2J" + LISTED * 3000)), "cdi")
    answer = checks.with_verdict({"changed": False, "seconds": 1.0, "checks": found})
    assert json.loads(gate.admit("container_check", json.dumps(answer)))["verdict"] == "pass"
    broken = prove(Engine(exec=said(1, "\x1b[2J" * 5000)), "cdi")
    assert "\x1b" not in json.dumps(broken, ensure_ascii=False)


def test_an_image_that_would_be_an_option_is_refused() -> None:
    answer = run_module(container_check, engine="docker", images=["--privileged:1"], ways=["gpus"])
    assert answer["failed"]


@pytest.mark.parametrize(
    "listed",
    [
        LISTED.replace(
            f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {ONE})\n",
            "Unable to determine the device handle for gpu 0000:18:00.0: Unknown Error\n",
        ),
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {TWO})\n",
        LISTED.replace("GPU 1:", "GPU 2:"),
    ],
)
def test_a_host_that_leaves_a_card_out_holds_no_container_against_itself(listed: str) -> None:
    engine = Engine(host=said(0, listed), exec=said(0, listed))
    (check,) = prove(engine)
    assert (check["id"], check["status"]) == ("container.cards", "incomplete")
    assert engine.named("run") == []

"""One host's part in the collectives of several, run for real: two "hosts" on 127.0.0.1 by PyTorch and gloo, and each broken on purpose."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fabric_host, framework_load
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fabric_load as load
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fabric_load_judge as judge
from ansible_collections.gpuwright.node.plugins.module_utils.measure.framework_load_programs import PROGRAMS

#: Seconds within which all ranks import PyTorch, beside others that work on this machine.
TOGETHER = 120


def a_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def group(port: int, first: int, here: int = 1, ranks: int = 2, patience: int = TOGETHER) -> load.Group:
    interface = fabric_host.interface_to(Host(), "127.0.0.1")
    return load.Group("127.0.0.1", port, first, here, ranks, patience, interface)


def joined(*groups: load.Group, seconds: int = 2) -> list[tuple[run.Result, dict[str, Check]]]:
    """Each group's answer and checks; all are begun at the same time."""
    answers: dict[int, run.Result] = {}

    def ask(number: int) -> None:
        answers[number] = load.ask(sys.executable, groups[number], seconds, [])[0]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    facts = fabric_host.look(Host(), "lo", [], fabric_host.memlock())
    found = []
    for number, each in enumerate(groups):
        checked = judge.judge(each, answers[number], load.NO_NETWORK, facts, False)
        found.append((answers[number], {check["id"]: check for check in checked}))
    return found


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Another text in the place of one that the program has."""

    def replace(right: str, wrong: str) -> None:
        assert PROGRAMS["ranks"].count(right) == 1, right
        monkeypatch.setitem(PROGRAMS, "ranks", PROGRAMS["ranks"].replace(right, wrong))

    return replace


def test_two_hosts_with_several_ranks_come_together() -> None:
    port = a_port()
    first, second = joined(group(port, 0, here=2, ranks=3), group(port, 2, ranks=3))
    for answer, found in (first, second):
        assert answer.rc == 0, answer.err
        assert (found["fabric.joined"]["status"], found["fabric.joined"]["measured"]) == ("pass", 3)
    rows = framework_load.collectives_of(framework_load.steps_of(first[0].out))
    assert {(row["kind"], row["backend"], row["ranks"]) for row in rows} == {
        ("all_reduce", "gloo", 3),
        ("all_gather", "gloo", 3),
    }
    assert first[1]["fabric.results"]["status"] == "pass"
    assert float(str(first[1]["fabric.all_reduce"]["measured"])) > 0
    assert second[1]["fabric.results"]["status"] == "skip"
    assert framework_load.collectives_of(framework_load.steps_of(second[0].out)) == []


def test_a_second_host_that_never_comes_is_said() -> None:
    begun = time.monotonic()
    [(_answer, found)] = joined(group(a_port(), 0, patience=5))
    check = found["fabric.joined"]
    assert check["status"] == "fail"
    assert "1/2 clients joined" in str(check["evidence"])
    assert found["fabric.results"]["status"] == "incomplete"
    assert time.monotonic() - begun < TOGETHER


def test_a_port_that_is_refused_is_said() -> None:
    [(_answer, found)] = joined(group(a_port(), 1, patience=5))
    assert found["fabric.joined"]["status"] == "fail"
    assert "was refused" in str(found["fabric.joined"]["remedy"])


def test_a_port_of_somebody_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What listens there is no store: the first host cannot listen, the second is answered by nothing that it understands."""
    # PyTorch waits without an end for the answer of what is no store.
    monkeypatch.setattr(load, "limit", lambda group, seconds: 60.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = int(server.getsockname()[1])
        (_first, found), (_second, other) = joined(group(port, 0, patience=5), group(port, 1, patience=5))
    assert found["fabric.joined"]["status"] == other["fabric.joined"]["status"] == "fail"
    assert "in use" in str(found["fabric.joined"]["evidence"]).lower()


def test_a_host_that_dies_in_the_middle_ends_the_others(broken: Any) -> None:
    broken(
        "def collectives():\n",
        "def collectives():\n    if rank == 1:\n        os.kill(os.getpid(), 9)\n",
    )
    port = a_port()
    begun = time.monotonic()
    (_answer, first), (_other, second) = joined(group(port, 0), group(port, 1))
    assert time.monotonic() - begun < 2 * TOGETHER
    assert (first["fabric.joined"]["status"], first["fabric.joined"]["reason"]) == (
        "fail",
        "the group broke while it was measured",
    )
    assert "rank 1 was killed by signal 9" in str(second["fabric.joined"]["evidence"])
    assert first["fabric.all_reduce"]["status"] == "incomplete"


def test_a_wrong_sum_of_another_host_is_seen(broken: Any) -> None:
    broken("data.copy_(pattern).add_(rank)", "data.copy_(pattern).add_(rank + (rank == 1))")
    port = a_port()
    (_answer, first), _second = joined(group(port, 0), group(port, 1), seconds=1)
    assert first["fabric.results"]["status"] == "fail"
    assert "all_reduce" in str(first["fabric.results"]["reason"])
    assert first["fabric.joined"]["status"] == "pass"


def test_a_hang_ends_at_the_limit(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken("def meet():\n", "def meet():\n    time.sleep(600)\n")
    monkeypatch.setattr(load, "limit", lambda group, seconds: 40.0)
    port = a_port()
    begun = time.monotonic()
    found = joined(group(port, 0), group(port, 1))
    assert time.monotonic() - begun < 60
    assert ["did not answer within 40 s" in str(each["fabric.joined"]["evidence"]) for _answer, each in found] == [
        True,
        True,
    ]


def processes_with(text: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_the_ranks_end_with_the_module() -> None:
    port = a_port()
    mark = f"tcp://127.0.0.1:{port}"
    program = f"""
from {load.__name__} import Group, ask
import sys
ask(sys.executable, Group("127.0.0.1", int(sys.argv[1]), 0, 2, 3, 300, "lo"), 1, [])
"""
    child = subprocess.Popen([sys.executable, "-c", program, str(port)])
    deadline = time.monotonic() + 60
    while len(processes_with(mark)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    # What starts the ranks, and two of them.
    assert len(processes_with(mark)) == 3
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + 10
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_with(mark) == []

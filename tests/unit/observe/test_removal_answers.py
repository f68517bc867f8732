"""The module removal_answers: what a node says before a removal, and what it does not."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import (
    dnf_exactly,
    dnf_python,
    removal_answers,
    sources,
)
from ansible_collections.gpuwright.node.plugins.modules import removal_answers as module
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from tests.unit.modules import run_module
from tests.unit.observe.trees import FakePrograms, Tree, answer

SOURCES = "/etc/apt/sources.list"
JAMMY, NOBLE = "deb http://archive.ubuntu.com jammy main\n", "deb http://archive.ubuntu.com noble main\n"


def test_a_program_that_fails_or_hangs_says_so_and_is_no_failure() -> None:
    late = Result(None, "", "", 120.0, "docker did not answer within 120 s")
    silent = answer("", 1, "no daemon\n")
    programs = FakePrograms({"docker ps": answer("a\nb\n"), "docker image": silent, "docker volume": late})
    host = Host(runner=programs)
    commands = (["docker", "ps"], ["docker", "image"], ["docker", "volume"])
    found = [removal_answers.asked(host, command) for command in commands]
    assert [(each["rc"], each["stdout_lines"]) for each in found] == [(0, ["a", "b"]), (1, []), (None, [])]
    assert [each["error"] for each in found] == [None, "no daemon", late.error]


def test_an_answer_without_an_end_is_none() -> None:
    found = removal_answers.asked(Host(runner=FakePrograms({"find /": answer("x\n" * 21_000)})), ["find", "/"])
    assert (found["rc"], len(found["stdout_lines"])) == (None, 20_000)


def test_a_link_that_leads_nowhere_is_there(tree: Tree) -> None:
    tree.link("/var/lib/docker", "/srv/gone")
    host = tree.host()
    assert removal_answers.looked(host, "/var/lib/docker")["stat"]["exists"]
    assert not removal_answers.looked(host, "/var/lib/containerd")["stat"]["exists"]


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        ({"installed": [], "removed": ["a"]}, {"others": [], "untried": None}),
        ({"refused": "others", "others": ["b"]}, {"others": ["b"], "untried": None}),
        ({"refused": "no way", "others": []}, {"others": [], "untried": "no way"}),
        ({"failed": "the rpmdb is broken"}, {"others": [], "untried": "the rpmdb is broken"}),
    ],
)
def test_dnf_tries_a_removal(outcome: Any, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def carry_out(given: Any, *_others: object) -> Any:
        asked.append(given)
        return outcome

    monkeypatch.setattr(dnf_python, "carry_out", carry_out)
    assert removal_answers.trial(["a"]) == found
    assert [(each["remove"], each["trial"]) for each in asked] == [(["a"], True)]
    needed = set(re.findall(r'given\["(\w+)"\]', inspect.getsource(dnf_exactly)))
    assert needed
    assert needed <= asked[0].keys(), "the program that dnf's Python runs reads more"
    assert removal_answers.trial([]) == {"others": [], "untried": None}
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("today", "now"),
    [
        (None, "absent"),
        (JAMMY, "same"),
        (sources.DISABLED + JAMMY, "left"),
        (NOBLE, "other"),
        (NOBLE + sources.DISABLED + JAMMY, "marked"),
    ],
)
def test_a_file_that_was_put_aside_is_compared_with_todays(tree: Tree, today: str | None, now: str) -> None:
    tree.file(paths.BACKUP + SOURCES, JAMMY)
    if today is not None:
        tree.file(SOURCES, today)
    assert removal_answers.aside(tree.host()) == [{"path": paths.BACKUP + SOURCES, "now": now}]


def test_what_is_no_file_today_is_somebody_elses(tree: Tree) -> None:
    tree.file(paths.BACKUP + SOURCES, JAMMY)
    tree.directory(SOURCES)
    assert [each["now"] for each in removal_answers.aside(tree.host())] == ["other"]


def test_lines_that_were_put_out_of_force_count_again_whatever_was_written_since() -> None:
    left = sources._disabled(b"deb http://a x main\ndeb http://b y main\n", ["http://a"])
    assert sources.restored(left + b"# mine\n") == b"deb http://a x main\ndeb http://b y main\n# mine\n"


def test_the_whole_answer_passes_the_gate(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "Host", lambda timeout: tree.host(FakePrograms({"ls x": answer("a\n")}), timeout=timeout)
    )
    tree.file(paths.BACKUP + SOURCES, JAMMY)
    found = run_module(module, commands=[["ls", "x"]], there=["/etc"])
    assert json.loads(gate.admit("removal_answers", json.dumps(found))) == found

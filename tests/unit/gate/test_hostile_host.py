"""A hostile host among honest ones in one run of Ansible: its answers are made by somebody else's Python.

The hosts are this machine, looked at as a small tree. The hostile one's interpreter throws away what it is asked and prints an answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory
from tests.unit.gate import honest
from tests.unit.observe.trees import Tree

ROOT = Path(__file__).parents[3]
PROGRAM = Path(sys.executable).parent / "ansible-playbook"
#: Hosts that have nothing to hide, before and after the hostile one.
HONEST = ("a", "z")
SENTENCE = "answered node_facts as no node of gpuwright answers"


@dataclass
class Place:
    """A run's files, and what must not be touched or read."""

    path: Path
    #: Plays after the first.
    then: Sequence[dict[str, Any]] = ()

    @property
    def canary(self) -> Path:
        """Is made by a template that runs on the controller."""
        return self.path / "canary"

    @property
    def secret(self) -> Path:
        """A file of the controller that a host would like to read."""
        return self.path / "secret.yml"

    def play(
        self,
        tasks: list[dict[str, Any]],
        answers: dict[str, bytes],
        *,
        to_ansibles: bytes | None = None,
        waits: str = "0",
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run tasks on the honest hosts, and on those that answer every module in the same way, after some seconds; Ansible's own ones in
        another, if given.
        """
        hosts = {name: {"ansible_python_interpreter": sys.executable} for name in HONEST}
        other = self.path / "to_ansibles.answer"
        for name, said in answers.items():
            answer, python = self.path / f"{name}.answer", self.path / f"{name}.python"
            answer.write_bytes(said)
            other.write_bytes(said if to_ansibles is None else to_ansibles)
            python.write_text(
                f"#!/bin/sh\nsleep {waits}\n"
                f"if [ $(grep -a -c 'ansible[.]modules[.]') -gt 0 ]; then cat {other}; else cat {answer}; fi\n"
            )
            python.chmod(0o755)
            hosts[name] = {"ansible_python_interpreter": str(python)}
        given = {
            "ansible_connection": "local",
            "ansible_pipelining": True,
            "gpuwright_root": str(self.path / "tree"),
            "gpuwright_run_dir": str(self.path / "run"),
        }
        inventory, book = self.path / "hosts.yml", self.path / "book.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": given}}))
        book.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}, *self.then]))
        set_ = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            "ANSIBLE_NOCOLOR": "1",
            **environment,
        }
        command = [str(PROGRAM), "-i", str(inventory), str(book), "-v"]
        return subprocess.run(command, env=set_, capture_output=True, text=True, check=False, timeout=300)


def place_at(path: Path) -> Place:
    tree = Tree(path / "tree")
    tree.file("/etc/os-release", "ID=debian\nVERSION_ID=13\n")
    tree.file("/var/lib/dpkg/status", "")
    made = Place(path)
    made.secret.write_text("secret: sesame\n")
    return made


def evil(path: str, value: Any) -> bytes:
    """An honest host's answer with one value that is not."""
    facts = honest.provisioned()
    *places, last = path.split(".")
    inner = facts
    for each in places:
        inner = inner[each]
    inner[last] = value
    return honest.said(facts).encode()


def more(key: str, value: Any) -> bytes:
    """An honest host's answer, and something on which Ansible itself would act."""
    return honest.said(honest.bare(), **{key: value}).encode()


#: What the hostile hosts answer, by their names, and what is said of it.
ANSWERS: dict[str, tuple[Callable[[Place], bytes], str]] = {
    "traversal": (lambda place: evil("os.family", f"../../../..{place.secret}"), "facts.os.family is '../../../.."),
    "template": (lambda place: evil("os.family", touch(place)), 'facts.os.family is "{{ lookup('),
    "table": (lambda place: evil("packages.manager", str(place.secret)), "facts.packages.manager is '/"),
    "escape": (lambda _place: evil("kernel.running", "6.1\x1b[2J"), "facts.kernel.running is '6.1"),
    "seal": (lambda place: evil("seals", {f"../..{place.secret}": honest.seal()}), "facts.seals."),
    "facts": (lambda _place: more("ansible_facts", {"injected": "sesame"}), "ansible_facts is {"),
    "newhost": (lambda _place: more("add_host", {"host_name": "sesame"}), "add_host is {"),
    "newgroup": (lambda _place: more("add_group", "sesame"), "add_group is 'sesame'"),
    "long": (
        lambda _place: b'{"facts": "' + b"x" * gate.MOST_CHARACTERS + b'"}',
        f"at most {gate.MOST_CHARACTERS} are read",
    ),
    "many": (lambda _place: b'{"facts": [' + b"0," * gate.MOST_VALUES + b"0]}", f"at most {gate.MOST_VALUES} are read"),
    "deep": (lambda _place: b'{"facts": ' * 5000 + b"0" + b"}" * 5000, "within each other"),
    "half": (lambda _place: b'{"facts": }', "it is no JSON"),
    # What Ansible takes for blank, or for the end of a line, before an answer.
    "space": (lambda place: "\u3000".encode() + evil("os.family", touch(place)), "it is no JSON"),
    "line": (lambda place: "hello\u2028".encode() + evil("os.family", touch(place)), 'facts.os.family is "{{ lookup('),
}
#: Those whose answer is none at all: Ansible says so.
NONE = {
    "nothing": b"",
    "words": b"\x1b[2Jno Python here",
    "bytes": b"\xff\xfe\x00" * 1000,
    "failure": b'{"failed": true, "msg": "\\u001b[2Jx"}',
    # What becomes an answer where it is shortened.
    "middle": b"x" * gate.MOST_WORDS + b'{"ansible_facts": {"injected": "sesame"}}'.rjust(gate.MOST_WORDS // 2),
}


def touch(place: Place) -> str:
    return f"{{{{ lookup('pipe', 'touch {place.canary}') }}}}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return place_at(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def run(place: Place) -> subprocess.CompletedProcess[str]:
    """One run over all of them: the plan, and the module as a role calls it, each host as far as it comes."""
    answers = {name: make(place) for name, (make, _told) in ANSWERS.items()} | NONE
    answers["text"] = evil("os.name", touch(place))
    tasks: list[dict[str, Any]] = [
        {"gpuwright.node.plan": {}, "ignore_errors": True},
        {"gpuwright.node.node_facts": {}, "register": "seen", "ignore_errors": True},
        {
            "ansible.builtin.debug": {
                "msg": "{{ seen.facts.os.name | default('-') }} {{ injected | default('no fact') }}"
            }
        },
        {
            "ansible.builtin.debug": {"msg": "{{ groups.keys() | join(' ') }}, {{ groups.all | length }}"},
            "run_once": True,
        },
    ]
    return place.play(tasks, answers)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_host_that_breaks_the_rules_fails_with_one_sentence_by_the_plan_and_in_a_role(
    run: subprocess.CompletedProcess[str], name: str
) -> None:
    told = [line for line in run.stderr.splitlines() + run.stdout.splitlines() if f"{name} {SENTENCE}: " in line]
    assert len({line for line in told if line.startswith("[ERROR]")}) == 1
    assert any(ANSWERS[name][1] in line for line in told), told
    assert sum(line.startswith(f"fatal: [{name}]") for line in told) == 2  # the plan, the task


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_answer_fails_its_host_too(run: subprocess.CompletedProcess[str], name: str) -> None:
    assert run.stdout.count(f"fatal: [{name}]: FAILED!") == 2


def looked_at(place: Place, name: str, kind: str) -> dict[str, Any]:
    path = run_directory.document(place.path / "run" / kind, name)
    assert path is not None
    return run_directory.read_json(path) or {}


def met(place: Place) -> list[str]:
    """Hosts whose answer was taken in."""
    return [run_directory.host_of(path) for path in run_directory.documents(place.path / "run/facts")]


def test_the_others_go_on(run: subprocess.CompletedProcess[str], place: Place) -> None:
    for name in HONEST:
        assert f"fatal: [{name}]" not in run.stdout
        assert looked_at(place, name, "plans")["host"] == name
    assert met(place) == sorted([*HONEST, "text"])


def test_nothing_of_the_controller_was_run_or_read(run: subprocess.CompletedProcess[str], place: Place) -> None:
    shown = run.stdout + run.stderr
    assert not place.canary.exists()
    assert "secret: sesame" not in shown
    assert "{{ lookup('pipe'" in shown, "a template in free text is text"
    hosts = len(HONEST) + len(ANSWERS) + len(NONE) + 1
    assert f'"msg": "all ungrouped, {hosts}"' in shown, "no host and no group was added"
    assert 'sesame"\n' not in shown, "no variable was set"


def test_nothing_of_a_host_acts_on_the_terminal_and_no_traceback_is_shown(
    run: subprocess.CompletedProcess[str],
) -> None:
    shown = run.stdout + run.stderr
    assert "Traceback" not in shown
    assert all(line.replace("\t", "").isprintable() for line in shown.split("\n"))


def test_a_huge_answer_is_not_read(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    huge = honest.said(honest.bare(unknown={str(number): "x" * 100 for number in range(400_000)})).encode()
    assert len(huge) > 40 * 1024**2
    run = place.play([{"gpuwright.node.plan": {}}], {"evil": huge})
    assert f"evil {SENTENCE}: {len(huge)} characters, at most {gate.MOST_CHARACTERS} are read" in run.stdout
    assert met(place) == sorted(HONEST)


def test_a_module_that_would_answer_past_the_gate_is_refused(tmp_path: Path) -> None:
    run = place_at(tmp_path).play([{"gpuwright.node.node_facts": {}, "async": 30, "poll": 1}], {})
    assert run.stdout.count("does not support async") >= len(HONEST)


# --- answers of Ansible's own modules ---------------------------------------------------------------------------------


#: A host before all others, so that what is done once for all of them is done on it.
FIRST = "0"


def variables_of_ours(place: Place) -> dict[str, Any]:
    return {
        "nvidia_driver_source": "runfile",
        "nvidia_driver_runfile": str(place.secret),
        "gpuwright_run_dir": str(place.path / "elsewhere"),
        "gpuwright_local": True,
        "gpuwright_resume": {"program": {"package": "/etc"}},
    }


def attacked(place: Place, **environment: str) -> subprocess.CompletedProcess[str]:
    """A play of somebody's own, which has Ansible's modules answer before ours."""
    answer = json.dumps({"changed": True, "rc": 0, "stdout": "", "ansible_facts": variables_of_ours(place)}).encode()
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.command": "true"},
        {"gpuwright.node.report": {"state": "open"}, "run_once": True},
        {"gpuwright.node.plan": {}, "ignore_errors": True},
    ]
    return place.play(tasks, {FIRST: honest.said(honest.bare()).encode()}, to_ansibles=answer, **environment)


def test_what_a_module_of_ansibles_answers_is_no_variable_of_ours(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    run = attacked(place)
    names = ", ".join(sorted(variables_of_ours(place)))
    assert f"Found {names} of {FIRST} set by an answer" in run.stdout
    assert met(place) == sorted(HONEST)
    assert not (place.path / "elsewhere").exists()


def test_where_no_fact_is_a_variable_such_a_host_is_looked_at_as_its_inventory_says(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    run = attacked(place, ANSIBLE_INJECT_FACT_VARS="False")
    assert "set by an answer" not in run.stdout
    assert met(place) == [FIRST, *sorted(HONEST)]
    # A driver of a file is not looked for in an index.
    assert f"{FIRST} answered package_index" in run.stdout
    assert not (place.path / "elsewhere").exists()


@pytest.mark.parametrize(
    "answered", [{"monitoring_address": "192.0.2.66", "monitoring_gpu_port": 1234}, {"monitoring_gpu_port": "xx"}]
)
def test_what_a_node_answers_is_no_target_and_no_fault_in_the_plan_of_a_server_of_metrics(
    tmp_path: Path, answered: dict[str, Any]
) -> None:
    place = place_at(tmp_path)
    Tree(tmp_path / "tree").file("/lib64/ld-linux-x86-64.so.2", "")  # tells the architecture
    for of, variables in {
        "group_vars/all": {"gpuwright_want": ["monitoring=smi"], "monitoring_address": "0.0.0.0"},  # noqa: S104
        "host_vars/a": {"gpuwright_want": ["monitoring-server"]},
    }.items():
        path = tmp_path / f"{of}.yml"
        path.parent.mkdir()
        path.write_text(yaml.safe_dump(variables))
    answer = json.dumps({"changed": True, "rc": 0, "stdout": "", "ansible_facts": answered}).encode()
    tasks: list[dict[str, Any]] = [{"ansible.builtin.command": "true"}, {"gpuwright.node.plan": {}}]
    run = place.play(tasks, {FIRST: honest.said(honest.bare()).encode()}, to_ansibles=answer)
    assert f"of {FIRST} set by an answer" in run.stdout
    targets = looked_at(place, "a", "plans")["stack"]["monitoring_server"]["targets"]
    assert {each["address"] for each in targets if each["host"] != FIRST} == {"z:9400", "z:9100"}
    assert {each["address"] for each in targets if each["host"] == FIRST} <= {f"{FIRST}:9400", f"{FIRST}:9100"}


def test_what_a_node_answers_makes_no_waves_of_a_proof(tmp_path: Path) -> None:
    (_observe, prove) = yaml.safe_load((ROOT / "playbooks/validate.yml").read_text())
    answer = json.dumps({"changed": True, "rc": 0, "stdout": "", "ansible_facts": {"gpuwright_serial": "xx"}}).encode()
    then = [
        {"import_playbook": str(ROOT / "playbooks/observe.yml"), "vars": {"gpuwright_verb": "doctor"}},
        {**prove, "become": False, "tasks": [{"ansible.builtin.debug": {"msg": "went on"}}]},
    ]
    bare = honest.said(honest.bare()).encode()
    tasks: list[dict[str, Any]] = [{"ansible.builtin.command": "true"}]
    place = place_at(tmp_path)
    place.then = then
    run = place.play(tasks, {FIRST: bare}, to_ansibles=answer, ANSIBLE_BECOME="False")
    assert f"Found gpuwright_serial of {FIRST} set by an answer" in run.stdout
    assert run.stdout.count("went on") == len(HONEST), run.stdout[-3000:]


def test_a_host_that_says_nothing_is_unreachable_and_the_others_are_planned(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    silent = {"gpuwright.node.plan": {}, "vars": {"gpuwright_answer_timeout": 20}}
    run = place.play([silent, {"ansible.builtin.debug": {"msg": "went on"}}], {"silent": b""}, waits="600")
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("fatal: [silent]")]
    assert line.startswith("fatal: [silent]: UNREACHABLE!")
    assert "silent gave no answer to node_facts within 20 seconds" in line
    assert met(place) == sorted(HONEST)
    assert run.stdout.count("went on") == len(HONEST)


def test_a_limit_that_is_no_number_is_told_in_a_sentence(tmp_path: Path) -> None:
    wrong = {"gpuwright.node.node_facts": {}, "vars": {"gpuwright_answer_timeout": "soon"}}
    run = place_at(tmp_path).play([wrong], {})
    told = [
        line for line in run.stdout.splitlines() if "gpuwright_answer_timeout has to be a whole number from 1" in line
    ]
    assert {line[: len("fatal: [a]")] for line in told if line.startswith("fatal:")} == {
        f"fatal: [{name}]" for name in HONEST
    }

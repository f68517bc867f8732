"""The actions around an environment: judged on the controller, and pip's users and passwords taken from the mirrors' variables."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpuwright.node.plugins.action import environment_info, wheels
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import watching
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions.node_action import NodeAction
from tests.unit.roles.test_environments import nothing, seen

GIVEN = {"path": "/opt/gpuwright/pytorch", "interpreter": "3.12", "requirements": ["torch==2.14.1+cu130"]}


def run(
    monkeypatch: pytest.MonkeyPatch, module: Any, given: Any, answer: Any, *, check: bool = False, **variables: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an action returns where its module answers so, and what the module was asked."""
    asked: dict[str, Any] = {}

    def ask(_self: Any, name: str, arguments: Any, _variables: Any) -> Any:
        asked.update(arguments, module=name)
        return answer

    monkeypatch.setattr(NodeAction, "ask", ask)
    monkeypatch.setattr(ActionBase, "run", lambda *_, **__: {})
    action = module.ActionModule.__new__(module.ActionModule)
    name = module.__name__.rpartition(".")[2]
    action._task = SimpleNamespace(args=dict(given), action=f"gpuwright.node.{name}", check_mode=check)
    action._templar = SimpleNamespace(template=lambda value: value)
    return action.run(None, variables), asked


@pytest.mark.parametrize("check", [False, True])
def test_an_environment_that_is_right_is_no_change(monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    answer = {"changed": False, "environment": seen()}
    result, asked = run(monkeypatch, environment_info, GIVEN, answer, check=check)
    assert (result["action"], result["changed"]) == ("none", False)
    assert asked == {**GIVEN, "module": "environment_info"}


def test_in_check_mode_what_would_be_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"changed": False, "environment": nothing()}
    result, _ = run(monkeypatch, environment_info, GIVEN, answer, check=True)
    assert (result["changed"], result["msg"]) == (True, "Would install torch==2.14.1+cu130 into /opt/gpuwright/pytorch")
    result, _ = run(monkeypatch, environment_info, GIVEN, answer)
    assert result["changed"] is False


def test_after_an_installation_what_is_missing_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"changed": False, "environment": seen(packages={})}
    with pytest.raises(AnsibleActionFail, match=r"Found after pip said it was done"):
        run(monkeypatch, environment_info, {**GIVEN, "installed": True}, answer)


def test_a_module_that_failed_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"failed": True, "msg": "so"}
    assert run(monkeypatch, environment_info, GIVEN, answer)[0] == answer


def test_pip_gets_the_users_and_passwords_of_its_indexes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    mirrors = {"pytorch": "https://me:secret@own.example/whl", "pypi": "https://you:other@pypi.example/simple"}
    given = {"environment": "/x", "requirements": [], "index_url": "https://own.example/whl/cu130"}
    _, asked = run(monkeypatch, wheels, given, {}, gpuwright_mirrors=mirrors)
    (access,) = asked["credentials"]
    assert (access["login"], access["password"]) == ("me", "secret")
    wished = {"gpuwright_mirrors": {"pytorch": "https://first:one@own.example/whl"}}
    _, asked = run(monkeypatch, wheels, given, {}, gpuwright_mirrors=mirrors, gpuwright_wish=wished)
    assert asked["credentials"][0]["login"] == "first"
    _, asked = run(monkeypatch, wheels, {**given, "credentials": []}, {}, gpuwright_mirrors=mirrors)
    assert asked["credentials"] == []


# --- how far it is ------------------------------------------------------------------------------------------------------


class Connection:
    """What an action has to a node: with a way to root that keeps what it was asked last, as Ansible's own."""

    def __init__(self) -> None:
        self.become = SimpleNamespace()

    def set_become_plugin(self, become: Any) -> None:
        self.become = become


def watch(monkeypatch: pytest.MonkeyPatch, said: str, run_dir: Path | None, end: Any = None) -> list[str]:
    """The commands that are run beside the module on a node whose file has these words."""
    asked: list[str] = []
    main = Connection()

    def command(self: Any, words: str) -> dict[str, str]:
        assert self._connection is not main
        assert self._connection.become is not main.become
        asked.append(words)
        return {"stdout": said}

    def ask(_self: Any, _name: str, _arguments: Any, _variables: Any) -> Any:
        patience = time.monotonic() + 5
        while run_dir and len(asked) < 3 and time.monotonic() < patience:
            time.sleep(0.01)
        return end() if end else {}

    monkeypatch.setattr(watching, "SECONDS", 0.01)
    monkeypatch.setattr(NodeAction, "ask", ask)
    monkeypatch.setattr(ActionBase, "run", lambda *_, **__: {})
    # The thread that asks may ask once more when the test is over, and patches are gone: it keeps a class of its own.
    kind: Any = type("Watched", (wheels.ActionModule,), {"_low_level_execute_command": command})
    action = kind.__new__(kind)
    given = {"environment": "/opt/gpu wright/.x/2", "requirements": [], "uv": {"directory": ".uv"}}
    action._task = SimpleNamespace(args=given, action="gpuwright.node.wheels", check_mode=False)
    action._templar = SimpleNamespace(template=lambda value: value)
    action._connection = main
    variables = {"inventory_hostname": "gpu01", **({"gpuwright_run_dir": str(run_dir)} if run_dir else {})}
    action.run(None, variables)
    return asked


def documents(monkeypatch: pytest.MonkeyPatch, said: str, run_dir: Path) -> set[str]:
    """What the run's directory has while the module runs."""
    seen: set[str] = set()

    def end() -> dict[str, Any]:
        seen.update(path.read_text() for path in run_dir.glob("progress/gpu01.json"))
        return {}

    watch(monkeypatch, said, run_dir, end)
    return seen


def test_how_far_a_node_is_lies_in_the_runs_directory_for_as_long_as_the_module_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert documents(monkeypatch, "12 34\n", tmp_path) == {'{"done":12,"total":34}\n'}
    assert not list(tmp_path.glob("progress/*"))
    assert set(watch(monkeypatch, "12 34\n", tmp_path)) == {"cat '/opt/gpu wright/.x/.uv/progress'"}


@pytest.mark.parametrize("said", ["", "12 34", "12 -4\n", '{"done": 1}\n', "1 2\n3 4\n", "9" * 16 + " 1\n", "٣ 4\n"])
def test_what_a_node_says_otherwise_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str) -> None:
    assert documents(monkeypatch, said, tmp_path) == set()


def test_a_node_that_fails_leaves_nothing_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail() -> None:
        raise AnsibleActionFail("the node is gone")

    with pytest.raises(AnsibleActionFail):
        watch(monkeypatch, "12 34\n", tmp_path, fail)
    assert not list(tmp_path.glob("progress/*"))


def test_without_a_runs_directory_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, "12 34\n", None) == []


# --- the node is held meanwhile -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "variables", "owner"),
    [
        ("package_call", {"gpuwright_standalone": False, "gpuwright_plan": {"owner": "a@one:1"}}, "a@one:1"),
        ("wheels", {"gpuwright_standalone": "false", "gpuwright_plan": {"owner": "a@one:1"}}, "a@one:1"),
        ("wheels", {"gpuwright_plan": {"owner": "a@one:1"}}, None),  # a role used alone has given the node back
        ("wheels", {"gpuwright_standalone": False}, None),
        ("node_facts", {"gpuwright_standalone": False, "gpuwright_plan": {"owner": "a@one:1"}}, None),
    ],
)
def test_what_may_take_hours_is_told_the_run_that_has_the_node(
    monkeypatch: pytest.MonkeyPatch, module: str, variables: dict[str, Any], owner: str | None
) -> None:
    action = wheels.ActionModule.__new__(wheels.ActionModule)
    action._templar = SimpleNamespace(template=lambda value: value)
    asked: list[Any] = []

    def execute(_self: Any, **given: Any) -> dict[str, Any]:
        asked.append(given["module_args"])
        return {}

    monkeypatch.setattr(NodeAction, "_execute_module", execute)
    action.ask(module, {"names": ["a"]}, variables)
    assert asked == [{"names": ["a"], **({"owner": owner} if owner else {})}]

"""The actions around an environment: judged on the controller, and pip's users and passwords taken from the mirrors' variables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpuwright.node.plugins.action import environment_info, wheels
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

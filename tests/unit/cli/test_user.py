"""--user: no way to root is looked for, and what speaks of root or of other machines is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpuwright import privilege, request, resume
from gpuwright.parser import parse
from gpuwright.privilege import Privilege, World
from tests.unit.cli.conftest import FakeAnsible, plan_record, world_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERBS = ("up", "plan", "validate", "doctor", "upgrade", "rollback", "remove", "status")


@pytest.fixture
def alice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose sudo must not be asked."""

    def asked() -> bool:
        raise AssertionError("sudo was asked")

    world = World(euid=lambda: 1000, sudo_is_free=asked, ask_secret=lambda _text: pytest.fail("a password"))
    monkeypatch.setattr(privilege, "World", lambda: world)


@pytest.mark.parametrize("verb", VERBS)
def test_every_host_verb_takes_it_and_becomes_nobody_else(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, alice: None, verb: str
) -> None:
    ansible.plans = {"localhost": plan_record("localhost", status={"state": "ok"})}
    gpuwright(verb, "--user", "--yes")
    (wanted,) = ansible.requests
    assert (wanted.extra_vars["gpuwright_user"], wanted.extra_vars["ansible_become"]) == (True, False)
    assert wanted.become_password is None


def test_it_is_said_to_nobody_that_root_would_see_more(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, alice: None
) -> None:
    ansible.plans = {"localhost": plan_record("localhost")}
    assert "not root" not in gpuwright("plan", "--user").err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("up", "--user", "-i", "a,"), "gpuwright_user: true and ansible_become: false"),
        (("up", "--user", "-K"), "-K asks for its password"),
        (("upgrade", "--user", "--security"), "--security is about the driver and its packages"),
        (("up", "--allow-source", "antlr4"), "--allow-source has code of others run with the run"),
    ],
)
def test_what_does_not_go_with_it_is_bad_input(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, alice: None, words: tuple[str, ...], told: str
) -> None:
    done = gpuwright(*words)
    assert (done.code, ansible.requests) == (2, [])
    assert told in done.err


def test_root_has_no_environments_of_one_user(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = world_of(0)
    monkeypatch.setattr(privilege, "World", lambda: root)
    done = gpuwright("up", "--user", "--json")
    assert (done.code, ansible.requests) == (3, [])
    assert done.json["conflicts"][0]["rule"] == "privilege.user"


def test_who_may_not_become_root_is_told_of_it(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = world_of(1000)
    monkeypatch.setattr(privilege, "World", lambda: user)
    assert "without root: --user" in gpuwright("up").err
    assert not ansible.requests


def test_nothing_goes_on_after_a_boot(tmp_path: Path) -> None:
    args = parse(["up", "--user"])
    nobody = Privilege(become=False, privileged=False)
    wanted = request.build(args, run_dir=tmp_path, playbook="site", privilege=nobody, wish={})
    assert resume.prepare(args, wanted, {}) is None

"""What a user keeps who works without root: records and environments in the home, and nothing of root's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership, paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import jupyter_kernels, machine, python_envs
from ansible_collections.gpuwright.node.plugins.module_utils.records import history, seals
from ansible_collections.gpuwright.node.plugins.modules import node_seal
from tests.unit.modules import run_module

SEALS = {"frameworks": {"digest": "d", "stack": [], "gpus": [], "manages": {"environments": []}}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and the variables of a session that names no other places."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def environment(path: Path) -> Path:
    """An environment with our mark, closed to others as all in the home."""
    (path / "bin").mkdir(parents=True, mode=0o700)
    (path / "bin/python").symlink_to("/bin/sh")
    (path / "pyvenv.cfg").write_text("version = 3.13.5\n")
    (path / paths.ENVIRONMENT_MARK).write_text("")
    return path


def test_the_places_are_in_the_home_unless_the_session_names_others(home: Path) -> None:
    found = paths.of_user({})
    assert found.environments == f"{home}/.local/share/gpuwright"
    assert found.seals == f"{home}/.local/state/gpuwright/node/seals"
    assert found.lock == f"{home}/.local/state/gpuwright/at-work/lock.json"
    named = paths.of_user({"XDG_STATE_HOME": "/data/alice/state/", "XDG_DATA_HOME": "/data/alice/share"})
    assert (named.proof, named.environments) == (
        "/data/alice/state/gpuwright/node/proof.json",
        "/data/alice/share/gpuwright",
    )
    assert paths.of_user({"XDG_DATA_HOME": "share"}) == found


def test_the_look_at_a_users_own_finds_the_users_environments_and_seals(home: Path) -> None:
    places = paths.of_user()
    made = environment(Path(places.environments, "pytorch"))
    host = Host(places=places)
    assert host.of_user
    assert not Host().of_user
    found = python_envs.environments(host, [])
    assert found.keys() == {str(made)}
    assert found[str(made)]["damage"] == [], "others need not enter"
    assert seals.read_all(host) == {}


def test_a_kernel_where_all_users_are_is_none_of_a_users(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jupyter_kernels, "DIRECTORY", str(home / "kernels"))
    kernel = home / "kernels/gpuwright-pytorch/kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("{}")
    made = str(environment(Path(paths.of_user().environments, "pytorch")))
    assert "kernel" in python_envs.environments(Host(), [made])[made]
    assert "kernel" not in python_envs.environments(Host(places=paths.of_user()), [made])[made]


def test_who_it_is_and_where_is_told_only_of_a_users_look(home: Path) -> None:
    facts: Any = machine.answer({"user": True})["facts"]
    assert facts["user"]["environments"] == f"{home}/.local/share/gpuwright"
    assert facts["user"]["obstacle"] is None
    assert "user" not in facts["unknown"]


def test_a_place_that_is_not_the_users_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    assert "which everybody may write" in str(machine._obstacle(str(home / "open/envs")))
    assert machine._obstacle("envs") == "envs is no absolute path"
    (home / "file").touch()
    assert machine._obstacle(str(home / "file/envs")) == f"{home}/file is no directory"
    monkeypatch.setattr("os.access", lambda path, _mode: path != str(home))
    assert machine._obstacle(str(home / "envs")) == f"{home} is not yours to write to"
    assert ownership.trusted(0) == (0,)
    assert ownership.trusted(1000) == (0, 1000)


def test_a_users_run_keeps_its_records_in_the_home_and_no_history_of_packages(home: Path) -> None:
    places = paths.of_user()
    begun = run_module(node_seal, state="begun", seals=SEALS, owner="alice@here:1", user=True)
    assert begun["written"] == [places.lock, f"{places.seals}/frameworks.json"]
    assert json.loads(Path(places.seals, "frameworks.json").read_text())["begun"]
    run_module(node_seal, state="sealed", seals=SEALS, user=True)
    proof = {"verdict": "pass", "driver": "580.178.04"}
    assert run_module(node_seal, state="proven", proof=proof, user=True)["written"] == [places.proof]
    released = run_module(node_seal, state="released", owner="alice@here:1", user=True, failed=True)
    assert released["removed"] == [places.lock]
    assert not Path(places.history).exists()
    assert Path(places.state).stat().st_mode & 0o077 == 0o055, "made as any directory; what is in it is closed"
    assert Path(places.seals).stat().st_mode & 0o077 == 0


def test_two_runs_of_one_user_do_not_work_at_once(home: Path) -> None:
    run_module(node_seal, state="begun", seals=SEALS, owner="alice@here:1", user=True)
    other = run_module(node_seal, state="begun", seals=SEALS, owner="alice@here:2", user=True)
    assert paths.of_user().lock in other["msg"]


def test_removed_takes_all_records_of_the_user_and_nothing_beside_them(home: Path) -> None:
    run_module(node_seal, state="begun", seals=SEALS, owner="alice@here:1", user=True)
    runs = home / ".local/state/gpuwright/runs"
    runs.mkdir()
    run_module(node_seal, state="removed", user=True)
    assert sorted(path.name for path in runs.parent.iterdir()) == ["runs"]


def test_what_a_user_made_for_an_earlier_wish_is_taken_back_too(home: Path) -> None:
    places = paths.of_user()
    made = [environment(Path(places.environments, name)) for name in ("jax", "pytorch")]
    Path(places.environments, "mine").mkdir()
    found: Any = history.observe(Host(places=places), full=True)
    assert found["environments"] == [str(path) for path in made]
    assert (found["files"], found["brought"], found["copies"], found["services"]) == ([], [], [], [])

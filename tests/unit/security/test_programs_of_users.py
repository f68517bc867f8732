"""What root runs and reads on a node where users have directories, programs and files of their own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework
from ansible_collections.gpuwright.node.plugins.module_utils.packages import dnf_python
from ansible_collections.gpuwright.node.plugins.modules import framework_check
from gpuwright import request
from tests.unit.modules import run_module

MALLORY = 4711
OWNERS = (0, os.geteuid())


@pytest.fixture
def to_mallory(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Make a path look as if it belonged to somebody else."""
    taken: set[str] = set()
    real = os.lstat

    def lstat(path: str | Path) -> os.stat_result:
        found = real(path)
        return os.stat_result((*found[:4], MALLORY, *found[5:])) if str(path) in taken else found

    def give(path: Path) -> Path:
        taken.add(str(path))
        return path

    monkeypatch.setattr(os, "lstat", lstat)
    return give


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment whose interpreter leaves a trace when it is run."""
    folder = tmp_path / "envs/pytorch"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "pyvenv.cfg").touch()
    (folder / "lib/torch.py").touch()
    (folder / "bin/python").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (folder / "bin/python").chmod(0o755)
    return folder


def test_root_runs_no_interpreter_that_a_user_may_change(
    environment: Path, tmp_path: Path, to_mallory: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    to_mallory(environment.parent)
    answer = run_module(framework_check, python=str(environment / "bin/python"))
    assert not (tmp_path / "ran").exists()
    (check,) = answer["checks"]
    assert (check["id"], check["status"], answer["verdict"]) == ("framework.import", "incomplete", "incomplete")
    assert check["remedy"]


@pytest.mark.parametrize("name", ["bin/python", "lib/torch.py", "lib", "pyvenv.cfg", "."])
def test_everything_in_an_environment_is_its_program(
    environment: Path, to_mallory: Callable[[Path], Path], name: str
) -> None:
    python = str(environment / "bin/python")
    assert framework.of_others(python, OWNERS) is None
    to_mallory(environment / name)
    check = framework.of_others(python, OWNERS)
    assert check is not None
    assert f"belongs to user {MALLORY}" in str(check["reason"])


def test_an_ordinary_user_may_prove_an_environment_of_their_own(
    environment: Path, tmp_path: Path, to_mallory: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: MALLORY)
    to_mallory(environment)
    run_module(framework_check, python=str(environment / "bin/python"))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(("euid", "found"), [(0, False), (1000, True)])
def test_root_looks_for_programs_in_the_systems_directories_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, euid: int, found: bool
) -> None:
    (tmp_path / "modprobe-of-mallory").write_text("#!/bin/sh\n")
    (tmp_path / "modprobe-of-mallory").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    assert run.run(["modprobe-of-mallory"]).ok is found


@pytest.mark.parametrize(("euid", "found"), [(0, False), (1000, True)])
def test_root_on_its_own_machine_hands_no_directory_of_users_to_ansible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, euid: int, found: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    local = request.Request(verb="up", playbook="site", run_dir=tmp_path)
    given = request.environment(local, {"PATH": "/home/mallory/bin:/usr/bin"})["PATH"]
    assert ("/home/mallory/bin" in given.split(":")) is found


def test_a_transaction_of_dnf_does_not_lie_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(dnf_python, "python_of_dnf", lambda _runner, _timeout: "/usr/bin/python3")
    seen: list[str] = []

    def runner(argv: list[str], **_options: Any) -> run.Result:
        seen.append(argv[-1])
        return run.Result(1, "", "it ends here", 0.0, None)

    assert dnf_python.carry_out({}, 5, runner) == {"failed": "it ends here"}
    assert not seen[0].startswith(str(tmp_path))
    assert not Path(seen[0]).exists()


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_where_a_file_is_read_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "pyvenv.cfg"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    host = Host()
    assert host.read(str(path), "environments.x") is None
    assert "no regular file" in host.unknown_facts["environments.x"]

"""The copy of the program that root runs after a boot: made from what was packed and checked, by a Python of root's."""

from __future__ import annotations

import hashlib
import io
import os
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import gpuwright
from ansible_collections.gpuwright.node.plugins.module_utils.base import paths, program, run
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.records import resume
from ansible_collections.gpuwright.node.plugins.modules import resume_program
from ansible_collections.gpuwright.node.plugins.plugin_utils.actions import installation
from tests.unit.modules import run_module

ROOT = Path(__file__).resolve().parents[3]
OWNERS = (0, os.geteuid())
PACKAGE = Path(gpuwright.__file__).parent


def packed(code: int = 0) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in program.PROGRAMS:
            archive.writestr(name, f"#!/bin/sh\nexit {code}\n")
        archive.writestr("lib/module.py", "")
    return stream.getvalue()


@pytest.fixture
def archive(tmp_path: Path) -> tuple[str, str]:
    """The path of a packed program, and its checksum."""
    path = tmp_path / "archive"
    path.write_bytes(packed())
    return str(path), hashlib.sha256(path.read_bytes()).hexdigest()


def keep(tmp_path: Path, archive: tuple[str, str], interpreter: str = "/usr/bin/python3", **given: Any) -> Path:
    target = tmp_path / "resume/program"
    target.parent.mkdir(exist_ok=True)

    def runner(argv: list[str], **options: Any) -> run.Result:
        if argv[1] == "-IS":
            return run.Result(0, f"{tmp_path}/not-there\n", "", 0.0, None)
        return run.run(argv, **options)

    program.keep(*archive, interpreter, given.pop("places", []), str(target), OWNERS, given.pop("runner", runner))
    return target


def test_the_copy_is_roots_alone_and_takes_the_place_of_an_earlier_one(
    tmp_path: Path, archive: tuple[str, str]
) -> None:
    (tmp_path / "resume/program/old").mkdir(parents=True)
    target = keep(tmp_path, archive)
    assert sorted(path.name for path in target.iterdir()) == ["bin", "gpuwright", "lib"]
    # What was packed may be readable by its maker alone, or a link's content: nobody else reads the copy.
    assert target.stat().st_mode & 0o777 == 0o700
    assert (target / "gpuwright").stat().st_mode & 0o777 == 0o700
    assert [path.name for path in target.parent.iterdir()] == ["program"]


def test_an_archive_that_was_changed_after_it_was_packed_is_not_taken(tmp_path: Path, archive: tuple[str, str]) -> None:
    Path(archive[0]).write_bytes(packed() + b"evil")
    with pytest.raises(program.Refused, match="somebody changed it"):
        keep(tmp_path, archive)
    assert list((tmp_path / "resume").iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_something_else_in_the_archives_place_is_not_read(tmp_path: Path, archive: tuple[str, str], kind: str) -> None:
    path = Path(archive[0])
    path.rename(tmp_path / "kept")
    path.symlink_to(tmp_path / "kept") if kind == "link" else os.mkfifo(path)
    with pytest.raises((program.Refused, OSError)):
        keep(tmp_path, archive)


def test_what_somebody_else_may_write_is_not_run(tmp_path: Path, archive: tuple[str, str]) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin").chmod(0o777)
    (tmp_path / "bin/python3").symlink_to("/usr/bin/python3")
    with pytest.raises(program.Refused, match=r"root would run .*/bin, which everybody may write"):
        keep(tmp_path, archive, str(tmp_path / "bin/python3"))
    with pytest.raises(program.Refused, match=r"root would run .*/bin, which everybody may write"):
        keep(tmp_path, archive, places=[str(tmp_path / "bin")])

    def searches(argv: list[str], **_options: Any) -> run.Result:
        return run.Result(0, f"{tmp_path}/bin\n", "", 0.0, None)

    with pytest.raises(program.Refused, match=r"root would run .*/bin, which everybody may write"):
        keep(tmp_path, archive, runner=searches)
    (tmp_path / "resume").chmod(0o777)
    with pytest.raises(program.Refused, match=r"root would run .*/resume, which everybody may write"):
        keep(tmp_path, archive)


def test_a_copy_that_does_not_run_is_none(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(packed(code=7))
    with pytest.raises(program.Refused):
        keep(tmp_path, (str(path), hashlib.sha256(path.read_bytes()).hexdigest()))
    assert not (tmp_path / "resume/program").exists()


def test_the_module_answers_why_there_is_no_copy_and_does_not_fail(tmp_path: Path, archive: tuple[str, str]) -> None:
    (tmp_path / "resume").mkdir(mode=0o777)
    (tmp_path / "resume").chmod(0o777)
    answer = run_module(
        resume_program,
        archive=archive[0],
        sha256=archive[1],
        interpreter="/usr/bin/python3",
        directory=str(tmp_path / "resume/program"),
    )
    assert answer.get("failed") is not True
    assert "root would run" in answer["refused"]


# --- packing ----------------------------------------------------------------------------------------------------------


def test_the_requirements_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(installation.REQUIREMENTS) == sorted(Requirement(line).name for line in project["dependencies"])


def test_the_whole_program_is_packed_and_starts_isolated(tmp_path: Path) -> None:
    content, places = installation.pack(PACKAGE, "/usr/bin/python3.11", "/var/lib/gpuwright/resume/program")
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        names = set(packed.namelist())
        start = packed.read("gpuwright").decode()
    assert start.startswith("#!/usr/bin/python3.11 -IS\n")
    assert "sys.path.insert(0, '/var/lib/gpuwright/resume/program/lib')" in start
    for name in (
        "bin/ansible-playbook",
        "lib/gpuwright/cli.py",
        "lib/ansible_collections/gpuwright/node/playbooks/site.yml",
        "lib/ansible_collections/gpuwright/node/roles/validate/tasks/main.yml",
        "lib/ansible_collections/gpuwright/node/plugins/plugin_utils/rules/rules.json",
        "lib/ansible/cli/playbook.py",
        "lib/ansible_runner/interface.py",
        "lib/yaml/__init__.py",
    ):
        assert name in names or places, name
    assert not any(name.endswith(".pyc") or ".." in name or name.startswith("/") for name in names)


def test_a_distribution_without_a_list_of_its_files_is_used_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    class Packaged:
        requires: tuple[str, ...] = ()

        def read_text(self, _name: str) -> None:
            return None

        def locate_file(self, _name: str) -> str:
            return "/usr/lib/python3/dist-packages"

    monkeypatch.setattr(metadata, "distribution", lambda _name: Packaged())
    content, places = installation.pack(PACKAGE, "/usr/bin/python3", "/p")
    assert places == ["/usr/lib/python3/dist-packages"]
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        assert "sys.path += ['/usr/lib/python3/dist-packages']" in packed.read("gpuwright").decode()


def test_a_pipe_in_the_installation_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "gpuwright").mkdir()
    os.mkfifo(tmp_path / "gpuwright/module.py")
    with pytest.raises(OSError, match="no regular file"):
        installation.pack(tmp_path / "gpuwright", "/usr/bin/python3", "/p")


# --- called off -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [True, False])
def test_the_copy_goes_with_what_waits_and_not_from_under_what_runs(tmp_path: Path, waits: bool) -> None:
    copy = tmp_path / paths.RESUME_PROGRAM[1:]
    (copy / "lib").mkdir(parents=True)
    if waits:
        unit = tmp_path / resume.UNITS[1:] / resume.UNIT
        unit.parent.mkdir(parents=True)
        unit.touch()
    gone = resume.drop(Host(root=str(tmp_path)), check=False)
    assert (paths.RESUME_PROGRAM in gone) is waits
    assert copy.exists() is not waits


def test_the_names_are_those_of_the_command_line() -> None:
    from gpuwright import resume as command_line

    assert str(command_line.PROGRAM) == paths.RESUME_PROGRAM
    assert set(installation.PROGRAMS) == set(program.PROGRAMS)

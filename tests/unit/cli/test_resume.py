"""What a local run leaves for after the boot: the same command, and nothing that may be a secret."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership
from gpuwright import console, request, resume
from gpuwright.parser import parse
from gpuwright.privilege import Privilege

ENVIRONMENT = {
    "PATH": "/home/u/bin:/usr/bin",
    "http_proxy": "http://proxy:3128",
    "SECRET": "x",
    "PYTHONPATH": "rel:/srv/src",
}


@pytest.fixture(autouse=True)
def _own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of these tests may be its user's; here it counts as root's."""
    monkeypatch.setattr(ownership, "offence", lambda _path: None)


def prepared(tmp_path: Path, *words: str, wish: Any = None, lock: Any = None) -> Any:
    args = parse(["up", *words])
    way = Privilege(become=False, privileged=True)
    wanted = request.build(args, run_dir=tmp_path, playbook="site", privilege=way, wish=wish or {}, lock=lock)
    made = resume.prepare(args, wanted, ENVIRONMENT)
    assert made is not None
    return made


def test_the_command_is_the_same_with_the_own_interpreter_and_nobody_to_ask(tmp_path: Path) -> None:
    made = prepared(
        tmp_path, "--want", "driver=580", "--want", "pytorch>=2.7", "--gpu", "H100", "--full", "--json", "-v", "-K", "--yes",
        "--report", "here", "--", "--forks", "3", "-vv", "--become-password-file", "/root/pass", "--tags=all",
    )  # fmt: skip
    assert made["command"] == [
        os.path.realpath(sys.executable), "-IS", "/var/lib/gpuwright/resume/program/gpuwright", "up", "--yes",
        "--want=driver=580", "--want=pytorch>=2.7", "--gpu=H100", "--full",
        "--report", "/var/lib/gpuwright/resume/report", "--", "--forks", "3", "--tags=all",
    ]  # fmt: skip
    own = made["command"][3 : made["command"].index("--")]
    args = parse(own)
    assert (args.want, args.gpu, args.full, args.yes) == (["driver=580", "pytorch>=2.7"], ["H100"], True, True)


def test_files_are_kept_with_it_because_a_path_may_be_gone_after_the_boot(tmp_path: Path) -> None:
    variables = tmp_path / "vars.yml"
    variables.write_text("nvidia_driver_persistence: false\n")
    made = prepared(tmp_path, "-e", f"@{variables}", wish={"cuda_versions": ["12.8"]})
    assert made["files"] == {
        "wish.json": {"cuda_versions": ["12.8"]},
        "variables-0.json": {"nvidia_driver_persistence": False},
    }
    command = " ".join(made["command"])
    assert "--wish /var/lib/gpuwright/resume/wish.json" in command
    assert "-e @/var/lib/gpuwright/resume/variables-0.json" in command
    assert str(tmp_path) not in command
    assert prepared(tmp_path, lock={"schema": 1})["files"] == {"lock.json": {"schema": 1}}


def test_a_projects_file_is_kept_as_it_was_read_because_it_may_be_another_one_after_the_boot(tmp_path: Path) -> None:
    project = tmp_path / "requirements.txt"
    project.write_text("torch==2.7.1\npandas>=2\n")
    made = prepared(tmp_path, "--want", f"project@research={project}", "--want", "jupyter")
    assert made["files"]["project-0.json"]["project"]["dependencies"] == ["torch==2.7.1", "pandas>=2"]
    assert "--want=project@research=/var/lib/gpuwright/resume/project-0.json" in made["command"]
    assert str(project) not in " ".join(made["command"])
    refused = prepared(tmp_path, wish={"frameworks_project": str(project)})
    assert "a variable names a project's file" in refused["refused"]


def test_variables_that_are_gpuwrights_own_are_kept_as_they_were_written(tmp_path: Path) -> None:
    mirrors = '{"gpuwright_mirrors": {"nvidia": "http://mirror/cuda"}}'
    made = prepared(tmp_path, "-e", mirrors, "-e", "nvidia_driver_persistence=false gpuwright_proof_max_age=60")
    words = made["command"]
    assert [words[at + 1] for at, word in enumerate(words) if word == "-e"] == [
        mirrors,
        "nvidia_driver_persistence=false gpuwright_proof_max_age=60",
    ]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("-e", "repository_token=s3cr3t"), "repository_token"),
        (("-e", '{"ansible_become_password": "s3cr3t"}'), "ansible_become_password"),
        (("-e", "nvidia_driver_branch={{ lookup('env', 's3cr3t') }}"), "nvidia_driver_branch"),
        (("-e", '{"gpuwright_mirrors": {"nvidia": "https://me:s3cr3t@mirror/cuda"}}'), "user or password"),
        (("-e", "s3cr3t"), "cannot be read"),
        (("--", "--vault-id", "s3cr3t"), "--vault-id"),
        (("--", "-e", "x=s3cr3t"), "-e"),
        (("--", "--private-key=s3cr3t"), "--private-key"),
    ],
)
def test_what_may_be_a_secret_is_never_written_and_the_reason_names_it_only(
    tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    made = prepared(tmp_path, *words)
    assert set(made) == {"refused"}
    assert named in made["refused"]
    assert "s3cr3t" not in json.dumps(made)


def test_a_vault_password_file_or_an_encrypted_file_is_a_reason_too(tmp_path: Path) -> None:
    path = tmp_path / "vault"
    path.write_text("$ANSIBLE_VAULT;1.1;AES256\n3132\n")
    assert "vault" in prepared(tmp_path, "--vault-password-file", str(path))["refused"]
    assert "cannot be read" in prepared(tmp_path, "-e", f"@{path}")["refused"]


def test_a_file_of_variables_that_no_person_writes_is_no_reason_to_wait(tmp_path: Path) -> None:
    path = tmp_path / "variables.yml"
    path.write_text("nvidia_driver_branch: '580'\n" + "#\n" * (1 << 19))
    assert "cannot be read" in prepared(tmp_path, "-e", f"@{path}")["refused"]


def test_a_wish_with_a_password_in_an_address_is_not_written(tmp_path: Path) -> None:
    made = prepared(tmp_path, wish={"gpuwright_mirrors": {"nvidia": "https://me:s3cr3t@mirror/cuda"}})
    assert set(made) == {"refused"}


def test_nothing_of_the_callers_environment_goes_along_but_the_way_to_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = prepared(tmp_path)["environment"]
    assert found == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "http_proxy": "http://proxy:3128",
        resume.RESUMED: "1",
    }
    monkeypatch.setitem(ENVIRONMENT, "http_proxy", "http://me:s3cr3t@proxy:3128")
    assert "http_proxy" not in prepared(tmp_path)["environment"]


def test_the_program_that_is_copied_for_it_is_the_one_that_runs(tmp_path: Path) -> None:
    made = prepared(tmp_path)
    assert made["program"] == {
        "package": str(Path(resume.__file__).resolve().parent),
        "interpreter": made["command"][0],
        "directory": "/var/lib/gpuwright/resume/program",
    }


def test_a_python_of_the_user_gives_way_to_the_systems_of_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whichever Python runs the tests, which may be the system's.
    monkeypatch.setattr(sys, "executable", "/home/u/venv/bin/python")
    offences = {sys.executable: ownership.Offence("/home/u", "/home/u, which belongs to u")}
    monkeypatch.setattr(ownership, "offence", offences.get)
    systems = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: str(path) == systems or is_file(path))
    monkeypatch.setattr(os.path, "realpath", lambda path, **_: str(path))
    assert prepared(tmp_path)["command"][0] == systems
    offences[systems] = ownership.Offence("/usr/bin", "/usr/bin, which everybody may write")
    refused = prepared(tmp_path)["refused"]
    assert "/home/u, which belongs to u" in refused
    assert f"there is no {systems}" in refused


@pytest.mark.parametrize("words", [("plan",), ("up", "--no-reboot"), ("up", "-i", "host,")])
def test_only_a_local_run_that_may_boot_is_continued(tmp_path: Path, words: tuple[str, ...]) -> None:
    args = parse([*words])
    way = Privilege(become=False, privileged=True)
    wanted = request.build(args, run_dir=tmp_path, playbook="site", privilege=way, wish={})
    assert resume.prepare(args, wanted, ENVIRONMENT) is None


@pytest.mark.parametrize("verb", ["rollback", "remove"])
def test_a_way_back_is_not_gone_twice(tmp_path: Path, verb: str) -> None:
    args = parse([verb])
    way = Privilege(become=False, privileged=True)
    wanted = request.build(args, run_dir=tmp_path, playbook=verb, privilege=way, wish={})
    made = resume.prepare(args, wanted, ENVIRONMENT)
    assert made is not None
    assert "done once" in made["refused"]


def test_the_continuation_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, resume.RESUMED, "1")
    assert set(prepared(tmp_path)) == {"refused"}


# --- the result -------------------------------------------------------------------------------------------------------


@pytest.fixture
def notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notice"
    path.write_text("gpuwright went on after the boot: done and proven\n")
    monkeypatch.setattr(resume, "NOTICE", path)
    monkeypatch.setattr(resume, "MOTD", tmp_path / "motd")
    (tmp_path / "motd").touch()
    monkeypatch.setattr(console, "note", lambda text="": print(text))
    return path


def test_an_ordinary_user_is_told_once_and_a_new_result_anew(
    notice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    resume.tell_result(tmp_path)
    assert "done and proven" in capsys.readouterr().out
    resume.tell_result(tmp_path)
    assert capsys.readouterr().out == ""
    notice.write_text("gpuwright went on after the boot: NOT proven\n")
    resume.tell_result(tmp_path)
    assert "NOT proven" in capsys.readouterr().out
    assert notice.exists()


def test_root_is_told_and_takes_the_notice_away(
    notice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    resume.tell_result(tmp_path)
    assert "done and proven" in capsys.readouterr().out
    assert not notice.exists()
    assert not (tmp_path / "motd").exists()


def test_a_notice_that_cannot_be_read_stops_nothing(
    notice: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notice.unlink()
    notice.mkdir()
    resume.tell_result(tmp_path)
    assert capsys.readouterr().out == ""

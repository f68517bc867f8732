from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuwright import paths, privilege, request, system_python
from gpuwright.errors import BadInput, Refused
from gpuwright.parser import parse
from gpuwright.privilege import Privilege, decide
from tests.unit.cli.conftest import world_of

ROOT = Privilege(become=False, privileged=True)
WITH_SECRET = "https://me:s3cr3t@mirror.example/cuda"
SUDO = Privilege(become=True, privileged=True, password="hunter2")


def built(
    tmp_path: Path, *words: str, privilege: Privilege = ROOT, wish: dict[str, object] | None = None
) -> request.Request:
    return request.build(parse(words), run_dir=tmp_path, playbook="site", privilege=privilege, wish=wish or {})


def test_without_an_inventory_the_run_is_about_this_machine(tmp_path: Path) -> None:
    wanted = built(tmp_path, "up")
    assert wanted.local
    assert wanted.extra_vars["gpuwright_local"] is True
    (source,) = request.write_files(wanted)
    host = json.loads(Path(source).read_text())["all"]["hosts"]["localhost"]
    assert host["ansible_connection"] == "local"
    assert host["gpuwright_local"] is True


def test_a_file_of_variables_without_an_end_is_refused_before_ansible_reads_it(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    path = tmp_path / "endless.yml"
    path.write_text("\n".join(lines))
    with pytest.raises(BadInput, match=r"endless\.yml stands for more than 200000 values"):
        built(tmp_path, "plan", "-e", f"@{path}")
    # Ansible's own tags, an encrypted file and what is no YAML are Ansible's to read.
    for text in ("a: &b !vault x\nc: *b\nd: !unsafe '{{ x }}'", "$ANSIBLE_VAULT;1.1;AES256\n3132\n", "a: [*"):
        path.write_text(text)
        assert built(tmp_path, "plan", "-e", f"@{path}").user_vars == (f"@{path}",)


def test_the_interpreter_of_this_machine_is_the_systems_where_there_is_one() -> None:
    def interpreter(python: str | None) -> str:
        return str(request.local_inventory(python)["all"]["hosts"]["localhost"]["ansible_python_interpreter"])

    assert interpreter("/usr/bin/python3.12") == "/usr/bin/python3.12"
    assert interpreter(None) == "{{ ansible_playbook_python }}"


def test_a_python_of_the_system_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    """As /usr/bin/python3 of Red Hat 8, which is 3.6: it cannot even read our modules."""
    old, broken, newer = tmp_path / "python3", tmp_path / "python3.13", tmp_path / "python3.12"
    old.write_text("#!/bin/sh\nexit 1\n")
    broken.write_text("not a program")
    newer.symlink_to(sys.executable)
    for program in (old, broken):
        program.chmod(0o755)
    there = [str(each) for each in (old, tmp_path / "python3.14", broken, newer)]
    assert system_python.path(there) == str(newer)
    assert system_python.path(there[:-1]) is None
    # The one that has the bindings of the package manager comes first.
    assert system_python._PYTHONS[0] == "/usr/bin/python3"
    assert "/usr/bin/python3.9" in system_python._PYTHONS


def test_with_an_inventory_the_run_is_not_about_this_machine(tmp_path: Path) -> None:
    wanted = built(tmp_path, "up", "-i", "a,b,")
    assert not wanted.local
    assert "gpuwright_local" not in wanted.extra_vars
    assert request.write_files(wanted) == ["a,b,"]


def test_options_become_the_variables_of_the_playbook(tmp_path: Path) -> None:
    wanted = built(tmp_path, "up", "--want", "cuda=12.8", "--full", "--no-reboot", wish={"cuda_cudnn": True})
    assert wanted.extra_vars == {
        "gpuwright_run_dir": str(tmp_path),
        "gpuwright_verb": "up",
        "ansible_become": False,
        "gpuwright_full": True,
        "gpuwright_no_reboot": True,
        "gpuwright_local": True,
        "gpuwright_want": ["cuda=12.8"],
        "gpuwright_wish": {"cuda_cudnn": True},
    }


def test_packages_that_may_go_are_named_to_the_playbook(tmp_path: Path) -> None:
    wanted = built(tmp_path, "up", "--allow-remove", "company-vpn", "--allow-remove", "old")
    assert wanted.extra_vars["gpuwright_allow_remove"] == ["company-vpn", "old"]


def test_sources_that_may_be_built_are_named_to_the_playbook(tmp_path: Path) -> None:
    wanted = built(tmp_path, "up", "--user", "--allow-source", "antlr4-python3-runtime")
    assert wanted.extra_vars["gpuwright_allow_source"] == ["antlr4-python3-runtime"]


@pytest.mark.parametrize(
    ("verb", "variable"),
    [
        ("up", "gpuwright_provision_for"),
        ("plan", "gpuwright_provision_for"),
        ("validate", "gpuwright_gpus_expected"),
        ("doctor", "gpuwright_gpus_expected"),
    ],
)
def test_a_named_card_is_provided_for_or_expected(tmp_path: Path, verb: str, variable: str) -> None:
    assert built(tmp_path, verb, "--gpu", "H100").extra_vars[variable] == ["H100"]


def test_the_users_variables_come_after_ours_and_win(tmp_path: Path) -> None:
    words = request.command_line(built(tmp_path, "up", "-e", "ansible_become=false", "-e", f"@{__file__}"))
    assert words[:6] == [
        "-e",
        f"@{tmp_path}/extravars.json",
        "-e",
        f"@{tmp_path}/ansible/variables-0.yml",
        "-e",
        f"@{__file__}",
    ]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("token=s3cr3t other='a b'", {"token": "s3cr3t", "other": "a b"}),
        ('{"token": "s3cr3t", "list": [1]}', {"token": "s3cr3t", "list": [1]}),
        ("{token: s3cr3t, when: yes}", {"token": "s3cr3t", "when": True}),
    ],
)
def test_a_variable_of_the_user_stands_in_a_file_of_theirs_and_only_until_it_is_read(
    tmp_path: Path, given: str, meant: dict[str, Any]
) -> None:
    wanted = built(
        tmp_path, "up", "-e", given, "-e", f"@{__file__}", wish={"gpuwright_mirrors": {"nvidia": WITH_SECRET}}
    )
    request.write_files(wanted)
    assert "s3cr3t" not in " ".join(request.command_line(wanted))
    file = tmp_path / "ansible" / "variables-0.yml"
    assert yaml.safe_load(file.read_text()) == meant
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "s3cr3t" in (tmp_path / "extravars.json").read_text()
    request.forget_secrets(wanted)
    left = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert not [path for path, text in left.items() if "s3cr3t" in text]
    kept = json.loads(left[Path("extravars.json")])
    assert kept == {
        **wanted.extra_vars,
        "gpuwright_wish": {"gpuwright_mirrors": {"nvidia": "https://***@mirror.example/cuda"}},
    }


def test_a_variable_without_an_end_is_refused_without_being_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="quote") as refused:
        request.write_files(built(tmp_path, "up", "-e", "token='s3cr3t"))
    assert "s3cr3t" not in str(refused.value)


def test_a_dry_run_is_check_and_diff(tmp_path: Path) -> None:
    assert "--check" not in request.command_line(built(tmp_path, "up"))
    assert {"--check", "--diff"} <= set(request.command_line(built(tmp_path, "up").dry()))


def test_the_password_is_asked_for_and_stands_nowhere(tmp_path: Path) -> None:
    wanted = built(tmp_path, "up", "-K", privilege=SUDO)
    request.write_files(wanted)
    assert "--ask-become-pass" in request.command_line(wanted)
    assert "hunter2" not in repr(wanted)
    assert "hunter2" not in " ".join(request.command_line(wanted))
    assert "hunter2" not in repr(SUDO)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "hunter2" in path.read_text()]


def test_files_of_a_run_are_for_their_user_only(tmp_path: Path) -> None:
    request.write_files(built(tmp_path, "up"))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_forks_are_25_unless_said_otherwise(tmp_path: Path) -> None:
    assert request.command_line(built(tmp_path, "up"))[-2:] == ["--forks", "25"]
    assert "25" not in request.command_line(built(tmp_path, "up", "--", "-f", "3"))
    assert "25" not in request.command_line(built(tmp_path, "up", "--", "--forks=3"))


def test_limit_vault_and_ansible_options_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "vault").write_text("x")
    words = request.command_line(
        built(
            tmp_path,
            "up",
            "-i",
            "a,",
            "--limit",
            "a",
            "--vault-password-file",
            str(tmp_path / "vault"),
            "--",
            "-u",
            "me",
        )
    )
    assert words[words.index("--limit") + 1] == "a"
    assert words[words.index("--vault-password-file") + 1] == str(tmp_path / "vault")
    assert words[-2:] == ["-u", "me"]


@pytest.mark.parametrize(
    "words", [("-i", "/no/such/file"), ("-e", "@/no/such/file"), ("--vault-password-file", "/no/such/file")]
)
def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path, words: tuple[str, str]) -> None:
    with pytest.raises(BadInput, match="/no/such/file"):
        built(tmp_path, "up", *words)


def test_relative_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts").write_text("a\n")
    monkeypatch.chdir(tmp_path)
    assert built(tmp_path, "up", "-i", "hosts").inventory == (str(tmp_path / "hosts"),)


def test_the_environment_puts_our_own_collection_and_programs_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "collections_root", lambda: Path("/ours"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    env = request.environment(built(tmp_path, "up"), {"PATH": "/usr/bin", "LANG": "en_US.UTF-8"})
    assert env["ANSIBLE_COLLECTIONS_PATH"].startswith("/ours:")
    assert env["PATH"] == f"{paths.programs()}:/usr/bin"
    assert env["ANSIBLE_NOCOLOR"] == "1"
    assert env["ANSIBLE_INJECT_FACT_VARS"] == "False"
    assert "ANSIBLE_HOST_KEY_CHECKING" not in env
    assert "LC_ALL" not in env


@pytest.mark.parametrize("inherited", [{}, {"LC_ALL": "C"}, {"LANG": "POSIX"}, {"LC_ALL": "C", "LANG": "en_US.UTF-8"}])
def test_ansible_is_given_utf8_where_the_locale_has_none(tmp_path: Path, inherited: dict[str, str]) -> None:
    assert request.environment(built(tmp_path, "up"), inherited)["LC_ALL"] == "C.UTF-8"


def test_root_needs_no_sudo() -> None:
    assert decide(local=True, needed=True, ask=True, world=world_of(0)) == Privilege(become=False, privileged=True)


def test_a_free_sudo_is_used() -> None:
    assert decide(local=True, needed=True, ask=False, world=world_of(1000, sudo=True)).become


@pytest.mark.parametrize(
    ("sudo", "free"),
    [
        ("exit 0", True),
        ('case "$1$2" in -k-n) exit 1;; esac', False),  # a password that was given at this terminal lately
        ("exit 1", False),
    ],
)
def test_a_password_that_sudo_was_given_lately_is_none_that_it_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sudo: str, free: bool
) -> None:
    program = tmp_path / "sudo"
    program.write_text(f'#!/bin/sh\ntest "$*" = -k && touch {tmp_path}/forgotten\n{sudo}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert privilege.sudo_needs_no_password() is free
    assert not (tmp_path / "forgotten").exists(), "the person's own sudo still knows it"


def test_a_password_is_asked_for_when_wished() -> None:
    way = decide(local=True, needed=True, ask=True, world=world_of(1000, secret="x"))
    assert (way.become, way.password) == (True, "x")


def test_changes_without_a_way_to_root_are_refused() -> None:
    with pytest.raises(Refused, match="needs root: run with sudo, or with -K"):
        decide(local=True, needed=True, ask=False, world=world_of(1000))


def test_a_look_without_a_way_to_root_goes_on_and_is_not_privileged() -> None:
    assert decide(local=True, needed=False, ask=False, world=world_of(1000)) == Privilege(
        become=False, privileged=False
    )


def test_hosts_of_an_inventory_are_worked_on_with_sudo_whoever_sits_here() -> None:
    for euid in (0, 1000):
        assert decide(local=False, needed=True, ask=False, world=world_of(euid)).become


def test_a_password_file_for_ansible_is_a_way_to_root() -> None:
    options = ["--become-password-file=/x"]
    assert decide(local=True, needed=True, ask=False, ansible_options=options, world=world_of(1000)).become


def test_a_report_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(BadInput, match="not written by gpuwright"):
        paths.make_run_directory(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_report_directory_of_an_earlier_run_is_emptied_of_our_files_only(tmp_path: Path) -> None:
    run_dir = paths.make_run_directory(tmp_path / "r")
    (run_dir / "hosts").mkdir()
    (run_dir / "hosts" / "old.json").write_text("{}")
    (run_dir / "notes.txt").write_text("mine")
    assert paths.make_run_directory(tmp_path / "r") == run_dir
    assert not (run_dir / "hosts").exists()
    assert (run_dir / "notes.txt").exists()


def test_a_report_directory_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be used"):
        paths.make_run_directory(tmp_path / "file" / "below")


def test_the_default_run_directory_is_private_and_under_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run_dir = paths.make_run_directory(paths.run_directory(None))
    assert run_dir.parent == tmp_path / "gpuwright" / "runs"
    assert run_dir.stat().st_mode & 0o777 == 0o700

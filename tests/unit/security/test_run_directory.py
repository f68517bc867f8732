"""The run directory against a local user of the controller: links, directories and names prepared where a run will write."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership
from ansible_collections.gpuwright.node.plugins.plugin_utils import report
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import run_directory
from gpuwright import paths, request
from gpuwright.errors import BadInput
from tests.unit.security.conftest import MALLORY, Give

CANARY = "not yours"


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that must stay as it is."""
    path = tmp_path / "canary"
    path.write_text(CANARY)
    return path


def test_a_report_directory_of_another_user_is_refused(tmp_path: Path, to_mallory: Give) -> None:
    to_mallory(tmp_path / "theirs").mkdir(0o755)
    with pytest.raises(BadInput, match=f"belongs to user {MALLORY}"):
        paths.make_run_directory(tmp_path / "theirs")
    assert list((tmp_path / "theirs").iterdir()) == []


def test_a_report_directory_below_one_of_another_user_is_refused_and_not_made(tmp_path: Path, to_mallory: Give) -> None:
    to_mallory(tmp_path / "theirs").mkdir(0o755)
    with pytest.raises(BadInput, match=f"belongs to user {MALLORY}"):
        paths.make_run_directory(tmp_path / "theirs/report")
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_report_directory_where_everybody_may_put_another_in_its_place_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(BadInput, match="everybody may write"):
        paths.make_run_directory(tmp_path / "open/report")


def test_a_link_of_another_user_to_a_directory_of_ours_is_refused(tmp_path: Path, to_mallory: Give) -> None:
    (tmp_path / "ours").mkdir(0o700)
    to_mallory(tmp_path / "link").symlink_to(tmp_path / "ours")
    with pytest.raises(BadInput, match=f"belongs to user {MALLORY}"):
        paths.make_run_directory(tmp_path / "link")
    assert list((tmp_path / "ours").iterdir()) == []


def test_a_directory_of_ours_in_a_shared_one_is_taken(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    assert paths.make_run_directory(tmp_path / "tmp/report").is_dir()


def test_a_directory_that_others_may_read_stays_so_and_what_is_written_into_it_is_private(tmp_path: Path) -> None:
    """It may be more than a report's: a directory that is served, or a home."""
    (tmp_path / "report").mkdir()
    (tmp_path / "report").chmod(0o755)
    made = report.open_run(paths.make_run_directory(tmp_path / "report"), "up")
    run_directory.write_document(made / "plans", "host", {})
    report.aggregate(made)
    assert made.stat().st_mode & 0o777 == 0o755
    assert {path.name for path in made.iterdir()} > {paths.MARKER, "run.json", "plans", "report.json", "report.html"}
    assert not [path for path in made.iterdir() if path.stat().st_mode & 0o077]


def test_a_directory_that_is_refused_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www").chmod(0o755)
    (tmp_path / "www/index.html").write_text(CANARY)
    with pytest.raises(BadInput, match="not written by gpuwright"):
        paths.make_run_directory(tmp_path / "www")
    assert (tmp_path / "www").stat().st_mode & 0o777 == 0o755


def test_a_link_in_the_markers_place_is_no_marker_and_is_not_followed(tmp_path: Path, canary: Path) -> None:
    (tmp_path / "report").mkdir(0o700)
    (tmp_path / "report" / paths.MARKER).symlink_to(canary)
    with pytest.raises(BadInput, match="not written by gpuwright"):
        paths.make_run_directory(tmp_path / "report")
    assert canary.read_text() == CANARY


@pytest.mark.parametrize("name", paths.OWN_ENTRIES)
def test_a_link_in_the_place_of_what_a_run_writes_goes_and_its_target_stays(tmp_path: Path, name: str) -> None:
    run_dir = paths.make_run_directory(tmp_path / "report")
    (tmp_path / "target").mkdir()
    (tmp_path / "target/file.json").write_text(CANARY)
    (run_dir / name).symlink_to(tmp_path / "target")
    paths.make_run_directory(run_dir)
    report.open_run(run_dir, "up")
    assert not (run_dir / name).is_symlink()
    assert (tmp_path / "target/file.json").read_text() == CANARY


def test_the_variables_of_a_run_are_not_written_through_a_link(tmp_path: Path, canary: Path) -> None:
    (tmp_path / "extravars.json").symlink_to(canary)
    request._write_private(tmp_path / "extravars.json", {"secret": "x"})
    assert canary.read_text() == CANARY
    assert (tmp_path / "extravars.json").stat().st_mode & 0o777 == 0o600


def test_a_record_is_not_written_through_a_link_whose_name_was_foreseen(tmp_path: Path, canary: Path) -> None:
    (tmp_path / f".host.json.{os.getpid()}").symlink_to(canary)
    run_directory.write_document(tmp_path, "host", {})
    assert canary.read_text() == CANARY
    assert (tmp_path / "host.json").stat().st_mode & 0o777 == 0o600


def test_the_run_directory_of_a_plain_playbook_is_judged_too(tmp_path: Path, to_mallory: Give) -> None:
    to_mallory(tmp_path / "theirs").mkdir(0o755)
    with pytest.raises(Exception, match=f"belongs to user {MALLORY}"):
        report.open_run(tmp_path / "theirs/run", "up")


def test_root_writes_into_no_home_that_sudo_kept(
    tmp_path: Path, to_mallory: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_mallory(tmp_path / "home").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("HOME", "TMPDIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("ANSIBLE_HOME", "~/.ansible")
    paths.leave_the_callers_places()
    assert os.environ["HOME"] == pwd.getpwuid(0).pw_dir
    assert "TMPDIR" not in os.environ
    assert paths.state_home() == Path(pwd.getpwuid(0).pw_dir, ".local/state")
    assert os.environ["ANSIBLE_HOME"] == "~/.ansible"


@pytest.mark.parametrize(
    ("euid", "variable", "open_to_all", "refused"),
    [
        (0, {}, False, True),
        (0, {"SUDO_UID": "1"}, False, True),
        (0, {"SUDO_UID": str(MALLORY)}, False, False),
        (0, {"ANSIBLE_CONFIG": "/x"}, False, False),
        (0, {}, True, False),  # Ansible itself takes none there
        (1000, {}, False, False),
    ],
)
def test_root_takes_no_configuration_of_another_user_from_the_working_directory(
    tmp_path: Path,
    to_mallory: Give,
    monkeypatch: pytest.MonkeyPatch,
    euid: int,
    variable: dict[str, str],
    open_to_all: bool,
    refused: bool,
) -> None:
    to_mallory(tmp_path / "home").mkdir()
    to_mallory(tmp_path / "home/ansible.cfg").touch()
    (tmp_path / "home").chmod(0o777 if open_to_all else 0o755)
    monkeypatch.chdir(tmp_path / "home")
    # An ordinary user who runs the tests owns the directories above.
    monkeypatch.setattr(ownership, "offence", as_if_owned_by(0, os.geteuid()))
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    for name in ("ANSIBLE_CONFIG", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    if refused:
        with pytest.raises(BadInput, match=f"belongs to user {MALLORY}"):
            paths.judge_configuration()
    else:
        paths.judge_configuration()


def as_if_owned_by(*trusted: int) -> Callable[..., ownership.Offence | None]:
    real = ownership.offence
    return lambda path, owners=(0,), **options: real(path, (*owners, *trusted), **options)


def test_a_user_works_in_the_home_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    paths.leave_the_callers_places()
    assert os.environ["HOME"] == str(tmp_path)

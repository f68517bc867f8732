"""Builds of an environment: made aside, swapped in whole, the one before kept; cut off anywhere, the next run heals it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import environment_builds, python_envs
from ansible_collections.gpuwright.node.plugins.module_utils.packages import environment_swap
from ansible_collections.gpuwright.node.plugins.modules import environment_build
from ansible_collections.gpuwright.node.plugins.plugin_utils import gate
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import work
from tests.unit.modules import run_module

TIME = "2026-11-26T09:00:00Z"


def bring(path: Path, state: str, **options: Any) -> Any:
    """What the module answers, which passes the gate."""
    answer = run_module(environment_build, path=str(path), state=state, **options)
    assert not answer.get("failed"), answer
    return answer


def begin(path: Path, says: str) -> Path:
    """A build that is under way."""
    build = Path(bring(path, "begun")["build"])
    fill(build, says)
    return build


def fill(directory: Path, says: str) -> Path:
    packages = directory / f"lib/python3.12/site-packages/torch-{says}.dist-info"
    packages.mkdir(parents=True)
    (directory / "pyvenv.cfg").write_text("version = 3.12.3\n")
    return directory


def made(path: Path, *says: str, keep: bool = True) -> Path:
    """An environment that was built so, one after the other."""
    for each in says:
        bring(path, "swapped", build=str(begin(path, each)), keep=keep, time=TIME)
    return path


def look(path: Path) -> tuple[str | None, str | None]:
    """The release in use, and the one that is kept."""
    seen = python_envs.environment(Host(), str(path))
    if seen is None:
        return None, None
    kept = seen["kept"]
    return seen["packages"].get("torch"), kept["packages"].get("torch") if kept else None


def beside(path: Path) -> list[str]:
    return sorted(each.name for each in (path.parent / f".{path.name}").iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of an environment whose directory is not there yet."""
    return tmp_path / "gpuwright/pytorch"


def test_a_build_is_not_in_use_before_it_is_swapped_in(path: Path) -> None:
    made(path, "2.13.0")
    build = begin(path, "2.14.1")
    assert look(path) == ("2.13.0", None)
    bring(path, "swapped", build=str(build), keep=True, time=TIME)
    assert look(path) == ("2.14.1", "2.13.0")
    assert path.readlink() == Path(".pytorch/2")
    seen: Any = python_envs.environment(Host(), str(path))
    assert seen["kept"]["gave_way"] == TIME


def test_one_is_kept_the_last(path: Path) -> None:
    made(path, "2.12.0", "2.13.0", "2.14.1")
    assert look(path) == ("2.14.1", "2.13.0")
    assert beside(path) == ["2", "3", "gave-way"]


def test_what_is_not_worth_to_be_kept_goes_and_the_one_before_stays(path: Path) -> None:
    made(path, "2.12.0", "2.13.0")
    made(path, "2.14.1", keep=False)
    assert look(path) == ("2.14.1", "2.12.0")
    assert beside(path) == ["1", "3", "gave-way"]


def test_the_build_before_is_returned_to_and_back_again(path: Path) -> None:
    made(path, "2.13.0", "2.14.1")
    assert bring(path, "returned", time=TIME)["build"] == f"{path.parent}/.pytorch/1"
    assert look(path) == ("2.13.0", "2.14.1")
    bring(path, "returned", time=TIME)
    assert look(path) == ("2.14.1", "2.13.0")
    bring(path, "returned", keep=False)
    assert look(path) == ("2.13.0", None)


def test_there_is_nothing_to_return_to_where_nothing_is_kept(path: Path) -> None:
    answer = run_module(environment_build, path=str(made(path, "2.14.1")), state="returned")
    assert answer["failed"]
    assert "What to do" in answer["msg"]
    assert look(path) == ("2.14.1", None)


def test_in_check_mode_nothing_changes(path: Path) -> None:
    answer = run_module(environment_build, path=str(path), state="begun", check=True)
    assert answer["changed"]
    assert not path.parent.exists()


def test_users_may_go_through_it_whatever_roots_umask_is(path: Path) -> None:
    before = os.umask(0o077)
    try:
        made(path, "2.14.1")
    finally:
        os.umask(before)
    for directory in (path.parent, path.parent / ".pytorch"):
        assert directory.stat().st_mode & 0o7777 == 0o755


# --- gone again ----------------------------------------------------------------------------------------------------------


def test_it_goes_with_its_builds_and_the_directories_that_were_made_for_it(path: Path, tmp_path: Path) -> None:
    made(path, "2.13.0", "2.14.1")
    jax = made(path.parent / "jax", "0.10.0")
    answer = bring(path, "removed")
    assert (answer["changed"], answer["build"], answer["stays"]) == (True, None, None)
    assert sorted(each.name for each in path.parent.iterdir()) == [".gpuwright-made", ".jax", "jax"]
    bring(jax, "removed")
    assert list(tmp_path.iterdir()) == []
    assert bring(jax, "removed")["stays"] is None


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o2770])
def test_a_directory_that_was_there_keeps_its_mode_and_stays(tmp_path: Path, mode: int) -> None:
    """Such as somebody's home, or /opt."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    for path in (home / "pytorch", home / "environments/jax"):
        bring(made(path, "2.14.1"), "removed")
    assert home.stat().st_mode & 0o7777 == mode
    assert list(home.iterdir()) == []


def test_what_somebody_has_beside_it_and_among_its_builds_stays(path: Path) -> None:
    made(path, "2.13.0", "2.14.1")
    among, beside_it = path.parent / ".pytorch/notes.txt", path.parent / "data"
    among.write_text("mine")
    beside_it.mkdir()
    made(path, "2.15.0")
    bring(path, "tidy")
    assert bring(path, "removed")["stays"] == str(among.parent)
    assert sorted(each.name for each in path.parent.iterdir()) == [".gpuwright-made", ".pytorch", "data"]
    assert [each.name for each in among.parent.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("is_directory", [False, True], ids=["a link to its build", "a directory itself"])
def test_behind_somebodys_link_it_goes_where_it_is_and_the_link_stays(
    path: Path, tmp_path: Path, is_directory: bool
) -> None:
    real, besides = tmp_path / "disk/large", path.parent / ".pytorch/mine"
    real.parent.mkdir()
    besides.parent.mkdir(parents=True)
    besides.write_text("mine")
    path.symlink_to(real)
    if is_directory:
        fill(real, "2.14.1")
    else:
        made(path, "2.13.0", "2.14.1")
    bring(path, "removed")
    assert list(real.parent.iterdir()) == []
    assert path.readlink() == real
    assert besides.read_text() == "mine"


def test_a_removal_that_was_cut_off_is_known_by_its_mark_and_completed(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made(path, "2.13.0", "2.14.1")
    with monkeypatch.context() as patch:
        patch.setattr(environment_swap, "_remove_empty", Mock(side_effect=OSError("cut")))
        assert run_module(environment_build, path=str(path), state="removed")["failed"]
    assert Path(environment_builds.mark(str(path))).exists()
    bring(path, "removed")
    assert list(tmp_path.iterdir()) == []


# --- what an earlier gpuwright made, or somebody else ---------------------------------------------------------------------


@pytest.mark.parametrize("can", [True, False], ids=["in one step", "in two"])
def test_an_environment_that_is_a_directory_itself_becomes_the_one_before(
    path: Path, monkeypatch: pytest.MonkeyPatch, can: bool
) -> None:
    if not can:
        monkeypatch.setattr(environment_swap, "exchange", lambda *_: False)
    fill(path, "2.13.0")
    made(path, "2.14.1")
    assert look(path) == ("2.14.1", "2.13.0")
    assert beside(path) == ["0", "1", "gave-way"]
    bring(path, "returned")
    assert look(path) == ("2.13.0", "2.14.1")


def test_the_file_system_of_the_tests_can_exchange(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, "2.13.0")
    build = begin(path, "2.14.1")
    seen: list[bool] = []
    rename = os.rename

    def look_and_rename(one: str, other: str) -> None:
        seen.append(path.exists())
        rename(one, other)

    monkeypatch.setattr(os, "rename", look_and_rename)
    bring(path, "swapped", build=str(build), keep=True)
    assert seen
    assert all(seen)


def test_one_that_a_cut_left_of_an_earlier_gpuwright_is_not_kept(path: Path) -> None:
    fill(path, "2.13.0")
    mark = Path(environment_builds.mark(str(path)))
    mark.touch()
    made(path, "2.14.1", keep=False)
    assert look(path) == ("2.14.1", None)
    assert (beside(path), mark.exists()) == (["1", "gave-way"], False)


def test_an_empty_directory_gives_way(path: Path) -> None:
    path.mkdir(parents=True)
    made(path, "2.14.1")
    assert look(path) == ("2.14.1", None)


def test_somebodys_link_to_a_larger_disk_stays_and_builds_are_made_there(path: Path, tmp_path: Path) -> None:
    large = fill(tmp_path / "large/torch", "2.13.0")
    path.parent.mkdir()
    path.symlink_to(large)
    made(path, "2.14.1")
    assert path.readlink() == large
    assert large.readlink() == Path(".torch/1")
    assert look(path) == ("2.14.1", "2.13.0")


def test_of_an_environment_whose_path_somebody_took_away_nothing_is_kept(path: Path) -> None:
    made(path, "2.12.0", "2.13.0").unlink()
    assert environment_builds.look(Host(), str(path)).kept is None
    made(path, "2.14.1")
    assert look(path) == ("2.14.1", None)
    assert beside(path) == ["3", "gave-way"]


# --- cut off --------------------------------------------------------------------------------------------------------------


def test_what_is_left_of_a_build_that_was_cut_off_is_taken_away_by_the_next_one(path: Path) -> None:
    made(path, "2.12.0", "2.13.0")
    cut = begin(path, "2.14.1")
    assert environment_builds.look(Host(), str(path)).debris == [".3.unfinished", "3"]
    assert bring(path, "tidy")["changed"]
    assert not cut.exists()
    assert look(path) == ("2.13.0", "2.12.0")
    assert not bring(path, "tidy")["changed"]


class Cut(BaseException):
    """The machine lost its power."""


@pytest.mark.parametrize("former", ["link", "directory"])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("step", range(14))
def test_a_swap_that_is_cut_off_anywhere_leaves_one_that_works_and_the_next_run_heals_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, former: str, keep: bool, step: int
) -> None:
    if former == "link":
        made(path, "2.12.0", "2.13.0")
    else:
        fill(path, "2.13.0")
    build = begin(path, "2.14.1")
    todo = iter(range(step))

    def cut_before(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            if next(todo, None) is None:
                raise Cut
            return call(*given, **named)

        return called

    with monkeypatch.context() as patched:
        for name in ("rename", "unlink", "symlink"):
            patched.setattr(os, name, cut_before(getattr(os, name)))
        patched.setattr(environment_swap, "exchange", cut_before(environment_swap.exchange))
        patched.setattr(shutil, "rmtree", cut_before(shutil.rmtree))
        with contextlib.suppress(Cut):
            bring(path, "swapped", build=str(build), keep=keep, time=TIME)
    now, before = look(path)
    assert now in ("2.13.0", "2.14.1")
    assert before in (None, "2.12.0", "2.13.0")
    assert before != now
    # The next run has it, whichever of the two it found.
    if now != "2.14.1":
        made(path, "2.14.1", keep=keep)
    else:
        bring(path, "tidy")
    now, before = look(path)
    assert now == "2.14.1"
    # What is not worth to be kept is nothing to return to, wherever the cut was.
    assert (before == "2.13.0") is keep
    found = environment_builds.look(Host(), str(path))
    assert found.debris == []
    assert beside(path) == sorted(filter(None, [found.current, found.kept, "gave-way"]))


# --- with a real Python ---------------------------------------------------------------------------------------------------

SLOW = pytest.mark.slow


def python_build(path: Path, says: str) -> Path:
    """A real environment that is under way, with the files that the role writes into it."""
    build = Path(bring(path, "begun")["build"])
    subprocess.run(["python3", "-I", "-m", "venv", "--without-pip", "--prompt", "pytorch", str(build)], check=True)
    (packages,) = build.glob("lib/python3.*/site-packages")
    for file in work._place(packages.parent.name.removeprefix("python")):
        (build / file["path"]).write_text(file["content"])
    (packages / "first.py").write_text(f"SAYS = {says!r}\n")
    (packages / "later.py").write_text(f"SAYS = {says!r}\n")
    script = build / "bin/tell"
    script.write_text(f"#!{build}/bin/python\nimport first, later\nprint(first.SAYS, later.SAYS)\n")
    script.chmod(0o755)
    return build


@SLOW
def test_a_process_goes_on_in_the_build_in_which_it_was_started(path: Path, tmp_path: Path) -> None:
    bring(path, "swapped", build=str(python_build(path, "old")))
    program = (
        "import pathlib, sys, time, first\n"
        f"pathlib.Path({str(tmp_path / 'started')!r}).touch()\n"
        f"while not pathlib.Path({str(tmp_path / 'swapped')!r}).exists(): time.sleep(0.05)\n"
        "import later, subprocess\n"
        "child = subprocess.run([sys.executable, '-c', 'import later; print(later.SAYS)'], stdout=-1, text=True)\n"
        "print(first.SAYS, later.SAYS, child.stdout.strip())\n"
    )
    with subprocess.Popen([f"{path}/bin/python", "-c", program], stdout=subprocess.PIPE, text=True) as running:
        while not (tmp_path / "started").exists():
            assert running.poll() is None
            time.sleep(0.05)
        bring(path, "swapped", build=str(python_build(path, "new")))
        (tmp_path / "swapped").touch()
        told, _ = running.communicate(timeout=60)
    assert told == "old old old\n"
    assert subprocess.run([f"{path}/bin/tell"], capture_output=True, text=True, check=True).stdout == "new new\n"


@SLOW
def test_an_environment_is_used_and_activated_by_its_path(path: Path) -> None:
    bring(path, "swapped", build=str(python_build(path, "new")))
    command = f". {path}/bin/activate; echo $VIRTUAL_ENV; tell; python -c 'import sys; print(sys.prefix)'"
    told = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    build = os.path.realpath(path)
    assert told.splitlines() == [build, "new new", build]


# --- ownership ------------------------------------------------------------------------------------------------------------


def test_the_lock_file_of_a_build_is_no_offence(path: Path) -> None:
    made(path, "2.13.0", "2.14.1")
    for build in ("1", "2"):
        lock = path.parent / ".pytorch" / build / ".lock"
        lock.touch()
        lock.chmod(0o666)
    mine = (0, os.getuid())
    directory = str(path.parent / ".pytorch")
    assert ownership.offence_below(directory, mine) is None
    (path.parent / ".pytorch/.lock").touch()
    (path.parent / ".pytorch/2/lib/.lock").touch()
    (path.parent / ".pytorch/2/lib/.lock").chmod(0o666)
    assert ownership.offence_below(directory, mine) is not None


def test_the_gate_takes_what_the_module_answers() -> None:
    for answer in (
        '{"changed": true, "build": "/opt/gpuwright/.pytorch/1", "stays": null}',
        '{"changed": true, "build": null, "stays": "/opt/gpuwright/.pytorch"}',
    ):
        assert gate.admit("environment_build", answer) == answer


# --- what uv works in ---------------------------------------------------------------------------------------------------


def downloaded(path: Path) -> Path:
    """What uv left that was cut off."""
    aside = path.parent / f".{path.name}/.uv"
    aside.mkdir()
    (aside / "wheel").write_bytes(b"x" * 100_000)
    return aside


def test_a_build_goes_on_with_what_uv_downloaded_for_the_one_before_it_that_was_cut_off(path: Path) -> None:
    made(path, "2.13.0")
    begin(path, "2.14.1")
    aside = downloaded(path)
    build = begin(path, "2.14.1")
    assert aside.is_dir()
    bring(path, "swapped", build=str(build), keep=True, time=TIME)
    # Its files are those of the build in use: whoever damages one would get it back with the next build.
    assert not aside.exists()
    assert look(path) == ("2.14.1", "2.13.0")


def test_it_goes_with_what_else_a_cut_left_where_nothing_is_built(path: Path) -> None:
    made(path, "2.13.0")
    downloaded(path)
    assert bring(path, "tidy")["changed"]
    assert ".uv" not in beside(path)


def test_what_a_cut_build_takes_is_known_and_what_is_there_twice_counts_once(path: Path) -> None:
    made(path, "2.13.0")
    assert environment_builds.debris_bytes(Host(), str(path)) == 0
    build, aside = begin(path, "2.14.1"), downloaded(path)
    os.link(aside / "wheel", build / "wheel")
    assert 100_000 <= environment_builds.debris_bytes(Host(), str(path)) < 150_000


def test_a_lock_file_that_a_cut_uv_left_in_its_cache_is_in_nobodys_way(path: Path) -> None:
    made(path, "2.13.0")
    cache = downloaded(path) / "boot/cache"
    cache.mkdir(parents=True)
    for each in (cache / ".lock", cache / "other"):
        each.touch()
    (cache / ".lock").chmod(0o666)
    builds, mine = str(path.parent / f".{path.name}"), (0, os.geteuid())
    assert ownership.offence_below(builds, owners=mine) is None
    (cache / "other").chmod(0o666)
    found = ownership.offence_below(builds, owners=mine)
    assert found is not None
    assert found.path == str(cache / "other")

"""Whose a path is, seen from root's side: everything on the way to it counts."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership
from ansible_collections.gpuwright.node.plugins.modules import root_owned
from tests.unit.modules import run_module
from tests.unit.security.conftest import MALLORY, Give

#: Root, and whoever runs the tests: in these tests both are "the owners".
OURS = (0, os.geteuid())


def test_what_is_ours_with_all_above_it_has_no_offence(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(0o755)
    (tmp_path / "a" / "file").touch(0o644)
    assert ownership.offence(str(tmp_path / "a" / "file"), OURS) is None
    assert ownership.offence_below(str(tmp_path / "a"), OURS) is None


def test_the_owner_of_a_directory_above_can_put_something_else_there(tmp_path: Path, to_mallory: Give) -> None:
    (tmp_path / "home/venv").mkdir(parents=True)
    to_mallory(tmp_path / "home")
    found = ownership.offence(str(tmp_path / "home/venv/bin/python"), OURS)
    assert found == (str(tmp_path / "home"), f"{tmp_path}/home, which belongs to user {MALLORY}")


@pytest.mark.parametrize(("mode", "words"), [(0o777, "everybody may write"), (0o757, "everybody may write")])
def test_a_directory_that_others_may_write_is_an_offence(tmp_path: Path, mode: int, words: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(mode)
    found = ownership.offence(str(tmp_path / "a/file"), OURS)
    assert found is not None
    assert words in found.text


def test_a_group_may_write_only_where_nobody_else_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o775)
    me = pwd.getpwuid(os.geteuid()).pw_name
    private = SimpleNamespace(gr_name=me, gr_mem=[])
    monkeypatch.setattr(grp, "getgrgid", lambda _gid: private)
    monkeypatch.setattr(pwd, "getpwall", list)
    assert ownership.offence(str(tmp_path / "a"), OURS) is None
    private.gr_mem = ["bob"]
    assert "a group may write" in str(ownership.offence(str(tmp_path / "a"), OURS))
    private.gr_mem = []
    monkeypatch.setattr(pwd, "getpwall", lambda: [SimpleNamespace(pw_name="bob", pw_gid=os.getegid())])
    gid = (tmp_path / "a").stat().st_gid
    monkeypatch.setattr(pwd, "getpwall", lambda: [SimpleNamespace(pw_name="bob", pw_gid=gid)])
    assert "a group may write" in str(ownership.offence(str(tmp_path / "a"), OURS))
    monkeypatch.setattr(pwd, "getpwall", list)
    monkeypatch.setattr(os, "listxattr", lambda _path: ["system.posix_acl_access"])
    assert "a group may write" in str(ownership.offence(str(tmp_path / "a"), OURS))


def test_a_shared_directory_is_passed_where_the_entry_is_ours(tmp_path: Path, to_mallory: Give) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "ours").mkdir()
    assert ownership.offence(str(shared / "ours"), OURS) is None
    to_mallory(shared / "ours")
    assert ownership.offence(str(shared / "ours"), OURS) is not None


def test_what_is_not_there_yet_in_a_shared_directory_can_be_made_by_anybody(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    for path in (shared, shared / "new", shared / "new/deep"):
        found = ownership.offence(str(path), OURS)
        assert found == (str(shared), f"{shared}, in which everybody may make something")
        assert ownership.offence(str(path), OURS, sticky=True) is None
    assert ownership.offence(str(tmp_path / "new"), OURS) is None


def test_a_link_counts_with_its_own_directory_and_with_where_it_leads(tmp_path: Path, to_mallory: Give) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "ways").mkdir()
    (tmp_path / "ways/relative").symlink_to("../target")
    (tmp_path / "ways/absolute").symlink_to(tmp_path / "target")
    for name in ("relative", "absolute"):
        assert ownership.offence(str(tmp_path / "ways" / name / "file"), OURS) is None
    to_mallory(tmp_path / "target")
    for name in ("relative", "absolute"):
        found = ownership.offence(str(tmp_path / "ways" / name / "file"), OURS)
        assert found is not None
        assert found.path == str(tmp_path / "target")


def test_a_link_of_somebody_else_is_an_offence_wherever_it_leads(tmp_path: Path, to_mallory: Give) -> None:
    (tmp_path / "link").symlink_to("/usr")
    assert ownership.offence(str(tmp_path / "link"), OURS) is None
    to_mallory(tmp_path / "link")
    assert ownership.offence(str(tmp_path / "link"), OURS) is not None


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert "leads nowhere" in str(ownership.offence(str(tmp_path / "one"), OURS))


def test_a_way_that_goes_up_again_is_judged_where_it_is(tmp_path: Path, to_mallory: Give) -> None:
    (tmp_path / "a").mkdir()
    to_mallory(tmp_path / "a")
    found = ownership.offence(f"{tmp_path}/a/../b", OURS)
    assert found is not None
    assert found.path == str(tmp_path / "a")


@pytest.mark.parametrize("name", ["python", "lib", "lib/module.py", "link"])
def test_everything_below_counts_where_all_of_it_is_run(tmp_path: Path, to_mallory: Give, name: str) -> None:
    (tmp_path / "venv/lib").mkdir(parents=True)
    (tmp_path / "venv/python").touch()
    (tmp_path / "venv/lib/module.py").touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "venv/link").symlink_to("../outside")
    assert ownership.offence_below(str(tmp_path / "venv"), OURS) is None
    to_mallory(tmp_path / "outside" if name == "link" else tmp_path / "venv" / name)
    assert ownership.offence_below(str(tmp_path / "venv"), OURS) is not None


@pytest.mark.parametrize(
    ("place", "mode", "is_passed"),
    [(".lock", 0o666, True), (".lock", 0o777, False), ("lib/.lock", 0o666, False), ("pyvenv.cfg", 0o666, False)],
)
def test_the_lock_file_that_uv_leaves_is_no_offence(tmp_path: Path, place: str, mode: int, is_passed: bool) -> None:
    (tmp_path / "venv/lib").mkdir(parents=True)
    (tmp_path / "venv" / place).touch()
    (tmp_path / "venv" / place).chmod(mode)
    assert (ownership.offence_below(str(tmp_path / "venv"), OURS) is None) is is_passed


def test_a_lock_file_that_is_a_users_or_a_link_is_an_offence(tmp_path: Path, to_mallory: Give) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one/.lock").touch()
    to_mallory(tmp_path / "one/.lock")
    (tmp_path / "elsewhere").touch()
    (tmp_path / "elsewhere").chmod(0o666)
    (tmp_path / "two/.lock").symlink_to("../elsewhere")
    assert ownership.offence_below(str(tmp_path / "one"), OURS) is not None
    assert ownership.offence_below(str(tmp_path / "two"), OURS) is not None


def test_a_shared_directory_below_is_an_offence(tmp_path: Path) -> None:
    (tmp_path / "venv/drop").mkdir(parents=True)
    (tmp_path / "venv/drop").chmod(0o1777)
    assert ownership.offence_below(str(tmp_path / "venv"), OURS) is not None


def test_the_module_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o777)
    answer = run_module(root_owned, paths=["/usr/bin", str(tmp_path / "a")], remedy="do this")
    assert answer["failed"] is True
    # An ordinary user who runs the tests has an offence in the directories above already.
    assert answer["msg"].startswith(f"Expected {tmp_path}/a to belong to root")
    assert answer["msg"].endswith("What to do: do this")
    assert run_module(root_owned, paths=["/usr/bin", "/usr/bin/not-there"])["changed"] is False

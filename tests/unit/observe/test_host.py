from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import run, versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from tests.unit.observe.trees import FakePrograms, Tree


def test_links_are_followed_inside_the_tree(tree: Tree) -> None:
    tree.file("/usr/lib/inside", "inside")
    tree.link("/lib", "usr/lib")
    tree.link("/etc/absolute", "/lib/inside")
    tree.link("/etc/climbing", "../../../../usr/lib/inside")
    host = tree.host()
    assert host.read("/etc/absolute") == "inside"
    assert host.read("/etc/climbing") == "inside"
    assert host.realpath("/etc/absolute") == "/usr/lib/inside"


def test_a_link_to_a_place_outside_does_not_reach_it(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    tree.link("/etc/leak", str(tmp_path / "secret"))
    assert tree.host().read("/etc/leak") is None


def test_a_loop_of_links_ends(tree: Tree) -> None:
    tree.link("/a", "b")
    tree.link("/b", "a")
    assert tree.host().exists("/a") is False


def test_absent_is_none_and_unreadable_is_unknown(tree: Tree) -> None:
    tree.directory("/etc/thing")
    host = tree.host()
    assert host.read("/etc/absent", "x") is None
    assert host.unknown_facts == {}
    assert host.read("/etc/thing", "some.fact") is None
    assert "/etc/thing" in host.unknown_facts["some.fact"]


def test_programs_are_not_run_for_another_tree_unless_they_take_its_root(tree: Tree) -> None:
    programs = FakePrograms()
    host = tree.host(programs)
    assert host.run(["true"]).rc is None
    assert programs.calls == []
    host.run(["rpm", "--root", host.root], takes_root=True)
    assert len(programs.calls) == 1


def test_globs_match_like_a_shell(tree: Tree) -> None:
    for name in ("a.conf", ".hidden.conf", "b.txt"):
        tree.file(f"/etc/d/{name}")
    assert tree.host().glob("/etc/*/*.conf") == ["/etc/d/a.conf"]
    assert Host().glob("/etc/passw?") == ["/etc/passwd"]


def test_a_program_runs_in_the_c_locale_without_a_shell() -> None:
    result = run.run(["env"])
    assert "LC_ALL=C\n" in result.out
    assert run.run(["echo", "$HOME; ls"]).out == "$HOME; ls\n"


def test_a_program_that_hangs_is_killed_with_its_children() -> None:
    start = time.monotonic()
    result = run.run(["sh", "-c", "sleep 60 & echo $!; wait"], timeout=0.5)
    assert time.monotonic() - start < 5
    assert result.rc is None
    assert "0.5 s" in str(result.error)
    child = int(result.out)
    for _ in range(50):
        if not Path(f"/proc/{child}").exists() or "\nState:\tZ" in Path(f"/proc/{child}/status").read_text():
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        pytest.fail("the child lives on")


def test_a_missing_program_is_an_error_not_an_exception() -> None:
    assert "could not be run" in str(run.run(["no-such-program-anywhere"]).error)


def test_versions_compare_as_numbers() -> None:
    releases = ["6.8.0-101-generic", "6.8.0-9-generic", "6.12.1"]
    assert sorted(releases, key=versions.key) == ["6.8.0-9-generic", "6.8.0-101-generic", "6.12.1"]
    assert versions.key("2.1rc1") < versions.key("2.1") < versions.key("2.1.1")


@pytest.mark.parametrize(
    ("packaged", "said"),
    [
        ("5:26.1.5-1~debian.12~bookworm", "26.1.5"),
        ("26.1.5+dfsg1-9", "26.1.5"),
        ("580.95.05-0ubuntu0.24.04.2", "580.95.05"),
        ("1.6.20~ds1-1+deb12u3", "1.6.20"),
        ("9.10.2.21-1", "9.10.2.21"),
        ("3.12.3-1ubuntu0.5", "3.12.3"),
    ],
)
def test_the_makers_version_is_cut_out_of_a_packaged_one(packaged: str, said: str) -> None:
    assert versions.upstream(packaged) == said

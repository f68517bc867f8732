"""The real apt, over an index and a dpkg status that are made here: what holds do, and what takes them away."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import simulated
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import driver_set
from ansible_collections.gpuwright.node.plugins.module_utils.packages import private_apt

pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None, reason="asks the real apt")

OLD, NEW = "580.126.20-1", "580.178.04-1"
NAMES = ["libcuda1", "nvidia-driver-cuda"]


def stanza(name: str, version: str, more: str = "") -> str:
    depends = f"Depends: libcuda1 (= {version})\n" if name == "nvidia-driver-cuda" else ""
    return f"Package: {name}\n{more}Version: {version}\nArchitecture: all\nMaintainer: x <x@y.example>\n{depends}Description: made up\n"


class Apt:
    """apt with all that it reads and writes below a directory of its own; two packages are installed in their older build."""

    def __init__(self, place: Path, *, held: bool) -> None:
        for path in (
            "repository",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "etc/sources.list.d",
            "lists/partial",
            "cache/archives/partial",
            "log",
        ):
            (place / path).mkdir(parents=True)
        selection = "hold" if held else "install"
        files = f"Filename: ./x.deb\nSize: 1\nSHA256: {'0' * 64}\n"
        offered = [stanza(name, version, files) for name in NAMES for version in (OLD, NEW)]
        (place / "repository/Packages").write_text("\n".join(offered))
        (place / "status").write_text(
            "\n".join(stanza(name, OLD, f"Status: {selection} ok installed\n") for name in NAMES)
        )
        (place / "etc/sources.list").write_text(f"deb [trusted=yes] file:{place}/repository ./\n")
        self.options = [
            "-o", f"Dir::Etc={place}/etc", "-o", f"Dir::State={place}", "-o", f"Dir::State::lists={place}/lists",
            "-o", f"Dir::State::status={place}/status", "-o", f"Dir::Cache={place}/cache", "-o", "Debug::NoLocking=true",
            "-o", f"Dir::Log={place}/log",
        ]  # fmt: skip
        assert self("apt-get", "update").ok

    def __call__(self, *argv: str) -> Result:
        words = [argv[0], *self.options, *argv[1:]]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            env={"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        return Result(done.returncode, done.stdout, done.stderr, 0.1, None)

    def host(self) -> Host:
        """A host whose programs are answered by this apt."""
        return Host(root="/", runner=lambda argv, **_options: self(*argv))


def test_a_held_set_stays_and_a_free_one_would_move(tmp_path: Path) -> None:
    assert driver_set.would_move(Apt(tmp_path / "held", held=True).host(), NAMES) == []
    free = driver_set.would_move(Apt(tmp_path / "free", held=False).host(), NAMES)
    assert sorted(row["name"] for row in free or ()) == NAMES
    assert {(row["from"], row["to"]) for row in free or ()} == {(OLD, NEW)}


def test_the_question_leaves_no_trace_in_the_logs_of_apt(tmp_path: Path) -> None:
    apt = Apt(tmp_path, held=False)
    assert driver_set.would_move(apt.host(), NAMES)
    assert not list((tmp_path / "log").iterdir())
    assert apt("apt-get", "-s", "dist-upgrade").ok
    assert list((tmp_path / "log").iterdir()), "this apt writes none: nothing was shown"


def test_a_held_dependency_does_not_keep_the_index_from_planning_the_move(tmp_path: Path) -> None:
    apt = Apt(tmp_path / "held", held=True)
    wanted = f"nvidia-driver-cuda={NEW}"
    allowed = apt("apt-get", "-s", "--allow-change-held-packages", "install", wanted)
    assert not allowed.ok, "this is why the role takes the holds back first"
    planned = apt("apt-get", "-s", *private_apt.MAY_MOVE, "install", wanted)
    assert planned.ok, planned.err
    assert sorted(row["name"] for row in simulated.parse(planned.out)[0]) == NAMES


@pytest.mark.parametrize("state", ["ok unpacked", "reinstreq half-installed", "reinstreq half-configured"])
def test_a_package_that_dpkg_left_unfinished_does_not_keep_apt_from_solving_the_rest(
    tmp_path: Path, state: str
) -> None:
    apt = Apt(tmp_path, held=False)
    status = tmp_path / "status"
    cut_off = stanza("libcuda1", OLD, f"Status: install {state}\n") + "\n"
    cut_off += stanza("nvidia-driver-cuda", NEW, "Status: install ok installed\n")
    status.write_text(cut_off)
    trial = ("apt-get", "-s", *private_apt.MAY_MOVE, "install")
    refused = apt(*trial, f"nvidia-driver-cuda={NEW}")
    assert "--fix-broken" in refused.out + refused.err, refused
    status.write_text(private_apt.finished(cut_off))
    assert apt(*trial, f"nvidia-driver-cuda={NEW}").ok
    older = apt(*trial, f"nvidia-driver-cuda={OLD}")
    assert f"Inst nvidia-driver-cuda [{NEW}] ({OLD}" in older.out, older


def test_what_is_finished_keeps_its_relations() -> None:
    whole = stanza("libcuda1", OLD, "Status: install ok installed\n") + "\n" + stanza("nvidia-driver-cuda", OLD)
    assert private_apt.finished(whole) == whole
    unfinished = whole.replace("ok installed", "ok half-configured")
    assert "Depends" not in private_apt.finished(unfinished)
    assert private_apt.finished(unfinished.replace("ok half-c", "reinstreq half-c")) == private_apt.finished(unfinished)
    assert "half" not in private_apt.finished(unfinished)
    other = unfinished + "\n" + "Package: x\nStatus: install ok installed\nDepends: libcuda1-dbg, y\nDescription: x\n"
    assert "Depends: libcuda1-dbg, y" in private_apt.finished(other)

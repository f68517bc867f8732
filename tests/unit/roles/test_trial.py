"""What the role packages has the real apt do, on a record of its own: nothing of somebody else's goes but by name. It is all simulated."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.filter import driver as filters
from ansible_collections.gpuwright.node.plugins.module_utils.base import simulated
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages
from ansible_collections.gpuwright.node.plugins.module_utils.packages import installing
from tests.unit import apt_root

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None, reason="asks the real apt")

_PACKAGE = "Package: {}\nVersion: {}\nArchitecture: amd64\nMaintainer: x\n{}Description: x\n"
_STATUS = "Status: {} ok installed\n"
_FILES = f"Filename: ./x.deb\nSize: 1\nSHA256: {'0' * 64}\n"


class Apt:
    """The real apt on a record and a repository of its own. ``ran``: what the call that installs would do."""

    def __init__(self, place: Path, there: Sequence[str], offered: Sequence[str]) -> None:
        status, archives = place / "status", place / "archives"
        archives.mkdir()
        status.write_text("\n".join(there))
        (archives / "Packages").write_text("\n".join(offered))
        self.options = apt_root.options(place / "root", archives, status)
        # As a set of packages is kept at one version, see installing.py.
        (place / "root/preferences").write_text("Package: vpn\nPin: version 6\nPin-Priority: 1001\n")
        self.ran: str | None = None
        self("apt-get", "update")

    def __call__(self, *argv: str) -> subprocess.CompletedProcess[str]:
        words = [argv[0], *self.options, *argv[1:]]
        return subprocess.run(words, capture_output=True, text=True, check=False, env=apt_root.ENVIRONMENT)

    def run(self, argv: Sequence[str], _extra: Mapping[str, str]) -> tuple[int, str, str]:
        if argv[0] == "dpkg-query":
            return 1, "", ""
        if argv[0] == "apt-mark":
            return 0, "held\n" if "showhold" in argv else "", ""
        installs = "--simulate" not in argv
        done = self(*argv, *(["--simulate"] if installs else []))
        if installs and done.returncode == 0:
            self.ran = done.stdout
        return done.returncode, done.stdout, done.stderr


def there(name: str, version: str, fields: str = "", *, selection: str = "install") -> str:
    return _PACKAGE.format(name, version, _STATUS.format(selection) + fields)


def offered(name: str, version: str, fields: str = "") -> str:
    return _PACKAGE.format(name, version, fields + _FILES)


def call(**more: Any) -> installing.Call:
    rest: Any = {
        "manager": "apt",
        "names": ["ours"],
        "specs": ["ours=2"],
        "allow_downgrade": False,
        "allow_held": False,
    }
    return installing.Call(
        **{**rest, "preferences": "", "enabled": [], "left_out": [], "lock_timeout": 1, **more},
    )


#: What is there, what is offered, and what apt would do to it, each by its name.
WAYS = {
    "conflict": (there("vpn", "7"), [offered("ours", "2", "Conflicts: vpn\n")], "it removes vpn 7"),
    "downgrade": (
        there("vpn", "7"),
        [offered("ours", "2", "Depends: vpn (= 6)\n"), offered("vpn", "6")],
        "it downgrades vpn 7 -> 6",
    ),
    "hold": (
        there("held", "7", selection="hold"),
        [offered("ours", "2", "Depends: held (>= 8)\n"), offered("held", "8")],
        "it changes held 7 -> 8, which is on hold",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_somebody_elses_is_taken_unasked(way: str, tmp_path: Path) -> None:
    is_there, repository, found = WAYS[way]
    apt = Apt(tmp_path, [is_there], repository)
    with pytest.raises(installing.InstallationFailed):
        installing.install(call(), apt.run, False)
    # Where the plan takes something, it is only what the plan names.
    with pytest.raises(installing.InstallationRefused, match=found):
        installing.install(call(takes=True, may_take=["another"]), apt.run, False)
    assert apt.ran is None


@pytest.mark.parametrize("way", WAYS)
def test_what_the_plan_names_goes(way: str, tmp_path: Path) -> None:
    is_there, repository, found = WAYS[way]
    apt = Apt(tmp_path, [is_there], repository)
    installing.install(call(takes=True, may_take=["vpn", "held"]), apt.run, False)
    assert apt.ran is not None
    assert simulated.beyond(apt.ran, ["held"], ["ours"]) == [found]


def test_a_package_that_is_in_nobodys_way_comes_without_a_trial(tmp_path: Path) -> None:
    apt = Apt(tmp_path, [there("vpn", "7")], [offered("ours", "2")])
    installing.install(call(), apt.run, False)
    assert "Inst ours" in str(apt.ran)


def test_what_the_repair_would_take_is_known_before_it_begins(tmp_path: Path) -> None:
    unpacked = there("vpn", "7", "Depends: keys\n").replace("ok installed", "ok unpacked")
    apt = Apt(tmp_path, [unpacked], [])
    said = apt(*packages.REPAIR_TRIAL)
    assert simulated.parse(said.stdout)[1] == [{"name": "vpn", "version": "7"}]
    role: Any = yaml.safe_load((ROOT / "roles/repair/vars/main.yml").read_text())
    options = [word for word in role["__repair_apt_options"] if "{{" not in word][:-1]
    trial = apt("apt-get", *options, "install", "--simulate")
    assert filters.taken_beyond(trial.stdout, ["ours"]) == ["it removes vpn 7"], trial
    assert filters.taken_beyond(trial.stdout, ["vpn"]) == []
    assert apt("apt-get", *options, "install", "--simulate", "--no-remove").returncode != 0


def test_while_dpkg_has_a_journal_its_record_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = Apt(tmp_path, [there("vpn", "7", "Depends: keys\n").replace("ok installed", "ok unpacked")], [])

    def runner(argv: Sequence[str], **_options: object) -> Result:
        done = apt(*argv)
        return Result(done.returncode, done.stdout, done.stderr, 0.1, None)

    journal = tmp_path / "updates"
    journal.mkdir()
    monkeypatch.setattr(packages, "DPKG_JOURNAL", str(journal))
    assert packages.repair_removes(Host(root="/", runner=runner)) == [{"name": "vpn", "version": "7"}]
    (journal / "0001").write_text("")
    assert packages.repair_removes(Host(root="/", runner=runner)) is None

"""What the role packages asks apt and dnf for, and what it leaves alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.packages import installing
from ansible_collections.gpuwright.node.plugins.modules import package_call
from ansible_collections.gpuwright.node.plugins.plugin_utils.components import package_calls
from tests.unit.modules import run_module

PLAN: Any = {
    "package_manager": "apt",
    "packages": {"a": "1:2-3", "b": None, "kernel-headers-5.1-2": "5.1-2"},
    "install": [{"name": "a", "version": "1:2-3"}, {"name": "c", "version": "1:2-3"}, {"name": "d", "version": "9"}],
    "prefer": None,
    "enabled": ["crb"],
    "left_out": ["foreign"],
    "takes": [],
    "may_take": ["ours"],
}
NOTHING_GOES: Any = {"installed": [], "removed": []}


class Programs:
    """Programs that answer as they were told; each call is noted with its environment."""

    def __init__(self, answers: Mapping[str, tuple[int, str, str]]) -> None:
        self.answers = answers
        self.called: list[list[str]] = []
        self.preferences: str | None = None

    def __call__(self, argv: Sequence[str], extra: Mapping[str, str]) -> tuple[int, str, str]:
        self.called.append(list(argv))
        assert extra["NEEDRESTART_SUSPEND"] == "1"
        if "APT_CONFIG" in extra:
            settings = Path(extra["APT_CONFIG"]).read_text()
            self.preferences = Path(settings.split('"')[1]).read_text()
        return self.answers.get(argv[0], (0, "", ""))


def call(manager: str = "apt", **more: Any) -> installing.Call:
    plan: Any = {**PLAN, "package_manager": manager, **more.pop("plan", {})}
    names = more.pop("names", ["a", "b"])
    rest = {"allow_downgrade": False, "allow_held": False, "lock_timeout": 300, **more}
    of_plan: Any = package_calls.of_plan(plan, names)
    return installing.Call(names=names, **of_plan, **rest)


def test_what_dpkg_has_in_that_version_is_not_installed_again_and_belongs_to_nobody_else(tmp_path: Path) -> None:
    programs = Programs({"dpkg-query": (0, "a amd64 installed 1:2-3\nb all installed 7\n", "")})
    assert installing.install(call(), programs, False, str(tmp_path)) == {"changed": False, "installed": []}
    assert [argv[0] for argv in programs.called] == ["dpkg-query", "apt-mark"]
    assert programs.called[-1] == ["apt-mark", "manual", "a", "b"]


@pytest.mark.parametrize(
    ("said", "due"),
    [
        ("", ["a=1:2-3", "b"]),
        ("a amd64 installed 1:2-2\nb all installed 7\n", ["a=1:2-3"]),
        ("a amd64 half-configured 1:2-3\nb all config-files 7\n", ["a=1:2-3", "b"]),
        ("a amd64 not-installed \nb all installed 7\n", ["a=1:2-3"]),
    ],
)
def test_apt_is_asked_for_what_is_not_there_whole_at_the_plans_version(
    said: str, due: list[str], tmp_path: Path
) -> None:
    programs = Programs({"dpkg-query": (1, said, "no packages found")})
    answer = installing.install(call(), programs, False, str(tmp_path))
    assert answer == {"changed": True, "installed": due}
    install = programs.called[1]
    options = [
        "Dpkg::Options::=--force-confdef",
        "Dpkg::Options::=--force-confold",
        "APT::Install-Recommends=no",
        "DPkg::Lock::Timeout=300",
    ]
    words = [word for each in options for word in ("-o", each)]
    assert install == ["apt-get", "-y", *words, "--no-remove", "install", *due]


def test_a_package_of_another_architecture_is_looked_for_by_its_whole_name() -> None:
    said = "libx amd64 installed 2\nlibx i386 installed 1\n"
    assert installing.not_there(["libx=2", "libx:i386=2", "libx:i386", "y"], said) == ["libx:i386=2", "y"]


def test_older_versions_and_holds_are_passed_over_only_where_that_is_said(tmp_path: Path) -> None:
    programs = Programs({})
    installing.install(call(allow_downgrade=True, allow_held=True), programs, False, str(tmp_path))
    assert {"--allow-downgrades", "--allow-change-held-packages"} <= set(programs.called[1])


def test_what_is_preferred_is_told_to_this_call_alone_and_nothing_of_it_stays(tmp_path: Path) -> None:
    programs = Programs({})
    installing.install(call(plan={"prefer": "1:2"}), programs, False, str(tmp_path))
    assert programs.preferences is not None
    assert programs.preferences.startswith("Package: a\nPin: version 1:2-3\nPin-Priority: 1002\n")
    assert "Package: /./\nPin: version 1:2*\nPin-Priority: 1001\n" in programs.preferences
    assert "Package: d" not in programs.preferences
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_it_stays_where_apt_fails_either(tmp_path: Path) -> None:
    programs = Programs({"apt-get": (100, "", "E: disk full")})
    with pytest.raises(installing.InstallationFailed, match=r"^E: disk full [(]'apt-get .* failed[)]"):
        installing.install(call(plan={"prefer": "1:2"}), programs, False, str(tmp_path))
    assert programs.preferences is not None
    assert list(tmp_path.iterdir()) == []


def test_the_machines_own_preferences_stay_in_force(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("Package: mine\nPin: version 1\nPin-Priority: 999\n")
    settings = installing.write_preferences("Package: a\n\n", str(tmp_path / "run"), str(own))
    path = Path(Path(settings).read_text().split('"')[1])
    assert path.read_text() == f"Package: a\n\n{own.read_text()}"
    assert path.stat().st_mode & 0o777 == 0o644
    installing.write_preferences("Package: a\n\n", str(tmp_path / "run"), str(tmp_path / "none"))
    assert path.read_text() == "Package: a\n\n"


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_a_look_tells_what_would_be_installed_and_changes_nothing(manager: str, tmp_path: Path) -> None:
    programs = Programs({"dpkg-query": (1, "", ""), "rpm": (1, "", "")})
    answer = installing.install(call(manager), programs, True, str(tmp_path))
    assert answer["changed"]
    assert answer["msg"] == "Would install " + ", ".join(answer["installed"])
    assert [argv[0] for argv in programs.called] == ["dpkg-query" if manager == "apt" else "rpm"]


def test_nothing_is_asked_for_no_package() -> None:
    programs = Programs({})
    assert not installing.install(call(names=[]), programs, False)["changed"]
    assert programs.called == []


def test_rpm_is_asked_without_epochs_and_dnf_brings_the_whole_set() -> None:
    programs = Programs({"rpm": (2, "", "")})
    asked: dict[str, Any] = {}

    def trial(given: Mapping[str, object]) -> Any:
        asked.update(given)
        return NOTHING_GOES

    answer = installing.install(call("dnf"), programs, False, trial=trial)
    specs = ["a-1:2-3", "b", "c-1:2-3"]
    assert asked == {"specs": specs, "may_take": ["ours"], "enabled": ["crb"], "left_out": ["foreign"]}
    assert "--allowerasing" not in programs.called[1]
    assert programs.called[0] == ["rpm", "--query", "--queryformat", "", "a-2-3", "b", "c-2-3"]
    assert programs.called[1][-4:] == ["install", "a-1:2-3", "b", "c-1:2-3"]
    assert answer["installed"] == ["a-1:2-3", "b", "c-1:2-3"]


def test_a_name_that_carries_its_version_is_not_given_one_more() -> None:
    assert package_calls.specs("dnf", PLAN, ["kernel-headers-5.1-2"]) == ["kernel-headers-5.1-2"]


def test_what_rpm_has_is_left_alone() -> None:
    programs = Programs({})
    assert not installing.install(call("dnf"), programs, False)["changed"]
    assert [argv[0] for argv in programs.called] == ["rpm"]


def test_more_missing_packages_than_were_asked_for_are_an_error() -> None:
    with pytest.raises(installing.InstallationFailed):
        installing.install(call("dnf"), Programs({"rpm": (4, "", "rpmdb: broken")}), False)


def test_dnf_is_given_the_repositories_that_are_enabled_for_the_run() -> None:
    command = installing.dnf_command(call("dnf"))
    assert {"--enablerepo=crb", "--disablerepo=foreign"} <= set(command)
    assert command[-1] == "install"
    assert not {"--disableplugin=versionlock", "--allowerasing"} & set(command)
    assert "--allowerasing" not in installing.dnf_command(call("dnf", allow_downgrade=True))
    assert "--disableplugin=versionlock" in installing.dnf_command(call("dnf", allow_held=True))


def test_dnf_erases_only_what_a_trial_says_that_goes_and_the_plan_names() -> None:
    programs = Programs({"rpm": (1, "", "")})
    gone: Any = {"installed": ["a-2-3.x86_64"], "removed": ["ours-1-1.x86_64"]}
    installing.install(call("dnf"), programs, False, trial=lambda _given: gone)
    assert "--allowerasing" in programs.called[1]


@pytest.mark.parametrize(
    "said", [{"refused": "others would go with it: company-vpn", "others": ["company-vpn"]}, {"failed": "no index"}]
)
def test_dnf_is_not_called_where_the_trial_is_refused(said: Any) -> None:
    programs = Programs({"rpm": (1, "", "")})
    with pytest.raises(installing.InstallationRefused, match=str(next(iter(said.values())))):
        installing.install(call("dnf"), programs, False, trial=lambda _given: said)
    assert [argv[0] for argv in programs.called] == ["rpm"]


class Apt(Programs):
    """apt, whose trial says so."""

    def __init__(self, trial: str, holds: str = "") -> None:
        super().__init__({"apt-mark": (0, holds, "")})
        self.trial = trial

    def __call__(self, argv: Sequence[str], extra: Mapping[str, str]) -> tuple[int, str, str]:
        super().__call__(argv, extra)
        return (0, self.trial, "") if "--simulate" in argv else self.answers.get(argv[0], (0, "", ""))

    @property
    def installation(self) -> list[str]:
        """The call that changes something; none where there was none."""
        return next((argv for argv in self.called if argv[:2] == ["apt-get", "-y"]), [])


TAKES = {"takes": [{"name": "ours"}]}


@pytest.mark.parametrize("more", [{"plan": TAKES}, {"allow_downgrade": True}, {"allow_held": True}])
def test_apt_is_told_by_name_what_a_trial_says_that_goes(more: Any, tmp_path: Path) -> None:
    apt = Apt("Remv ours [1]\n")
    installing.install(call(**more), apt, False, str(tmp_path))
    assert apt.installation[-4:] == ["install", "a=1:2-3", "b", "ours-"]
    assert "--no-remove" not in apt.installation


@pytest.mark.parametrize(
    ("trial", "holds", "found"),
    [
        ("Remv company-vpn [7.1]\n", "", "it removes company-vpn 7.1"),
        ("Inst libfoo [2.0] (1.0 x [amd64])\n", "", "it downgrades libfoo 2.0 -> 1.0"),
        ("Inst libfoo [1.0] (2.0 x [amd64])\n", "libfoo\n", "it changes libfoo 1.0 -> 2.0, which is on hold"),
    ],
)
def test_nothing_is_changed_where_the_trial_takes_what_the_plan_does_not_name(
    trial: str, holds: str, found: str, tmp_path: Path
) -> None:
    apt = Apt(trial, holds)
    with pytest.raises(installing.InstallationRefused, match=found):
        installing.install(call(plan={**TAKES, "prefer": "1:2"}), apt, False, str(tmp_path))
    assert apt.installation == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_asked_for_may_go_to_an_older_version_where_that_is_said(tmp_path: Path) -> None:
    apt = Apt("Inst a [1:3-1] (1:2-3 x [amd64])\n")
    installing.install(call(allow_downgrade=True), apt, False, str(tmp_path))
    assert "--no-remove" in apt.installation


def test_a_failure_tells_the_program_and_the_end_of_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = "echo some words; echo no such package >&2; exit 3"
    for name, does in (("dpkg-query", "exit 1"), ("apt-get", fails)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(package_call, "Host", lambda: Host(root=str(tmp_path)))
    answer = run_module(package_call, names=["a"], manager="apt")
    assert answer["failed"]
    assert (answer["cmd"][:2], answer["cmd"][-3:]) == (["apt-get", "-y"], ["--no-remove", "install", "a"])
    assert (answer["rc"], answer["stdout"], answer["stderr"]) == (3, "some words\n", "no such package\n")
    assert answer["msg"] == "no such package ('{}' failed)".format(" ".join(answer["cmd"]))
    failed = installing.InstallationFailed(["apt-get", "install"], 100, "x" * 50_000 + "last", "E: no")
    assert failed.answer["cmd"] == ["apt-get", "install"]
    assert failed.answer["stdout"].endswith("last")
    assert len(json.dumps(failed.answer)) < 30_000


_LAST = "E: Sub-process /usr/bin/dpkg returned an error code (1)"
_BUILD = "Error! Bad return status for module build on kernel: 6.12.9-amd64 (x86_64)"
_PROCESSING = "dpkg: error processing package nvidia-dkms (--configure):\n subprocess returned error exit status 10"


@pytest.mark.parametrize(
    ("out", "err", "cause"),
    [
        (
            f"Setting up a\n/usr/sbin/dkms: line 9: echo: write error: No space left on device\n{_BUILD}",
            _LAST,
            "No space left on device",
        ),
        (f"{_BUILD}\n{_PROCESSING}\n", _LAST, _BUILD),
        (f"{_PROCESSING}\n", _LAST, _PROCESSING.replace("\n", "")),
        (
            "",
            f"E: Unable to fetch some archives\nE: Version '2' for 'a' was not found\n{_LAST}",
            "E: Unable to fetch some archives; E: Version '2' for 'a' was not found",
        ),
        (
            "",
            "Error: Transaction test error:\n  file /usr/bin/a from install of b conflicts with file from package c\n",
            "Error: Transaction test error: file /usr/bin/a from install of b conflicts with file from package c",
        ),
        ("", _LAST, _LAST),
        ("killed\n", "", "killed"),
        ("", "", "it said nothing"),
    ],
)
def test_what_failed_is_told_by_its_cause_and_not_by_the_last_word(out: str, err: str, cause: str) -> None:
    """apt ends with the word that dpkg failed, whatever stood before."""
    assert (
        str(installing.InstallationFailed(["apt-get", "install"], 100, out, err))
        == f"{cause} ('apt-get install' failed)"
    )

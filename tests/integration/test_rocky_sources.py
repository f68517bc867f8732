"""Package sources of somebody else on Rocky Linux, with the real dnf: one that it cannot read, and one that does not answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import snapshot
from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="rocky")]

OLDER, NEWER = "580.126.20", "580.178.04"
_FILE, _SETTINGS, _OWN = "/etc/yum.repos.d/foreign.repo", "/etc/dnf/dnf.conf", "/etc/yum.repos.d/rocky.repo"
#: A port that nobody listens at.
_DEAD = "[foreign]\nname=somebody else's\nbaseurl=http://127.0.0.1:9/rocky\n"
_WISH = ("--want", "driver")

#: What dnf does nothing over: the file and its text, the place that is told, by doctor too.
_STOPS = {
    "settings": (_SETTINGS, "[main]\nbest\n", f"{_SETTINGS}, line 2", f"{_SETTINGS}, line 2"),
    "no address": (_FILE, "# words\n[foreign]\nname=x\n", f"{_FILE}, [foreign]", f"{_FILE}, line 2: [foreign]"),
    "bytes": (_FILE, "[foreign]\nname=\\377\nbaseurl=file:///srv\n", f"{_FILE}, line 2", f"{_FILE}, line 2"),
}
#: What it does without: the text of a file, and what of it is told, by doctor too.
_LEFT_OUT = {
    "line": ("[foreign]\nname=x\ngarbage\nbaseurl=file:///srv\n", ", line 3", ", line 3"),
    "section": ("name=x\n", ", line 1", ", line 1"),
    "indented": ("[foreign]\n name=x\n", ", line 2", ", line 2"),
    "bracket": ("# words\n[foreign\nname=x\n", ", line 2", ", line 2"),
    "behind": ("[foreign] not\nname=x\n", ", line 1", ", line 1"),
    "id": ("[for eign]\nbaseurl=file:///srv\n", ", [for eign]", ", line 1: [for eign]"),
    "value": (
        "[empty]\nbaseurl=file:///srv/none\nenabled=maybe\n",
        "; invalid boolean value",
        ", line 3: enabled=maybe",
    ),
}


@pytest.fixture(scope="module")
def bare(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node as the factory delivers it."""
    machine = make_shared_node("rocky-sources", "rocky")
    machine.shell(f"cp {_SETTINGS} {_OWN} /root/")
    machine.plan(*_WISH)
    return machine


def put(machine: Node, path: str, text: str) -> None:
    """Write a file as somebody else would."""
    machine.shell(f'printf "{text}" > {path}')


def behind_crb(machine: Node) -> None:
    """Have what the headers of a kernel require in a repository of the distribution that is not enabled, as in CRB."""
    crb = "[crb]\\nname=CRB\\nenabled=0\\ngpgcheck=1\\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9"
    machine.shell(
        f"url=$(grep ^baseurl= {_OWN}); printf 'excludepkgs=flex,bison\n' >> {_OWN}; printf \"{crb}\\n$url\\n\" >> {_OWN}"
    )


def take_away(machine: Node) -> None:
    """Leave the sources as they were."""
    machine.shell(f"rm -f {_FILE}; cp /root/dnf.conf {_SETTINGS}; cp /root/rocky.repo {_OWN}")


def named_by_doctor(machine: Node, check_id: str = "packages.sources") -> list[str]:
    """What the check of the sources says, or another one."""
    checks = machine.run("doctor", *_WISH).host["checks"]
    return [check["reason"] for check in checks if check["id"] == check_id and check["status"] != "pass"]


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Paths that differ, but sqlite's index of readers of rpm's database."""
    return set(snapshot.differences(before, after)) - {"/var/lib/rpm/rpmdb.sqlite-shm"}


@pytest.mark.parametrize("case", _STOPS.values(), ids=_STOPS)
def test_what_dnf_does_nothing_over_is_refused_and_named(bare: Node, case: tuple[str, str, str, str]) -> None:
    path, text, place, place_of_doctor = case
    put(bare, path, text)
    try:
        before = bare.tree()
        refused = bare.up(*_WISH)
        (told,) = named_by_doctor(bare)
        after = bare.tree()
    finally:
        take_away(bare)
    assert refused.code == 3, str(refused)
    assert [row["rule"] for row in refused.host["refusals"]] == ["index-broken-source"], str(refused)
    assert f"dnf cannot read {place}" in refused.host["refusals"][0]["text"]
    assert refused.host["refusals"][0]["remedy"].startswith("correct that entry")
    assert f"dnf cannot read {place_of_doctor}" in told
    assert changed(before, after) == set()


#: What keeps packages out: the file, what is added to it, the rule that is told, a package, and whether doctor sees it without asking dnf.
_HIDES = {
    "settings": (_SETTINGS, "exclude=nvidia* kernel*", "exclude=nvidia*", "nvidia-driver-cuda", True),
    "all others": (_SETTINGS, "includepkgs=bash glibc*", "includepkgs=bash glibc*", "nvidia-driver-cuda", True),
    "repository": (_OWN, "excludepkgs=kernel-devel*", "[baseos] exclude=kernel-devel*", "kernel-devel-matched", False),
    "dependency": (_SETTINGS, "exclude=libnvidia-ml", "exclude=libnvidia-ml", "libnvidia-ml", False),
}


@pytest.mark.parametrize("case", _HIDES.values(), ids=_HIDES)
def test_what_keeps_packages_from_dnf_is_refused_and_named(bare: Node, case: tuple[str, str, str, str, bool]) -> None:
    path, line, rule, package, seen = case
    bare.shell(f"printf '%s\n' '{line}' >> {path}")
    try:
        refused = bare.plan(*_WISH)
        told = named_by_doctor(bare, "packages.hidden")
    finally:
        take_away(bare)
    assert refused.code == 3, str(refused)
    assert {row["rule"] for row in refused.host["refusals"]} == {"index-hidden"}, str(refused)
    words = [row["text"] for row in refused.host["refusals"] if f"({rule})" in row["text"]]
    assert [text.startswith(f"{path} keeps ") and package in text for text in words] == [True], str(refused)
    assert bool(told) is seen
    assert all(text.startswith(f"{path} keeps ") for text in told)


def test_what_dnf_does_without_is_named_and_stops_nobody(bare: Node) -> None:
    paths = {name: f"/etc/yum.repos.d/foreign-{name}.repo" for name in _LEFT_OUT}
    for name, (text, _place, _place_of_doctor) in _LEFT_OUT.items():
        put(bare, paths[name], text)
    try:
        planned = bare.plan(*_WISH)
        told = named_by_doctor(bare)
    finally:
        bare.shell("rm /etc/yum.repos.d/foreign-*.repo")
    assert planned.code == 0, str(planned)
    warned = [row["text"] for row in planned.host["warnings"] if row["rule"] == "foreign-source"]
    # The one with the bad value is switched on for dnf, and does not answer.
    assert len(warned) == len(_LEFT_OUT) + 1, warned
    assert len(told) == len(_LEFT_OUT), told
    for name, (_text, place, place_of_doctor) in _LEFT_OUT.items():
        assert any(f"{paths[name]}{place}" in sentence for sentence in warned), warned
        assert any(f"dnf cannot read {paths[name]}{place_of_doctor}" in sentence for sentence in told), told


def test_a_source_that_something_is_missing_without_is_refused(bare: Node) -> None:
    bare.shell(f"sed -i 's,^baseurl=.*,baseurl=http://127.0.0.1:9/,' {_OWN}; dnf -q clean all")
    try:
        refused = bare.plan(*_WISH)
    finally:
        take_away(bare)
    assert refused.code == 3, str(refused)
    assert "index-unreachable" in [row["rule"] for row in refused.host["refusals"]]
    assert any(_OWN in row["text"] for row in refused.host["refusals"]), str(refused)


def test_a_source_that_nothing_comes_from_need_not_answer_for_a_whole_life_with_crb_switched_off(bare: Node) -> None:
    put(bare, _FILE, _DEAD)
    behind_crb(bare)
    assert "'foreign'" in bare.shell("dnf makecache 2>&1 || true")
    done = bare.up("--want", f"driver={OLDER}")
    assert (done.code, done.host["verdict"]) == (0, "pass"), str(done)
    (told,) = [row["text"] for row in done.host["warnings"] if row["rule"] == "foreign-source"]
    assert _FILE in told
    (enabled,) = [row["text"] for row in done.host["warnings"] if row["rule"] == "repository.builder"]
    assert "repository crb" in enabled
    assert bare.shell("rpm -q flex bison").split()
    assert "crb" not in bare.shell("dnf -q repolist --enabled")
    again = bare.up("--want", f"driver={OLDER}")
    assert (again.code, again.roles, again.host["changes"]) == (0, [], []), str(again)
    full = bare.up("--want", f"driver={OLDER}", "--full")
    assert (full.code, full.changed) == (0, 0), str(full)

    moved = bare.run("upgrade", "--yes")
    assert moved.code == 0, str(moved)
    assert NEWER in bare.shell("cat /proc/driver/nvidia/version")
    back = bare.run("rollback", "--yes")
    assert (back.code, back.host["verdict"]) == (0, "pass"), str(back)
    assert OLDER in bare.shell("cat /proc/driver/nvidia/version")
    gone = bare.run("remove", "--yes")
    assert (gone.code, gone.host["verdict"]) == (0, "pass"), str(gone)
    assert bare.shell(f"cat {_FILE}") == _DEAD
    assert bare.shell(f"cat {_SETTINGS}") == bare.shell("cat /root/dnf.conf")
    take_away(bare)

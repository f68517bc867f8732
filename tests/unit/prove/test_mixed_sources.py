"""What `doctor` says of package sources that do not go together."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from tests.unit.plan import nodes

DEBIAN = {"id": "debian", "version": "12", "family": "debian"}
FEDORA = {"id": "fedora", "version": "43", "family": "redhat"}
ROCKY = {"id": "rocky", "version": "9.6", "family": "redhat"}


def source(uri: str, *, enabled: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "file": f"/etc/sources/{uri.strip('/').replace('/', '-')}",
        "types": ["deb"],
        "uris": [f"https://mirror.example{uri}" if uri.startswith("/") else uri],
        "suites": ["/"],
        "components": [],
        "signed_by": None,
        "enabled": enabled,
        **more,
    }


def cuda(system: str, **more: Any) -> dict[str, Any]:
    return source(f"/compute/cuda/repos/{system}/x86_64", **more)


def mixed(facts: Any, system: Any, *rows: Any, **packages: Any) -> list[Check]:
    seen = nodes.merged(facts, {"os": system, "packages": {"sources": list(rows), "hides": [], **packages}})
    return [check for check in judge.judge(seen) if check["id"] == "packages.mixed" and check["status"] != "pass"]


@pytest.mark.parametrize(
    ("system", "own", "other"),
    [(DEBIAN, "debian12", "debian11"), (FEDORA, "fedora43", "fedora42"), (ROCKY, "rhel9", "rhel8")],
)
def test_the_source_for_another_release_is_named(facts: Any, system: Any, own: str, other: str) -> None:
    (check,) = mixed(facts, system, cuda(own), cuda(other))
    assert (check["status"], check["measured"]) == ("warn", [cuda(other)["file"]])
    assert f"this is {own}" in str(check["reason"])
    assert str(check["remedy"]).startswith("remove that file")
    assert mixed(facts, system, cuda(own), cuda(other, enabled=False)) == []
    assert mixed(facts, system, cuda(own), cuda(own), source("/debian/")) == []


def test_what_a_local_installer_left_is_a_source_for_a_release(facts: Any) -> None:
    left = source("file:///var/cuda-repo-debian11-12-4-local")
    (check,) = mixed(facts, DEBIAN, cuda("debian12"), left)
    assert check["measured"] == [left["file"]]


def test_where_neither_is_named_as_this_system_all_are_told(facts: Any) -> None:
    mint = {"id": "linuxmint", "version": "22", "family": "debian"}
    (check,) = mixed(facts, mint, cuda("ubuntu2204"), cuda("ubuntu2404"))
    assert len(check["measured"]) == 2
    assert "all of them but the one" in str(check["remedy"])
    assert mixed(facts, mint, cuda("ubuntu2404")) == []


@pytest.mark.parametrize(
    ("system", "own", "name", "told"),
    [
        (ROCKY, "rhel9", "epel-nvidia", True),
        (FEDORA, "fedora43", "fedora-multimedia", True),
        (FEDORA, "fedora43", "rpmfusion-nonfree-nvidia-driver", True),
        (ROCKY, "rhel9", "rpmfusion-nonfree-updates", True),
        ({**ROCKY, "id": "rhel"}, "rhel9", "rpmfusion-nonfree", True),
        ({**ROCKY, "id": "almalinux"}, "rhel9", "rpmfusion-nonfree", True),
        (ROCKY, "rhel9", "rpmfusion-free-updates", False),
        (ROCKY, "rhel9", "epel", False),
    ],
)
def test_another_packagers_driver_beside_nvidias_is_told(
    facts: Any, system: Any, own: str, name: str, told: bool
) -> None:
    ours, theirs = cuda(own, name="cuda"), source("/other/", name=name)
    found = mixed(facts, system, ours, theirs)
    assert bool(found) is told
    assert not told or (found[0]["measured"] == [name] and "enabled=0" in str(found[0]["remedy"]))
    assert mixed(facts, system, theirs) == []
    for left in ("cuda", name):
        rule = {"file": "/x.repo", "entry": "exclude", "packages": ["*nvidia*"], "except": [], "source": left}
        assert mixed(facts, system, ours, theirs, hides=[rule]) == []


def test_nvidias_source_of_another_release_alone_is_told(facts: Any) -> None:
    ubuntu = {"id": "ubuntu", "version": "24.04", "family": "debian", "codename": "noble"}
    (check,) = mixed(facts, ubuntu, cuda("ubuntu1804"))
    assert "ubuntu1804, and this is ubuntu2404" in str(check["reason"])
    assert mixed(facts, {**ubuntu, "version": "25.10", "codename": "questing"}, cuda("ubuntu2404")) == [], (
        "it has none of its own"
    )


@pytest.mark.parametrize(
    ("suite", "uri", "told"),
    [
        ("groovy", "http://archive.ubuntu.com/ubuntu", True),
        ("jammy-updates", "http://mirror.example/ubuntu/", True),
        ("noble-security", "http://archive.ubuntu.com/ubuntu", False),
        ("jammy", "https://download.docker.com/linux/ubuntu", False),
        ("stable", "http://archive.ubuntu.com/ubuntu", False),
    ],
)
def test_the_archive_of_another_release_is_told(facts: Any, suite: str, uri: str, told: bool) -> None:
    row = {**source(uri), "suites": [suite]}
    seen = nodes.merged(
        facts, {"os": {"id": "ubuntu", "version": "24.04", "codename": "noble"}, "packages": {"sources": [row]}}
    )
    reasons = [str(check["reason"]) for check in judge.judge(seen) if check["id"] == "packages.mixed"]
    assert ["this system is noble" in reason for reason in reasons] == ([True] if told else [])


def test_a_module_of_dnf_that_is_switched_off_brings_no_second_driver(facts: Any) -> None:
    rows = [
        cuda("rhel9", name="cuda-rhel9-x86_64"),
        source("http://example.org/el/9", name="rpmfusion-nonfree-updates"),
    ]
    assert [check["status"] for check in mixed(facts, ROCKY, *rows)] == ["warn"]
    assert mixed(facts, ROCKY, *rows, disabled_modules=["nvidia-driver"]) == []


NOBLE = {"id": "ubuntu", "version": "24.04", "family": "debian", "codename": "noble", "arch": "x86_64"}
BOOKWORM = {**DEBIAN, "codename": "bookworm", "arch": "x86_64"}
MINT = {"id": "linuxmint", "version": "22", "family": "debian", "codename": "wilma", "arch": "x86_64"}


@pytest.mark.parametrize(
    ("system", "uri", "suite", "remedy"),
    [
        (NOBLE, "/docker-ce/linux/debian", "noble", "/linux/ubuntu noble"),
        (NOBLE, "/docker-ce/linux/ubuntu", "noble", None),
        (NOBLE, "/docker-ce/linux/ubuntu", "jammy", None),
        (BOOKWORM, "/linux/ubuntu", "bookworm", "/linux/debian bookworm"),
        (MINT, "/linux/ubuntu", "wilma", "noble in place of wilma"),
        (BOOKWORM, "https://ppa.launchpadcontent.net/x/y/ubuntu", "bookworm", "remove"),
        (NOBLE, "https://ppa.launchpadcontent.net/x/y/ubuntu", "noble", None),
        # What is newer than the tables is not known to be wrong.
        (NOBLE, "/linux/ubuntu", "zealous", None),
    ],
)
def test_a_release_that_is_not_where_it_is_looked_for(
    facts: Any, system: Any, uri: str, suite: str, remedy: str | None
) -> None:
    found = mixed(facts, system, source(uri, suites=[suite]))
    assert [str(remedy) in str(check["remedy"]) for check in found] == ([True] if remedy else [])


@pytest.mark.parametrize(
    ("arch", "directory", "right"),
    [
        ("aarch64", "x86_64", "sbsa"),
        ("aarch64", "arm64", "sbsa"),
        ("x86_64", "sbsa", "x86_64"),
        ("aarch64", "sbsa", None),
    ],
)
def test_nvidias_directory_is_that_of_the_machines_architecture(
    facts: Any, arch: str, directory: str, right: str | None
) -> None:
    found = mixed(facts, {**NOBLE, "arch": arch}, source(f"/compute/cuda/repos/ubuntu2404/{directory}"))
    assert [f"write {right}" in str(check["remedy"]) for check in found] == ([True] if right else [])

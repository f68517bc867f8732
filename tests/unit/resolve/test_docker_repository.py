"""Docker from its own repository: what is asked for, where it comes from, and what it is never put in the place of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import sources

Answer = Callable[..., Any]
Facts = dict[str, Any]
OWN = "container-engine-source=docker"
PACKAGES = ["docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin"]
DEB_KEY = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"
RPM_KEY = "060A61C51B558A7F742B77AAC52FEB6B621E9F35"


def repository(answer: Any) -> Any:
    rows = answer["stack"]["repositories"]
    return next((row for row in rows if row["name"] == "docker"), None)


def only(answer: Any) -> dict[str, Any]:
    """The one conflict of an answer."""
    (conflict,) = answer["conflicts"]
    assert conflict["rule"] == "container-toolkit.engine-source"
    return dict(conflict)


@pytest.mark.parametrize(
    ("os", "directory", "suite"),
    [
        ("debian-12", "debian", "bookworm"),
        ("debian-13", "debian", "trixie"),
        ("ubuntu-22.04", "ubuntu", "jammy"),
        ("ubuntu-24.04", "ubuntu", "noble"),
        ("ubuntu-26.04", "ubuntu", "resolute"),
    ],
)
def test_apt_gets_it_from_the_suite_of_the_release(resolve: Answer, os: str, directory: str, suite: str) -> None:
    found = resolve("RTX PRO 6000 Blackwell Server" if os == "ubuntu-26.04" else "H100", os, OWN)
    engine = found["stack"]["container_toolkit"]["engine"]
    assert engine == {"name": "docker", "packages": PACKAGES, "source": "docker"}
    row = repository(found)
    assert row is not None
    base = f"https://download.docker.com/linux/{directory}"
    assert (row["uris"], row["suites"], row["components"]) == ([base], [suite], ["stable"])
    assert row["key"] == {
        "url": f"{base}/gpg", "fingerprint": DEB_KEY, "path": "/usr/share/keyrings/gpuwright-docker.gpg",
    }  # fmt: skip
    content = sources.source(row, "apt", with_access=False)["content"]
    assert f"URIs: {base}\nSuites: {suite}\nComponents: stable\nSigned-By: {row['key']['path']}\n" in content


@pytest.mark.parametrize("os", ["rhel-9", "rocky-9", "almalinux-10"])
def test_dnf_gets_it_from_the_directory_of_the_release_and_checks_packages(resolve: Answer, os: str) -> None:
    row = repository(resolve("H100", os, OWN))
    assert row is not None
    base = "https://download.docker.com/linux/rhel"
    assert row["uris"] == [f"{base}/{os.rpartition('-')[2]}/x86_64/stable/"]
    assert (row["key"]["url"], row["key"]["fingerprint"]) == (f"{base}/gpg", RPM_KEY)
    content = sources.source(row, "dnf", with_access=False)["content"]
    assert "gpgcheck=1\nrepo_gpgcheck=0\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-gpuwright-docker\n" in content


def test_a_release_that_it_does_not_serve_is_told_which_ones_it_does(resolve: Answer) -> None:
    conflict = only(resolve("A100", "rocky-8", OWN))
    assert "not known to have packages for Rocky Linux 8" in conflict["text"]
    assert "it serves debian-12, debian-13, ubuntu-22.04" in conflict["remedy"]


def test_nobody_gets_it_unasked(resolve: Answer) -> None:
    found = resolve("H100", "debian-13", "container-toolkit")
    assert repository(found) is None
    assert found["stack"]["container_toolkit"]["engine"] == {"name": "docker", "packages": ["docker.io", "docker-cli"]}


def test_a_mirror_has_it_with_its_key(resolve: Answer) -> None:
    row = repository(
        resolve("H100", "debian-13", OWN, wish={"gpuwright_mirrors": {"docker": "http://mirror.example/docker"}})
    )
    assert row is not None
    assert row["uris"] == ["http://mirror.example/docker/debian"]
    assert row["key"]["url"] == "http://mirror.example/docker/debian/gpg"
    assert row["key"]["fingerprint"] == DEB_KEY


def test_a_region_has_a_mirror_of_it(resolve: Answer) -> None:
    row = repository(resolve("H100", "rocky-9", OWN, wish={"gpuwright_mirrors": {"region": "cn"}}))
    assert row is not None
    assert row["uris"] == ["https://mirrors.aliyun.com/docker-ce/linux/rhel/9/x86_64/stable/"]


@pytest.mark.parametrize("engine", ["podman", "containerd"])
def test_it_has_no_other_engine(resolve: Answer, engine: str) -> None:
    conflict = only(resolve("H100", "debian-13", OWN, f"container-engine={engine}"))
    assert f"has Docker alone, and the engine is {engine}" in conflict["text"]


@pytest.mark.parametrize("name", ["docker.io", "docker-cli", "containerd", "runc", "podman-docker", "docker-compose"])
def test_what_is_there_is_used_and_never_replaced_by_it(facts: Facts, answer: Answer, name: str) -> None:
    facts["packages"]["installed"][name] = "1.0-1"
    conflict = only(answer(facts, OWN))
    assert conflict["text"].startswith(f"{name} is there")
    assert f"apt-get remove {name}" in conflict["remedy"]
    assert "leave container-engine-source away" in conflict["remedy"]


def test_a_docker_of_no_package_is_kept(facts: Facts, answer: Answer) -> None:
    facts["containers"]["docker"] |= {"installed": True, "version": None}
    assert "comes from another place" in only(answer(facts, OWN))["text"]


def own(facts: Facts) -> None:
    """Docker's own is there."""
    facts["packages"]["installed"] |= {"docker-ce": "5:29.1.3-1~debian.13~trixie", "containerd.io": "2.2.1-1"}
    facts["containers"]["docker"] |= {"installed": True, "version": "29.1.3"}
    facts["containers"]["containerd"] |= {"installed": True, "version": "2.2.1", "active": True}


@pytest.mark.parametrize("wants", [["container-toolkit"], ["container-engine=docker"]])
def test_one_that_somebody_installed_stays_as_it_is(facts: Facts, answer: Answer, wants: list[str]) -> None:
    own(facts)
    found = answer(facts, *wants)
    assert found["stack"]["container_toolkit"]["engine"] == {"name": "docker", "packages": []}
    assert repository(found) is None


def test_one_that_somebody_installed_is_what_is_asked_for(facts: Facts, answer: Answer) -> None:
    own(facts)
    assert answer(facts, OWN)["stack"]["container_toolkit"]["engine"]["packages"] == PACKAGES


def test_the_distributions_is_not_put_in_its_place(facts: Facts, answer: Answer) -> None:
    own(facts)
    conflict = only(answer(facts, "container-engine-source=distro", "container-engine=docker"))
    assert "Docker's own is there (docker-ce)" in conflict["text"]
    assert "apt-get remove docker-ce" in conflict["remedy"]


@pytest.fixture
def rocky(facts: Facts) -> Facts:
    facts["os"] |= {"id": "rocky", "version": "9.6", "codename": "", "family": "redhat"}
    facts["packages"] |= {"installed": {}, "manager": "dnf", "sources": []}
    return facts


def test_dnf_removes_by_hand_with_dnf(rocky: Facts, answer: Answer) -> None:
    rocky["packages"]["installed"]["runc"] = "1.1"
    assert "`dnf remove runc`" in only(answer(rocky, OWN))["remedy"]


@pytest.mark.parametrize(
    ("there", "package"), [("runc", "containerd.io"), ("podman-docker", "docker-ce-cli"), ("crun", None)]
)
def test_what_dockers_own_cannot_be_beside_is_told_where_it_has_to_come_by_hand(
    rocky: Facts, answer: Answer, there: str, package: str | None
) -> None:
    rocky["packages"]["installed"][there] = "1"
    (conflict,) = answer(rocky, "container-engine=docker")["conflicts"]
    assert (f"Docker's own {package} does not come beside {there}" in conflict["text"]) == (package is not None)
    assert (f"dnf remove {there}" in conflict["remedy"]) == (package is not None)


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        ("nvidia-docker2", "2.0.3-1.docker18.09.4.ce", True),
        ("nvidia-docker2", "2.14.0-1", False),
        ("nvidia-container-runtime", "3.5.0-1", True),
        ("nvidia-container-runtime", "3.14.0-1", False),
        ("nvidia-container-runtime-hook", "1.4.0-2", True),
    ],
)
def test_packages_whose_place_the_toolkit_takes_are_told(
    rocky: Facts, answer: Answer, name: str, version: str, told: bool
) -> None:
    rocky["packages"]["installed"][name] = version
    texts = [
        row["text"]
        for row in answer(rocky, "container-toolkit")["warnings"]
        if row["rule"] == "container-toolkit.before"
    ]
    assert len(texts) == told
    assert all(f"{name} {version}" in text and f"dnf remove {name}" in text for text in texts)

"""What `doctor` says of package sources one by one: their keys, their addresses, and the proxy before them."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.health import judge
from tests.unit.plan import nodes

NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos"
KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"
OTHER = "4EEAA4CB9E499B065DDBE35D15B074B730708F59"
TOOLKIT = "https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH)"


def told(uri: str, *, manager: str = "apt", suites: Any = ("/",), packages: Any = None, **more: Any) -> Any:
    row = {
        "file": "/etc/apt/sources.list.d/a.list",
        "types": ["deb" if manager == "apt" else "rpm"],
        "uris": [uri],
        "suites": list(suites),
        "components": [],
        "signed_by": "/usr/share/keyrings/a.gpg",
        "enabled": True,
        **more,
    }
    seen = nodes.merged(
        nodes.provisioned(),
        {"packages": {"manager": manager, "broken_sources": [], "sources": [row], **(packages or {})}},
    )
    return [check for check in judge.judge(seen) if check["id"] == "packages.sources" and check["status"] == "warn"]


@pytest.mark.parametrize(
    ("uri", "keys", "named"),
    [
        (f"{NVIDIA}/ubuntu2404/x86_64", [OTHER], "3bf863cc.pub"),
        (f"{NVIDIA}/ubuntu2404/x86_64/", [OTHER, KEY], None),
        (f"{NVIDIA}/debian13/x86_64/", [KEY], "8793F200.pub"),
        ("https://developer.download.nvidia.cn/compute/cuda/repos/ubuntu2404/x86_64", [OTHER], "3bf863cc.pub"),
        (TOOLKIT, [OTHER], "gpgkey"),
        ("https://download.docker.com/linux/ubuntu", [OTHER], "https://download.docker.com/linux/ubuntu/gpg"),
        # Who signs a copy of their own has a key of their own, and a system that the tables do not know has any.
        ("https://mirror.example/compute/cuda/repos/ubuntu2404/x86_64", [OTHER], None),
        (f"{NVIDIA}/ubuntu9904/x86_64", [OTHER], None),
        ("file:///var/cuda-repo-ubuntu2404-12-8-local", [OTHER], None),
        (f"{NVIDIA}/ubuntu2404/x86_64", None, None),
    ],
)
def test_a_known_publisher_signs_by_the_key_that_its_source_has(uri: str, keys: Any, named: str | None) -> None:
    found = told(uri, **({"keys": keys} if keys else {}))
    assert [str(named) in str(check["remedy"]) and "NO_PUBKEY" in check["reason"] for check in found] == (
        [True] if named else []
    )


def test_a_source_without_a_keyring_of_its_own_is_told_where_the_key_belongs() -> None:
    (found,) = told(f"{NVIDIA}/ubuntu2404/x86_64", signed_by=None, keys=[OTHER])
    assert "no such key in /etc/apt/trusted.gpg.d" in found["reason"]
    assert "into /etc/apt/trusted.gpg.d" in found["remedy"]


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("7fa2af80.pub", True), ("D42D0685.pub", False), ("gpgkey", False), ("7fa2af80.pub D42D0685.pub", False)],
)
def test_dnf_fetches_the_key_that_signs(key: str, wrong: bool) -> None:
    base = f"{NVIDIA}/rhel9/x86_64"
    found = told(base, manager="dnf", signed_by=" ".join(f"{base}/{each}" for each in key.split()))
    assert bool(found) == wrong
    assert not wrong or f"gpgkey={base}/D42D0685.pub" in found[0]["remedy"]


@pytest.mark.parametrize("fault", ["closed", "form", "empty", "none"])
def test_each_fault_of_a_keyring_has_its_words_and_its_remedy(fault: str) -> None:
    (found,) = told("https://mirror.example/x", key_fault=fault)
    assert "/usr/share/keyrings/a.gpg" in found["reason"]
    assert "/usr/share/keyrings/a.gpg" in found["remedy"]
    assert told("https://mirror.example/x", key_fault=fault, enabled=False) == []


@pytest.mark.parametrize(
    ("uri", "suite", "gone"),
    [
        ("https://nvidia.github.io/libnvidia-container/stable/ubuntu22.04/$(ARCH)", "/", True),
        ("https://nvidia.github.io/nvidia-docker/ubuntu20.04/amd64", "/", True),
        (TOOLKIT, "/", False),
        ("https://nvidia.github.io/libnvidia-container/experimental/deb/amd64", "/", False),
        ("https://apt.kubernetes.io/", "kubernetes-xenial", True),
        ("https://packages.cloud.google.com/apt", "cloud-sdk", False),
        ("http://packages.cloud.google.com/apt", "kubernetes-xenial", True),
        ("https://pkgs.k8s.io/core:/stable:/v1.32/deb/", "/", False),
        ("http://de.archive.ubuntu.com/ubuntu", "kinetic-updates", True),
        ("http://archive.ubuntu.com/ubuntu", "noble", False),
        ("http://old-releases.ubuntu.com/ubuntu", "kinetic", False),
        ("http://ftp.de.debian.org/debian", "buster", True),
        ("http://ftp.de.debian.org/debian", "bullseye", False),
        ("http://ftp.de.debian.org/debian", "bullseye-backports", True),
        ("http://ftp.de.debian.org/debian", "trixie-backports", False),
        ("http://archive.debian.org/debian", "buster", False),
    ],
)
def test_an_address_that_was_given_up_is_known(uri: str, suite: str, gone: bool) -> None:
    found = told(uri, suites=[suite])
    assert bool(found) == gone
    assert not gone or f"{uri} {suite}".strip() in found[0]["reason"]


def test_an_address_that_was_given_up_hides_no_fault_of_another_source() -> None:
    over: dict[str, Any] = {
        "file": "/etc/apt/sources.list.d/k8s.list",
        "types": ["deb"],
        "components": [],
        "signed_by": None,
    }
    over |= {"uris": ["https://apt.kubernetes.io/"], "suites": ["kubernetes-xenial"], "enabled": True}
    shut = {**over, "file": "/etc/apt/sources.list.d/a.list", "uris": ["https://mirror.example/x"], "suites": ["/"]}
    shut |= {"signed_by": "/usr/share/keyrings/a.gpg", "key_fault": "closed"}
    found = told("", packages={"sources": [over, shut]})
    assert [row["file"] in check["reason"] for row, check in zip((over, shut), found, strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("file", "removes"),
    [("sources.list", False), ("sources.list.d/ubuntu.sources", False), ("sources.list.d/old.list", True)],
)
def test_no_remedy_removes_the_archive_of_the_system(file: str, removes: bool) -> None:
    (found,) = told("http://archive.ubuntu.com/ubuntu", suites=["kinetic"], file=f"/etc/apt/{file}")
    assert (f"remove /etc/apt/{file}" in found["remedy"]) == removes


def test_a_proxy_that_does_not_answer_is_named_with_its_file() -> None:
    silent = [{"file": "/etc/apt/apt.conf.d/00proxy", "address": "127.0.0.1:3142"}]
    (found,) = told("https://mirror.example/x", packages={"silent_proxies": silent})
    assert "127.0.0.1:3142" in found["reason"]
    assert "/etc/apt/apt.conf.d/00proxy" in found["remedy"]

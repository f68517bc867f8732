"""NVIDIA's local repository, which its local installer unpacks on a machine: one address, one key, and that pinned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Resolve = Callable[..., dict[str, Any]]

PLACE = "file:///var/cuda-repo-ubuntu2404-12-8-local"
KEY = "0123456789ABCDEF0123456789ABCDEF01234567"


def wish(place: str = PLACE, key: str | None = KEY) -> dict[str, Any]:
    keys = {"gpuwright_repository_keys": {"nvidia": key}} if key else {}
    return {"gpuwright_mirrors": {"nvidia": place}, **keys}


def sources(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["ok"], answer
    return {row["name"]: row for row in answer["stack"]["repositories"]}


@pytest.mark.parametrize("place", [PLACE, f"{PLACE}/", "file:///srv/media/cuda-repo-ubuntu2404-12-8-local"])
def test_it_is_used_as_it_lies_there_with_its_own_key(resolve: Resolve, place: str) -> None:
    source = sources(resolve("H100", "ubuntu-24.04", "driver", "cuda=12.8", wish=wish(place)))["nvidia-cuda"]
    base = f"{place.rstrip('/')}/"
    assert (source["uris"], source["suites"]) == ([base], ["/"])
    assert source["key"]["url"] == f"{base}cuda-01234567-keyring.gpg"
    assert source["key"]["fingerprint"] == KEY


def test_dnf_finds_its_key_beside_its_packages(resolve: Resolve) -> None:
    place = "file:///var/cuda-repo-rhel9-12-8-local"
    source = sources(resolve("H100", "rocky-9", "driver", "cuda=12.8", wish=wish(place)))["nvidia-cuda"]
    assert (source["uris"], source["key"]["url"]) == ([f"{place}/"], f"{place}/01234567.pub")


def test_without_the_fingerprint_of_its_key_it_is_refused_with_how_to_read_it(resolve: Resolve) -> None:
    (entry,) = resolve("H100", "ubuntu-24.04", "cuda=12.8", wish=wish(key=None))["conflicts"]
    assert entry["rule"] == "repository.key-unknown"
    assert "gpg --show-keys /var/cuda-repo-ubuntu2404-12-8-local/*.gpg" in entry["remedy"]


def test_one_of_another_system_is_refused(resolve: Resolve) -> None:
    (entry,) = resolve("H100", "ubuntu-22.04", "cuda=12.8", wish=wish())["conflicts"]
    assert entry["rule"] == "repository.local-system"
    assert "is made for ubuntu2404, and this system is ubuntu2204 to NVIDIA" in entry["text"]


def test_the_container_toolkit_is_not_in_it(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-24.04", "cuda=12.8", "container-toolkit", wish=wish())
    assert "nvidia-container-toolkit" in sources(answer)


def test_a_mirror_in_a_directory_has_the_layout_of_nvidias_server(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-24.04", "cuda=12.8", wish={"gpuwright_mirrors": {"nvidia": "file:///srv/mirror"}})
    source = sources(answer)["nvidia-cuda"]
    assert source["uris"] == ["file:///srv/mirror/ubuntu2404/x86_64/"]
    assert source["key"]["url"] == "file:///srv/mirror/ubuntu2404/x86_64/3bf863cc.pub"

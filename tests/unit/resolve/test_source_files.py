"""Package sources of the host that are in the way of one of the stack's."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import source_files
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.log import Unresolved

from .test_observed import Answer, Facts, stack

CUDA = "https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64/"
OURS = "/etc/apt/sources.list.d/gpuwright-nvidia-cuda.sources"
REPOSITORY: Any = {"file": OURS, "uris": [CUDA], "name": "nvidia-cuda"}
KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"


def source(file: str, uri: str = CUDA, signed_by: str | None = KEYRING, *, enabled: bool = True) -> Any:
    path = f"/etc/apt/sources.list.d/{file}" if "/" not in file else file
    return {
        "file": path,
        "types": ["deb"],
        "uris": [uri],
        "suites": ["/"],
        "components": [],
        "signed_by": signed_by,
        "enabled": enabled,
    }


def files(*sources: Any, driver: bool = True) -> dict[str, str]:
    return {
        each["file"].rsplit("/", 1)[1]: each["reason"]
        for each in source_files.in_the_way(REPOSITORY, sources, driver=driver)
    }


def test_a_source_of_the_host_with_a_key_of_its_own_is_used() -> None:
    assert files(source("cuda.list"), source("debian.sources", "http://mirror.example/debian")) == {}
    assert files(source("cuda.list", CUDA.rstrip("/"), "inline")) == {}


def test_a_source_whose_key_is_not_there_goes() -> None:
    """NVIDIA's local repository names a keyring that a person has to copy."""
    assert "not there" in files(source("cuda.list") | {"key_missing": True})["cuda.list"]
    assert files(source("own.list", "file:/srv/mirror") | {"key_missing": True}) == {}


def test_two_keys_for_one_place_stop_apt() -> None:
    found = files(source("a.list"), source("b.list", signed_by="/etc/apt/keyrings/nvidia.asc"))
    assert set(found) == {"a.list", "b.list"}
    assert "different Signed-By" in found["a.list"]


def test_the_same_key_twice_is_only_untidy() -> None:
    assert files(source("a.list"), source("b.list")) == {}


def test_what_stands_beside_gpuwrights_own_file_goes() -> None:
    assert set(files(source("cuda.list"), source(OURS, signed_by="/usr/share/keyrings/gpuwright-nvidia-cuda.gpg"))) == {
        "cuda.list"
    }


def test_the_old_way_of_apt_key_goes() -> None:
    assert "apt-key" in files(source("cuda.list", signed_by=None))["cuda.list"]
    other = "http://developer.download.nvidia.com/compute/machine-learning/repos/ubuntu1804/x86_64"
    assert "apt-key" in files(source("nvidia-ml.list", other, None))["nvidia-ml.list"]
    assert files(source("nvidia-ml.list", other)) == {}


@pytest.mark.parametrize(
    "uri", ["file:///var/cuda-repo-ubuntu2404-12-8-local", "file:/var/nvidia-driver-local-repo-ubuntu2404-580.65.06"]
)
def test_an_unpacked_copy_goes(uri: str) -> None:
    assert "unpacked copy" in files(source("cuda-local.list", uri))["cuda-local.list"]
    assert files(source("own.list", "file:/srv/mirror")) == {}


def test_the_ppa_goes_where_the_driver_is_nvidias() -> None:
    ppa = source("graphics-drivers.sources", "https://ppa.launchpadcontent.net/graphics-drivers/ppa/ubuntu/")
    assert "PPA" in files(ppa)["graphics-drivers.sources"]
    assert files(ppa, driver=False) == {}


def test_what_is_disabled_is_in_nobodys_way() -> None:
    assert files(source("cuda.list", signed_by=None, enabled=False)) == {}


def test_a_file_with_exchanges_too_loses_only_the_line() -> None:
    mixed = [source("mixed.list", signed_by=None), source("mixed.list", "http://mirror.example/debian")]
    (entry,) = source_files.in_the_way(REPOSITORY, mixed, driver=True)
    assert (entry["whole"], entry["uris"]) == (False, [CUDA])
    (alone,) = source_files.in_the_way(REPOSITORY, mixed[:1], driver=True)
    assert alone["whole"]


def test_a_file_of_stanzas_with_exchanges_too_is_left_to_a_person() -> None:
    mixed = [source("mixed.sources", signed_by=None), source("mixed.sources", "http://mirror.example/debian")]
    with pytest.raises(Unresolved, match="other package sources too"):
        source_files.in_the_way(REPOSITORY, mixed, driver=True)


def test_the_stack_names_what_is_in_the_way_and_why(facts: Facts, answer: Answer) -> None:
    facts["packages"]["sources"] += [source("a.list"), source("b.list", signed_by="/etc/apt/keyrings/nvidia.asc")]
    found = answer(facts, "driver-source=nvidia")
    (repository,) = stack(found)["repositories"]
    assert [each["file"] for each in repository["displaces"]] == [
        "/etc/apt/sources.list.d/a.list",
        "/etc/apt/sources.list.d/b.list",
    ]
    assert sum(entry["rule"] == "repository.displaces" for entry in found["why"]) == 2

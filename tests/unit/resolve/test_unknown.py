"""What is asked for and is not known: next to what the tables have it was never released, beyond them it may well exist."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.reading import around
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.resolve.conftest import Resolve


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("12.10", "12.9"),
        ("12.0.9", "12.1"),
        ("12.7", "12.8"),
        ("2.16", "2.15.0"),
        ("2.7.9", "2.7.1"),
        ("1.10", "2.7.0"),
    ],
)
def test_the_nearest_version_is_that_of_the_same_family_and_not_that_of_like_letters(
    version: str, nearest: str
) -> None:
    known = (
        ["12.1", "12.8", "12.9", "13.0"]
        if version.startswith("1") and version != "1.10"
        else ["2.7.0", "2.7.1", "2.15.0"]
    )
    assert around(version, [each for each in known if each != version])[0] == nearest


@pytest.mark.parametrize(
    ("want", "side", "asked"),
    [
        ("cuda=9.2", "older than these tables, which begin at 10.0", "cuda="),
        ("cuda=14", "newer than these tables (", "cuda=13."),
        ("cudnn=7.6", "older than these tables", "cudnn="),
        ("cudnn=10.1", "newer than these tables (", "cudnn=9."),
        ("nccl=1.3", "older than these tables", "nccl="),
        ("nccl=3.0", "newer than these tables (", "nccl=2."),
        ("tensorrt=3.0", "older than these tables", "tensorrt"),
        ("driver=304", "older than these tables, which begin at 390", "driver="),
        ("driver=999", "newer than these tables (", "driver=6"),
        ("torch==1.10.0", "older than these tables, which begin at 1.13.0", "pytorch=2.2.0"),
        ("torch==2.16", "newer than these tables (", "pytorch=2.15.0"),
        ("torch>=2.16", "newer than these tables (", "pytorch=2.15.0"),
        ("tensorflow==2.99", "newer than these tables (", "tensorflow=2."),
        ("jax==0.4.20", "older than these tables", "jax==0.4.30"),
        ("vllm==0.11.0", "older than these tables, which begin at 0.19.1", "vllm=0.19.1"),
        ("vllm==0.6.4.post1", "older than these tables, which begin at 0.19.1", "vllm=0.19.1"),
        ("onnxruntime==1.20.1", "older than these tables", "onnxruntime=1."),
        ("cupy==13.6.0", "older than these tables", "cupy=14."),
    ],
)
def test_what_lies_beyond_the_tables_is_told_as_that_with_the_nearest_that_works(
    resolve: Resolve, want: str, side: str, asked: str
) -> None:
    answer = resolve("GeForce RTX 4090", "ubuntu-24.04", want)
    assert not answer["ok"]
    (entry,) = answer["conflicts"]
    assert side in entry["text"]
    assert f"ask for {asked}" in entry["remedy"]


@pytest.mark.parametrize("want", ["vllm==0.9.1", "vllm==0.90"])
def test_beyond_the_tables_the_card_that_none_of_them_serves_is_told_first(resolve: Resolve, want: str) -> None:
    (entry,) = resolve("GeForce GTX 1080 Ti", "ubuntu-22.04", want)["conflicts"]
    assert entry["text"].startswith(
        "no release of vllm that is known has code for the GeForce GTX 1080 Ti (compute capability 6.1)"
    )
    assert "these tables" in entry["text"]
    assert entry["remedy"] == "leave vLLM out"


def test_a_card_that_older_releases_serve_is_not_blamed_for_one_of_before_the_tables(resolve: Resolve) -> None:
    (entry,) = resolve("Tesla K80", "ubuntu-22.04", "torch==1.10.0")["conflicts"]
    assert "K80" not in entry["text"]


def test_an_old_release_is_answered_with_the_oldest_that_works_and_a_new_one_with_the_newest(resolve: Resolve) -> None:
    old, new = (resolve("GeForce RTX 5090", "ubuntu-24.04", f"torch=={version}") for version in ("1.9.0", "3.0.0"))
    assert old["conflicts"][0]["remedy"].startswith("ask for pytorch=2.7.0")
    assert new["conflicts"][0]["remedy"].startswith("ask for pytorch=2.15.0")


def test_what_lies_between_known_releases_is_bad_input() -> None:
    for want in ("cuda=12.10", "cudnn=9.27.3", "torch==2.7.9", "driver=540", "nccl=2.27.99"):
        with pytest.raises(BadInput):
            Wish.from_wants([want])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ubuntu24", "ubuntu-24.04"),
        ("ubuntu-20.04", "ubuntu-22.04"),
        ("ubuntu-24.10", "ubuntu-24.04"),
        ("ubuntu", "ubuntu-24.04"),
        ("debian-11", "debian-12"),
    ],
)
def test_a_system_that_is_not_served_is_answered_with_the_nearest_release_of_it(
    resolve: Resolve, written: str, meant: str
) -> None:
    (entry,) = resolve("GeForce RTX 4090", written)["conflicts"]
    assert (entry["rule"], entry["remedy"]) == ("os.unknown", f"use {meant}")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ubuntu24.04", "ubuntu-24.04"),
        ("ubuntu2404", "ubuntu-24.04"),
        ("Ubuntu 22.04", "ubuntu-22.04"),
        ("Ubuntu 22.04 LTS", "ubuntu-22.04"),
        ("noble", "ubuntu-24.04"),
        ("debian13", "debian-13"),
        ("Debian GNU/Linux 12", "debian-12"),
        ("bookworm", "debian-12"),
        ("rhel9", "rhel-9"),
        ("RHEL 9.6", "rhel-9"),
        ("red hat enterprise linux 9", "rhel-9"),
        ("rocky9.4", "rocky-9"),
        ("Rocky Linux 9", "rocky-9"),
        ("alma-9", "almalinux-9"),
        ("Linux Mint 22.1", "ubuntu-24.04"),
        ("oracle linux 9", "rocky-9"),
        ("DGX OS", "ubuntu-24.04"),
        ("DGX OS 6", "ubuntu-22.04"),
    ],
)
def test_a_system_is_understood_as_people_write_it(resolve: Resolve, written: str, meant: str) -> None:
    answer = resolve("GeForce RTX 4090", written)
    assert (answer["ok"], answer["os"]) == (True, meant)


@pytest.mark.parametrize("written", ["WSL2 Ubuntu-22.04", "Ubuntu 22.04 (WSL)", "ubuntu-22.04 wsl2"])
def test_a_system_in_wsl_is_that_system_with_the_driver_of_windows(resolve: Resolve, written: str) -> None:
    answer = resolve("GeForce RTX 4090", written, "driver")
    assert (answer["os"], "driver" in answer["stack"]) == ("ubuntu-22.04", False)
    assert "belongs to Windows" in answer["warnings"][0]["text"]


@pytest.mark.parametrize("written", ["Windows 11", "windows", "WSL2"])
def test_windows_is_answered_with_the_linux_in_it(resolve: Resolve, written: str) -> None:
    (entry,) = resolve("GeForce RTX 4090", written, "driver")["conflicts"]
    assert (entry["rule"], '"WSL2 Ubuntu 24.04"' in entry["remedy"]) == ("os.derived", True)


@pytest.mark.parametrize("written", ["archlinux", "fedora-44"])
def test_what_no_system_solves_is_told_beside_one_that_is_not_served(resolve: Resolve, written: str) -> None:
    first, second = resolve("GeForce GTX 1050", written, "driver=590")["conflicts"]
    assert (first["rule"].partition(".")[0], second["rule"]) == ("os", "driver.card")
    assert "580 is the last that does" in second["text"]
    assert len(resolve("GeForce GTX 1050", written, "driver=580")["conflicts"]) == 1


@pytest.mark.parametrize(("version", "near"), [("367.44", "390"), ("300.10", "390"), ("999.1", "620")])
def test_a_build_of_a_branch_outside_the_tables_is_told_as_its_branch_is(
    resolve: Resolve, version: str, near: str
) -> None:
    (entry,) = resolve("GeForce RTX 4090", "ubuntu-24.04", f"driver={version}")["conflicts"]
    assert entry["rule"] == "driver.unknown"
    assert f"driver {version.partition('.')[0]} is " in entry["text"]
    assert near in entry["text"]


def test_a_derivative_that_is_not_served_is_known_by_its_name(resolve: Resolve) -> None:
    for written, name in (("amazon linux 2023", "Amazon Linux 2023"), ("pop!_os 22.04", "Pop!_OS")):
        (entry,) = resolve("GeForce RTX 4090", written)["conflicts"]
        assert entry["text"].startswith(f"{name} is not served: ")


def test_a_system_of_which_no_release_is_served_is_answered_with_all_that_are(resolve: Resolve) -> None:
    (entry,) = resolve("GeForce RTX 4090", "fedora-42")["conflicts"]
    assert entry["remedy"].startswith("use one of ubuntu-22.04, ")


def test_a_lock_from_newer_tables_is_refused_by_what_is_newer(resolve: Resolve) -> None:
    wants: Any = ["driver=580", "cuda=13.9", "torch==2.99.0"]
    texts = [entry["text"] for entry in resolve("GeForce RTX 4090", "ubuntu-24.04", *wants)["conflicts"]]
    assert any("CUDA 13.9 is newer than these tables" in text for text in texts)

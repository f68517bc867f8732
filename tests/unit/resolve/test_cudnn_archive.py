"""cuDNN as NVIDIA's archive: the one that serves each toolkit and the cards, by its checksum, or a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils import resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import BadInput, Wish
from tests.property.naive import cuda as naive
from tests.unit.resolve.conftest import TODAY

Resolve = Callable[..., dict[str, Any]]

ARCHIVE = "cudnn-source=archive"


def archives(answer: dict[str, Any]) -> list[tuple[str, str]]:
    assert answer["ok"], answer
    return [(each["path"], each["version"]) for each in answer["stack"]["cudnn"]["archives"]]


def test_the_guides_archive_is_for_the_toolkit_of_its_cuda(resolve: Resolve) -> None:
    answer = resolve("A100", "ubuntu-22.04", "cuda=11.8", "cudnn=8.9.1", ARCHIVE)
    (archive,) = answer["stack"]["cudnn"]["archives"]
    assert archive["path"] == "/usr/local/cuda-11.8"
    assert archive["name"] == "cudnn-linux-x86_64-8.9.1.23_cuda11-archive.tar.xz"
    assert archive["sha256"].startswith("a6d9887267e28590")
    assert archive["addresses"][0].endswith(
        "/cudnn/redist/cudnn/linux-x86_64/cudnn-linux-x86_64-8.9.1.23_cuda11-archive.tar.xz"
    )
    assert answer["stack"]["cudnn"]["packages"] == []


def test_toolkits_of_several_majors_have_each_the_newest_that_serves_it(resolve: Resolve) -> None:
    """Packages of one version serve CUDA 11 and 13 not together; archives lie side by side."""
    answer = resolve("A100", "ubuntu-22.04", "cuda=11.8", "cuda=12.8", "cuda=13.0", ARCHIVE)
    assert archives(answer) == [
        ("/usr/local/cuda-11.8", "9.10.0.56"),
        ("/usr/local/cuda-12.8", "9.27.0.42"),
        ("/usr/local/cuda-13.0", "9.27.0.42"),
    ]


def test_an_old_card_gets_the_last_that_serves_it(resolve: Resolve) -> None:
    answer = resolve("V100", "ubuntu-22.04", "cuda=12.8", ARCHIVE)
    assert archives(answer) == [("/usr/local/cuda-12.8", "9.10.0.56")]


def test_each_processor_has_its_own(resolve: Resolve) -> None:
    answer = resolve("GH200", "ubuntu-24.04", "cuda=12.8", ARCHIVE, arch="aarch64")
    (archive,) = answer["stack"]["cudnn"]["archives"]
    assert "/linux-sbsa/cudnn-linux-sbsa-" in archive["addresses"][0]


@pytest.mark.parametrize(
    ("wants", "rule"),
    [
        (["cuda=12.8", "cudnn=9.5.1"], "cudnn.archive"),
        (["cuda=13.0", "cudnn=8.9.7"], "cudnn.archive"),
        ([], "cudnn.archive-place"),
    ],
)
def test_what_has_no_known_checksum_or_no_place_is_refused_with_what_has(
    resolve: Resolve, wants: list[str], rule: str
) -> None:
    (entry,) = resolve("H100", "ubuntu-22.04", ARCHIVE, *wants)["conflicts"]
    assert entry["rule"] == rule
    assert entry["remedy"]


def test_one_with_a_checksum_that_is_given_comes_where_it_serves(resolve: Resolve) -> None:
    wish = {"cuda_cudnn_sha256": "A" * 64}
    answer = resolve("H100", "ubuntu-22.04", ARCHIVE, "cuda=12.8", "cudnn=9.5.1", wish=wish)
    (archive,) = answer["stack"]["cudnn"]["archives"]
    assert (archive["version"], archive["sha256"]) == ("9.5.1.17", "a" * 64)
    (entry,) = resolve("H100", "ubuntu-22.04", ARCHIVE, "cuda=13.0", "cudnn=8.9.7", wish=wish)["conflicts"]
    assert (entry["rule"], "does not serve CUDA 13.0" in entry["text"]) == ("cudnn.archive", True)


@pytest.mark.parametrize("wants", [["cuda=12.8"], ["cuda=11.8", "cuda=12.8", "cudnn=9.5.1"]])
def test_a_checksum_is_of_one_archive(resolve: Resolve, wants: list[str]) -> None:
    (entry,) = resolve("H100", "ubuntu-22.04", ARCHIVE, *wants, wish={"cuda_cudnn_sha256": "a" * 64})["conflicts"]
    assert entry["rule"] == "cudnn.archive-several"


def test_a_toolkit_in_usr_has_no_directory_for_it(resolve: Resolve) -> None:
    (entry,) = resolve("A100", "debian-13", "cuda-source=distro", ARCHIVE)["conflicts"]
    assert entry["rule"] == "cudnn.archive-place"


def test_archives_alone_need_no_repository_of_nvidia(resolve: Resolve) -> None:
    answer = resolve(
        "A100", "ubuntu-24.04", "driver-source=distro", "cuda=12.2", ARCHIVE, wish={"cuda_source": "runfile"}
    )
    assert "nvidia-cuda" not in {row["name"] for row in answer["stack"]["repositories"]}


@pytest.mark.parametrize("card", ["V100", "A100", "H100", "RTX 5090"])
@pytest.mark.parametrize("version", ["11.8", "12.2", "12.8", "13.0"])
def test_an_answer_satisfies_the_tables_when_it_is_judged_from_them_alone(rules: Any, card: str, version: str) -> None:
    where = machine.machine_from_options([card], "ubuntu-22.04", "x86_64", {}, rules, today=TODAY)
    wish = Wish.from_variables({"gpuwright_want": ["driver", f"cuda={version}", ARCHIVE]}, rules)
    answer = resolver.resolve(where, wish, rules)
    if answer["ok"]:
        assert list(naive.cudnn(where, answer["stack"])) == []
    else:
        assert {entry["rule"] for entry in answer["conflicts"]} & {"cudnn.archive", "cuda.card"}


@pytest.mark.parametrize("name", ["cudnn", "nccl", "tensorrt"])
def test_of_two_versions_none_is_dropped_silently(name: str) -> None:
    versions = {"cudnn": ("8.9.7", "9.10.2"), "nccl": ("2.27.7", "2.30.7"), "tensorrt": ("8.6.1", "10.13.2")}[name]
    with pytest.raises(BadInput, match="is wished in two versions"):
        Wish.from_wants([f"{name}={version}" for version in versions])
    twice = Wish.from_wants([f"{name}={versions[0]}"] * 2)
    assert getattr(twice, f"{name}_version").startswith(versions[0])

"""Libraries as NVIDIA's archives: those that serve each toolkit and the cards, by their checksums, or a reason."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import BadInput, Wish
from tests.property.naive import cuda as naive
from tests.unit.resolve.conftest import TODAY

Resolve = Callable[..., dict[str, Any]]

ARCHIVE = "cudnn-source=archive"


def archives(answer: dict[str, Any], library: str = "cudnn") -> list[tuple[str, str]]:
    assert answer["ok"], answer
    return [(each["path"], each["version"]) for each in answer["stack"][library]["archives"]]


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


# NCCL and TensorRT ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("want", "place", "checksum"),
    [
        ("nccl", "redist/nccl/v2.30.7/nccl_2.30.7-1+cuda13.3_x86_64.txz", "c6435587"),
        ("nccl=2.28.9", "redist/nccl/v2.28.9/nccl_2.28.9-1+cuda13.0_x86_64.txz", "1aed015c"),
        (
            "tensorrt=10.16.1",
            "machine-learning/tensorrt/10.16.1/tars/TensorRT-10.16.1.11.Linux.x86_64-gnu.cuda-13.2.tar.gz",
            "08334948",
        ),
        (
            "tensorrt",
            "machine-learning/tensorrt/11.3.0/tars/TensorRT-Enterprise-11.3.0.99-Linux-x86_64-cuda-13.4-Release-external.tar.zst",
            "c383126a",
        ),
    ],
)
def test_other_libraries_come_as_archives_too(resolve: Resolve, want: str, place: str, checksum: str) -> None:
    library = want.partition("=")[0]
    answer = resolve("H100", "ubuntu-24.04", "cuda=13.0", want, f"{library}-source=archive")
    (archive,) = answer["stack"][library]["archives"]
    assert archive["addresses"][0].endswith(f"/compute/{place}")
    assert archive["sha256"].startswith(checksum)
    assert answer["stack"][library]["packages"] == []


def test_a_mirror_has_them_too(resolve: Resolve) -> None:
    wish = {"gpuwright_mirrors": {"nvidia-redist-nccl": "https://mirror.example/nccl"}}
    answer = resolve("H100", "ubuntu-24.04", "cuda=13.0", "nccl-source=archive", wish=wish)
    (archive,) = answer["stack"]["nccl"]["archives"]
    assert archive["addresses"] == ["https://mirror.example/nccl/v2.30.7/nccl_2.30.7-1+cuda13.3_x86_64.txz"]


@pytest.mark.parametrize(("library", "version"), [("nccl", "2.30.7"), ("tensorrt", "11.3.0.99")])
def test_each_toolkit_has_the_one_of_its_cuda(resolve: Resolve, library: str, version: str) -> None:
    """Packages have one name for all CUDA versions."""
    answer = resolve("H100", "ubuntu-24.04", "cuda=12.8", "cuda=13.0", f"{library}-source=archive")
    assert archives(answer, library) == [(f"/usr/local/cuda-{cuda}", version) for cuda in ("12.8", "13.0")]
    assert len({each["sha256"] for each in answer["stack"][library]["archives"]}) == 2


@pytest.mark.parametrize(
    ("card", "wants", "rule", "said"),
    [
        ("H100", ["cuda=13.0", "nccl=2.30.4", "nccl-source=archive"], "nccl.archive", "known are 2.27.7, 2.28.9"),
        ("A100", ["cuda=11.8", "nccl-source=archive"], "nccl.archive", "serves CUDA 11.8"),
        ("H100", ["nccl-source=archive"], "nccl.archive-place", "no toolkit is wished"),
        # 10.5 dropped Volta.
        ("V100", ["cuda=12.8", "tensorrt-source=archive"], "tensorrt.archive", "and the cards"),
        (
            "H100",
            ["cuda=13.0", "tensorrt=10.15.1", "tensorrt-source=archive"],
            "tensorrt.archive",
            "TensorRT 10.15.1.29",
        ),
        ("H100", ["tensorrt-source=archive"], "tensorrt.archive-place", "no toolkit is wished"),
    ],
)
def test_one_of_them_that_has_no_known_checksum_or_no_place_is_refused(
    resolve: Resolve, card: str, wants: list[str], rule: str, said: str
) -> None:
    (entry,) = resolve(card, "ubuntu-22.04", *wants)["conflicts"]
    assert entry["rule"] == rule
    assert said in entry["text"]
    assert f"{rule.partition('.')[0]}-source=packages" in entry["remedy"]
    assert "sha256" not in entry["remedy"]


def test_each_archive_is_of_a_release_that_the_tables_know_for_its_cuda(rules: Any) -> None:
    libraries = rules["libraries"]
    for row in libraries["nccl_archives"]:
        (release,) = [each for each in libraries["nccl"] if each["version"] == row["version"]]
        assert set(release["variants"][f"cu{row['cuda'].partition('.')[0]}"]) == {"x86_64", "aarch64"}
    for row in libraries["tensorrt_archives"]:
        (release,) = [each for each in libraries["tensorrt"] if each["version"] == row["version"]]
        assert row["cuda"].partition(".")[0] in release["cuda"]
        assert row["version"] in row["name"]
        assert f"{row['arch']}" in row["name"]
        assert f"cuda-{row['cuda']}" in row["name"]


def test_an_archive_of_what_was_not_built_for_a_cuda_is_not_taken(rules: Any) -> None:
    other = copy.deepcopy(rules)
    for row in other["libraries"]["nccl"]:
        if row["version"] == "2.30.7":
            row["variants"] = {"cu12": ["x86_64"]}
    for row in other["libraries"]["tensorrt"]:
        if row["version"] == "11.3.0.99":
            row["cuda"] = ["12"]
    where = machine.machine_from_options(["H100"], "ubuntu-24.04", "x86_64", {}, other, today=TODAY)
    wants = ["driver", "cuda=13.0", "nccl-source=archive", "tensorrt-source=archive"]
    answer: Any = resolver.resolve(where, Wish.from_variables({"gpuwright_want": wants}, other), other)
    assert archives(answer, "nccl") == [("/usr/local/cuda-13.0", "2.29.7")]
    assert archives(answer, "tensorrt") == [("/usr/local/cuda-13.0", "10.16.1.11")]


def test_there_is_no_archive_for_cuda_12_on_arm(resolve: Resolve) -> None:
    wants = ("GH200", "ubuntu-24.04", "cuda=12.8", "tensorrt-source=archive")
    (entry,) = resolve(*wants, arch="aarch64")["conflicts"]
    assert entry["rule"] == "tensorrt.archive"


def test_a_release_that_no_source_confirms_is_told(resolve: Resolve) -> None:
    def told(version: str) -> set[str]:
        wants = ("cuda=13.0", f"tensorrt={version}", "tensorrt-source=archive")
        return {each["rule"] for each in resolve("H100", "ubuntu-24.04", *wants)["warnings"]}

    assert "tensorrt.unconfirmed" in told("11.3.0")
    assert "tensorrt.unconfirmed" not in told("10.16.1")


def test_what_only_an_archive_brings_is_not_given_up_in_the_search_for_a_nearer_wish(resolve: Resolve) -> None:
    """TensorRT 11 has no packages for CUDA 12."""
    archive = resolve("H100", "ubuntu-24.04", "cuda=12.8", "tensorrt=11.3.0", "tensorrt-source=archive")
    assert archives(archive, "tensorrt") == [("/usr/local/cuda-12.8", "11.3.0.99")]
    wants = ("driver=470", "cuda=12.8", "tensorrt=11.3.0", "tensorrt-source=archive")
    (entry,) = resolve("A100", "ubuntu-22.04", *wants)["conflicts"]
    assert entry["remedy"].startswith("ask for driver=525")


@pytest.mark.parametrize("card", ["V100", "A100", "H100", "RTX 5090"])
@pytest.mark.parametrize("version", ["11.8", "12.2", "12.8", "13.0"])
@pytest.mark.parametrize("library", ["cudnn", "nccl", "tensorrt"])
def test_an_answer_satisfies_the_tables_when_it_is_judged_from_them_alone(
    rules: Any, library: str, card: str, version: str
) -> None:
    where = machine.machine_from_options([card], "ubuntu-22.04", "x86_64", {}, rules, today=TODAY)
    wish = Wish.from_variables({"gpuwright_want": ["driver", f"cuda={version}", f"{library}-source=archive"]}, rules)
    answer = resolver.resolve(where, wish, rules)
    if answer["ok"]:
        judges = [
            naive.cudnn(where, answer["stack"]),
            naive.nccl(where, answer["stack"]),
            naive.tensorrt(where, answer["stack"], {each["rule"] for each in answer["warnings"]}),
        ]
        assert [fault for judge in judges for fault in judge] == []
    else:
        assert {entry["rule"] for entry in answer["conflicts"]} & {f"{library}.archive", "cuda.card"}


@pytest.mark.parametrize("name", ["cudnn", "nccl", "tensorrt"])
def test_of_two_versions_none_is_dropped_silently(name: str) -> None:
    versions = {"cudnn": ("8.9.7", "9.10.2"), "nccl": ("2.27.7", "2.30.7"), "tensorrt": ("8.6.1", "10.13.2")}[name]
    with pytest.raises(BadInput, match="is wished in two versions"):
        Wish.from_wants([f"{name}={version}" for version in versions])
    twice = Wish.from_wants([f"{name}={versions[0]}"] * 2)
    assert getattr(twice, f"{name}_version").startswith(versions[0])

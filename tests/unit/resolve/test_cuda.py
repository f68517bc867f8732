"""CUDA toolkits: those of several cards, of old systems, and what is warned of beside the answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import BadInput

Resolve = Callable[..., dict[str, Any]]


def texts(answer: dict[str, Any], rule: str) -> list[str]:
    assert answer["ok"], answer
    return [entry["text"] for entry in answer["warnings"] if entry["rule"] == rule]


# several cards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "version"),
    [(["V100", "H100"], "12.9"), (["GTX 1080 Ti", "RTX 5090"], "12.9"), (["RTX 4090", "H100"], "13.0")],
)
def test_several_cards_get_the_newest_toolkit_with_code_for_all(
    resolve: Resolve, names: list[str], version: str
) -> None:
    # Inside WSL the driver is Windows', so that only the toolkit decides.
    (cuda,) = resolve(names, "ubuntu-24.04", "cuda", wsl="true")["stack"]["cuda"]
    assert cuda["version"] == version


@pytest.mark.parametrize("want", ["cuda", "cuda=12", "cuda=13"])
def test_cards_that_no_toolkit_has_code_for_together_are_named_as_a_pair(resolve: Resolve, want: str) -> None:
    (entry,) = resolve(["H100", "V100", "Rubin"], "ubuntu-24.04", want, wsl="true")["conflicts"]
    assert entry["rule"] == "cuda.cards"
    assert "V100" in entry["text"]
    assert "Rubin" in entry["text"]
    assert "H100" not in entry["text"]
    assert "gpuwright_gpus_ignore" in entry["remedy"]


def test_a_wished_toolkit_without_code_for_one_of_two_cards_names_that_one(resolve: Resolve) -> None:
    (entry,) = resolve(["V100", "H100"], "ubuntu-24.04", "cuda=13", wsl="true")["conflicts"]
    assert entry["rule"] == "cuda.card"
    assert "V100" in entry["text"]
    assert "cuda=12.9" in entry["remedy"]


# the default one, and modulefiles ---------------------------------------------------------------------


def defaults(answer: dict[str, Any]) -> list[str]:
    assert answer["ok"], answer
    return [entry["version"] for entry in answer["stack"]["cuda"] if entry.get("default")]


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (None, "13.0"),
        ("auto", "13.0"),
        ("12.8", "12.8"),
        ("12.8.1", "12.8"),
        (12.8, "12.8"),
        ("12", "12.9"),
        ("keep", None),
    ],
)
def test_the_default_toolkit_is_the_newest_or_the_one_that_is_asked_for(
    resolve: Resolve, asked: object, version: str | None
) -> None:
    wants = ("cuda=12.9", "cuda=13.0", "cuda=12.8")
    answer = resolve("H100", "ubuntu-24.04", *wants, wish={"cuda_default": asked})
    assert defaults(answer) == ([version] if version else [])


def test_a_default_toolkit_that_is_not_wished_is_a_conflict_that_names_the_wished_ones(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-24.04", "cuda=12.8", "cuda=13.0", wish={"cuda_default": "12.6"})
    (entry,) = answer["conflicts"]
    assert entry["rule"] == "cuda.default"
    assert "12.8, 13.0" in entry["text"]
    assert "cuda=12.6" in entry["remedy"]


@pytest.mark.parametrize("variables", [{"cuda_default": "12.7"}, {"cuda_default": "newest"}, {"cuda_modulefiles": "x"}])
def test_a_place_of_toolkits_that_does_not_exist_is_refused(resolve: Resolve, variables: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=next(iter(variables))):
        resolve("H100", "ubuntu-24.04", "cuda", wish=variables)


# toolkits of files -------------------------------------------------------------------------------------

RUNFILE = {"cuda_source": "runfile"}


def test_the_guides_toolkits_come_from_files_where_the_repository_has_neither(resolve: Resolve) -> None:
    answer = resolve("A100", "ubuntu-24.04", "cuda=11.8", "cuda=12.2.2", wish=RUNFILE)
    files = [entry["runfile"] for entry in answer["stack"]["cuda"]]
    assert [(file["name"], len(file["sha256"])) for file in files] == [
        ("cuda_11.8.0_520.61.05_linux.run", 64),
        ("cuda_12.2.2_535.104.05_linux.run", 64),
    ]
    assert files[0]["addresses"][0].endswith("/compute/cuda/11.8.0/local_installers/cuda_11.8.0_520.61.05_linux.run")
    assert defaults(answer) == ["12.2"]


@pytest.mark.parametrize(("wants", "names"), [([], []), (["nccl"], ["nvidia-cuda"])])
def test_files_alone_need_no_repository(resolve: Resolve, wants: list[str], names: list[str]) -> None:
    answer = resolve("H100", "ubuntu-24.04", "driver-source=distro", "cuda=12.8", *wants, wish=RUNFILE)
    found = [row["name"] for row in answer["stack"]["repositories"]]
    assert [name for name in found if name != "distro-restricted"] == names


def test_each_processor_has_its_own_file_and_checksum(resolve: Resolve) -> None:
    by_arch = {}
    for arch in ("x86_64", "aarch64"):
        (cuda,) = resolve("H100", "ubuntu-24.04", "cuda=12.8", arch=arch, wish=RUNFILE)["stack"]["cuda"]
        by_arch[arch] = cuda["runfile"]
    assert by_arch["aarch64"]["name"] == "cuda_12.8.1_570.124.06_linux_sbsa.run"
    assert by_arch["aarch64"]["sha256"] != by_arch["x86_64"]["sha256"]


def test_a_mirror_of_the_files_is_asked_instead(resolve: Resolve) -> None:
    wish = {**RUNFILE, "gpuwright_mirrors": {"nvidia-cuda-runfile": "https://mirror.example/cuda"}}
    (cuda,) = resolve("H100", "ubuntu-24.04", "cuda=12.8", wish=wish)["stack"]["cuda"]
    assert cuda["runfile"]["addresses"] == [
        "https://mirror.example/cuda/12.8.1/local_installers/cuda_12.8.1_570.124.06_linux.run"
    ]


@pytest.mark.parametrize(
    ("os", "wants", "variables", "rule"),
    [
        ("ubuntu-24.04", ["cuda=12.4.0"], {}, "cuda.runfile-checksum"),
        ("ubuntu-24.04", ["cuda=12.4"], {"cuda_runfile_sha256": "a" * 64}, "cuda.runfile-checksum"),
        ("ubuntu-24.04", ["cuda=13.4.1"], {"cuda_runfile_sha256": "a" * 64}, "cuda.runfile-place"),
        ("ubuntu-24.04", ["cuda=12.8.1", "cuda=12.4.0"], {"cuda_runfile_sha256": "a" * 64}, "cuda.runfile-several"),
        ("ubuntu-26.04", ["cuda=12.8"], {}, "cuda.runfile-system"),
    ],
)
def test_no_file_is_run_unseen_nor_where_it_cannot_run(
    resolve: Resolve, os: str, wants: list[str], variables: dict[str, str], rule: str
) -> None:
    answer = resolve("H100", os, *wants, wish={**RUNFILE, **variables})
    assert rule in {entry["rule"] for entry in answer["conflicts"]}


def test_another_release_is_taken_with_its_checksum(resolve: Resolve) -> None:
    wish = {**RUNFILE, "cuda_runfile": "/mnt/cuda.run", "cuda_runfile_sha256": "B" * 64}
    (cuda,) = resolve("H100", "ubuntu-24.04", "cuda=12.4.0", wish=wish)["stack"]["cuda"]
    file = cuda["runfile"]
    assert (file["release"], file["addresses"], file["sha256"]) == ("12.4.0", ["/mnt/cuda.run"], "b" * 64)


@pytest.mark.parametrize(
    "variables",
    [{"cuda_source": "distribution"}, {"cuda_runfile": "/mnt/cuda.run"}, {"cuda_runfile_sha256": "12"}],
)
def test_a_file_that_is_named_wrongly_is_refused(resolve: Resolve, variables: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=next(iter(variables))):
        resolve("H100", "ubuntu-24.04", "cuda", wish=variables)


@pytest.mark.parametrize("wants", [["cuda-source=wheels"], ["cuda=12.8", "cuda-source=wheels"]])
def test_wheels_are_refused_with_what_they_lack(resolve: Resolve, wants: list[str]) -> None:
    with pytest.raises(BadInput, match="only from CUDA 13 on: nvidia-cuda-nvcc-cu12 has ptxas and no nvcc"):
        resolve("H100", "ubuntu-24.04", *wants)


def test_where_toolkits_come_from_leaves_their_versions_as_they_are_wished(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-24.04", "cuda-source=runfile", wish={"cuda_versions": ["12.8"]})
    assert [entry["version"] for entry in answer["stack"]["cuda"]] == ["12.8"]


def test_a_repository_without_the_toolkit_names_the_file_that_has_it(resolve: Resolve) -> None:
    (entry,) = resolve("A100", "ubuntu-24.04", "cuda=11.8")["conflicts"]
    assert "cuda_11.8.0_520.61.05_linux.run (cuda-source=runfile)" in entry["remedy"]


# old toolkits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("os", ["ubuntu-24.04", "debian-12", "debian-13"])
def test_a_toolkit_that_the_driver_runs_and_the_repository_lacks_is_a_conflict(resolve: Resolve, os: str) -> None:
    answer = resolve("A100", os, "cuda=11.8")
    assert not answer["ok"]
    assert {entry["rule"] for entry in answer["conflicts"]} == {"cuda.repository"}
    (cuda,) = resolve("A100", "ubuntu-22.04", "cuda=11.8")["stack"]["cuda"]
    assert (cuda["version"], cuda["mode"]) == ("11.8", "native")


def test_cuda_10_is_known_and_in_no_repository(resolve: Resolve) -> None:
    answer = resolve("V100", "ubuntu-22.04", "cuda=10.2")
    assert {entry["rule"] for entry in answer["conflicts"]} == {"cuda.repository"}


# beside the answer -------------------------------------------------------------------------------------


def test_a_system_whose_support_has_ended_is_warned_of_with_what_goes_on(resolve: Resolve) -> None:
    (text,) = texts(resolve("H100", "debian-12"), "os.end-of-life")
    assert "ended on 2026-07-11" in text
    assert "Debian LTS goes on until 2028-06-30" in text
    assert texts(resolve("H100", "debian-12", today=date(2026, 1, 1)), "os.end-of-life") == []
    (late,) = texts(resolve("H100", "debian-12", today=date(2028, 7, 1)), "os.end-of-life")
    assert "goes on" not in late


def test_a_system_within_180_days_of_its_end_is_warned_of(resolve: Resolve) -> None:
    assert texts(resolve("H100", "ubuntu-22.04"), "os.end-of-life") == []
    (text,) = texts(resolve("H100", "ubuntu-22.04", today=date(2026, 12, 3)), "os.end-of-life")
    assert "ends on 2027-06-01" in text
    (after,) = texts(resolve("H100", "ubuntu-22.04", today=date(2027, 6, 2)), "os.end-of-life")
    assert "Ubuntu Pro (ESM)" in after


def test_a_machine_without_cards_is_warned_of_its_system_too(resolve: Resolve) -> None:
    assert texts(resolve([], "debian-12", "pytorch"), "os.end-of-life")


def test_a_system_of_which_little_is_confirmed_is_warned_of(resolve: Resolve) -> None:
    assert texts(resolve("H100", "ubuntu-26.04"), "os.unconfirmed")
    assert texts(resolve("H100", "ubuntu-24.04"), "os.unconfirmed") == []


# builds and kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("branch", "kernel", "text"),
    [
        ("525", "6.4.0-1-generic", None),
        ("525", "6.5.0-14-generic", None),
        ("530", "6.5.0-14-generic", "do not compile on kernel 6.5.0-14-generic"),
        ("565", "6.13.0-1-generic", "(one report, not confirmed)"),
        ("570", "6.17.0-5-generic", None),
    ],
)
def test_a_branch_without_a_build_for_the_kernel_is_refused(
    resolve: Resolve, branch: str, kernel: str, text: str | None
) -> None:
    answer = resolve("A100", "ubuntu-22.04", f"driver={branch}", kernel=kernel)
    assert answer["ok"] == (text is None)
    if text:
        assert any(text in entry["text"] for entry in answer["conflicts"])


def test_a_kernel_raises_the_lowest_build_of_a_branch(resolve: Resolve) -> None:
    driver = resolve("A100", "ubuntu-22.04", "driver=570", kernel="6.17.0-5-generic")["stack"]["driver"]
    assert driver["minimum"] == "570.195.03"
    asked = resolve("A100", "ubuntu-22.04", "driver=570.133.20", kernel="6.17.0-5-generic")
    assert not asked["ok"]

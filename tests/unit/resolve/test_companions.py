"""What people use beside the frameworks: its table, and what is said of it where a project names it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ansible_collections.gpuwright.node.plugins.module_utils.frameworks import ABOUT
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import companions, load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.unit.resolve.conftest import Resolve

TABLES: dict[str, list[Any]] = load_rules()["companions"]


@pytest.fixture
def asked(resolve: Resolve, tmp_path: Path) -> Callable[..., Any]:
    """asked("torch==2.8.0", "torchcodec"): the answer for a project of these lines, for an RTX 4090 with Ubuntu 24.04."""

    def ask(*lines: str, card: str = "RTX 4090", os: str = "ubuntu-24.04", **more: Any) -> Any:
        path = tmp_path / "requirements.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return resolve(card, os, f"project={path}", **more)

    return ask


def held(answer: Any) -> list[str]:
    assert answer["ok"], answer["conflicts"]
    (row,) = answer["stack"]["frameworks"]
    found: list[str] = row["constraints"]
    return found


# the table ---------------------------------------------------------------------------------------------------


# A wish for nvidia-tensorrt is one for TensorRT itself.
@pytest.mark.parametrize("name", [row["name"] for row in TABLES["packages"] if row["name"] != "nvidia-tensorrt"])
def test_each_is_told_what_it_is_and_what_a_person_does(resolve: Resolve, name: str) -> None:
    (entry,) = resolve("GeForce RTX 4090", "ubuntu-22.04", name)["conflicts"]
    assert entry["rule"] == "frameworks.by-hand"
    assert entry["remedy"]
    assert not re.search(r"[{}]", entry["remedy"] + entry["text"]), entry


def test_a_name_is_in_one_row_alone() -> None:
    names = [row["name"] for row in TABLES["packages"]]
    assert len(names) == len(set(names))
    frameworks = {name for about in ABOUT.values() for name in (about.name, about.package, *about.aliases)}
    assert not frameworks & set(names)


def test_spans_of_a_name_do_not_overlap_and_needs_are_requirements() -> None:
    for row in TABLES["spans"]:
        assert companions.key(row["from_version"]) <= companions.key(row["to_version"]), row
        assert all(Requirement(each.replace("{minor}", "1.2")) for each in row.get("needs", ()))
    for name in {row["package"] for row in TABLES["spans"] if re.fullmatch(r"[a-z0-9-]+", row["package"])}:
        rows = sorted((row for row in TABLES["spans"] if row["package"] == name), key=_begin)
        for older, newer in pairwise(rows):
            assert companions.key(older["to_version"]) < _begin(newer), name
    for row in TABLES["pairs"]:
        assert row["package"] == canonicalize_name(row["package"])
        assert all(SpecifierSet(each) is not None for each in row["releases"].values())
        assert all(companions.key(row["from_version"]) <= companions.key(each) for each in row["releases"]), row[
            "package"
        ]


def _begin(row: Any) -> Any:
    return companions.key(row["from_version"])


# a project ---------------------------------------------------------------------------------------------------


def test_what_pip_does_not_know_to_go_together_is_held_together(asked: Callable[..., Any]) -> None:
    assert "torchcodec<=0.7.0" in held(asked("torch==2.8.0", "torchcodec"))
    assert not [each for each in held(asked("torch==2.14.1", "torchcodec")) if "torchcodec" in each]
    assert "setuptools<82" in held(asked("torch==2.8.0", "tensorboard==2.20.0"))
    assert "setuptools<82" in held(asked("torch==2.8.0", "tensorboard==2.20.0", "setuptools"))
    assert "setuptools<82" not in held(asked("torch==2.8.0", "tensorboard"))


def test_a_pytorch_is_chosen_that_a_line_goes_with(asked: Callable[..., Any]) -> None:
    def version(*lines: str) -> str:
        answer = asked(*lines)
        assert answer["ok"], answer["conflicts"]
        return str(answer["stack"]["frameworks"][0]["version"])

    assert version("torch", "unsloth==2026.6.8") == "2.10.0"
    assert version("torch", "torchcodec==0.7.0").startswith("2.8.")
    assert version("torch", "no-such-thing==1.0") == version("torch")


def test_a_free_pytorch_is_that_of_the_newest_release_beside_it(asked: Callable[..., Any]) -> None:
    """Of WhisperX and LeRobot old releases go with each torch: pip would take them without a word."""

    def chosen(*lines: str) -> Version:
        return Version(asked(*lines)["stack"]["frameworks"][0]["version"])

    for package in ("whisperx", "lerobot", "llmcompressor", "chatterbox-tts"):
        row = next(each for each in TABLES["pairs"] if (each["package"], each["other"]) == (package, "torch"))
        newest = row["releases"][max(row["releases"], key=Version)]
        assert SpecifierSet(newest).contains(chosen("torch", package)), package
    # What is pinned is kept to: an older WhisperX goes with it.
    assert chosen("torch==2.14.1", "whisperx") == Version("2.14.1")


def test_a_library_of_another_cuda_is_loaded_where_its_framework_or_a_line_brings_it(asked: Callable[..., Any]) -> None:
    def cuda(*lines: str) -> str:
        (row,) = asked(*lines)["stack"]["frameworks"]
        return str(row["cuda"]).split(".", maxsplit=1)[0]

    assert cuda("torch==2.11.0") == "13"
    assert cuda("torch==2.11.0", "ctranslate2==4.8.5") == "12"
    assert cuda("torch==2.11.0", "ctranslate2==4.8.5", "nvidia-cublas-cu12") == "13"
    (conflict,) = asked("torch==2.11.0+cu130", "ctranslate2==4.8.5")["conflicts"]
    assert "loads nvidia-cublas-cu12, beside CUDA 13" in conflict["text"]


def test_a_library_for_each_cuda_is_there_for_that_of_the_framework(asked: Callable[..., Any]) -> None:
    assert asked("torch==2.5.1", "bitsandbytes==0.42.0")["stack"]["frameworks"][0]["variant"] == "cu121"
    (conflict,) = asked("torch==2.5.1+cu124", "bitsandbytes==0.42.0")["conflicts"]
    assert "has libraries for CUDA 11.0 to 12.3, and none for 12.4" in conflict["text"]
    assert conflict["remedy"].startswith("name bitsandbytes==0.50.2 in requirements.txt:2")
    assert asked("torch==2.5.1+cpu", "bitsandbytes==0.42.0")["ok"]


def test_bindings_are_of_the_cuda_that_the_driver_runs(asked: Callable[..., Any]) -> None:
    lines = ("torch==2.9.0+cu128", "cuda-python")
    assert not [each for each in held(asked(*lines)) if "cuda-python" in each]
    old = {"wish": {"nvidia_driver_branch": "570"}}
    assert "cuda-python<=12.9.10" in held(asked(*lines, **old))
    (conflict,) = asked(lines[0], "cuda-bindings==13.0.3", **old)["conflicts"]
    assert "needs a driver for CUDA 13, the driver 570" in conflict["text"]
    assert conflict["remedy"].startswith("name cuda-bindings==12.9.10 in requirements.txt:2")


def test_a_release_of_a_framework_goes_with_what_it_asks_for_beside_its_torch(asked: Callable[..., Any]) -> None:
    assert asked("vllm==0.24.0", "transformers==5.6.0")["ok"]
    (conflict,) = asked("vllm==0.24.0", "transformers==4.57.6")["conflicts"]
    assert (
        conflict["text"]
        == "requirements.txt:2 asks for transformers==4.57.6, and vllm 0.24.0 goes with transformers>=5.5.3"
    )
    assert conflict["remedy"] == "ask for vllm==0.23.0 in requirements.txt:1"


def test_what_is_loaded_beside_one_distribution_alone_is_asked_for_there_alone(asked: Callable[..., Any]) -> None:
    (conflict,) = asked("tensorflow==2.17.0", "transformers==4.44.2")["conflicts"]
    assert "transformers 4.44.2 loads tf-keras, beside tensorflow 2.17.0" in conflict["text"]
    assert conflict["remedy"].startswith("name tf-keras beside it")
    assert asked("tensorflow==2.17.0", "transformers==4.44.2", "tf-keras==2.17.0")["ok"]
    assert asked("torch==2.5.1", "transformers==4.44.2")["ok"]


def test_that_a_build_is_not_confirmed_is_no_reason_beside_one(asked: Callable[..., Any]) -> None:
    answer = asked("torch==2.6.0+cu118", "bitsandbytes==0.48.0", card="Tesla M40", os="ubuntu-22.04")
    assert [each["rule"] for each in answer["conflicts"]] == ["frameworks.companions"]
    assert "0.47.0 was the last for Maxwell" in answer["conflicts"][0]["text"]


def test_a_release_before_the_table_of_its_framework_is_told_with_what_it_is_for(asked: Callable[..., Any]) -> None:
    def text(*lines: str) -> str:
        return str(asked(*lines)["conflicts"][0]["text"])

    assert text("vllm==0.15.1", "torch==2.10.0").endswith(
        "it is for torch 2.9.1, not for the 2.10.0 of requirements.txt:2"
    )
    assert text("vllm==0.15.1").endswith("begin at 0.19.1; it is for torch 2.9.1; it is for transformers >=4.56.0,<5")
    assert text("vllm>=0.15,<0.16").count("it is for") == 0
    assert "is for nvidia-cudnn-cu12 >=9, not for the 8.9.2.26 of pytorch 2.3.1" in text(
        "torch==2.3.1", "onnxruntime-gpu==1.19.2"
    )


def test_a_line_that_goes_nowhere_is_told_with_one_that_does(asked: Callable[..., Any]) -> None:
    (conflict,) = asked("torch==2.8.0", "torchcodec==0.8.1")["conflicts"]
    assert conflict["rule"] == "frameworks.companions"
    assert (
        "requirements.txt:2 asks for torchcodec==0.8.1: torchcodec 0.8.1 is for torch 2.9, not for 2.8.0"
        in conflict["text"]
    )
    assert conflict["remedy"].startswith("name torchcodec==0.7.0 in requirements.txt:2")


def test_lines_are_held_against_each_other(asked: Callable[..., Any]) -> None:
    (conflict,) = asked("torch", "tensorboard==2.20.0", "setuptools==82.0.1")["conflicts"]
    assert "is for setuptools <82, not for the 82.0.1 of requirements.txt:3" in conflict["text"]
    assert asked("torch", "tensorboard==2.20.0", "setuptools==81.0.0")["ok"]


def test_a_source_is_not_bound_by_what_its_makers_have(asked: Callable[..., Any]) -> None:
    assert asked("torch==2.14.1", "flash-attn==2.7.4")["ok"]


def test_another_index_may_have_wheels_for_what_the_public_one_has_none_for(asked: Callable[..., Any]) -> None:
    wish = {"gpuwright_mirrors": {"pypi": "https://index.example/simple"}}
    lines = ("torch", "decord==0.6.0", "detectron2")
    where = {"card": "GB200", "arch": "aarch64"}
    assert {entry["rule"] for entry in asked(*lines, **where)["conflicts"]} == {"frameworks.companions"}
    assert asked(*lines, **where, wish=wish)["ok"]


def test_what_computes_on_the_processor_alone_is_warned_of(asked: Callable[..., Any]) -> None:
    def told(*lines: str, **more: Any) -> str:
        answer = asked(*lines, **more)
        assert answer["ok"], answer["conflicts"]
        return "\n".join(row["text"] for row in answer["warnings"] if row["rule"] == "frameworks.without-wheels")

    assert "opencv-python on the Python index" in told("torch", "opencv-python")
    assert "on the processor alone on aarch64" in told(
        "torch", "ctranslate2==4.8.5", "nvidia-cublas-cu12", card="GB200", arch="aarch64"
    )
    assert told("torch", "numpy", "transformers==4.57.1") == ""


def test_names_that_ended_are_refused_in_a_file_too(asked: Callable[..., Any]) -> None:
    with pytest.raises(BadInput, match=r"tensorflow-gpu==2\.12\.0 \(requirements\.txt:1\)"):
        asked("tensorflow-gpu==2.12.0")


def test_two_packages_with_the_same_files_are_told(asked: Callable[..., Any]) -> None:
    answer = asked("onnxruntime-gpu==1.23.2", "onnxruntime==1.23.2")
    (text,) = [row["text"] for row in answer["warnings"] if "have the same files" in row["text"]]
    assert text.startswith("onnxruntime-gpu (requirements.txt:1) and onnxruntime (requirements.txt:2)")
    assert answer["stack"]["frameworks"][0]["requirements"] == ["onnxruntime-gpu[cuda,cudnn]==1.23.2"]


# a name ------------------------------------------------------------------------------------------------------


def test_another_version_is_asked_for_as_long_as_the_torch_is_free(resolve: Resolve) -> None:
    def entry(*wants: str) -> Any:
        (found,) = resolve("GeForce RTX 4090", "ubuntu-24.04", *wants)["conflicts"]
        return found

    free = entry("unsloth==2026.6.8")
    assert "unsloth 2026.6.8 is for torch >=2.4,<2.11, not for" in free["text"]
    assert free["remedy"].startswith(
        "name unsloth==2026.6.8 in the file of a project, and a PyTorch that it is for is chosen"
    )
    pinned = entry("torch==2.14.1", "unsloth==2026.6.8")
    assert pinned["remedy"].startswith("name unsloth==2026.10.9 in the file of a project")
    assert (
        entry("torch==2.4.0", "torchvision==0.20.1")["remedy"]
        == "leave it out, and ask for pytorch==2.5.1, which brings it"
    )
    assert "torch-2.8.0+cu1" in entry("torch==2.8.0", "torch-scatter")["remedy"]
    assert "fits (github Dao-AILab" not in entry("torch==2.8.0", "flash-attn==2.8.3")["remedy"]


def test_a_build_in_a_version_is_told_by_the_extra_that_it_is_now() -> None:
    with pytest.raises(BadInput) as error:
        Wish.from_wants(["jaxlib==0.4.30+cuda12.cudnn89"])
    assert error.value.suggestions == ["jax[cuda12]==0.4.30"]
    with pytest.raises(BadInput, match=r"a variant such as \+cu126"):
        Wish.from_wants(["torch==2.3.0+rocm6.0"])


def test_a_package_that_is_not_known_by_name_goes_into_a_file() -> None:
    with pytest.raises(BadInput) as error:
        Wish.from_wants(["transformers"])
    assert "project@NAME=requirements.txt" in error.value.suggestions[0]
    with pytest.raises(BadInput) as error:
        Wish.from_wants(["container-toolkt"])
    assert error.value.suggestions[0] == "container-toolkit"


# beside no framework -----------------------------------------------------------------------------------------


def test_what_goes_beside_no_framework_is_told_with_where_it_is_to_be_had(asked: Callable[..., Any]) -> None:
    (entry,) = asked("paddlepaddle-gpu==3.2.0", card="RTX 5070 Ti")["conflicts"]
    assert entry["rule"] == "frameworks.project"
    assert "the Python index ends at paddlepaddle-gpu 2.6.2" in entry["text"]
    assert "stable/cu129" in entry["remedy"]


def test_what_has_no_code_for_the_card_is_told_before_that_its_framework_is_not_named(
    asked: Callable[..., Any],
) -> None:
    first, second = asked("cudf-cu12==24.4.1", card="Tesla P100", os="ubuntu-22.04")["conflicts"]
    assert "begins with compute capability 7.0" in first["text"]
    assert "23.12 was the last for Pascal" in first["remedy"]
    assert second["remedy"].endswith("--want cupy@project")
    other, _second = asked("cudf-cu12==26.10.2", card="RTX 4090", os="ubuntu-22.04")["conflicts"]
    assert "another card" not in other["remedy"]
    (alone,) = asked("cudf-cu12==24.4.1", card="RTX 4090", os="ubuntu-22.04")["conflicts"]
    assert alone["rule"] == "frameworks.project"


@pytest.mark.parametrize(
    ("lines", "ok"),
    [
        (["torch==2.0.1+cu118", "torchaudio==2.0.2+cu117"], False),
        (["torch==2.0.1+cu118", "torchvision==0.15.2+cu118"], True),
        (["torch==2.0.1+cu118", "torchaudio==2.0.2"], True),
    ],
)
def test_what_comes_with_torch_is_of_its_build(resolve: Resolve, tmp_path: Path, lines: list[str], ok: bool) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    answer = resolve("RTX 3090", "ubuntu-22.04", f"project={path}", "python=3.10")
    assert answer["ok"] == ok
    assert ok or "which is built for cu117" in answer["conflicts"][0]["text"]


@pytest.mark.parametrize(("line", "named"), [("deepspeed==0.12.3", True), ("einops", False)])
def test_what_a_toolkit_would_have_to_compile_is_named(
    resolve: Resolve, tmp_path: Path, line: str, named: bool
) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"torch==2.1.0+cu118\n{line}\n", encoding="utf-8")
    answer = resolve("RTX 3090", "ubuntu-22.04", "cuda=12.1", f"project={path}", "python=3.10")
    (text,) = [entry["text"] for entry in answer["warnings"] if entry["rule"] == "frameworks.toolkit"]
    assert ("deepspeed would have to be compiled with it: wish cuda=11.8" in text) == named


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("torch==2.5.1", "torch-scatter==2.1.2+pt24cu124"), "built for torch 2.4, and there is 2.5.1"),
        (("torch==2.4.1", "torch-scatter==2.1.2+pt24cu124"), None),
        (("torch==2.3.1", "transformers==5.10.0"), "transformers 5.10.0 is for torch >=2.4"),
        (("torch==2.6.0", "numba==0.58.0", "numpy==2.1.0"), "numba 0.58.0 is for numpy >=1.21,<1.26"),
        (("tensorflow==2.16.1", "tf-keras==2.15.1"), "tf-keras 2.15.1 is for tensorflow >=2.15,<2.16"),
        (("torch==2.4.0", "nvidia-cudnn-cu12==8.9.7.29"), "nvidia-cudnn-cu12==8.9.7.29"),
        (("torch==2.4.0", "nvidia-cudnn-cu12==9.5.1.17"), "2.4.0+cu121 goes with nvidia-cudnn-cu12==9.1.0.70"),
    ],
)
def test_what_does_not_go_with_a_framework_is_refused(
    asked: Callable[..., Any], lines: tuple[str, ...], told: str | None
) -> None:
    conflicts = asked(*lines).get("conflicts") or []
    assert bool(conflicts) == bool(told)
    assert not told or told in conflicts[0]["text"]

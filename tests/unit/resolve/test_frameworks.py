"""Every framework beside PyTorch: which release, which variant, which pins, and what to wish instead."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from itertools import pairwise
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.base import Context
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import apply as component
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.frameworks import resolve as frameworks
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import cards, lock, machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.log import Log
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import gpus
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import specifiers
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import FrameworkWish, Wish
from tests.property import remedies

Resolve = Callable[..., Any]
NAMES = ("pytorch", "tensorflow", "jax", "dali", "onnxruntime", "cupy", "vllm", "lmdb")


def environment(answer: Any, name: str | None = None) -> Any:
    assert answer["ok"], answer
    found: list[Any] = answer["stack"]["frameworks"]
    return next(each for each in found if name in (None, each["name"]))


def pins(entry: Any) -> dict[str, str]:
    """The constraints by package."""
    parts = [re.match(r"[a-z0-9-]+", constraint) for constraint in entry["constraints"]]
    return {part[0]: text[part.end() :] for part, text in zip(parts, entry["constraints"], strict=True) if part}


def rules_of(entries: list[Any]) -> set[str]:
    return {entry["rule"] for entry in entries}


# the tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("pytorch", "releases"),
        ("tensorflow", "releases"),
        ("jax", "releases"),
        ("onnxruntime", "releases"),
        ("cupy", "releases"),
        ("vllm", "releases"),
        ("lmdb", "releases"),
        ("libraries", "dali"),
        ("libraries", "nccl"),
    ],
)
def test_releases_stand_in_their_order_for_the_last_is_taken_for_the_newest(rules: Any, table: str, rows: str) -> None:
    versions = [row["version"] for row in rules[table][rows]]
    assert versions == sorted(versions, key=numeric_version.key)


def test_every_package_of_cupy_has_the_row_of_its_code(rules: Any) -> None:
    for row in rules["cupy"]["releases"]:
        (offers,) = frameworks.FRAMEWORKS["cupy"].offers(FrameworkWish("cupy", f"=={row['version']}"), rules, cpu=False)
        assert [each.variant for each in offers] == list(row["wheels"])


def test_a_package_of_cupy_whose_code_was_not_read_is_not_offered(rules: Any) -> None:
    newer = {**rules["cupy"]["releases"][-1], "version": "14.9.0"}
    changed = {**rules, "cupy": {**rules["cupy"], "releases": [*rules["cupy"]["releases"], newer]}}
    first = next(frameworks.FRAMEWORKS["cupy"].offers(FrameworkWish("cupy"), changed, cpu=False))
    assert {each.version for each in first} == {rules["cupy"]["releases"][-1]["version"]}


def test_every_release_of_vllm_has_its_torch_and_its_code_of_one_cuda(rules: Any) -> None:
    releases = [each["version"] for each in rules["vllm"]["releases"] if not each["yanked"]]
    offered = [each for (each,) in frameworks.FRAMEWORKS["vllm"].offers(FrameworkWish("vllm"), rules, cpu=False)]
    assert [each.version for each in reversed(offered)] == releases
    assert all(each.cuda and each.cuda.split(".")[0] == each.row["cuda_major"] for each in offered)


def test_a_release_of_vllm_whose_torch_or_code_is_not_known_is_not_offered(rules: Any) -> None:
    last = rules["vllm"]["releases"][-1]
    for changes in ({"torch": "9.9.0"}, {"version": "0.99.0"}):
        changed = {**rules, "vllm": {**rules["vllm"], "releases": [{**last, **changes}]}}
        assert list(frameworks.FRAMEWORKS["vllm"].offers(FrameworkWish("vllm"), changed, cpu=False)) == []


def test_vllm_runs_only_where_its_torch_does(rules: Any) -> None:
    changed = {**rules, "pytorch": copy.deepcopy(rules["pytorch"])}
    for row in changed["pytorch"]["releases"]:
        row["python"] = ["3.12"]
    for row in changed["pytorch"]["variants"]:
        row["targets"] = {"x86_64": ["9.0"]}
    room = frameworks.FRAMEWORKS["vllm"]
    (offer,) = next(room.offers(FrameworkWish("vllm"), changed, cpu=False))
    card = cards.from_row(gpus.identify("T4", rules))
    assert offer.pythons == ("3.12",)
    assert [entry["text"][:18] for entry in room.card_reasons(offer, [card], "x86_64", Log(changed))] == [
        "torch 2.14.0+cu130"
    ]


def test_every_variant_of_jax_has_its_plugin(rules: Any) -> None:
    plugins = {(row["variant"], row["version"]) for row in rules["jax"]["plugins"]}
    needed = {(variant, row["plugins"][variant]) for row in rules["jax"]["releases"] for variant in row["extras"]}
    assert needed <= plugins


# which release -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "os", "wants", "requirement"),
    [
        ("H100", "ubuntu-24.04", ["tensorflow"], "tensorflow[and-cuda]==2.21.0"),
        ("H100", "ubuntu-24.04", ["tensorflow==2.16.1"], "tensorflow[and-cuda]==2.16.1"),
        ("V100", "ubuntu-24.04", ["tensorflow"], "tensorflow[and-cuda]==2.21.0"),
        ("GTX 980", "ubuntu-22.04", ["tensorflow"], "tensorflow[and-cuda]==2.16.2"),
        ("H100", "ubuntu-22.04", ["tensorflow[and-cuda]==2.14.1"], "tensorflow[and-cuda]==2.14.1"),
        ("H100", "ubuntu-24.04", ["jax"], "jax[cuda13]==0.12.0.1"),
        ("H100", "ubuntu-24.04", ["jax[cuda12]"], "jax[cuda12]==0.12.0.1"),
        ("V100", "ubuntu-24.04", ["jax"], "jax[cuda12]==0.12.0.1"),
        ("H100", "ubuntu-22.04", ["jax"], "jax[cuda12]==0.6.2"),
        ("H100", "ubuntu-22.04", ["jax", "driver=535"], "jax[cuda12]==0.6.2"),
        ("H100", "ubuntu-24.04", ["jax==0.7.2"], "jax[cuda13]==0.7.2"),
        ("H100", "ubuntu-24.04", ["jax>=0.7,<0.7.2"], "jax[cuda12]==0.7.1"),
        ("RTX 5090", "ubuntu-24.04", ["jax"], "jax[cuda13]==0.12.0.1"),
        ("H100", "ubuntu-24.04", ["dali"], "nvidia-dali-cuda130==2.4.0"),
        ("V100", "ubuntu-24.04", ["dali"], "nvidia-dali-cuda120==2.4.0"),
        ("H100", "ubuntu-22.04", ["dali=1.53", "driver=535"], "nvidia-dali-cuda120==1.53.0"),
        ("H100", "ubuntu-24.04", ["onnxruntime"], "onnxruntime-gpu[cuda,cudnn]==1.31.1"),
        ("H100", "ubuntu-22.04", ["ort"], "onnxruntime-gpu[cuda,cudnn]==1.23.2"),
        ("V100", "ubuntu-24.04", ["onnxruntime-gpu"], "onnxruntime-gpu[cuda,cudnn]==1.26.0"),
        ("GTX 1080 Ti", "ubuntu-24.04", ["onnxruntime==1.23.2"], "onnxruntime-gpu[cuda,cudnn]==1.23.2"),
        # No code for 10.x since 1.29.
        ("B200", "ubuntu-24.04", ["onnxruntime"], "onnxruntime-gpu[cuda,cudnn]==1.28.0"),
        ("RTX 5090", "ubuntu-24.04", ["onnxruntime"], "onnxruntime-gpu[cuda,cudnn]==1.31.1"),
        ("H100", "debian-12", ["onnxruntime", "driver=535"], "onnxruntime-gpu[cuda,cudnn]==1.26.0"),
        # Of its variants one whose CUDA the driver brings in full comes first: 580 brings 13.0.
        ("H100", "ubuntu-24.04", ["cupy"], "cupy-cuda12x[ctk]==14.2.0"),
        ("H100", "ubuntu-24.04", ["cupy", "driver=595"], "cupy-cuda13x[ctk]==14.2.0"),
        ("H100", "ubuntu-24.04", ["cupy-cuda13x"], "cupy-cuda13x[ctk]==14.2.0"),
        ("H100", "ubuntu-22.04", ["cupy==14.0.1"], "cupy-cuda13x[ctk]==14.0.1"),
        ("H100", "debian-12", ["cupy", "driver=535"], "cupy-cuda12x[ctk]==14.2.0"),
        ("V100", "ubuntu-24.04", ["cupy"], "cupy-cuda12x[ctk]==14.2.0"),
        ("GTX 980", "ubuntu-22.04", ["cupy"], "cupy-cuda12x[ctk]==14.2.0"),
        ("H100", "ubuntu-24.04", ["vllm"], "vllm==0.33.0"),
        ("RTX 5090", "ubuntu-24.04", ["vllm"], "vllm==0.33.0"),
        ("H100", "ubuntu-22.04", ["vllm"], "vllm==0.31.0"),
        ("T4", "ubuntu-24.04", ["vllm==0.26.0"], "vllm==0.26.0"),
        ("V100", "ubuntu-24.04", ["vllm"], "vllm==0.19.1"),
        ("H100", "debian-12", ["vllm", "driver=535"], "vllm==0.19.1"),
    ],
)
def test_the_newest_release_that_card_driver_and_python_run_is_taken(
    resolve: Resolve, card: str, os: str, wants: list[str], requirement: str
) -> None:
    assert environment(resolve(card, os, *wants))["requirements"][0] == requirement


def test_each_framework_gets_an_environment_of_its_own(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-24.04", *NAMES)
    found = [environment(answer, name) for name in NAMES]
    assert [entry["path"] for entry in found] == [f"/opt/gpuwright/{name}" for name in NAMES]
    for entry in found:
        assert {"name", "version", "variant", "requirements", "constraints", "cuda", "cudnn", "python"} <= set(entry)
        assert entry["interpreter"] in entry["python"]
    assert [entry["name"] for entry in found if "index_url" in entry] == ["pytorch"]


def test_what_has_no_index_of_its_own_comes_from_the_mirror_where_one_is_given(resolve: Resolve) -> None:
    mirrors = {"gpuwright_mirrors": {"pypi": "http://mirror.example/simple/"}}
    answer = resolve("H100", "ubuntu-24.04", "jax", "pytorch", wish=mirrors)
    assert environment(answer, "jax")["index_url"] == "http://mirror.example/simple"
    own = environment(answer, "pytorch")
    assert own["index_url"].startswith("https://")
    assert own["dependencies_url"] == "http://mirror.example/simple"


_PUBLIC = {"gpuwright_mirrors": {"pytorch": "pypi"}}


def test_pytorch_comes_from_the_python_index_where_the_wish_says_so(resolve: Resolve) -> None:
    found = environment(resolve("H100", "debian-12", "torch==2.14.1", wish=_PUBLIC), "pytorch")
    assert found["requirements"][0] == "torch==2.14.1"
    assert found["variant"] == "cu130"
    assert "index_url" not in found
    mirrors = {"gpuwright_mirrors": {"pytorch": "pypi", "pypi": "http://mirror.example/simple"}}
    found = environment(resolve("H100", "debian-12", "torch==2.14.1", wish=mirrors), "pytorch")
    assert found["index_url"] == "http://mirror.example/simple"


def test_a_variant_that_the_python_index_has_not_is_not_chosen_from_it(resolve: Resolve, rules: Any) -> None:
    # No release of today has code for the card in its default variant: it is an older one whose default has.
    found = environment(resolve("GTX 1080", "debian-12", "pytorch", wish=_PUBLIC), "pytorch")
    release = next(row for row in rules["pytorch"]["releases"] if row["version"] == found["version"])
    assert found["variant"] == f"cu{release['default_cuda'].replace('.', '')}"
    answer = resolve("H100", "debian-12", "torch==2.14.1+cu126", wish=_PUBLIC)
    (reason,) = [row for row in answer["conflicts"] if row["rule"] == "frameworks.index"]
    assert reason["text"] == (
        "the Python index, which gpuwright_mirrors names for it, has no torch 2.14.1+cu126 for x86_64"
    )


@pytest.mark.parametrize(("version", "there"), [("2.11.0", True), ("2.10.0", False)])
def test_for_arm_the_python_index_has_cuda_from_2_11_on(resolve: Resolve, version: str, there: bool) -> None:
    answer = resolve("GH200", "ubuntu-24.04", f"torch=={version}", arch="aarch64", wish=_PUBLIC)
    assert answer["ok"] == there, answer


def test_without_a_card_the_one_form_of_the_python_index_serves_too(resolve: Resolve) -> None:
    found = environment(resolve([], "debian-12", "torch==2.14.1", wish=_PUBLIC), "pytorch")
    assert (found["requirements"][0], found["variant"], "index_url" in found) == ("torch==2.14.1", "cpu", False)


@pytest.mark.parametrize(("mirrors", "built"), [({}, ["lit"]), ({"pypi": "http://mirror.example/simple"}, None)])
def test_what_is_built_from_its_source_is_named_and_only_where_no_index_has_a_wheel(
    resolve: Resolve, mirrors: dict[str, str], built: list[str] | None
) -> None:
    answer = resolve("V100", "ubuntu-22.04", "torch==2.0.1", wish={"gpuwright_mirrors": mirrors})
    assert environment(answer, "pytorch").get("from_source") == built
    assert ("frameworks.from-source" in rules_of(answer["warnings"])) == bool(built)
    assert "from_source" not in environment(resolve("V100", "ubuntu-22.04", "torch==2.1.0"), "pytorch")


def test_the_driver_is_chosen_for_the_cuda_that_a_variant_names(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-22.04", "driver=535", "jax[cuda13]", "python=3.12")
    assert "driver.floor-cuda" in rules_of(answer["conflicts"])
    assert resolve("H100", "ubuntu-22.04", "driver=535", "jax[cuda12]", "python=3.12")["ok"]


@pytest.mark.parametrize("name", ["tensorflow", "jax", "pytorch", "onnxruntime"])
def test_without_a_card_there_is_a_build_for_the_processor(resolve: Resolve, name: str) -> None:
    entry = environment(resolve([], "ubuntu-24.04", name))
    assert (entry["variant"], entry["cuda"], entry["cudnn"]) == ("cpu", None, None)
    assert "[" not in entry["requirements"][0]
    assert not any("nvidia" in text for text in [*entry["requirements"], *entry["constraints"]])


@pytest.mark.parametrize("name", ["dali", "cupy", "vllm"])
def test_what_has_no_build_for_the_processor_is_left_out_where_there_is_no_card(resolve: Resolve, name: str) -> None:
    answer = resolve([], "ubuntu-24.04", name, "jax")
    assert [entry["name"] for entry in answer["stack"]["frameworks"]] == ["jax"]
    assert any(f"no NVIDIA GPU: {name} left out" in entry["text"] for entry in answer["warnings"])


def test_a_release_that_was_withdrawn_is_passed_over(rules: Any) -> None:
    changed = copy.deepcopy(rules)
    changed["jax"]["releases"][-1]["yanked"] = True
    where = machine.machine_from_options(["H100"], "ubuntu-24.04", "x86_64", None, changed, today=date(2026, 11, 20))
    answer = resolver.resolve(where, Wish.from_wants(["jax"], changed), changed)
    assert environment(answer)["version"] == rules["jax"]["releases"][-2]["version"]


def test_what_is_not_confirmed_is_given_only_on_request_and_with_a_warning(rules: Any) -> None:
    changed = copy.deepcopy(rules)
    changed["tensorflow"]["releases"][-1]["confirmed"] = False
    where = machine.machine_from_options(["H100"], "ubuntu-24.04", "x86_64", None, changed, today=date(2026, 11, 20))
    plain = resolver.resolve(where, Wish.from_wants(["tensorflow"], changed), changed)
    assert environment(plain)["version"] == "2.20.0"
    asked = resolver.resolve(where, Wish.from_wants(["tensorflow=2.21.0"], changed), changed)
    assert environment(asked)["version"] == "2.21.0"
    assert "frameworks.unconfirmed" in rules_of(asked["warnings"])


@pytest.mark.parametrize(
    ("better", "worse"), list(pairwise(("default", "stable", "legacy", "experimental", "unsupported")))
)
def test_a_variant_of_a_better_status_comes_before_one_with_a_newer_cuda(rules: Any, better: str, worse: str) -> None:
    changed = copy.deepcopy(rules)
    status = {"cu126": better, "cu130": worse, "cu132": "unsupported"}
    for row in changed["pytorch"]["variants"]:
        if row["release"] == "2.14":
            row["status"] = status[row["variant"]]
    where = machine.machine_from_options(["H100"], "ubuntu-24.04", "x86_64", None, changed, today=date(2026, 11, 20))
    found = environment(resolver.resolve(where, Wish.from_wants(["pytorch=2.14"], changed), changed))
    assert found["variant"] == "cu126"


def test_support_is_not_monotone_and_is_not_taken_for_it(resolve: Resolve) -> None:
    # Volta is in cu128 for 2.8 to 2.10 only.
    for release, runs in (("2.7.1", False), ("2.8.0", True), ("2.10.0", True), ("2.11.0", False)):
        assert resolve("V100", "ubuntu-24.04", f"pytorch={release}+cu128")["ok"] is runs, release


# pins --------------------------------------------------------------------------------------------------


def test_what_a_range_leaves_open_is_closed_for_an_old_card(resolve: Resolve) -> None:
    answer = resolve("V100", "ubuntu-24.04", "tensorflow", "jax", "onnxruntime")
    for name in ("tensorflow", "jax", "onnxruntime"):
        entry = environment(answer, name)
        assert pins(entry)["nvidia-cudnn-cu12"] == "==9.10.2.21"
        assert entry["cudnn"] == "9.10.2.21"


def test_why_a_range_is_closed_where_it_is_is_said(resolve: Resolve) -> None:
    (old,) = (entry for entry in resolve("V100", "ubuntu-24.04", "jax")["why"] if entry["rule"] == "frameworks.cudnn")
    assert "the last that serves every card" in old["text"]
    assert "compat/cudnn.yaml" in old["source"]
    (new,) = (entry for entry in resolve("H100", "ubuntu-24.04", "jax")["why"] if entry["rule"] == "frameworks.cudnn")
    assert "leaves it open" in new["text"]
    assert "compat/jax.yaml" in new["source"]


def test_a_newer_card_gets_the_newest_cudnn_of_the_range(resolve: Resolve, rules: Any) -> None:
    newest = [row["version"] for row in rules["cudnn"]["versions"] if "12" in row["cuda_majors"]][-1]
    assert pins(environment(resolve("H100", "ubuntu-24.04", "tensorflow")))["nvidia-cudnn-cu12"] == f"=={newest}"


@pytest.mark.parametrize(
    "change", [{"cuda_majors": ["13"]}, {"arch": ["aarch64"]}, {"yanked": True}, {"version": "9.28.0.42.post1"}]
)
def test_a_cudnn_that_is_not_for_the_wheels_or_the_machine_is_none_of_the_range(
    rules: Any, change: dict[str, Any]
) -> None:
    changed = copy.deepcopy(rules)
    changed["cudnn"]["versions"][-1] |= change
    where = machine.machine_from_options(["H100"], "ubuntu-24.04", "x86_64", None, changed, today=date(2026, 11, 20))
    answer = resolver.resolve(where, Wish.from_wants(["tensorflow"], changed), changed)
    assert environment(answer)["cudnn"] == rules["cudnn"]["versions"][-2]["version"]


def test_an_exact_pin_of_the_framework_stays_what_it_is(resolve: Resolve) -> None:
    found = pins(environment(resolve("H100", "ubuntu-24.04", "tensorflow==2.19.0")))
    assert (found["nvidia-cudnn-cu12"], found["nvidia-nccl-cu12"]) == ("==9.3.0.75", "==2.23.4")
    assert found["numpy"] == "<2.2.0,>=1.26.0"


def test_a_release_that_does_not_know_numpy_2_is_kept_from_it(resolve: Resolve) -> None:
    assert "<2" in pins(environment(resolve("H100", "ubuntu-22.04", "tensorflow==2.14.0")))["numpy"]


def test_a_release_that_was_published_again_is_one_to_ask_for(resolve: Resolve) -> None:
    entry = environment(resolve("H100", "ubuntu-22.04", "tensorflow==2.15.0.post1"))
    assert entry["requirements"] == ["tensorflow[and-cuda]==2.15.0.post1"]


def test_cuda_stays_in_its_major_version_where_the_plugin_sets_no_end(resolve: Resolve) -> None:
    cuda13 = pins(environment(resolve("H100", "ubuntu-24.04", "jax[cuda13]")))
    assert specifiers.matches("13.2.75", cuda13["nvidia-cuda-runtime"])
    assert not specifiers.matches("14.0.1", cuda13["nvidia-cuda-runtime"])
    cuda12 = pins(environment(resolve("H100", "ubuntu-24.04", "jax[cuda12]")))
    assert not specifiers.matches("13.0.1", cuda12["nvidia-cuda-nvcc-cu12"])


@pytest.mark.parametrize(("card", "oldest"), [("H100", "12.6.85"), ("RTX 5090", "12.8"), ("B300", "12.9")])
def test_the_compiler_of_jax_is_one_that_knows_the_card(resolve: Resolve, card: str, oldest: str) -> None:
    found = pins(environment(resolve(card, "ubuntu-24.04", "jax[cuda12]")))["nvidia-cuda-nvcc-cu12"]
    assert specifiers.matches(oldest, found)
    assert specifiers.matches("12.6.85", found) is (card == "H100")


def test_jax_and_its_plugin_are_of_one_release(resolve: Resolve) -> None:
    entry = environment(resolve("H100", "ubuntu-22.04", "jax==0.4.37"))
    # 0.4.37 changed Python code only: its plugin is the one of 0.4.36.
    assert entry["requirements"] == [
        "jax[cuda12]==0.4.37",
        "jaxlib==0.4.36",
        "jax-cuda12-plugin==0.4.36",
        "jax-cuda12-pjrt==0.4.36",
    ]


@pytest.mark.parametrize(("card", "oldest"), [("H100", "12.0.1"), ("RTX 5090", "12.8.0"), ("B300", "12.9.0")])
def test_the_toolkit_of_cupy_is_one_whose_compiler_knows_the_card(resolve: Resolve, card: str, oldest: str) -> None:
    found = pins(environment(resolve(card, "ubuntu-24.04", "cupy-cuda12x")))
    assert specifiers.matches(oldest, found["cuda-toolkit"])
    assert specifiers.matches("12.6.3", found["cuda-toolkit"]) is (card == "H100")
    assert not specifiers.matches("13.0.0", found["cuda-toolkit"])
    assert found["numpy"] == "<2.6,>=2.0"


CARDS = ("GTX 980", "GTX 1080 Ti", "V100", "T4", "A100", "RTX 4090", "H100", "B200", "B300", "RTX 5090")


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("os", ["ubuntu-22.04", "ubuntu-24.04", "debian-12"])
@pytest.mark.parametrize("name", NAMES)
def test_constraints_are_always_there_and_hold_what_the_card_can_do(
    resolve: Resolve, rules: Any, card: str, os: str, name: str
) -> None:
    answer = resolve(card, os, name)
    if not answer["ok"]:
        beyond = {"onnxruntime": ("GTX 980",), "vllm": ("GTX 980", "GTX 1080 Ti")}
        assert name == "tensorflow" or card in beyond[name]
        return
    entry = environment(answer)
    assert entry["constraints"]
    old = not numeric_version.at_least(gpus.identify(card, rules)["compute_capability"], "7.5")
    for package, spec in pins(entry).items():
        if package.startswith("nvidia-cudnn"):
            assert spec.startswith("==")
            assert not old or numeric_version.at_least("9.10.2.21", spec[2:])


# refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "os", "wants", "rule", "told", "remedy"),
    [
        ("RTX 5090", "ubuntu-24.04", ["tensorflow"], "frameworks.card", "Blackwell", "leave TensorFlow out"),
        ("H100", "ubuntu-22.04", ["tensorflow=2.13"], "frameworks.system-cuda", "CUDA 11.8", "tensorflow=2.21.0"),
        ("H100", "ubuntu-22.04", ["tensorflow==2.15.0"], "frameworks.broken", "tensorrt-libs", "tensorflow=2.21.0"),
        (
            "H100",
            "debian-12",
            ["tensorflow==2.14.1"],
            "frameworks.python",
            "no wheel for Python 3.11",
            "tensorflow=2.21.0",
        ),
        ("GTX 980", "ubuntu-22.04", ["tensorflow=2.17"], "frameworks.card", "GTX 980", "tensorflow=2.16.2"),
        ("V100", "ubuntu-24.04", ["jax[cuda13]"], "frameworks.card", "compute capability 7.5", "jax[cuda12]"),
        ("H100", "ubuntu-22.04", ["jax==0.7.2"], "frameworks.python", "3.10", "jax==0.6.2"),
        ("Tesla K80", "ubuntu-22.04", ["jax"], "frameworks.card", "5.2", "leave JAX out"),
        ("Tesla K80", "ubuntu-22.04", ["dali=2.4"], "frameworks.card", "K80", "dali=1."),
        ("V100", "ubuntu-24.04", ["dali=2.4+cuda130"], "frameworks.card", "V100", "dali=2.4.0+cuda120"),
        ("H100", "ubuntu-24.04", ["tensorflow", "python=3.14"], "frameworks.python", "3.14", "python=3.12"),
        ("GTX 980", "ubuntu-24.04", ["onnxruntime"], "frameworks.card", "5.2", "leave ONNX Runtime out"),
        ("V100", "ubuntu-24.04", ["onnxruntime-gpu==1.31.1"], "frameworks.card", "7.0", "onnxruntime-gpu=1.26.0"),
        (
            "H100",
            "ubuntu-24.04",
            ["ort==1.27.0"],
            "frameworks.broken",
            "nvidia-cuda-runtime-cu13",
            "onnxruntime=1.28.0",
        ),
        ("H100", "ubuntu-24.04", ["ort==1.32.0"], "frameworks.release", "onnxruntime-gpu", "onnxruntime=1.31.1"),
        ("B200", "ubuntu-24.04", ["ort==1.30.0"], "frameworks.card", "B200", "onnxruntime=1.28.0"),
        ("GTX 1080 Ti", "ubuntu-24.04", ["vllm"], "frameworks.card", "6.1", "leave vLLM out"),
        ("V100", "ubuntu-24.04", ["vllm==0.33.0"], "frameworks.card", "7.0", "vllm=0.19.1"),
        ("H100", "ubuntu-22.04", ["vllm==0.33.0"], "frameworks.python", "3.10", "vllm=0.31.0"),
        ("H100", "ubuntu-22.04", ["vllm==0.33.0", "driver=535"], "frameworks.driver", "CUDA 13", "vllm=0.19.1"),
        ("Tesla K80", "ubuntu-22.04", ["cupy"], "frameworks.card", "3.7", "leave CuPy out"),
        ("V100", "ubuntu-24.04", ["cupy-cuda13x==14.2.0"], "frameworks.card", "V100", "cupy=14.2.0+cuda12"),
        ("H100", "ubuntu-24.04", ["cupy", "python=3.9"], "frameworks.python", "3.9", "python=3."),
        ("Jetson AGX Orin", "ubuntu-22.04", ["ort"], "frameworks.jetson", "JetPack", "leave ONNX Runtime out"),
    ],
)
def test_a_framework_that_cannot_be_had_is_refused_with_its_reason_and_the_nearest_that_can(
    resolve: Resolve, card: str, os: str, wants: list[str], rule: str, told: str, remedy: str
) -> None:
    answer = resolve(card, os, *wants)
    assert not answer["ok"]
    assert rule in rules_of(answer["conflicts"])
    assert any(told in entry["text"] for entry in answer["conflicts"]), answer["conflicts"]
    assert all(remedy in entry["remedy"] for entry in answer["conflicts"]), answer["conflicts"]


def test_tensorflow_has_no_cuda_for_arm(resolve: Resolve) -> None:
    answer = resolve("GH200", "ubuntu-24.04", "tensorflow", arch="aarch64")
    assert rules_of(answer["conflicts"]) == {"frameworks.arch"}
    assert resolve("GH200", "ubuntu-24.04", "jax", "dali", arch="aarch64")["ok"]


@pytest.mark.parametrize("cards", [[], ["H100"], ["GTX 1080 Ti"]])
def test_lmdb_computes_on_the_processor_whatever_the_cards(resolve: Resolve, cards: list[str]) -> None:
    entry = environment(resolve(cards, "ubuntu-24.04", "lmdb"))
    assert (entry["requirements"], entry["variant"], entry["cuda"]) == (["lmdb==3.0.0"], "cpu", None)


def test_a_jetson_gets_lmdb_which_uses_no_card(resolve: Resolve, answer: Resolve, facts: Any) -> None:
    assert resolve("Jetson AGX Orin 64GB", "ubuntu-22.04", "lmdb", arch="aarch64")["ok"]
    facts["environment"] = {"kind": "jetson", "detail": None}
    facts["pci"]["gpus"] = []
    assert answer(facts, "lmdb")["ok"]


def test_vllm_brings_its_torch_and_is_held_to_what_that_brings(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-24.04", "vllm==0.33.0", "pytorch=2.15")
    found, other = environment(answer, "vllm"), environment(answer, "pytorch")
    assert pins(found)["torch"] == "==2.14.0"
    assert (found["cuda"], found["cudnn"]) == ("13.0", pins(found)["nvidia-cudnn-cu13"].removeprefix("=="))
    assert "index_url" not in found
    assert other["version"] == "2.15.0"
    assert "torch 2.14.0+cu130" in {each["rule"]: each["text"] for each in answer["why"]}["frameworks.torch"]


def test_vllm_for_arm_needs_a_torch_with_cuda_and_a_card_that_has_code(resolve: Resolve) -> None:
    assert environment(resolve("GH200", "ubuntu-24.04", "vllm", arch="aarch64"))["requirements"] == ["vllm==0.33.0"]
    older = resolve("GH200", "ubuntu-24.04", "vllm==0.19.1", arch="aarch64")
    assert rules_of(older["conflicts"]) == {"frameworks.arch"}
    assert rules_of(resolve("T4", "ubuntu-24.04", "vllm==0.33.0", arch="aarch64")["conflicts"]) == {"frameworks.card"}


def test_a_lock_writes_vllm_as_pip_does(resolve: Resolve) -> None:
    assert "vllm==0.33.0" in lock.as_wants(resolve("H100", "ubuntu-24.04", "vllm")["stack"])


def test_onnxruntime_has_cuda_for_arm_since_1_29(resolve: Resolve) -> None:
    newest = environment(resolve("GH200", "ubuntu-24.04", "onnxruntime", arch="aarch64"))
    assert newest["requirements"] == ["onnxruntime-gpu[cuda,cudnn]==1.31.1"]
    older = resolve("GH200", "ubuntu-24.04", "onnxruntime==1.28.0", arch="aarch64")
    assert rules_of(older["conflicts"]) == {"frameworks.arch"}


def test_onnxruntime_with_cuda_is_not_given_where_there_is_no_card(resolve: Resolve) -> None:
    assert rules_of(resolve([], "ubuntu-24.04", "onnxruntime-gpu")["conflicts"]) == {"frameworks.no-card"}
    assert environment(resolve([], "ubuntu-24.04", "ort"))["requirements"] == ["onnxruntime==1.32.0"]


def test_it_is_said_how_onnxruntime_finds_the_cuda_of_its_environment(resolve: Resolve) -> None:
    told = {entry["rule"]: entry["text"] for entry in resolve("H100", "ubuntu-24.04", "onnxruntime")["why"]}
    assert "onnxruntime.preload_dlls()" in told["frameworks.preload"]


@pytest.mark.parametrize(("cards", "want"), [(["H100"], "onnxruntime-gpu==1.31.1"), ([], "onnxruntime==1.32.0")])
def test_a_lock_writes_onnxruntime_by_the_package_that_it_is(resolve: Resolve, cards: list[str], want: str) -> None:
    answer = resolve(cards, "ubuntu-24.04", "onnxruntime")
    assert want in lock.as_wants(answer["stack"])
    again = resolve(cards, "ubuntu-24.04", want)
    assert environment(again)["requirements"] == environment(answer)["requirements"]


def test_the_reasons_of_every_framework_are_named_at_once(resolve: Resolve) -> None:
    answer = resolve("V100", "ubuntu-24.04", "pytorch=2.15", "tensorflow=2.13", "jax[cuda13]")
    told = " ".join(entry["text"] for entry in answer["conflicts"])
    assert all(name in told for name in ("torch 2.15", "tensorflow 2.13", "jax 0.12"))


def test_a_driver_that_cannot_be_had_hides_no_other_reason(resolve: Resolve) -> None:
    answer = resolve("V100", "ubuntu-24.04", "driver=595", "cuda=13", "jax[cuda13]")
    assert {"driver.card", "cuda.card", "frameworks.card"} <= rules_of(answer["conflicts"])


def test_cards_without_a_release_in_common_are_named_as_a_pair(rules: Any) -> None:
    changed = copy.deepcopy(rules)
    source = changed["tensorflow"]["limits"][0]
    changed["tensorflow"]["limits"] = [
        {**source, "from_version": "2.12.0", "to_version": "2.18.1", "max_compute_capability": "8.0"},
        {**source, "from_version": "2.19.0", "to_version": None, "min_compute_capability": "8.6"},
    ]
    for names, fits in ((["A100"], True), (["H100"], True), (["A100", "H100"], False)):
        where = machine.machine_from_options(names, "ubuntu-24.04", "x86_64", None, changed, today=date(2026, 11, 20))
        # The A100 (8.0) passes the first limit only, the H100 (9.0) the second only.
        wish = Wish.from_wants(["tensorflow"], changed)
        answer = resolver.resolve(where, wish, changed)
        assert answer["ok"] is fits, (names, answer)
    pair = next(entry for entry in answer["conflicts"] if entry["rule"] == "frameworks.cards")
    assert "A100" in pair["text"]
    assert "H100" in pair["text"]
    assert "gpuwright_gpus_ignore" in pair["remedy"]


@pytest.mark.parametrize(
    ("spec", "floor", "blamed"),
    [
        ("<10.0,>=9.3.0.75", None, []),
        ("<10.0,>=9.12", None, ["Tesla V100 SXM2 16GB (compute capability 7.0)"]),
        # Each is served alone, the old one up to 9.10 and the new one from 9.12 on.
        (
            "<10.0,>=9.3.0.75",
            "9.12.0.46",
            ["Tesla V100 SXM2 16GB (compute capability 7.0)", "H100 SXM5 80GB (compute capability 9.0)"],
        ),
    ],
)
def test_the_cards_that_no_cudnn_of_a_range_serves_are_named_and_no_others(
    rules: Any, spec: str, floor: str | None, blamed: list[str]
) -> None:
    changed = copy.deepcopy(rules)
    changed["tensorflow"]["releases"][-1]["requires"]["cudnn"] = spec
    if floor:
        changed["cudnn"]["floors"].append({"from_compute_capability": "9.0", "first": floor, "source": ["immich"]})
    names = ["V100", "H100"]
    where = machine.machine_from_options(names, "ubuntu-24.04", "x86_64", None, changed, today=date(2026, 11, 20))
    wish = Wish.from_wants(["tensorflow==2.21.0"], changed)
    found = resolver.resolve(where, wish, changed).get("conflicts", [])
    assert [entry["text"] for entry in found if entry["rule"] == "frameworks.cudnn"] == [
        f"tensorflow 2.21.0 needs cuDNN {spec}, of which no version serves the {card}" for card in blamed
    ]


def test_several_cards_get_the_release_that_serves_them_all(resolve: Resolve) -> None:
    answer = resolve(["GTX 980", "RTX 4090"], "ubuntu-22.04", "tensorflow", "jax")
    assert environment(answer, "tensorflow")["version"] == "2.16.2"
    assert pins(environment(answer, "jax"))["nvidia-cudnn-cu12"] == "==9.10.2.21"


# the nearest wish --------------------------------------------------------------------------------------

IMPOSSIBLE = [
    ("V100", "ubuntu-24.04", ["jax[cuda13]"]),
    ("V100", "ubuntu-24.04", ["pytorch=2.15", "tensorflow=2.13", "jax[cuda13]"]),
    ("V100", "ubuntu-24.04", ["driver=595", "cuda=13", "jax[cuda13]"]),
    ("GTX 980", "ubuntu-22.04", ["tensorflow=2.17", "pytorch"]),
    ("GTX 980", "ubuntu-22.04", ["tensorflow=2.17", "cuda=13", "driver=595", "jax[cuda13]==0.7.2"]),
    ("H100", "ubuntu-22.04", ["tensorflow=2.13", "python=3.12"]),
    ("H100", "ubuntu-22.04", ["driver=535", "jax[cuda13]", "dali=2.4+cuda130"]),
    ("H100", "ubuntu-24.04", ["tensorflow", "jax", "python=3.14"]),
    ("H100", "ubuntu-24.04", ["tensorflow=2.16", "jax==0.12.0", "python=3.9"]),
    ("RTX 5090", "ubuntu-24.04", ["tensorflow", "torch==2.6.0+cu124"]),
    ("RTX 5090", "ubuntu-24.04", ["dali=1.30", "jax[cuda12]"]),
    ("Tesla K80", "ubuntu-22.04", ["jax", "dali", "pytorch=2.15"]),
]


@pytest.mark.parametrize(("card", "os", "wants"), IMPOSSIBLE)
def test_the_wish_that_is_suggested_resolves(rules: Any, card: str, os: str, wants: list[str]) -> None:
    where = machine.machine_from_options([card], os, "x86_64", None, rules, today=date(2026, 11, 20))
    wish = Wish.from_wants(wants, rules)
    answer = resolver.resolve(where, wish, rules)
    assert not answer["ok"]
    assert remedies.followed(wish, answer["conflicts"], rules), "each of them was resolved as well"


def test_one_python_is_not_suggested_where_the_frameworks_need_two(rules: Any) -> None:
    where = machine.machine_from_options(
        ["H100"], "ubuntu-24.04", "x86_64", {"python": "3.10,3.13"}, rules, today=date(2026, 11, 20)
    )
    wish = Wish.from_wants(["tensorflow==2.16.2", "jax==0.12.0"], rules)
    assert resolver.resolve(where, wish, rules)["ok"]
    wish = replace(wish, python="3.11")
    refused = resolver.resolve(where, wish, rules)
    assert remedies.followed(wish, refused["conflicts"], rules), "each of them was resolved as well"


# what cards are told -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "name", "newest"),
    [
        ("V100", "pytorch", "2.14.1+cu126"),
        ("V100", "jax", "0.12.0.1[cuda12]"),
        ("V100", "tensorflow", "2.21.0"),
        ("RTX 5090", "tensorflow", None),
        ("RTX 5090", "dali", "2.4.0+cuda130"),
    ],
)
def test_the_newest_release_for_a_card_is_known_whatever_the_driver(
    rules: Any, card: str, name: str, newest: str | None
) -> None:
    found = frameworks.newest_for([cards.from_row(gpus.identify(card, rules))], "x86_64", rules, name)
    assert found == newest


# partners, boards and limits ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("want", "python", "absent"),
    [
        ("pytorch=2.15", "3.15", set()),
        ("pytorch=2.15", "3.14", set()),
        ("pytorch=2.5", "3.13", {"torchvision", "torchaudio"}),
        ("pytorch=2.5", "3.12", set()),
        ("pytorch=1.13", "3.11", {"torchvision", "torchaudio"}),
        ("pytorch=1.13", "3.10", set()),
    ],
)
def test_a_partner_without_wheels_for_the_chosen_python_is_left_out_with_a_warning(
    resolve: Resolve, want: str, python: str, absent: set[str]
) -> None:
    answer = resolve("V100", "ubuntu-22.04", f"{want}+cpu", python=python)
    entry = environment(answer)
    assert entry["interpreter"] == python
    pinned = {pin.split("==")[0] for pin in entry["requirements"]}
    assert pinned == {"torch", "torchvision", "torchaudio"} - absent
    told = {each["text"].split()[0] for each in answer["warnings"] if each["rule"] == "frameworks.partner"}
    assert told == absent
    assert all(f"no wheels for Python {python}" in w["text"] for w in answer["warnings"] if "partner" in w["rule"])


@pytest.mark.parametrize("want", ["jax[cuda12]", "jax[cuda13]", "dali", "cupy", "vllm", "pytorch", "tensorflow", "jax"])
@pytest.mark.parametrize("board", ["Jetson AGX Orin 64GB", "Jetson AGX Xavier 32GB"])
def test_a_jetson_gets_no_wheels_for_servers(resolve: Resolve, board: str, want: str) -> None:
    answer = resolve(board, "ubuntu-22.04", want, arch="aarch64", python="3.10,3.12")
    assert not answer["ok"]
    reasons_ = [each for each in answer["conflicts"] if each["rule"] == "frameworks.jetson"]
    assert reasons_
    assert all(board in each["text"] and "JetPack" in each["remedy"] for each in reasons_)


def test_thor_takes_the_wheels_for_servers_that_have_code_for_it(resolve: Resolve) -> None:
    for want, pin in (
        ("pytorch", "torch==2.14.1+cu130"),
        ("jax", "jax[cuda13]==0.12.0.1"),
        ("dali", "nvidia-dali-cuda130==2.4.0"),
        ("cupy", "cupy-cuda13x[ctk]==14.2.0"),
        ("vllm", "vllm==0.33.0"),
    ):
        answer = resolve("Jetson AGX Thor (T5000)", "ubuntu-24.04", want, arch="aarch64")
        assert environment(answer)["requirements"][0] == pin
        assert "frameworks.unconfirmed" not in rules_of(answer["warnings"])
    older = resolve("Jetson AGX Thor (T5000)", "ubuntu-24.04", "jax[cuda13]==0.8.0", arch="aarch64")
    assert "frameworks.unconfirmed" in rules_of(older["warnings"])


def test_a_jetson_whose_card_is_not_seen_is_not_taken_for_a_machine_without_one(answer: Resolve, facts: Any) -> None:
    facts["environment"] = {"kind": "jetson", "detail": None}
    facts["pci"]["gpus"] = []
    refused = answer(facts, "jax")
    assert [each["rule"] for each in refused["conflicts"]] == ["frameworks.jetson"]
    assert answer(facts, "pytorch=2.15+cpu")["ok"]


@pytest.mark.parametrize("card", ["B200", "RTX 5090", "B300"])
@pytest.mark.parametrize(
    ("version", "sure"), [("0.4.30", False), ("0.4.38", None), ("0.5.3", None), ("0.6.0", True), ("0.6.2", True)]
)
def test_jax_of_before_blackwell_is_refused_there_or_said_to_be_unknown(
    resolve: Resolve, card: str, version: str, sure: bool | None
) -> None:
    answer = resolve(card, "ubuntu-22.04", f"jax[cuda12]=={version}")
    assert answer["ok"] is (sure is not False)
    if answer["ok"]:
        assert ("frameworks.unconfirmed" in rules_of(answer["warnings"])) is (sure is None)
    else:
        assert "ends with Hopper" in resolve_text(answer)


def resolve_text(answer: Any) -> str:
    return " ".join(each["text"] for each in answer["conflicts"])


@pytest.mark.parametrize(
    ("card", "arch", "want", "ok"),
    [
        ("GTX 980", "x86_64", "dali+cuda120", True),
        ("Tesla K80", "x86_64", "dali+cuda120", False),
        ("GTX 1080 Ti", "x86_64", "dali+cuda120", True),
        ("GTX 1080 Ti", "aarch64", "dali+cuda120", False),
        ("V100", "aarch64", "dali+cuda120", True),
        ("V100", "x86_64", "dali=2.4+cuda130", False),
        ("T4", "x86_64", "dali=2.4+cuda130", True),
    ],
)
def test_each_build_of_dali_begins_with_the_cards_of_its_support_matrix(
    resolve: Resolve, card: str, arch: str, want: str, ok: bool
) -> None:
    wish = want if "=" in want else want.replace("dali", "dali=2.4")
    answer = resolve(card, "ubuntu-22.04", wish, arch=arch)
    assert answer["ok"] is ok, answer
    if not ok:
        assert "frameworks.card" in rules_of(answer["conflicts"]) or "driver" in resolve_text(answer)


def test_what_is_not_confirmed_of_a_build_of_dali_is_told(resolve: Resolve) -> None:
    old = resolve("RTX 5090", "ubuntu-22.04", "dali=1.30+cuda120")
    assert "frameworks.unconfirmed" in rules_of(old["warnings"])
    assert "frameworks.unconfirmed" not in rules_of(resolve("H100", "ubuntu-22.04", "dali=1.30+cuda120")["warnings"])


# what is not as wished on a node -----------------------------------------------------------------------


def reasons(entry: Any, packages: dict[str, str], python: str = "3.12.3") -> list[str]:
    return told(entry, {entry["path"]: {"python": python, "packages": packages}} if packages else {})


def told(entry: Any, environments: Any) -> list[str]:
    interpreters = [{"version": "3.12.3"}]
    facts: Any = {"environments": environments, "python": {"interpreters": interpreters}, "os": {"family": "debian"}}
    return [found.reason for found in component.findings(Context(facts=facts, stack={"frameworks": [entry]}))]


def installed(entry: Any) -> dict[str, str]:
    return {re.split(r"[\[=]", pin)[0]: pin.split("==")[1] for pin in entry["requirements"]}


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_with_everything_is_right(resolve: Resolve, name: str) -> None:
    entry = environment(resolve("H100", "ubuntu-24.04", name))
    assert reasons(entry, installed(entry)) == []
    assert reasons(entry, {})


def test_an_environment_that_broke_its_constraints_is_not_right(resolve: Resolve) -> None:
    entry = environment(resolve("V100", "ubuntu-24.04", "jax"))
    (reason,) = reasons(entry, {**installed(entry), "nvidia-cudnn-cu12": "9.28.0.42"})
    assert "breaks nvidia-cudnn-cu12==9.10.2.21" in reason
    assert reasons(entry, {**installed(entry), "nvidia-cudnn-cu12": "9.10.2.21"}) == []


def test_what_another_variant_left_behind_is_not_right(resolve: Resolve) -> None:
    entry = environment(resolve("H100", "ubuntu-24.04", "jax[cuda13]"))
    (reason,) = reasons(entry, {**installed(entry), "jax-cuda12-plugin": "0.12.0.1"})
    assert "has jax-cuda12-plugin besides" in reason


def test_onnxruntime_for_the_processor_is_not_beside_the_one_with_cuda(resolve: Resolve) -> None:
    entry = environment(resolve("H100", "ubuntu-24.04", "onnxruntime"))
    assert reasons(entry, installed(entry)) == []
    (reason,) = reasons(entry, {**installed(entry), "onnxruntime": "1.31.1"})
    assert "has onnxruntime besides" in reason


def test_another_python_than_the_wished_one_is_not_right(resolve: Resolve) -> None:
    entry = environment(resolve("H100", "ubuntu-24.04", "jax"))
    (reason,) = reasons(entry, installed(entry), python="3.13.5")
    assert "has Python 3.13.5 instead of 3.12" in reason


def test_an_environment_that_is_activated_with_other_libraries_than_wished_is_not_right(resolve: Resolve) -> None:
    entry = environment(resolve("H100", "ubuntu-24.04", "pytorch"))
    path = "/usr/local/cuda-13.0/compat"

    def of(wished: str | None, there: str | None) -> list[str]:
        seen = {"python": "3.12.3", "packages": installed(entry), "loader_path": there}
        return told({**entry, "loader_path": wished}, {entry["path"]: seen})

    assert of(None, None) == of(path, path) == []
    assert path in of(path, None)[0]
    assert path in of(None, path)[0]


# ranges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "specifier"),
    [
        ("2.8.0", ""), ("2.8.0", "==2.8.*"), ("2.8.0", "==2.8"), ("2.80.0", "==2.8.*"), ("0.12.0.1", "==0.12.0"),
        ("2.10.0", ">=2.7,<2.11"), ("2.10.0", "<2.7"), ("2.7", "<=2.7.0"), ("2.7.1", ">2.7"), ("2.7.0", ">2.7"),
        ("2.7.0", "!=2.7"), ("2.7.1", "!=2.7.*"), ("2.9.1", "~=2.7"), ("3.0", "~=2.7"), ("2.7.9", "~=2.7.1"),
        ("2.8.0", "~=2.7.1"), ("9.10.2.21", "<10.0,>=9.3.0.75"), ("9.3.0.74", "<10.0,>=9.3.0.75"),
    ],
)  # fmt: skip
def test_a_range_means_what_pip_takes_it_for(version: str, specifier: str) -> None:
    from packaging.specifiers import SpecifierSet

    assert specifiers.matches(version, specifier) is SpecifierSet(specifier).contains(version)


@pytest.mark.parametrize("text", ["=>2.7", "2.7", ">=2.7<3", "~=2", ">=2.7.*", ">=a", "==2.7+cu121"])
def test_what_is_no_plain_range_is_known_as_none(text: str) -> None:
    assert not specifiers.is_range(text)
    with pytest.raises(ValueError, match="no version range"):
        specifiers.matches("2.7", text)


# the toolkit beside the wheels -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wants", "version", "variant"),
    [
        (["cuda=12.8", "pytorch"], "2.14.1", "cu126"),
        (["cuda=13.0", "pytorch"], "2.14.1", "cu130"),
        (["cuda=12.8", "pytorch==2.10"], "2.10.0", "cu128"),
        (["cuda=12.6", "pytorch==2.10"], "2.10.0", "cu126"),
        (["cuda=12.8", "cuda=13.0", "pytorch"], "2.14.1", "cu130"),
        (["cuda=12.8", "pytorch==2.14.1+cu130"], "2.14.1", "cu130"),
        (["cuda=12.8", "pytorch=2.15"], "2.15.0", "cu130"),
    ],
)
def test_wheels_follow_the_toolkit_that_compiles_their_extensions(
    resolve: Resolve, wants: list[str], version: str, variant: str
) -> None:
    answer = resolve("RTX 4090", "ubuntu-24.04", *wants)
    found = environment(answer)
    assert (found["version"], found["variant"]) == (version, variant)
    toolkits = {entry["version"].split(".")[0] for entry in answer["stack"]["cuda"]}
    told = [entry["text"] for entry in answer["warnings"] if entry["rule"] == "frameworks.toolkit"]
    assert bool(told) == (found["cuda"].split(".")[0] not in toolkits)
    assert all("extensions cannot be compiled" in text for text in told)


def test_of_the_wheels_that_a_toolkit_compiles_for_those_come_first_that_the_driver_runs_natively(
    resolve: Resolve,
) -> None:
    # Branch 580 brings CUDA 13.0, the first toolkit of the repository is 13.2.
    answer = resolve("L40S", "ubuntu-26.04", "cuda", "pytorch")
    assert answer["stack"]["cuda"][0]["version"] == "13.2"
    assert environment(answer)["variant"] == "cu130"


def test_wheels_for_the_processor_follow_no_toolkit(resolve: Resolve) -> None:
    answer = resolve("RTX 4090", "ubuntu-24.04", "cuda=12.8", "torch==2.14.1+cpu")
    assert not any(entry["rule"] == "frameworks.toolkit" for entry in answer["warnings"])


# the Python beside the system's own --------------------------------------------------------------------


@pytest.mark.parametrize("os", ["rhel-8", "rocky-8", "almalinux-8", "rhel-9", "rocky-9", "almalinux-9"])
def test_an_old_python_of_the_system_is_no_ceiling(resolve: Resolve, os: str) -> None:
    answer = resolve("H100", os, "pytorch", "tensorflow")
    assert {(each["version"], each["interpreter"]) for each in answer["stack"]["frameworks"]} == {
        (environment(resolve("H100", "ubuntu-24.04", name), name)["version"], "3.12")
        for name in ("pytorch", "tensorflow")
    }
    assert any(entry["rule"] == "frameworks.python-beside" for entry in answer["why"])


def test_the_systems_own_python_is_taken_where_the_release_has_no_wheels_for_a_newer_one(resolve: Resolve) -> None:
    assert environment(resolve("A100", "rocky-9", "pytorch==1.13.1"))["interpreter"] == "3.11"
    assert environment(resolve("A100", "rocky-9", "pytorch", "python=3.9"))["version"] == "2.8.0"


@pytest.mark.parametrize(
    ("there", "taken"), [("3.9,3.11", "3.11"), ("3.9,3.13", "3.13"), ("3.9,3.13,3.12", "3.12"), ("3.9,3.8", "3.12")]
)
def test_a_newer_python_that_is_there_is_taken_before_one_is_installed(rules: Any, there: str, taken: str) -> None:
    where = machine.machine_from_options(["H100"], "rocky-9", "x86_64", {"python": there}, rules)
    answer = resolver.resolve(where, Wish.from_wants(["pytorch"], rules), rules)
    assert environment(answer)["interpreter"] == taken
    beside = any(entry["rule"] == "frameworks.python-beside" for entry in answer["why"])
    assert beside == (taken not in there.split(","))


def test_a_python_that_is_asked_for_is_not_installed_for_the_systems_age(resolve: Resolve) -> None:
    answer = resolve("A100", "ubuntu-24.04", "pytorch", "python=3.11")
    assert environment(answer)["interpreter"] == "3.11"
    assert not any(entry["rule"] == "frameworks.python-beside" for entry in answer["why"])


# wheels with CUDA for aarch64 --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "want", "variant"),
    [
        ("GH200", "torch==2.8", "cu129"),
        ("GB10", "torch==2.8", "cu129"),
        ("GB200", "torch==2.9.1+cu128", "cu128"),
        ("A100", "torch==2.9.1+cu128", "cu128"),
    ],
)
def test_wheels_with_cuda_for_aarch64_are_known(resolve: Resolve, card: str, want: str, variant: str) -> None:
    assert environment(resolve(card, "ubuntu-24.04", want, arch="aarch64"))["variant"] == variant

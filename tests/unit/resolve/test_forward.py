"""CUDA of a newer major version on an older driver: cuda-compat, only when asked, only where it helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda.resolve import forward
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda.resolve import support as cuda_support
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import cards
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import gpus

Resolve = Callable[..., dict[str, Any]]
OLD_DRIVER = ("driver=535",)


def rules_of(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["rule"] for entry in entries}


def card(name: str, rules: dict[str, Any]) -> Any:
    return cards.from_row(gpus.identify(name, rules))


@pytest.mark.parametrize(
    ("branch", "names", "first", "last"),
    [
        ("535", ["H100"], "12.3", "13.4"),
        ("570", ["H100", "A100"], "12.9", "13.4"),
        ("580", ["H100"], "13.1", "13.4"),
        ("595", ["L4"], "13.3", "13.4"),
    ],
)
def test_a_base_branch_reaches_from_its_own_cuda_to_the_newest_package(
    branch: str, names: list[str], first: str, last: str, rules: dict[str, Any]
) -> None:
    found = forward.versions(branch, [card(name, rules) for name in names], rules)
    assert (found[0], found[-1]) == (first, last)
    assert "12.7" not in found


@pytest.mark.parametrize(
    ("branch", "names"),
    [("535", ["RTX 4090"]), ("535", ["H100", "RTX 4090"]), ("535", []), ("525", ["H100"]), ("615", ["H100"])],
)
def test_other_cards_and_other_branches_reach_nothing(branch: str, names: list[str], rules: dict[str, Any]) -> None:
    assert forward.versions(branch, [card(name, rules) for name in names], rules) == ()


def test_a_driver_runs_what_it_can_itself_before_cuda_compat_does(rules: dict[str, Any]) -> None:
    row = next(each for each in rules["driver_branches"]["rows"] if each["branch"] == "535")
    alone = cuda_support.of_branch(row)
    helped = cuda_support.CudaSupport(alone.cuda, alone.version, alone.newest, ("12.9", "13.0"))
    assert [helped.mode(cuda, rules) for cuda in ("12.2", "12.9", "13.0", "13.1")] == [
        "native",
        "minor-version",
        "forward",
        None,
    ]
    assert alone.mode("13.0", rules) is None


def test_a_toolkit_of_the_next_major_version_resolves_in_forward_mode(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-22.04", *OLD_DRIVER, "cuda=13.0", "cuda-compat=auto")
    stack = answer["stack"]
    assert (stack["driver"]["branch"], stack["cuda"][0]["mode"]) == ("535", "forward")
    assert stack["cuda_compat"] == {
        "version": "13.0",
        "package": "cuda-compat-13-0",
        "path": "/usr/local/cuda-13.0/compat",
    }
    assert "nvidia-cuda" in {each["name"] for each in stack["repositories"]}
    (warning,) = [each for each in answer["warnings"] if each["rule"] == "cuda.compat-path"]
    assert "LD_LIBRARY_PATH=/usr/local/cuda-13.0/compat" in warning["text"]


def test_the_driver_is_not_asked_for_more_than_the_package_needs(resolve: Resolve) -> None:
    stack = resolve("H100", "ubuntu-22.04", *OLD_DRIVER, "cuda=13.0", "cuda-compat=auto")["stack"]
    assert stack["driver"]["minimum"].startswith("535.")


def test_wheels_of_the_next_major_version_resolve_in_forward_mode(resolve: Resolve) -> None:
    stack = resolve("H100", "ubuntu-22.04", *OLD_DRIVER, "pytorch=2.14+cu130", "cuda-compat=auto")["stack"]
    assert stack["frameworks"][0]["variant"] == "cu130"
    assert stack["cuda_compat"]["package"] == "cuda-compat-13-0"


def test_the_newest_cuda_that_needs_it_names_the_package(resolve: Resolve) -> None:
    stack = resolve(
        "H100", "ubuntu-22.04", *OLD_DRIVER, "cuda=13.2", "pytorch=2.14+cu130", "cuda=12.8", "cuda-compat=auto"
    )["stack"]
    assert stack["cuda_compat"]["version"] == "13.2"
    assert [each["mode"] for each in stack["cuda"]] == ["forward", "minor-version"]


@pytest.mark.parametrize("wants", [["pytorch"], ["cuda"], ["cuda=12.8"], []])
def test_it_is_not_taken_where_the_driver_does_without(resolve: Resolve, wants: list[str]) -> None:
    wished = resolve("H100", "ubuntu-22.04", *OLD_DRIVER, *wants, "cuda-compat=auto")
    plain = resolve("H100", "ubuntu-22.04", *OLD_DRIVER, *wants)
    assert wished["stack"] == plain["stack"]
    assert "cuda.compat" in rules_of(wished["why"])


def test_a_new_machine_gets_a_driver_that_needs_no_package(resolve: Resolve) -> None:
    stack = resolve("H100", "ubuntu-24.04", "cuda=13", "cuda-compat=auto")["stack"]
    assert stack["driver"]["branch"] == "580"
    assert "cuda_compat" not in stack


def test_unasked_it_is_named_as_a_remedy_and_not_used(resolve: Resolve) -> None:
    answer = resolve("H100", "ubuntu-22.04", *OLD_DRIVER, "cuda=13")
    assert not answer["ok"]
    (entry,) = answer["conflicts"]
    assert "driver=580" in entry["remedy"]
    assert "add cuda-compat=auto" in entry["remedy"]
    assert resolve("H100", "ubuntu-22.04", *OLD_DRIVER, "cuda=13", "cuda-compat=auto")["ok"]


def test_it_is_no_remedy_for_cards_that_it_does_not_serve(resolve: Resolve) -> None:
    for names in ("RTX 4090", ["H100", "RTX 4090"]):
        answer = resolve(names, "ubuntu-22.04", *OLD_DRIVER, "cuda=13")
        assert not any("cuda-compat" in entry["remedy"] for entry in answer["conflicts"])


def test_it_is_no_remedy_where_something_else_is_wrong_too(resolve: Resolve) -> None:
    answer = resolve("V100", "ubuntu-22.04", *OLD_DRIVER, "cuda=13")
    assert not any("cuda-compat" in entry["remedy"] for entry in answer["conflicts"])


@pytest.mark.parametrize(
    ("names", "branch", "rule", "word"),
    [
        ("RTX 4090", "535", "cuda.compat-card", "GeForce RTX 4090"),
        (["H100", "RTX 4090"], "535", "cuda.compat-card", "GeForce RTX 4090"),
        ("H100", "525", "cuda.compat-base", "525"),
    ],
)
def test_where_it_was_asked_for_and_does_not_help_the_conflict_says_why(
    resolve: Resolve, names: Any, branch: str, rule: str, word: str
) -> None:
    answer = resolve(names, "ubuntu-22.04", f"driver={branch}", "cuda=13", "cuda-compat=auto")
    assert {"driver.floor-cuda", rule} <= rules_of(answer["conflicts"])
    assert any(word in entry["text"] for entry in answer["conflicts"] if entry["rule"] == rule)


def test_a_base_that_nvidia_gave_up_is_used_with_a_warning(resolve: Resolve) -> None:
    answer = resolve("H100", "debian-13", "driver-source=distro", "cuda=13.0", "cuda-compat=auto")
    assert answer["stack"]["cuda_compat"]["version"] == "13.0"
    assert "cuda.compat-base" in rules_of(answer["warnings"])
    supported = resolve("H100", "ubuntu-22.04", *OLD_DRIVER, "cuda=13.0", "cuda-compat=auto")
    assert "cuda.compat-base" not in rules_of(supported["warnings"])


def test_a_driver_that_is_there_stays(answer: Resolve, facts: dict[str, Any]) -> None:
    facts["driver"] |= {
        "owner": "runfile",
        "loaded_version": "535.309.01",
        "loaded_modules": "open",
        "user_version": "535.309.01",
    }
    facts["os"] |= {"id": "ubuntu", "version": "22.04", "codename": "jammy", "family": "ubuntu", "glibc": "2.35"}
    refused = answer(facts, "cuda=13.0")
    assert not refused["ok"]
    found = answer(facts, "cuda=13.0", "cuda-compat=auto")
    assert found["ok"], found
    assert found["stack"]["driver"]["adopted"]
    assert found["stack"]["cuda_compat"]["package"] == "cuda-compat-13-0"


def test_only_an_environment_that_the_driver_alone_does_not_run_is_led_to_cuda_compat(resolve: Resolve) -> None:
    answer = resolve(
        "H100", "ubuntu-22.04", *OLD_DRIVER, "cuda-compat=auto", "torch==2.14.1+cu130", "jax[cuda12]==0.6.2"
    )
    assert answer["ok"], answer
    paths = {each["name"]: each.get("loader_path") for each in answer["stack"]["frameworks"]}
    assert paths == {"pytorch": answer["stack"]["cuda_compat"]["path"], "jax": None}
    plain = resolve("H100", "ubuntu-22.04", "cuda-compat=auto", "pytorch")
    assert "loader_path" not in plain["stack"]["frameworks"][0]

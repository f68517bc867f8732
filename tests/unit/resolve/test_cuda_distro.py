"""The CUDA toolkit of a distribution's own archive: which one it is, where, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from tests.property.naive.cuda import toolkits
from tests.unit.resolve.conftest import TODAY

Resolve = Callable[..., dict[str, Any]]

DISTRO = "cuda-source=distro"


def sources(answer: dict[str, Any]) -> dict[str, list[str]]:
    return {row["name"]: row["components"] for row in answer["stack"]["repositories"]}


@pytest.mark.parametrize(
    ("os", "version", "name", "component"),
    [
        ("debian-12", "11.8", "distro-non-free", "non-free"),
        ("debian-13", "12.4", "distro-non-free", "non-free"),
        ("ubuntu-22.04", "11.5", "distro-restricted", "multiverse"),
        ("ubuntu-24.04", "12.0", "distro-restricted", "multiverse"),
    ],
)
@pytest.mark.parametrize("wants", [[], ["cuda"]])
def test_the_archive_has_one_toolkit_in_usr(
    resolve: Resolve, os: str, version: str, name: str, component: str, wants: list[str]
) -> None:
    answer = resolve("RTX 3060", os, "driver", DISTRO, *wants)
    (toolkit,) = answer["stack"]["cuda"]
    assert (toolkit["version"], toolkit["packages"]) == (version, ["nvidia-cuda-toolkit"])
    assert (toolkit["path"], toolkit["source"], toolkit.get("default")) == ("/usr", "distro", None)
    assert component in sources(answer)[name]


def test_it_needs_no_repository_of_nvidia(resolve: Resolve) -> None:
    answer = resolve("RTX 3060", "debian-13", "driver-source=distro", DISTRO)
    assert list(sources(answer)) == ["distro-non-free"]
    assert "nvidia-cuda" in sources(resolve("RTX 3060", "debian-13", "driver-source=distro", DISTRO, "cudnn"))


def test_its_packages_bring_their_compiler_so_that_nothing_is_warned_of(resolve: Resolve) -> None:
    """Debian 13 has gcc 14 and glibc 2.41, and NVIDIA's 12.4 takes neither."""
    warned = {entry["rule"] for entry in resolve("RTX 3060", "debian-13", "driver", DISTRO)["warnings"]}
    assert not {"cuda.gcc", "cuda.glibc"} & warned


@pytest.mark.parametrize(
    ("card", "os", "wants", "rule", "remedy"),
    [
        ("RTX 3060", "debian-13", ["cuda=12.8"], "cuda.distro-version", "ask for cuda=12.4"),
        ("RTX 5090", "debian-13", ["cuda=13.0"], "cuda.distro-version", "ask for cuda-source=nvidia"),
        ("RTX 3060", "debian-13", ["cuda=12.4.0"], "cuda.distro-version", "ask for cuda=12.4"),
        ("RTX 5090", "debian-13", [], "cuda.card", "ask for cuda-source=nvidia"),
        ("H100", "debian-12", ["driver-source=runfile"], "cuda.distro-driver", "ask for driver-source=nvidia"),
        ("RTX 3060", "rocky-9", [], "cuda.distro-none", "ask for cuda-source=nvidia"),
        ("RTX 3060", "ubuntu-26.04", [], "cuda.distro-broken", "ask for cuda-source=nvidia"),
        ("V100", "ubuntu-26.04", [], "cuda.distro-broken", "leave the CUDA toolkit out"),
    ],
)
def test_what_the_archive_cannot_give_is_refused_with_what_works(
    resolve: Resolve, card: str, os: str, wants: list[str], rule: str, remedy: str
) -> None:
    answer = resolve(card, os, DISTRO, *wants)
    (entry,) = [row for row in answer["conflicts"] if row["rule"] == rule]
    assert remedy in entry["remedy"]


def test_a_driver_of_another_system_gets_no_second_one(resolve: Resolve) -> None:
    answer = resolve("RTX 4090", "ubuntu-24.04", DISTRO, wsl="true")
    assert {entry["rule"] for entry in answer["conflicts"]} == {"cuda.distro-driver"}


@pytest.mark.parametrize("variables", [{"cuda_default": "12.4"}, {"cuda_modulefiles": True}])
def test_no_link_and_no_modulefile_leads_into_usr(resolve: Resolve, variables: dict[str, object]) -> None:
    answer = resolve("RTX 3060", "debian-13", DISTRO, wish=variables)
    (entry,) = answer["conflicts"]
    assert entry["rule"] == "cuda.distro-place"
    assert next(iter(variables)) in entry["remedy"]


@pytest.mark.parametrize("os", ["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04", "rocky-9"])
@pytest.mark.parametrize("card", ["V100", "RTX 3060", "H100", "RTX 5090"])
def test_an_answer_satisfies_the_tables_when_it_is_judged_from_them_alone(rules: Any, os: str, card: str) -> None:
    where = machine.machine_from_options([card], os, "x86_64", {}, rules, today=TODAY)
    answer = resolver.resolve(where, Wish.from_variables({"gpuwright_want": ["driver", DISTRO]}, rules), rules)
    if answer["ok"]:
        warned = {entry["rule"] for entry in answer["warnings"]}
        assert list(toolkits(where, answer["stack"], warned)) == []
    else:
        assert all(entry["remedy"] for entry in answer["conflicts"])


def test_why_a_compiler_does_not_work_here_goes_with_the_toolkit_to_its_proof(resolve: Resolve) -> None:
    (own,) = resolve("RTX 3060", "debian-13", DISTRO)["stack"]["cuda"]
    assert (own["capabilities"], own.get("unable")) == (["8.6"], None)
    (old,) = resolve("RTX 3060", "debian-13", "cuda=13.0", glibc="2.42")["stack"]["cuda"]
    assert "glibc 2.42" in old["unable"]


def test_two_toolkits_are_more_than_the_archive_has(resolve: Resolve) -> None:
    answer = resolve("RTX 3060", "debian-13", DISTRO, "cuda=12.4", "cuda=11.8")
    assert "cuda.distro-version" in {entry["rule"] for entry in answer["conflicts"]}

"""What nvcc compiles with: the machine's gcc and C library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.cuda.resolve import compilers
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver import resolve as resolver
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish

Resolve = Callable[..., Any]
KEYS = {"gpuwright_repository_keys": {"nvidia": "A" * 40}}


def warned(answer: Any, rule: str) -> list[str]:
    assert answer["ok"], answer
    return [entry["text"] for entry in answer["warnings"] if entry["rule"] == rule]


@pytest.mark.parametrize(
    ("cuda", "gcc", "glibc"),
    [
        ("10.2", "8", "2.40"),
        ("11.8", "11", "2.40"),
        ("12.3", "12", "2.40"),
        ("12.9", "14", "2.40"),
        ("13.0", "15", "2.41"),
        ("13.3", "15", None),
        ("13.4", "16", None),
        ("13.5", "16", None),
    ],
)
def test_a_toolkit_has_the_limits_that_were_read_or_those_of_the_one_before(
    cuda: str, gcc: str, glibc: str | None, rules: dict[str, Any]
) -> None:
    row = compilers.limits(cuda, rules)
    assert row is not None
    assert (row["gcc"], row["glibc"]) == (gcc, glibc)


def test_a_toolkit_older_than_the_table_has_no_limits(rules: Any) -> None:
    assert compilers.limits("9.2", rules) is None


def test_a_c_library_that_nvcc_does_not_know_is_warned_of_with_the_toolkit_that_does(resolve: Resolve) -> None:
    (text,) = warned(resolve("H100", "ubuntu-24.04", "cuda=12.9", glibc="2.41"), "cuda.glibc")
    assert "CUDA from 13.0 on compiles" in text
    assert len(warned(resolve("H100", "ubuntu-24.04", "cuda=12.9", glibc="2.42"), "cuda.glibc")) == 2
    assert warned(resolve("H100", "ubuntu-24.04", "cuda=12.9", glibc="2.40"), "cuda.glibc") == []
    assert warned(resolve("H100", "ubuntu-24.04", "cuda=13.0", glibc="2.41"), "cuda.glibc") == []


def with_gcc(gcc: str | None, os: str, want: str, rules: Any) -> Any:
    where = machine.machine_from_options(["H100"], os, "x86_64", None, rules, today=date(2026, 11, 20))
    wish = Wish.from_variables({**KEYS, "gpuwright_want": [want]}, rules)
    return resolver.resolve(replace(where, gcc=gcc), wish, rules)


def test_the_gcc_of_the_system_is_taken_by_every_toolkit_of_its_repository(resolve: Resolve) -> None:
    for os, want in (("ubuntu-22.04", "cuda=11.8"), ("ubuntu-24.04", "cuda=12.5"), ("debian-13", "cuda=13.0")):
        assert warned(resolve("H100", os, want), "cuda.gcc") == []


def test_a_newer_gcc_is_warned_of_with_the_one_to_install_beside_it(rules: Any) -> None:
    (text,) = warned(with_gcc("14.2", "ubuntu-24.04", "cuda=12.6", rules), "cuda.gcc")
    assert "gcc up to 13, this machine has 14" in text
    assert "-ccbin g++-12" in text
    assert warned(with_gcc("14.2", "ubuntu-24.04", "cuda=12.8", rules), "cuda.gcc") == []


def test_where_the_archive_has_no_older_gcc_a_newer_toolkit_is_named(rules: Any) -> None:
    system = {**next(row for row in rules["systems"]["rows"] if row["os"] == "debian-12"), "gcc_also": []}
    limits = compilers.limits("11.8", rules)
    assert limits is not None
    assert compilers.instead(limits, system, rules) == "use cuda=12.0 or newer"


def test_a_gcc_is_no_reason_to_leave_the_toolkit_that_the_driver_brings_in_full(rules: Any) -> None:
    answer = with_gcc("16", "ubuntu-24.04", "cuda", rules)
    assert answer["stack"]["cuda"][0]["version"] == "13.0"
    assert warned(answer, "cuda.gcc")


def test_the_gcc_of_a_machine_comes_from_its_facts(facts: Any, rules: Any) -> None:
    assert machine.machine_from_facts(facts, Wish(), rules).gcc is None
    facts["kernel"]["compiler"] = {"built_with": "gcc 14", "available": "14.2"}
    assert machine.machine_from_facts(facts, Wish(), rules).gcc == "14.2"


@pytest.mark.parametrize(("os", "package"), [("debian-13", "g++"), ("ubuntu-24.04", "g++"), ("rocky-9", "gcc-c++")])
def test_the_systems_own_compiler_comes_with_a_toolkit(resolve: Resolve, os: str, package: str) -> None:
    for want in (["cuda"], ["cuda=12.8", "cuda-source=runfile"]):
        (toolkit, *_others) = resolve("H100", os, *want)["stack"]["cuda"]
        assert toolkit["host_compiler"] == package


def test_a_compiler_that_the_toolkit_does_not_take_is_not_brought(rules: Any) -> None:
    (toolkit,) = with_gcc("14.2", "ubuntu-24.04", "cuda=12.6", rules)["stack"]["cuda"]
    assert "host_compiler" not in toolkit
    (toolkit,) = with_gcc("14.2", "ubuntu-24.04", "cuda=12.8", rules)["stack"]["cuda"]
    assert toolkit["host_compiler"] == "g++"


def test_the_distributions_toolkit_brings_its_own(resolve: Resolve) -> None:
    (toolkit,) = resolve("H100", "ubuntu-24.04", "cuda", "cuda-source=distro", "driver-source=distro")["stack"]["cuda"]
    assert "host_compiler" not in toolkit

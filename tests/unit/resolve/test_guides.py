"""The commands of guides on the web, as people copy them: the right verdict, and what exists instead."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import BadInput, Wish
from gpuwright.cli import main

Resolve = Callable[..., dict[str, Any]]

# What was never there: the guide's words, and what exists instead.
NEVER = [
    ("torch==2.3.0+cu122", ["pytorch=2.3.0+cu118", "pytorch=2.3.0+cu121"]),
    ("tensorflow-gpu==2.14.0", ["tensorflow[and-cuda]==2.14.1"]),
    ("jax[cuda12_pip]", ["jax[cuda12]"]),
    ("cuda=12.7", ["cuda=12.6", "cuda=12.8"]),
]

# What was there once: on a system that still carries it.
ONCE: list[tuple[str, str, list[str], Callable[[dict[str, Any]], Any], Any]] = [
    ("H100", "ubuntu-22.04", ["driver=535.104.05", "cuda=12.2.2"], lambda stack: stack["cuda"][0]["release"], "12.2.2"),
    ("H100", "ubuntu-22.04", ["driver=535.104.05", "cuda=12.2.2"], lambda stack: stack["cuda"][0]["mode"], "native"),
    ("A100", "ubuntu-22.04", ["driver=525", "cuda=11.8"], lambda stack: stack["driver"]["branch"], "525"),
    ("A100", "ubuntu-22.04", ["driver=525", "cuda=11.8"], lambda stack: stack["cuda"][0]["version"], "11.8"),
    ("A100", "ubuntu-22.04", ["cuda=11", "cudnn=8.9.1"], lambda stack: stack["cudnn"]["version"], "8.9.1.23"),
    ("A100", "ubuntu-22.04", ["cuda=11", "cudnn=8.9.1"], lambda stack: stack["cudnn"]["packages"][0], "libcudnn8"),
]

# The same on a system whose repository begins later: the reason, and what to ask for.
GONE = [
    ("H100", "ubuntu-24.04", ["driver=535.104.05", "cuda=12.2.2"], "driver.transitional", "driver=580"),
    ("H100", "ubuntu-24.04", ["cuda=12.2.2"], "cuda.repository", "cuda=13.0"),
    ("A100", "ubuntu-24.04", ["driver=525", "cuda=11.8"], "driver.not-carried", "driver=580"),
    ("A100", "ubuntu-24.04", ["cuda=11", "cudnn=8.9.1"], "cuda.repository", "cuda=12.5"),
]


def ask(*words: str) -> tuple[int, dict[str, Any]]:
    """`gpuwright resolve ... --json` in this process: its exit code and its answer."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main(["resolve", *words, "--arch", "x86_64", "--json"])
    answer: dict[str, Any] = json.loads(out.getvalue())
    return code, answer


def words(card: str, os: str, wants: list[str]) -> list[str]:
    return ["--gpu", card, "--os", os, *(word for want in wants for word in ("--want", want))]


@pytest.mark.parametrize(("want", "instead"), NEVER)
def test_what_never_existed_is_refused_with_what_does(want: str, instead: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        Wish.from_wants([want])
    assert caught.value.suggestions == instead
    code, answer = ask(*words("H100", "ubuntu-24.04", [want]))
    assert (code, answer["ok"], answer["suggestions"]) == (2, False, instead)
    assert want in answer["error"]


@pytest.mark.parametrize("want", [instead for _, several in NEVER for instead in several])
def test_what_is_suggested_instead_can_be_asked_for(want: str) -> None:
    Wish.from_wants([want])


@pytest.mark.parametrize(("card", "os", "wants", "part", "expected"), ONCE)
def test_what_existed_is_given_where_it_is_still_carried(
    resolve: Resolve, card: str, os: str, wants: list[str], part: Callable[[dict[str, Any]], Any], expected: Any
) -> None:
    answer = resolve(card, os, *wants)
    assert answer["ok"], answer
    assert part(answer["stack"]) == expected
    code, said = ask(*words(card, os, wants))
    assert code == 0
    assert part(said["stack"]) == expected


@pytest.mark.parametrize("wants", [["driver=535.104.05", "cuda=12.2.2"], ["driver=525", "cuda=11.8"]])
def test_a_driver_that_has_ended_is_given_with_a_warning(resolve: Resolve, wants: list[str]) -> None:
    warnings = {entry["rule"] for entry in resolve("A100", "ubuntu-22.04", *wants)["warnings"]}
    assert "driver.end-of-life" in warnings


def test_the_build_that_guides_name_has_published_vulnerabilities(resolve: Resolve) -> None:
    warnings = resolve("H100", "ubuntu-22.04", "driver=535.104.05", "cuda=12.2.2")["warnings"]
    assert any(entry["rule"] == "driver.security" and "535.104.05" in entry["text"] for entry in warnings)


@pytest.mark.parametrize(("card", "os", "wants", "rule", "instead"), GONE)
def test_what_a_system_does_not_carry_any_more_is_refused_with_what_it_does(
    resolve: Resolve, card: str, os: str, wants: list[str], rule: str, instead: str
) -> None:
    answer = resolve(card, os, *wants)
    assert not answer["ok"]
    assert rule in {entry["rule"] for entry in answer["conflicts"]}
    assert all(instead in entry["remedy"] for entry in answer["conflicts"])
    code, said = ask(*words(card, os, wants))
    assert (code, said["ok"]) == (3, False)
    assert [entry["remedy"] for entry in said["conflicts"]] == [entry["remedy"] for entry in answer["conflicts"]]

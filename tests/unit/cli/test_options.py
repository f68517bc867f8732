from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpuwright.errors import BadInput
from gpuwright.parser import LATER, build_parser, parse
from gpuwright.request import command_line
from tests.unit.cli.conftest import FakeAnsible, plan_record

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("verb", ["up", "plan", "validate", "doctor"])
def test_every_host_verb_takes_the_options_of_the_contract(verb: str) -> None:
    args = parse(
        [
            verb, "-i", "a,", "--limit", "a", "--want", "driver=580", "--want", "cuda", "--wish", "w", "--lock", "l", "--gpu", "H100",
            "--gpu", "T4", "--full", "--no-reboot", "--report", "d", "--json", "--yes", "-K", "-e", "a=1", "-e", "@b",
            "--vault-password-file", "v", "-vv", "--", "--forks", "3",
        ]
    )  # fmt: skip
    assert args.inventory == ["a,"]
    assert args.want == ["driver=580", "cuda"]
    assert args.gpu == ["H100", "T4"]
    assert args.extra_vars == ["a=1", "@b"]
    assert args.verbose == 2
    assert args.ansible_options == ["--forks", "3"]
    assert (args.full, args.no_reboot, args.json, args.yes, args.ask_become_pass) == (True,) * 5


@pytest.mark.parametrize("words", [["-l", "canaries:!node3"], ["--limit", "canaries:!node3"], ["-lcanaries:!node3"]])
def test_a_limit_reaches_ansible_as_it_is(
    gpuwright: Callable[..., Any], ansible: FakeAnsible, words: list[str]
) -> None:
    ansible.plans = {"a": plan_record("a")}
    gpuwright("plan", "-i", "a,", *words)
    (request,) = ansible.requests
    command = command_line(request)
    assert command[command.index("--limit") + 1] == "canaries:!node3"


def test_resolve_takes_the_options_of_the_contract() -> None:
    args = parse(
        ["resolve", "--gpu", "RTX 4090", "--os", "ubuntu-24.04", "--arch", "x86_64", "--assume", "wsl=true", "--want", "torch==2.3.0",
         "--json", "--lock", "f"]
    )  # fmt: skip
    assert (args.gpu, args.os, args.arch, args.assume) == (["RTX 4090"], "ubuntu-24.04", "x86_64", ["wsl=true"])
    assert (args.want, args.json, args.lock) == (["torch==2.3.0"], True, "f")


@pytest.mark.parametrize("verb", LATER)
def test_a_verb_of_a_later_version_says_so(gpuwright: Callable[..., Any], verb: str) -> None:
    done = gpuwright(verb)
    assert done.code == 2
    assert "comes in a later version" in done.err


def test_help_lists_no_verb_that_does_not_work() -> None:
    words = build_parser().format_help()
    assert not [verb for verb in LATER if verb in words]


def test_help_and_version_end_with_0(gpuwright: Callable[..., Any]) -> None:
    assert gpuwright("--version").out == "gpuwright 0.1.0\n"
    assert gpuwright("--help").code == 0
    assert gpuwright("up", "--help").code == 0


def test_a_wrong_option_names_the_near_one(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("plan", "--wnat", "cuda")
    assert done.code == 2
    assert "did you mean --want?" in done.err
    assert "Traceback" not in done.err
    assert not done.out


def test_a_wrong_option_is_one_json_document_with_json(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("resolve", "--ops", "x", "--json")
    assert done.code == 2
    assert done.json["ok"] is False
    assert "did you mean --os?" in done.json["suggestions"]
    assert set(done.json) == {"ok", "error", "suggestions"}


def test_an_option_before_the_command_is_told_where_it_stands(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("-v", "resolve", "--gpu", "H100")
    assert done.code == 2
    assert "options stand behind the command: gpuwright resolve -v ..." in done.err
    assert "did you mean" not in done.err


def test_a_component_without_its_option_is_told_with_it(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("resolve", "jax>=0.6", "cudnn", "--gpu", "H100")
    assert done.code == 2
    assert "what is wanted stands behind --want: gpuwright resolve --want 'jax>=0.6' --want cudnn" in done.err
    assert "--want" not in gpuwright("size", "llama-3.1-8b", "llama-3.1-70b").err


def test_a_wrong_verb_names_the_near_one(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("plna")
    assert done.code == 2
    assert "did you mean plan?" in done.err


def test_no_verb_is_bad_input(gpuwright: Callable[..., Any]) -> None:
    assert gpuwright().code == 2


def test_options_are_not_abbreviated() -> None:
    with pytest.raises(BadInput, match="unrecognized"):
        parse(["plan", "--verb"])


@pytest.mark.parametrize(
    "option", ["--check", "-i", "--limit=x", "--start-at-task=x", "-K", "--ask-vault-pass", "--step"]
)
def test_what_the_command_line_decides_itself_is_not_passed_on(option: str) -> None:
    with pytest.raises(BadInput, match="cannot be passed"):
        parse(["up", "--", option])


def test_a_verb_without_ansible_takes_nothing_behind_the_dashes() -> None:
    with pytest.raises(BadInput, match="does not run Ansible"):
        parse(["gpus", "--", "-f", "3"])


def test_json_behind_the_dashes_is_not_ours(gpuwright: Callable[..., Any]) -> None:
    done = gpuwright("gpus", "--", "--json")
    assert done.code == 2
    assert not done.out

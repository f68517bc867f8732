"""Each command of README and docs does what a reader who types it expects, as far as it needs neither a node nor a network."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.wish import settings
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish
from gpuwright import knowledge
from gpuwright.cli import main
from gpuwright.parser import parse

from . import documented

HERE = Path(__file__)
LEFT_OUT: dict[str, list[dict[str, str]]] = yaml.safe_load(HERE.with_name("documented.yaml").read_text())
BLOCKS = list(documented.blocks())
COMMANDS = list(documented.commands())
OURS = [command for command in COMMANDS if command.words[0] == "gpuwright"]
#: Verbs that ask no host; what they do on this machine is in the reader's own home.
WITHOUT_A_HOST = ("resolve", "gpus", "size", "cost")
#: Of a block of commands these are run by tests/packaging/test_documented.py.
PACKAGING = ("ansible-playbook", "ansible-galaxy", "python3.11", "~/.venvs/gpuwright/bin/pip", "export", "mkdir", "ln")


def left_out(kind: str, text: str) -> bool:
    return any(text.startswith(row["begins"]) for row in LEFT_OUT[kind])


def named(found: list[documented.Block] | list[documented.Command]) -> list[Any]:
    return [pytest.param(each, id=each.name) for each in found]


def inline() -> list[documented.Command]:
    """Each command in the middle of a sentence."""
    return [
        documented.Command(str(page.relative_to(documented.ROOT)), tuple(shlex.split(text)))
        for page in documented.PAGES
        for text in re.findall(r"`((?:sudo )?gpuwright [^`]+)`", page.read_text(encoding="utf-8"))
    ]


INLINE = inline()


def test_there_are_commands_to_try() -> None:
    assert len(OURS) > 50
    assert len(INLINE) > 30
    assert {command.words[1] for command in OURS} >= {"up", "plan", "validate", "doctor", "status", "resolve", "runs"}


@pytest.mark.parametrize("block", named([block for block in BLOCKS if not block.is_of_commands]))
def test_a_block_is_read_or_says_why_not(
    block: documented.Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if left_out("blocks", block.lines[0]):
        return
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("torch>=2.7\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "vision"\ndependencies = ["torch>=2.7"]\n')
    text = "\n".join(block.lines)
    wants = re.findall(r"--want ('[^']+'|\S+)", text)
    for want in wants:
        Wish.from_variables({"gpuwright_want": [want.strip("'")]})
    if wants and block.lines[0].startswith("--want"):
        return
    _read(yaml.load(text, Vault))  # noqa: S506 - a safe loader, with a tag of Ansible's


class Vault(yaml.SafeLoader):
    """Reads what is encrypted as a template: neither is known before Ansible has it."""


Vault.add_constructor("!vault", lambda _loader, _node: "{{ encrypted }}")


def _refuse(values: dict[str, Any]) -> None:
    """Refuse what cannot be meant of our variables; what is still to be rendered is left to Ansible."""
    settings.refuse(
        {"host": {name: value for name, value in values.items() if settings.ours(name) and "{{" not in str(value)}}
    )


def _read(document: Any) -> None:
    """Check the variables of an inventory, a play, tasks, or a wish file."""
    if isinstance(document, list):
        for each in document:
            assert each.keys() & {"hosts", "name", "role"}, each
            _read(each.get("vars") or {})
            roles = [role for role in each.get("roles") or () if isinstance(role, dict)]
            for role in roles:
                _refuse(role)
        return
    assert isinstance(document, dict), document
    groups = document.get("all") or document
    assert isinstance(groups, dict)
    variables = groups.get("vars") or (groups if "children" not in groups and "hosts" not in groups else {})
    _refuse(variables)


def test_a_command_is_run_by_a_test_or_says_why_not() -> None:
    for command in COMMANDS:
        is_run = command.words[0] in ("gpuwright", *PACKAGING)
        assert (
            is_run or left_out("commands", shlex.join(command.words)) or left_out("commands", " ".join(command.words))
        ), command


def test_every_reason_is_needed() -> None:
    texts = {
        "blocks": [block.lines[0] for block in BLOCKS],
        "commands": [" ".join(command.words) for command in COMMANDS],
        "inline": [" ".join(command.words) for command in INLINE],
    }
    for kind, rows in LEFT_OUT.items():
        for row in rows:
            assert any(text.startswith(row["begins"]) for text in texts[kind]), row


@pytest.mark.parametrize("command", named(OURS + INLINE))
def test_a_command_is_understood(command: documented.Command) -> None:
    """By the parser, and what it wishes by what reads a wish."""
    if left_out("inline", " ".join(command.words)):
        return
    assert command.words[0] == "gpuwright", "sudo finds no program of a virtual environment: -K asks for its password"
    args = parse(command.words[1:])
    knowledge.check_wish(getattr(args, "want", None) or (), {})
    if args.verb not in WITHOUT_A_HOST:
        knowledge.check_cards(getattr(args, "gpu", None) or ())


@pytest.mark.parametrize("command", named([each for each in OURS if each.words[1] in WITHOUT_A_HOST]))
def test_what_asks_no_host_answers(
    command: documented.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    for name, make in FILES.items():
        if name in command.words:
            (tmp_path / name).write_text(make())
    assert main(command.words[1:]) == 0, capsys.readouterr().err


def _prices() -> str:
    """The example of the page about sizing."""
    (block,) = [block for block in BLOCKS if block.page == "docs/sizing.md" and block.lines[0] == "---"]
    return "\n".join(block.lines)


def _wheels() -> str:
    """What an environment has written of the wheels that it is made of."""
    releases = ("torch==2.14.1+cu130", "torchvision==0.29.1+cu130", "torchaudio==2.11.0")
    return "".join(f"{release} --hash=sha256:{'0' * 64}\n" for release in releases)


#: Files that a page has its reader make before.
FILES: dict[str, Callable[[], str]] = {"our-prices.yml": _prices, "gpuwright-wheels.txt": _wheels}

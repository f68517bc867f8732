"""What README and docs have a reader type to install gpuwright and to run it by Ansible alone, in a home with nothing in it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, SECONDS, Environment
from tests.unit.repo import documented

pytestmark = pytest.mark.slow

SYSTEM = "/usr/bin:/bin"
PLAYBOOKS = [command for command in documented.commands() if command.words[0] == "ansible-playbook"]


def block_with(words: str) -> str:
    """The one block of README that has these words."""
    (block,) = [each for each in documented.blocks() if each.page == "README.md" and words in "\n".join(each.lines)]
    return "\n".join(block.lines)


def typed(script: str, home: Path, cwd: Path, path: str = SYSTEM) -> str:
    """What a reader gets who types these lines; each has to succeed."""
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=cwd,
        env={
            "HOME": str(home),
            "PATH": path,
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def home(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's home after the installation of README: the clone in it is a copy of this tree."""
    made = tmp_path_factory.mktemp("reader")
    shutil.copytree(clone, made / "gpuwright", symlinks=True)
    (made / "bin").mkdir()
    (made / "bin/python3.11").symlink_to(sys.executable)
    copied, _, lines = block_with("git clone").partition("\n")
    assert copied == "git clone <this repository> gpuwright && cd gpuwright"
    typed(lines, made, made / "gpuwright", f"{made / 'bin'}:{SYSTEM}")
    return made


def test_the_command_is_found_at_the_next_login(home: Path) -> None:
    said = typed("gpuwright --version; gpuwright gpus 4090", home, home, f"{home / '.local/bin'}:{SYSTEM}")
    assert "4090" in said


def test_the_collection_is_found_by_an_ansible_that_has_never_heard_of_it(
    home: Path, ansible_environment: Environment
) -> None:
    path = f"{ansible_environment.home / 'bin'}:{SYSTEM}"
    for _again in range(2):  # a newer clone takes the place of what is there
        typed(block_with("ansible-galaxy collection build"), home, home / "gpuwright", path)
    assert "gpuwright.node.nvidia_smi" in typed("ansible-doc -l gpuwright.node", home, home, path)
    (home / "play.yml").write_text(block_with("- hosts: workstations") + "\n")
    typed("ansible-playbook -i localhost, --syntax-check play.yml", home, home, path)


@pytest.mark.parametrize("command", [pytest.param(each, id=each.name) for each in PLAYBOOKS])
def test_ansible_understands_the_command(
    command: documented.Command, home: Path, ansible_environment: Environment
) -> None:
    clone = home / "gpuwright"
    shutil.copytree(ROOT / "inventories/fleet", clone / "my-fleet", dirs_exist_ok=True)
    (clone / "h100.lock.json").write_text("{}")
    line = " ".join(word if "$" in word else shlex.quote(word) for word in command.words)
    typed(f"{line} --syntax-check", home, clone, f"{ansible_environment.home / 'bin'}:{SYSTEM}")

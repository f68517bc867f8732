"""ansible-core alone is enough: the playbook of a bare clone from any directory, and the collection as Galaxy installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sim import settings

from .conftest import Node
from .traces import traces

pytestmark = pytest.mark.sim


@dataclass(frozen=True)
class Controller:
    """Where there is only ansible-core, and a clone without what git does not know."""

    folder: Path

    @property
    def clone(self) -> Path:
        """A bare clone."""
        return self.folder / "clone"

    def run(
        self, program: str, *arguments: str | Path, cwd: Path | None = None, collections: Path | None = None
    ) -> str:
        """What a program of ansible-core says; fails with it where it does not end well."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
        # A directory without collections: nothing of this machine may help.
        variables |= {
            "ANSIBLE_COLLECTIONS_PATH": str(collections or self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        variables |= {"LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1"}
        command = [self.folder / "venv/bin" / program, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd or self.folder, env=variables
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        return done.stdout


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Controller:
    """A fresh environment with ansible-core, and the clone's files as git knows them."""
    folder = tmp_path_factory.mktemp("controller")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip: list[str | Path] = [folder / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "ansible-core"], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=settings.CLONE,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = settings.CLONE / name, folder / "clone" / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return Controller(folder)


def test_the_playbook_of_a_bare_clone_works_from_another_directory(controller: Controller, ready_node: Node) -> None:
    said = controller.run("ansible-playbook", controller.clone / "site.yml", "-i", ready_node.inventory)
    assert "changed=0" in said
    assert "failed=0" in said
    assert "TASK [gpuwright.node." not in said, "no role ran: the node was proven already"


def test_in_check_mode_the_playbook_prints_the_plan_and_changes_nothing(
    controller: Controller, make_node: Callable[..., Node]
) -> None:
    machine = make_node("check")
    before = traces(machine)
    said = controller.run(
        "ansible-playbook", "site.yml", "--check", "--diff", "-i", machine.inventory, cwd=controller.clone
    )
    for line in ("nvidia_driver: install", "nouveau_blacklist: configure", "frameworks: install", "reboot: configure"):
        assert line in said
    assert "package nvidia-driver-cuda 580." in said
    assert "file /etc/modprobe.d/gpuwright-nouveau.conf" in said
    assert traces(machine) == before


def test_the_collection_works_as_galaxy_installs_it(controller: Controller, ready_node: Node, tmp_path: Path) -> None:
    controller.run("ansible-galaxy", "collection", "build", controller.clone, "--output-path", tmp_path)
    (tarball,) = tmp_path.glob("gpuwright-node-*.tar.gz")
    controller.run("ansible-galaxy", "collection", "install", tarball, "-p", tmp_path / "collections")
    said = controller.run(
        "ansible-playbook", "gpuwright.node.site", "-i", ready_node.inventory, collections=tmp_path / "collections"
    )
    assert "changed=0" in said
    assert "failed=0" in said
    doctor = controller.run(
        "ansible-playbook", "gpuwright.node.doctor", "-i", ready_node.inventory, collections=tmp_path / "collections"
    )
    assert "changed=0" in doctor

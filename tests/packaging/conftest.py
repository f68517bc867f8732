"""One copy of the tree, one build of each kind and one environment of each kind for the whole session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 300


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed, in an environment without the settings of the caller's Ansible and Python."""
    outcome = attempt(*command, cwd=cwd, env=env)
    assert outcome.returncode == 0, f"{' '.join(map(str, command))}\n{outcome.stdout}\n{outcome.stderr}"
    return outcome


def attempt(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """As run, for a command that may fail."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON", "NOX"))}
    clean["PYTHONDONTWRITEBYTECODE"] = "1"
    clean.update(env or {})
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, timeout=SECONDS, check=False
    )


@dataclass(frozen=True)
class Environment:
    """A virtual environment of the Python that runs the tests."""

    home: Path

    def program(self, name: str) -> Path:
        return self.home / "bin" / name

    @property
    def path(self) -> dict[str, str]:
        """What a command line needs to find this environment's programs first."""
        return {"PATH": f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def make_environment(home: Path, *requirements: str | Path) -> Environment:
    """A fresh environment with exactly these requirements and what they need, on the ansible-core that runs the tests."""
    run(sys.executable, "-m", "venv", home, cwd=home.parent)
    core = f"ansible-core=={version('ansible-core')}"
    run(home / "bin/python", "-m", "pip", "install", "--quiet", core, *requirements, cwd=home.parent)
    return Environment(home)


def borrow_environment(home: Path) -> Environment:
    """A fresh environment that sees the packages of the one that runs the tests, but not the gpuwright in it.

    A path in a .pth file is searched for packages while .pth files inside it (such as that of an editable install) are not read.
    """
    venv.create(home, with_pip=True)
    site = next((home / "lib").glob("python3*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Environment(home)


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as a clone has it: what git knows or would add, links as links, nothing that is ignored."""
    target = tmp_path_factory.mktemp("clone") / "gpuwright"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: what a clone would contain cannot be told")
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        source = ROOT / name
        if source.is_symlink() or source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    return target


@pytest.fixture(scope="session")
def distributions(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, clone, cwd=clone)
    return out


@pytest.fixture(scope="session")
def wheel(distributions: Path) -> Path:
    return next(distributions.glob("*.whl"))


@pytest.fixture(scope="session")
def sdist(distributions: Path) -> Path:
    return next(distributions.glob("*.tar.gz"))


@pytest.fixture(scope="session")
def tarball(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection as Ansible Galaxy gets it."""
    out = tmp_path_factory.mktemp("galaxy")
    run(Path(sys.executable).parent / "ansible-galaxy", "collection", "build", clone, "--output-path", out, cwd=out)
    return next(out.glob("gpuwright-node-*.tar.gz"))


@pytest.fixture(scope="session")
def wheel_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A user's: the wheel and what it requires, nothing else."""
    return make_environment(tmp_path_factory.mktemp("wheel") / "venv", wheel)


@pytest.fixture(scope="session")
def ansible_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A user's who has ansible-core and has never heard of the command line."""
    return make_environment(tmp_path_factory.mktemp("ansible") / "venv")


@pytest.fixture(scope="session")
def editable_environment(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A contributor's: `pip install -e .` in a clone."""
    environment = borrow_environment(tmp_path_factory.mktemp("editable") / "venv")
    run(
        environment.program("python"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", clone,
        cwd=clone,
    )  # fmt: skip
    return environment

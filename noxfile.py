"""The checks, each defined once: `make lint`, `make test` and pre-commit call these sessions.

Sessions run in the environment nox was started from (`pip install -e .[dev]`, or `make venv`). Only the tests on the other
ansible-core line make an environment of their own, under .nox/.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "typing", "unit"]
nox.options.error_on_external_run = False

ROOT = Path(__file__).parent

# The other line of ansible-core the tests run on, and the Pythons it runs on, the wanted one first. The floor, 2.19, is what the
# environment of this session holds.
NEWEST_LINE = "2.21"
NEWEST_PYTHONS = ("3.13", "3.12", "3.14")

PYTHON_TREES = ["plugins", "src", "tests", "molecule", "tools", "benchmarks", "noxfile.py"]
# The tests of a file stay together, they share what they prepared.
_BY_FILE = ["--dist", "loadfile", "--no-loadscope-reorder"]
# As many processes of pytest as there are cores, four at most; where half of the time is waiting for a node, half as many again.
_WORKERS = ["-n", str(min(os.cpu_count() or 1, 4)), *_BY_FILE]
_WORKERS_WITH_NODES = ["-n", str(min((os.cpu_count() or 1) * 3 // 2, 4)), *_BY_FILE]
SHELL_SHEBANGS = (b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash", b"#!/usr/bin/env sh")


def _tracked(*patterns: str) -> list[str]:
    """The files git knows or would add, matching the patterns; in a tree without git (an sdist) nothing."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [
        name for name in listed.stdout.splitlines() if (ROOT / name).is_file() and not name.startswith("collections/")
    ]


def _shell_scripts() -> list[str]:
    """Every file that begins with a shell's shebang, whatever its name; a template is none yet."""
    names = (name for name in _tracked() if not name.endswith(".j2"))
    return [name for name in names if (ROOT / name).read_bytes()[:24].startswith(SHELL_SHEBANGS)]


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, yamllint, ansible-lint (production), shell scripts, the changelog's fragments."""
    session.run("ruff", "check", *(name for name in PYTHON_TREES if (ROOT / name).exists()))
    session.run("ruff", "format", "--check", "--diff", *(name for name in PYTHON_TREES if (ROOT / name).exists()))
    session.run("yamllint", "--strict", ".")
    # Offline: ansible-lint must not look for collections; there is nothing to install, the roles need ansible.builtin only.
    session.run("ansible-lint", "--offline", env={"ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections")})
    scripts = _shell_scripts()
    for script in scripts:
        session.run("bash", "-n", script, silent=True)
    if scripts and shutil.which("shellcheck"):
        session.run("shellcheck", *scripts)
    session.run("antsibull-changelog", "lint")


@nox.session
def typing(session: nox.Session) -> None:
    """mypy, strict, over what runs on the controller and on nodes, and over the tests."""
    session.run("mypy", *session.posargs)


@nox.session
def sanity(session: nox.Session) -> None:
    """ansible-test sanity of both ansible-core lines on the collection as a user has it: built, and installed from the tarball."""
    _both_lines(session, "tests/sanity.sh", *session.posargs)


@nox.session
def molecule(session: nox.Session) -> None:
    """Every molecule scenario, one after another."""
    session.run("tests/molecule.sh", *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """Whole runs of the command line on simulated nodes and on a machine in QEMU, on this environment's ansible-core."""
    # A bare Debian or Ubuntu has neither a container engine nor QEMU yet: this installs and starts them, or says why not.
    session.run("python", "-c", "from tests.sim import engine; engine.ensure_for_metal()")
    session.run(
        "pytest",
        "-q",
        "-m",
        "not metal",
        "--durations",
        "30",
        *_WORKERS_WITH_NODES,
        "tests/integration",
        *session.posargs,
    )


@nox.session
def metal(session: nox.Session) -> None:
    """`gpuwright up` on a real kernel, in an emulated machine, and with cuts of its power; the cuts are not part of `make test`."""
    session.run("python", "-c", "from tests.sim import engine; engine.ensure_for_metal()")
    session.run("pytest", "-q", "-s", "tests/integration/test_metal.py", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """The collection's tarball, the sdist and the wheel, in dist/."""
    session.run("ansible-galaxy", "collection", "build", "--force", "--output-path", "dist")
    session.run("python", "-m", "build", "--no-isolation", "--outdir", "dist")


@nox.session
def unit(session: nox.Session) -> None:
    """The unit and packaging tests on both ansible-core lines, the floor last; nothing that needs a simulated node.

    The properties of the resolver are of its own: no ansible-core has a part in them, so they run once.
    """
    session.run("pytest", "-q", "tests/property")
    both = ["tests/unit", "tests/packaging"]
    _both_lines(session, "pytest", "-q", "-m", "not sim", *_WORKERS, *both, *session.posargs)


@nox.session
def properties(session: nox.Session) -> None:
    """The properties of the resolver alone."""
    session.run("pytest", "-q", "tests/property", *session.posargs)


@nox.session
def packaging(session: nox.Session) -> None:
    """The packaging tests alone, on both ansible-core lines."""
    _both_lines(session, "pytest", "-q", "tests/packaging", *session.posargs)


def _both_lines(session: nox.Session, *command: str) -> None:
    """Run a command on the newest line, then on this environment's.

    Where no Python for the newest line can be had (Ubuntu 22.04 without pyenv has none past 3.11), the second run says so: the
    test tests/unit/repo/test_lines.py is then skipped, by name and with this reason, in pytest's closing lines.
    """
    environment = {"GPUWRIGHT_NEWEST_LINE": NEWEST_LINE, "GPUWRIGHT_NEWEST_LINE_MISSING": ""}
    python = _newest_python()
    if python is None:
        reason = f"no Python of {', '.join(NEWEST_PYTHONS)} on this machine or in its package archive"
        session.warn(f"NOT TESTED ON ansible-core {NEWEST_LINE}: {reason}")
        environment["GPUWRIGHT_NEWEST_LINE_MISSING"] = reason
    else:
        binaries = _newest_environment(session, python)
        session.log(f"on ansible-core {NEWEST_LINE}, {python}")
        session.run(*command, env={**environment, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"})
    session.log("on this environment's ansible-core")
    session.run(*command, env=environment)


def _newest_python() -> str | None:
    """A Python that the newest line runs on, installed from the package archive if need be."""
    command = [str(ROOT / "tools/find-python"), "--install", *NEWEST_PYTHONS]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


def _newest_environment(session: nox.Session, python: str) -> Path:
    """An environment with the newest line, made again only when pyproject.toml or the interpreter is another."""
    home = ROOT / ".nox" / f"ansible-core-{NEWEST_LINE}"
    stamp = home / "inputs"
    inputs = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + python.encode()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != inputs:
        session.log(f"making {home.relative_to(ROOT)} with {python}")
        session.run(python, "-m", "venv", "--clear", str(home))
        major, minor = NEWEST_LINE.split(".")
        wanted = f"ansible-core>={NEWEST_LINE},<{major}.{int(minor) + 1}"
        session.run(str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--editable", ".[test]", wanted)
        stamp.write_text(inputs)
    return home / "bin"

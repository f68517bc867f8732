"""The little programs that `make` leans on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FIND = ROOT / "tools/find-python"
STAGE = ROOT / "tools/stage"
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


def call(*command: str | Path, path: str | None = None, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ)
    env.pop("PYENV_ROOT", None)
    if path is not None:
        env["PATH"] = path
    if home is not None:
        env["HOME"] = str(home)
    return subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=60, check=False)


def fake_python(directory: Path, name: str, answer: str) -> Path:
    """A program that passes for an interpreter: for every question it does what answer says."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    return program


def test_finds_the_interpreter_that_runs_this() -> None:
    found = call(FIND, THIS, path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    assert found.returncode == 0, found.stderr
    version = subprocess.run([found.stdout.strip(), "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith(f"Python {THIS}.")


def test_passes_over_a_shim_that_does_not_work_and_takes_pyenvs_own(tmp_path: Path) -> None:
    """pyenv puts a python3.13 on PATH that fails unless that version is selected."""
    fake_python(tmp_path / "shims", "python3.13", "exit 127")
    good = fake_python(tmp_path / "home/.pyenv/versions/3.13.0/bin", "python3.13", "exit 0")
    found = call(FIND, "3.13", path=f"{tmp_path / 'shims'}{os.pathsep}/nonexistent", home=tmp_path / "home")
    assert (found.returncode, found.stdout.strip()) == (0, str(good))


def test_takes_versions_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    for version in ("3.12", "3.13"):
        fake_python(tmp_path / f".pyenv/versions/{version}.1/bin", f"python{version}", "exit 0")
    found = call(FIND, "3.13", "3.12", path="/nonexistent", home=tmp_path)
    assert found.stdout.strip().endswith("python3.13")


def test_says_what_was_looked_for_when_there_is_none(tmp_path: Path) -> None:
    found = call(FIND, "3.98", "3.99", home=tmp_path)
    assert found.returncode == 1
    assert found.stdout == ""
    assert "3.98 3.99" in found.stderr


@pytest.mark.parametrize(("code", "word"), [(0, "passed"), (7, "FAILED (7)")])
def test_stage_ends_as_its_command_does_and_says_how_long_it_took(code: int, word: str) -> None:
    ended = call(STAGE, "Lint", "sh", "-c", f"exit {code}")
    assert ended.returncode == code
    assert re.fullmatch(rf"=== Lint: {re.escape(word)} after \d+ s", ended.stdout.splitlines()[-1])


def test_last_stage_leaves_the_closing_lines_to_its_command() -> None:
    ended = call(STAGE, "--last", "Tests", "sh", "-c", "echo 5 passed")
    assert ended.stdout.splitlines()[-1] == "5 passed"

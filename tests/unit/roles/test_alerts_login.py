"""The password that Alertmanager asks for: made and judged on the server by its own Perl, as the role has it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROLE = Path(__file__).parents[3] / "roles/monitoring_server"
PROGRAMS = yaml.safe_load((ROLE / "vars/main.yml").read_text())

pytestmark = pytest.mark.skipif(not shutil.which("perl"), reason="perl-base, as every Debian has it, makes the hash")


def perl(program: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = ["perl", "-e", PROGRAMS[f"__monitoring_server_{program}"], *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def made(password: str) -> str:
    done = perl("hash", stdin=f"{password}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("$2b$10$")
    return done.stdout


def test_a_hash_is_another_one_each_time_and_not_the_password() -> None:
    assert made("sesame") != made("sesame")
    assert "sesame" not in made("sesame")


@pytest.mark.parametrize(
    ("kept", "web", "status"),
    [
        ("sesame", True, 0),
        ("sesame\n", True, 0),
        ("other", True, 1),
        ("", True, 1),
        (None, True, 1),
        ("sesame", False, 1),
    ],
)
def test_a_password_and_its_hash_belong_together_or_are_made_anew(
    tmp_path: Path, kept: str | None, web: bool, status: int
) -> None:
    if kept is not None:
        (tmp_path / "password").write_text(kept)
    if web:
        (tmp_path / "web").write_text(json.dumps({"basic_auth_users": {"gpuwright": made("sesame")}}))
    assert perl("belongs", str(tmp_path / "password"), str(tmp_path / "web")).returncode == status


def test_what_somebody_broke_in_the_file_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("sesame")
    for text in ("", "{}", '{"basic_auth_users": {"gpuwright": "$2b$10$"}}'):
        (tmp_path / "web").write_text(text)
        assert perl("belongs", str(tmp_path / "password"), str(tmp_path / "web")).returncode == 1

"""How packages are configured where DKMS counts what is left out as failed, with dpkg and dkms replaced on PATH."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "roles/repair/files/configure-without-autoinstall.sh"
_MARK = "/etc/dkms/no-autoinstall"


class Machine:
    """A root whose dpkg tells what it found, and whose dkms fails."""

    def __init__(self, root: Path, status: int = 0) -> None:
        self.mark, self.calls, self.fakes = root / "no-autoinstall", root / "calls", root / "fakes"
        self.fakes.mkdir()
        self._fake("dpkg", f'echo "dpkg $* $(test -e {self.mark} && echo switched off)" >>{self.calls}\nexit {status}')
        self._fake("dkms", f'echo "dkms $*" >>{self.calls}\nexit 11')
        text = SCRIPT.read_text(encoding="utf-8")
        assert _MARK in text
        self.script = root / "script"
        self.script.write_text(text.replace(_MARK, str(self.mark)), encoding="utf-8")

    def _fake(self, name: str, text: str) -> None:
        (self.fakes / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (self.fakes / name).chmod(0o755)

    def run(self, *kernels: str) -> int:
        environment = {**os.environ, "PATH": f"{self.fakes}:{os.environ['PATH']}"}
        return subprocess.run(["sh", self.script, *kernels], env=environment, check=False).returncode


@pytest.mark.parametrize("status", [0, 1])
def test_dpkg_works_without_the_hooks_and_dkms_is_asked_for_the_rest(tmp_path: Path, status: int) -> None:
    machine = Machine(tmp_path, status)
    assert machine.run("6.1.0-50-amd64", "6.1.0-51-amd64") == status
    assert machine.calls.read_text(encoding="utf-8").splitlines() == [
        "dpkg --force-confdef --force-confold --configure --pending switched off",
        "dkms autoinstall -k 6.1.0-50-amd64",
        "dkms autoinstall -k 6.1.0-51-amd64",
    ]
    assert not machine.mark.exists()


def test_what_a_run_that_was_cut_off_left_goes_and_an_administrators_own_stays(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.mark.write_text("# Written by gpuwright (role repair) while packages were configured\n", encoding="utf-8")
    assert machine.run() == 0
    assert not machine.mark.exists()
    machine.mark.touch()
    assert machine.run() == 0
    assert machine.mark.exists()

"""Programs of packages that are unpacked, not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim import unpacked
from tests.sim.shell import SimulationError


def put(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing of this machine, but for what apt-get's stand-in needs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_takes_the_program_on_path(path: Path, tmp_path: Path) -> None:
    put(path, "promtool", "exit 0")
    assert unpacked.program("promtool", tmp_path / "cache") == path / "promtool"


def test_fetches_once_and_unpacks(path: Path, tmp_path: Path) -> None:
    put(path, "apt-get", f'echo "$@" >>{tmp_path}/asked; : >prometheus_1_amd64.deb')
    put(path, "dpkg", '/bin/mkdir -p "$3/usr/bin" && : >"$3/usr/bin/promtool"')
    for _turn in range(2):
        found = unpacked.program("promtool", tmp_path / "cache")
        assert found == tmp_path / "cache/prometheus/usr/bin/promtool"
        assert found.is_file()
    assert (tmp_path / "asked").read_text() == "download -q prometheus\n"


def test_says_what_to_install_where_there_is_no_apt(path: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SimulationError, match=r"amtool is not on PATH and there is no apt .* install prometheus-alertmanager"
    ):
        unpacked.program("amtool", tmp_path / "cache")


def test_says_what_apt_said(path: Path, tmp_path: Path) -> None:
    put(path, "apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
    put(path, "dpkg", "exit 0")
    with pytest.raises(
        SimulationError,
        match=r"(?s)`apt-get download prometheus` failed: run `apt-get update` as root.*Unable to locate",
    ):
        unpacked.program("promtool", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []

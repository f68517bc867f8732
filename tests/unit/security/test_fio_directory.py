"""fio writes as root in a directory that a user may own: what the user puts into its place is neither written through nor removed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import run
from ansible_collections.gpuwright.node.plugins.module_utils.measure import fio_bench

PART = fio_bench.Part("seqread", "read", "1M", 1, 1, fio_bench.MIB, 1, 0)
CANARY = "not yours"


class Mallory:
    """Owns the directory that is measured, and has a file of root's in view."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self.canary = folder / "canary"
        self.canary.write_text(CANARY)

    def swap(self) -> Path:
        """Put a directory of links into the place of the private one."""
        (ours,) = self.data.glob(fio_bench.PREFIX + "*")
        ours.rename(self.data / "taken")
        ours.mkdir()
        for name in ("probe", "seqread.0.0"):
            (ours / name).symlink_to(self.canary)
        return ours


def test_fio_does_not_write_through_links_that_took_the_place_of_its_directory(tmp_path: Path) -> None:
    mallory = Mallory(tmp_path)

    def runner(_argv: Sequence[str], directory: str, timeout: float) -> run.Result:
        mallory.swap()
        return fio_bench.run_fio(["sh", "-c", "echo owned >seqread.0.0"], directory, timeout)

    list(fio_bench.measure("fio", str(mallory.data), [PART], ["psync"], 5, runner))
    assert mallory.canary.read_text() == CANARY


def test_what_took_the_place_of_its_directory_is_not_removed(tmp_path: Path) -> None:
    mallory = Mallory(tmp_path)
    with fio_bench.private_directory(str(mallory.data)) as inside:
        Path(inside, "ours").touch()
        theirs = mallory.swap()
    assert sorted(path.name for path in theirs.iterdir()) == ["probe", "seqread.0.0"]
    assert list((mallory.data / "taken").iterdir()) == []


def test_a_directory_that_is_not_the_one_that_was_made_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mallory = Mallory(tmp_path)
    real = tempfile.mkdtemp

    def mkdtemp(**options: str) -> str:
        made = real(**options)
        mallory.swap()
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with pytest.raises(OSError, match="somebody put another directory"), fio_bench.private_directory(str(mallory.data)):
        pytest.fail("it was entered")
    assert mallory.canary.read_text() == CANARY


def test_it_is_emptied_and_removed_when_the_work_fails(tmp_path: Path) -> None:
    def fail_inside() -> None:
        with fio_bench.private_directory(str(tmp_path)) as inside:
            Path(inside, "file").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_inside()
    assert list(tmp_path.iterdir()) == []

"""The stand-in of DKMS: what it believes, where it puts modules, and what it does over a record without a source."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from tests.sim.onnode.gpuwright_sim import dkms

RUNNING, OTHER, VERSION = "5.14.0-1.el9.x86_64", "5.14.0-2.el9.x86_64", "580.126.20"
ROCKY = {"ID": "rocky", "ID_LIKE": "rhel centos fedora", "VERSION_ID": "9.7"}


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with the source of one module and two kernels with headers; the programs that DKMS ran."""
    commands: list[str] = []
    for name, place in (
        ("_SOURCES", "src"),
        ("_STATE", "lib"),
        ("_MODULES", "modules"),
        ("_FRAMEWORK", "framework.conf"),
    ):
        monkeypatch.setattr(dkms, name, tmp_path / place)
    monkeypatch.setattr(dkms, "KEY", tmp_path / "lib/mok.pub")
    monkeypatch.setattr(dkms, "_running", lambda: RUNNING)
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: ROCKY)
    monkeypatch.setattr(subprocess, "run", lambda argv, **_given: commands.append(" ".join(argv)))
    for kernel in (RUNNING, OTHER):
        (tmp_path / "modules" / kernel / "build").mkdir(parents=True)
    (tmp_path / f"src/nvidia-{VERSION}").mkdir(parents=True)
    (tmp_path / f"src/nvidia-{VERSION}/dkms.conf").write_text('AUTOINSTALL="yes"\nBUILT_MODULE_NAME[0]="nvidia"\n')
    return commands


def module(root: Path, kernel: str) -> Path:
    return root / "modules" / kernel / "extra/nvidia.ko"


def test_modules_of_red_hat_are_in_extra_for_the_running_kernel_alone(ran: list[str], tmp_path: Path) -> None:
    assert dkms.main(["install", f"nvidia/{VERSION}"]) == 0
    assert module(tmp_path, RUNNING).exists()
    assert not module(tmp_path, OTHER).exists()
    assert ran == [f"/usr/sbin/depmod {RUNNING}"]


def test_a_module_that_was_deleted_counts_as_installed_until_it_is_uninstalled(
    ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dkms.main(["install", f"nvidia/{VERSION}"])
    module(tmp_path, RUNNING).unlink()
    dkms.main(["autoinstall", "-k", RUNNING])
    assert not module(tmp_path, RUNNING).exists()
    dkms.main(["status"])
    assert f"nvidia/{VERSION}, {RUNNING}, x86_64: installed (Differences" in capsys.readouterr().out
    dkms.main(["uninstall", "-m", "nvidia", "-v", VERSION, "-k", RUNNING])
    dkms.main(["autoinstall", "-k", RUNNING])
    assert module(tmp_path, RUNNING).exists()


@pytest.mark.parametrize("said", ["", 'AUTOINSTALL="no"\n'])
def test_a_module_that_does_not_ask_for_it_is_not_built_by_itself(ran: list[str], tmp_path: Path, said: str) -> None:
    (tmp_path / f"src/nvidia-{VERSION}/dkms.conf").write_text(f'{said}BUILT_MODULE_NAME[0]="nvidia"\n')
    dkms.main(["add", "-m", "nvidia", "-v", VERSION])
    assert dkms.main(["autoinstall", "-k", RUNNING]) == 0
    assert not module(tmp_path, RUNNING).exists()


def test_a_record_without_its_source_is_left_alone_by_all(ran: list[str], tmp_path: Path) -> None:
    dkms.main(["install", f"nvidia/{VERSION}"])
    (tmp_path / f"src/nvidia-{VERSION}/dkms.conf").unlink()
    (tmp_path / f"src/nvidia-{VERSION}").rmdir()
    assert dkms.main(["remove", f"nvidia/{VERSION}", "--all"]) == 4
    assert dkms.main(["install", f"nvidia/{VERSION}"]) == 4
    assert dkms.main(["autoinstall"]) == 0
    assert module(tmp_path, RUNNING).exists()


def test_every_initramfs_is_made_again_after_a_build_where_the_settings_say_so(ran: list[str], tmp_path: Path) -> None:
    (tmp_path / "framework.conf").write_text('post_transaction="dracut --regenerate-all --force"\n')
    dkms.main(["install", f"nvidia/{VERSION}"])
    assert ran[-1] == "dracut --regenerate-all --force"
    del ran[:]
    dkms.main(["autoinstall"])
    assert ran == []
    dkms.main(["remove", f"nvidia/{VERSION}", "--all"])
    assert ran[-1] == "dracut --regenerate-all --force"
    assert not module(tmp_path, RUNNING).exists()

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sim import scenario, tree
from tests.sim.onnode.gpuwright_sim import elf, grub

DRIVER = {"version": "580.178.04", "open": True}


def test_a_bare_node_shows_cards_bound_to_nouveau(tmp_path: Path) -> None:
    tree.make_root(tmp_path, scenario.load("two-h100"))
    devices = tmp_path / "sys/bus/pci/devices"
    assert (devices / "0000:18:00.0/device").read_text() == "0x2330\n"
    assert (devices / "0000:18:00.0/driver").readlink().name == "nouveau"
    assert not (tmp_path / "proc/driver/nvidia").exists()


def test_a_node_with_a_driver_shows_its_version_everywhere(tmp_path: Path) -> None:
    tree.make_root(tmp_path, scenario.load("two-h100"), DRIVER)
    assert (tmp_path / "sys/module/nvidia/version").read_text() == "580.178.04\n"
    assert "Open Kernel Module for x86_64  580.178.04" in (tmp_path / "proc/driver/nvidia/version").read_text()
    assert (tmp_path / "usr/lib/x86_64-linux-gnu/libcuda.so.1").resolve().name == "libcuda.so.580.178.04"


def test_secure_boot_is_a_variable_of_the_firmware(tmp_path: Path) -> None:
    tree.make_root(tmp_path, scenario.load("secure-boot"))
    (variable,) = (tmp_path / "sys/firmware/efi/efivars").glob("SecureBoot-*")
    assert variable.read_bytes() == b"\x06\x00\x00\x00\x01"


def test_a_screen_hangs_on_the_card_that_drives_it(tmp_path: Path) -> None:
    tree.make_root(tmp_path, scenario.load("workstation-rtx5090"))
    assert (tmp_path / "sys/class/drm/card0-HDMI-A-1/status").read_text() == "connected\n"
    assert (tmp_path / "sys/class/drm/card0/device").readlink().name == "0000:18:00.0"


_OLD, _NEW = "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"


def test_the_newest_kernel_is_the_one_that_boots_next(tmp_path: Path) -> None:
    tree.make_root(tmp_path, scenario.load("kernel-behind"))
    assert grub.chosen((tmp_path / "boot/grub/grub.cfg").read_text(), {}) == _NEW


@pytest.mark.parametrize(
    ("default", "environment", "booted"),
    [
        ("0", {}, _NEW),
        ("1>2", {}, _OLD),  # after the newest one and its recovery
        (f"Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {_OLD}", {}, _OLD),
        (f"gnulinux-advanced-0c5d1f5e-6f0b-4a53-9a53-7a7d1f0f4c11>gnulinux-{_OLD}-advanced-0c5d1f5e-6f0b-4a53-9a53-7a7d1f0f4c11", {}, _OLD),
        (f"gnulinux-{_OLD}-advanced-0c5d1f5e-6f0b-4a53-9a53-7a7d1f0f4c11", {}, _NEW),  # it is inside the submenu
        ("an entry that is not there", {}, _NEW),
        ("saved", {"saved_entry": "1>2"}, _OLD),
        ("saved", {}, _NEW),
        ("0", {"next_entry": "1>2"}, _OLD),
    ],
)  # fmt: skip
def test_the_boot_follows_the_menu_as_grub_does(default: str, environment: dict[str, str], booted: str) -> None:
    text = grub.configuration([_OLD, _NEW], default)
    assert grub.chosen(text, environment) == booted


def test_an_entry_for_one_boot_is_used_up_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grub, "CONFIGURATION", tmp_path / "grub.cfg")
    monkeypatch.setattr(grub, "ENVIRONMENT", tmp_path / "grubenv")
    grub.CONFIGURATION.write_text(grub.configuration([_OLD, _NEW], "0"))
    grub.ENVIRONMENT.write_text("# GRUB Environment Block\nnext_entry=1>2\nsaved_entry=0\n".ljust(1024, "#"))
    assert [grub.boot(), grub.boot()] == [_OLD, _NEW]
    assert "saved_entry=0" in grub.ENVIRONMENT.read_text()


@pytest.mark.skipif(shutil.which("modinfo") is None, reason="kmod is not installed")
def test_the_real_modinfo_reads_a_module(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.ko"
    path.write_bytes(elf.nvidia("nvidia", "580.178.04", "6.12.1", open_source=True))
    assert (
        subprocess.run(["modinfo", "-F", "version", path], capture_output=True, text=True, check=True).stdout
        == "580.178.04\n"
    )


def test_a_module_is_a_relocatable_elf_file_for_this_processor() -> None:
    content = elf.nvidia("nvidia", "580.178.04", "6.12.1", open_source=False)
    assert content[:6] == b"\x7fELF\x02\x01"
    assert content[16:20] == b"\x01\x00\x3e\x00"
    assert b"license=NVIDIA\0version=580.178.04\0" in content

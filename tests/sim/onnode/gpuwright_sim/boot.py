"""What happens at the boot of a simulated node: choose the kernel, show the hardware, load the modules.

Run by gpuwright-sim.service before everything that could look. Usage: /usr/lib/gpuwright-sim/bin/boot
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

from . import grub, kernel, mok, node, tree

_BOOTED_ONCE = node.CONFIG / "booted-once"
_WSL_KERNEL = "5.15.167.4-microsoft-standard-WSL2"


def main(_arguments: list[str]) -> None:
    """Put the simulated machine in place of the container's view of the real one."""
    shutil.rmtree(node.VIEW, ignore_errors=True)
    scenario = node.scenario()
    scenario["cmdline"] = " ".join([scenario.get("cmdline", ""), *_kernel_words()]).strip()
    node.VIEW.mkdir(parents=True, exist_ok=True)
    os.chmod(node.VIEW, 0o755)
    booted = scenario["kernel"]["running"]
    # A node with the distribution's real kernel has whichever the mirror had.
    if _BOOTED_ONCE.exists() or not Path(f"/lib/modules/{booted}").is_dir():
        booted = grub.boot()
    _BOOTED_ONCE.touch()
    (node.VIEW / "kernel").write_text(booted + "\n")
    # No leftovers of the container: what looks for one must find what a machine would show.
    Path("/.dockerenv").unlink(missing_ok=True)
    Path("/run/systemd/container").unlink(missing_ok=True)
    shown = _WSL_KERNEL if scenario.get("windows_driver") else booted
    tree.write_machine(node.VIEW, scenario, shown, str(uuid.uuid4()))
    mok.boot()
    mok.show(node.VIEW)
    kernel.refresh()
    _mount(scenario)
    if scenario.get("windows_driver"):
        _show_windows_driver()
        return
    _load(scenario, booted)


def _kernel_words() -> list[str]:
    """What the boot loader of an rpm system tells the kernel besides."""
    path = Path("/etc/kernel/cmdline")
    return path.read_text().split() if path.exists() else []


def _show_windows_driver() -> None:
    """What WSL puts into a distribution: Windows' libraries (libcuda is there already), its nvidia-smi, where to find them."""
    program = node.WSL_LIBRARIES / "nvidia-smi"
    program.write_text('#!/bin/sh\nexec /usr/lib/gpuwright-sim/bin/nvidia-smi "$@"\n')
    program.chmod(0o755)
    Path("/etc/ld.so.conf.d/ld.wsl.conf").write_text(f"{node.WSL_LIBRARIES}\n")
    _run("ldconfig")


# --------------------------------------------------------------------------------------------------------------------
# Mounts
# --------------------------------------------------------------------------------------------------------------------


def _mount(scenario: dict[str, Any]) -> None:
    """Show the tree at the places where programs look; what is beside it stays the real one."""
    _run("mount", "-o", "remount,rw", "/proc/sys")
    _bind("proc/sys/kernel/osrelease")
    _bind("proc/sys/kernel/random/boot_id")
    _bind("proc/version")
    _bind("proc/cmdline")
    _bind("proc/driver")
    if Path("/proc/modules").exists():
        _bind("proc/modules")
    if scenario.get("machine", "bare") == "bare":
        # The real machine may be a virtual one; the processor would tell.
        text = Path("/proc/cpuinfo").read_text()
        tree.write(node.VIEW / "proc/cpuinfo", re.sub(r"\bhypervisor\b ?", "", text).rstrip("\n"))
        _bind("proc/cpuinfo")
    empty = node.VIEW / "empty"
    empty.touch()
    _run("mount", "--bind", str(empty), "/proc/1/environ")
    _bind("sys/module")
    _bind("sys/firmware")
    if Path("/sys/bus/pci").is_dir():
        _bind("sys/bus/pci")
    else:
        _overlay("sys/bus")
    # Cards and firmware of the real machine must not shine through: these two folders are ours alone.
    for folder in ("drm", "dmi"):
        place = node.VIEW / "sys/class" / folder
        place.mkdir(parents=True, exist_ok=True)
        os.setxattr(place, "trusted.overlay.opaque", b"y")
    _overlay("sys/class")


def _bind(path: str) -> None:
    _run("mount", "--bind", str(node.VIEW / path), f"/{path}")


def _overlay(path: str) -> None:
    _run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={node.VIEW / path}:/{path}", f"/{path}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        node.log(f"gpuwright-sim: {' '.join(command)}: {done.stderr.strip()}")


# --------------------------------------------------------------------------------------------------------------------
# Modules
# --------------------------------------------------------------------------------------------------------------------


def _load(scenario: dict[str, Any], booted: str) -> None:
    """First nouveau, as the kernel would: it is in the initramfs and so comes before what is on the disk."""
    node.log(f"Linux version {booted} (simulated)")
    if scenario["gpus"] and scenario.get("nouveau") and _nouveau_comes(booted):
        kernel.insert("nouveau")
    for name in kernel.NVIDIA:
        if kernel.modinfo(name, booted) is None or _is_blacklisted(Path("/"), name):
            continue
        try:
            kernel.insert(name)
        except (FileNotFoundError, kernel.InsertionError) as error:
            node.log(f"systemd-modules-load: Failed to insert module '{name}': {error}")
        break
    _load_listed()


def _load_listed() -> None:
    """What /etc/modules-load.d names, as systemd-modules-load does (in a container it does nothing itself)."""
    for path in sorted(Path("/etc/modules-load.d").glob("*.conf")):
        for line in path.read_text().splitlines():
            name = line.strip()
            if not name or name.startswith(("#", ";")) or not kernel.is_simulated(name):
                continue
            try:
                kernel.insert(name)
            except (FileNotFoundError, kernel.InsertionError) as error:
                node.log(f"systemd-modules-load: Failed to insert module '{name}': {error}")


def _nouveau_comes(booted: str) -> bool:
    """Whether nouveau loads: from the initramfs unless blacklisted *inside it*, else from the disk unless blacklisted there; in neither
    where the kernel's command line says so.
    """
    if kernel.modinfo("nouveau", booted) is None or "modprobe.blacklist=nouveau" in _kernel_words():
        return False
    return _initramfs_loads_nouveau(booted) or not _is_blacklisted(Path("/"), "nouveau")


def _initramfs_loads_nouveau(booted: str) -> bool:
    names = (f"/boot/initrd.img-{booted}", f"/boot/initramfs-{booted}.img")
    image = next((path for path in map(Path, names) if path.exists()), None)
    if image is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["unmkinitramfs", str(image), folder], capture_output=True, check=False)
        roots = [Path(folder), *(path for path in Path(folder).iterdir() if path.is_dir())]
        inside = any(next(root.glob("usr/lib/modules/*/kernel/drivers/gpu/drm/nouveau/*"), None) for root in roots)
        inside = inside or any(
            next(root.glob("lib/modules/*/kernel/drivers/gpu/drm/nouveau/*"), None) for root in roots
        )
        return inside and not any(_is_blacklisted(root, "nouveau") for root in roots)


def _is_blacklisted(root: Path, name: str) -> bool:
    """Whether modprobe's configuration under ROOT forbids NAME: `blacklist`, or an `install` line that runs nothing."""
    forbidden = re.compile(
        rf"^\s*(blacklist\s+{name}\s*$|install\s+{name}\s+(/usr)?/bin/(true|false)\s*$)", re.MULTILINE
    )
    for folder in ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"):
        for path in sorted((root / folder).glob("*.conf")) if (root / folder).is_dir() else []:
            if path.is_file() and forbidden.search(path.read_text(errors="replace")):
                return True
    return False

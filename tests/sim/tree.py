"""A simulated node as files only: a tree for the option `root` of `node_facts`, for unit tests and the benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .onnode.gpuwright_sim import elf, grub, hardware, tree

_OS_RELEASE = {
    "debian-13": ("Debian GNU/Linux 13 (trixie)", "debian", "13", "trixie"),
    "ubuntu-24.04": ("Ubuntu 24.04.3 LTS", "ubuntu", "24.04", "noble"),
}
BOOT_ID = "5f0e3a52-90c8-4b1e-9a7d-3c1f2b4d6e80"


def make_root(path: Path, scenario: dict[str, Any], driver: dict[str, Any] | None = None) -> None:
    """Write the node of an expanded SCENARIO below PATH.

    Args:
        path: the root of the tree; made where it is not there.
        scenario: from :func:`tests.sim.scenario.load` or ``expand``.
        driver: the driver that is installed and loaded, ``{"version": "580.178.04", "open": true}``; None for a bare node.
    """
    kernel = scenario["kernel"]["running"]
    tree.write_machine(path, scenario, kernel, BOOT_ID)
    modules: dict[str, dict[str, Any]] = {}
    if driver:
        module = {**driver, "working": [gpu["uuid"] for gpu in scenario["gpus"]]}
        modules = dict.fromkeys(("nvidia", "nvidia_modeset", "nvidia_drm", "nvidia_uvm"), module)
        tree.write_driver(path, scenario["gpus"], module)
    elif scenario["nouveau"] and scenario["gpus"]:
        modules = {"nouveau": {"version": None}}
    tree.write_modules(path, modules)
    tree.write_pci(
        path, scenario["gpus"], "nvidia" if driver else "nouveau" if modules else None, None, hardware.beside(scenario)
    )
    _system(path, scenario)
    _kernels(path, scenario, driver)
    _packages(path, scenario, driver)


def _system(root: Path, scenario: dict[str, Any]) -> None:
    name, identity, version, codename = _OS_RELEASE[scenario["os"]]
    tree.write(
        root / "etc/os-release",
        f'PRETTY_NAME="{name}"\nNAME="{name}"\nVERSION_ID="{version}"\nVERSION_CODENAME={codename}\nID={identity}',
    )
    tree.write(root / "etc/hostname", scenario["name"])
    tree.write(root / "etc/gpuwright/simulated", "files only")
    tree.write(root / "etc/fstab", "/dev/vda1 / ext4 defaults 0 1")
    tree.write(
        root / "etc/apt/sources.list.d/distribution.sources",
        f"Types: deb\nURIs: http://mirror.invalid/{identity}\nSuites: {codename}\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/distribution.gpg",
    )
    tree.write(root / "proc/meminfo", "MemTotal:       263829504 kB\nMemAvailable:   250000000 kB")
    tree.write(root / "proc/cpuinfo", "\n".join(f"processor\t: {index}\nflags\t\t: fpu avx2\n" for index in range(4)))
    tree.write(root / "proc/1/mountinfo", "25 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw")
    tree.write(root / "sys/devices/system/cpu/online", "0-3")
    tree.write(root / "lib64/ld-linux-x86-64.so.2", "")


def _kernels(root: Path, scenario: dict[str, Any], driver: dict[str, Any] | None) -> None:
    for kernel in scenario["kernel"]["installed"]:
        modules = root / "lib/modules" / kernel
        tree.write(root / "boot" / f"vmlinuz-{kernel}", "simulated kernel")
        tree.write(root / "boot" / f"initrd.img-{kernel}", "simulated initramfs")
        nouveau = modules / "kernel/drivers/gpu/drm/nouveau/nouveau.ko"
        nouveau.parent.mkdir(parents=True, exist_ok=True)
        nouveau.write_bytes(elf.nouveau(kernel))
        lines = ["kernel/drivers/gpu/drm/nouveau/nouveau.ko:"]
        if driver:
            place = modules / "updates/dkms"
            place.mkdir(parents=True, exist_ok=True)
            for name in ("nvidia", "nvidia-modeset", "nvidia-drm", "nvidia-uvm"):
                (place / f"{name}.ko").write_bytes(
                    elf.nvidia(name, driver["version"], kernel, open_source=driver["open"])
                )
                lines.append(f"updates/dkms/{name}.ko:")
        tree.write(modules / "modules.dep", "\n".join(lines))
    tree.write(root / "boot/grub/grub.cfg", grub.configuration(scenario["kernel"]["installed"], "0"))
    tree.write(root / "usr/sbin/update-initramfs", "#!/bin/sh")


def _packages(root: Path, scenario: dict[str, Any], driver: dict[str, Any] | None) -> None:
    installed = {f"linux-image-{kernel}": "1" for kernel in scenario["kernel"]["installed"]}
    installed.update(
        {"python3-venv": "3.13.5-1", "libc6": "2.39-0ubuntu8" if scenario["os"].startswith("ubuntu") else "2.41-12"}
    )
    if driver:
        names = (
            "nvidia-driver-cuda",
            "libcuda1",
            "libnvidia-ml1",
            "nvidia-kernel-open-dkms" if driver["open"] else "nvidia-kernel-dkms",
        )
        installed.update(dict.fromkeys(names, f"{driver['version']}-1"))
        libraries = root / "usr/lib/x86_64-linux-gnu"
        for name in ("libcuda", "libnvidia-ml"):
            tree.write(libraries / f"{name}.so.{driver['version']}", "simulated")
            (libraries / f"{name}.so.1").symlink_to(f"{name}.so.{driver['version']}")
        tree.write(root / "usr/bin/nvidia-smi", "#!/bin/sh")
    stanzas = [
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n"
        for name, version in sorted(installed.items())
    ]
    tree.write(root / "var/lib/dpkg/status", "\n".join(stanzas))

"""Which packages are one set with the driver, and what of its lock is seen."""

from __future__ import annotations

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import driver_set, packages
from ansible_collections.gpuwright.node.plugins.module_utils.observe.package import Package
from tests.unit.observe.trees import FakePrograms, Tree, answer

#: Names and source packages as Debian 13, Ubuntu 24.04 and NVIDIA's repository have them; "+" is of the set.
REAL = """
+ libcuda1                                nvidia-graphics-drivers
+ libegl-nvidia0                          nvidia-graphics-drivers
+ firmware-nvidia-gsp                     nvidia-graphics-drivers
+ nvidia-kernel-dkms                      nvidia-graphics-drivers
+ nvidia-persistenced                     nvidia-persistenced
+ nvidia-modprobe                         nvidia-modprobe
+ nvidia-settings                         nvidia-settings
+ libxnvctrl0                             nvidia-settings
+ nvidia-fabricmanager                    nvidia-fabricmanager
+ libnvidia-nscq                          libnvidia-nscq
+ libnvsdm                                libnvsdm
+ nvidia-imex                             nvidia-imex
+ nvlsm                                   nvlsm
+ libnvidia-compute-580                   nvidia-graphics-drivers-580
+ nvidia-firmware-580-580.126.20          nvidia-graphics-drivers-580
- linux-modules-nvidia-580-open-generic   linux-restricted-modules
- linux-objects-nvidia-580-6.8.0-134      linux-restricted-modules
- nvidia-driver-pinning-580               nvidia-driver-pinning
- firmware-nvidia-graphics                firmware-nonfree
- firmware-iwlwifi                        firmware-nonfree
- nvidia-container-toolkit                nvidia-container-toolkit
- nvidia-cuda-toolkit                     nvidia-cuda-toolkit
- nvidia-opencl-dev                       nvidia-cuda-toolkit
- libcublas12                             nvidia-cuda-toolkit
- nvidia-cuda-samples                     nvidia-cuda-samples
- nvidia-cg-toolkit                       nvidia-cg-toolkit
- libcg                                   nvidia-cg-toolkit
- nvidia-primus-vk-common                 primus-vk
- cuda-compat-13-0                        nvidia-graphics-drivers-580
- cuda-toolkit-13-0                       cuda-toolkit-13-0
- infiniband-diags                        rdma-core
- linux-image-amd64                       linux-signed-amd64
- libc6                                   glibc
"""


#: The same of NVIDIA's repository for RHEL: a name without the driver's own comes by its source.
RPM = """
+ nvidia-driver-cuda            nvidia-driver
+ libnvidia-ml                  nvidia-driver
+ xorg-x11-nvidia               nvidia-driver
+ libXNVCtrl                    nvidia-settings
+ nvidia-settings               nvidia-settings
+ nvidia-kmod-common            nvidia-kmod-common
+ kmod-nvidia-open-dkms         kmod-nvidia-open-dkms
- nvidia-container-toolkit      nvidia-container-toolkit
- dkms                          dkms
- kernel-devel                  kernel
"""


def package(source: str, *, hold: bool = False) -> Package:
    return Package("1", "installed", hold, "somebody", source)


@pytest.mark.parametrize("real", [REAL, RPM])
def test_the_set_is_what_was_built_from_the_drivers_sources(real: str) -> None:
    rows = [line.split() for line in real.strip().splitlines()]
    found = {name: package(source) for _mark, name, source in rows}
    assert driver_set.members(found) == sorted(name for mark, name, _source in rows if mark == "+")


def test_what_is_held_of_the_family_is_seen_in_the_set_or_not() -> None:
    found = {
        "libcuda1": package("nvidia-graphics-drivers", hold=True),
        "linux-modules-nvidia-580-generic": package("linux-restricted-modules", hold=True),
        "docker.io": package("docker.io", hold=True),
        "nvidia-smi": package("nvidia-graphics-drivers"),
    }
    assert driver_set.held(found, driver_set.members(found)) == ["libcuda1", "linux-modules-nvidia-580-generic"]


def test_the_source_package_is_read_from_dpkgs_status() -> None:
    text = "".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n{source}\n"
        for name, source in (("libxnvctrl0", "Source: nvidia-settings (570.1-2)\n"), ("nvidia-settings", ""))
    )
    found = packages.parse_dpkg_status(text, "amd64")
    assert {name: each.source for name, each in found.items()} == {
        "libxnvctrl0": "nvidia-settings",
        "nvidia-settings": "nvidia-settings",
    }


def test_the_files_of_the_lock_are_seen(tree: Tree) -> None:
    pin = "/etc/apt/preferences.d/nvidia-driver-pinning-580"
    tree.packages({"nvidia-driver-pinning-580": "1", "libcuda1": "1"})
    tree.file("/var/lib/dpkg/info/nvidia-driver-pinning-580.list", f"/.\n/etc\n{pin}\n")
    tree.file(driver_set.UNATTENDED_FILE, '// "^old$";\nUnattended-Upgrade::Package-Blacklist {\n  "^libcuda1$";\n};\n')
    seen = driver_set.observe(tree.host())
    assert seen["pins"] == {"nvidia-driver-pinning-580": {"files": [pin], "missing": [pin]}}
    assert seen["excluded"] == ["^libcuda1$"]
    assert seen["would_move"] is None
    tree.file(pin, "Package: *\n")
    assert driver_set.observe(tree.host())["pins"]["nvidia-driver-pinning-580"]["missing"] == []


def test_what_apt_would_move_of_the_set_is_read() -> None:
    said = (
        "Calculating upgrade...\nInst libcuda1 [580.126.20-1] (580.178.04-1 NVIDIA:NVIDIA CUDA [amd64]) []\n"
        "Inst bash [5.2-1] (5.3-1 Debian:13 [amd64])\nInst libnew (1 Debian [amd64])\nConf libcuda1 (580.178.04-1 NVIDIA [amd64])\n"
    )
    programs = FakePrograms({"dist-upgrade": answer(said)})
    host = Host(root="/", runner=programs)
    moved = [{"name": "libcuda1", "from": "580.126.20-1", "to": "580.178.04-1"}]
    assert driver_set.would_move(host, ["libcuda1", "libnew"]) == moved
    assert "-s" in programs.calls[0]


def test_an_apt_that_does_not_answer_is_unknown_and_not_fine() -> None:
    host = Host(root="/", runner=FakePrograms({"dist-upgrade": answer("", 100, "E: dpkg was interrupted")}))
    assert driver_set.would_move(host, ["libcuda1"]) is None
    assert "dpkg was interrupted" in host.unknown_facts["driver.would_move"]

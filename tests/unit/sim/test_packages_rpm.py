"""The stand-ins of rpm packages: what their fields say, where that was read, and that they can be installed together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tables
from tests.sim import repository, rpm, scenario

PLAN = tables.read(Path(rpm.__file__).parent / "packages-rpm.yaml")
#: Whose fields could not all be read. A row that is added here is kinder or harsher than the world in a way that nobody knows.
ASSUMED = {
    "container-selinux",
    "cuda-cudart-{major}-{minor}",
    "cuda-drivers",
    "cuda-nvcc-{major}-{minor}",
    "cuda-toolkit-{major}-{minor}",
    "datacenter-gpu-manager-4-core",
    "datacenter-gpu-manager-4-cuda13",
    "datacenter-gpu-manager-4-proprietary",
    "datacenter-gpu-manager-4-proprietary-cuda13",
    "datacenter-gpu-manager-exporter",
    "displaylink",
    "docker-compose-plugin",
    "dkms",
    "egl-gbm",
    "egl-wayland",
    "egl-x11",
    "gcc-c++",
    "golang-github-prometheus-node-exporter",
    "kernel-modules-core",
    "kmod-nvidia-latest-dkms",
    "kmod-nvidia-open-dkms",
    "libcudnn9-cuda-13",
    "libcudnn9-devel-cuda-13",
    "libcudnn9-headers-cuda-13",
    "libnvidia-cfg",
    "libnvidia-ml",
    "libnvidia-nscq",
    "libvdpau",
    "nvidia-driver",
    "nvidia-driver-cuda",
    "nvidia-driver-cuda-libs",
    "nvidia-driver-libs",
    "nvidia-fabricmanager",
    "nvidia-imex",
    "nvidia-kmod-common",
    "nvidia-modprobe",
    "nvidia-open",
    "nvidia-persistenced",
    "ocl-icd",
    "opencl-filesystem",
    "podman",
    "xorg-x11-nvidia",
}
#: Of which only that it is there counts.
COSTUME = {
    "bash", "bison", "coreutils", "cpio", "elfutils-libelf-devel", "file", "findutils", "fio", "flex", "gawk",
    "gcc", "grep", "gzip", "kmod", "libglvnd", "libglvnd-egl", "libglvnd-gles", "libglvnd-glx", "libglvnd-opengl", "libxml2",
    "linux-firmware", "make", "openssl", "openssl-devel", "patch", "perl-interpreter",
    "python3-dnf-plugin-versionlock", "rocky-release", "sed", "systemd", "tar", "vulkan-loader", "which",
    "xorg-x11-server-Xorg", "xz",
}  # fmt: skip


def rows() -> Iterator[dict[str, Any]]:
    for group in PLAN["groups"]:
        yield from group["packages"]


@pytest.fixture
def specs(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """The spec of each package by name and version. Libraries are compiled only when a repository is built."""
    monkeypatch.setattr(repository, "compiled", lambda name, version, *_more: b"library")
    found = {}
    for group in PLAN["groups"]:
        for build in group["builds"]:
            words = rpm._words(build, group)
            for entry in group["packages"]:
                package, spec = rpm._spec(entry, words, group, repository._PAYLOADS)
                found[package.name, words["evr"]] = spec
    return found


def of(spec: str, field: str) -> list[str]:
    return re.findall(rf"^{field}: (.+)$", spec, re.MULTILINE)


def test_every_stand_in_names_its_source_and_the_assumed_ones_are_known() -> None:
    for row in rows():
        named = row["source"] if isinstance(row["source"], list) else [row["source"]]
        assert set(named) <= PLAN["sources"].keys(), row["name"]
    assert {row["name"] for row in rows() if row.get("assumed")} == ASSUMED


def test_of_what_is_only_there_nothing_was_read() -> None:
    """They are what the costume needs to be installed on; nothing is told from their fields."""
    assert {row["name"] for row in rows() if row["source"] == "costume" and not row.get("assumed")} == COSTUME


def test_what_a_stand_in_requires_is_there_in_a_version_that_will_do(specs: dict[tuple[str, str], str]) -> None:
    offered: dict[str, set[str]] = {}
    for (name, version), spec in specs.items():
        of_arch = name if of(spec, "BuildArch") else f"{name}(x86-64)"
        own = [f"{each} = {version}" for each in (name, of_arch)]
        for provided in [*own, *of(spec, "Provides")]:
            what, _equals, which = provided.partition(" = ")
            offered.setdefault(what, set()).add(which)
    missing = []
    for (name, _version), spec in specs.items():
        for wanted in of(spec, "Requires"):
            what, relation, which = (*wanted.split(" "), "", "")[:3]
            if wanted.startswith("("):
                continue
            there = offered.get(what, set())
            # Without a release, what is asked for is of any.
            exact = any(each == which or each.rpartition("-")[0] == which for each in there)
            if not there or (relation == "=" and not exact):
                missing.append(f"{name} wants {wanted}")
    assert missing == []


def test_dkms_asks_for_the_matched_headers_where_a_kernel_is_installed(specs: dict[tuple[str, str], str]) -> None:
    (spec,) = [spec for (name, _version), spec in specs.items() if name == "dkms"]
    assert "(kernel-devel-matched if kernel-core)" in of(spec, "Requires")
    assert not [wanted for wanted in of(spec, "Requires") if wanted.startswith("kernel-devel")]
    assert of(spec, "BuildArch") == ["noarch"]


def test_every_kernel_has_all_its_parts_and_the_core_does_not_ask_for_the_whole(
    specs: dict[tuple[str, str], str],
) -> None:
    kernels = [version for name, version in specs if name == "kernel-core"]
    simulated = scenario.OPERATING_SYSTEMS["rocky-9"]["kernels"]
    # There is a newer kernel than those of the node: a dependency could bring it.
    assert max(kernels) > max(simulated)
    for version in kernels:
        release = f"{version}.x86_64"
        assert of(specs["kernel-core", version], "Requires") == [f"kernel-modules-core-uname-r = {release}"]
        assert f"kernel-modules-uname-r = {release}" in of(specs["kernel", version], "Requires")
        if ("kernel-devel", version) not in specs:
            assert release in scenario.load("rocky-older-kernel")["kernel"]["installed"]
            continue
        assert of(specs["kernel-devel-matched", version], "Requires") == [
            f"kernel-devel = {version}",
            f"kernel-core = {version}",
        ]
        installonly = {name for name in ("kernel", "kernel-core", "kernel-devel", "kernel-devel-matched")
                       if "installonlypkg(kernel)" in of(specs[name, version], "Provides")}  # fmt: skip
        assert installonly == {"kernel", "kernel-core", "kernel-devel"}


def test_the_modules_of_dkms_are_one_virtual_package_of_any_architecture(specs: dict[tuple[str, str], str]) -> None:
    version = "3:580.178.04-1.el9"
    for name in ("kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"):
        spec = specs[name, version]
        assert of(spec, "BuildArch") == ["noarch"]
        assert of(spec, "Provides") == ["nvidia-kmod = 3:580.178.04"]
        # A module that does not build stops no transaction.
        assert re.search(
            r"^%post\ndkms add .* \|\| :\ndkms build .* \|\| :\ndkms install .* \|\| :\nexit 0$", spec, re.MULTILINE
        )
    assert of(specs["kmod-nvidia-open-dkms", version], "Conflicts") == ["kmod-nvidia-latest-dkms"]
    assert of(specs["kmod-nvidia-latest-dkms", version], "Conflicts") == []
    assert "nvidia-kmod = 3:580.178.04" in of(specs["nvidia-kmod-common", version], "Requires")
    assert "nvidia-boot-update post" in specs["nvidia-kmod-common", version]


def test_a_service_is_enabled_by_a_preset_when_its_package_first_comes(specs: dict[tuple[str, str], str]) -> None:
    version = "3:580.178.04-1.el9"
    persistenced = specs["nvidia-persistenced", version]
    assert "if [ $1 -eq 1 ]; then systemctl --system preset nvidia-persistenced.service" in persistenced
    assert "try-restart nvidia-persistenced.service" in persistenced
    assert "/usr/lib/systemd/system-preset/70-nvidia-driver-cuda.preset" in specs["nvidia-driver-cuda", version]


def test_nccl_and_the_tools_of_the_toolkit_take_a_newer_library(specs: dict[tuple[str, str], str]) -> None:
    assert of(specs["libnccl-devel", "2.30.7-1+cuda13.0"], "Requires") == ["libnccl >= 2.30.7"]
    assert of(specs["libnvidia-container-tools", "1.19.1-1"], "Requires") == [
        "libnvidia-container1(x86-64) >= 1.19.1-1"
    ]

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.facts import DriverLock, LoadedModule
from ansible_collections.gpuwright.node.plugins.module_utils.observe import driver
from tests.unit.observe.trees import Tree

NO_MODULE: dict[str, LoadedModule] = {}
LOADED: dict[str, LoadedModule] = {"nvidia": {"version": "580.95.05"}}
NO_LOCK: DriverLock = {"set": [], "held": [], "excluded": None, "pins": {}, "would_move": None}
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


def with_library(tree: Tree, version: str = "580.95.05") -> Tree:
    tree.file(f"/usr/lib/x86_64-linux-gnu/libcuda.so.{version}")
    tree.link(LIBRARY, f"libcuda.so.{version}")
    return tree


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54  Fri 1\nGCC version: x", ("550.54", "proprietary")),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@x)  ",
            ("580.95.05", "open"),
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build", ("580.95.05", "open")),
        ("garbage", (None, None)),
    ],
)
def test_the_driver_tells_version_and_kind_of_its_modules(text: str, said: tuple[str | None, str | None]) -> None:
    assert driver.parse_proc_version(text) == said


def test_every_sample_of_the_drivers_version_file_is_understood() -> None:
    samples = sorted((Path(__file__).parents[4] / "shared/samples/proc-driver-nvidia-version").glob("*"))
    if not samples:
        pytest.skip("the samples are not here")
    for sample in samples:
        version, kind = driver.parse_proc_version(sample.read_text(errors="replace"))
        assert version, sample
        assert kind in {"open", "proprietary"}, sample


def test_nothing_there_is_none(tree: Tree) -> None:
    tree.packages({"gcc": "1"})
    seen = driver.observe(tree.host(), "x86_64", NO_MODULE, NO_LOCK)
    assert (seen["owner"], seen["source"], seen["packages"]) == ("none", None, {})


def test_packages_that_own_the_library_own_the_driver(tree: Tree) -> None:
    with_library(tree).packages(
        {"libcuda1": "550.163.01-2", "nvidia-smi": "550.163.01-2", "nvidia-container-toolkit": "1.20.0-1"},
        vendor="Debian NVIDIA Maintainers <x@y.example>",
    )
    tree.file("/var/lib/dpkg/info/libcuda1:amd64.list", f"/.\n/usr/lib\n{LIBRARY}\n")
    seen = driver.observe(tree.host(), "x86_64", NO_MODULE, NO_LOCK)
    assert (seen["owner"], seen["source"]) == ("packages", "distro")
    assert set(seen["packages"]) == {"libcuda1", "nvidia-smi"}
    assert seen["user_version"] == "580.95.05"


def test_a_run_file_is_told_by_its_uninstaller_and_a_library_of_no_package(tree: Tree) -> None:
    with_library(tree).packages({"nvidia-settings": "550.163.01-2"})
    tree.file("/var/lib/dpkg/info/nvidia-settings.list", "/usr/bin/nvidia-settings\n")
    tree.program("/usr/bin/nvidia-uninstall")
    seen = driver.observe(tree.host(), "x86_64", LOADED, NO_LOCK)
    assert (seen["owner"], seen["source"]) == ("runfile", "runfile")


def test_an_uninstaller_left_behind_does_not_outweigh_the_owning_package(tree: Tree) -> None:
    with_library(tree).packages({"libcuda1": "580.95.05-1", "nvidia-driver-cuda": "580.95.05-1"})
    tree.file("/var/lib/dpkg/info/libcuda1:amd64.list", LIBRARY + "\n")
    tree.program("/usr/bin/nvidia-uninstall")
    seen = driver.observe(tree.host(), "x86_64", LOADED, NO_LOCK)
    assert (seen["owner"], seen["source"]) == ("packages", "nvidia")


def test_a_library_of_nobody_is_unknown(tree: Tree) -> None:
    with_library(tree).packages({"gcc": "1"})
    host = tree.host()
    assert driver.observe(host, "x86_64", NO_MODULE, NO_LOCK)["owner"] == "unknown"
    assert "driver.owner" in host.unknown_facts


@pytest.mark.parametrize(
    ("packages", "vendor", "source"),
    [
        ({"libnvidia-compute-580": "580.95.05-0ubuntu0.24.04.2"}, "Ubuntu Core Developers", "distro"),
        ({"libnvidia-compute-580": "580.95.05-0ubuntu1"}, "NVIDIA <x@nvidia.example>", "nvidia"),
        ({"libcuda1": "535.261.03-1~deb12u1"}, "Debian NVIDIA Maintainers", "distro"),
        ({"nvidia-driver-cuda": "590.44.01-1", "libcuda1": "590.44.01-1"}, "whoever", "nvidia"),
        ({"libcuda1": "550.163.01-2", "nvidia-smi": "550.163.01-2"}, "", "distro"),
        ({"libcuda1": "550.163.01-2"}, "", None),
    ],
)
def test_the_source_is_told_by_names_versions_and_maintainers(
    tree: Tree, packages: dict[str, str], vendor: str, source: str | None
) -> None:
    tree.packages(packages, vendor=vendor)
    assert driver.observe(tree.host(), "x86_64", NO_MODULE, NO_LOCK)["source"] == source


def test_apts_lists_of_a_flat_repository_tell_the_source(tree: Tree) -> None:
    tree.packages({"libcuda1": "550.54.15-1"}, vendor="Debian NVIDIA Maintainers")
    listing = "Package: libcuda1\nArchitecture: amd64\nVersion: 550.54.15-1\n\nPackage: other\nVersion: 1\n"
    tree.file("/var/lib/apt/lists/mirror.example_compute_cuda_repos_debian12_x86%5f64_Packages", listing)
    assert driver.observe(tree.host(), "x86_64", NO_MODULE, NO_LOCK)["source"] == "nvidia"


def test_without_the_proc_file_the_loaded_version_comes_from_sysfs(tree: Tree) -> None:
    tree.packages({})
    host = tree.host()
    seen = driver.observe(host, "x86_64", LOADED, NO_LOCK)
    assert (seen["loaded_version"], seen["loaded_modules"]) == ("580.95.05", None)
    assert "driver.loaded_modules" in host.unknown_facts


def test_debians_links_lead_to_the_version_of_user_space(tree: Tree) -> None:
    tree.file("/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.163.01")
    tree.link("/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1", "libcuda.so.550.163.01")
    tree.link("/etc/alternatives/nvidia--libcuda.so.1", "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1")
    tree.link(LIBRARY, "/etc/alternatives/nvidia--libcuda.so.1")
    seen = driver.observe(tree.host(), "x86_64", NO_MODULE, NO_LOCK)
    assert (seen["libcuda"], seen["user_version"]) == (LIBRARY, "550.163.01")


# --- what an interrupted package manager leaves -------------------------------------------------------------------------

OTHER = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.178.04"


def cut_off(tree: Tree, told: str = "libnvidia-ml1:amd64 580.95.05-1 580.178.04-1") -> Tree:
    """A node that went back to 580.95.05, with a library of the build that dpkg was killed over, and what dpkg wrote of that."""
    with_library(tree).packages({"libcuda1": "580.95.05-1", "libnvidia-ml1": "580.95.05-1", "openssl": "3.5"})
    tree.file("/var/lib/dpkg/info/libcuda1:amd64.list", f"/.\n{LIBRARY}\n{LIBRARY}.580.95.05\n")
    for path in (OTHER, "/usr/lib/x86_64-linux-gnu/libcudart.so.12.8.90", "/usr/lib/x86_64-linux-gnu/libx.so.100.1.2"):
        tree.file(path)
    tree.file(
        "/var/log/dpkg.log", f"2026-11-29 12:00:00 upgrade {told}\n2026-11-29 12:00:00 status half-installed {told}\n"
    )
    return tree


def strays(tree: Tree) -> object:
    """What is told, with dpkg's own answer."""
    return driver.observe(Host(root=str(tree.root)), "x86_64", LOADED, NO_LOCK).get("strays")


def test_a_library_of_another_build_that_no_package_has_is_told(tree: Tree) -> None:
    assert strays(cut_off(tree)) == [OTHER]


@pytest.mark.parametrize(
    "told",
    [
        "libnvidia-ml1:amd64 580.95.05-1 580.95.05-2",  # nobody knows who brought it
        "openssl:amd64 3.4 580.178.04-1",
    ],
)
def test_one_that_the_package_manager_never_began_to_bring_is_somebodys(tree: Tree, told: str) -> None:
    assert strays(cut_off(tree, told)) is None


def test_one_that_a_package_has_is_none(tree: Tree) -> None:
    cut_off(tree).file("/var/lib/dpkg/info/libnvidia-ml1.list", f"/.\n{OTHER[4:]}\n")
    assert strays(tree) is None


def test_where_nobody_says_whose_it_is_it_stays(tree: Tree) -> None:
    told = driver.observe(cut_off(tree).host(), "x86_64", LOADED, NO_LOCK)
    assert "strays" not in told


def test_a_driver_of_a_file_has_none(tree: Tree) -> None:
    cut_off(tree).packages({"openssl": "3.5"})
    assert strays(tree) is None


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ('ModifyDeviceFiles: 1\nPreserveVideoMemoryAllocations: 0\nTemporaryFilePath: ""\n', False),
        ("PreserveVideoMemoryAllocations: 1\n", True),
        ("ModifyDeviceFiles: 1\n", None),
        (None, None),
    ],
)
def test_a_driver_tells_whether_it_keeps_the_memory_of_cards_that_sleep(
    tree: Tree, text: str | None, keeps: bool | None
) -> None:
    if text is not None:
        tree.file("/proc/driver/nvidia/params", text)
    assert driver.keeps_memory(tree.host()) is keeps

"""The stand-in packages of apt's repositories beside the world: where each row was read, what was not, and whether apt can install them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tables
from tests.sim import repository
from tests.unit import apt_root

HERE = Path(repository.__file__).parent
ROOT = HERE.parent.parent
PLAN = tables.read(HERE / "packages.yaml")
#: What a node of the simulation has or its mirror of Debian brings.
PRESENT = (
    "kmod",
    "python3",
    "initramfs-tools",
    "binutils",
    "gcc-14",
    "make",
    "build-essential",
    "libibumad3",
    "infiniband-diags",
)
#: The distribution that a repository of NVIDIA's is for.
BESIDE = {"debian13": "distribution-debian-13", "ubuntu2404": "distribution-ubuntu-24.04"}

Install = Callable[..., dict[str, str]]


def rows() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each package with its group."""
    for group in PLAN["groups"]:
        yield from ((group, entry) for entry in group["packages"])


def test_every_row_says_where_it_was_read() -> None:
    for group, entry in rows():
        sources = entry.get("source", group.get("source", []))
        assert sources or entry.get("assumed") or group.get("assumed"), f"{entry['name']} of {group['repositories']}"
        assert set(sources) <= set(PLAN["sources"]), entry["name"]


def test_every_source_is_of_some_row() -> None:
    named = {key for group, entry in rows() for key in entry.get("source", group.get("source", []))}
    assert named == set(PLAN["sources"])


def test_what_could_not_be_read_is_listed_here() -> None:
    assumed: dict[str, list[str]] = {}
    for group, entry in rows():
        told = entry.get("assumed", group.get("assumed"))
        if told and entry["name"] not in assumed.setdefault(told, []):
            assumed[told].append(entry["name"])
    assert {told: " ".join(sorted(names)) for told, names in assumed.items()} == ASSUMED


#: What of the stand-in packages could not be read, and whose: look before you rely on it.
ASSUMED = {
    "its relations": (
        "datacenter-gpu-manager-4-proprietary datacenter-gpu-manager-4-proprietary-cuda12 "
        "datacenter-gpu-manager-4-proprietary-cuda13"
    ),
    "that it starts nothing": "datacenter-gpu-manager-exporter",
    "relations and units, but for what cuda-drivers-580 depends on": (
        "cuda-drivers cuda-drivers-{branch} firmware-nvidia-gsp libcuda1 libnvidia-cfg1 libnvidia-ml1 libnvidia-nscq "
        "libnvidia-nvvm4 libnvidia-ptxjitcompiler1 nvidia-driver nvidia-driver-cuda nvidia-driver-libs "
        "nvidia-driver-pinning-{branch} nvidia-driver-pinning-{build} nvidia-fabricmanager nvidia-imex "
        "nvidia-kernel-dkms nvidia-kernel-open-dkms nvidia-kernel-support nvidia-modprobe nvidia-open "
        "nvidia-open-{branch} nvidia-persistenced nvidia-settings nvidia-xconfig"
    ),
    "of its Depends nothing was read": "libnvidia-compute-{branch}",
    "its Depends are of a model": "libnvidia-compute-{branch} libnvidia-gl-{branch} xserver-xorg-video-nvidia-{branch}",
    "its Depends": (
        "libnvidia-cfg1 libnvidia-cfg1-{branch} libnvidia-common-{branch} libnvidia-encode libnvidia-encode-{branch} "
        "libnvidia-extra libnvidia-extra-{branch} libnvidia-fbc1 libnvidia-fbc1-{branch} libnvidia-gl "
        "libnvidia-gpucomp-{branch} nvidia-imex-{branch} nvidia-utils xserver-xorg-video-nvidia"
    ),
    "its relations are those of Ubuntu's package": "nvidia-dkms nvidia-dkms-open nvidia-dkms-{branch} nvidia-dkms-{branch}-open",
    "its unit": "nvidia-compute-utils-{branch}",
    "its Depends, and that it has MPS without the daemon, which is a package of its own": "nvidia-compute-utils-{branch}",
    "its Depends are those of Ubuntu's package": "nvidia-utils-{branch}",
    "its Depends are those of 570": "nvidia-kernel-common",
    "its Depends are those of the open one of 570": "nvidia-driver-{branch}",
    "its Depends are as those of nvidia-open": "cuda-drivers cuda-drivers-{branch}",
    "what it pins: the names with the branch alone": "nvidia-driver-pinning-{branch} nvidia-driver-pinning-{build}",
    "unit, enabled or not, scripts, Depends": "nvidia-persistenced",
    "the rest of its Depends": "libnvidia-compute",
    "its Depends on utils and dkms": "nvidia-driver nvidia-driver-open",
    "what it pins: every name of the driver": "nvidia-driver-pinning-{branch} nvidia-driver-pinning-{build}",
    "its control fields, but for its alias": "nvidia-imex",
    "the Depends": (
        "cuda-toolkit-{major}-{minor} libnvinfer-dev libnvinfer-headers-dev libnvinfer-headers-plugin-dev "
        "libnvinfer-plugin-dev libnvinfer-plugin10 libnvinfer-plugin11 libnvinfer-safe-headers-dev libnvinfer10 "
        "libnvinfer11 libnvonnxparsers-dev libnvonnxparsers10 libnvonnxparsers11"
    ),
    "the relations": "libcudnn9-cuda-12 libcudnn9-dev-cuda-12 libcudnn9-headers-cuda-12",
    "what was read is Ubuntu's": "cuda-compat-13-0",
    "the relations are those of the meta packages of other series": (
        "linux-headers-generic linux-headers-{build}-generic linux-image-aws linux-image-generic "
        "linux-image-{build}-aws linux-image-{build}-generic"
    ),
    "without the packages of X, whose names are filled in at the build": "xserver-xorg-video-nvidia-{branch}{flavour}",
    "its Depends are those for proprietary modules": "linux-modules-nvidia-{branch}{flavour}-open-6.8.0-134-generic",
    "the flavour aws was not read": (
        "linux-modules-nvidia-{branch}{flavour}-open-6.8.0-1021-aws linux-modules-nvidia-{branch}{flavour}-open-aws"
    ),
    "its Provides are those for proprietary modules": "linux-modules-nvidia-{branch}{flavour}-open-generic",
    "version and Depends": "libnvidia-egl-wayland1 ocl-icd-libopencl1",
    "version and relations: it is Debian 13's": "dkms",
}

# the real apt ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apt(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """install("ubuntu2404", "nvidia-open-580", held={...}): what the real apt would install from repositories, by name; it raises where it
    cannot.
    """
    if shutil.which("apt-get") is None:
        pytest.skip("apt-get is not installed")
    packages = apt_root.stand_ins(PLAN, PLAN["repositories"])

    def install(where: str, *names: str, present: tuple[str, ...] = (), preferences: str = "") -> dict[str, str]:
        root = tmp_path_factory.mktemp("apt")
        (root / "r").mkdir()
        beside = [each for each in packages.get(BESIDE.get(where, ""), ()) if each.component == "main"]
        stanzas = [
            f"{each.control()}Filename: ./{each.file_name}\nSize: 1\nSHA256: {'0' * 64}\n"
            for each in [*packages[where], *beside]
        ]
        (root / "r/Packages").write_text("\n".join(stanzas))
        (root / "preferences").write_text(preferences)
        (root / "status").write_text(apt_root.installed((*PRESENT, *present)))
        options = apt_root.options(root, root / "r", root / "status")
        subprocess.run(["apt-get", "-q", *options, "update"], check=True, capture_output=True)
        done = subprocess.run(
            ["apt-get", "-s", "-q", *options, "--no-install-recommends", "install", *names],
            capture_output=True,
            text=True,
            check=False,
            env=apt_root.ENVIRONMENT,
        )
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith("Inst ")]
        return {line[1]: next(word for word in line if word.startswith("(")).lstrip("(") for line in lines}

    return install


UBUNTU = "distribution-ubuntu-24.04"


@pytest.mark.parametrize("branch", ["580", "595"])
@pytest.mark.parametrize("modules", ["-open", ""])
def test_ubuntus_compute_set_comes_without_dkms(apt: Install, branch: str, modules: str) -> None:
    found = apt(
        UBUNTU,
        f"linux-modules-nvidia-{branch}-server{modules}-generic",
        f"nvidia-headless-no-dkms-{branch}-server{modules}",
        f"nvidia-utils-{branch}-server",
    )
    brought = (
        f"nvidia-compute-utils-{branch}-server",
        f"libnvidia-cfg1-{branch}-server",
        "linux-image-6.8.0-134-generic",
    )
    assert set(brought) <= set(found)
    assert not any(name.startswith(("nvidia-dkms", "dkms")) for name in found)


@pytest.mark.parametrize("modules", ["-open", ""])
def test_ubuntus_desktop_set_takes_the_modules_that_are_named_with_it_for_dkms(apt: Install, modules: str) -> None:
    found = apt(UBUNTU, f"linux-modules-nvidia-580{modules}-generic", f"nvidia-driver-580{modules}")
    assert {"libnvidia-encode-580", "nvidia-compute-utils-580", "libnvidia-gl-580"} <= set(found)
    assert not any(name.startswith("nvidia-dkms") for name in found)
    assert f"nvidia-dkms-580{modules}" in apt(UBUNTU, f"nvidia-driver-580{modules}")


def test_a_branch_in_name_only_brings_another_one(apt: Install) -> None:
    found = apt(UBUNTU, "nvidia-utils-570-server")
    assert found["nvidia-utils-580-server"].startswith("580.")


def test_flavours_and_branches_of_ubuntu_are_not_there_together(apt: Install) -> None:
    with pytest.raises(AssertionError, match="Conflicts"):
        apt(UBUNTU, "libnvidia-compute-580", "libnvidia-compute-580-server")
    with pytest.raises(AssertionError, match="Conflicts"):
        apt(UBUNTU, "nvidia-utils-580-server", "nvidia-utils-595-server")


def test_ubuntus_fabric_manager_stands_beside_the_compute_packages_of_its_build_alone(apt: Install) -> None:
    assert "nvidia-kernel-common-580-server" in apt(UBUNTU, "nvidia-fabricmanager-580", "libnvidia-nscq-580")
    with pytest.raises(AssertionError, match="held broken packages"):
        apt(UBUNTU, "nvidia-fabricmanager-580", "nvidia-utils-580")
    with pytest.raises(AssertionError, match="Unable to locate package nvidia-imex-580"):
        apt(UBUNTU, "nvidia-imex-580")


def test_every_set_that_the_rules_name_can_be_installed(apt: Install) -> None:
    rules = yaml.safe_load((HERE.parents[1] / "compat/packages.yaml").read_text())
    places = {("nvidia", "debian"): "debian13", ("nvidia", "ubuntu"): "ubuntu2404", ("distro", "ubuntu"): UBUNTU}
    brought = {}
    for row in rules["driver"]:
        where = places.get((row["from"], row["family"]))
        for branch in ("580", "595"):
            if where and int(row["first_branch"]) <= int(branch) <= int(row["last_branch"] or 999):
                names = [name.format(branch=branch, series="generic") for name in row["packages"]]
                preferences = "" if where == UBUNTU else everything(f"{branch}.")
                brought[where, row["set"], row["modules"], branch] = apt(where, *names, preferences=preferences)
    assert len(brought) == 24
    for (where, kind, _modules, _branch), found in brought.items():
        brought_names = " ".join(found)
        for part in ("persistenced|compute-utils", "cfg1", *(() if where == "debian13" else ("decode", "encode"))):
            assert kind == "desktop" or any(word in brought_names for word in part.split("|")), (where, part)


# NVIDIA's repository for Ubuntu ----------------------------------------------------------------------------------------


def everything(pattern: str) -> str:
    """The preference that the role packages gives apt while it installs the driver."""
    return f"Package: /./\nPin: version {pattern}*\nPin-Priority: 1001\n"


def test_what_the_driver_needs_with_a_lower_bound_is_of_the_newest_branch(apt: Install) -> None:
    found = apt(
        "ubuntu2404", "libnvidia-compute-580=580.178.04-1ubuntu1", "nvidia-kernel-common-580=580.178.04-1ubuntu1"
    )
    assert (found["nvidia-persistenced"], found["nvidia-modprobe"]) == ("595.112.07-1ubuntu1",) * 2
    with pytest.raises(AssertionError, match="held broken packages"):
        apt("ubuntu2404", "libnvidia-compute-580=580.126.20-1ubuntu1", "nvidia-kernel-common-580=580.126.20-1ubuntu1")


@pytest.mark.parametrize("build", ["580.126.20", "580.178.04"])
def test_it_is_of_the_drivers_build_where_apt_is_told(apt: Install, build: str) -> None:
    names = [f"libnvidia-compute-580={build}-1ubuntu1", f"nvidia-kernel-common-580={build}-1ubuntu1"]
    told = apt("ubuntu2404", *names, preferences=everything(f"{build}-"))
    assert (told["nvidia-persistenced"], told["nvidia-modprobe"]) == (f"{build}-1ubuntu1",) * 2


def test_the_package_of_a_branch_for_debian_has_lower_bounds_alone(apt: Install) -> None:
    assert apt("debian13", "cuda-drivers-580")["nvidia-driver"].startswith("595.")
    assert apt("debian13", "cuda-drivers-580", preferences=everything("580."))["nvidia-driver"].startswith("580.178")


@pytest.mark.parametrize(
    "name", ["nvidia-open-580", "cuda-drivers-580", "nvidia-open", "cuda-drivers", "nvidia-open-570"]
)
def test_nvidias_desktop_sets_can_be_installed(apt: Install, name: str) -> None:
    branch = name.rpartition("-")[2] if name[-1].isdigit() else "595"
    found = apt("ubuntu2404", name, preferences=everything(f"{branch}."))
    assert any(each.startswith("nvidia-dkms") for each in found)


def test_the_rules_name_no_package_that_is_only_an_alias(apt: Install) -> None:
    rules = yaml.safe_load((HERE.parents[1] / "compat/packages.yaml").read_text())
    for table in ("fabric_manager", "nscq", "imex"):
        for row in rules[table]:
            if row["from"] == "nvidia" and row.get("family") is None and row["last_branch"] is None:
                (name,) = row["packages"]
                assert list(apt("ubuntu2404", f"{name}=580.178.04-1")) == [name]


# Debian's kernels ------------------------------------------------------------------------------------------------------


def test_the_headers_of_debian_13_bring_the_newest_kernel(apt: Install) -> None:
    found = apt("distribution-debian-13", "linux-headers-amd64")
    assert "linux-image-6.12.107+deb13-amd64" in found
    assert "linux-image-6.12.94+deb13-amd64" not in found


@pytest.mark.parametrize("major", ["12", "13"])
def test_the_index_of_wheels_has_the_libraries_that_a_resolution_takes(major: str) -> None:
    """A resolution pins the newest cuDNN and NCCL of the tables; a node of the simulation cannot install what its index lacks."""
    tables = ROOT / "compat"
    cudnn = yaml.safe_load((tables / "cudnn.yaml").read_text())["versions"]
    nccl = yaml.safe_load((tables / "libraries.yaml").read_text())["nccl"]
    newest = {
        "cudnn": [row["version"] for row in cudnn if major in row["cuda_majors"]][-1],
        "nccl": [row["version"] for row in nccl if f"cu{major}" in row["variants"]][-1],
    }
    for name, version in newest.items():
        assert version in PLAN["wheels"]["pypi"][f"nvidia-{name}-cu{major}"]["versions"]


@pytest.mark.parametrize("directory", ["cu130", "cu126", "cpu"])
def test_the_index_of_wheels_has_the_companions_of_its_torch(directory: str) -> None:
    there = {
        name: entry["version"].partition("+")[0]
        for name, entry in PLAN["wheels"][directory].items()
        if name.startswith("torch")
    }
    releases = yaml.safe_load((ROOT / "compat" / "pytorch.yaml").read_text())["releases"]
    (row,) = (row for row in releases if row["version"] == there["torch"])
    assert {name: row[name] for name in ("torchvision", "torchaudio")} == {
        name: there[name] for name in ("torchvision", "torchaudio")
    }

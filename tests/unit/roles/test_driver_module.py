"""What the role nvidia_driver judges the installation by: the module that the next kernel will load, whatever dnf or apt ended with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

VARS = Path(__file__).resolve().parents[3] / "roles/nvidia_driver/vars/main.yml"
MODULE = {"version": "580.178.04", "license": "Dual MIT/GPL"}
KERNEL = "5.14.0-611.41.1.el9_7.x86_64"
SET = dict.fromkeys(("nvidia-driver-cuda", "kmod-nvidia-open-dkms"), "3:580.178.04-1.el9")


def templated(name: str, installed: dict[str, str], module: dict[str, Any] | None, **more: Any) -> Any:
    """The value of an internal variable of the role after an installation on EL 9."""
    stack = {"packages": list(SET), "modules": "open", "build": "dkms", **more.pop("stack", {})}
    plan = {"stack": {"driver": stack}, "install": more.pop("install", [])}
    facts = {
        "packages": {"installed": installed},
        "kernel": {"available": {"nvidia": module} if module else {}, "next": more.pop("kernel", KERNEL)},
        "os": {"family": "redhat"},
    }
    variables = DataLoader().load_from_file(str(VARS), trusted_as_template=True)
    variables |= {"gpuwright_plan": plan, "__nvidia_driver_seen": {"facts": facts}, **more}
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template("{{ " + name + " }}"))


@pytest.mark.parametrize(
    ("module", "faults"),
    [
        (MODULE, []),
        (None, ["there is no NVIDIA module for it"]),
        # The build failed and the one before it is still there.
        (
            {**MODULE, "version": "580.126.20"},
            ["its module has version 580.126.20 instead of 580.178.04"],
        ),
        ({**MODULE, "license": "NVIDIA"}, ["its module is the proprietary one instead of the open one"]),
    ],
)
def test_packages_that_are_installed_prove_no_module(module: dict[str, Any] | None, faults: list[str]) -> None:
    assert list(templated("__nvidia_driver_faults", SET, module)) == faults


def test_what_dkms_takes_for_installed_is_read_from_its_status_for_the_next_kernel_alone() -> None:
    """The forms of DKMS 3 and 2.8 (dell/dkms, do_status)."""
    told = [
        f"nvidia/580.126.20, {KERNEL}, x86_64: built",
        f"nvidia/580.178.04, {KERNEL}, x86_64: installed (Differences between built and installed modules)",
        "nvidia/580.178.04, 5.14.0-611.49.1.el9_7.x86_64, x86_64: installed",
        f"nvidia-current-open, 550.163.01, {KERNEL}, x86_64: installed",
        f"evdi/1.14.7, {KERNEL}, x86_64: installed",
        "nvidia/570.1: broken",
    ]
    line = templated("__nvidia_driver_installed_line", SET, None)
    assert re.findall(line, "\n".join(told)) == [("nvidia", "580.178.04"), ("nvidia-current-open", "550.163.01")]


@pytest.mark.parametrize("stack", [{}, {"version": "580.178.04"}])
def test_what_dkms_takes_for_installed_is_taken_back_in_the_version_of_the_driver_alone(stack: dict[str, Any]) -> None:
    """nvidia-fs, of GPUDirect Storage, is NVIDIA's too, and not what is missing."""
    told = [
        f"nvidia/580.126.20, {KERNEL}, x86_64: installed",
        f"nvidia/580.178.04, {KERNEL}, x86_64: installed",
        f"nvidia-fs/2.26.6, {KERNEL}, x86_64: installed",
    ]
    recorded = {"stdout": "\n".join(told)}
    found = templated("__nvidia_driver_taken_for_installed", SET, None, stack=stack, __nvidia_driver_recorded=recorded)
    assert [list(each) for each in found] == [["nvidia", "580.178.04"]]
    assert list(templated("__nvidia_driver_taken_for_installed", SET, None, __nvidia_driver_recorded={"rc": 2})) == []


def test_the_package_with_the_source_of_the_module_is_known_by_its_name() -> None:
    assert list(templated("__nvidia_driver_source_packages", {**SET, "dkms": "3.4.1-1.el9"}, None)) == [
        "kmod-nvidia-open-dkms"
    ]
    of_ubuntu = {"nvidia-dkms-580-open": "580.126.09-1", "nvidia-utils-580": "580.126.09-1"}
    assert list(templated("__nvidia_driver_source_packages", of_ubuntu, None)) == ["nvidia-dkms-580-open"]


@pytest.mark.parametrize(
    ("kernel", "headers"),
    [
        (KERNEL, f"kernel-devel-{KERNEL}"),
        ("5.14.0-503.14.1.el9_5.aarch64+64k", "kernel-64k-devel-5.14.0-503.14.1.el9_5.aarch64"),
        ("5.14.0-503.14.1.el9_5.x86_64+rt", "kernel-rt-devel-5.14.0-503.14.1.el9_5.x86_64"),
    ],
)
def test_the_headers_of_exactly_one_kernel_are_asked_for_by_the_name_that_rpm_knows(kernel: str, headers: str) -> None:
    assert templated("__nvidia_driver_kernel_headers", SET, None, kernel=kernel) == headers


def test_a_kernel_that_comes_whole_is_no_other_package_of_its_flavour() -> None:
    release = "5.14.0-611.49.1.el9_7.aarch64"
    whole = [f"kernel-{release}", f"kernel-64k-{release}", f"kernel-rt-{release}"]
    others = [
        "kernel-64k-core",
        "kernel-64k-devel",
        "kernel-64k-devel-matched",
        "kernel-64k-modules",
        "kernel-rt-core",
        "kernel-core",
    ]
    rows = [{"name": name} for name in [*whole, *others]]
    assert list(templated("__nvidia_driver_whole_kernels", SET, None, install=rows)) == whole


def test_whoever_reads_of_a_failed_build_learns_whether_nouveau_still_comes() -> None:
    assert "has not been blacklisted" in templated("__nvidia_driver_screen", SET, None)
    said = templated("__nvidia_driver_screen", {**SET, "nvidia-kmod-common": "3:580.178.04-1.el9"}, None)
    assert "nvidia-kmod-common" in said
    assert "has not been blacklisted" not in said

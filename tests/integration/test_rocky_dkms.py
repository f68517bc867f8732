"""Rocky Linux 9 with NVSwitches and a kernel that is not the newest: what comes with EPEL's DKMS, and what fails there in silence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="rocky")]

VERSION, OLDER = "580.178.04", "580.126.20"
_DRIVER = ("--want", "driver")
_BROKEN = "/etc/gpuwright-sim/dkms-fails"
_KERNEL, _NEWEST = "5.14.0-611.41.1.el9_7.x86_64", "5.14.0-611.49.1.el9_7.x86_64"
#: A kernel whose headers the repositories do not have.
_OLDER = "5.14.0-611.16.1.el9_7.x86_64"
#: What DKMS and the headers bring from EPEL and the distribution.
_BUILD = (
    *(
        "bison",
        "dkms",
        "elfutils-libelf-devel",
        "flex",
        "gcc",
        "gcc-c++",
        "kernel-devel",
        "kernel-devel-matched",
        "make",
        "openssl-devel",
    ),
    *("patch", "perl-interpreter"),
)
_NVIDIA = (
    *(
        "kmod-nvidia-open-dkms",
        "libnvidia-cfg",
        "libnvidia-ml",
        "libnvidia-nscq",
        "nvidia-driver-cuda",
        "nvidia-driver-cuda-libs",
    ),
    *("nvidia-fabricmanager", "nvidia-kmod-common", "nvidia-modprobe", "nvidia-persistenced"),
)
_OTHERS = ("fio", "ocl-icd", "opencl-filesystem", "python3-dnf-plugin-versionlock")


def packages(machine: Node) -> set[str]:
    """The names of the installed packages."""
    return set(machine.shell(r"rpm -qa --qf '%{NAME}\n' | grep -v ^gpg-pubkey").split())


def kernels(machine: Node) -> set[str]:
    """The packages of kernels that have modules or an image of their own."""
    return set(machine.shell("rpm -q kernel kernel-core kernel-modules kernel-modules-core").split())


@pytest.fixture(scope="module")
def hgx(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node as the factory delivers it."""
    return make_shared_node("rocky-hgx", "rocky-hgx")


@pytest.fixture(scope="module")
def before(hgx: Node) -> set[str]:
    """The packages that the factory installed."""
    return packages(hgx)


def test_a_build_that_fails_in_silence_is_named_with_its_log(hgx: Node, before: set[str]) -> None:
    hgx.shell(f"touch {_BROKEN}")
    failed = hgx.up(*_DRIVER)
    assert failed.code == 1, str(failed)
    # dnf saw nothing of it.
    assert "kmod-nvidia-open-dkms" in packages(hgx) - before
    message = failed.host["failure"]["message"]
    assert f"/var/lib/dkms/nvidia/{VERSION}/build/make.log" in message, message
    assert "too few arguments to function" in message
    # The package keeps nouveau away from the next boot whether the module is there or not.
    assert "nvidia-kmod-common keeps nouveau away" in message
    assert "gpuwright-nouveau" not in hgx.shell("ls /etc/modprobe.d")


def test_the_next_run_heals_it_and_brings_exactly_these_packages_and_no_kernel(hgx: Node, before: set[str]) -> None:
    hgx.shell(f"rm {_BROKEN}")
    run = hgx.up(*_DRIVER)
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    assert packages(hgx) - before == {*_BUILD, *_NVIDIA, *_OTHERS}
    assert kernels(hgx) == {
        f"{name}-{_KERNEL}" for name in ("kernel", "kernel-core", "kernel-modules", "kernel-modules-core")
    }
    assert hgx.shell("rpm -q kernel-devel kernel-devel-matched").split() == [
        f"kernel-devel-{_KERNEL}",
        f"kernel-devel-matched-{_KERNEL}",
    ]
    assert hgx.shell(f"modinfo -k {_KERNEL} -F filename nvidia").strip() == f"/lib/modules/{_KERNEL}/extra/nvidia.ko"
    for service in ("nvidia-persistenced", "nvidia-fabricmanager"):
        assert hgx.shell(f"systemctl is-enabled {service}; systemctl is-active {service}").split() == [
            "enabled",
            "active",
        ]
    assert "gpuwright-nouveau.conf" in hgx.shell(f"lsinitrd /boot/initramfs-{_KERNEL}.img")


def test_that_dkms_made_every_initramfs_again_is_no_change_of_the_next_run(hgx: Node) -> None:
    assert "dracut --regenerate-all" in hgx.shell("cat /etc/dkms/framework.conf")
    again = hgx.up(*_DRIVER)
    assert (again.code, again.roles, again.changed, again.host["changes"]) == (0, [], 0, []), str(again)
    full = hgx.up(*_DRIVER, "--full")
    assert (full.code, full.changed, full.host["reboot"]) == (0, 0, False), str(full)


def test_a_record_without_its_source_stops_nothing(hgx: Node) -> None:
    """What is left of a driver whose source somebody deleted: DKMS refuses to touch it, to remove it as well."""
    hgx.shell(
        f"mkdir -p /var/lib/dkms/nvidia/{OLDER} && ln -s /usr/src/nvidia-{OLDER} /var/lib/dkms/nvidia/{OLDER}/source"
    )
    hgx.shell(f"rm -r /lib/modules/{_KERNEL}/extra; depmod {_KERNEL}")
    assert "Error!" in hgx.shell("dkms status 2>&1")
    run = hgx.up(*_DRIVER)
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    assert VERSION in hgx.shell(f"modinfo -k {_KERNEL} -F version nvidia")
    again = hgx.up(*_DRIVER)
    assert (again.code, again.roles, again.host["changes"]) == (0, [], []), str(again)


def test_a_module_whose_source_is_gone_too_comes_back_with_its_package(hgx: Node) -> None:
    hgx.shell(f"rm -r /usr/src/nvidia-{VERSION} /lib/modules/{_KERNEL}/extra; depmod {_KERNEL}")
    run = hgx.up(*_DRIVER)
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    assert VERSION in hgx.shell(f"modinfo -k {_KERNEL} -F version nvidia")


def test_a_kernel_that_comes_by_an_upgrade_brings_its_headers_and_its_module(hgx: Node) -> None:
    """Only one version of kernel-devel-matched can be there: an upgrade of everything moves it to the newest kernel."""
    hgx.shell("dnf -y upgrade")
    assert f"kernel-modules-{_NEWEST}" in kernels(hgx)
    assert VERSION in hgx.shell(f"modinfo -k {_NEWEST} -F version nvidia")
    hgx.reboot()
    assert hgx.shell("uname -r").strip() == _NEWEST
    run = hgx.up(*_DRIVER)
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    # The blacklist is looked for inside the initramfs of each kernel that comes to boot; the driver is right as it came.
    assert {change["component"] for change in run.host["changes"]} <= {"nouveau_blacklist", "validate"}, str(run)
    again = hgx.up(*_DRIVER)
    assert (again.code, again.roles, again.host["changes"]) == (0, [], []), str(again)


def test_a_kernel_that_is_allowed_comes_whole_where_the_headers_of_the_present_one_are_gone(
    make_node: Callable[..., Node],
) -> None:
    """As on a machine of an older minor release, whose kernels are no longer in the repositories."""
    machine = make_node("rocky-gone", "rocky-older-kernel")
    refused = machine.plan(*_DRIVER)
    assert refused.code == 3, str(refused)
    assert "nvidia_driver_allow_kernel=true" in " ".join(row["remedy"] for row in refused.host["refusals"])
    allowed = ("-e", "nvidia_driver_allow_kernel=true", *_DRIVER)
    run = machine.up(*allowed)
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    parts = ("kernel", "kernel-core", "kernel-modules", "kernel-modules-core")
    assert kernels(machine) == {f"{name}-{kernel}" for name in parts for kernel in (_OLDER, _NEWEST)}
    assert machine.shell("uname -r").strip() == _NEWEST
    again = machine.up(*allowed)
    assert (again.code, again.roles, again.host["changes"]) == (0, [], []), str(again)

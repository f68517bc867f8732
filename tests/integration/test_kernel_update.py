"""A kernel update that breaks the driver: Debian's own kernels, packages and compiler, the open modules of 550, kernels from 6.12.107 on.

DKMS compiles twice: for the kernel on which the modules build, when the node is prepared,
and for the one on which they do not, when it comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from .conftest import Node, Run

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="kernels")]

_GOOD = "6.1.0-50-amd64"
_MODULE = "nvidia-current-open"
_CARD = ("--gpu", "A100 SXM4 80GB")
_OPEN = (*_CARD, "--want", "driver", "--want", "driver-source=distro", "--want", "driver-modules=open")
_SETTING = "/etc/default/grub.d/gpuwright.cfg"


def check(run: Run, name: str) -> dict[str, str]:
    """The only check of that name."""
    (found,) = [row for row in run.host["checks"] if row["id"] == name]
    return dict(found)


def test_a_kernel_for_which_the_driver_does_not_build_breaks_nothing(make_node: Callable[..., Node]) -> None:
    machine = make_node("broken", "debian-older-kernel")
    bad = _newest_kernel(machine)
    _the_driver_brings_no_kernel(machine, bad)
    _the_kernel_comes(machine, bad)
    _doctor_names_the_cause_and_the_ways_out(machine, bad)
    _up_finishes_the_packages_and_keeps_the_kernel(machine, bad)
    _the_kernel_that_has_a_module_boots(machine, bad)
    _what_cannot_be_built_is_refused_before(machine, bad)


def _newest_kernel(machine: Node) -> str:
    """The one that Debian's meta package brings today."""
    (release,) = re.findall(r"Depends: linux-image-(\S+)", machine.shell("apt-cache depends linux-image-amd64"))
    return str(release)


def _the_driver_brings_no_kernel(machine: Node, bad: str) -> None:
    """Debian's headers depend on their kernel: those that follow the newest would bring it."""
    assert "linux-headers-amd64" not in machine.shell("dpkg-query -W -f '${Package}\\n'")
    run = machine.up(*_OPEN)
    assert run.code == 0, str(run)
    assert run.host["stack"]["driver"]["headers"] == f"linux-headers-{_GOOD}"
    assert f"{_GOOD}, x86_64: installed" in machine.shell("dkms status")
    assert bad not in machine.shell("ls /boot")
    again = machine.up(*_OPEN)
    assert (again.code, again.host["changes"]) == (0, []), str(again)


def _the_kernel_comes(machine: Node, bad: str) -> None:
    """As an administrator brings it. Somebody makes the boot menu anew then, for whatever reason, without what the hook had set."""
    update = "apt-get install -qqy --no-install-recommends linux-image-amd64 linux-headers-amd64"
    said = machine.shell(f"DEBIAN_FRONTEND=noninteractive {update} 2>&1; echo rc=$?")
    assert "rc=100" in said, said
    assert "pci_resize_resource" in machine.shell(f"cat /var/lib/dkms/{_MODULE}/550.163.01/build/make.log")
    assert f"linux-image-{bad}" in machine.shell("dpkg --audit")
    assert _boots_next(machine) == _GOOD  # the hook of the role saw to it before DKMS was asked
    machine.shell(f"rm {_SETTING}; update-grub")


def _boots_next(machine: Node) -> str:
    return str(machine.plan(*_OPEN).written_plan["facts_summary"]["kernel_next"])


def _doctor_names_the_cause_and_the_ways_out(machine: Node, bad: str) -> None:
    doctor = machine.run("doctor", *_OPEN)
    assert doctor.code == 1, str(doctor)
    build = check(doctor, "driver.build")
    assert (build["status"], build["severity"]) == ("fail", "critical")
    assert f"did not build for kernel {bad}" in build["reason"]
    assert "pci_resize_resource" in build["reason"]
    assert "after a reboot there is no driver" in build["reason"]
    assert f"stay on {_GOOD}" in build["remedy"]
    assert "driver-modules=proprietary" in build["remedy"]
    assert check(doctor, "packages.interrupted")["status"] == "fail"


def _up_finishes_the_packages_and_keeps_the_kernel(machine: Node, bad: str) -> None:
    planned = machine.plan(*_OPEN)
    assert planned.code == 0, str(planned)
    reason = planned.host["changes"][0]["reason"]
    assert f"did not build for kernel {bad}" in reason
    assert f"{_GOOD}, which has the module, boots next" in reason
    run = machine.up(*_OPEN)
    assert run.code == 0, str(run)
    assert "repair" in run.components
    assert machine.shell("dpkg --audit") == ""
    assert "BUILD_EXCLUSIVE_KERNEL" in machine.shell(f"cat /etc/dkms/{_MODULE}-550.163.01-{bad}.conf")
    assert f"gnulinux-{_GOOD}-advanced-" in machine.shell(f"cat {_SETTING}")
    again = machine.up(*_OPEN)
    assert (again.code, again.host["changes"], again.changed) == (0, [], 0), str(again)
    build = check(again, "driver.build")
    assert build["status"] == "warn", build
    assert f"{_GOOD} boots next, which has a module" in build["reason"]


def _the_kernel_that_has_a_module_boots(machine: Node, bad: str) -> None:
    assert {_GOOD, bad} <= set(machine.shell("ls /lib/modules").split())
    machine.reboot()
    assert machine.shell("uname -r").strip() == _GOOD
    after = machine.up(*_OPEN)
    assert (after.code, {change["component"] for change in after.host["changes"]}) == (0, {"validate"}), str(after)


def _what_cannot_be_built_is_refused_before(machine: Node, bad: str) -> None:
    """Whoever lets the newest kernel boot all the same is told so, and nothing is changed."""
    machine.shell(f"rm {_SETTING}; update-grub")
    before = machine.tree()
    run = machine.up(*_OPEN)
    assert run.code == 3, str(run)
    (conflict,) = [row for row in run.host["conflicts"] if bad in row["text"]]
    assert "driver-modules=proprietary" in conflict["remedy"]
    assert f"boot kernel {_GOOD}, which is installed" in conflict["remedy"]
    assert machine.tree() == before

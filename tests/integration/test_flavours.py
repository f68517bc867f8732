"""Ubuntu's signed modules on a node with kernels of two flavours: each that may boot gets its module, one without is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="systems")]

_DRIVER = ("--want", "driver=580")
_AWS, _GENERIC, _BEHIND = "6.8.0-1021-aws", "6.8.0-134-generic", "6.8.0-124-generic"


def boots_next(machine: Node, kernel: str) -> None:
    """Make a kernel the default of the boot menu, as an administrator does."""
    title = f"Advanced options for Ubuntu>Ubuntu, with Linux {kernel}"
    machine.shell(f"echo 'GRUB_DEFAULT=\"{title}\"' >/etc/default/grub; update-grub")


def test_every_flavour_that_may_boot_gets_its_signed_module(make_node: Callable[..., Node]) -> None:
    machine = make_node("flavours", "two-flavours")
    run = machine.up(*_DRIVER)
    assert run.code == 0, str(run)
    assert run.host["stack"]["driver"]["build"] == "prebuilt-signed"
    for kernel in (_AWS, _GENERIC):
        assert "Canonical" in machine.shell(f"modinfo -k {kernel} -F signer nvidia")
    assert "linux-modules-nvidia-580-server-open-generic" in machine.shell("dpkg-query -W -f '${Package}\\n'")
    again = machine.up(*_DRIVER)
    assert (again.code, again.host["changes"]) == (0, []), str(again)

    # The modules lag behind a kernel: it is refused as soon as it would boot next, and nothing is changed.
    machine.shell(f"apt-get install -qqy linux-image-{_BEHIND} 2>&1")
    assert machine.plan(*_DRIVER).code == 0
    boots_next(machine, _BEHIND)
    before = machine.tree()
    run = machine.up(*_DRIVER)
    assert run.code == 3, str(run)
    (refusal,) = run.host["refusals"]
    assert refusal["rule"] == "signed-module-behind"
    assert f"linux-modules-nvidia-580-server-open-{_BEHIND}" in refusal["text"]
    assert f"kernel {_BEHIND} boots next" in refusal["text"]
    assert "GRUB_DEFAULT" in refusal["remedy"]
    assert machine.tree() == before

    # The way out that it names: another kernel boots, of the other flavour, and the node is proven on it.
    boots_next(machine, _GENERIC)
    machine.reboot()
    assert machine.shell("uname -r").strip() == _GENERIC
    run = machine.up(*_DRIVER)
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)

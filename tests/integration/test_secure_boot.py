"""Secure Boot: modules that the kernel would reject are not built, and the way through shim's menu works to its end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import snapshot
from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="hosts")]

_WISH = ("--want=driver=580", "--want=driver-source=nvidia")


def test_a_key_that_is_not_enrolled_is_refused_then_waited_for_then_used(make_node: Callable[..., Node]) -> None:
    machine = make_node("secure", "secure-boot")
    before = machine.tree()

    refused = machine.up(*_WISH)
    assert refused.code == 3, str(refused)
    (refusal,) = refused.host["refusals"]
    assert refusal["rule"] == "secure-boot-key"
    assert "mokutil --import /var/lib/shim-signed/mok/MOK.der" in refusal["remedy"]
    assert "Enroll MOK" in refusal["remedy"]
    assert "driver-source=distro" in refusal["remedy"]
    assert snapshot.differences(before, machine.tree()) == {}

    # What the steps say, with a password that nobody keeps.
    machine.shell("apt-get -qy install dkms && mkdir -p /etc/dkms/framework.conf.d && dkms generate_mok")
    machine.shell("echo mok_certificate=/var/lib/dkms/mok.pub > /etc/dkms/framework.conf.d/key.conf")
    machine.shell("printf 'secret\\nsecret\\n' | mokutil --import /var/lib/dkms/mok.pub")
    booted = machine.shell("cat /proc/sys/kernel/random/boot_id")
    waiting = machine.up(*_WISH)
    assert waiting.code == 4, str(waiting)
    assert machine.shell("cat /proc/sys/kernel/random/boot_id") == booted, "nobody is at the console: no boot"
    assert "signer:         DKMS module signing key" in machine.shell("modinfo -k $(uname -r) nvidia")
    checks = {check["id"]: check for check in machine.run("doctor", *_WISH).host["checks"]}
    assert "waits to be enrolled" in checks["driver.secure_boot"]["reason"]

    # Somebody is at the console, chooses "Enroll MOK" and types the password.
    machine.shell("touch /etc/gpuwright-sim/mok/console")
    machine.reboot()
    done = machine.up(*_WISH)
    assert done.code == 0, str(done)
    assert "secure-boot" not in {warning["rule"].rpartition(".")[2] for warning in done.written_plan["warnings"]}
    for path in (done.report, waiting.report):
        assert path
        assert all(b"secret" not in snapshot.content(file) for file in path.rglob("*") if file.is_file())

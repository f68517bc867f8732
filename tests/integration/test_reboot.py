"""A reboot that does not come about: what the machine answered is in the message, and the next run heals it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="systems")]

_DRIVER = ("--want", "driver=580")


def test_a_machine_that_never_goes_down_is_said_to_answer_from_the_boot_before(make_node: Callable[..., Node]) -> None:
    machine = make_node("stays")
    boot = machine.shell("cat /proc/sys/kernel/random/boot_id").strip()
    machine.shell("systemctl mask reboot.target shutdown.target 2>&1")
    run = machine.up(*_DRIVER, "-e", "reboot_timeout=20 reboot_last_look=5")
    assert run.code == 1, str(run)
    message = run.host["failure"]["message"]
    assert f"still in the boot before, {boot}: it never went down" in message
    assert "the reboot itself said:" in message
    assert "What to do" in message
    assert run.host["failure"]["component"] == "reboot"
    machine.shell("systemctl unmask reboot.target shutdown.target 2>&1")
    # The kernel's own view of the boot is taken for the answer, whatever the module makes of it.
    late = machine.up(*_DRIVER, "-e", "reboot_timeout=25", "-e", '{"reboot_boot_time_command": "cat /etc/hostname"}')
    assert late.code == 1, str(late)
    assert "only too late" in late.host["failure"]["message"]
    healed = machine.up(*_DRIVER)
    assert healed.code == 0, str(healed)
    assert healed.host["verdict"] == "pass"
    assert "reboot" not in healed.components

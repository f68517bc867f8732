"""Reboots that do not go as they should: what the machine answered is in the message, and the next run heals it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="hosts")]

_DRIVER = ("--want", "driver=580")
#: A service that takes its time to stop. Who may log in may do so until then, as on a host that ends its containers first; the name of the
#: host is not resolved any more, as where the network's own services are gone.
_SLOW = """[Unit]
After=ssh.service systemd-user-sessions.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/bin/sh -c 'umount /etc/hosts /etc/resolv.conf; sleep 6'
[Install]
WantedBy=multi-user.target
"""
#: A machine that tests its memory for so many seconds.
_LATE = "[Service]\nExecStartPre=/bin/sleep {}\n"
_LATE_FILE = "/etc/systemd/system/ssh.service.d/late.conf"


def write(machine: Node, path: str, text: str) -> None:
    """Put a file of systemd's in its place."""
    machine.shell(f"mkdir -p $(dirname {path}) && cat > {path} <<'END'\n{text}END\nsystemctl daemon-reload")


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
    write(machine, _LATE_FILE, _LATE.format(25))
    late = machine.up(*_DRIVER, "-e", "reboot_timeout=5 reboot_last_look=90")
    assert late.code == 1, str(late)
    assert "only too late" in late.host["failure"]["message"]
    healed = machine.up(*_DRIVER)
    assert healed.code == 0, str(healed)
    assert healed.host["verdict"] == "pass"
    assert "reboot" not in healed.components


@pytest.mark.parametrize("scenario", ["two-h100", "rocky"], ids=["apt", "dnf"])
def test_a_machine_that_takes_long_to_go_down_is_waited_for(make_node: Callable[..., Node], scenario: str) -> None:
    """sudo's warning about the name comes into the terminal that the boot's id is read from."""
    machine = make_node("slow", scenario)
    write(machine, "/etc/systemd/system/slow.service", _SLOW)
    write(machine, _LATE_FILE, _LATE.format(8))
    machine.shell("systemctl enable --now slow.service 2>&1")
    run = machine.up(*_DRIVER)
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass"
    assert "reboot" in run.components

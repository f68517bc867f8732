"""What computes is not disturbed: who holds a card decides, whatever nvidia-smi says or does not say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import Node, Run

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="modules")]

#: A driver of another version than the node's, and nobody to wait for a minute on a program that never ends.
_OTHER = ("--want", "driver=580.126.20", "-e", "gpuwright_command_timeout=3")
_LEAVE = ("-e", "gpuwright_allow_busy=true")


@pytest.fixture
def training(ready_node: Node) -> Iterator[Node]:
    """A node with a process that holds a card, which opens here as it does with a driver behind it, while nvidia-smi never ends."""
    ready_node.shell("mv /dev/nvidia0 /dev/nvidia0.real && mknod -m 666 /dev/nvidia0 c 1 3")
    ready_node.shell("systemd-run --unit=training sh -c 'exec 3<>/dev/nvidia0; exec sleep 3600' 2>&1")
    ready_node.shell(
        "timeout 20 sh -c 'until [ -e /proc/$(systemctl show -P MainPID training)/fd/3 ]; do sleep 0.1; done'"
    )
    ready_node.fault("hanging-smi")
    yield ready_node
    ready_node.fault("all", clear=True)
    # The stand-in kernel makes the nodes anew whenever a fault comes or goes.
    ready_node.shell("systemctl stop training; [ ! -e /dev/nvidia0.real ] || mv -f /dev/nvidia0.real /dev/nvidia0")


def refusals(run: Run) -> list[str]:
    """Those that tell what would be ended."""
    return [row["text"] for row in run.host["refusals"] if row["rule"] == "in-use"]


def test_a_driver_is_not_taken_from_who_holds_a_card_while_nvidia_smi_hangs(training: Node) -> None:
    before = training.shell("cat /proc/sys/kernel/random/boot_id; dpkg -l nvidia-driver-cuda")
    run = training.up(*_OTHER)
    assert run.code == 3, str(run)
    driver, boot = refusals(run)
    assert "Expected idle cards, because the driver changes. Found what uses it: sleep (pid " in driver
    assert "Expected an idle host, because it is rebooted. Found what uses it: sleep (pid " in boot
    assert training.shell("cat /proc/sys/kernel/random/boot_id; dpkg -l nvidia-driver-cuda") == before
    assert training.shell("systemctl is-active training").strip() == "active"
    assert (training.plan(*_OTHER).code, training.plan(*_OTHER, *_LEAVE).code) == (3, 0)


def test_a_node_whose_libraries_were_swapped_is_not_booted_under_who_holds_a_card(training: Node) -> None:
    training.fault("hanging-smi", clear=True)
    training.fault("version-mismatch")
    before = training.shell("cat /proc/sys/kernel/random/boot_id")
    run = training.up("-e", "gpuwright_command_timeout=3")
    assert run.code == 3, str(run)
    (boot,) = refusals(run)
    assert "because it is rebooted. Found what uses it: sleep (pid " in boot
    assert training.shell("cat /proc/sys/kernel/random/boot_id") == before

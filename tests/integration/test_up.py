"""`gpuwright up` on a simulated node: it brings it to a proven state, keeps it so, and heals what was broken or cut off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node, gpuwright, gpuwright_killed

pytestmark = pytest.mark.sim


def test_a_second_up_changes_nothing(ready_node: Node) -> None:
    run = gpuwright("up", "--yes", "-i", ready_node.inventory, "--json")
    assert run.code == 0, str(run)
    assert run.host["changes"] == []
    assert run.host["verdict"] == "pass"


def test_up_without_the_seals_changes_nothing_either(ready_node: Node) -> None:
    run = gpuwright("up", "--yes", "--full", "-i", ready_node.inventory, "--json")
    assert run.code == 0, str(run)
    assert [change for change in run.host["changes"] if change["action"] not in ("prove", "adopt")] == []


def test_a_sealed_file_that_was_broken_is_named_and_repaired(ready_node: Node) -> None:
    path = "/etc/modprobe.d/gpuwright-nouveau.conf"
    ready_node.shell(f"echo '# by hand' > {path}")
    planned = gpuwright("plan", "-i", ready_node.inventory, "--json")
    assert path in planned.stdout
    assert gpuwright("up", "--yes", "-i", ready_node.inventory, "--json").code == 0
    assert "blacklist nouveau" in ready_node.shell(f"cat {path}")


def test_a_service_that_was_stopped_is_started_again(ready_node: Node) -> None:
    ready_node.shell("systemctl disable --now docker.service docker.socket")
    assert gpuwright("up", "--yes", "-i", ready_node.inventory, "--json").code == 0
    assert ready_node.shell("systemctl is-active docker").strip() == "active"


@pytest.mark.parametrize("kind", ["fallen-off-bus", "ecc", "version-mismatch", "garbage-smi", "module-not-loaded"])
def test_a_broken_card_or_driver_is_not_called_healthy(ready_node: Node, kind: str) -> None:
    ready_node.fault(kind)
    try:
        assert gpuwright("doctor", "-i", ready_node.inventory, "--json").code == 1
    finally:
        ready_node.fault("all", clear=True)
        ready_node.reboot()


def test_killed_while_apt_works_the_next_run_heals_it(make_node: Callable[..., Node]) -> None:
    machine = make_node("cutapt")

    def apt_works() -> bool:
        return bool(machine.shell("pgrep -x dpkg || true").strip())

    gpuwright_killed(apt_works, "up", "--yes", "-i", machine.inventory)
    # The power goes too: dpkg stops in the middle.
    machine.shell("pkill -9 -x dpkg; pkill -9 -x apt-get; true", check=False)
    machine.shell("rm -f /run/gpuwright/lock.json")
    run = gpuwright("up", "--yes", "-i", machine.inventory, "--json")
    assert run.code == 0, str(run)


def test_killed_between_a_file_and_what_follows_from_it_the_next_run_heals_it(make_node: Callable[..., Node]) -> None:
    machine = make_node("cutfile")

    def blacklist_is_written() -> bool:
        return machine.shell("test -e /etc/modprobe.d/gpuwright-nouveau.conf && echo yes || true").strip() == "yes"

    gpuwright_killed(blacklist_is_written, "up", "--yes", "-i", machine.inventory)
    machine.shell("pkill -9 update-initramfs; pkill -9 mkinitramfs; rm -f /run/gpuwright/lock.json", check=False)
    run = gpuwright("up", "--yes", "-i", machine.inventory, "--json")
    assert run.code == 0, str(run)
    kernel = machine.shell("uname -r").strip()
    assert "gpuwright-nouveau.conf" in machine.shell(f"lsinitramfs /boot/initrd.img-{kernel}")

"""Ubuntu's own compute set on a server: what comes with it, persistence that stays on, and unattended upgrades kept from it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from .conftest import Node
from .leftovers import leftovers

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="driver")]

_OWN = ("--want", "driver-source=distro")
_WISH = ("--want", "driver=580", *_OWN)
_EXCLUSION = "/etc/apt/apt.conf.d/52gpuwright-nvidia-driver"
_KEEPER = "gpuwright-nvidia-persistence.service"
_DROPIN = "/etc/systemd/system/nvidia-persistenced.service.d"
_COMPUTE = {
    *(f"libnvidia-{part}-580-server" for part in ("cfg1", "compute", "decode", "encode")),
    "nvidia-compute-utils-580-server",  # the persistence daemon and MPS
    "nvidia-firmware-580-server-580.173.02",
    "nvidia-headless-no-dkms-580-server-open",
    "nvidia-kernel-common-580-server",
    "nvidia-kernel-source-580-server-open",
    "nvidia-utils-580-server",
}


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A server with Ubuntu's own driver; the tests of this module go through its life in their order."""
    server = make_shared_node("own", "h100-ubuntu").with_its_tree()
    run = server.up(*_WISH)
    assert run.code == 0, str(run)
    return server


def driver_packages(machine: Node) -> set[str]:
    """The installed packages of the driver, without the modules that follow the kernel."""
    names = machine.shell("dpkg-query -W -f '${db:Status-Status} ${Package}\\n' '*nvidia*'").splitlines()
    there = {name.removeprefix("installed ") for name in names if name.startswith("installed ")}
    return {name for name in there if not name.startswith("linux-") and "container" not in name}


def is_persistent(machine: Node) -> bool:
    """Whether the card says so, within the seconds that systemd takes to start a daemon."""
    asked = "nvidia-smi --query-gpu=persistence_mode --format=csv,noheader | grep -q Enabled"
    return machine.shell(f"for turn in $(seq 50); do {asked} && echo yes && exit; sleep 0.2; done") == "yes\n"


def excluded(machine: Node) -> set[str]:
    """The packages that unattended upgrades leave alone."""
    return set(re.findall(r'"\^(.+)\$";', machine.shell(f"cat {_EXCLUSION}").replace("\\.", ".")))


def changes_nothing(machine: Node, *wish: str) -> None:
    again = machine.up(*wish)
    assert (again.code, again.host["changes"], again.changed) == (0, [], 0), str(again)


def test_a_compute_set_has_the_daemons_and_the_libraries_of_containers(machine: Node) -> None:
    assert driver_packages(machine) == _COMPUTE
    assert (
        machine.shell("test -x /usr/bin/nvidia-persistenced && systemctl is-enabled nvidia-persistenced") == "static\n"
    )
    changes_nothing(machine, *_WISH)


def test_unattended_upgrades_are_kept_from_the_set_and_nothing_is_held(machine: Node) -> None:
    assert excluded(machine) == _COMPUTE
    assert machine.shell("apt-mark showhold") == ""


def test_persistence_is_on_at_every_boot_and_the_proof_says_so(machine: Node) -> None:
    assert is_persistent(machine)
    machine.reboot()
    assert is_persistent(machine)
    proof = machine.run("validate", *_WISH)
    assert proof.code == 0, str(proof)
    assert {check["status"] for check in proof.host["checks"] if check["id"] == "persistence"} == {"pass"}


def test_an_upgrade_of_the_daemons_package_does_not_end_it(machine: Node) -> None:
    """Its scripts stop the daemon, and nothing of Ubuntu's starts it again before the next boot."""
    before = machine.shell("systemctl show -P MainPID nvidia-persistenced")
    machine.shell("apt-get -qy install --reinstall nvidia-compute-utils-580-server")
    assert is_persistent(machine)
    assert machine.shell("systemctl show -P MainPID nvidia-persistenced") != before, "the package did not stop it"


def test_a_daemon_without_persistence_is_named_and_mended(machine: Node) -> None:
    machine.shell(f"rm -r {_DROPIN} && systemctl disable --now {_KEEPER} && systemctl daemon-reload")
    machine.shell("systemctl stop nvidia-persistenced")
    planned = machine.plan(*_WISH)
    assert any("persistence" in change["reason"] for change in planned.host["changes"]), str(planned)
    mended = machine.up(*_WISH)
    assert mended.code == 0, str(mended)
    assert is_persistent(machine)
    changes_nothing(machine, *_WISH)


def test_after_a_rollback_unattended_upgrades_are_kept_from_what_is_there_then(machine: Node) -> None:
    newer = ("--want", "driver=595", *_OWN)
    moved = machine.run("upgrade", "--yes", *newer)
    assert moved.code == 0, str(moved)
    assert excluded(machine) == driver_packages(machine) != _COMPUTE
    back = machine.run("rollback", "--yes", *newer)
    assert (back.code, back.host["verdict"]) == (0, "pass"), str(back)
    assert excluded(machine) == driver_packages(machine) == _COMPUTE
    assert is_persistent(machine)
    changes_nothing(machine, *newer)


def test_persistence_that_is_not_wished_any_more_leaves_nothing_of_ours(machine: Node) -> None:
    without = (*_WISH, "-e", "nvidia_driver_persistence=false")
    run = machine.up(*without)
    assert run.code == 0, str(run)
    assert machine.shell(f"ls -d {_DROPIN} /etc/systemd/system/{_KEEPER} 2>/dev/null || true") == ""
    changes_nothing(machine, *without)
    assert machine.up(*_WISH).code == 0
    assert is_persistent(machine)


def test_nothing_of_it_stays_beside_the_daemon_of_another_repository(machine: Node) -> None:
    """Somebody purged Ubuntu's packages; NVIDIA's daemon has a command, a user and an [Install] of its own."""
    machine.shell("apt-get -qy purge '*nvidia*'")
    nvidia = ("--want", "driver=580", "--want", "driver-source=nvidia")
    run = machine.up(*nvidia)
    assert run.code == 0, str(run)
    assert machine.shell(f"ls -d {_DROPIN} /etc/systemd/system/{_KEEPER} 2>/dev/null || true") == ""
    assert machine.shell("systemctl is-enabled nvidia-persistenced") == "enabled\n"
    assert "--no-persistence-mode" not in machine.shell("systemctl cat nvidia-persistenced")
    assert is_persistent(machine)
    # Lower bounds alone: without the branch's preference apt takes those of 595.
    versions = machine.shell("dpkg-query -W -f '${Version}\\n' nvidia-persistenced nvidia-modprobe").split()
    assert versions == ["580.178.04-1ubuntu1"] * 2
    changes_nothing(machine, *nvidia)


def test_remove_leaves_nothing_of_persistence(machine: Node) -> None:
    machine.shell("apt-get -qy --allow-change-held-packages purge '*nvidia*'")
    assert machine.up(*_WISH).code == 0
    gone = machine.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    assert machine.shell(f"systemctl show -P LoadState {_KEEPER}") == "not-found\n"
    assert leftovers(machine.bare, machine.tree()) == {}

"""The life of Ubuntu's own driver, its modules signed by Canonical: installed, upgraded, rolled back, removed with every trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node, Run
from .leftovers import leftovers

pytestmark = pytest.mark.sim

_OLD, _NEW = "580.173.02", "595.71.05"


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A bare node; the tests of this module go through the driver's life on it in their order."""
    return make_shared_node("archive", "h100-ubuntu").with_its_tree()


def run(machine: Node, verb: str, *wish: str) -> Run:
    words = [word for want in ("driver-source=distro", *wish) for word in ("--want", want)]
    return machine.run(verb, "--yes", *words)


def is_at(machine: Node, version: str, *wish: str) -> None:
    """The kernel runs this driver with a module that needs no key of ours, no package of another one is left, nothing is to do."""
    assert version in machine.shell("cat /proc/driver/nvidia/version")
    assert "Canonical" in machine.shell("modinfo -k $(uname -r) -F signer nvidia")
    told = machine.shell(
        "dpkg-query -W -f '${Package} ${db:Status-Status} ${Version}\\n' 'nvidia-*-server*' 'libnvidia-*-server*'"
    ).splitlines()
    assert {line.split()[2] for line in told if " installed " in line} == {f"{version}-0ubuntu0.24.04.1"}
    assert machine.shell("dpkg --audit") == ""
    again = run(machine, "up", *wish)
    assert (again.code, again.roles, again.host["changes"], again.changed) == (0, [], [], 0), str(again)


def test_up_installs_the_packages_of_a_branch(machine: Node) -> None:
    first = run(machine, "up", "driver=580")
    assert first.code == 0, str(first)
    assert first.host["verdict"] == "pass"
    is_at(machine, _OLD, "driver=580")


def test_a_branch_in_name_only_is_refused_with_the_one_that_apt_would_install(machine: Node) -> None:
    told = machine.shell("apt-cache depends nvidia-headless-no-dkms-570-server-open").split()
    assert told == ["nvidia-headless-no-dkms-570-server-open", "Depends:", "nvidia-headless-no-dkms-580-server-open"]
    refused = run(machine, "plan", "driver=570")
    assert refused.code == 3, str(refused)
    (reason,) = refused.host["conflicts"]
    assert reason["rule"] == "driver.transitional"
    assert "bring branch 580" in reason["text"]
    assert "ask for driver=580" in reason["remedy"]


def test_upgrade_exchanges_them_for_those_of_another_branch(machine: Node) -> None:
    moved = run(machine, "upgrade", "driver=595")
    assert moved.code == 0, str(moved)
    is_at(machine, _NEW, "driver=595")


def test_rollback_returns_to_the_branch_before(machine: Node) -> None:
    back = run(machine, "rollback")
    assert back.code == 0, str(back)
    is_at(machine, _OLD)


def test_remove_leaves_the_node_as_it_was(machine: Node) -> None:
    gone = machine.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    assert gone.host["verdict"] == "pass"
    assert leftovers(machine.bare, machine.tree()) == {}
    again = machine.run("remove", "--yes")
    assert (again.code, again.host["changes"]) == (0, []), str(again)

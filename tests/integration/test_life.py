"""The driver's life on one simulated node: installed, upgraded, rolled back, a new one that does not build, another branch, and every trace
removed: the file tree is the bare node's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node, Run, gpuwright
from .leftovers import leftovers

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="driver")]

_OLD, _NEW, _OTHER = "580.126.20", "580.178.04", "595.112.07"
_BROKEN = "/etc/gpuwright-sim/dkms-fails"


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A bare node; the tests of this module go through the driver's life on it in their order."""
    return make_shared_node("life", "two-h100").with_its_tree()


def run(machine: Node, verb: str, *arguments: str) -> Run:
    return machine._gpuwright(verb, "--yes", "--want", "cuda=13.0", *arguments)


def versions(machine: Node) -> set[str]:
    """The versions of what carries the driver's own."""
    names = "nvidia-driver-cuda libcuda1 libnvidia-ml1 nvidia-kernel-open-dkms nvidia-persistenced nvidia-modprobe"
    return set(machine.shell(f"dpkg-query -W -f '${{Version}}\\n' {names}").split())


def is_at(machine: Node, version: str, *wish: str) -> None:
    """The node runs this driver with all its packages, in the kernel too, the package manager has nothing to finish, and a further `up`
    finds nothing to do.
    """
    assert versions(machine) == {f"{version}-1"}
    assert version in machine.shell("cat /proc/driver/nvidia/version")
    assert machine.shell("dpkg --audit") == ""
    # One pin and no file that another one left.
    assert len(machine.shell("ls /etc/apt/preferences.d | grep pinning").split()) == 1
    again = machine.up("--want", "cuda=13.0", *wish)
    assert (again.code, again.roles, again.host["changes"], again.changed) == (0, [], [], 0), str(again)


def test_up_brings_a_driver_that_is_not_the_newest_of_its_branch(machine: Node) -> None:
    wish = ("--want", f"driver={_OLD}")
    first = machine.up("--want", "cuda=13.0", *wish)
    assert first.code == 0, str(first)
    is_at(machine, _OLD, *wish)


def test_up_does_not_move_a_node_but_upgrade_does(machine: Node) -> None:
    # Without the exact build in the wish its packages are held instead of pinned to it.
    stays = machine.up("--want", "cuda=13.0")
    assert stays.code == 0, str(stays)
    assert versions(machine) == {f"{_OLD}-1"}
    moved = run(machine, "upgrade")
    assert moved.code == 0, str(moved)
    (change,) = [row for row in moved.host["changes"] if row["component"] == "nvidia_driver"]
    assert (change["action"], change["to"]) == ("upgrade", f"{_NEW}-1")
    is_at(machine, _NEW)


def test_rollback_returns_to_the_driver_before_and_stays_there(machine: Node) -> None:
    back = run(machine, "rollback")
    assert back.code == 0, str(back)
    assert back.host["verdict"] == "pass"
    is_at(machine, _OLD)


def test_a_card_that_is_missing_is_no_fault_of_the_new_driver(machine: Node) -> None:
    """The inventory expects three cards and two are there, before the change as after it."""
    moved = run(machine, "upgrade", "-e", "gpuwright_gpus_expected=3")
    assert moved.code == 1, str(moved)
    assert "gpu.count" in {row["id"] for row in moved.host["checks"] if row["status"] == "fail"}
    assert moved.host.get("returned") is None
    assert versions(machine) == {f"{_NEW}-1"}
    assert '"failed": []' in machine.shell("cat /var/lib/gpuwright/history.json")
    assert run(machine, "rollback").code == 0
    is_at(machine, _OLD)


def test_a_driver_that_does_not_build_gives_way_to_the_one_that_worked(machine: Node) -> None:
    machine.shell(f"echo {_NEW} > {_BROKEN}")
    try:
        failed = run(machine, "upgrade")
        assert failed.code == 1, str(failed)
        assert failed.host["returned"] == {"version": _OLD, "failure": None, "verdict": "pass"}
        assert failed.host["failure"]["component"] == "nvidia_driver"
    finally:
        machine.shell(f"rm {_BROKEN}")
    is_at(machine, _OLD)
    assert gpuwright("doctor", "-i", machine.inventory, "--want", "cuda=13.0").code == 0


def test_it_is_not_tried_again_on_this_kernel_unless_that_is_asked_for(machine: Node) -> None:
    for refused in (run(machine, "upgrade"), machine.up("--want", "cuda=13.0", "--want", f"driver={_NEW}")):
        assert refused.code == 3, str(refused)
        (row,) = refused.host["refusals"]
        assert row["rule"] == "driver-failed-before"
        log = f"/var/lib/gpuwright/failed/{_NEW}-{machine.shell('uname -r').strip()}.log"
        assert log in row["remedy"]
        assert "too few arguments" in machine.shell(f"cat {log}")
    is_at(machine, _OLD)
    tried = run(machine, "upgrade", "-e", "gpuwright_retry=true")
    assert tried.code == 0, str(tried)
    # It works now, so nothing is held against it any more.
    is_at(machine, _NEW)
    assert '"failed": []' in machine.shell("cat /var/lib/gpuwright/history.json")
    assert run(machine, "rollback").code == 0


def test_another_branch_and_back_again_where_the_inventory_still_wishes_it(machine: Node) -> None:
    wish = ("--want", f"driver={_OTHER}")
    moved = run(machine, "upgrade", *wish)
    assert moved.code == 0, str(moved)
    is_at(machine, _OTHER, *wish)
    back = run(machine, "rollback", *wish)
    assert back.code == 0, str(back)
    # A rollback stays for as long as the wish is the one of then.
    is_at(machine, _OLD, *wish)
    told = machine.plan("--want", "cuda=13.0", *wish).host["warnings"]
    assert "rolled-back" in [row["rule"] for row in told], told


def test_security_goes_no_further_than_the_floor(machine: Node) -> None:
    moved = run(machine, "upgrade", "--security")
    assert moved.code == 0, str(moved)
    is_at(machine, _NEW)
    again = run(machine, "upgrade", "--security")
    assert (again.code, again.host["changes"]) == (0, []), str(again)


def test_remove_leaves_the_node_as_it_was(machine: Node) -> None:
    # With everything that a node gets by default: the frameworks, and Docker with the container toolkit.
    whole = machine.up()
    assert whole.code == 0, str(whole)
    assert {"frameworks", "container_toolkit"} <= whole.components

    planned = machine.run("remove")
    assert planned.code == 2, str(planned)
    gone = machine.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    assert gone.host["verdict"] == "pass"

    loaded = machine.shell("ls /sys/module").split()
    assert "nvidia" not in loaded
    assert "nouveau" in loaded
    assert leftovers(machine.bare, machine.tree()) == {}
    again = machine.run("remove", "--yes")
    assert (again.code, again.host["changes"]) == (0, []), str(again)

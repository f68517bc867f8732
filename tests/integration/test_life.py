"""The driver's life on a simulated node: upgraded, rolled back, a new one that does not build, another branch, and every trace removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.sim import node

from .conftest import Node, Proven, Run, gpuwright

pytestmark = pytest.mark.sim

_OLD, _NEW, _OTHER = "580.126.20", "580.178.04", "595.112.07"
#: What the package manager and the boot keep of whatever happened, and what a login leaves.
_OF_THE_SYSTEM = (
    "/var/cache/apt",
    "/var/cache/ldconfig",
    "/var/log",
    "/var/lib/dpkg",
    "/var/lib/apt",
    "/var/lib/systemd",
    "/tmp",
    "/var/tmp",
    "/boot",
    "/root",
    "/home",
)
#: How the mode of a directory begins.
_DIRECTORY = "0o40"
_BROKEN = "/etc/gpuwright-sim/dkms-fails"


@pytest.fixture(scope="module")
def machine(proven: Proven) -> Iterator[Node]:
    """A node with a driver that is not the newest of its branch."""
    name = "it-life"
    node.remove(name)
    node.create(name, "two-h100")
    path = proven.folder / "life.yml"
    path.write_text(node.inventory([name]))
    made = Node(name, path)
    run = made.up("--want", f"driver={_OLD}", "--want", "cuda=13.0")
    assert run.code == 0, str(run)
    yield made
    node.remove(name)


def run(machine: Node, verb: str, *arguments: str) -> Run:
    return machine._gpuwright(verb, "--yes", "--want", "cuda=13.0", *arguments)


def versions(machine: Node) -> set[str]:
    """The versions of what carries the driver's own."""
    names = "nvidia-driver-cuda libcuda1 libnvidia-ml1 nvidia-kernel-open-dkms nvidia-persistenced firmware-nvidia-gsp"
    return set(machine.shell(f"dpkg-query -W -f '${{Version}}\\n' {names}").split())


def is_at(machine: Node, version: str) -> None:
    """The node runs this driver with all its packages, in the kernel too, and the package manager has nothing to finish."""
    assert versions(machine) == {f"{version}-1"}
    assert version in machine.shell("cat /proc/driver/nvidia/version")
    assert machine.shell("dpkg --audit") == ""
    # One pin and no file that another one left.
    assert len(machine.shell("ls /etc/apt/preferences.d | grep pinning").split()) == 1
    again = machine.up("--want", "cuda=13.0")
    assert (again.code, again.roles, again.host["changes"]) == (0, [], []), str(again)


def test_up_does_not_move_a_node_but_upgrade_does(machine: Node) -> None:
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


def test_another_branch_and_back_again(machine: Node) -> None:
    moved = run(machine, "upgrade", "--want", "driver=595")
    assert moved.code == 0, str(moved)
    is_at(machine, _OTHER)
    back = run(machine, "rollback")
    assert back.code == 0, str(back)
    is_at(machine, _OLD)


def test_security_goes_no_further_than_the_floor(machine: Node) -> None:
    moved = run(machine, "upgrade", "--security")
    assert moved.code == 0, str(moved)
    is_at(machine, _NEW)
    again = run(machine, "upgrade", "--security")
    assert (again.code, again.host["changes"]) == (0, []), str(again)


def test_remove_leaves_the_node_as_it_was(make_node: Callable[..., Node]) -> None:
    bare = make_node("gone")
    before = bare.tree()
    installed = bare.up()
    assert installed.code == 0, str(installed)
    assert bare.shell("ls /var/lib/gpuwright/seals") != ""

    planned = bare._gpuwright("remove", "--json")
    assert planned.code == 2, str(planned)
    gone = bare._gpuwright("remove", "--yes")
    assert gone.code == 0, str(gone)
    assert gone.host["verdict"] == "pass"

    loaded = bare.shell("ls /sys/module").split()
    assert "nvidia" not in loaded
    assert "nouveau" in loaded
    after = bare.tree()
    # Directories count where something is in them: a package's program made them, and dpkg leaves those that are empty.
    files = {path for path, what in {**before, **after}.items() if not what.startswith(_DIRECTORY)}
    left = (after.keys() ^ before.keys()) & files
    assert sorted(path for path in left if "__pycache__" not in path and not path.startswith(_OF_THE_SYSTEM)) == []
    again = bare._gpuwright("remove", "--yes")
    assert (again.code, again.host["changes"]) == (0, []), str(again)

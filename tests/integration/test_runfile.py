"""NVIDIA's driver as a file on a simulated node: there, as it is, another build and back, away for packages and back, and gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.sim import repository, runfile

from .conftest import Node, Run
from .footprint import footprint
from .leftovers import leftovers

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="modules")]

_OLD, _NEW = "580.126.20", "580.178.04"
_BROKEN = "/etc/gpuwright-sim/dkms-fails"


def wish(version: str, checksum: str | None = None) -> tuple[str, ...]:
    """The arguments for the file of a version; a checksum other than its own may be given."""
    path = runfile.place(repository.ensure(), version)
    given = checksum or runfile.checksum(path)
    wants = ("--want", f"driver={version}", "--want", "driver-source=runfile")
    return (*wants, "-e", f"nvidia_driver_runfile_sha256={given}")


def keeps(machine: Node, *versions: str) -> None:
    """The files of these versions are kept on the node, and no other one."""
    assert set(machine.shell("ls /var/lib/gpuwright/packages").split()) == set(map(runfile.name, versions))


def is_at(machine: Node, version: str) -> None:
    """The kernel runs this driver of a file, nothing of another one is left, and the next run has nothing to do."""
    assert machine.shell("cat /sys/module/nvidia/version").strip() == version
    assert set(re.findall(r"nvidia/([0-9.]+)", machine.shell("dkms status"))) == {version}
    assert machine.shell(
        "test -e /usr/bin/nvidia-uninstall && readlink /usr/lib/x86_64-linux-gnu/libcuda.so.1"
    ).endswith(f"{version}\n")
    again = machine.up("--want", "driver")
    assert (again.code, again.roles, again.host["changes"], again.changed) == (0, [], [], 0), str(again)


def run(machine: Node, verb: str, *arguments: str) -> Run:
    return machine.run(verb, "--yes", *arguments)


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A bare node with nouveau loaded; the tests of this module go through the driver's life on it in their order."""
    return make_shared_node("runfile", "two-h100").with_its_tree()


def test_a_file_without_a_checksum_is_refused_before_any_change(machine: Node) -> None:
    before = footprint(machine)
    run = machine.up("--want", f"driver={_OLD}", "--want", "driver-source=runfile")
    assert run.code == 3, str(run)
    assert "no checksum is known" in str(run)
    assert "nvidia_driver_runfile_sha256" in str(run)
    assert footprint(machine) == before


def test_a_file_with_another_checksum_is_not_run(machine: Node) -> None:
    run = machine.up(*wish(_OLD, "0" * 64))
    assert run.code == 1, str(run)
    assert (
        machine.shell("test -e /usr/bin/nvidia-uninstall || test -e /var/log/nvidia-installer.log; echo $?").strip()
        == "1"
    )


def test_it_installs_the_driver_with_dkms_and_the_node_is_proven(machine: Node) -> None:
    planned = machine.plan(*wish(_OLD))
    (change,) = [entry for entry in planned.host["changes"] if entry["component"] == "nvidia_driver"]
    assert (change["action"], change["to"]) == ("install", f"{_OLD} (open modules)")
    assert planned.host["reboot"]
    run = machine.up(*wish(_OLD))
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass"
    assert machine.shell("cat /sys/module/nvidia/version").strip() == _OLD
    assert f"nvidia/{_OLD}" in machine.shell("dkms status")
    assert machine.shell("dpkg -S /usr/lib/x86_64-linux-gnu/libcuda.so.1 2>&1 || true").startswith(
        "dpkg-query: no path"
    )
    keeps(machine, _OLD)


def test_it_is_seen_to_be_there(machine: Node) -> None:
    run = machine.up(*wish(_OLD))
    assert (run.code, run.host["changes"], run.changed) == (0, [], 0), str(run)
    full = machine.up(*wish(_OLD), "--full")
    assert full.code == 0, str(full)
    assert machine.shell("cat /sys/module/nvidia/version").strip() == _OLD


def test_without_the_wish_it_stays(machine: Node) -> None:
    run = machine.plan()
    assert run.code == 0, str(run)
    assert "nvidia_driver" not in {entry["component"] for entry in run.host["changes"]}


def test_an_upgrade_to_another_build_takes_its_place(machine: Node) -> None:
    moved = run(machine, "upgrade", *wish(_NEW))
    assert moved.code == 0, str(moved)
    (change,) = [entry for entry in moved.host["changes"] if entry["component"] == "nvidia_driver"]
    assert (change["action"], change["from"]) == ("upgrade", _OLD)
    is_at(machine, _NEW)
    keeps(machine, _OLD, _NEW)


def test_rollback_runs_the_kept_file_of_the_build_before(machine: Node) -> None:
    kept = machine.shell("stat -c %i /var/lib/gpuwright/packages/*.run")
    back = run(machine, "rollback", "--want", "driver")
    assert back.code == 0, str(back)
    assert back.host["verdict"] == "pass"
    is_at(machine, _OLD)
    assert machine.shell("stat -c %i /var/lib/gpuwright/packages/*.run") == kept


def test_a_build_that_does_not_compile_gives_way_to_the_one_that_worked(machine: Node) -> None:
    # The kept file of the one that worked is damaged: it is fetched again, and checked.
    machine.shell(f"echo {_NEW} > {_BROKEN}; echo damaged >> /var/lib/gpuwright/packages/{runfile.name(_OLD)}")
    try:
        failed = run(machine, "upgrade", *wish(_NEW))
        assert failed.code == 1, str(failed)
        assert failed.host["returned"] == {"version": _OLD, "failure": None, "verdict": "pass"}
        assert failed.host["failure"]["component"] == "nvidia_driver"
    finally:
        machine.shell(f"rm {_BROKEN}")
    is_at(machine, _OLD)
    keeps(machine, _OLD, _NEW)
    refused = machine.plan(*wish(_NEW))
    assert refused.code == 3, str(refused)
    assert [row["rule"] for row in refused.host["refusals"]] == ["driver-failed-before"]
    asked = machine.plan(*wish(_NEW), "-e", "gpuwright_retry=true")
    assert asked.code == 0, str(asked)


def test_packages_take_its_place_after_its_own_uninstaller(machine: Node) -> None:
    wanted = ("--want", f"driver={_NEW}", "--want", "driver-source=nvidia")
    planned = machine.plan(*wanted)
    changes = [entry for entry in planned.host["changes"] if entry["component"] == "nvidia_driver"]
    assert [entry["action"] for entry in changes][-2:] == ["remove", "install"], changes
    assert next(entry for entry in changes if entry["action"] == "remove")["files"] == ["/usr/bin/nvidia-uninstall"]
    run = machine.up(*wanted)
    assert run.code == 0, str(run)
    assert machine.shell("cat /sys/module/nvidia/version").strip() == _NEW
    assert machine.shell("dpkg -S /usr/lib/x86_64-linux-gnu/libcuda.so.1").startswith("libcuda1")
    assert machine.shell(
        "ls /usr/bin/nvidia-uninstall /var/lib/nvidia/log 2>/dev/null; dkms status"
    ).strip().splitlines() == [line for line in machine.shell("dkms status").strip().splitlines() if _NEW in line]
    again = machine.up(*wanted)
    assert (again.code, again.host["changes"]) == (0, []), str(again)


# --- a driver that another one looks after ----------------------------------------------------------------------------


def untouched(machine: Node) -> dict[str, str]:
    """The file tree without what a proof writes: seals, logs, and the places of logins."""
    left_out = ("/var/lib/gpuwright", "/var/log", "/home", "/root", "/tmp", "/var/tmp")
    return {
        path: told
        for path, told in machine.tree().items()
        if not path.startswith(left_out) and path not in ("/", "/var/lib")
    }


@pytest.fixture
def image(machine: Node) -> Iterator[Node]:
    """The node with its packages, as if an image had brought them; afterwards it is gpuwright's again."""
    machine.shell("mv /var/lib/gpuwright /var/lib/aside; echo 'DGX_NAME=\"DGX Server\"' > /etc/dgx-release")
    yield machine
    machine.shell(
        "rm -rf /var/lib/gpuwright /etc/dgx-release; mv /var/lib/aside /var/lib/gpuwright;"
        " if [ -d /root/aside ]; then cp -a /root/aside/. /lib/modules; rm -r /root/aside; fi;"
        " for kernel in /lib/modules/*; do depmod ${kernel##*/}; done; modprobe nvidia"
    )


def test_the_driver_of_an_image_is_adopted_and_never_touched(image: Node) -> None:
    machine = image
    before = untouched(machine)
    run = machine.up("--want", "driver")
    assert run.code == 0, str(run)
    (change,) = [entry for entry in run.host["changes"] if entry["component"] == "nvidia_driver"]
    assert change["action"] == "adopt"
    assert "nouveau_blacklist" not in {entry["component"] for entry in run.host["changes"]}
    driver = run.host["stack"]["driver"]
    assert (driver["source"], driver["adopted"]) == ("preinstalled", True)
    assert any("NVIDIA's DGX OS" in entry["text"] for entry in run.written_plan["why"])
    assert untouched(machine) == before
    again = machine.up("--want", "driver")
    assert (again.code, again.host["changes"]) == (0, []), str(again)


def test_where_it_does_not_work_its_owner_is_named_and_nothing_is_installed(image: Node) -> None:
    machine = image
    # Out of depmod's sight; the fixture brings them back.
    machine.shell(
        "rmmod nvidia; cd /lib/modules; mkdir /root/aside; cp -a --parents */updates /root/aside; rm -r */updates;"
        " for kernel in *; do depmod $kernel; done"
    )
    before = footprint(machine)
    for wanted in (("--want", "driver"), ("--want", "driver-source=preinstalled")):
        run = machine.up(*wanted)
        assert run.code == 3, str(run)
        assert "NVIDIA's DGX OS" in str(run)
    assert footprint(machine) == before


# --- back, and gone ---------------------------------------------------------------------------------------------------


def test_rollback_returns_from_packages_to_the_file(machine: Node) -> None:
    back = run(machine, "rollback", "--want", "driver")
    assert back.code == 0, str(back)
    assert machine.shell("dpkg-query -W -f '${Package} ' 'libcuda1*' 'nvidia-*' 2>/dev/null || true").strip() == ""
    is_at(machine, _OLD)


def test_remove_runs_its_own_uninstaller_and_leaves_the_node_as_it_was(machine: Node) -> None:
    planned = machine.run("remove")
    assert planned.code == 2, str(planned)
    gone = run(machine, "remove")
    assert gone.code == 0, str(gone)
    assert gone.host["verdict"] == "pass"
    # The uninstaller unloads the module where nobody holds it, and then the run needs no boot.
    assert "nvidia" not in machine.shell("ls /sys/module").split()
    machine.reboot()
    assert "nouveau" in machine.shell("ls /sys/module").split()
    assert leftovers(machine.bare, machine.tree()) == {}
    again = run(machine, "remove")
    assert (again.code, again.host["changes"]) == (0, []), str(again)

"""CUDA toolkits as files of NVIDIA's: there, another release in its place, cut off in the middle and healed, and gone."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from tests.sim import repository, runfile, settings

from .conftest import Node
from .leftovers import leftovers

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="systems")]

_DRIVERS = {"11.8.0": "520.61.05", "12.2.0": "535.54.03", "12.2.2": "535.104.05"}
#: What dnf and rpm note down of what came and went.
_OF_DNF = ("/var/cache/dnf/", "/var/lib/dnf/history.sqlite", "/var/lib/rpm/rpmdb.sqlite")
_WAITS = "/etc/gpuwright-sim/toolkit-waits"


@pytest.fixture(scope="module", params=["two-h100", "rocky"])
def machine(request: pytest.FixtureRequest, make_shared_node: Callable[[str, str], Node]) -> Node:
    """A bare node; the tests of this module go through the life of its toolkits in their order."""
    return make_shared_node(f"toolkits-{request.param}", request.param).with_its_tree()


def wish(machine: Node, release: str, checksum: str | None = None) -> None:
    """Wish one toolkit in the inventory; the stand-in has a checksum of its own, and the rules know no address of an older release."""
    served = repository.ensure()
    path = runfile.toolkit_place(served, release, _DRIVERS[release])
    inventory = yaml.safe_load(machine.inventory.read_text())
    inventory["all"]["vars"] |= {
        "cuda_source": "runfile",
        "cuda_versions": [release],
        "cuda_runfile": f"{settings.REPOSITORY_URL}/{path.relative_to(served)}",
        "cuda_runfile_sha256": checksum or runfile.checksum(path),
    }
    machine.inventory.write_text(yaml.safe_dump(inventory))


def works(machine: Node, version: str) -> None:
    """The compiler of a version is there, whole, and the one that people get."""
    for path in (f"/usr/local/cuda-{version}", "/usr/local/cuda"):
        assert f"release {version}," in machine.shell(f"{path}/bin/nvcc --version")
    assert machine.shell("readlink /usr/local/cuda").strip() == "/etc/alternatives/cuda"


def record(machine: Node, version: str) -> dict[str, str]:
    return dict(json.loads(machine.shell(f"cat /etc/gpuwright/cuda-{version}.json")))


def is_tidy(machine: Node) -> None:
    """Neither a file of NVIDIA's nor what it unpacked is left, and no driver came with it."""
    left = "find /var/lib/gpuwright/cuda -mindepth 1; ls -d /tmp/selfgz.* /usr/local/.gpuwright-* 2>/dev/null || true"
    assert machine.shell(left) == ""
    assert machine.shell("ls /etc/gpuwright-sim/driver-of-a-toolkit 2>&1 || true").startswith("ls: ")


def test_a_file_with_another_checksum_is_not_run(machine: Node) -> None:
    wish(machine, "12.2.0", "0" * 64)
    run = machine.up()
    assert run.code == 1, str(run)
    assert "It was not run" in str(run)
    assert machine.shell("ls -d /usr/local/cuda-12.2 /var/log/cuda-installer.log 2>/dev/null || true") == ""


def test_it_comes_without_its_driver_and_is_proven_by_compiling(machine: Node) -> None:
    wish(machine, "12.2.0")
    run = machine.up()
    assert run.code == 0, str(run)
    works(machine, "12.2")
    is_tidy(machine)
    assert record(machine, "12.2")["state"] == "done"
    told = {check["id"]: check["status"] for check in run.host["checks"] if check["id"].startswith("cuda.")}
    assert (told["cuda.compile"], told["cuda.kernel"]) == ("pass", "pass"), told
    again = machine.up()
    assert (again.code, again.host["changes"], again.changed) == (0, [], 0), str(again)


def test_another_release_is_refused_before_a_change_where_somebodys_file_is_in_the_toolkit(machine: Node) -> None:
    wish(machine, "12.2.2")
    machine.shell("touch /usr/local/cuda-12.2/bin/mine")
    run = machine.up()
    assert run.code == 1, str(run)
    assert "Found besides: bin/mine" in str(run), str(run)
    works(machine, "12.2")
    assert "12.2.0" in machine.shell("cat /usr/local/cuda-12.2/version.json")
    machine.shell("rm /usr/local/cuda-12.2/bin/mine")


def test_another_release_takes_its_place_by_its_own_uninstaller(machine: Node) -> None:
    wish(machine, "12.2.2")
    run = machine.up()
    assert run.code == 0, str(run)
    (change,) = [row for row in run.host["changes"] if row["component"] == "cuda"]
    assert (change["action"], change["from"], change["to"]) == ("upgrade", "12.2.0", "12.2.2")
    works(machine, "12.2")
    assert "12.2.2" in machine.shell("cat /usr/local/cuda-12.2/version.json")
    assert "was taken away" in machine.shell("cat /var/log/cuda-uninstaller.log")
    is_tidy(machine)


def a_toolkit_of_packages_stays(machine: Node) -> None:
    """What somebody installs by packages after a cut is used as it is, and nothing of it goes."""
    machine.shell(
        "mkdir -p /tmp/deb/DEBIAN /tmp/deb/usr/local/cuda-11.8/bin;"
        " cp /usr/local/.gpuwright-cuda-11.8/bin/nvcc /tmp/deb/usr/local/cuda-11.8/bin/;"
        ' echo \'{"cuda": {"version": "11.8.0"}}\' > /tmp/deb/usr/local/cuda-11.8/version.json;'
        " printf 'Package: somebodys-cuda\nVersion: 11.8.0\nArchitecture: all\nMaintainer: x\nDescription: x\n'"
        " > /tmp/deb/DEBIAN/control; dpkg-deb --build /tmp/deb /tmp/x.deb; dpkg --install /tmp/x.deb"
    )
    tidied = machine.up()
    # It is led to as the one of the file would have been.
    actions = [row["action"] for row in tidied.host["changes"] if row["component"] == "cuda"]
    assert actions == ["repair", "configure"], str(tidied)
    assert machine.shell("dpkg --verify somebodys-cuda; ls /usr/local/cuda-11.8/bin") == "nvcc\n"
    assert machine.shell("ls -d /usr/local/.gpuwright-* /etc/gpuwright/cuda-11.8.json 2>/dev/null || true") == ""
    machine.shell("dpkg --purge somebodys-cuda; rm -r /tmp/deb /tmp/x.deb")


def test_cut_off_in_the_middle_the_other_one_works_and_the_next_run_completes(machine: Node) -> None:
    wish(machine, "11.8.0")
    machine.shell(f"touch {_WAITS}")
    try:
        machine.cut_when("test -e /run/held")
    finally:
        machine.shell(f"rm -f {_WAITS} /run/held")
    assert record(machine, "11.8")["state"] == "staged"
    assert machine.shell("ls /usr/local/.gpuwright-cuda-11.8").split(), "nothing was begun"
    assert machine.shell("ls -A /usr/local/cuda-11.8") == ""
    works(machine, "12.2")
    machine.shell("echo mine > /usr/local/cuda-11.8/mine")
    refused = machine.up()
    assert refused.code == 1, str(refused)
    assert "Expected nothing in /usr/local/cuda-11.8" in str(refused), str(refused)
    assert machine.shell("cat /usr/local/cuda-11.8/mine; rm /usr/local/cuda-11.8/mine") == "mine\n"
    packaged = machine.shell("command -v dpkg-deb || true") != ""
    if packaged:
        a_toolkit_of_packages_stays(machine)
    healed = machine.up()
    assert healed.code == 0, str(healed)
    # What the cut left went with its record when packages had brought a toolkit.
    assert [row["action"] for row in healed.host["changes"] if row["component"] == "cuda"] == [
        "install" if packaged else "repair"
    ]
    works(machine, "11.8")
    assert "release 12.2," in machine.shell("/usr/local/cuda-12.2/bin/nvcc --version")
    is_tidy(machine)


def test_remove_runs_their_own_uninstallers_and_leaves_the_node_as_it_was(machine: Node) -> None:
    gone = machine.run("remove", "--yes")
    assert gone.code == 0, str(gone)
    left = leftovers(machine.bare, machine.tree())
    assert {path: told for path, told in left.items() if not path.startswith(_OF_DNF)} == {}

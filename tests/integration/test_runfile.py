"""NVIDIA's driver as a file on a simulated node: there, as it is, another build, and away for packages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim import node, runfile, settings

from .conftest import Node
from .traces import traces

pytestmark = pytest.mark.sim

_OLD, _NEW = "580.126.20", "580.178.04"


def wish(version: str, checksum: str | None = None) -> tuple[str, ...]:
    """The arguments for the file of a version; a checksum other than its own may be given."""
    path = runfile.place(settings.REPOSITORY / "current", version)
    given = checksum or runfile.checksum(path)
    wants = ("--want", f"driver={version}", "--want", "driver-source=runfile")
    return (*wants, "-e", f"nvidia_driver_runfile_sha256={given}")


@pytest.fixture(scope="module")
def machine(container_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A bare node with nouveau loaded; the tests of this module go through the driver's life on it in their order."""
    name = "it-runfile"
    node.remove(name)
    node.create(name, "two-h100")
    path = tmp_path_factory.mktemp("inventory") / "runfile.yml"
    path.write_text(node.inventory([name]))
    yield Node(name, path)
    node.remove(name)


def test_a_file_without_a_checksum_is_refused_before_any_change(machine: Node) -> None:
    before = traces(machine)
    run = machine.up("--want", f"driver={_OLD}", "--want", "driver-source=runfile")
    assert run.code == 3, str(run)
    assert "no checksum is known" in str(run)
    assert "nvidia_driver_runfile_sha256" in str(run)
    assert traces(machine) == before


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
    assert machine.shell("ls /var/cache/gpuwright").strip() == ""


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


def test_another_build_takes_its_place(machine: Node) -> None:
    run = machine.up(*wish(_NEW))
    assert run.code == 0, str(run)
    (change,) = [entry for entry in run.host["changes"] if entry["component"] == "nvidia_driver"]
    assert (change["action"], change["from"]) == ("upgrade", _OLD)
    assert machine.shell("cat /sys/module/nvidia/version").strip() == _NEW
    assert machine.shell("dkms status").strip().splitlines() == [
        line for line in machine.shell("dkms status").strip().splitlines() if _NEW in line
    ]
    again = machine.up(*wish(_NEW))
    assert (again.code, again.host["changes"]) == (0, []), str(again)


def test_packages_take_its_place_after_its_own_uninstaller(machine: Node) -> None:
    wanted = ("--want", f"driver={_OLD}", "--want", "driver-source=nvidia")
    planned = machine.plan(*wanted)
    changes = [entry for entry in planned.host["changes"] if entry["component"] == "nvidia_driver"]
    assert [entry["action"] for entry in changes][-2:] == ["remove", "install"], changes
    assert next(entry for entry in changes if entry["action"] == "remove")["files"] == ["/usr/bin/nvidia-uninstall"]
    run = machine.up(*wanted)
    assert run.code == 0, str(run)
    assert machine.shell("cat /sys/module/nvidia/version").strip() == _OLD
    assert machine.shell("dpkg -S /usr/lib/x86_64-linux-gnu/libcuda.so.1").startswith("libcuda1")
    assert machine.shell(
        "ls /usr/bin/nvidia-uninstall /var/lib/nvidia/log 2>/dev/null; dkms status"
    ).strip().splitlines() == [line for line in machine.shell("dkms status").strip().splitlines() if _OLD in line]
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


def test_the_driver_of_an_image_is_adopted_and_never_touched(machine: Node) -> None:
    machine.shell("rm -rf /var/lib/gpuwright; echo 'DGX_NAME=\"DGX Server\"' > /etc/dgx-release")
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


def test_where_it_does_not_work_its_owner_is_named_and_nothing_is_installed(machine: Node) -> None:
    machine.shell(
        "rmmod nvidia; rm -rf /lib/modules/*/updates; for kernel in /lib/modules/*; do depmod ${kernel##*/}; done"
    )
    before = traces(machine)
    for wanted in (("--want", "driver"), ("--want", "driver-source=preinstalled")):
        run = machine.up(*wanted)
        assert run.code == 3, str(run)
        assert "NVIDIA's DGX OS" in str(run)
    assert traces(machine) == before

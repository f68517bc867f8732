"""Rocky Linux 9 with the real dnf and rpm: plan, install, lock, move to another build and back, mend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim import node

from . import witness
from .conftest import Node, Proven, Run

pytestmark = pytest.mark.sim

OLDER, NEWER = "580.126.20", "580.178.04"
_OTHERS = ("--want", "cuda=13.0", "--want", "container-toolkit")
_DRIVER = ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "kmod-nvidia-open-dkms", "nvidia-persistenced")


def up(machine: Node, version: str) -> Run:
    """`gpuwright up` to an exact build of the driver."""
    return machine.up("--want", f"driver={version}", *_OTHERS)


def versions(machine: Node, *names: str) -> set[str]:
    """The installed versions of packages, as rpm tells them."""
    return set(machine.shell(f"rpm -q --qf '%{{VERSION}}\\n' {' '.join(names)}").split())


@pytest.fixture(scope="module")
def bare(proven: Proven) -> Iterator[Node]:
    """A node as the factory delivers it."""
    name = "it-rocky"
    node.remove(name)
    node.create(name, "rocky")
    path = proven.folder / "rocky.yml"
    path.write_text(node.inventory([name]))
    yield Node(name, path)
    node.remove(name)


@pytest.fixture(scope="module")
def planned(bare: Node) -> tuple[Run, dict[str, str], dict[str, str]]:
    """A plan of the bare node, with its file tree before and after."""
    # The first login leaves its traces (the directory of its session); they are the login's and not the plan's.
    bare.plan("--want", "driver")
    before = bare.tree()
    run = bare.plan("--want", "driver", *_OTHERS)
    assert run.code == 0, str(run)
    return run, before, bare.tree()


@pytest.fixture(scope="module")
def machine(bare: Node, planned: object) -> Node:
    """The node with the older of two builds, proven."""
    run = up(bare, OLDER)
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass", str(run)
    return bare


def test_a_plan_of_the_bare_node_changes_nothing_on_it(planned: tuple[Run, dict[str, str], dict[str, str]]) -> None:
    _run, before, after = planned
    assert len(before) > 5_000
    differences = witness.differences(before, after)
    # Whoever reads rpm's database, `rpm -qa` as well, touches sqlite's index of readers; its content stays.
    (was, now) = differences.pop("/var/lib/rpm/rpmdb.sqlite-shm", ("", ""))
    assert (was or "").split("\t")[-1] == (now or "").split("\t")[-1]
    assert differences == {}


def test_the_plan_names_packages_with_their_versions_and_what_they_bring(
    planned: tuple[Run, dict[str, str], dict[str, str]], bare: Node
) -> None:
    host = planned[0].host
    kernel = bare.shell("uname -r").strip()
    packages = {row["name"]: row for change in host["changes"] for row in change["packages"]}
    assert {"nvidia-driver-cuda", "kmod-nvidia-open-dkms", f"kernel-devel-{kernel}", "podman"} <= packages.keys()
    assert packages["nvidia-driver-cuda"]["version"] == f"3:{NEWER}-1.el9"
    assert f"kernel-devel-{kernel}".endswith(f"{packages[f'kernel-devel-{kernel}']['version']}.x86_64")
    assert not any("matched" in name for name in packages)
    assert host["download_bytes"] > sum(row["download_bytes"] or 0 for row in packages.values())
    files = {path for change in host["changes"] for path in change["files"]}
    assert {f"/etc/yum.repos.d/gpuwright-{name}.repo" for name in ("nvidia-cuda", "epel")} <= files
    assert host["reboot"] is True


def test_up_installs_the_build_that_was_asked_for_and_no_other_kernel(machine: Node) -> None:
    assert versions(machine, *_DRIVER) == {OLDER}
    assert OLDER in machine.shell("cat /proc/driver/nvidia/version")
    assert machine.shell("rpm -q kernel-core").split() == [f"kernel-core-{machine.shell('uname -r').strip()}"]
    assert "stream=580-open" in machine.shell("cat /etc/dnf/modules.d/nvidia-driver.module")
    assert "nouveau" not in machine.shell("ls /sys/module")
    assert "gpuwright-nouveau.conf" in machine.shell("lsinitrd /boot/initramfs-$(uname -r).img")


def test_a_node_that_is_right_is_warm(machine: Node) -> None:
    again = up(machine, OLDER)
    assert (again.code, again.roles, again.changed, again.host["changes"]) == (0, [], 0, []), str(again)
    full = machine.up("--want", f"driver={OLDER}", *_OTHERS, "--full")
    assert full.code == 0, str(full)
    assert full.changed == 0, str(full)


def test_an_upgrade_of_everything_leaves_the_driver_where_it_is(machine: Node) -> None:
    told = machine.shell("dnf -y upgrade")
    assert versions(machine, *_DRIVER) == {OLDER}, told
    # The newer build is there, and it is the lock that keeps it out.
    assert NEWER in machine.shell("dnf -q --disableplugin=versionlock repoquery --upgrades nvidia-driver-cuda")
    assert machine.shell("dnf -q check-upgrade nvidia-driver-cuda").strip() == ""


def test_another_build_of_the_branch_is_installed_up_and_down(machine: Node) -> None:
    for version in (NEWER, OLDER):
        run = up(machine, version)
        assert run.code == 0, str(run)
        assert run.host["verdict"] == "pass", str(run)
        assert versions(machine, *_DRIVER) == {version}
        assert version in machine.shell("cat /proc/driver/nvidia/version")
        assert version in machine.shell("grep nvidia-driver-cuda-3 /etc/dnf/plugins/versionlock.list")


def test_a_lock_that_is_gone_is_set_again(machine: Node) -> None:
    machine.shell("rm /etc/dnf/plugins/versionlock.list")
    plan = machine.plan("--want", f"driver={OLDER}", *_OTHERS)
    assert "not held" in plan.host["changes"][0]["reason"], plan.host["changes"]
    run = up(machine, OLDER)
    assert run.code == 0, str(run)
    assert run.components == {"nvidia_driver"}
    assert machine.shell("dnf -q check-upgrade nvidia-driver-cuda").strip() == ""


def test_a_package_and_a_module_that_were_removed_by_hand_come_back(machine: Node) -> None:
    machine.shell("rpm -e --nodeps nvidia-driver-cuda; rm -r /lib/modules/$(uname -r)/updates; depmod")
    run = up(machine, OLDER)
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass", str(run)
    assert versions(machine, *_DRIVER) == {OLDER}
    assert OLDER in machine.shell("modinfo -F version nvidia")


def test_what_an_interrupted_update_left_is_repaired(machine: Node) -> None:
    name = f"nvidia-driver-cuda-libs-3:{NEWER}"
    machine.shell(f"cd /root && dnf -q --disableplugin=versionlock download {name}")
    machine.shell("cd /root && rpm -i --justdb --nodeps --noscripts --force nvidia-*.rpm && rm nvidia-*.rpm")
    assert versions(machine, "nvidia-driver-cuda-libs") == {OLDER, NEWER}
    run = up(machine, OLDER)
    assert run.code == 0, str(run)
    assert "repair" in run.components
    assert versions(machine, *_DRIVER) == {OLDER}
    assert machine.shell("rpm -qa | sort | uniq -d") == ""

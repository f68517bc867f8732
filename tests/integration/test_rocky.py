"""Rocky Linux 9 with the real dnf and rpm: plan, install, lock, upgrade, return, roll back, mend, and every trace removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from . import snapshot
from .conftest import Node, Run, gpuwright

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="rocky")]

OLDER, NEWER = "580.126.20", "580.178.04"
_OTHERS = ("--want", "cuda=13.0", "--want", "container-toolkit")
_DRIVER = ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "kmod-nvidia-open-dkms", "nvidia-persistenced")
_BROKEN = "/etc/gpuwright-sim/dkms-fails"
#: How the mode of a directory begins.
_DIRECTORY = "0o40"


#: Files whose content differs after a removal, each with the reason. Times of files and empty directories do not count: depmod writes the
#: same index again, and a package's program may have made a directory.
_OF_THE_SYSTEM = {
    "/boot/initramfs-": "dracut made it again; that it holds what it held before is asked of it",
    "/etc/gpuwright-sim/": "the simulation's own record of boots",
    "/etc/hosts": "the container engine writes a node's address into it at each start, and another one may have the last",
    "/home/gpuadmin/": "the directory of Ansible's login",
    "/root/": "the same",
    "/tmp/": "directories of services, made at each boot",
    "/var/tmp/": "the same",
    "/var/cache/dnf/": "dnf read the distribution's own index",
    "/var/cache/ldconfig/": "ldconfig's own notes",
    "/var/lib/dnf/history.sqlite": "dnf's history tells what came and went",
    "/var/lib/dkms/mok.": "the key that DKMS made: the firmware may know it, and modules of others be signed with it",
    "/var/lib/rpm/rpmdb.sqlite": "rpm's database; that it lists the same packages and keys is asked of it",
    "/var/log/": "logs",
}


def up(machine: Node, version: str) -> Run:
    """`gpuwright up` to an exact build of the driver."""
    return machine.up("--want", f"driver={version}", *_OTHERS)


def versions(machine: Node, *names: str) -> set[str]:
    """The installed versions of packages, as rpm tells them."""
    return set(machine.shell(f"rpm -q --qf '%{{VERSION}}\\n' {' '.join(names)}").split())


def is_at(machine: Node, version: str) -> None:
    """The node runs this driver with all its packages, in the kernel too, locked to it, and rpm has nothing twice."""
    assert versions(machine, *_DRIVER, "libnvidia-ml", "nvidia-kmod-common") == {version}
    assert version in machine.shell("cat /proc/driver/nvidia/version")
    locked = machine.shell("grep -c ^[a-z] /etc/dnf/plugins/versionlock.list; cat /etc/dnf/plugins/versionlock.list")
    assert locked.splitlines()[0] == str(locked.count(version)) == "8"
    assert "stream=580-open" in machine.shell("cat /etc/dnf/modules.d/nvidia-driver.module")
    assert machine.shell("rpm -qa | sort | uniq -d") == ""


def content(what: str | None) -> tuple[str, ...]:
    """Mode, owner and content of a path of a tree, without its time; of a directory nothing."""
    fields = (what or "").split("\t")
    return () if fields[0].startswith(_DIRECTORY) or not what else (*fields[:3], fields[-1])


def of_rpm(machine: Node) -> list[str]:
    """All packages and keys, and the module streams."""
    return machine.shell("rpm -qa | sort; cat /etc/dnf/modules.d/* 2>&1 | grep ^stream= || true").split()


@pytest.fixture(scope="module")
def bare(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node as the factory delivers it."""
    return make_shared_node("rocky", "rocky")


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
def rpms(bare: Node) -> list[str]:
    """The packages, keys and streams of the bare node."""
    return of_rpm(bare)


@pytest.fixture(scope="module")
def machine(bare: Node, planned: object, rpms: object) -> Node:
    """The node with the older of two builds, proven."""
    run = up(bare, OLDER)
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass", str(run)
    return bare


def test_a_plan_of_the_bare_node_changes_nothing_on_it(planned: tuple[Run, dict[str, str], dict[str, str]]) -> None:
    _run, before, after = planned
    assert len(before) > 5_000
    differences = snapshot.differences(before, after)
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
    # DKMS would have dnf take kernel-devel-matched of the newest kernel, and that kernel's core with it.
    headers = f"kernel-devel-matched-{kernel}"
    assert {"nvidia-driver-cuda", "kmod-nvidia-open-dkms", headers, "podman"} <= packages.keys()
    assert packages["nvidia-driver-cuda"]["version"] == f"3:{NEWER}-1.el9"
    assert headers.endswith(f"{packages[headers]['version']}.x86_64")
    assert host["download_bytes"] > sum(row["download_bytes"] or 0 for row in packages.values())
    files = {path for change in host["changes"] for path in change["files"]}
    assert {f"/etc/yum.repos.d/gpuwright-{name}.repo" for name in ("nvidia-cuda", "epel")} <= files
    assert host["reboot"] is True


def test_the_python_of_release_8_is_too_old_and_the_steps_are_told(bare: Node, planned: object, tmp_path: Path) -> None:
    program, library = "/usr/libexec/platform-python", "/usr/lib/python36"
    # A Python that says of itself what that of release 8 says: Ansible asks no more of it.
    bare.shell(
        f"mkdir {library} && echo 'import sys; sys.version_info = (3, 6, 8); sys.version = \"3.6.8\"' > {library}/sitecustomize.py && "
        f"printf '#!/bin/sh\\nPYTHONPATH={library} exec /usr/bin/python3 \"$@\"\\n' > {program} && chmod 755 {program}"
    )
    inventory = tmp_path / "release-8.yml"
    inventory.write_text(bare.inventory.read_text().replace("/usr/bin/python3", program))
    refused = gpuwright("plan", "-i", inventory, "--json")
    bare.shell(f"rm -r {library} {program}")
    assert refused.code == 1, str(refused)
    assert "too old for this version of ansible-core" in refused.host["failure"]["message"]
    assert "dnf install python3.12" in refused.host["failure"]["message"]


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
    # The newer kernel stays out: it would be one that the driver is built for.
    told = machine.shell("dnf -y upgrade '--exclude=kernel*'")
    assert versions(machine, *_DRIVER) == {OLDER}, told
    # The newer build is there, and it is the lock that keeps it out.
    assert NEWER in machine.shell("dnf -q --disableplugin=versionlock repoquery --upgrades nvidia-driver-cuda")
    assert machine.shell("dnf -q check-upgrade nvidia-driver-cuda").strip() == ""


def test_status_tells_the_lock_and_what_drifted(machine: Node) -> None:
    held = machine.run("status", "--want", f"driver={OLDER}", *_OTHERS)
    assert (held.code, held.host["held"], held.host["drift"]) == (0, True, []), str(held)
    # A dependency, which nobody named, is locked to another build than the one that is there: dnf would move it.
    machine.shell(f"sed -i 's/^libnvidia-ml-3:{OLDER}/libnvidia-ml-3:{NEWER}/' /etc/dnf/plugins/versionlock.list")
    try:
        drifts = machine.run("status", "--want", f"driver={OLDER}", *_OTHERS)
        assert (drifts.code, drifts.host["held"]) == (1, False), str(drifts)
        assert drifts.host["drift"] == ["not held against unattended upgrades: libnvidia-ml"]
    finally:
        machine.shell(f"sed -i 's/^libnvidia-ml-3:{NEWER}/libnvidia-ml-3:{OLDER}/' /etc/dnf/plugins/versionlock.list")


def test_an_upgrade_that_does_not_build_returns_to_the_driver_that_worked(machine: Node) -> None:
    machine.shell(f"echo {NEWER} > {_BROKEN}")
    try:
        failed = machine.run("upgrade", "--yes", *_OTHERS)
        assert failed.code == 1, str(failed)
        assert failed.host["returned"] == {"version": OLDER, "failure": None, "verdict": "pass"}
        assert failed.host["failure"]["component"] == "nvidia_driver"
    finally:
        machine.shell(f"rm {_BROKEN}")
    is_at(machine, OLDER)


def test_an_upgrade_moves_the_set_and_a_rollback_takes_it_back(machine: Node) -> None:
    # As where dnf keeps what it loaded: what is in its cache when the driver changes is kept as a file.
    machine.shell(
        f"cd /var/cache/dnf/gpuwright-nvidia-cuda-*/ && dnf -q download --destdir packages libnvidia-ml-3:{OLDER}"
    )
    moved = machine.run("upgrade", "--yes", *_OTHERS)
    assert moved.code == 0, str(moved)
    is_at(machine, NEWER)
    # A build that the repository lost, and that is not kept, is missed before anything is changed.
    machine.shell(f"cp /etc/dnf/dnf.conf /root/ && echo 'excludepkgs=libnvidia-cfg-3:{OLDER}*' >> /etc/dnf/dnf.conf")
    refused = machine.run("rollback", "--yes", *_OTHERS)
    machine.shell("mv /root/dnf.conf /etc/dnf/dnf.conf")
    assert refused.code == 3, str(refused)
    (hidden, lost) = (row["text"] for row in refused.host["refusals"])
    assert f"keeps libnvidia-cfg from being installed (exclude=libnvidia-cfg-3:{OLDER}*)" in hidden, str(refused)
    assert f"libnvidia-cfg 3:{OLDER}-1.el9" in lost, str(refused)
    is_at(machine, NEWER)
    back = machine.run("rollback", "--yes", *_OTHERS)
    assert (back.code, back.host["verdict"]) == (0, "pass"), str(back)
    assert list(back.written_plan["restore"]["files"]) == ["libnvidia-ml"]
    is_at(machine, OLDER)
    again = up(machine, OLDER)
    assert (again.code, again.roles, again.host["changes"]) == (0, [], []), str(again)


def test_a_lock_that_is_gone_is_set_again(machine: Node) -> None:
    machine.shell("rm /etc/dnf/plugins/versionlock.list")
    plan = machine.plan("--want", f"driver={OLDER}", *_OTHERS)
    assert "not held" in plan.host["changes"][0]["reason"], plan.host["changes"]
    run = up(machine, OLDER)
    assert run.code == 0, str(run)
    assert run.components == {"nvidia_driver"}
    assert machine.shell("dnf -q check-upgrade nvidia-driver-cuda").strip() == ""


def test_a_package_and_a_module_that_were_removed_by_hand_come_back(machine: Node) -> None:
    machine.shell("rpm -e --nodeps nvidia-driver-cuda; rm -r /lib/modules/$(uname -r)/extra; depmod $(uname -r)")
    run = up(machine, OLDER)
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass", str(run)
    assert versions(machine, *_DRIVER) == {OLDER}
    assert OLDER in machine.shell("modinfo -k $(uname -r) -F version nvidia")


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


def test_remove_is_refused_where_somebody_elses_package_would_go(machine: Node) -> None:
    machine.shell("dnf -yq install displaylink")
    refused = machine.run("remove", "--yes")
    assert refused.code == 3, str(refused)
    assert "displaylink" in refused.host["refusals"][0]["text"], str(refused)
    is_at(machine, OLDER)
    machine.shell("dnf -yq --noautoremove remove displaylink")


def test_remove_leaves_the_node_as_it_was(
    machine: Node, planned: tuple[Run, dict[str, str], dict[str, str]], rpms: list[str]
) -> None:
    gone = machine.run("remove", "--yes")
    assert (gone.code, gone.host["verdict"]) == (0, "pass"), str(gone)
    loaded = machine.shell("ls /sys/module").split()
    assert "nvidia" not in loaded
    assert "nouveau" in loaded
    assert of_rpm(machine) == rpms
    assert "gpuwright-nouveau" not in machine.shell("lsinitrd /boot/initramfs-$(uname -r).img")
    before, after = planned[1], machine.tree()
    changed = {path for path in before.keys() | after.keys() if content(before.get(path)) != content(after.get(path))}
    # Python keeps what it compiled of the simulation's and of dnf's own programs.
    left = [path for path in changed if not path.startswith(tuple(_OF_THE_SYSTEM)) and "/__pycache__/" not in path]
    assert sorted(left) == []
    again = machine.run("remove", "--yes")
    assert (again.code, again.host["changes"]) == (0, []), str(again)

"""The driver's set stays where it is: a newer build in the index is not taken, a broken lock is named, told and mended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.sim import node

from .conftest import Node, gpuwright

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="modules")]

_LOCKED, _NEWER = "580.126.20", "580.178.04"
#: Of the set, and none of them is named in the stack: dependencies that a meta package's exact version does not pin.
_DEPENDENCIES = {"libcuda1", "libnvidia-ml1", "nvidia-modprobe", "nvidia-persistenced", "firmware-nvidia-gsp"}
_EXCLUSION = "/etc/apt/apt.conf.d/52gpuwright-nvidia-driver"
_PIN = "/etc/apt/preferences.d/nvidia-driver-pinning-580"
_VERSIONS = "dpkg-query -W -f '${Package} ${Version}\\n' 'libcuda*' 'libnvidia-*' 'nvidia-*' 'firmware-nvidia-*'"


@pytest.fixture(scope="module")
def fleet(container_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The inventory of a node whose driver is locked to an older build, and of one that has none."""
    names = ["it-locked", "it-bare"]
    for name in names:
        node.remove(name)
        node.create(name, "two-h100")
    inventory = yaml.safe_load(node.inventory(names))
    inventory["all"]["vars"]["gpuwright_want"] = [f"driver={_LOCKED}"]
    path = tmp_path_factory.mktemp("inventory") / "locked.yml"
    path.write_text(yaml.safe_dump(inventory, sort_keys=False))
    yield path
    for name in names:
        node.remove(name)


@pytest.fixture(scope="module")
def machine(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The locked node alone."""
    inventory = yaml.safe_load(node.inventory(["it-locked"]))
    inventory["all"]["vars"]["gpuwright_want"] = [f"driver={_LOCKED}"]
    path = tmp_path_factory.mktemp("inventory") / "one.yml"
    path.write_text(yaml.safe_dump(inventory, sort_keys=False))
    locked = Node("it-locked", path)
    run = locked.up()
    assert run.code == 0, str(run)
    return locked


def _versions(machine: Node) -> dict[str, str]:
    lines = machine.shell(_VERSIONS).splitlines()
    found = dict(line.split(" ", 1) for line in lines if not line.endswith(" "))
    return {name: version for name, version in found.items() if not name.startswith("nvidia-driver-pinning")}


def _taken(machine: Node) -> str:
    """What the real apt offers as the newest build that it knows."""
    return machine.shell("apt-cache madison libcuda1")


def test_an_exact_version_is_pinned_and_held(machine: Node) -> None:
    before = _versions(machine)
    assert set(before.values()) == {f"{_LOCKED}-1"}
    assert before.keys() >= _DEPENDENCIES
    assert _NEWER in _taken(machine)
    assert {*machine.shell("apt-mark showhold").split()} == {*before, f"nvidia-driver-pinning-{_LOCKED}"}
    machine.shell("apt-get -q update && apt-get -qy --allow-downgrades dist-upgrade")
    assert _versions(machine) == before


def test_the_branch_is_pinned_and_its_builds_are_held(machine: Node) -> None:
    run = machine.up("--want", "driver=580")
    assert run.code == 0, str(run)
    before = _versions(machine)
    assert set(before.values()) == {f"{_LOCKED}-1"}, "a sealed version that satisfies the wish stays"
    held = set(machine.shell("apt-mark showhold").split())
    assert held == {*before, "nvidia-driver-pinning-580"}
    machine.shell("apt-get -q update && apt-get -qy --allow-downgrades dist-upgrade")
    assert _versions(machine) == before
    again = machine.up("--want", "driver=580")
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    # With the holds gone apt takes the newer build: it is the lock that kept it away.
    machine.shell("apt-mark unhold $(apt-mark showhold)")
    would = machine.shell("apt-get -s dist-upgrade")
    assert f"Inst libcuda1 [{_LOCKED}-1] ({_NEWER}-1" in would
    machine.shell(f"apt-mark hold {' '.join(held)}")


def test_a_broken_lock_is_named_by_doctor_and_status_and_mended_by_up(machine: Node) -> None:
    wish = ("--want", "driver=580")
    machine.shell(f"apt-mark unhold libcuda1 && rm {_PIN} && echo '// nothing' > {_EXCLUSION}")
    for verb in ("doctor", "status"):
        run = gpuwright(verb, "-i", machine.inventory, "--json", *wish)
        assert run.code == 1, str(run)
        if verb == "doctor":
            (lock,) = [check for check in run.host["checks"] if check["id"] == "driver.lock"]
            assert lock["status"] == "fail"
            words = lock["reason"]
            assert "gpuwright up" in lock["remedy"]
        else:
            assert run.host["held"] is False
            words = "; ".join(run.host["drift"])
        assert "not held against unattended upgrades: libcuda1" in words
        assert f"{_PIN}, the pin of nvidia-driver-pinning-580, is gone" in words
        assert f"{_EXCLUSION} names other packages" in words
    mended = machine.up(*wish)
    assert mended.code == 0, str(mended)
    assert mended.components == {"nvidia_driver"}
    assert "libcuda1" in machine.shell("apt-mark showhold").split()
    machine.shell(f"grep -F 'Pin: version 580.*' {_PIN}")
    assert '"^libcuda1$";' in machine.shell(f"cat {_EXCLUSION}")


def test_a_full_doctor_asks_apt_what_would_move(machine: Node) -> None:
    wish = ("--want", "driver=580")
    whole = gpuwright("doctor", "--full", "-i", machine.inventory, "--json", *wish)
    statuses = {check["id"]: check["status"] for check in whole.host["checks"]}
    assert statuses["driver.lock"] == "pass", str(whole)
    # Every hold is there, and apt was told to disregard them: only apt itself can tell.
    machine.shell("echo 'APT::Ignore-Hold \"true\";' > /etc/apt/apt.conf.d/99ignore")
    try:
        run = gpuwright("doctor", "--full", "-i", machine.inventory, "--json", *wish)
        (lock,) = [check for check in run.host["checks"] if check["id"] == "driver.lock"]
        assert lock["status"] == "fail", str(run)
        assert f"libcuda1 {_LOCKED}-1 -> {_NEWER}-1" in lock["reason"]
    finally:
        machine.shell("rm /etc/apt/apt.conf.d/99ignore")


def test_unattended_upgrades_leave_the_set_alone_by_the_exclusion_alone(machine: Node) -> None:
    machine.shell("DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install unattended-upgrades")
    everything = "/etc/apt/apt.conf.d/99everything"
    machine.shell(f"echo 'Unattended-Upgrade::Origins-Pattern {{ \"origin=*\"; }};' > {everything}")
    dry_run = "unattended-upgrade --dry-run -d 2>&1"
    # The pin of the branch is held too, and may move alone: it goes on naming the branch.
    holds = [name for name in machine.shell("apt-mark showhold").split() if "pinning" not in name]
    machine.shell(f"apt-mark unhold {' '.join(holds)}")
    try:
        said = machine.shell(dry_run)
        (initial,) = [line for line in said.splitlines() if line.startswith("Initial blacklist:")]
        assert {f"^{name}$" for name in holds} <= set(initial.split())
        machine.shell(f"mv {_EXCLUSION} /root/exclusion")
        without = machine.shell(dry_run)
        machine.shell(f"mv /root/exclusion {_EXCLUSION}")
    finally:
        machine.shell(f"apt-mark hold {' '.join(holds)}; rm -f {everything}")
    assert "libcuda1" in _upgraded(without), "without the exclusion they would move it"
    assert not _upgraded(said) & set(holds)


def _upgraded(said: str) -> set[str]:
    """The packages of the line "Packages that will be upgraded: …"."""
    lines = [line.partition(":")[2] for line in said.splitlines() if line.startswith("Packages that will be upgraded")]
    return {name for line in lines for name in line.split()}


def test_status_of_a_fleet_names_the_one_that_drifts(machine: Node, fleet: Path) -> None:
    told = gpuwright("status", "-i", fleet, "--want", "driver=580", "--json")
    assert told.code == told.json["exit"] == 1, str(told)
    locked, bare = told.json["hosts"]["it-locked"], told.json["hosts"]["it-bare"]
    assert (locked["drift"], locked["held"], locked["verdict"]) == ([], True, "pass")
    assert locked["versions"] == {
        "kernel": _LOCKED, "user": _LOCKED, "next": _LOCKED, "wanted": _LOCKED, "next_kernel": locked["versions"]["next_kernel"],
    }  # fmt: skip
    assert locked["proof"]["verdict"] == "pass"
    assert bare["drift"]
    assert bare["versions"]["user"] is None
    assert told.json["versions"] == {_LOCKED: ["it-locked"], "no driver": ["it-bare"]}
    words = gpuwright("status", "-i", fleet, "--want", "driver=580")
    assert words.stdout.splitlines()[1].startswith("drift")
    assert "it-locked" in words.stdout
    assert words.stdout.splitlines()[-1] == f"{_LOCKED}: 1 host, no driver: 1 host (it-bare)"
    alone = gpuwright("status", "-i", machine.inventory, "--want", "driver=580", "--json")
    assert alone.code == 0, json.dumps(alone.json)

"""`gpuwright plan` on a simulated node: it names what it would do, all of it, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gpuwright import console

from . import snapshot
from .conftest import Node, Run, gpuwright

pytestmark = pytest.mark.sim


@pytest.fixture(scope="module")
def bare(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A node as the factory delivers it. The tests of this module leave it so."""
    return make_shared_node("bare", "two-h100")


@dataclass(frozen=True)
class Planned:
    """A bare node planned twice: first for people, then as JSON, with the tree before and after the second."""

    node: Node
    words: str
    run: Run
    before: dict[str, str]
    after: dict[str, str]


@pytest.fixture(scope="module")
def planned(bare: Node) -> Planned:
    """One look for all: each plan takes its seconds."""
    # The first login leaves its traces (the directory of its session); they are the login's and not the plan's.
    told = gpuwright("plan", "-i", bare.inventory)
    assert told.code == 0, str(told)
    before = bare.tree()
    run = bare.plan()
    assert run.code == 0, str(run)
    return Planned(bare, " ".join(told.stdout.split()), run, before, bare.tree())


def test_a_plan_of_a_bare_node_changes_nothing_on_it(planned: Planned) -> None:
    assert len(planned.before) > 10_000
    assert snapshot.differences(planned.before, planned.after) == {}


def test_the_plan_of_a_bare_node_names_every_change(planned: Planned) -> None:
    host = planned.run.host
    assert [(change["component"], change["action"]) for change in host["changes"]] == [
        ("nvidia_driver", "configure"),
        ("nvidia_driver", "install"),
        ("nouveau_blacklist", "configure"),
        ("cuda", "install"),
        ("cuda", "install"),
        ("container_toolkit", "configure"),
        ("container_toolkit", "install"),
        ("frameworks", "install"),
        ("reboot", "configure"),
        ("validate", "prove"),
    ]
    files = {path for change in host["changes"] for path in change["files"]}
    assert files == {
        "/etc/apt/sources.list.d/gpuwright-nvidia-cuda.sources",
        "/etc/modprobe.d/gpuwright-nouveau.conf",
        f"/boot/initrd.img-{planned.node.shell('uname -r').strip()}",
        "/etc/apt/sources.list.d/gpuwright-nvidia-container-toolkit.sources",
        "/etc/docker/daemon.json",
        "/etc/systemd/system/gpuwright-device-links.service",
        "/opt/gpuwright/pytorch",
    }
    services = {unit for change in host["changes"] for unit in change["services"]}
    assert services == {"nvidia-persistenced.service", "docker.service", "gpuwright-device-links.service"}
    assert host["reboot"] is True
    assert "nouveau" in host["reboot_reason"]


def test_the_plan_of_a_bare_node_has_each_package_with_its_version_and_the_download(planned: Planned) -> None:
    host = planned.run.host
    packages = {row["name"]: row for change in host["changes"] for row in change["packages"]}
    assert packages.keys() == {
        "nvidia-driver-pinning-580",
        "linux-headers-amd64",
        "nvidia-driver-cuda",
        "nvidia-kernel-open-dkms",
        "cuda-toolkit-13-0",
        "g++",
        "docker.io",
        "docker-cli",
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    }
    assert all(row["version"] and row["download_bytes"] > 0 for row in packages.values()), packages
    assert packages["nvidia-driver-cuda"]["version"] == packages["nvidia-kernel-open-dkms"]["version"] == "580.178.04-1"
    # What these pull in counts too.
    assert host["download_bytes"] > sum(row["download_bytes"] for row in packages.values())
    assert host["disk_bytes"] > host["download_bytes"]


def test_the_plan_for_people_says_the_same(planned: Planned) -> None:
    for change in planned.run.host["changes"]:
        for row in change["packages"]:
            assert f"{row['name']} {row['version']}" in planned.words
        for name in (*change["files"], *change["services"]):
            assert name in planned.words
    assert f"download {console.size(planned.run.host['download_bytes'])}" in planned.words
    assert "nouveau holds the card" in planned.words
    assert planned.words.endswith("a reboot is needed")


@pytest.mark.parametrize("whose", ["another controller", "another run here"])
def test_up_leaves_a_node_alone_that_somebody_else_works_on(bare: Node, whose: str) -> None:
    owner = "somebody@elsewhere:4711" if whose == "another controller" else snapshot.living_owner()
    lock = {"owner": owner, "since": "2026-01-01T00:00:00Z", "expires": "2099-01-01T00:00:00Z"}
    bare.shell(f"mkdir -p /run/gpuwright; echo '{json.dumps(lock)}' > /run/gpuwright/lock.json")
    before = bare.tree()
    try:
        run = bare.up()
        assert run.code == 1, str(run)
        assert ":".join(owner.split(":")[:2]) in run.host["failure"]["message"]
        assert run.host["changes"] == []
        assert run.written_plan["takes_over"] is None
        assert run.components == set()
        assert json.loads(bare.shell("cat /run/gpuwright/lock.json")) == lock
        assert snapshot.differences(before, bare.tree()) == {}
    finally:
        bare.shell("rm -f /run/gpuwright/lock.json")


@pytest.mark.soak(part="systems")  # with the wish of an ordinary run; test_bad_input.py has it of a driver's source
def test_a_repository_that_somebody_else_signed_is_refused_before_any_change(make_node: Callable[..., Node]) -> None:
    machine = make_node("wrongkey", wrong_key=True)
    machine.plan()
    before = machine.tree()
    run = machine.up()
    assert run.code in (1, 3), str(run)
    assert snapshot.differences(before, machine.tree()) == {}
    assert "sign" in run.stdout.lower() or "key" in run.stdout.lower()


def test_a_node_without_cards_is_skipped_and_named(make_node: Callable[..., Node]) -> None:
    machine = make_node("nogpu", "no-gpu")
    run = machine.plan()
    assert machine.name in run.json["hosts"]
    assert run.host["changes"] == []

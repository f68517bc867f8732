"""Nodes whose driver or cards are somebody else's: WSL, a machine with AMD's card alone, a card held for a virtual machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Node, gpuwright
from .footprint import footprint

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="hosts")]

#: What the name of a package of a driver for Linux begins with.
_DRIVER = ("nvidia-", "libnvidia-", "libcuda1", "cuda-drivers", "linux-modules-nvidia", "linux-objects-nvidia")
_NO_DRIVER = ("nvidia-container-toolkit", "libnvidia-container")


def driver_packages(machine: Node) -> list[str]:
    """Installed packages of a driver."""
    names = machine.shell("dpkg-query -W -f '${Package}\\n'").split()
    return [name for name in names if name.startswith(_DRIVER) and not name.startswith(_NO_DRIVER)]


# --- WSL ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wsl(make_shared_node: Callable[[str, str], Node]) -> Node:
    """Ubuntu 24.04 inside WSL 2 with the driver of Windows."""
    return make_shared_node("wsl-rtx4090", "wsl-rtx4090")


def test_wsl_is_proven_without_a_package_of_a_driver(wsl: Node) -> None:
    run = wsl.up("--want", "cuda", "--want", "pytorch")
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "pass", str(run)
    assert run.components == {"cuda", "frameworks"}
    assert driver_packages(wsl) == []
    checks = {entry["id"]: entry["status"] for entry in run.host["checks"]}
    assert checks["smi.runs"] == checks["framework.compute"] == "pass"
    assert "wsl-ubuntu" in wsl.shell("cat /etc/apt/sources.list.d/gpuwright-nvidia-cuda.sources")
    again = wsl.up("--want", "cuda", "--want", "pytorch")
    assert (again.code, again.components, again.changed) == (0, set(), 0), str(again)


def test_inside_wsl_no_source_gives_a_driver_afterwards(wsl: Node) -> None:
    """Ubuntu's archive has the driver in `restricted`: it is enabled, seen, and still not to be installed."""
    source = "/etc/apt/sources.list.d/gpuwright-sim-distribution.sources"
    wsl.shell(f"sed -i 's/^Components: main$/Components: main restricted/' {source} && apt-get update -q")
    install = "apt-get install -s -y nvidia-utils-580-server 2>&1"
    bare = wsl.shell(f"{install} -o Dir::Etc::PreferencesParts=/nonexistent")
    assert "Inst nvidia-utils-580-server" in bare, "without the preferences it has to be on offer"
    said = wsl.shell(f"{install} || echo refused")
    assert said.rstrip().endswith("refused"), said
    assert "no installation candidate" in said
    wsl.shell("apt-get install -s -y cuda-toolkit-13-0")


def test_doctor_inside_wsl_judges_what_applies(wsl: Node) -> None:
    run = gpuwright("doctor", "-i", wsl.inventory, "--want", "cuda", "--want", "pytorch", "--json")
    assert run.code == 0, str(run)
    told = {entry["id"]: entry for entry in run.host["checks"]}
    assert (told["driver.loaded"]["status"], told["driver.loaded"]["reason"]) == ("skip", "the driver is Windows' own")
    assert not {name for name in told if name.startswith("driver.")} - {"driver.loaded"}


# --- AMD alone, and a card held for a virtual machine -------------------------------------------------------------------


@pytest.fixture(scope="module")
def amd(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A machine whose only GPU is AMD's."""
    return make_shared_node("amd-only", "amd-only")


def test_a_machine_with_amds_card_alone_is_named_and_left_as_it_is(amd: Node) -> None:
    before = footprint(amd)
    run = gpuwright("up", "--yes", "-i", amd.inventory, "--json")
    assert run.code == 0, str(run)
    assert run.host["verdict"] == "skip"
    assert run.host["skipped"].startswith("no NVIDIA GPU, and none is expected; nothing is set up for AMD")
    assert "1002:744c" in run.host["skipped"]
    assert run.host["changes"] == []
    assert footprint(amd) == before


@pytest.fixture(scope="module")
def hypervisor(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A machine of whose two cards one is held for a virtual machine."""
    return make_shared_node("passthrough", "passthrough")


def test_a_card_held_for_a_virtual_machine_is_left_where_it_is(hypervisor: Node) -> None:
    run = gpuwright("plan", "-i", hypervisor.inventory, "--want", "driver", "--json")
    assert run.code == 0, str(run)
    warned = {row["rule"]: row["text"] for row in run.host["warnings"]}
    assert "on vfio-pci" in warned["host.reserved"]
    assert "nvidia_driver" in {change["component"] for change in run.host["changes"]}

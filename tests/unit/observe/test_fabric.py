"""What is seen of the fabric manager and of the kernel modules beside the driver's own."""

from __future__ import annotations

import time

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.observe import fabric, pci
from tests.unit.observe.trees import Tree

KERNEL = "6.12.107+deb13-amd64"


def running(started: float, state: str = "active") -> dict[str, dict[str, str]]:
    moment = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(started))
    return {fabric.MANAGER: {"ActiveState": state, "ExecMainStartTimestamp": moment}}


def test_a_manager_that_started_before_its_program_was_replaced_is_stale(tree: Tree) -> None:
    # The age of the file's content tells nothing: a package gives it the time of its build.
    tree.file("/usr/bin/nv-fabricmanager")
    now = time.time()
    assert fabric.observe(tree.host(), KERNEL, running(now - 3600))["manager_stale"] is True
    assert fabric.observe(tree.host(), KERNEL, running(now + 5))["manager_stale"] is False


def test_a_manager_that_does_not_run_is_not_stale(tree: Tree) -> None:
    tree.file("/usr/bin/nv-fabricmanager")
    assert fabric.observe(tree.host(), KERNEL, running(0, "failed"))["manager_stale"] is None
    assert fabric.observe(tree.host(), KERNEL, {})["manager_stale"] is None


@pytest.mark.parametrize("name", ["nvidia-peermem", "nvidia_peermem", "nvidia-current-peermem"])
def test_modules_that_are_loaded_at_boot_are_found_under_every_spelling(tree: Tree, name: str) -> None:
    tree.file("/etc/modules-load.d/site.conf", f"# comment\nib_umad\n{name}\n")
    assert fabric.observe(tree.host(), KERNEL, {})["modules_at_boot"] == ["ib_umad", "nvidia_peermem"]


def test_a_commented_module_is_none(tree: Tree) -> None:
    tree.file("/etc/modules-load.d/site.conf", "#ib_umad\n")
    assert fabric.observe(tree.host(), KERNEL, {})["modules_at_boot"] == []


def test_what_the_kernel_has_loaded_and_could_load(tree: Tree) -> None:
    tree.directory("/sys/module/ib_umad")
    tree.file(
        f"/lib/modules/{KERNEL}/modules.dep",
        "updates/dkms/nvidia-current-peermem.ko.xz: updates/dkms/nvidia-current.ko.xz\n",
    )
    seen = fabric.observe(tree.host(), KERNEL, {})
    assert seen["modules_loaded"] == ["ib_umad"]
    assert seen["peermem_module"] == "nvidia-current-peermem"
    assert fabric.observe(tree.host(), "6.1", {})["peermem_module"] is None


def test_adapters_of_both_kinds_are_seen_and_other_network_cards_are_not(tree: Tree) -> None:
    tree.h100()
    tree.pci("0000:40:00.0", "0x15b3", "0x1021", "0x020700", vpd="ConnectX-7")
    tree.pci("0000:41:00.0", "0x15b3", "0x1021", "0x020000")
    tree.pci("0000:42:00.0", "0x8086", "0x1563", "0x020000")
    assert pci.observe(tree.host())["network_adapters"] == ["00000000:40:00.0", "00000000:41:00.0"]

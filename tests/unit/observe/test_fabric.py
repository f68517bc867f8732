"""What is seen of the fabric manager and of the kernel modules beside the driver's own."""

from __future__ import annotations

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.observe import fabric, pci
from tests.unit.observe.trees import Tree

KERNEL = "6.12.107+deb13-amd64"


def running(tree: Tree, program: str = "/usr/bin/nv-fabricmanager", state: str = "active") -> dict[str, dict[str, str]]:
    tree.link("/proc/812/exe", program)
    return {fabric.MANAGER: {"ActiveState": state, "MainPID": "812"}}


def stale(tree: Tree, shown: dict[str, dict[str, str]]) -> bool | None:
    return fabric.observe(tree.host(), KERNEL, shown)["manager_stale"]


def test_a_manager_whose_program_was_replaced_is_stale(tree: Tree) -> None:
    tree.file("/usr/bin/nv-fabricmanager", "580.65")
    old = "/usr/bin/nv-fabricmanager (deleted)"
    tree.file(old, "570.86")
    shown = running(tree, old)
    assert stale(tree, shown) is True
    # Installed again it is the same program.
    tree.file(old, "580.65")
    assert stale(tree, shown) is False


def test_another_mode_or_time_of_its_program_makes_no_manager_stale(tree: Tree) -> None:
    shown = running(tree)
    program = tree.file("/usr/bin/nv-fabricmanager", "580.65")
    shown[fabric.MANAGER]["ExecMainStartTimestamp"] = "Wed 2020-01-01 00:00:00 UTC"
    program.chmod(0o700)
    assert stale(tree, shown) is False


def test_a_manager_that_does_not_run_or_cannot_be_seen_is_not_stale(tree: Tree) -> None:
    tree.file("/usr/bin/nv-fabricmanager")
    assert stale(tree, running(tree, state="failed")) is None
    assert stale(tree, {}) is None
    assert stale(tree, {fabric.MANAGER: {"ActiveState": "active", "MainPID": "900"}}) is None


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

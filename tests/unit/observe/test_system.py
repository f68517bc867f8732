from __future__ import annotations

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.observe import system
from tests.unit.observe.trees import Tree

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM = "/sys/firmware/efi/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n', ("ubuntu", "24.04", "debian")),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n', ("rocky", "9.6", "redhat")),
        ("ID=linuxmint\nID_LIKE='ubuntu debian'\nVERSION_ID=22\n", ("linuxmint", "22", "debian")),
        ("ID=arch\n", ("arch", None, "other")),
    ],
)
def test_the_operating_system_is_read_from_os_release(tree: Tree, text: str, said: tuple[str, str, str]) -> None:
    tree.file("/usr/lib/os-release", text)
    tree.link("/etc/os-release", "../usr/lib/os-release")
    seen = system.operating_system(tree.host())
    assert (seen["id"], seen["version"], seen["family"]) == said


def test_architecture_and_glibc_of_a_tree_come_from_its_files(tree: Tree) -> None:
    tree.file("/etc/os-release", "ID=debian\n")
    tree.packages({"libc6": "2.39-0ubuntu8.3"})
    tree.file("/lib/ld-linux-aarch64.so.1")
    seen = system.operating_system(tree.host())
    assert (seen["arch"], seen["glibc"]) == ("aarch64", "2.39")


def test_a_missing_os_release_is_unknown(tree: Tree) -> None:
    host = tree.host()
    assert system.operating_system(host)["id"] is None
    assert {"os", "os.glibc", "os.arch"} <= set(host.unknown_facts)


@pytest.mark.parametrize(
    ("kind", "ids", "another"),
    [
        ("lxc", "         0     100000      65536\n", True),
        ("lxc", "         0          0       1000\n      1000     101000      64536\n", True),
        ("lxc", "         0          0 4294967295\n", False),
        ("lxc", "", None),
        (None, "         0     100000      65536\n", None),
    ],
)
def test_whether_root_of_a_container_is_another_user_outside_is_told(
    tree: Tree, kind: str | None, ids: str, another: bool | None
) -> None:
    tree.file("/proc/self/uid_map", ids)
    if kind:
        tree.file("/run/systemd/container", kind)
    assert system.environment(tree.host()).get("user_namespace") is another


@pytest.mark.parametrize(
    ("files", "kind", "detail"),
    [
        ({}, "bare", None),
        ({"/sys/class/dmi/id/sys_vendor": "QEMU"}, "vm", "qemu"),
        (
            {"/sys/class/dmi/id/sys_vendor": "Amazon EC2", "/sys/class/dmi/id/product_name": "p5.48xlarge"},
            "vm",
            "amazon",
        ),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2", "/sys/class/dmi/id/product_name": "g4dn.metal"}, "bare", None),
        ({"/proc/cpuinfo": "processor: 0\nflags\t\t: fpu hypervisor sse\n"}, "vm", "unnamed hypervisor"),
        ({"/run/systemd/container": "docker", "/sys/class/dmi/id/sys_vendor": "QEMU"}, "container", "docker"),
        ({"/.dockerenv": ""}, "container", "docker"),
        ({"/proc/1/cgroup": "0::/kubepods/burstable/pod1\n"}, "container", "kubepods"),
        (
            {"/run/systemd/container": "wsl", "/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2"},
            "wsl",
            "5.15.167.4-microsoft-standard-WSL2",
        ),
        ({"/etc/nv_tegra_release": "# R36 (release)\n"}, "jetson", "# R36 (release)"),
    ],
)
def test_the_kind_of_machine_is_told(tree: Tree, files: dict[str, str], kind: str, detail: str | None) -> None:
    for path, text in files.items():
        tree.file(path, text)
    assert system.environment(tree.host()) == {"kind": kind, "detail": detail, "systemd": None}


@pytest.mark.parametrize(("value", "shim", "said"), [(1, None, True), (0, None, False), (1, 1, False), (1, 0, True)])
def test_secure_boot_is_read_from_the_firmwares_variables(tree: Tree, value: int, shim: int | None, said: bool) -> None:
    tree.file(SECURE_BOOT, b"\x06\0\0\0" + bytes([value]))
    if shim is not None:
        tree.file(SHIM, b"\x06\0\0\0" + bytes([shim]))
    assert system.boot(tree.host())["secure_boot"] is said


def test_without_efi_there_is_no_secure_boot(tree: Tree) -> None:
    tree.directory("/sys/class")
    assert system.boot(tree.host())["secure_boot"] is False


def test_an_efi_machine_that_tells_nothing_is_unknown_not_insecure(tree: Tree) -> None:
    tree.directory("/sys/firmware/efi")
    host = tree.host()
    assert system.boot(host)["secure_boot"] is None
    assert "boot.secure_boot" in host.unknown_facts

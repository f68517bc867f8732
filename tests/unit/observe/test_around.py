"""What is around a driver, as a look at the machine finds it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import container_runtime, loader, names, peers
from tests.unit.observe.trees import Tree

#: As `ldconfig -p` of glibc prints it.
CACHE = (
    "812 libs found in cache `/etc/ld.so.cache'\n"
    "\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12\n"
    "\tlibcuda.so.1 (libc6,x86-64) => /usr/local/cuda/lib64/stubs/libcuda.so.1\n"
    "\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n"
    "\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1\n"
    "\tlibcuda.so (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (False, "auto")),
        ('[nvidia-container-runtime]\nmode = "cdi"\n', (False, "cdi")),
        ("[nvidia-container-cli]\n#no-cgroups = true\n", (False, "auto")),
        ("[nvidia-container-cli]\nno-cgroups = true # rootless\n", (True, "auto")),
        ("[nvidia-container-cli]\nno-cgroups=false\n[nvidia-container-runtime]\nmode='legacy'", (False, "legacy")),
        ("no-cgroups = true\n[nvidia-container-runtime.modes.cdi]\nmode = 'cdi'\n", (False, "auto")),
        ('[nvidia-container-runtime]\nmode = "../etc"\n', (False, "auto")),
    ],
)
def test_the_configuration_of_the_runtime_is_read(text: str, expected: tuple[bool, str]) -> None:
    assert container_runtime.parse(text) == {"no_cgroups": expected[0], "mode": expected[1]}


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n[nvidia-container-cli]\n", True),
        ("accept-nvidia-visible-devices-envvar-when-unprivileged = true\n", None),
        ("#accept-nvidia-visible-devices-envvar-when-unprivileged = false\n", None),
        ("[nvidia-container-cli]\naccept-nvidia-visible-devices-envvar-when-unprivileged = false\n", None),
    ],
)
def test_who_may_ask_for_cards_by_a_variable_is_read(text: str, only: bool | None) -> None:
    assert container_runtime.parse(text).get("privileged_only") is only


def test_an_ldconfig_of_the_machine_that_is_not_there_is_told(tmp_path: Path) -> None:
    config = tmp_path / "etc/nvidia-container-runtime/config.toml"
    config.parent.mkdir(parents=True)
    told = []
    for named in ("@/sbin/ldconfig.real", "@/sbin/ldconfig", "/sbin/ldconfig.real"):
        (tmp_path / "sbin").mkdir(exist_ok=True)
        (tmp_path / "sbin/ldconfig").touch()
        config.write_text(f'[nvidia-container-cli]\nldconfig = "{named}"\n')
        seen = container_runtime.observe(Host(root=str(tmp_path)))
        told.append(seen and seen.get("lost_ldconfig"))
    assert told == ["/sbin/ldconfig.real", None, None]


def test_a_machine_without_the_runtime_has_no_configuration_of_it(tmp_path: Path) -> None:
    assert container_runtime.observe(Host(root=str(tmp_path))) is None


def test_the_loaders_cache_is_read_in_its_order_and_for_one_architecture() -> None:
    own = ["/usr/local/cuda/lib64/stubs/libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1"]
    assert loader.parse(CACHE, "x86_64") == own
    assert loader.parse(CACHE, "aarch64") == []


def test_what_everybodys_login_puts_first_comes_first(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file("/etc/profile.d/cuda.sh", "export LD_LIBRARY_PATH=/opt/none:/opt/old:$LD_LIBRARY_PATH\n")
    tree.file("/opt/old/libcuda.so.470.1")
    tree.link("/opt/old/libcuda.so.1", "libcuda.so.470.1")
    (found,) = loader.libraries(Host(root=str(tmp_path)), "x86_64")
    assert found == {"path": "/opt/old/libcuda.so.1", "file": "/opt/old/libcuda.so.470.1", "version": "470.1"}


def test_a_file_in_the_place_of_a_device_node_is_seen(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file("/dev/nvidia0", mode=0o644)
    tree.file("/dev/nvidia-caps", mode=0o644)
    (node,) = loader.nodes(Host(root=str(tmp_path)))
    assert (node["path"], node["mode"], node["device"]) == ("/dev/nvidia0", 0o644, False)


@pytest.mark.parametrize(("mode", "makes"), [(None, False), (0o755, False), (0o4755, True)])
def test_nodes_are_made_by_a_program_with_the_rights_of_root(tmp_path: Path, mode: int | None, makes: bool) -> None:
    if mode is not None:
        Tree(tmp_path).file("/usr/bin/nvidia-modprobe", mode=mode)
    assert loader.makes_nodes(Host(root=str(tmp_path))) is makes


@pytest.mark.parametrize(
    ("resolver", "problem"),
    [
        ("nameserver 192.0.2.1\nsearch example.com\n", None),
        ("nameserver fe80::1%eth0\n", None),
        ("# nameserver 192.0.2.1\n", "names no server"),
        (None, "there is no /etc/resolv.conf"),
    ],
)
def test_who_is_asked_for_names_is_read(tmp_path: Path, resolver: str | None, problem: str | None) -> None:
    tree = Tree(tmp_path)
    tree.file("/etc/hosts", "127.0.0.1 localhost node # a comment\n")
    if resolver is not None:
        tree.file("/etc/resolv.conf", resolver)
    seen = names.observe(Host(root=str(tmp_path)))
    assert seen["hosts"] == ["localhost", "node"]
    assert (seen["problem"] or "").endswith(problem or "")
    assert bool(seen["servers"]) is (problem is None)


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.link("/etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf")
    problem = names.observe(Host(root=str(tmp_path)))["problem"]
    assert problem == "/etc/resolv.conf leads to ../run/systemd/resolve/stub-resolv.conf, which is not there"


def space(control: int) -> bytes:
    """The configuration space of a bridge: an error capability (AER) first, then Access Control Services."""
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    struct.pack_into("<IHH", config, 0x148, 0x000D | 1 << 16, 0x5F, control)
    return bytes(config)


@pytest.mark.parametrize(("control", "redirecting"), [(0x1D, True), (0x01, False), (0x08, True), (0, False)])
def test_a_bridge_that_redirects_is_seen(control: int, redirecting: bool) -> None:
    assert peers.redirects(space(control)) is redirecting


@pytest.mark.parametrize("broken", [b"", b"\0" * 64, b"\xff" * 4096, struct.pack("<I", 0x100 << 20) * 1024])
def test_a_space_that_cannot_be_read_redirects_nothing(broken: bytes) -> None:
    assert peers.redirects(broken) is False


def between(tmp_path: Path, config: bytes, euid: int = 0) -> tuple[Any, Host]:
    tree = Tree(tmp_path)
    for number, address in enumerate(("0000:18:00.0", "0000:2a:00.0")):
        above = f"/sys/devices/pci0000:00/0000:0{number}:01.0"
        tree.file(f"{above}/{address}/iommu_group/type", "DMA-FQ\n")
        tree.file(f"{above}/config", config)
        tree.link(f"/sys/bus/pci/devices/{address}", f"{above}/{address}")
        tree.link(f"/sys/bus/pci/devices/0000:0{number}:01.0", above)
    host = Host(root=str(tmp_path), euid=euid)
    cards: Any = [{"bus_id": "00000000:18:00.0"}, {"bus_id": "00000000:2A:00.0"}]
    return peers.observe(host, cards), host


def test_the_bridges_above_the_cards_are_looked_at(tmp_path: Path) -> None:
    seen, _host = between(tmp_path, space(0x1D))
    assert seen == {"redirecting": ["0000:00:01.0", "0000:01:01.0"], "iommu": ["DMA-FQ"]}


def test_without_root_the_bridges_are_unknown(tmp_path: Path) -> None:
    seen, host = between(tmp_path, b"\0" * 64, euid=1000)
    assert seen["redirecting"] == []
    assert "root" in host.unknown_facts["pci.peers"]


def test_one_card_has_nobody_to_speak_to(tmp_path: Path) -> None:
    assert peers.observe(Host(root=str(tmp_path)), []) is None

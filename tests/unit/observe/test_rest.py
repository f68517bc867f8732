"""Disks, screens, CUDA, services, containers, Python."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.facts import Docker
from ansible_collections.gpuwright.node.plugins.module_utils.observe import (
    containers,
    cuda,
    disks,
    display,
    pci,
    python_envs,
    services,
)
from tests.unit.observe.trees import FakePrograms, Runner, Tree, answer

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
23 22 0:21 / /proc rw - proc proc rw
24 22 259:1 / /boot ro,relatime - ext4 /dev/nvme0n1p1 rw
25 22 0:30 / /data rw - nfs4 server:/data rw,hard
26 22 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro
27 22 8:1 / /srv/a\\040b rw - xfs /dev/sda1 rw
28 22 8:1 /x /srv/bind rw - xfs /dev/sda1 rw
29 22 0:40 / /tmp rw - tmpfs tmpfs rw
30 22 253:0 / /home rw - ext4 /dev/mapper/vg-home rw
"""


def test_file_systems_are_listed_once_with_the_kind_of_their_device(tree: Tree) -> None:
    tree.file("/proc/1/mountinfo", MOUNTS)
    for number, path in (("259:2", "nvme0n1/nvme0n1p2"), ("8:1", "sda/sda1"), ("253:0", "virtual/dm-0")):
        tree.directory(f"/sys/devices/{path}")
        tree.link(f"/sys/dev/block/{number}", f"../../devices/{path}")
    tree.file("/sys/devices/nvme0n1/nvme0n1p2/partition", "2")
    tree.file("/sys/devices/sda/sda1/partition", "1")
    tree.file("/sys/devices/sda/queue/rotational", "1\n")
    tree.link("/sys/devices/virtual/dm-0/slaves/nvme0n1p2", "../../../nvme0n1/nvme0n1p2")
    for place in ("boot", "data", "srv/a b", "srv/bind", "tmp", "home"):
        tree.directory(place)
    host = tree.host()
    seen = {disk["mount"]: disk for disk in disks.observe(host)}
    assert {mount: disk["class"] for mount, disk in seen.items()} == {
        "/": "nvme",
        "/boot": None,
        "/data": "network",
        "/home": "nvme",
        "/srv/a b": "hdd",
        "/tmp": "memory",
    }
    assert seen["/boot"]["read_only"] is True
    assert (seen["/"]["free_bytes"] or 0) > 0
    assert seen["/data"]["size_bytes"] is None
    assert "disks./data" in host.unknown_facts


WRITTEN = """\
22 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw
23 22 8:1 / /data rw - ext4 /dev/sda1 rw
24 22 8:1 /envs /opt/gpuwright rw - ext4 /dev/sda1 rw
25 22 0:41 / /var/cache/apt rw - tmpfs tmpfs rw
26 22 0:42 / /var/lib/docker rw - overlay overlay rw
27 22 7:1 / /usr ro - squashfs /dev/loop1 ro
28 22 0:43 / /run/user/0 rw - tmpfs tmpfs rw
29 22 0:44 / /scratch/a rw - tmpfs tmpfs rw
"""


def test_whatever_holds_a_place_that_is_written_to_is_told_with_its_places(tree: Tree) -> None:
    tree.file("/proc/1/mountinfo", WRITTEN)
    for place in ("data", "opt/gpuwright", "var/cache/apt", "var/lib/docker", "usr", "run/user/0", "scratch/a"):
        tree.directory(place)
    tree.link("/var/cache/dnf", "/data/dnf")
    seen = {disk["mount"]: disk for disk in disks.observe(tree.host(), ["/scratch/a/pytorch", paths.ENVIRONMENTS])}
    assert set(seen) == {"/", "/data", "/opt/gpuwright", "/var/cache/apt", "/var/lib/docker", "/usr", "/scratch/a"}
    assert seen["/data"]["places"] == ["/var/cache/dnf"]
    assert seen["/opt/gpuwright"]["places"] == ["/opt/gpuwright"]
    assert seen["/var/cache/apt"]["places"] == ["/var/cache/apt/archives"]
    assert seen["/usr"]["places"] == ["/usr", "/usr/local"]
    assert seen["/usr"]["read_only"] is True
    assert seen["/scratch/a"]["places"] == ["/scratch/a/pytorch"]
    assert seen["/"]["free_files"] is None or seen["/"]["free_files"] > 0


def test_a_quota_on_a_directory_is_space_of_its_own(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.file("/proc/1/mountinfo", "22 1 8:1 / / rw - xfs /dev/sda1 rw,prjquota\n")
    tree.directory("opt/gpuwright")
    tree.directory("usr")
    asked, limited = os.statvfs, str(tree.root / "opt/gpuwright")

    def statvfs(path: str) -> Any:
        real = asked(path)
        # As XFS and ext4 answer below a directory with a project's quota.
        return (
            SimpleNamespace(f_blocks=100, f_frsize=4096, f_bavail=7, f_files=50, f_favail=3)
            if path == limited
            else real
        )

    monkeypatch.setattr(os, "statvfs", statvfs)
    seen = {disk["mount"]: disk for disk in disks.observe(tree.host(), ["/opt/gpuwright/pytorch", paths.ENVIRONMENTS])}
    assert set(seen) == {"/", "/opt/gpuwright"}
    assert seen["/opt/gpuwright"]["places"] == ["/opt/gpuwright/pytorch", "/opt/gpuwright"]
    assert (seen["/opt/gpuwright"]["free_bytes"], seen["/opt/gpuwright"]["free_files"]) == (7 * 4096, 3)
    assert "/usr" in seen["/"]["places"]
    assert "/opt/gpuwright" not in seen["/"]["places"]
    assert "reclaimed_bytes" not in seen["/opt/gpuwright"]


def test_what_a_cut_build_of_an_environment_takes_is_told_of_the_disk_that_has_it(tree: Tree) -> None:
    tree.file("/proc/1/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    tree.file("/opt/gpuwright/.pytorch/1/torch.so", "x" * 100_000)
    tree.file("/opt/gpuwright/.pytorch/.1.unfinished", "")
    disks_seen = disks.observe(tree.host(), ["/opt/gpuwright/pytorch", "/opt/gpuwright/jax"])
    (taken,) = [disk for disk in disks_seen if disk.get("reclaimed_bytes")]
    assert "/opt/gpuwright/pytorch" in taken["places"]
    assert 100_000 <= taken["reclaimed_bytes"] < 150_000


def test_a_file_system_that_its_errors_made_read_only_is_read_only(tree: Tree) -> None:
    tree.file("/proc/1/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw,emergency_ro\n")
    assert disks.observe(tree.host())[0]["read_only"] is True


def test_a_screen_at_an_nvidia_connector_is_found_and_one_at_another_card_is_not(tree: Tree) -> None:
    tree.pci("0000:01:00.0", "0x10de", "0x2684", "0x030000", "nouveau")
    tree.pci("0000:00:02.0", "0x8086", "0x4680", "0x030000", "i915")
    for card, address in (("card0", "0000:00:02.0"), ("card1", "0000:01:00.0")):
        tree.link(f"/sys/class/drm/{card}/device", f"../../../bus/pci/devices/{address}")
    tree.file("/sys/class/drm/card0-eDP-1/status", "connected\n")
    tree.file("/sys/class/drm/card1-HDMI-A-1/status", "connected\n")
    tree.file("/sys/class/drm/card1-HDMI-A-2/status", "connected\n")
    tree.file("/sys/class/drm/card1-DP-1/status", "disconnected\n")
    host = tree.host()
    seen = display.observe(host, pci.observe(host)["gpus"])
    assert seen == {
        "desktop": False,
        "nvidia_screens": ["00000000:01:00.0"],
    }


def test_without_display_driver_the_boot_display_of_a_desktop_counts_and_others_are_unknown(tree: Tree) -> None:
    tree.pci("0000:01:00.0", "0x10de", "0x2684", "0x030000", boot_vga="1")
    host = tree.host()
    assert display.observe(host, pci.observe(host)["gpus"])["nvidia_screens"] == []
    assert "display.nvidia_screens" in host.unknown_facts
    tree.file("/usr/share/xsessions/gnome.desktop")
    host = tree.host()
    assert display.observe(host, pci.observe(host)["gpus"])["nvidia_screens"] == ["00000000:01:00.0"]


@pytest.mark.parametrize(
    ("session", "said"),
    [
        ("TYPE=wayland\nCLASS=user\nSTATE=active\n", True),
        ("TYPE=wayland\nCLASS=greeter\nSTATE=active\n", False),
        ("TYPE=tty\nCLASS=user\nSTATE=active\n", False),
    ],
)
def test_a_graphical_session_is_somebodys_and_a_login_screen_is_not(tree: Tree, session: str, said: bool) -> None:
    tree.directory("/run/systemd/seats")
    tree.file("/run/systemd/sessions/2", session)
    assert display.graphical_session(tree.host()) is said


def test_what_every_login_has_of_the_cards_that_cuda_shows_is_told_and_no_condition(tree: Tree) -> None:
    tree.file("/etc/environment", 'PATH="/usr/bin"\n# CUDA_VISIBLE_DEVICES=3\n')
    assert "visible" not in cuda.observe(tree.host())
    tree.file("/etc/environment", "CUDA_VISIBLE_DEVICES=0\nCUDA_VISIBLE_DEVICES=2\n")
    tree.file("/etc/profile.d/a.sh", "export CUDA_VISIBLE_DEVICES=''  # nobody\n")
    tree.file("/etc/profile.d/b.sh", "if true; then\n  export CUDA_VISIBLE_DEVICES=1\nfi\n")
    tree.file("/etc/profile.d/c.sh", "export CUDA_VISIBLE_DEVICES=$(reboot)\nexport CUDA_VISIBLE_DEVICES=$SLURM\n")
    assert cuda.observe(tree.host())["visible"] == [
        {"file": "/etc/environment", "value": "2"},
        {"file": "/etc/profile.d/a.sh", "value": ""},
    ]


def test_libraries_that_every_login_has_before_those_of_wheels_are_told(tree: Tree) -> None:
    for name in ("libcudnn.so.8", "libcudnn_cnn_train.so.8", "libcudnn.so.8.9.7", "libnccl.so.2", "libcublas.so.12"):
        tree.file(f"/opt/own/lib/{name}", "")
    tree.file("/etc/environment", 'PATH="/usr/bin"\n# LD_LIBRARY_PATH=/opt/own/lib\n')
    tree.file("/etc/profile.d/a.sh", "export LD_LIBRARY_PATH=/usr/lib/../lib:$HOME/lib:/gone\n")
    assert "leading" not in cuda.observe(tree.host())
    tree.file("/etc/profile.d/b.sh", "export LD_LIBRARY_PATH=/opt/own/lib/:$LD_LIBRARY_PATH\n")
    assert cuda.observe(tree.host())["leading"] == [
        {"file": "/etc/profile.d/b.sh", "path": f"/opt/own/lib/{name}"} for name in ("libcudnn.so.8", "libnccl.so.2")
    ]
    tree.file("/etc/profile.d/b.sh", "export LD_LIBRARY_PATH=/opt/jit\n")
    tree.file("/opt/jit/libnvJitLink.so.12.1.105", "")
    tree.link("/opt/jit/libnvJitLink.so.12", "libnvJitLink.so.12.1.105")
    assert cuda.observe(tree.host())["leading"] == [
        {"file": "/etc/profile.d/b.sh", "path": "/opt/jit/libnvJitLink.so.12", "version": "12.1.105"}
    ]


def test_files_that_put_a_toolkit_into_path_are_told(tree: Tree) -> None:
    assert "on_path" not in cuda.observe(tree.host())
    tree.file("/etc/environment", 'PATH="/usr/local/cuda-12.4/bin:/usr/bin"\n')
    tree.file("/etc/profile.d/a.sh", "if true; then\n  export PATH=$PATH:/usr/local/cuda/bin\nfi\n")
    tree.file("/etc/profile.d/b.sh", "# PATH=/usr/local/cuda/bin:$PATH\nexport LD_LIBRARY_PATH=/usr/local/cuda/lib64\n")
    assert cuda.observe(tree.host())["on_path"] == ["/etc/environment", "/etc/profile.d/a.sh"]


def test_toolkits_tell_their_version_and_an_empty_directory_is_none(tree: Tree) -> None:
    tree.file("/usr/local/cuda-12.8/version.json", json.dumps({"cuda": {"version": "12.8.1"}}))
    tree.file("/usr/local/cuda-10.2/version.txt", "CUDA Version 10.2.89\n")
    tree.file("/usr/local/cuda-13.0/compat/libcuda.so.1")
    tree.file("/usr/local/cuda-11.8/version.json", "[" * 5000)
    tree.link("/usr/local/cuda-12", "cuda-12.8")
    tree.packages({"libcudnn9-cuda-12": "9.10.2.21-1", "libcudnn8": "8.9.7.29-1+cuda11.8"})
    seen = cuda.observe(tree.host())
    assert seen["toolkits"] == [
        {"version": "10.2.89", "path": "/usr/local/cuda-10.2"},
        {"version": "12.8.1", "path": "/usr/local/cuda-12.8"},
    ]
    assert seen["cudnn"] == [
        {"version": "8.9.7.29", "cuda_major": 11, "package": "libcudnn8"},
        {"version": "9.10.2.21", "cuda_major": 12, "package": "libcudnn9-cuda-12"},
    ]


def registered(tree: Tree, place: str, *versions: str, mode: str = "auto") -> None:
    """What the alternatives system of a family has of toolkits."""
    rows = "".join(f"/usr/local/cuda-{version}\n{version.replace('.', '')}\n" for version in versions)
    tree.file(f"{place}/cuda", f"{mode}\n/usr/local/cuda\n\n{rows}\n")


@pytest.mark.parametrize("place", ["/var/lib/dpkg/alternatives", "/var/lib/alternatives"])
def test_the_default_toolkit_is_told_with_those_that_could_be_it(tree: Tree, place: str) -> None:
    registered(tree, place, "12.8", "13.0", mode="manual")
    tree.link("/usr/local/cuda", "/etc/alternatives/cuda")
    tree.link("/etc/alternatives/cuda", "/usr/local/cuda-12.8")
    assert cuda.observe(tree.host())["default"] == {
        "kind": "alternatives",
        "path": "/usr/local/cuda-12.8",
        "manual": True,
        "registered": ["/usr/local/cuda-12.8", "/usr/local/cuda-13.0"],
        "before": None,
    }


@pytest.mark.parametrize("target", ["/usr/local/cuda-12.8/", "cuda-12.8", "/usr/local/cuda-12.8"])
def test_a_link_that_the_alternatives_system_did_not_make_is_told_apart(tree: Tree, target: str) -> None:
    registered(tree, "/var/lib/dpkg/alternatives", "13.0")
    tree.link("/usr/local/cuda", target)
    seen = cuda.observe(tree.host())["default"]
    assert (seen["kind"], seen["path"], seen["manual"]) == ("link", "/usr/local/cuda-12.8", False)


def test_a_default_toolkit_that_is_a_directory_or_absent_leads_nowhere(tree: Tree) -> None:
    assert cuda.observe(tree.host())["default"]["kind"] is None
    tree.file("/usr/local/cuda/bin/nvcc")
    seen = cuda.observe(tree.host())["default"]
    assert (seen["kind"], seen["path"], seen["registered"]) == ("other", None, [])


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ('{"manual": true, "path": "/usr/local/cuda-12.4"}', {"manual": True, "path": "/usr/local/cuda-12.4"}),
        ('{"manual": false, "path": null}', {"manual": False, "path": None}),
        ('{"manual": 1, "path": "cuda"}', {"manual": False, "path": None}),
        ("[]", None),
        ("{", None),
    ],
)
def test_what_the_default_toolkit_was_before_is_read_from_its_record(tree: Tree, text: str, before: Any) -> None:
    tree.file(paths.CUDA_BEFORE, text)
    assert cuda.observe(tree.host())["default"]["before"] == before


def test_records_of_toolkits_of_files_are_read_and_broken_ones_passed_over(tree: Tree) -> None:
    good = {"path": "/usr/local/cuda-12.2", "release": "12.2.2", "state": "staged"}
    tree.file("/etc/gpuwright/cuda-12.2.json", json.dumps({**good, "more": 1}))
    tree.file("/etc/gpuwright/cuda-12.3.json", json.dumps({**good, "state": "odd"}))
    tree.file("/etc/gpuwright/cuda-12.4.json", json.dumps({**good, "path": 5}))
    tree.file("/etc/gpuwright/cuda-12.5.json", "{")
    tree.file("/etc/gpuwright/cuda-12.6.json", "[]")
    assert cuda.observe(tree.host())["runfiles"] == [{**good, "packaged": False}]


@pytest.mark.parametrize(
    ("manager", "rc", "out", "packaged"),
    [
        ("dpkg-query", 0, "cuda-nvcc-12-2: /usr/local/cuda-12.2/bin/nvcc\n", True),
        ("dpkg-query", 1, "", False),
        ("dpkg-query", 2, "", None),
        ("dpkg-query", None, "", None),
        ("rpm", 0, "cuda-nvcc-12-2-12.2.140-1.x86_64\n", True),
        ("rpm", 2, "file /usr/local/cuda-12.2 is not owned by any package\ncuda-nvcc-12-2-12.2.140-1.x86_64\n", True),
        ("rpm", 1, "file /usr/local/cuda-12.2 is not owned by any package\n", False),
        ("rpm", None, "", None),
    ],
)
def test_whether_packages_brought_something_into_such_a_toolkit_is_asked_of_their_manager(
    tree: Tree, manager: str, rc: int | None, out: str, packaged: bool | None
) -> None:
    good = {"path": "/usr/local/cuda-12.2", "release": "12.2.2", "state": "done"}
    tree.file("/etc/gpuwright/cuda-12.2.json", json.dumps(good))
    tree.file("/usr/local/cuda-12.2/bin/nvcc", "")
    tree.file("/var/lib/dpkg/status" if manager == "dpkg-query" else "/usr/bin/dnf", "")
    asked: list[list[str]] = []

    def runner(argv: Sequence[str], **_more: Any) -> Result:
        asked.append(list(argv))
        return Result(rc, out, "", 0.0, None)

    (found,) = cuda.runfiles(tree.host(runner=runner))
    assert found["packaged"] is packaged
    ((program, *words),) = asked
    assert program == manager
    assert words[-1] in ("/usr/local/cuda-12.2/*", "/usr/local/cuda-12.2/bin/nvcc")


def test_records_of_archives_are_read_and_one_without_its_directory_or_its_header_is_not_whole(tree: Tree) -> None:
    good = {"path": "/usr/local/cuda-12.2", "version": "8.9.7.29", "state": "done"}
    other = {**good, "version": "2.30.7"}
    tree.file("/etc/gpuwright/nccl-12.2.json", json.dumps(other))
    tree.directory("/usr/local/cuda-12.2/nccl-2.30.7")
    tree.file("/etc/gpuwright/cudnn-12.2.json", json.dumps(good))
    tree.file("/usr/local/cuda-12.2/cudnn-8.9.7.29/LICENSE", "")
    tree.link("/usr/local/cuda-12.2/include/cudnn.h", "/usr/local/cuda-12.2/cudnn-8.9.7.29/include/cudnn.h")
    tree.file("/etc/gpuwright/cudnn-12.3.json", json.dumps({**good, "path": "/usr/local/cuda-12.3"}))
    tree.file("/etc/gpuwright/cudnn-12.4.json", json.dumps({**good, "state": "odd"}))
    tree.file("/etc/gpuwright/cudnn-12.5.json", "{")
    lost = {**good, "path": "/usr/local/cuda-12.3", "state": "begun"}
    ours = [{**each, "library": "cudnn"} for each in (good, lost)]
    assert cuda.observe(tree.host())["archives"] == [*ours, {**other, "library": "nccl", "state": "begun"}]


@pytest.mark.parametrize(
    ("files", "directories"),
    [
        (["/usr/share/modules/init/sh"], ["/etc/environment-modules/modules"]),
        (["/etc/lmod/modulespath", "/usr/share/lmod/lmod/init/sh"], ["/etc/lmod/modules"]),
        (["/usr/share/Modules/init/sh"], ["/etc/modulefiles"]),
        (["/etc/profile.d/00-modulepath.sh", "/usr/share/lmod/lmod/init/sh"], ["/etc/modulefiles"]),
        (
            ["/usr/share/modules/init/sh", "/etc/lmod/modulespath"],
            ["/etc/environment-modules/modules", "/etc/lmod/modules"],
        ),
        (["/usr/share/modulefiles/x"], []),
    ],
)
def test_each_module_system_has_its_directory(tree: Tree, files: list[str], directories: list[str]) -> None:
    for path in files:
        tree.file(path)
    assert cuda.observe(tree.host())["modulefiles"]["directories"] == directories


def test_modulefiles_of_ours_are_told_from_those_of_others(tree: Tree) -> None:
    tree.file("/etc/modulefiles/cuda/12.8", "#%Module1.0\n# Written by gpuwright (role cuda). A change\n")
    tree.file("/etc/lmod/modules/cuda/11.8", "#%Module1.0\n")
    assert cuda.observe(tree.host())["modulefiles"]["files"] == [
        {"path": "/etc/lmod/modules/cuda/11.8", "ours": False},
        {"path": "/etc/modulefiles/cuda/12.8", "ours": True},
    ]


def test_units_are_named_by_the_order_of_the_question() -> None:
    text = (
        "Id=gdm.service\nLoadState=loaded\nActiveState=active\nUnitFileState=static\n\n"
        "Id=x.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n"
    )
    shown = services.parse_show(text, ["display-manager.service", "x.service"])
    assert services.observe(shown) == {
        "display-manager.service": {"active": "active", "enabled": "static"},
        "x.service": {"active": "inactive", "enabled": "not-found"},
    }
    assert services.parse_show(text, ["only-one.service"]) == {}


class Running(Host):
    """A tree that is taken for the running machine."""

    def __init__(self, root: str, runner: Runner) -> None:
        super().__init__(root=root, runner=runner, machine="x86_64", euid=0)
        self.live = True

    def at(self, path: str) -> str:
        return self.root + path


def test_a_unit_without_a_file_is_not_found_and_not_asked_for(tree: Tree) -> None:
    tree.file("/run/systemd/system/.keep")
    tree.file("/usr/lib/systemd/system/docker.service")
    tree.file("/etc/systemd/system/vpn@.service")
    said = "Id=docker.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\nId=vpn@a.service\nActiveState=failed\n"
    programs = FakePrograms({"systemctl show": answer(said)})
    host = Running(str(tree.root), programs)
    seen = services.observe(services.properties(host, ["vpn@a.service", "gone.service"]))
    assert [call[4:] for call in programs.calls] == [["docker.service", "vpn@a.service"]]
    assert seen["docker.service"] == {"active": "active", "enabled": "enabled"}
    assert seen["vpn@a.service"]["active"] == "failed"
    assert seen["gone.service"] == seen["containerd.service"] == {"active": "inactive", "enabled": "not-found"}
    assert not host.unknown_facts


def test_services_are_unknown_where_systemctl_fails(tree: Tree) -> None:
    tree.file("/run/systemd/system/.keep")
    tree.file("/usr/lib/systemd/system/docker.service")
    host = Running(str(tree.root), FakePrograms({"systemctl show": answer(rc=1, err="no bus")}))
    assert services.properties(host, []) == {}
    assert "no bus" in host.unknown_facts["services"]


def docker(tree: Tree, shown: dict[str, str] | None = None) -> Docker:
    return containers.observe(tree.host(), {"docker.service": shown} if shown else {})["docker"]


def test_the_daemons_configuration_is_parsed_and_a_broken_one_is_an_error(tree: Tree) -> None:
    tree.packages({"docker.io": "26.1.5+dfsg1-9"})
    tree.file("/etc/docker/daemon.json", '{"default-runtime": "nvidia"}')
    assert docker(tree)["daemon_json"] == {"default-runtime": "nvidia"}
    assert docker(tree)["version"] == "26.1.5"
    tree.file("/etc/docker/daemon.json", "{,}")
    assert docker(tree)["daemon_json"] is None
    assert "daemon.json" in str(docker(tree)["daemon_json_error"])


def test_a_configuration_newer_than_the_daemon_is_not_loaded(tree: Tree) -> None:
    tree.packages({"docker.io": "26.1.5+dfsg1-9"})
    path = tree.file("/etc/docker/daemon.json", "{}")
    shown = {"ActiveState": "active", "ExecMainStartTimestamp": "Fri 2026-11-20 12:00:00 UTC"}
    os.utime(path, (1795176000 - 5, 1795176000 - 5))
    assert docker(tree, shown)["config_loaded"] is True
    os.utime(path, (1795176000 + 5, 1795176000 + 5))
    assert docker(tree, shown)["config_loaded"] is False
    assert docker(tree, {"ActiveState": "inactive"})["config_loaded"] is None


def test_the_fraction_of_a_second_comes_from_the_monotonic_clock() -> None:
    fields = {"ExecMainStartTimestamp": "Thu 1970-01-01 00:16:40 UTC", "ExecMainStartTimestampMonotonic": "600250000"}
    assert containers.started(fields, now=1400.5, monotonic=1000.0) == pytest.approx(1000.75)
    # The clock was set in between: only the second is sure.
    assert containers.started(fields, now=9400.5, monotonic=1000.0) == 1000.0


def test_interpreters_tell_whether_they_can_make_environments(tree: Tree) -> None:
    tree.packages({"python3.12-minimal": "3.12.3-1ubuntu0.5"})
    tree.program("/usr/bin/python3.12")
    tree.program("/usr/bin/python3.12-config")
    tree.link("/usr/bin/python3", "python3.12")
    seen = python_envs.observe(tree.host())
    assert seen == {
        "interpreters": [{"path": "/usr/bin/python3.12", "version": "3.12.3", "venv": False}],
        "venv": False,
    }
    tree.file("/usr/lib/python3.12/ensurepip/__init__.py")
    assert python_envs.observe(tree.host())["venv"] is True


def test_an_environment_is_described_by_its_metadata_directories(tree: Tree) -> None:
    base = "/opt/gpuwright/pytorch"
    tree.file(f"{base}/pyvenv.cfg", "home = /usr/bin\nversion = 3.12.3\n")
    tree.program(f"{base}/bin/python")
    for name in ("torch-2.14.1+cu130.dist-info", "nvidia_cudnn_cu13-9.24.0.43.dist-info"):
        tree.file(f"{base}/lib/python3.12/site-packages/{name}/RECORD", f"{name}/RECORD,,\n")
    tree.directory("/opt/gpuwright/no-environment")
    assert python_envs.environments(tree.host(), []) == {
        base: {
            "python": "3.12.3",
            "packages": {"nvidia-cudnn-cu13": "9.24.0.43", "torch": "2.14.1+cu130"},
            "loader_path": None,
            "damage": [],
            "kept": None,
        }
    }


def test_an_environment_tells_which_libraries_its_activation_puts_first(tree: Tree) -> None:
    base = "/opt/gpuwright/pytorch"
    tree.file(f"{base}/pyvenv.cfg", "home = /usr/bin\nversion = 3.12.3\n")
    line = 'export LD_LIBRARY_PATH="/usr/local/cuda-13.0/compat${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\n'
    tree.file(f"{base}/gpuwright-cuda-compat.sh", f"# cuda-compat\n{line}")
    assert python_envs.environments(tree.host(), [])[base]["loader_path"] == "/usr/local/cuda-13.0/compat"

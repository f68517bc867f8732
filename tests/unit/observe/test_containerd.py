"""What is seen of containerd, and that it is asked only where its configuration may be of interest."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import container_runtime, containers
from tests.unit.observe.trees import FakePrograms, Tree, answer

CONFIG = "/etc/containerd/config.toml"
#: What containerd 1.7 prints, shortened.
ONE = """disabled_plugins = []
imports = ["/etc/containerd/config.toml"]
version = 2

[plugins]

  [plugins."io.containerd.grpc.v1.cri"]
    enable_cdi = false
    sandbox_image = "registry.k8s.io/pause:3.8"

    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "runc"

        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
          runtime_type = "io.containerd.runc.v2"

          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/bin/nvidia-container-runtime"

      [plugins."io.containerd.grpc.v1.cri".registry.configs."registry.example".auth]
        password = "hidden"
"""
#: What containerd 2 prints, shortened.
TWO = """version = 3
imports = ['/etc/containerd/config.toml', '/etc/containerd/conf.d/99-gpuwright.toml']

[plugins]
  [plugins.'io.containerd.cri.v1.runtime']
    enable_cdi = true

    [plugins.'io.containerd.cri.v1.runtime'.containerd]
      default_runtime_name = 'nvidia'

        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
          BinaryName = '/usr/bin/nvidia-container-runtime'
          SystemdCgroup = true
"""


class Running(Host):
    """A tree that is taken for the running machine."""

    def __init__(self, root: str, programs: FakePrograms) -> None:
        super().__init__(root=root, runner=programs, machine="x86_64", euid=0)
        self.live = True

    def at(self, path: str) -> str:
        return self.root + path


def seen(tree: Tree, programs: FakePrograms, shown: Any = None) -> Any:
    host = Running(str(tree.root), programs)
    return containers.observe(host, {"containerd.service": shown} if shown else {})["containerd"]


def dump(text: str) -> FakePrograms:
    return FakePrograms({"config dump": answer(text)})


@pytest.fixture
def there(tree: Tree) -> Tree:
    tree.packages({"containerd": "1.7.24~ds1-6"})
    tree.program("/usr/bin/containerd")
    return tree


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            ONE,
            {
                "runtime": "/usr/bin/nvidia-container-runtime",
                "default_runtime": "runc",
                "cdi": False,
                "imports": ["/etc/containerd/config.toml"],
                "systemd_cgroup": None,
            },
        ),
        (
            TWO,
            {
                "runtime": "/usr/bin/nvidia-container-runtime",
                "default_runtime": "nvidia",
                "cdi": True,
                "imports": ["/etc/containerd/config.toml", "/etc/containerd/conf.d/99-gpuwright.toml"],
                "systemd_cgroup": True,
            },
        ),
        ("", {"runtime": None, "default_runtime": None, "cdi": None, "imports": [], "systemd_cgroup": None}),
    ],
)
def test_what_containerd_prints_is_read_without_its_passwords(there: Tree, text: str, found: Any) -> None:
    told = seen(there, dump(text))
    assert told["config"] == (found if found["runtime"] is None else {**found, "lost": True})
    assert "hidden" not in str(told)


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (None, None),
        ("kind: KubeletConfiguration\n", None),
        ("cgroupDriver: systemd\n", "systemd"),
        ("cgroupDriver: cgroupfs\n", "cgroupfs"),
        ("#cgroupDriver: systemd\n", None),
    ],
)
def test_who_manages_the_control_groups_of_pods_is_read(there: Tree, text: str | None, who: str | None) -> None:
    if text is not None:
        there.file("/var/lib/kubelet/config.yaml", text)
    assert seen(there, dump(ONE))["kubelet_cgroups"] == who


@pytest.mark.parametrize("serves", [False, True])
def test_whether_the_device_plugin_serves_the_kubelet_is_seen_by_its_socket(there: Tree, serves: bool) -> None:
    assert "device_plugin" not in seen(there, dump(ONE))
    there.file("/var/lib/kubelet/config.yaml", "cgroupDriver: systemd\n")
    there.file("/var/lib/kubelet/device-plugins/kubelet.sock", "")
    if serves:
        there.file("/var/lib/kubelet/device-plugins/nvidia-gpu.sock", "")
    assert seen(there, dump(ONE))["device_plugin"] is serves


def test_a_configuration_with_which_it_does_not_start_is_an_error(there: Tree) -> None:
    broken = FakePrograms(
        {"config dump": answer(rc=1, err="containerd: failed to load TOML: x: (2, 1): unterminated array\n")}
    )
    told = seen(there, broken)
    assert told["config"] is None
    assert "unterminated array" in told["config_error"]


@pytest.mark.parametrize(
    ("path", "text", "asked"),
    [
        (CONFIG, "version = 2\n", False),
        (CONFIG, "# nvidia\nversion = 2\n", True),
        (CONFIG, 'imports = ["/etc/x.toml"]\n', True),
        ("/etc/containerd/conf.d/99-nvidia.toml", "BinaryName = 'nvidia-container-runtime'\n", True),
    ],
)
def test_beside_docker_it_is_asked_only_where_it_may_have_another_configuration(
    there: Tree, path: str, text: str, asked: bool
) -> None:
    there.packages({"docker.io": "26.1.5+dfsg1-9", "containerd": "1.7.24~ds1-6"})
    there.file(path, text)
    programs = dump(ONE)
    assert (seen(there, programs)["config"] is not None) is asked
    assert bool(programs.calls) is asked


@pytest.mark.parametrize(
    ("text", "cri"),
    [
        ('disabled_plugins = ["cri"]\n', False),
        ("disabled_plugins = [\n  'io.containerd.grpc.v1.cri',\n]\n", False),
        ('#disabled_plugins = ["cri"]\n', True),
        ('disabled_plugins = ["zfs"]\n', True),
        ("", True),
    ],
)
def test_what_serves_kubernetes_may_be_switched_off(there: Tree, text: str, cri: bool) -> None:
    there.file(CONFIG, text)
    assert seen(there, dump(""))["cri"] is cri


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("x = 1\n\n# BEGIN gpuwright\n# END gpuwright\n", True),
        ("enable_cdi = true # gpuwright\n", True),
        ("# Written by gpuwright (role container_toolkit)\n", True),
        ("# the host of gpuwright's owner\n", False),
    ],
)
def test_the_files_with_marks_of_ours_are_told(there: Tree, text: str, marked: bool) -> None:
    there.file(CONFIG, text)
    assert seen(there, dump(""))["marked"] == ([CONFIG] if marked else [])


def test_a_file_newer_than_the_daemon_is_not_loaded_also_one_that_is_imported(there: Tree) -> None:
    shown = {"ActiveState": "active", "ExecMainStartTimestamp": "Fri 2026-11-20 12:00:00 UTC"}
    for path, later, loaded in ((CONFIG, -5, True), ("/etc/containerd/conf.d/x.toml", 5, False)):
        moment = 1795176000 + later
        os.utime(there.file(path), (moment, moment))
        assert seen(there, dump(""), shown)["config_loaded"] is loaded


def test_a_containerd_of_a_tree_that_does_not_run_is_not_asked(there: Tree) -> None:
    host = there.host()
    told = containers.observe(host, {})["containerd"]
    assert (told["installed"], told["version"], told["config"]) == (True, "1.7.24", None)
    assert "containers.containerd.config" in host.unknown_facts


def test_one_that_no_package_brought_tells_its_version(tree: Tree) -> None:
    tree.program("/usr/local/bin/containerd")
    said = "containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7193e4e490e9fbdc236c0e811ccaba3376\n"
    told = seen(tree, FakePrograms({"--version": answer(said), "config dump": answer(TWO)}))
    assert (told["installed"], told["version"]) == (True, "2.1.4")


def test_a_node_without_it_tells_nothing(tree: Tree) -> None:
    told = containers.observe(tree.host(), {})["containerd"]
    assert (told["installed"], told["active"], told["config"], told["config_loaded"]) == (False, False, None, None)


@pytest.mark.parametrize(
    ("directory", "elsewhere", "kubernetes"),
    [
        ("/snap/docker/current", "snap", None),
        ("/var/lib/snapd/snap/docker/current", "snap", None),
        ("/opt/docker-desktop", "desktop", None),
        ("/var/lib/rancher/k3s/agent", None, "k3s"),
        ("/var/lib/rancher/rke2/agent", None, "rke2"),
        ("/snap/other/current", None, None),
    ],
)
def test_engines_that_are_no_service_of_the_system_are_told(
    tree: Tree, directory: str, elsewhere: str | None, kubernetes: str | None
) -> None:
    tree.packages({})
    tree.directory(directory)
    told = containers.observe(tree.host(), {})
    assert told["docker"]["installed"] is False
    assert told["docker"].get("elsewhere") == elsewhere
    config = f"/var/lib/rancher/{kubernetes}/agent/etc/containerd/config.toml"
    assert told.get("kubernetes") == ({"name": kubernetes, "config": config} if kubernetes else None)


# What is beside it: Docker's unit, other Kubernetes, the toolkit's own settings


def test_options_of_dockers_unit_are_those_that_count(tree: Tree) -> None:
    tree.packages({})
    folder = "/etc/systemd/system/docker.service.d"
    tree.file(
        f"{folder}/10-proxy.conf",
        "[Service]\nEnvironment=HTTP_PROXY=http://proxy.example\nExecStart=/usr/bin/dockerd --debug\n",
    )
    tree.file(
        f"{folder}/override.conf",
        "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd -H fd:// --add-runtime=nvidia=/usr/bin/nvidia-container-runtime \\\n"
        "  --exec-opt native.cgroupdriver=systemd\n",
    )
    found = containers.flags(tree.host())
    assert [(each["file"], each["name"]) for each in found] == [
        (f"{folder}/override.conf", name) for name in ("host", "add-runtime", "exec-opt")
    ]


@pytest.mark.parametrize(
    ("files", "links", "found"),
    [
        ({"/usr/local/bin/k3s": ""}, {}, ("k3s", None)),
        (
            {"/var/lib/rancher/rke2/agent/etc/containerd/config.toml": '[plugins.cri.containerd.runtimes."nvidia"]\n'},
            {},
            ("rke2", True),
        ),
        (
            {"/var/lib/rancher/k3s/agent/etc/containerd/config.toml": "[plugins.cri.containerd.runtimes.runc]\n"},
            {},
            ("k3s", False),
        ),
        ({"/snap/microk8s/1/meta/snap.yaml": ""}, {"/snap/microk8s/current": "1"}, ("microk8s", None)),
    ],
)
def test_a_kubernetes_with_a_containerd_of_its_own_is_seen(
    tree: Tree, files: dict[str, str], links: dict[str, str], found: tuple[str, bool | None]
) -> None:
    tree.packages({})
    for path, text in files.items():
        tree.file(path, text, 0o755)
    for path, target in links.items():
        tree.link(path, target)
    seen = containers.observe(tree.host(), {})["kubernetes"]
    assert seen is not None
    assert (seen["name"], seen.get("runtime")) == found


@pytest.mark.parametrize(("root", "found"), [("/", None), ("/run/nvidia/driver", "/run/nvidia/driver")])
def test_where_the_toolkit_looks_for_the_driver(tree: Tree, root: str, found: str | None) -> None:
    tree.file(container_runtime.PATH, f'[nvidia-container-cli]\nroot = "{root}"\n')
    seen = container_runtime.observe(tree.host())
    assert seen is not None
    assert seen.get("root") == found

"""The CDI specifications as nvidia-ctk writes them, and the links to device nodes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import cdi

#: The layout of nvidia-ctk cdi generate: keys in the order of the alphabet, lists that are not indented.
YAML = """---
cdiVersion: 0.7.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.126.20
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.126.20
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-e4e5f849-0ad9-0112-ec39-c768821d51fe
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: "1:0"
- containerEdits: {}
  name: all
kind: nvidia.com/gpu
"""
JSON = (
    '{"kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "all"}],'
    ' "containerEdits": {"mounts": [{"hostPath": "/x/libcuda.so.550.54.15"}]}}'
)


def test_the_devices_and_the_driver_are_read() -> None:
    assert cdi.parse("/var/run/cdi/nvidia.yaml", YAML) == {
        "path": "/var/run/cdi/nvidia.yaml",
        "version": "0.7.0",
        "driver": "580.126.20",
        "devices": ["0", "GPU-e4e5f849-0ad9-0112-ec39-c768821d51fe", "1:0", "all"],
        "nodes": ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"],
    }
    assert cdi.parse("/etc/cdi/n.json", JSON) == {
        "path": "/etc/cdi/n.json",
        "version": None,
        "driver": "550.54.15",
        "devices": ["0", "all"],
        "nodes": [],
    }


@pytest.mark.parametrize("text", ["", "kind: nvidia.com/gds\ndevices:\n- name: all\n", "{", "[1", "\x00"])
def test_what_is_none_of_the_cards_is_left_out(text: str) -> None:
    assert cdi.parse("/etc/cdi/other.yaml", text) is None


def test_a_specification_without_the_library_tells_no_driver() -> None:
    found = cdi.parse("/etc/cdi/n.yaml", "kind: nvidia.com/gpu\ndevices:\n  - name: all\n")
    assert found == {"path": "/etc/cdi/n.yaml", "version": None, "driver": None, "devices": ["all"], "nodes": []}


def test_both_directories_are_looked_into(tmp_path: Path) -> None:
    for path in ("etc/cdi/hand.yaml", "var/run/cdi/nvidia.yaml", "etc/cdi/README"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(YAML)
    found = cdi.observe(Host(str(tmp_path)))
    assert [each["path"] for each in found["specifications"]] == ["/etc/cdi/hand.yaml", "/var/run/cdi/nvidia.yaml"]


@pytest.mark.parametrize(("closed", "mode"), [("etc/cdi/nvidia.yaml", 0o600), ("etc/cdi", 0o700)])
def test_a_specification_that_only_root_may_read_is_told(tmp_path: Path, closed: str, mode: int) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/cdi/nvidia.yaml").write_text(YAML)
    (tmp_path / "etc/cdi/nvidia.yaml").chmod(0o644)
    assert "hidden" not in cdi.observe(Host(str(tmp_path)))["specifications"][0]
    (tmp_path / closed).chmod(mode)
    assert cdi.observe(Host(str(tmp_path)))["specifications"][0]["hidden"] == f"/{closed}"


def test_a_node_that_is_handed_out_and_is_not_there_is_lost(tmp_path: Path) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/cdi/nvidia.json").write_text(
        '{"kind": "nvidia.com/gpu", "containerEdits": {"deviceNodes":'
        ' [{"path": "/dev/nvidia0"}, {"path": "/dev/dri/card1", "hostPath": "/dev/dri/card1"}, {"path": "/dev/other"}]}}'
    )
    assert "lost" not in cdi.observe(Host(str(tmp_path)))["specifications"][0]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    (found,) = cdi.observe(Host(str(tmp_path)))["specifications"]
    assert (found["nodes"], found["lost"]) == (["/dev/nvidia0", "/dev/dri/card1"], ["/dev/dri/card1"])


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_programs_and_files_that_are_named_and_are_not_there_are_lost(tmp_path: Path, ending: str) -> None:
    there, gone = "/usr/bin/nvidia-ctk", "/usr/bin/nvidia-cdi-hook"
    edits = {
        "deviceNodes": [{"path": "/dev/nvidia0"}, {"hostPath": "/dev/other", "path": "/dev/other"}],
        "hooks": [{"hookName": "createContainer", "path": path, "args": ["/x"]} for path in (gone, there, gone)],
        "mounts": [{"hostPath": f"/usr/lib/{name}", "containerPath": "/x"} for name in ("there.so", "gone.so")],
    }
    document = {"kind": "nvidia.com/gpu", "containerEdits": edits}
    text = json.dumps(document) if ending == "json" else yaml.safe_dump(document)
    for path in ("dev/nvidia0", there, "usr/lib/there.so", f"etc/cdi/nvidia.{ending}"):
        (tmp_path / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path.lstrip("/")).write_text(text)
    (tmp_path / there.lstrip("/")).chmod(0o755)
    (found,) = cdi.observe(Host(str(tmp_path)))["specifications"]
    assert (found["lost"], found["lost_programs"]) == (["/usr/lib/gone.so"], [gone])


@pytest.mark.parametrize(
    ("files", "looks"),
    [
        ({}, []),
        ({"etc/containers/containers.conf": '#cdi_spec_dirs = ["/etc/cdi"]\n'}, []),
        ({"usr/share/containers/containers.conf": '[engine]\ncdi_spec_dirs = ["/etc/cdi"]\n'}, ["/etc/cdi"]),
        (
            {
                "usr/share/containers/containers.conf": 'cdi_spec_dirs = ["/etc/cdi"]\n',
                "etc/containers/containers.conf.d/10-cdi.conf": 'cdi_spec_dirs = [\n  "/run/cdi/", # theirs\n  "/x/../y"\n]\n',
            },
            ["/var/run/cdi"],
        ),
    ],
)
def test_where_podman_is_told_to_look_is_read(tmp_path: Path, files: dict[str, str], looks: list[str]) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert cdi.podman_looks(Host(str(tmp_path))) == looks


def test_a_node_without_a_link_by_its_number_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-nvswitchctl"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    (tmp_path / "dev/char").mkdir()
    (tmp_path / "dev/char/195:0").symlink_to("../nvidia0")
    numbers = {"nvidia0": (195, 0), "nvidia1": (195, 1), "nvidiactl": (195, 255), "nvidia-uvm": (508, 0)}

    class Status:
        def __init__(self, name: str) -> None:
            self.st_mode, self.st_rdev = stat.S_IFCHR | 0o666, os.makedev(*numbers.get(name, (510, 0)))

    def status(_host: Host, path: str) -> Any:
        name = path.rpartition("/")[2]
        return Status(name) if name.startswith("nvidia") else tmp_path.stat()

    monkeypatch.setattr(Host, "stat", status)
    found = cdi.observe(Host(str(tmp_path)))
    assert found["unlinked"] == ["/dev/nvidia-uvm", "/dev/nvidia1", "/dev/nvidiactl"]


def test_a_directory_of_that_name_needs_no_link(tmp_path: Path) -> None:
    (tmp_path / "dev/nvidia0").mkdir(parents=True)
    assert cdi.observe(Host(str(tmp_path))) == {"specifications": [], "unlinked": []}

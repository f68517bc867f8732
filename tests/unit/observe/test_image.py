"""Images whose maker looks after the driver: only what is certain counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.facts import DriverImage
from ansible_collections.gpuwright.node.plugins.module_utils.observe import image


def observed(root: Path, path: str, text: str) -> DriverImage | None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return image.observe(Host(str(root)))


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("/etc/dgx-release", 'DGX_NAME="DGX Server"\nDGX_SWBUILD_VERSION="7.1.0"\n', "dgx-os"),
        ("/run/nvidia/validations/.driver-ctr-ready", "", "gpu-operator"),
        ("/home/kubernetes/bin/nvidia/bin/nvidia-smi", "", "gke"),
        ("/opt/azurehpc/component_versions.txt", '{"NVIDIA": "580.95.05", "DCGM": "4.4"}', "azure-hpc"),
    ],
)
def test_an_image_is_known_by_what_only_its_maker_writes(tmp_path: Path, path: str, text: str, kind: str) -> None:
    found = observed(tmp_path, path, text)
    assert found
    assert (found["kind"], found["evidence"]) == (kind, path)
    assert found["owner"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/dgx-release", ""),
        ("/opt/azurehpc/component_versions.txt", '{"OPENMPI": "5"}'),
        ("/run/nvidia/validations/driver-ready", "IS_HOST_DRIVER=true"),
        ("/etc/os-release", "ID=ubuntu"),
    ],
)
def test_what_is_not_certain_does_not_count(tmp_path: Path, path: str, text: str) -> None:
    assert observed(tmp_path, path, text) is None

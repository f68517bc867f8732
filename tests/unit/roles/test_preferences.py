"""What the role packages tells apt while it installs a driver, held against the real apt."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components import package_calls
from tests.unit import apt_root

#: NVIDIA's packages of a branch ask for each other's build by a virtual package; Ubuntu's security pocket may have a newer one.
#: Source: that of libnvidia-compute-580 in tests/sim/packages.yaml; the revisions are those of the two sources.
BUILDS = {"NVIDIA": "580.159.04-1ubuntu1", "Ubuntu": "580.173.02-0ubuntu0.24.04.1"}


def _stanzas() -> str:
    form = "Package: {}\nVersion: {}\nArchitecture: amd64\nMaintainer: x\n{}\nFilename: x.deb\nSize: 1\nSHA256: {}\n"
    return "\n".join(
        form.format(name, version, relation.format(version.partition("-")[0]), "0" * 64)
        for version in BUILDS.values()
        for name, relation in (
            ("libnvidia-compute-580", "Depends: nvidia-kernel-common-580-{}"),
            ("nvidia-kernel-common-580", "Provides: nvidia-kernel-common-580-{}"),
        )
    )


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="the real apt judges it")
@pytest.mark.parametrize("wished", BUILDS.values())
def test_a_driver_comes_from_its_source_though_another_one_has_a_newer_build(tmp_path: Path, wished: str) -> None:
    root, archives = tmp_path / "root", tmp_path / "archives"
    archives.mkdir()
    (archives / "Packages").write_text(_stanzas())
    (tmp_path / "status").touch()
    options = apt_root.options(root, archives, tmp_path / "status")
    planned = [{"name": name, "version": wished} for name in ("libnvidia-compute-580", "nvidia-kernel-common-580")]
    plan: Any = {"prefer": "580.", "install": [*planned, {"name": "gcc", "version": "1"}]}
    (root / "preferences").write_text(package_calls.preferences(plan))

    def apt(*words: str) -> str:
        done = subprocess.run(
            ["apt-get", "-q", *options, *words], capture_output=True, text=True, check=False, env=apt_root.ENVIRONMENT
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    apt("update")
    said = apt("-s", "install", f"libnvidia-compute-580={wished}")
    assert sorted(line.split()[1:3] for line in said.splitlines() if line.startswith("Inst ")) == [
        [each["name"], f"({wished}"] for each in planned
    ]

"""The stand-in nvidia-ctk writes a specification that a reader of the real one's understands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from ansible_collections.gpuwright.node.plugins.module_utils.observe import cdi

_STAND_IN = Path(__file__).resolve().parents[2] / "sim/stubs/nvidia-ctk.py"


_SMI = """#!/bin/sh
case "$1" in
--query-gpu=uuid) printf 'GPU-a\\nGPU-b\\n' ;;
--query-gpu=mig.mode.current) printf '%s\\nDisabled\\n' "$MIG" ;;
-L)
    echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)"
    [ "$MIG" = Disabled ] || echo "  MIG 3g.40gb     Device  0: (UUID: MIG-a)"
    echo "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)"
    ;;
esac
"""


def generated(folder: Path, *options: str, mig: str = "Disabled") -> str:
    smi = folder / "nvidia-smi"
    smi.write_text(_SMI)
    smi.chmod(0o755)
    path = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "MIG": mig}
    command = [sys.executable, str(_STAND_IN), "cdi", "generate", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=path).stdout


def test_each_card_is_there_by_its_number_and_by_its_uuid(tmp_path: Path) -> None:
    found = cdi.parse("/var/run/cdi/nvidia.yaml", generated(tmp_path))
    assert found
    assert found["devices"] == ["0", "GPU-a", "1", "GPU-b", "all"]


def test_a_card_in_mig_mode_is_there_by_its_parts(tmp_path: Path) -> None:
    found = cdi.parse("/var/run/cdi/nvidia.yaml", generated(tmp_path, mig="Enabled"))
    assert found
    assert found["devices"] == ["1", "GPU-b", "0:0", "MIG-a", "all"]
    assert cdi.parse("x.json", generated(tmp_path, "--format=json", mig="Enabled")) == {**found, "path": "x.json"}


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    document = yaml.safe_load(generated(tmp_path))
    assert document == json.loads(generated(tmp_path, "--format=json"))
    nodes = {
        each["name"]: [node["path"] for node in each["containerEdits"]["deviceNodes"]] for each in document["devices"]
    }
    assert (nodes["GPU-b"], nodes["all"]) == (["/dev/nvidia1"], ["/dev/nvidia0", "/dev/nvidia1"])

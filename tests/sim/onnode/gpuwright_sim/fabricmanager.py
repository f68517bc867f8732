"""The stand-in nv-fabricmanager: connects the simulated NVSwitches, or says in NVIDIA's words why it does not.

Usage: nv-fabricmanager BUILD. As the real one it looks first, then goes into the background; what it connected stays connected
when it stops, until the next boot.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from . import kernel, node

_QUERY = "request to query NVSwitch device information from NVSwitch driver"
_PID = Path("/run/nvidia-fabricmanager/nv-fabricmanager.pid")


def main(arguments: list[str]) -> int:
    """The exit status of the start."""
    build = arguments[0]
    refusal = _refusal(build)
    if refusal:
        print(refusal, file=sys.stderr)
        return 1
    (node.VIEW / "fabric.json").write_text(json.dumps({"version": build}))
    kernel.refresh()
    print("Successfully configured all the available NVSwitches to route GPU NVLink traffic.")
    child = os.fork()
    if child:
        _PID.parent.mkdir(exist_ok=True)
        _PID.write_text(f"{child}\n")
        return 0
    os.setsid()
    while True:
        time.sleep(3600)


def _refusal(build: str) -> str | None:
    module = kernel.shown_module()
    if module is None:
        return f"{_QUERY} failed with error:NVSwitch driver is not loaded"
    if module["version"] != build:
        return (
            f"fabric manager NVIDIA GPU driver interface version {build} don't match with driver version {module['version']}. "
            "Please update with matching NVIDIA driver package."
        )
    scenario = node.scenario()
    if scenario.get("nvswitches"):
        return None
    if not scenario.get("fabric_ports"):
        return f"{_QUERY} failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
    if shutil.which("ibstat") is None:
        return "ibstat: command not found"
    if not Path("/opt/nvidia/nvlsm/sbin/nvlsm").exists():
        return "NVLSM is not installed"
    if "ib_umad" not in node.loaded():
        return "nvlsm: umad_init failed: no /dev/infiniband/umad0 (is ib_umad loaded?)"
    return None

"""What the stand-ins know of the node: the scenario, the faults, and the state since the boot.

The scenario and the faults survive a reboot (/etc/gpuwright-sim); what was loaded does not (/run/gpuwright-sim).
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

CONFIG = Path("/etc/gpuwright-sim")
VIEW = Path("/run/gpuwright-sim")
LIBRARIES = (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"))

# Inside WSL: where Windows shows its driver, and the build of Linux that its libraries are of.
WSL_LIBRARIES = Path("/usr/lib/wsl/lib")
WSL_BUILD = "580.178.04"

Scenario = dict[str, Any]
Gpu = dict[str, Any]

# Seconds since the last launch after which the cards rest.
_STILL = 2.0

# kind: what it does. A kind may be followed by ":N", the index of the card that it strikes (the first without).
FAULTS = {
    "module-not-loaded": "the NVIDIA kernel modules are not loaded and cannot be",
    "version-mismatch": "the loaded module is of another version than the libraries",
    "fallen-off-bus": "a card no longer answers (Xid 79)",
    "ecc": "a card has uncorrectable memory errors",
    "throttling": "a card is too hot and slows down",
    "narrow-pcie": "a card trained its PCIe link with 4 lanes",
    "garbage-smi": "nvidia-smi prints something that is no XML",
    "hanging-smi": "nvidia-smi never ends",
    "fio-fails": "the disk gives input/output errors under fio",
    "cuda-unknown": "cuInit answers 999 although nvidia-smi is happy",
    "wrong-memory": "a bit of the cards' memory is stuck",
    "wrong-results": "the cards miscalculate",
    "hanging-load": "a program on the cards never ends",
    "crashing-load": "a program on the cards brings its process down",
    "failing-load": "a program on the cards fails (CUDA_ERROR_LAUNCH_FAILED)",
    "throttling-under-load": "a card becomes too hot as soon as it works",
    "narrow-pcie-under-load": "a card that works has 4 lanes of PCIe",
    "ecc-under-load": "a card that works gets uncorrectable memory errors",
    "lost-under-load": "a card that works no longer answers",
}


def scenario() -> Scenario:
    """The node's scenario as `node create` wrote it."""
    return json.loads((CONFIG / "scenario.json").read_text())


def faults() -> list[str]:
    """The injected faults, in the order of their injection."""
    path = CONFIG / "faults.json"
    return json.loads(path.read_text()) if path.exists() else []


def fault(kind: str) -> int | None:
    """The index of the card that the fault KIND strikes; None when it was not injected."""
    for entry in faults():
        name, _, index = entry.partition(":")
        if name == kind:
            return int(index or 0)
    return None


def working() -> bool:
    """Whether the cards work: the stand-in libcuda touches a file at each launch."""
    try:
        return time.time() - (VIEW / "working").stat().st_mtime < _STILL
    except FileNotFoundError:
        return False


def loaded() -> dict[str, dict[str, Any]]:
    """The modules that the simulated kernel has loaded: name to what is known of them."""
    path = VIEW / "loaded.json"
    return json.loads(path.read_text()) if path.exists() else {}


def library_version(name: str = "libnvidia-ml.so.1") -> str | None:
    """The version of the installed user space, from the real name of one of its libraries."""
    path = next((folder / name for folder in LIBRARIES if (folder / name).exists()), None)
    return path.resolve().name.split(".so.", 1)[1] if path else None


def log(line: str) -> None:
    """One line of the kernel's log (what `dmesg` shows)."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    with (VIEW / "kernel.log").open("a") as stream:
        stream.write(f"[{uptime:12.6f}] {line}\n")

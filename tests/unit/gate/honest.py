"""What honest nodes answer: observations of trees and of the planner's tests, whole as node_facts gives them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from tests.unit.plan import nodes

_KERNEL = "6.12.94+deb13-amd64"
STACK = {
    "branch": "580",
    "version": "580.126.20",
    "modules": "open",
    "source": "runfile",
    "source_reason": "asked for",
    "build": "dkms",
    "set": "compute",
    "packages": ["linux-headers-amd64", "gcc", "make"],
    "pin": {},
    "kernel_module": "nvidia",
    "minimum": "580.65.06",
    "adopted": False,
    "headers": "linux-headers-amd64",
    "runfile": {
        "name": "NVIDIA-Linux-x86_64-580.126.20.run",
        "addresses": ["https://example.org/NVIDIA-Linux-x86_64-580.126.20.run"],
        "sha256": "ab" * 32,
        "arguments": ["--silent", "--dkms", "--kernel-module-type=open"],
        "with_nouveau": ["--no-nouveau-check"],
        "with_session": ["--no-x-check"],
    },
}
STATE = {
    "version": "580.126.20",
    "modules": "open",
    "source": "runfile",
    "packages": {},
    "holds": [],
    "stack": STACK,
    "manager": "apt",
    "arch": "amd64",
    "streams": {},
    "kernel": _KERNEL,
    "proven": True,
    "time": "2026-11-01T10:00:00Z",
}
CHECK = {
    "id": "smi.runs",
    "status": "pass",
    "severity": "critical",
    "measured": 0,
    "expected": 0,
    "unit": "exit status",
    "gpu": None,
    "reason": "nvidia-smi answered",
    "evidence": "first line\nsecond line",
    "action": None,
    "remedy": None,
}
PROOF = {
    "schema": 1,
    "verdict": "pass",
    "time": "2026-11-20T11:00:00+00:00",
    "boot_id": "boot-1",
    "driver": nodes.DRIVER,
    "stack_digest": "ab" * 32,
    "checks": [CHECK],
    "gpus": [{"uuid": "GPU-0", "name": "NVIDIA H100 80GB HBM3"}],
}


def seal(**changes: Any) -> dict[str, Any]:
    """A seal as node_facts passes it on."""
    given: dict[str, Any] = {
        "state": "good",
        "reason": None,
        "digest": "ab" * 32,
        "gpuwright": "0.1.0",
        "stack": {},
        "gpus": ["10de:2330"],
    }
    return {**given, "packages": {}, "written": "2026-11-20T11:00:00Z", **changes}


def whole(facts: Any) -> Any:
    """Facts of the planner's tests with everything that node_facts answers."""
    made = copy.deepcopy(facts)
    made["environments"] = {
        path: {"loader_path": None, "damage": [], **each} for path, each in made["environments"].items()
    }
    return made


def bare(**changes: Any) -> dict[str, Any]:
    """A node with two cards and nothing installed."""
    return nodes.merged(whole(nodes.bare()), changes)


def provisioned(**changes: Any) -> dict[str, Any]:
    """A node after a run, with its seals, its proof, its lock, and a driver of NVIDIA's file that worked before."""
    records = {
        "seals": {
            "nvidia_driver": seal(
                stack={
                    **STACK,
                    "source": "nvidia",
                    "version": None,
                    "runfile": None,
                    "pin": {"package": "nvidia-driver-pinning-580"},
                },
                packages={"nvidia-driver-cuda": f"{nodes.DRIVER}-1"},
            ),
            "mig": seal(stack={"cards": [{"bus_id": "00000000:18:00.0", "profiles": ["3g.40gb"]}]}),
            "cuda": seal(
                stack=[{"version": "13.0", "path": "/usr/local/cuda-13.0"}], state="broken", reason="/etc/x changed"
            ),
        },
        "proof": PROOF,
        "lock": {"owner": "admin@controller 1 2", "since": "2026-11-20T11:00:00Z", "expires": "2026-11-20T13:00:00Z"},
        "history": {
            "drivers": ["580.126.20"],
            "failed": [
                {
                    **{key: STATE[key] for key in ("version", "modules", "source", "kernel", "time")},
                    "reason": "Load the module: it did not",
                    "log": "/var/lib/gpuwright/failed/580.126.20-6.12.94+deb13-amd64.log",
                }
            ],
            "original": None,
            "proven": nodes.DRIVER,
            "states": [STATE],
            "brought": ["libcuda1", "fio"],
            "files": ["/etc/modprobe.d/gpuwright-nouveau.conf"],
            "streams": {},
            "environments": ["/opt/gpuwright/pytorch"],
            "services": ["docker.service"],
            "components": ["nvidia_driver", "cuda"],
            "copies": ["NVIDIA-Linux-x86_64-580.126.20.run"],
        },
    }
    return nodes.merged(whole(nodes.provisioned()), {**records, **changes})


def said(facts: Mapping[str, Any], **more: Any) -> str:
    """What the module node_facts writes."""
    return json.dumps({"changed": False, "facts": facts, "invocation": {"module_args": {"root": "/"}}, **more})


INDEX: Any = {
    "changed": False,
    "packages": {
        "nvidia-driver-cuda": {"candidate": f"{nodes.DRIVER}-1", "versions": [f"{nodes.DRIVER}-1", "580.126.20-1"]}
    },
    "others": {"cuda-toolkit-13-1": ["13.1.1-1"]},
    "install": [
        {
            "name": "nvidia-driver-cuda",
            "version": f"{nodes.DRIVER}-1",
            "from": None,
            "download_bytes": 1,
            "installed_bytes": None,
        }
    ],
    "removes": [{"name": "nvidia-imex", "version": "580.126.20-1"}],
    "downgrades": ["nvidia-driver-cuda"],
    "download_bytes": 1,
    "disk_bytes": None,
    "enabled": ["crb"],
    "exchange": {"comes": {"libnvidia-compute": "595.112.07-1ubuntu1"}, "leaves": ["libnvidia-compute-595:i386"]},
    "problems": [
        {
            "kind": "timeout",
            "repository": "nvidia-cuda",
            "text": "no answer\nin time",
            "remedy": "wait",
            "package": None,
        },
        {
            "kind": "unreachable",
            "repository": None,
            "text": "no answer",
            "remedy": "wait",
            "package": None,
            "needed": False,
            "source": "epel-9.x:y_z",
        },
    ],
}

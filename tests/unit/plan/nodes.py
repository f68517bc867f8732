"""Observations for the planner's tests: a bare node with two H100 on Debian 13, and what is true after each step.

They are facts that a test may change to what no type allows, so that their type is Any.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

H100 = {
    "vendor": "10de",
    "device": "2330",
    "class": "0302",
    "revision": "a1",
    "driver": None,
}
DRIVER = "580.178.04"


def bare(**changes: Any) -> Any:
    """A Debian 13 host with two H100 that nouveau holds, and nothing installed."""
    facts: dict[str, Any] = {
        "schema": 1,
        "root": "/",
        "privileged": True,
        "unknown": {},
        "simulated": True,
        "hostname": "node",
        "time": "2026-11-20T12:00:00Z",
        "os": {
            "id": "debian",
            "version": "13",
            "codename": "trixie",
            "name": "Debian GNU/Linux 13 (trixie)",
            "family": "debian",
            "arch": "x86_64",
            "glibc": "2.41",
        },
        "environment": {"kind": "bare", "detail": "", "systemd": True},
        "boot": {"id": "boot-1", "secure_boot": False, "signing_key": None, "cmdline": ""},
        "kernel": {
            "running": "6.12.94+deb13-amd64",
            "next": "6.12.94+deb13-amd64",
            "next_source": "grub default",
            "installed": ["6.12.94+deb13-amd64"],
            "headers": [],
            "compiler": {"built_with": "gcc 14.2", "available": None},
            "loaded": {"nouveau": {"version": None}},
            "available": {},
            "may_boot": {},
            "initramfs": {
                "path": "/boot/initrd.img-6.12.94+deb13-amd64",
                "tool": "update-initramfs",
                "nouveau_inside": False,
                "blacklist_inside": False,
                "blacklist_current": False,
            },
        },
        "pci": {
            "gpus": [{**H100, "bus_id": f"00000000:{bus}:00.0"} for bus in ("18", "2A")],
            "nvswitches": [],
            "other_gpus": [],
            "reserved": [],
            "virtual_functions": 0,
            "nvlink5": False,
            "network_adapters": [],
            "vgpus": [],
        },
        "display": {"desktop": False, "nvidia_screens": []},
        "driver": {
            "owner": "none",
            "source": None,
            "packages": {},
            "loaded_version": None,
            "loaded_modules": None,
            "user_version": None,
            "libcuda": None,
            "nvidia_smi": None,
            "image": None,
            "lock": {"set": [], "held": [], "excluded": None, "pins": {}, "would_move": None},
        },
        "dkms": {"failed": [], "without_source": [], "kernels": [], "boot_entries": {}},
        "smi": None,
        "cuda": {
            "toolkits": [],
            "cudnn": [],
            "default": {"kind": None, "path": None, "manual": None, "registered": [], "before": None},
            "modulefiles": {"directories": [], "files": []},
            "runfiles": [],
            "archives": [],
        },
        "containers": {
            "docker": {
                "installed": False,
                "version": None,
                "active": False,
                "daemon_json": None,
                "daemon_json_error": None,
                "config_loaded": None,
                "added": None,
            },
            "toolkit": {"version": None},
            "containerd": {
                "installed": False,
                "version": None,
                "active": False,
                "cri": True,
                "marked": [],
                "config": None,
                "config_error": None,
                "config_loaded": None,
            },
            "podman": {"version": None},
            "rootless": {
                "max_namespaces": 63_000,
                "clone": True,
                "apparmor": None,
                "profile": False,
                "users": {"alice": 1000, "bob": 1001},
                "uids": [],
                "gids": [],
                "added": {"uids": [], "gids": []},
            },
            "images": {"docker": [], "podman": []},
            "cdi": {"specifications": [], "unlinked": []},
        },
        "python": {"interpreters": [{"path": "/usr/bin/python3.13", "version": "3.13.5", "venv": True}], "venv": True},
        "environments": {},
        "disks": [
            {
                "mount": "/",
                "size_bytes": 10**12,
                "free_bytes": 9 * 10**11,
                "class": "nvme",
                "read_only": False,
            },
        ],
        "packages": {
            "manager": "apt",
            "interrupted": False,
            "interrupted_detail": None,
            "busy": None,
            "holds": [],
            "sources": [
                {
                    "file": "/etc/apt/sources.list.d/debian.sources",
                    "types": ["deb"],
                    "uris": ["http://mirror.example/debian"],
                    "suites": ["trixie"],
                    "components": ["main"],
                    "signed_by": "/usr/share/keyrings/debian-archive-keyring.gpg",
                    "enabled": True,
                },
            ],
            "installed": {},
        },
        "services": {},
        "fabric": {"manager_stale": None, "modules_loaded": [], "modules_at_boot": [], "peermem_module": None},
        "in_use": {"holders": [], "containers": [], "working": [], "docker_clients": 0, "jobs": [], "unread": None},
        "sessions": {"display": False},
        "seals": {},
        "proof": None,
        "lock": None,
        "history": {"drivers": [], "failed": []},
    }
    return merged(facts, changes)


def unseen() -> dict[str, Any]:
    """What changes of an observation that is not made as root: what lies below /var/lib/gpuwright, and the initramfs."""
    kernel = bare()["kernel"]
    initramfs = {**kernel["initramfs"], "nouveau_inside": None, "blacklist_inside": None}
    unknown = {
        "seals": "/var/lib/gpuwright/seals could not be listed: Permission denied",
        "proof": "/var/lib/gpuwright/proof.json is unreadable: [Errno 13] Permission denied",
        "history": "/var/lib/gpuwright/history.json is unreadable: [Errno 13] Permission denied",
        "kernel.initramfs.nouveau_inside": "lsinitramfs failed: Permission denied",
        "kernel.initramfs.blacklist_inside": "lsinitramfs failed: Permission denied",
    }
    return {
        "privileged": False,
        "seals": None,
        "proof": None,
        "history": None,
        "unknown": unknown,
        "kernel": {"initramfs": initramfs},
    }


def merged(facts: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of the facts with some of them changed; dictionaries are merged, everything else is replaced."""
    result = copy.deepcopy(facts)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else copy.deepcopy(value)
    return result


def smi(
    *cards: dict[str, Any], rc: int = 0, cuda: str | None = "13.0", driver: str = DRIVER, **more: Any
) -> dict[str, Any]:
    """What nvidia-smi answers of these cards; each says what the test is about, and nothing else."""
    silent = {"pci_bus_id": "", "uuid": None, "name": None, "virtualization_mode": None}
    data: dict[str, Any] = {
        "driver_version": driver,
        "cuda_version": cuda,
        "attached_gpus": len(cards),
        "gpus": [{**silent, **card} for card in cards],
        "notes": [],
        "errors": {},
    }
    return {"rc": rc, "seconds": 0.1, "error": None, "data": data if rc == 0 else None, **more}


def driver_stack(**changes: Any) -> Any:
    """The driver's part of a stack."""
    whole: dict[str, Any] = {
        "branch": "580",
        "version": None,
        "modules": "open",
        "source": "nvidia",
        "packages": [],
        "pin": {},
        "kernel_module": "nvidia",
        "adopted": False,
    }
    return {**whole, **changes}


def index(**changes: Any) -> Any:
    """What a package index answers that has nothing; of type Any, as the facts are."""
    nothing: dict[str, Any] = {"download_bytes": 0, "disk_bytes": 0, "exchange": None, "packages": {}, "others": {}}
    return {**nothing, "enabled": [], "install": [], "removes": [], "downgrades": [], "problems": [], **changes}


def coming(name: str, version: str) -> Any:
    """A package that a transaction installs."""
    return {"name": name, "version": version, "from": None, "download_bytes": 1000, "installed_bytes": 5000}


def python_file(name: str, version: str, tags: str = "cp313-cp313-manylinux_2_28_x86_64", **changes: Any) -> Any:
    """A wheel that a Python index has."""
    file = {"name": f"{name.replace('-', '_')}-{version}-{tags}.whl", "version": version, "size": 1000}
    return {**file, "sha256": None, "yanked": False, "requires_python": None, **changes}


def python_answer(name: str, version: str, *others: str, **changes: Any) -> Any:
    """What a Python index answers that has a version, and these others; of type Any, as the facts are."""
    return {
        "name": name,
        "version": version,
        "places": ["https://mirror.example/simple"],
        "fits": [python_file(name, version)],
        "unfit": [],
        "others": [{"version": each, "requires_python": None} for each in others],
        "problems": [],
        "denied": [],
        **changes,
    }


def locked(*names: str) -> dict[str, Any]:
    """What is observed of a whole lock over the packages of these names."""
    pin = "nvidia-driver-pinning-580"
    return {
        "set": list(names),
        "held": [*names, pin],
        "excluded": [f"^{name}$" for name in names],
        "pins": {pin: {"files": [f"/etc/apt/preferences.d/{pin}"], "missing": []}},
        "would_move": None,
    }


def provisioned(**changes: Any) -> Any:
    """The same host after a run: driver loaded, toolkits, Docker configured, the environment made. No seals yet."""
    kernel = "6.12.94+deb13-amd64"
    driver = dict.fromkeys(
        ("nvidia-driver-pinning-580", "nvidia-driver-cuda", "nvidia-kernel-open-dkms"), f"{DRIVER}-1"
    )
    toolkit = (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    )
    installed = {
        **driver,
        "linux-headers-amd64": "6.12.94-1",
        "cuda-toolkit-13-0": "13.0.3-1",
        "cuda-nvcc-13-0": "13.0.88-1",
        "docker.io": "26.1.5+dfsg1-9",
        "docker-cli": "26.1.5+dfsg1-9",
        "fio": "3.39-1",
        "g++": "4:14.2.0-1",
        **dict.fromkeys(toolkit, "1.20.0-1"),
    }
    own = [
        {
            "file": f"/etc/apt/sources.list.d/gpuwright-{name}.sources",
            "types": ["deb"],
            "uris": [f"http://mirror.example/{name}"],
            "suites": ["/"],
            "components": [],
            "signed_by": f"/usr/share/keyrings/gpuwright-{name}.gpg",
            "enabled": True,
        }
        for name in ("nvidia-cuda", "nvidia-container-toolkit")
    ]
    facts = bare()
    facts["kernel"] |= {
        "headers": [kernel],
        "loaded": {"nvidia": {"version": DRIVER}, "nvidia_uvm": {"version": DRIVER}},
        "available": {
            "nvidia": {
                "version": DRIVER,
                "license": "Dual MIT/GPL",
                "signer": None,
                "name": "nvidia",
                "path": "/nvidia.ko",
            },
        },
    }
    facts["kernel"]["initramfs"] |= {"blacklist_inside": True, "blacklist_current": True}
    facts["driver"] |= {
        "owner": "packages",
        "source": "nvidia",
        "packages": driver,
        "loaded_version": DRIVER,
        "loaded_modules": "open",
        "user_version": DRIVER,
        "lock": locked("nvidia-driver-cuda", "nvidia-kernel-open-dkms"),
    }
    facts["packages"]["holds"] = ["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-driver-pinning-580"]
    facts["cuda"]["default"] |= {
        "kind": "alternatives",
        "path": "/usr/local/cuda-13.0",
        "manual": False,
        "registered": ["/usr/local/cuda-13.0"],
    }
    facts["containers"]["docker"] |= {
        "installed": True,
        "version": "26.1.5",
        "active": True,
        "daemon_json": {
            "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
            "features": {"cdi": True},
        },
        "config_loaded": True,
    }
    facts["containers"]["toolkit"] = {"version": "1.20.0"}
    devices = [*map(str, range(8)), "all"]
    facts["containers"]["cdi"]["specifications"] = [
        {"path": "/var/run/cdi/nvidia.yaml", "driver": DRIVER, "devices": devices},
    ]
    facts["environments"] = {
        "/opt/gpuwright/pytorch": {
            "python": "3.13.5",
            "packages": {"torch": "2.14.1+cu130", "torchvision": "0.29.1+cu130", "torchaudio": "2.11.0+cu130"},
        },
    }
    facts["services"] = {"docker.service": {"active": "active", "enabled": "enabled"}}
    facts["packages"]["installed"] = installed
    facts["packages"]["sources"] += own
    return merged(facts, changes)

"""Observations for the planner's tests: a bare node with two H100 on Debian 13, and what is true after each step."""
from __future__ import annotations

import copy
from typing import Any

H100 = {
    "vendor": "10de",
    "device": "2330",
    "subsystem": "10de:16c1",
    "class": "0302",
    "revision": "a1",
    "driver": None,
    "numa_node": 0,
    "link": {"speed_gts": 32.0, "width": 16, "max_speed_gts": 32.0, "max_width": 16},
}
DRIVER = "580.178.04"


def bare(**changes: Any) -> dict[str, Any]:
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
        "environment": {"kind": "bare", "detail": ""},
        "boot": {"id": "boot-1", "efi": True, "secure_boot": False, "cmdline": ""},
        "kernel": {
            "running": "6.12.94+deb13-amd64",
            "next": "6.12.94+deb13-amd64",
            "next_source": "grub default",
            "installed": ["6.12.94+deb13-amd64"],
            "headers": [],
            "compiler": {"built_with": "gcc 14.2", "available": None},
            "loaded": {"nouveau": {"version": None}},
            "available": {},
            "initramfs": {
                "path": "/boot/initrd.img-6.12.94+deb13-amd64",
                "tool": "update-initramfs",
                "nouveau_inside": False,
                "blacklist_inside": False,
            },
        },
        "pci": {
            "gpus": [{**H100, "bus_id": f"00000000:{bus}:00.0"} for bus in ("18", "2A")],
            "nvswitches": [],
            "other_gpus": [],
            "nvlink5": False,
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
        },
        "smi": None,
        "cuda": {"toolkits": [], "cudnn": []},
        "containers": {
            "docker": {
                "installed": False,
                "version": None,
                "active": False,
                "daemon_json": None,
                "daemon_json_error": None,
                "config_loaded": None,
            },
            "toolkit": {"version": None},
            "containerd": {"version": None},
            "podman": {"version": None},
        },
        "python": {"interpreters": [{"path": "/usr/bin/python3.13", "version": "3.13.5"}], "venv": True},
        "environments": {},
        "disks": [
            {
                "mount": "/",
                "device": "/dev/nvme0n1p2",
                "fstype": "ext4",
                "size_bytes": 10**12,
                "free_bytes": 9 * 10**11,
                "class": "nvme",
                "read_only": False,
            },
        ],
        "memory": {"total_bytes": 10**12},
        "cpus": 64,
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
        "sessions": {"display": False},
        "seals": {},
        "proof": None,
        "lock": None,
    }
    return merged(facts, changes)


def merged(facts: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of the facts with some of them changed; dictionaries are merged, everything else is replaced."""
    result = copy.deepcopy(facts)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else copy.deepcopy(value)
    return result

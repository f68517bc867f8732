"""Scenarios: what hardware and which kernels a simulated node has, from a short YAML file to everything a node needs."""

from __future__ import annotations

import copy
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from . import settings
from .shell import SimulationError

_HARDWARE = settings.HERE / "hardware.yaml"
_SCENARIOS = settings.HERE / "scenarios"

OPERATING_SYSTEMS: dict[str, dict[str, Any]] = {
    "debian-13": {
        "repository": "debian13",
        "kernels": ["6.12.107+deb13-amd64"],
        "compiler": "x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0",
    },
    # A costume on Debian 13: os-release and the names of kernels are Ubuntu's, the packages below are Debian's.
    "ubuntu-24.04": {
        "repository": "ubuntu2404",
        "kernels": ["6.8.0-134-generic"],
        "compiler": "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0",
    },
    # Another costume: dnf and rpm are Debian's, the packages that they install are made here.
    "rocky-9": {
        "repository": "rhel9",
        "kernels": ["5.14.0-611.41.1.el9_7.x86_64"],
        "compiler": "gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-11)",
    },
}


def is_rpm(system: str) -> bool:
    """Whether a simulated system's packages are rpm's."""
    return system.startswith("rocky")


_KEYS = {
    "os", "gpus", "nouveau", "secure_boot", "desktop", "kernels", "headers", "running", "faults", "machine", "real_packages", "packages",
    "cmdline", "windows_driver", "other_gpus", "nvswitches", "fabric_ports", "adapters",
}  # fmt: skip


def load(name: str) -> dict[str, Any]:
    """The scenario of a file, or of a name under scenarios/."""
    path = Path(name)
    if not path.suffix:
        path = _SCENARIOS / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(entry.stem for entry in _SCENARIOS.glob("*.yaml")))
        raise SimulationError(f"there is no scenario {name}; there are: {known}")
    return expand(yaml.safe_load(path.read_text()) or {}, path.stem)


def expand(given: dict[str, Any], name: str, operating_system: str | None = None) -> dict[str, Any]:
    """Fill in what the scenario leaves open.

    Args:
        given: the scenario as written.
        name: enters the cards' serial numbers, so that cards of two nodes differ.
        operating_system: replaces the scenario's own.

    Raises:
        SimulationError: a word that no scenario knows, or a card that hardware.yaml does not describe.
    """
    unknown = set(given) - _KEYS
    if unknown:
        raise SimulationError(
            f"the scenario {name} has {', '.join(sorted(unknown))}; known are {', '.join(sorted(_KEYS))}"
        )
    system = operating_system or given.get("os", "debian-13")
    if system not in OPERATING_SYSTEMS:
        raise SimulationError(f"no simulated node runs {system}; there are: {', '.join(OPERATING_SYSTEMS)}")
    kernels = list(given.get("kernels") or OPERATING_SYSTEMS[system]["kernels"])
    desktop = given.get("desktop")
    return {
        "name": name,
        "os": system,
        "gpus": [_gpu(entry, index, name) for index, entry in enumerate(given.get("gpus") or [])],
        "windows_driver": given.get("windows_driver"),
        "other_gpus": [_other(entry, index) for index, entry in enumerate(given.get("other_gpus") or [])],
        "nouveau": bool(given.get("nouveau", True)),
        "secure_boot": given.get("secure_boot"),
        "desktop": {"connector": "HDMI-A-1", "gpu": 0, **desktop} if desktop else None,
        "machine": given.get("machine", "bare"),
        "nvswitches": int(given.get("nvswitches", 0)),
        "fabric_ports": int(given.get("fabric_ports", 0)),
        "adapters": int(given.get("adapters", 0)),
        "cmdline": given.get("cmdline", ""),
        "real_packages": bool(given.get("real_packages")),
        "packages": list(given.get("packages") or []),
        "faults": list(given.get("faults") or []),
        "kernel": {
            "installed": kernels,
            "chosen": bool(given.get("kernels")),
            "running": given.get("running", kernels[-1]),
            "headers": list(given.get("headers") or []),
            "compiler": OPERATING_SYSTEMS[system]["compiler"],
        },
    }


def _other(entry: dict[str, Any], index: int) -> dict[str, Any]:
    """A display controller of another vendor."""
    return {"bus_id": f"0000:{0x0A + index:02x}:00.0", "class": "030000", "driver": None, **entry}


@cache
def _cards() -> dict[str, Any]:
    cards: dict[str, Any] = yaml.safe_load(_HARDWARE.read_text())["cards"]
    return cards


def _gpu(entry: dict[str, Any], index: int, name: str) -> dict[str, Any]:
    cards = _cards()
    wanted = entry.get("card")
    if wanted not in cards:
        raise SimulationError(f"no simulated card is called {wanted}; there are: {', '.join(cards)}")
    bus = entry.get("bus_id", f"0000:{(0x18 + index * 0x23) % 0x100:02x}:00.0")
    digest = hashlib.sha256(f"{name} {bus}".encode()).hexdigest()
    uuid = f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    card = copy.deepcopy(cards[wanted])
    return {
        **card,
        "bus_id": bus,
        "uuid": uuid,
        "serial": str(1650000000000 + int(digest[:8], 16)) if card["ecc"] else "N/A",
        "numa": index % 2,
        **{key: value for key, value in entry.items() if key != "card"},
    }

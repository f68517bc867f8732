"""Fixtures of the proving tests: documents written by hand in the shape of real ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, run
from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
from ansible_collections.gpuwright.node.plugins.module_utils.facts import SmiData
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework, smi

FIXTURES = Path(__file__).parent / "fixtures"
# Outputs of real machines lie beside the repository where they are at hand; they are read, never kept.
SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples"


@pytest.fixture
def document() -> Callable[[str], str]:
    return lambda name: (FIXTURES / name).read_text(encoding="utf-8")


@pytest.fixture
def parsed(document: Callable[[str], str]) -> Callable[[str], SmiData]:
    return lambda name: smi.parse_xml(document(name))


@pytest.fixture
def by_id() -> Callable[[list[Check]], dict[str, Check]]:
    """Checks by id; of the same check on several cards the worst."""

    def index(found: list[Check]) -> dict[str, Check]:
        return {check["id"]: check for check in reversed(checks.worst_first(found))}

    return index


@pytest.fixture
def samples() -> Callable[[str], list[Path]]:
    def find(folder: str) -> list[Path]:
        found = sorted((SAMPLES / folder).glob("*"))
        if not found:
            pytest.skip("the sample outputs are not at hand")
        return found

    return find


@pytest.fixture
def facts() -> dict[str, Any]:
    """The observation of a good node with one card."""
    gpu = {
        "bus_id": "00000000:1B:00.0",
        "vendor": "10de",
        "device": "2330",
        "class": "0302",
        "revision": "a1",
        "driver": "nvidia",
    }
    return {
        "schema": 1,
        "unknown": {},
        "time": "2026-11-20T12:00:00Z",
        "environment": {"kind": "bare", "detail": None},
        "boot": {"id": "boot-1", "efi": True, "secure_boot": False},
        "kernel": {
            "running": "6.8.0-45-generic",
            "next": "6.8.0-45-generic",
            "loaded": {"nvidia": {"version": "580.95.05"}},
            "available": {"nvidia": {"version": "580.95.05", "license": "Dual MIT/GPL", "signer": None}},
        },
        "pci": {"gpus": [gpu], "nvswitches": [], "nvlink5": False},
        "display": {"desktop": False},
        "driver": {
            "owner": "packages",
            "loaded_version": "580.95.05",
            "loaded_modules": "open",
            "user_version": "580.95.05",
            "lock": {
                "set": ["libcuda1"],
                "held": ["libcuda1"],
                "excluded": ["^libcuda1$"],
                "pins": {},
                "would_move": None,
            },
        },
        "smi": {
            "rc": 0,
            "seconds": 0.5,
            "error": None,
            "data": {
                **(data := smi.parse_xml((FIXTURES / "h100_580.xml").read_text(encoding="utf-8"))),
                "gpus": data["gpus"][:1],
                "attached_gpus": 1,
            },
        },
        "containers": {"docker": {"installed": False}},
        "disks": [{"mount": "/", "free_bytes": 50_000_000_000, "read_only": False}],
        "packages": {
            "manager": "apt",
            "interrupted": False,
            "interrupted_detail": None,
            "busy": None,
            "holds": ["libcuda1"],
        },
        "services": {},
        "seals": {"nvidia_driver": {"state": "good", "reason": None}},
        "proof": {"verdict": "pass", "time": "2026-11-19T12:00:00Z", "boot_id": "boot-1", "driver": "580.95.05"},
    }


def let_in(_python: str, _name: str, _timeout: float) -> run.Result:
    """An ordinary user who can use it: a test's folder is closed to others, and so may be the interpreter that runs the tests."""
    lines = [json.dumps({"step": step, "version": "1"}) for step in ("user", "start", "import")]
    return run.Result(0, "\n".join(framework.MARK + line for line in lines), "", 0.1, None)

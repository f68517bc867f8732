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
from ansible_collections.gpuwright.node.plugins.module_utils.measure import framework
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from tests.unit.plan import nodes

FIXTURES = Path(__file__).parent / "fixtures"
# Outputs of real machines lie beside the repository where they are at hand; they are read, never kept.
SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples"


@pytest.fixture
def document() -> Callable[[str], str]:
    return lambda name: (FIXTURES / name).read_text(encoding="utf-8")


@pytest.fixture
def parsed(document: Callable[[str], str]) -> Callable[[str], SmiData]:
    return lambda name: parse_xml(document(name))


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
    """The observation of a good node with one card, which answered as the fixture has it."""
    data = parse_xml((FIXTURES / "h100_580.xml").read_text(encoding="utf-8"))
    driver = str(data["driver_version"])
    found: dict[str, Any] = nodes.provisioned(
        boot={"secure_boot": False},
        kernel={
            "loaded": {name: {"version": driver} for name in ("nvidia", "nvidia_uvm")},
            "available": {"nvidia": {"version": driver}},
        },
        pci={"gpus": [{**nodes.H100, "bus_id": "00000000:1B:00.0", "driver": "nvidia"}]},
        driver={"loaded_version": driver, "user_version": driver},
        smi={
            "rc": 0,
            "seconds": 0.5,
            "error": None,
            "data": {**data, "gpus": data["gpus"][:1], "attached_gpus": 1},
        },
        seals={"nvidia_driver": {"state": "good", "reason": None}},
        proof={"verdict": "pass", "time": "2026-11-19T12:00:00Z", "boot_id": "boot-1", "driver": driver},
    )
    found["containers"]["cdi"]["specifications"][0]["driver"] = driver
    return found


def let_in(_python: str, _name: str, _timeout: float) -> run.Result:
    """An ordinary user who can use it: a test's folder is closed to others, and so may be the interpreter that runs the tests."""
    lines = [json.dumps({"step": step, "version": "1"}) for step in ("user", "start", "import")]
    return run.Result(0, "\n".join(framework.MARK + line for line in lines), "", 0.1, None)


def log_answer(**changes: Any) -> dict[str, Any]:
    """What the module kernel_log answers of a healthy machine with one card, whose log says nothing."""
    place = {"correctable": 0, "nonfatal": 0, "fatal": 0, "errors": "", "lanes": 16, "speed_gts": 32.0}
    card = {"bus_id": "00000000:3B:00.0", "role": "card", **place}
    bridge = {"bus_id": "00000000:3A:00.0", "role": "bridge", **place}
    answer: dict[str, Any] = {
        "changed": False,
        "lines": 1000,
        "whole": True,
        "since_boot": True,
        "why": None,
        "events": [],
        "earlier": 0,
        "more": 0,
        "faults": [],
        "more_faults": 0,
        "hardware": {
            "devices": [bridge, card],
            "devices_unread": None,
            "memory": [{"controller": "mc0", "corrected": 0, "uncorrected": 0}],
            "memory_unread": None,
            "uptime": 86400.0,
        },
        "journal": {"wanted": 0, "kept": True, "boots": [], "why": None},
    }
    return {**answer, **changes}

"""A host that stays as it is: its plan is its result, packed, and the report has a line of it."""

from __future__ import annotations

import gzip
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.smi.document import parse_xml
from ansible_collections.gpuwright.node.plugins.plugin_utils import report
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.registry import SEALED
from ansible_collections.gpuwright.node.plugins.plugin_utils.report import records, run_directory
from gpuwright import records as results
from tests.unit.gate import honest
from tests.unit.plan import nodes
from tests.unit.plan.test_planner import plan, proven, wish

ROOT = Path(__file__).resolve().parents[3]
WARNING = {"rule": "a.rule", "text": "a card of another owner", "source": None, "remedy": None}


@pytest.fixture
def staying() -> Any:
    """The plan of a host that is right, with a check of each kind that such a host can have."""
    made = plan(proven(nodes.provisioned()))
    found = [checks.passed("smi.runs"), checks.passed("gpu.count"), checks.skipped("fio.write", reason="not asked for")]
    return made | {
        "host": "right",
        "verdict": "pass",
        "checks": [*found, checks.make("disk.free", "warn", reason="nearly full")],
    }


@pytest.fixture
def run(tmp_path: Path, staying: Any) -> Path:
    """A run over that host and one that failed."""
    path = report.open_run(tmp_path / "run", "up")
    run_directory.write_document(path / "plans", "right", staying, packed=records.stays(staying))
    report.write_host(path, "bad", {"checks": [checks.failed("smi.runs", reason="it hangs")]})
    report.aggregate(path)
    return path


def test_only_a_host_that_is_right_and_needs_nothing_stays(staying: Any) -> None:
    assert records.stays(staying)
    assert records.stays(staying | {"verdict": "skip"})
    for change in (
        {"components": ["cuda"]},
        {"ok": False},
        {"verdict": "fail"},
        {"verdict": "incomplete"},
        {"reboot": True},
    ):
        assert not records.stays(staying | change), change


def test_the_report_counts_its_checks_and_names_the_file_that_has_them(run: Path) -> None:
    made = json.loads((run / "report.json").read_text())
    jsonschema.Draft202012Validator(json.loads((ROOT / "docs/report.schema.json").read_text())).validate(made)
    host = made["hosts"]["right"]
    assert host["counts"] == {"pass": 2, "warn": 1, "fail": 0, "incomplete": 0, "skip": 1}
    assert [check["id"] for check in host["checks"]] == ["disk.free"]
    whole = json.loads(gzip.decompress((run / host["whole"]).read_bytes()))
    assert [check["id"] for check in whole["checks"]] == ["smi.runs", "gpu.count", "fio.write", "disk.free"]
    assert (made["verdict"], made["counts"]["pass"], made["counts"]["fail"]) == ("fail", 1, 1)
    assert "counts" not in made["hosts"]["bad"]


def test_people_and_servers_are_told_of_it_in_a_line(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert "1 host stays as it is" in page
    assert "2 passed, 1 warning, 1 skipped" in page
    assert "nearly full" in page
    assert page.count('<details class="card host') == 1
    (suite,) = [suite for suite in ET.parse(run / "junit.xml").getroot() if suite.get("name") == "right"]  # noqa: S314 - our own file
    assert [case.get("name") for case in suite] == ["host.stays", "disk.free"]
    assert suite.get("failures") == suite.get("errors") == "0"


def test_the_command_line_still_gives_all_of_it(run: Path) -> None:
    found = results.results(run)
    assert set(found) == {"right", "bad"}
    document = results.result_document(found["right"])
    assert (document["verdict"], document["changes"], len(found["right"]["checks"])) == ("pass", [], 4)
    assert len(results.plans(run)["right"]["checks"]) == 4


def test_a_packed_document_that_is_cut_is_a_host_that_is_not_proven(run: Path) -> None:
    packed = run / "plans" / "right.json.gz"
    packed.write_bytes(packed.read_bytes()[:-20])
    made = report.aggregate(run)["hosts"]["right"]
    assert made["verdict"] == "fail"
    assert made["failure"]
    assert "right.json.gz cannot be read" in made["failure"]["message"]


def test_the_same_host_has_one_document(run: Path, staying: Any) -> None:
    run_directory.write_document(run / "plans", "right", staying)
    assert [path.name for path in run_directory.documents(run / "plans")] == ["right.json"]
    run_directory.write_document(run / "plans", "right", staying, packed=True)
    assert [path.name for path in run_directory.documents(run / "plans")] == ["right.json.gz"]
    assert run_directory.document(run / "plans", "left") is None


def test_a_name_that_begins_with_a_dot_is_read_again(tmp_path: Path) -> None:
    run_directory.write_document(tmp_path, "../.up", {"host": "../.up"}, packed=True)
    (path,) = run_directory.documents(tmp_path)
    assert run_directory.host_of(path) == "../.up"


def test_the_same_document_is_the_same_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    for path in (first, second):
        run_directory.write_json(path, {"a": float("nan"), "b": "\ud800"})
    assert first.read_bytes() == second.read_bytes()
    assert run_directory.read_json(first) == {"a": None, "b": "\ud800"}


def test_facts_that_are_packed_can_be_asked_about(tmp_path: Path) -> None:
    from gpuwright import knowledge
    from gpuwright.errors import BadInput
    from tests.unit.gate import honest

    run_directory.write_document(tmp_path, "h", honest.provisioned(), packed=True)
    path = tmp_path / "h.json.gz"
    assert knowledge.read_facts(str(path))["hostname"] == honest.provisioned()["hostname"]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadInput, match="broken gzip"):
        knowledge.read_facts(str(path))


EVERYTHING = wish(
    gpuwright_want=["cuda", "container-toolkit", "pytorch", "tensorflow", "jax", "monitoring-server"],
    mig_layout={"all": "off"},
    gpu_settings_cards={"all": {"compute_mode": "default"}},
    gpu_log_days=30,
    watch_interval="15m",
    fabric_firewall=["10.2.0.0/24"],
    monitoring_source="smi",
)
#: What an environment has beside its framework: NVIDIA's libraries, and what a framework needs.
_BESIDE = [
    f"{name}-{number}" for name in ("nvidia-library-cu13", "typing-something", "markup-safe") for number in range(20)
]
_MOST = 20_000


def monitored() -> dict[str, Any]:
    """Both exporters, where they listen by default."""
    units = {"gpu": (9400, "gpuwright-gpu-exporter.service"), "node": (9100, "prometheus-node-exporter.service")}
    rows = [
        {
            "address": "127.0.0.1",
            "port": port,
            "process": "x",
            "user": "x",
            "unit": unit,
            "tls": False,
            "status": 200,
            "tells": kind,
            "certificate": None,
        }
        for kind, (port, unit) in units.items()
    ]
    return {"listeners": rows, "drop_ins": ["prometheus-node-exporter.service"], "certificate": None}


def everything() -> tuple[Any, Any]:
    """What is seen and planned of a host with two cards on which every component is right."""
    data = parse_xml((Path(__file__).parent / "fixtures/h100_580.xml").read_text(encoding="utf-8"))
    seen = honest.provisioned(lock=None)
    seen["smi"] = {"rc": 0, "seconds": 0.4, "error": None, "data": {**data, "driver_version": nodes.DRIVER}}
    seen["smi"]["mig_devices"] = {}
    for card, told in zip(seen["pci"]["gpus"], data["gpus"], strict=True):
        card["bus_id"] = told["pci_bus_id"]
    program = {"answers": True, "started": True, "loaded": True, "problem": None}
    seen["monitoring_server"] = {
        "files": [],
        "prometheus": program,
        "alertmanager": program,
        "grafana": None,
        "targets": [],
    }
    seen["packages"]["installed"] |= {"prometheus": "2.53.3+ds1-2", "prometheus-alertmanager": "0.28.1+ds-1"}
    units = (
        "gpuwright-mig.service",
        "gpuwright-gpu-settings.service",
        "gpuwright-gpu-log.timer",
        "gpuwright-watch.timer",
        "gpuwright-gpu-exporter.service",
        "gpuwright-gpu-exporter.socket",
        "prometheus-node-exporter.service",
        "gpuwright-node-exporter.socket",
        "prometheus.service",
        "prometheus-alertmanager.service",
    )
    for unit in units:
        seen["services"][unit] = {"active": "active", "enabled": "enabled"}
    seen["monitoring"] = monitored()
    seen["firewall"] = {"tools": [], "others": []}
    seen["packages"]["installed"]["prometheus-node-exporter"] = "1.8.2-1"
    seen["packages"]["installed"] |= {f"libnvidia-something-{number}": f"{nodes.DRIVER}-1" for number in range(40)}
    for row in plan(seen, EVERYTHING)["stack"]["frameworks"]:
        wanted = (requirement.partition("==") for requirement in row["requirements"])
        exactly = {name.partition("[")[0]: version for name, _, version in wanted}
        python = f"{row['interpreter']}.5"
        packages = {name: f"13.0.{number}" for number, name in enumerate(_BESIDE)} | exactly
        seen["environments"][row["path"]] = {
            "python": python,
            "packages": packages,
            "loader_path": None,
            "damage": [],
        }
    seen = proven(seen, EVERYTHING)
    for name, seal in seen["seals"].items():
        seal["packages"] = seen["packages"]["installed"] if name == "nvidia_driver" else {}
        seal["written"] = "2026-11-20T11:00:00Z"
    made = plan(seen, EVERYTHING)
    seen["proof"] |= {"schema": 1, "checks": made["checks"], "gpus": [{"uuid": f"GPU-{number}"} for number in range(2)]}
    return seen, plan(seen, EVERYTHING)


def folder_of(path: Path, hosts: int, seen: Any, made: Any) -> int:
    """The bytes of a run over so many hosts that are right, its report in all its forms included."""
    report.open_run(path, "up")
    for number in range(hosts):
        host = f"gpu{number:03}"
        for kind, document in (("facts", seen | {"hostname": host}), ("plans", made | {"host": host})):
            run_directory.write_document(path / kind, host, document, packed=records.stays(made))
    report.aggregate(path)
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def test_a_host_that_stays_costs_at_most_20_kb(tmp_path: Path) -> None:
    seen, made = everything()
    assert records.stays(made), (made["changes"], made["checks"])
    assert set(made["digests"]) == set(SEALED)
    assert len(seen["environments"]) == 3
    assert [check["id"] for check in made["checks"] if check["status"] in ("fail", "incomplete")] == []
    assert len(made["checks"]) > 80
    one, more = (folder_of(tmp_path / str(hosts), hosts, seen, made) for hosts in (1, 11))
    assert (more - one) / 10 <= _MOST

"""DCGM with NVIDIA's exporter, by stand-ins of its packages: brought where it serves, mended, secured, changed, taken back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .conftest import Node, Run
from .test_monitoring_exporters import _SECURED, certificate, checks, listens, page

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="services")]

_UNIT, _ENGINE = "nvidia-dcgm-exporter.service", "nvidia-dcgm.service"
_DROP_IN = f"/etc/systemd/system/{_UNIT}.d/gpuwright.conf"


@pytest.fixture(scope="module")
def machine(make_shared_node: Callable[[str, str], Node]) -> Node:
    """A server with one H100 and nothing of NVIDIA."""
    return make_shared_node("dcgm", "h100-ubuntu")


def up(machine: Node, *arguments: str, source: str = "", verb: str = "up") -> Run:
    more = ("--yes",) if verb == "up" else ()
    want = f"monitoring={source}" if source else "monitoring"
    return machine.run(verb, *more, "--want=driver=580", f"--want={want}", *arguments)


def test_it_comes_by_itself_where_it_serves_and_listens_where_it_is_wished(machine: Node) -> None:
    run = up(machine)
    assert run.code == 0, str(run)
    told = [row["text"] for row in run.written_plan["why"] if row["rule"] == "monitoring.dcgm"]
    assert told == ["DCGM 4.5.3 for CUDA 13 with its exporter 4.8.2"]
    assert (listens(machine, 9400), listens(machine, 5555)) == (["127.0.0.1:9400"], ["127.0.0.1:5555"])
    cards = page(machine, 9400)
    for name in ("DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"):
        assert f'{name}{{gpu="0",' in cards
    machine.shell("dpkg-query -W datacenter-gpu-manager-4-cuda13 datacenter-gpu-manager-4-proprietary-cuda13")
    assert machine.shell("ls /var/log/dcgm-exporter.log", check=False) == ""
    assert checks(machine, want="monitoring") == {"gpu": ("pass", None), "node": ("pass", None)}


def test_its_diagnostic_is_part_of_the_proof_at_the_level_of_the_profile(machine: Node) -> None:
    short = ("--want=driver=580", "--want=monitoring", "-e", "validate_storage=false")
    quick = machine.run("validate", *short)
    looked = {"dcgm.run": "pass", "dcgm.cards": "pass", "dcgm.software": "pass"}
    assert diagnosed(quick) == looked, str(quick)
    machine.fault("wrong-memory")
    try:
        assert diagnosed(machine.run("validate", *short))["dcgm.software"] == "pass"
        burnt = machine.run("validate", *short, "--profile=burn-in", "-e", "validate_seconds=12")
    finally:
        machine.fault("wrong-memory", clear=True)
    assert burnt.code == 1, str(burnt)
    assert diagnosed(burnt) == {**looked, "dcgm.memory": "fail", "dcgm.pcie": "pass"}
    proven = up(machine)
    assert (proven.code, proven.host["verdict"]) == (0, "pass"), str(proven)


def diagnosed(run: Run) -> dict[str, str]:
    """What the diagnostic said, by its tests."""
    return {check["id"]: check["status"] for check in run.host["checks"] if check["id"].startswith("dcgm.")}


def test_the_next_run_changes_nothing_also_when_it_looks_at_everything(machine: Node) -> None:
    again = up(machine)
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    full = up(machine, "--full")
    assert (full.code, full.changed) == (0, 0), str(full)


def test_what_somebody_broke_by_hand_is_mended(machine: Node) -> None:
    machine.shell(f"systemctl disable --now {_ENGINE}; rm {_DROP_IN}; systemctl daemon-reload")
    assert checks(machine, want="monitoring")["gpu"] == ("warn", f"{_ENGINE} does not run")
    mended = up(machine)
    assert (mended.code, mended.components) == (0, {"monitoring_exporters"}), str(mended)
    assert listens(machine, 9400) == ["127.0.0.1:9400"]


def test_it_reads_the_same_certificate_and_users(machine: Node) -> None:
    certificate(machine)
    run = up(machine, *_SECURED)
    assert (run.code, run.components) == (0, {"monitoring_exporters"}), str(run)
    assert "DCGM_FI_DEV_GPU_TEMP{" in page(machine, 9400, "prometheus:scrape", tls=True)
    assert page(machine, 9400, "prometheus:wrong", tls=True) == "401\n"


def test_who_changes_the_source_has_one_exporter_at_each_time(machine: Node) -> None:
    ours = up(machine, source="smi")
    assert (ours.code, ours.components) == (0, {"monitoring_exporters"}), str(ours)
    assert "gpuwright_exporter_up 1\n" in page(machine, 9400)
    assert machine.shell(f"systemctl is-enabled {_UNIT}", check=False).strip() == "disabled"
    assert machine.shell(f"ls {_DROP_IN}", check=False) == ""
    again = up(machine, source="smi")
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    back = up(machine)
    assert (back.code, back.components) == (0, {"monitoring_exporters"}), str(back)
    assert "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{" in page(machine, 9400)
    assert machine.shell("find /etc/systemd -name 'gpuwright-gpu-exporter*'") == ""


def test_it_goes_on_after_a_boot_and_remove_takes_all_of_it_back(machine: Node) -> None:
    machine.reboot()
    machine.shell("for i in $(seq 100); do ss -Hltn 'sport = :9400' | grep -q . && exit; sleep 0.2; done; exit 1")
    gone = machine.run("remove", "--yes", "--no-reboot")
    assert gone.code in (0, 4), str(gone)
    left = "find /etc /usr/local /usr/bin /usr/lib/systemd /var/log /var/lib/gpuwright -name '*dcgm*'"
    assert machine.shell(left, check=False) == "", json.dumps(gone.host)
    assert machine.shell("dpkg-query -W 'datacenter-gpu-manager*'", check=False) == ""
    assert listens(machine, 9400) + listens(machine, 5555) == []

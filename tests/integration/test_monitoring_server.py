"""A server of metrics with a fleet: real Prometheus, Alertmanager and node_exporter of the archive, from nothing to its end."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring.alerts import alerts
from tests.sim import engine, node, settings

from . import exporters
from .conftest import Node, Run, gpuwright

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="systems")]

DASHBOARDS = Path(__file__).parents[2] / "plugins/plugin_utils/monitoring/dashboards"
SECRET = "n0-0ne-reads-th1s"
FILES = "/etc/gpuwright/monitoring-server-"
HOOK = "/srv/told.jsonl"
#: A receiver that keeps what it is told, with the time and the header that lets in.
_RECEIVER = f"""
import http.server, json, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open("{HOOK}", "a") as stream:
            stream.write(json.dumps([time.time(), self.headers["Authorization"], body]) + "\\n")
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
"""


_FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"


class Fleet:
    """A server, which has exporters too, and two more nodes with some."""

    def __init__(self, server: Node, others: list[Node], folder: Path) -> None:
        self.server, self.others = server, others
        self.path = folder / "fleet.yml"
        self.inventory: dict[str, Any] = yaml.safe_load(node.inventory([each.name for each in (server, *others)]))
        hosts = self.inventory["all"]["hosts"]
        for each in (server, *others):
            hosts[each.name]["gpuwright_want"] = ["monitoring"]
        for each in others:
            hosts[each.name]["monitoring_address"] = address(each)
        hosts[server.name] |= {
            "gpuwright_want": ["monitoring-server", "monitoring"],
            "monitoring_receivers": {"hook": {"webhook": {"url": "http://127.0.0.1:8099/hook", "token": SECRET}}},
            "monitoring_retention_size": "1GB",
        }

    def run(self, verb: str, *arguments: str) -> Run:
        """A verb for the server alone, with what the inventory says by now."""
        # The exporters are another component's business: on nodes without cards they are the stand-ins of a test.
        self.path.write_text(yaml.safe_dump(self.inventory))
        more = ("--yes",) if verb in ("up", "remove") else ()
        report = self.path.with_name(f"report-{time.monotonic_ns()}")
        where = ("-i", self.path, "-l", self.server.name, "--json", "--report", report)
        return gpuwright(verb, *more, *where, *arguments)

    def ask(self, path: str) -> Any:
        """What Prometheus answers."""
        return self.fetch(f"http://127.0.0.1:9090{path}")["data"]

    def fetch(self, url: str) -> Any:
        """The document at an address of the server."""
        return json.loads(self.server.shell(f"python3 -c {shlex.quote(_FETCH)} {shlex.quote(url)}"))

    def query(self, expression: str) -> list[Any]:
        """What a query finds now."""
        found: list[Any] = self.ask(f"/api/v1/query?query={quote(expression)}")["result"]
        return found

    def targets(self) -> dict[tuple[str, str], str]:
        """The health of each exporter, by host and job."""
        rows = self.ask("/api/v1/targets?state=active")["activeTargets"]
        return {(row["labels"]["host"], row["labels"]["job"]): row["health"] for row in rows}

    def told(self) -> list[tuple[float, str, dict[str, Any]]]:
        """Each alert that reached the webhook, with its time and the header."""
        lines = self.server.shell(f"cat {HOOK}", check=False).splitlines()
        return [(when, header, alert) for when, header, body in map(json.loads, lines) for alert in body["alerts"]]


def address(machine: Node) -> str:
    """The address of a node in the network of all nodes."""
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return engine.docker_text("inspect", "--format", form, settings.container_name(machine.name)).strip()


def eventually(holds: Callable[[], bool], seconds: int) -> None:
    """Fail where something does not hold within some seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(2)


@pytest.fixture(scope="module")
def fleet(make_shared_node: Callable[[str, str], Node], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Three machines with exporters; the first becomes the server."""
    server, *others = (make_shared_node(name, "no-gpu") for name in ("mon-server", "mon-a", "mon-b"))
    exporters.install(server, "127.0.0.1")
    for each in others:
        exporters.install(each, address(each))
    exporters.say(others[0], idle(others[0]))
    exporters.write(server, "/root/receiver.py", _RECEIVER)
    server.shell("systemd-run --unit=test-receiver python3 /root/receiver.py")
    return Fleet(server, others, tmp_path_factory.mktemp("fleet"))


def test_the_plan_says_where_it_listens_and_has_no_secret(fleet: Fleet) -> None:
    run = fleet.run("plan")
    assert run.code == 0, str(run)
    (change,) = [row for row in run.host["changes"] if row["component"] == "monitoring_server"]
    assert "will listen on 127.0.0.1:9090 and 127.0.0.1:9093 alone" in change["reason"]
    assert {row["name"] for row in change["packages"]} == {"prometheus", "prometheus-alertmanager"}
    assert run.report
    assert SECRET not in "".join(path.read_text(errors="replace") for path in run.report.rglob("*") if path.is_file())


def test_a_budget_that_the_disk_does_not_have_is_refused_before_any_change(fleet: Fleet) -> None:
    before = fleet.server.tree()
    fleet.inventory["all"]["hosts"][fleet.server.name]["monitoring_retention_size"] = "900TB"
    refused = fleet.run("up")
    fleet.inventory["all"]["hosts"][fleet.server.name]["monitoring_retention_size"] = "1GB"
    assert refused.code == 3, str(refused)
    assert "no-space" in refused.stdout
    assert fleet.server.tree() == before


def test_the_server_comes_up_and_every_exporter_of_the_inventory_answers(fleet: Fleet) -> None:
    # What listens at any time while it is installed is written down: nothing may on every address.
    fleet.server.shell(
        "systemd-run --unit=test-listeners sh -c 'while sleep 0.1; do ss -Hltn >> /root/listeners; done'"
    )
    run = fleet.run("up")
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    fleet.server.shell("systemctl stop test-listeners")
    listened = set(re.findall(r"\S+:(?:909\d|9100|9400)\b", fleet.server.shell("cat /root/listeners")))
    assert listened == {f"127.0.0.1:{port}" for port in (9090, 9093, 9100, 9400)}

    hosts = [fleet.server.name, *(each.name for each in fleet.others)]
    wished = {(host, job): "up" for host in hosts for job in ("gpu", "node")}
    eventually(lambda: fleet.targets() == wished, 60)
    (check,) = [row for row in fleet.run("doctor").host["checks"] if row["id"] == "monitoring.targets"]
    assert (check["status"], check["measured"]) == ("pass", 6)
    for metric in ("DCGM_FI_DEV_GPU_UTIL", "gpuwright_gpus", "node_load1"):
        assert {row["metric"]["host"] for row in fleet.query(metric)} == set(hosts), metric


def test_secrets_are_in_files_that_the_server_reads_and_nowhere_else(fleet: Fleet) -> None:
    found = fleet.server.shell(f"grep -rlF {SECRET} /etc /var/lib /var/log /run /root /home /tmp", check=False).split()
    assert found == [f"{FILES}secret-hook"]
    assert fleet.server.shell(f"stat -c '%a %U:%G' {FILES}secret-hook").strip() == "640 root:prometheus"
    assert fleet.server.shell(f"journalctl --no-pager | grep -cF {SECRET}", check=False).strip() == "0"


def test_the_next_run_changes_nothing_also_when_it_looks_at_everything(fleet: Fleet) -> None:
    again = fleet.run("up")
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    full = fleet.run("up", "--full")
    assert (full.code, full.changed) == (0, 0), str(full)


def test_every_query_of_every_dashboard_finds_something(fleet: Fleet) -> None:
    first = fleet.others[0]
    told = idle(first)
    # What is not there on a machine that is well: an alert, a check that fails; and a job, which not every exporter knows.
    told['gpuwright_xid_total{xid="13",pci_bus_id="00000000:02:00.0"}'] = 1
    job = '{hpc_job="4711",namespace="team",pod="train",container="main",gpu="1",'
    told = {name.replace('{gpu="1",', job) if "DCGM_" in name else name: value for name, value in told.items()}
    told['gpuwright_check_failed{check="repair.channel",severity="critical",gpu="1"}'] = 1
    told['gpuwright_disk_class_info{mountpoint="/",class="nvme"}'] = 1
    told['gpuwright_info{version="1",driver="580.159.03",driver_branch="580",kernel="6.12",os="debian-13"}'] = 1
    exporters.say(first, told)
    meant = {"$__rate_interval": "1m", "$host": first.name, "$gpu": "1"}
    queries = {}
    for path in DASHBOARDS.glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in meant.items():
                    expression = expression.replace(variable, value)
                queries[path.stem, panel["title"], expression] = False
    assert len(queries) > 50

    def all_found() -> bool:
        for key, found in queries.items():
            queries[key] = found or bool(fleet.query(key[2]))
        return all(queries.values())

    with contextlib.suppress(AssertionError):
        eventually(all_found, 120)
    assert [key for key, found in queries.items() if not found] == []


def idle(machine: Node) -> dict[str, float]:
    """What a machine tells one of whose cards is held by a job that does nothing."""
    told = exporters.healthy(machine.name)
    return {**told, **{name: 0 for name in told if "DEV_GPU_UTIL" in name and 'gpu="0"' in name}}


def test_ten_alerts_and_more_reach_the_webhook_within_a_minute_after_their_wait(fleet: Fleet) -> None:
    """By rules whose wait is half a minute: how long each really waits, promtool holds in the unit tests."""
    wait = 30
    server, (first, second) = fleet.server, fleet.others
    server.shell(f"sed -i 's/^\\( *for:\\) .*/\\1 {wait}s/' {FILES}alerts.yml && systemctl reload prometheus")
    for each in (server, first, second):
        exporters.say(each, exporters.healthy(each.name))
    card = 'gpu="1"'
    broken = exporters.healthy(first.name)
    faults = {
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 1, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1, "DCGM_FI_DEV_GPU_TEMP": 90,
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0x80, "DCGM_FI_DEV_FABRIC_MANAGER_STATUS": 4,
    }  # fmt: skip
    broken |= {
        name: faults[name.partition("{")[0]] for name in broken if name.partition("{")[0] in faults and card in name
    }
    broken |= {"gpuwright_xid_total" + '{xid="79",pci_bus_id="00000000:02:00.0"}': 1}
    broken |= {"gpuwright_xid_total" + '{xid="63",pci_bus_id="00000000:02:00.0"}': 1}
    machine = exporters.healthy(second.name)
    machine |= {"gpuwright_driver_library_mismatch{}": 1, "gpuwright_drift{}": 2, "gpuwright_gpus{}": 1}
    machine |= {"gpuwright_driver_security_floor_ok{}": 0, "DCGM_FI_DEV_ROW_REMAP_PENDING" + '{gpu="1"}': 1}
    expected = {
        *("GpuEccUncorrectable", "GpuRowRemapFailed", "GpuHot", "GpuPowerBrake", "FabricManagerDown", "GpuXidCritical"),
        *("GpuXidWarning", "DriverLibraryMismatch", "Drift", "GpuLost", "DriverInsecure", "GpuRowRemapPending"),
        "ExporterGone",
    }  # fmt: skip
    # Before, all is well and silent; what fired is looked at once more.
    time.sleep(60)
    eventually(lambda: fleet.query('ALERTS{alertstate="firing"}') == [], 60)
    server.shell(f"rm -f {HOOK}")
    begun = time.time()
    exporters.say(first, broken)
    exporters.say(second, machine)
    server.shell("systemctl stop test-gpu-exporter")
    eventually(lambda: {alert["labels"]["alertname"] for _when, _header, alert in fleet.told()} >= expected, wait + 90)
    rules = {alert.name: alert for alert in alerts()}
    late = {}
    for when, header, alert in fleet.told():
        name = alert["labels"]["alertname"]
        assert header == f"Bearer {SECRET}"
        assert name in expected, alert
        assert alert["labels"]["host"] in {server.name, first.name, second.name}
        assert alert["annotations"]["runbook"] == f"docs/monitoring.md#{name.lower()}"
        took = when - begun - (wait if rules[name].wait else 0)
        late[name] = round(took)
    assert {name: took for name, took in late.items() if took > 60} == {}


def test_a_machine_that_is_gone_silences_the_rest_of_it(fleet: Fleet) -> None:
    second = fleet.others[1]
    second.shell("systemctl stop test-gpu-exporter test-node-exporter")
    firing = f'ALERTS{{alertstate="firing",alertname="NodeGone",host="{second.name}"}}'
    eventually(lambda: bool(fleet.query(firing)), 120)

    def silenced() -> bool:
        rows = fleet.fetch("http://127.0.0.1:9093/api/v2/alerts")
        mine = [row for row in rows if row["labels"].get("host") == second.name]
        return {row["labels"]["alertname"] for row in mine if row["status"]["state"] == "active"} == {"NodeGone"}

    eventually(silenced, 60)
    second.shell("systemctl start test-gpu-exporter test-node-exporter")


def test_what_somebody_broke_by_hand_is_named_and_mended(fleet: Fleet) -> None:
    # The rules whose wait was shortened are one thing more.
    fleet.server.shell("systemctl disable --now prometheus-alertmanager; systemctl start test-gpu-exporter")
    (check,) = [row for row in fleet.run("doctor").host["checks"] if row["id"] == "monitoring.server"]
    assert (check["status"], check["reason"]) == ("fail", "prometheus-alertmanager.service does not run")
    mended = fleet.run("up")
    assert (mended.code, mended.components) == (0, {"monitoring_server"}), str(mended)
    assert "for: 30s" not in fleet.server.shell(f"cat {FILES}alerts.yml")
    assert "for: 15m" in "\n".join(
        f"for: {rule['duration'] // 60:.0f}m"
        for group in fleet.ask("/api/v1/rules")["groups"]
        for rule in group["rules"]
        if rule["type"] == "alerting"
    )


def test_what_was_written_and_not_read_before_a_cut_is_read_by_the_next_run(fleet: Fleet) -> None:
    fleet.server.shell(f"touch {FILES}prometheus.yml")
    (check,) = [row for row in fleet.run("doctor").host["checks"] if row["id"] == "monitoring.server"]
    assert (check["status"], check["reason"]) == ("fail", "prometheus.service has not read what was written")
    started = fleet.server.shell("systemctl show --property=ExecMainStartTimestampMonotonic prometheus")
    mended = fleet.run("up")
    assert mended.code == 0, str(mended)
    assert fleet.server.shell("systemctl show --property=ExecMainStartTimestampMonotonic prometheus") == started


def test_a_host_that_leaves_and_a_receiver_less_are_gone_with_the_next_run(fleet: Fleet) -> None:
    hosts = fleet.inventory["all"]["hosts"]
    gone = fleet.others[1].name
    hosts[gone]["gpuwright_want"] = []
    hosts[fleet.server.name]["monitoring_receivers"] = {}
    run = fleet.run("up")
    assert run.code == 0, str(run)
    eventually(lambda: {host for host, _job in fleet.targets()} == set(hosts) - {gone}, 30)
    assert fleet.server.shell(f"ls {FILES}secret-hook", check=False) == ""


def test_it_goes_on_after_a_boot(fleet: Fleet) -> None:
    fleet.server.reboot()
    fleet.server.shell("systemctl start test-gpu-exporter test-node-exporter")
    eventually(lambda: bool(fleet.targets()), 60)
    assert fleet.query("count_over_time(node_load1[30m]) > 4"), "what was kept before the boot is there"


def test_remove_takes_the_server_and_leaves_the_metrics(fleet: Fleet) -> None:
    gone = fleet.run("remove", "--no-reboot")
    assert gone.code == 0, str(gone)
    ours = "ls /etc/gpuwright | grep -v simulated; ls -d /etc/systemd/system/prometheus*.d"
    assert fleet.server.shell(ours, check=False) == ""
    assert fleet.server.shell("dpkg -l prometheus prometheus-alertmanager | grep ^ii", check=False) == ""
    assert fleet.server.shell("ss -Hltn | grep -E ':(9090|9093) '", check=False) == ""
    assert int(fleet.server.shell("du -s /var/lib/prometheus/gpuwright/metrics | cut -f1")) > 0

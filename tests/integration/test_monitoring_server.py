"""A server of metrics with a fleet: real Prometheus, Alertmanager and node_exporter of the archive; gpuwright's own exporter and watch on
three nodes with cards; faults of these, and what reaches the webhook.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring.alerts import alerts
from tests.sim import engine, node, settings
from tests.sim.shell import SimulationError

from . import exporters
from .conftest import Node, Run, gpuwright
from .test_monitoring_exporters import _HASH, _PAIR, certificate

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="monitoring")]

DASHBOARDS = Path(__file__).parents[2] / "plugins/plugin_utils/monitoring/dashboards"
SECRET = "n0-0ne-reads-th1s"
FILES = "/etc/gpuwright/monitoring-server-"
#: The password whose hash the exporters of one node have, and the second server of metrics.
PASSWORD = "scrape"
AUTHORITY = "/etc/ssl/fleet.pem"
NODE_EXPORTER = "prometheus-node-exporter"
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


_FETCH = """
import base64, sys, urllib.request
request = urllib.request.Request(sys.argv[1])
if sys.argv[2:]:
    request.add_header("Authorization", "Basic " + base64.b64encode(sys.argv[2].encode()).decode())
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""


class Fleet:
    """A server without a card, and three nodes with two cards each. The first of them speaks TLS, and asks for a password."""

    def __init__(self, server: Node, others: list[Node], folder: Path) -> None:
        self.server, self.others = server, others
        self.path = folder / "fleet.yml"
        self.inventory: dict[str, Any] = yaml.safe_load(node.inventory([each.name for each in (server, *others)]))
        hosts = self.inventory["all"]["hosts"]
        for each in others:
            hosts[each.name] |= {"gpuwright_want": ["driver=580", "monitoring=smi", "watch"]}
            hosts[each.name] |= {"monitoring_address": address(each)}
        hosts[others[0].name] |= {"monitoring_tls": _PAIR, "monitoring_users": {"prometheus": _HASH}}
        hosts[server.name] |= {
            "gpuwright_want": ["monitoring-server", "monitoring"],
            "gpuwright_gpus_expected": 0,
            "monitoring_scrape": {"username": "prometheus", "password": PASSWORD, "ca": AUTHORITY},
            "monitoring_remote_write": [
                {"url": "http://127.0.0.1:9091/api/v1/write", "user": "gpu", "password": PASSWORD}
            ],
            "monitoring_receivers": {"hook": {"webhook": {"url": "http://127.0.0.1:8099/hook", "token": SECRET}}},
            "monitoring_retention_size": "1GB",
        }

    def run(self, verb: str, *arguments: str, on: str = "") -> Run:
        """A verb for the server alone, or for other nodes, with what the inventory says by now."""
        self.path.write_text(yaml.safe_dump(self.inventory))
        more = ("--yes",) if verb in ("up", "remove") else ()
        report = self.path.with_name(f"report-{time.monotonic_ns()}")
        where = ("-i", self.path, "-l", on or self.server.name, "--json", "--report", report)
        return gpuwright(verb, *more, *where, *arguments)

    def ask(self, path: str) -> Any:
        """What Prometheus answers."""
        return self.fetch(f"http://127.0.0.1:9090{path}")["data"]

    def fetch(self, url: str, login: str = "") -> Any:
        """The document at an address of the server."""
        return json.loads(
            self.server.shell(f"python3 -c {shlex.quote(_FETCH)} {shlex.join([url, *filter(None, [login])])}")
        )

    def query(self, expression: str) -> list[Any]:
        """What a query finds now."""
        found: list[Any] = self.ask(f"/api/v1/query?query={quote(expression)}")["result"]
        return found

    def active(self) -> set[tuple[str, str]]:
        """Host and name of each alert that Alertmanager has and that nothing silences."""
        rows = self.fetch(
            "http://127.0.0.1:9093/api/v2/alerts", f"gpuwright:{self.server.shell(f'cat {FILES}alerts-password')}"
        )
        return {
            (row["labels"].get("host", ""), row["labels"]["alertname"])
            for row in rows
            if row["status"]["state"] == "active"
        }

    def targets(self) -> dict[tuple[str, str], str]:
        """The health of each exporter, by host and job."""
        rows = self.ask("/api/v1/targets?state=active")["activeTargets"]
        return {(row["labels"]["host"], row["labels"]["job"]): row["health"] for row in rows}

    def told(self) -> list[tuple[float, str, dict[str, Any]]]:
        """Each alert that reached the webhook, with its time and the header."""
        lines = self.server.shell(f"cat {HOOK}", check=False).splitlines()
        return [(when, header, alert) for when, header, body in map(json.loads, lines) for alert in body["alerts"]]


#: In the network of all nodes Docker gives a node that boots whichever address is free. In this one each keeps its own.
_WIRES = f"{settings.NETWORK}-fleet"
_CLONE = bytes.fromhex(settings.INSTANCE)
_SUBNET = f"10.{200 + _CLONE[0] % 50}.{_CLONE[1]}"


@pytest.fixture(scope="module")
def wires() -> Iterator[Callable[[Node, int], None]]:
    """Gives a node an address that stays over its boots."""
    there: list[str] = []
    engine.docker("network", "rm", _WIRES, check=False)  # of a run that was cut off
    engine.docker("network", "create", "--label", settings.INSTANCE_LABEL, "--subnet", f"{_SUBNET}.0/24", _WIRES)

    def connect(machine: Node, number: int) -> None:
        there.append(settings.container_name(machine.name))
        engine.docker("network", "connect", "--ip", f"{_SUBNET}.{number}", _WIRES, there[-1])

    yield connect
    for name in there:
        engine.docker("network", "disconnect", "--force", _WIRES, name, check=False)
    engine.docker("network", "rm", _WIRES)


def address(machine: Node) -> str:
    """The address that a node keeps."""
    form = f'{{{{(index .NetworkSettings.Networks "{_WIRES}").IPAddress}}}}'
    return engine.docker_text("inspect", "--format", form, settings.container_name(machine.name)).strip()


def eventually(holds: Callable[[], bool], seconds: int = 600) -> None:
    """Fail where something does not hold within so many seconds, which a busy machine needs. Who does not answer yet is asked again."""
    end = time.monotonic() + seconds
    while not _holds(holds):
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(2)


def _holds(asked: Callable[[], bool]) -> bool:
    try:
        return asked()
    except SimulationError:
        return False


@pytest.fixture(scope="module")
def fleet(
    make_shared_node: Callable[[str, str], Node],
    wires: Callable[[Node, int], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Fleet:
    """Three nodes with cards, proven, with exporters and a watch; and one without a card that becomes their server."""
    server = make_shared_node("mon-server", "no-gpu")
    others = [make_shared_node(name, "two-h100") for name in ("mon-a", "mon-b", "mon-c")]
    for number, each in enumerate((server, *others), 10):
        wires(each, number)
    found = Fleet(server, others, tmp_path_factory.mktemp("fleet"))
    certificate(others[0], address=address(others[0]))
    exporters.write(server, AUTHORITY, others[0].shell(f"cat {_PAIR['certificate']}"))
    run = found.run("up", on=",".join(each.name for each in others))
    assert run.code == 0, str(run)
    for each in others:
        turn(each)
    exporters.write(server, "/root/receiver.py", _RECEIVER)
    server.shell("systemd-run --unit=test-receiver python3 /root/receiver.py")
    return found


def listening(sockets: str) -> set[str]:
    """Where something listens by the words of `ss -Hltn`, but the way to the node and the resolver of its network."""
    places = {line.split()[3] for line in sockets.splitlines()}
    return {place for place in places if not re.search(r":22$|^127[.]0[.]0[.]11:", place)}


def turn(machine: Node) -> None:
    """Have the watch look now: it writes what node_exporter tells."""
    machine.shell("systemctl start gpuwright-watch.service")


def xid(machine: Node, number: int) -> None:
    """Have the driver write an error into the kernel log, which the watch reads."""
    line = f"[ 4711.000000] NVRM: Xid (PCI:0000:18:00): {number}, pid='<unknown>', name=<unknown>, by a test"
    machine.shell(f"echo {shlex.quote(line)} >> /run/gpuwright-sim/kernel.log")


def test_the_plan_says_where_it_listens_and_has_no_secret(fleet: Fleet) -> None:
    run = fleet.run("plan")
    assert run.code == 0, str(run)
    (change,) = [row for row in run.host["changes"] if row["component"] == "monitoring_server"]
    assert "will listen on 127.0.0.1:9090 and 127.0.0.1:9093 alone" in change["reason"]
    assert {row["name"] for row in change["packages"]} == {"prometheus", "prometheus-alertmanager"}
    assert "no NVIDIA GPU: the exporter of this machine comes alone" in str(run.host["warnings"])
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
    # The receiver of this test may come yet.
    before = listening(fleet.server.shell("ss -Hltn")) | {"127.0.0.1:8099"}
    # What listens at any time while it is installed is written down: nothing may on every address.
    fleet.server.shell(
        "systemd-run --unit=test-listeners sh -c 'while sleep 0.1; do ss -Hltn >> /root/listeners; done'"
    )
    run = fleet.run("up")
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    fleet.server.shell("systemctl stop test-listeners")
    assert listening(fleet.server.shell("cat /root/listeners")) - before == {
        f"127.0.0.1:{port}" for port in (9090, 9093, 9100)
    }
    # What docs/security.md says of who listens where is all that there is.
    page = (settings.CLONE / "docs/security.md").read_text()
    told = set(re.findall(r"^[|] (\d+) [|]", page, re.MULTILINE))
    for each in fleet.others:
        ports = {place.rpartition(":")[2] for place in listening(each.shell("ss -Hltn"))}
        assert {"9100", "9400"} <= ports <= told, ports

    hosts = [each.name for each in fleet.others]
    wished = {(host, job): "up" for host in hosts for job in ("gpu", "node")} | {(fleet.server.name, "node"): "up"}
    eventually(lambda: fleet.targets() == wished)
    (check,) = [row for row in fleet.run("doctor").host["checks"] if row["id"] == "monitoring.targets"]
    assert (check["status"], check["measured"]) == ("pass", 7)
    for metric in ("DCGM_FI_DEV_GPU_UTIL", "gpuwright_exporter_up", "gpuwright_gpus"):
        assert {row["metric"]["host"] for row in fleet.query(metric)} == set(hosts), metric
    assert {row["metric"]["host"] for row in fleet.query("node_load1")} == {fleet.server.name, *hosts}
    asked = fleet.ask("/api/v1/targets?state=active")["activeTargets"]
    by_tls = [row["labels"]["host"] for row in asked if row["scrapeUrl"].startswith("https:")]
    assert by_tls == [hosts[0]] * 2


def test_what_is_kept_is_sent_on_to_another_server(fleet: Fleet) -> None:
    """To the archive's Prometheus once more, which takes what one user sends."""
    exporters.write(fleet.server, "/root/second.yml", "{}\n")
    exporters.write(fleet.server, "/root/web.yml", json.dumps({"basic_auth_users": {"gpu": _HASH}}))
    fleet.server.shell(
        "systemd-run --unit=test-second prometheus --config.file=/root/second.yml --web.config.file=/root/web.yml "
        "--web.enable-remote-write-receiver --storage.tsdb.path=/var/tmp/second --web.listen-address=127.0.0.1:9091"
    )
    hosts = {fleet.server.name, *(each.name for each in fleet.others)}

    def arrived() -> bool:
        with contextlib.suppress(SimulationError):
            found = fleet.fetch("http://127.0.0.1:9091/api/v1/query?query=node_load1", f"gpu:{PASSWORD}")
            return {row["metric"]["host"] for row in found["data"]["result"]} == hosts
        return False

    eventually(arrived)


def test_secrets_are_in_files_that_the_server_reads_and_nowhere_else(fleet: Fleet) -> None:
    found = fleet.server.shell(f"grep -rlF {SECRET} /etc /var/lib /var/log /run /root /home /tmp", check=False).split()
    assert found == [f"{FILES}secret-hook"]
    assert fleet.server.shell(f"stat -c '%a %U:%G' {FILES}secret-hook").strip() == "640 root:prometheus"
    assert fleet.server.shell(f"journalctl --no-pager | grep -cF {SECRET}", check=False).strip() == "0"
    # On the loopback everybody of the machine reaches Alertmanager: who silences alerts there has its password.
    asked = f"runuser -u nobody -- python3 -c {shlex.quote(_FETCH)} http://127.0.0.1:9093/api/v2/silences 2>&1"
    assert "HTTP Error 401" in fleet.server.shell(asked, check=False)
    both = f"{FILES}alerts-password {FILES}alerts-web.yml"
    assert fleet.server.shell(f"stat -c '%a %U:%G' {both}").split("\n")[:-1] == ["640 root:prometheus"] * 2


def test_the_next_run_changes_nothing_also_when_it_looks_at_everything(fleet: Fleet) -> None:
    again = fleet.run("up", "--full")
    assert (again.code, again.changed) == (0, 0), str(again)


#: Seconds between two looks of gpuwright's own exporter.
LOOKS = 15
#: What only DCGM tells.
OF_DCGM = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0x80, "DCGM_FI_DEV_FABRIC_MANAGER_STATUS": 4,
}  # fmt: skip


def test_ten_alerts_and_more_reach_the_webhook_within_a_minute_after_their_wait(fleet: Fleet) -> None:
    """From a fault of a node to the webhook, by rules whose wait is half a minute: how long each really waits, promtool holds in the unit
    tests.
    """
    wait = 30
    (first, second, third), names = fleet.others, [each.name for each in fleet.others]
    # What a cause explains waits longer than the cause, as it does in truth: the two are seen up to two looks apart.
    shorter = f"s/^\\( *for:\\) .*/\\1 {wait}s/; /alert: CheckFailed/,/for:/s/^\\( *for:\\) .*/\\1 {2 * wait}s/"
    fleet.server.shell(f"sed -i '{shorter}' {FILES}alerts.yml && systemctl reload prometheus")
    by_exporter = {
        (names[0], "GpuEccUncorrectable"), (names[0], "GpuRowRemapPending"), (names[0], "GpuHot"), (names[2], "GpuLost"),
    }  # fmt: skip
    by_watch = {
        (names[0], "Drift"), (names[0], "GpuXidWarning"), (names[1], "DriverLibraryMismatch"), (names[2], "GpuXidCritical"),
        # The module that is loaded beside newer libraries is below the floor.
        (names[1], "DriverInsecure"),
    }  # fmt: skip
    by_textfile = {(names[1], name) for name in ("GpuRowRemapFailed", "GpuPowerBrake", "FabricManagerDown")}
    # Before, all is well and silent; what fired is looked at once more.
    time.sleep(60)
    eventually(lambda: fleet.query('ALERTS{alertstate="firing"}') == [])
    fleet.server.shell(f"rm -f {HOOK}")

    begun = dict.fromkeys(by_exporter, time.time() + LOOKS)
    first.fault("ecc:1")
    first.fault("throttling:1")
    third.fault("fallen-off-bus:1")
    first.shell("echo '# by hand' >> /etc/modprobe.d/gpuwright-nouveau.conf")
    xid(first, 63)
    second.fault("version-mismatch")
    xid(third, 79)
    for each in fleet.others:
        turn(each)
    # Both cards: of one alone the other would be lost, as gpuwright's own exporter has no values beside two versions of the driver.
    told = {name: OF_DCGM.get(name.partition("{")[0], value) for name, value in exporters.card(second, 1).items()}
    exporters.tell(second, exporters.card(second, 0) | told)
    begun |= dict.fromkeys(by_watch | by_textfile, time.time())

    def heard() -> set[tuple[str, str]]:
        return {(alert["labels"]["host"], alert["labels"]["alertname"]) for _when, _header, alert in fleet.told()}

    eventually(lambda: heard() >= begun.keys(), wait + 120)
    rules, late = {alert.name: alert for alert in alerts()}, {}
    for when, header, alert in fleet.told():
        host, name = alert["labels"]["host"], alert["labels"]["alertname"]
        assert header == f"Bearer {SECRET}"
        assert (host, name) in begun, alert
        assert alert["annotations"]["runbook"] == f"docs/monitoring.md#{name.lower()}"
        late[host, name] = round(when - begun[host, name] - (wait if rules[name].wait else 0))
    assert {key: took for key, took in late.items() if took > 60} == {}


def test_every_query_of_every_dashboard_finds_something(fleet: Fleet) -> None:
    """While a node has faults: a check that fails, and an Xid, are not there where all is well. By a textfile: jobs on two cards, one of
    which does nothing, and a fabric manager.
    """
    first = fleet.others[0]
    job = 'hpc_job="4711",namespace="team",pod="train",container="main",'
    held = {name: 0 if "_GPU_UTIL" in name else value for name, value in exporters.card(first, 0, job).items()}
    exporters.tell(first, {**held, **exporters.card(first, 1, job), "gpuwright_fabric_manager_active": 1})
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
        eventually(all_found)
    assert [key for key, found in queries.items() if not found] == []


def test_an_exporter_that_is_gone_is_told_and_a_machine_that_is_gone_silences_it(fleet: Fleet) -> None:
    second = fleet.others[1]
    # Two versions of the driver would be the reason for an exporter that is gone, and silence it.
    second.fault("version-mismatch", clear=True)
    turn(second)
    eventually(lambda: (second.name, "DriverLibraryMismatch") not in fleet.active())
    # Without its socket: the next question would start it again.
    second.shell("systemctl stop gpuwright-gpu-exporter.socket gpuwright-gpu-exporter")
    eventually(lambda: (second.name, "ExporterGone") in fleet.active())
    second.shell(f"systemctl stop gpuwright-node-exporter.socket {NODE_EXPORTER}")
    eventually(lambda: {name for host, name in fleet.active() if host == second.name} == {"NodeGone"})
    second.shell(f"systemctl start gpuwright-gpu-exporter {NODE_EXPORTER}")  # and the sockets with them


def test_what_somebody_broke_by_hand_is_named_and_mended(fleet: Fleet) -> None:
    # The rules whose wait was shortened are one thing more.
    fleet.server.shell(f"systemctl disable --now prometheus-alertmanager; rm {FILES}alerts-password")
    (check,) = [row for row in fleet.run("doctor").host["checks"] if row["id"] == "monitoring.server"]
    assert (check["status"], check["reason"]) == ("fail", "prometheus-alertmanager.service does not run")
    mended = fleet.run("up")
    assert (mended.code, mended.components) == (0, {"monitoring_server"}), str(mended)
    assert "for: 30s" not in fleet.server.shell(f"cat {FILES}alerts.yml")
    fleet.active()  # by the new password
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
    hosts[gone]["gpuwright_want"] = ["driver=580"]
    hosts[fleet.server.name] |= {"monitoring_receivers": {}, "monitoring_remote_write": []}
    run = fleet.run("up")
    assert run.code == 0, str(run)
    eventually(lambda: {host for host, _job in fleet.targets()} == set(hosts) - {gone})
    assert fleet.server.shell(f"ls {FILES}secret-*").split() == [f"{FILES}secret-scrape"]


def test_it_goes_on_after_a_boot(fleet: Fleet) -> None:
    fleet.server.reboot()
    eventually(lambda: bool(fleet.targets()))
    assert fleet.query("count_over_time(node_load1[30m]) > 4"), "what was kept before the boot is there"


def test_remove_takes_the_server_and_leaves_the_metrics(fleet: Fleet) -> None:
    gone = fleet.run("remove", "--no-reboot")
    assert gone.code == 0, str(gone)
    ours = "ls /etc/gpuwright | grep -v simulated; ls -d /etc/systemd/system/prometheus*.d"
    assert fleet.server.shell(ours, check=False) == ""
    assert fleet.server.shell("dpkg -l prometheus prometheus-alertmanager | grep ^ii", check=False) == ""
    assert fleet.server.shell("ss -Hltn | grep -E ':(9090|9093) '", check=False) == ""
    assert int(fleet.server.shell("du -s /var/lib/prometheus/gpuwright/metrics | cut -f1")) > 0

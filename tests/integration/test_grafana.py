"""Grafana beside the server of metrics: the stand-in of Grafana Labs' package, real Prometheus; from what is in the way to its end."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sim import node, settings

from .conftest import Node, Run, gpuwright
from .test_monitoring_server import DASHBOARDS, eventually

pytestmark = [pytest.mark.sim, pytest.mark.soak(part="monitoring")]

PASSWORD_FILE = "/etc/gpuwright/monitoring-server-grafana-password"
DROP_IN = "/etc/systemd/system/grafana-server.service.d/gpuwright.conf"
SECRET = "n0-0ne-reads-th1s"
_ASK = """
import sys, urllib.error, urllib.request
question = urllib.request.Request(sys.argv[1], headers={"Authorization": sys.argv[2]} if sys.argv[2:] else {})
try:
    print(urllib.request.urlopen(question, timeout=60).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""


class Server:
    """A machine without a card that becomes a server with Grafana."""

    def __init__(self, machine: Node, folder: Path) -> None:
        self.machine = machine
        self.path = folder / "server.yml"
        self.inventory: dict[str, Any] = yaml.safe_load(node.inventory([machine.name]))
        self.variables = self.inventory["all"]["hosts"][machine.name]
        self.variables |= {
            "gpuwright_want": ["monitoring-server"],
            "monitoring_grafana": True,
            "monitoring_retention_size": "1GB",
        }

    def run(self, verb: str, *arguments: str, **variables: Any) -> Run:
        """A verb, with variables for this run alone."""
        told = {**self.variables, **variables}
        hosts = {**self.inventory["all"], "hosts": {self.machine.name: told}}
        self.path.write_text(yaml.safe_dump({"all": hosts}))
        more = ("--yes",) if verb in ("up", "remove") else ()
        report = self.path.with_name(f"report-{len(list(self.path.parent.iterdir()))}")
        return gpuwright(verb, *more, "-i", self.path, "--json", "--report", report, *arguments)

    def password(self) -> str:
        """The password of its admin."""
        return self.machine.shell(f"cat {PASSWORD_FILE}")

    def ask(self, path: str, password: str | None = None) -> Any:
        """What Grafana answers to its admin, or to anybody."""
        asked = [f"http://127.0.0.1:3000{path}"]
        if password is not None:
            asked.append("Basic " + base64.b64encode(f"admin:{password}".encode()).decode())
        return json.loads(self.machine.shell(f"python3 -c {shlex.quote(_ASK)} {shlex.join(asked)}"))

    def titles(self) -> set[str]:
        """The titles of all dashboards that Grafana has."""
        return {row["title"] for row in self.ask("/api/search", self.password())}

    def reasons(self, run: Run) -> list[str]:
        """Why a plan has its changes."""
        return [row["reason"] for row in run.host["changes"]]


TITLES = {json.loads(path.read_text())["title"] for path in DASHBOARDS.glob("*.json")}


@pytest.fixture(scope="module")
def server(make_shared_node: Callable[[str, str], Node], tmp_path_factory: pytest.TempPathFactory) -> Server:
    return Server(make_shared_node("grafana", "no-gpu"), tmp_path_factory.mktemp("grafana"))


def test_ports_that_others_hold_are_refused_with_who_holds_them(server: Server) -> None:
    for port in (3000, 9093):
        server.machine.shell(f"systemd-run --unit=test-holds-{port} python3 -m http.server --bind 127.0.0.1 {port}")
    eventually(lambda: server.machine.shell("ss -Hltn | grep -cE ':(3000|9093) '", check=False).strip() == "2")
    refused = server.run("plan")
    server.machine.shell("systemctl stop test-holds-3000 test-holds-9093")
    found = [row for row in refused.host["conflicts"] if row["rule"] == "monitoring-server.port"]
    assert [row["text"].partition(",")[0] for row in found] == ["127.0.0.1:9093", "127.0.0.1:3000"], str(refused)
    assert "test-holds-3000.service" in found[1]["text"]
    assert "monitoring_grafana_port" in found[1]["remedy"]


def test_a_repository_that_does_not_answer_is_refused_with_what_there_is_without_it(server: Server) -> None:
    mirrors = {**server.inventory["all"]["vars"]["gpuwright_mirrors"], "grafana": "http://127.0.0.1:9/grafana"}
    refused = server.run("plan", gpuwright_mirrors=mirrors)
    assert refused.code == 3, str(refused)
    (row,) = refused.host["refusals"]
    assert row["rule"] == "index-unreachable"
    assert "leave monitoring_grafana out: the dashboards are files in /etc/gpuwright/dashboards" in row["remedy"]


def test_a_grafana_of_somebody_else_is_left_as_it_is(server: Server) -> None:
    url = f"{settings.REPOSITORY_URL}/grafana/pool/grafana_12.1.1_amd64.deb"
    fetch = f'python3 -c \'import urllib.request; urllib.request.urlretrieve("{url}", "/root/grafana.deb")\''
    server.machine.shell(f"{fetch} && apt-get -qqy install /root/grafana.deb")
    planned = server.run("plan")
    server.machine.shell("apt-get -qqy purge grafana && rm -rf /etc/grafana /var/lib/grafana /root/grafana.deb")
    assert planned.code == 0, str(planned)
    (text,) = [row["text"] for row in planned.host["warnings"] if row["rule"] == "monitoring-server.grafana"]
    assert "import the files in /etc/gpuwright/dashboards there" in text
    assert "grafana" not in {row["name"] for change in planned.host["changes"] for row in change["packages"]}


def test_the_plan_says_where_it_listens_and_where_the_password_will_be(server: Server) -> None:
    run = server.run("plan")
    assert run.code == 0, str(run)
    source, change = (row for row in run.host["changes"] if row["component"] == "monitoring_server")
    assert source["files"] == ["/etc/apt/sources.list.d/gpuwright-grafana.sources"]
    assert "127.0.0.1:9090, 127.0.0.1:9093 and 127.0.0.1:3000 alone" in change["reason"]
    assert PASSWORD_FILE in change["reason"]
    assert {row["name"]: row["version"] for row in change["packages"]}["grafana"] == "13.2.2"


def test_it_comes_up_with_the_data_source_and_every_dashboard(server: Server) -> None:
    run = server.run("up")
    assert (run.code, run.host["verdict"]) == (0, "pass"), str(run)
    assert server.machine.shell("ss -Hltn | grep -oE '\\S+:3000 '").split() == ["127.0.0.1:3000"]
    assert server.ask("/api/health")["database"] == "ok"
    (source,) = server.ask("/api/datasources", server.password())
    assert (source["uid"], source["url"], source["isDefault"]) == ("gpuwright", "http://127.0.0.1:9090", True)
    assert server.titles() == TITLES


def test_nobody_gets_in_with_what_everybody_knows(server: Server) -> None:
    assert server.ask("/api/search") == 401
    assert server.ask("/api/search", "admin") == 401


def test_the_password_is_in_one_file_and_in_no_record(server: Server) -> None:
    secret = server.password()
    assert len(secret) == 24
    assert server.machine.shell(f"stat -c '%a %U:%G' {PASSWORD_FILE}").strip() == "640 root:grafana"
    places = "/etc /var/lib /var/log /run /root /home /tmp"
    assert server.machine.shell(f"grep -rlF {secret} {places}", check=False).split() == [PASSWORD_FILE]
    assert server.machine.shell(f"journalctl --no-pager | grep -cF {secret}", check=False).strip() == "0"
    written = [path for path in server.path.parent.rglob("*") if path.is_file()]
    assert [path for path in written if secret in path.read_text(errors="replace")] == []


def test_the_next_run_changes_nothing_also_when_it_looks_at_everything(server: Server) -> None:
    again = server.run("up")
    assert (again.code, again.host["changes"]) == (0, []), str(again)
    full = server.run("up", "--full")
    assert (full.code, full.changed) == (0, 0), str(full)


BROKEN = {
    "a drop-in that is gone": (
        f"rm {DROP_IN}",
        "grafana-server.service runs by another configuration than gpuwright's",
    ),
    "a dashboard that somebody changed": ("echo '{' > /etc/gpuwright/dashboards/fleet.json", None),
    "a data source that cannot be read": (
        "echo 'a: [' > /etc/grafana/provisioning/datasources/gpuwright.yaml && systemctl restart grafana-server",
        "grafana-server.service",
    ),
    "a package that is gone": ("apt-get -qqy purge grafana", "missing packages: grafana"),
    # Grafana keeps its users: from the file alone it would not take another password.
    "a password that nobody knows": (f"rm {PASSWORD_FILE}", None),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_somebody_broke_by_hand_is_mended(server: Server, what: str) -> None:
    command, reason = BROKEN[what]
    server.machine.shell(command)
    mended = server.run("up")
    assert (mended.code, mended.host["verdict"]) == (0, "pass"), str(mended)
    if reason:
        assert any(reason in each for each in server.reasons(mended)), server.reasons(mended)
    assert server.titles() == TITLES
    assert server.ask("/api/datasources", server.password())[0]["uid"] == "gpuwright"
    assert server.run("plan").host["changes"] == []


def test_a_password_of_the_wish_counts_and_is_in_no_record(server: Server) -> None:
    server.variables["monitoring_grafana_password"] = SECRET
    run = server.run("up", "--full")
    assert run.code == 0, str(run)
    assert server.password() == SECRET
    assert server.titles() == TITLES
    assert run.report
    assert SECRET not in "".join(path.read_text(errors="replace") for path in run.report.rglob("*") if path.is_file())
    assert server.machine.shell(f"grep -rlF {SECRET} /etc /var/lib /var/log /run /root /tmp", check=False).split() == [
        PASSWORD_FILE
    ]


def test_one_that_is_wished_no_more_listens_no_more_and_comes_back(server: Server) -> None:
    run = server.run("up", monitoring_grafana=False)
    assert run.code == 0, str(run)
    assert (
        server.machine.shell("ss -Hltn | grep ':3000 '; systemctl is-enabled grafana-server", check=False).strip()
        == "disabled"
    )
    assert (
        server.machine.shell(f"ls {DROP_IN} {PASSWORD_FILE} /etc/grafana/provisioning/*/gpuwright.yaml", check=False)
        == ""
    )
    assert server.run("plan", monitoring_grafana=False).host["changes"] == []
    again = server.run("up")
    assert (again.code, again.host["verdict"]) == (0, "pass"), str(again)
    assert server.titles() == TITLES


def test_remove_takes_it_back_and_leaves_what_grafana_keeps(server: Server) -> None:
    gone = server.run("remove", "--no-reboot")
    assert gone.code == 0, str(gone)
    ours = (
        "ls /etc/gpuwright | grep -v simulated; ls -d /etc/systemd/system/*.d | grep -E 'grafana|prometheus'; "
        "find /etc/apt /usr/share/keyrings /etc/grafana -name '*gpuwright*' | grep -v gpuwright-sim"
    )
    assert server.machine.shell(ours, check=False) == ""
    there = "dpkg -l grafana prometheus prometheus-alertmanager | grep ^ii; ss -Hltn | grep -E ':(3000|9090|9093) '"
    assert server.machine.shell(there, check=False) == ""
    assert server.machine.shell("ls /var/lib/grafana").split() == ["grafana.db"]

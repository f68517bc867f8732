"""Prometheus' configuration: promtool reads it as Prometheus does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_server import prometheus
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_server.model import (
    MonitoringServer,
    Target,
)

from .conftest import Call


def target(host: str, job: str = "gpu", *, tls: bool = False, password: bool = False) -> Target:
    port = {"gpu": 9400, "node": 9100}[job]
    return {"host": host, "job": job, "address": f"{host}.example.org:{port}", "tls": tls, "password": password}


SERVER: MonitoringServer = {
    "address": "10.0.0.5",
    "port": 9090,
    "alerts_port": 9093,
    "days": 30,
    "size": "20GB",
    "remote_write": [
        {"url": "https://a.example.org/write", "user": "gpu", "access": "password"},
        {"url": "https://b.example.org/write", "user": None, "access": "token"},
        {"url": "http://127.0.0.1:9009/write", "user": None, "access": None},
    ],
    "receivers": [],
    "scrape": {"user": "prometheus", "ca": "CA"},
    "grafana": None,
    "packages": [],
    "targets": [
        target("gpu1"),
        target("gpu1", "node"),
        target("gpu2", tls=True),
        target("gpu3", tls=True, password=True),
        target("gpu4", password=True),
    ],
}


@pytest.fixture
def written(tmp_path: Path, rules_file: Path) -> Path:
    """The configuration of a server with everything, and the files that it names."""
    places = prometheus.Places(
        str(rules_file), f"{tmp_path}/targets-", f"{tmp_path}/secret-", f"{tmp_path}/secret-alerts"
    )
    for name in ("alerts", "scrape", "remote-write-0", "remote-write-1"):
        (tmp_path / f"secret-{name}").write_text("secret")
    authority = tmp_path / "fleet.pem"
    authority.write_text("")
    server: Any = {**SERVER, "scrape": {"user": "prometheus", "ca": str(authority)}}
    for kind, targets in prometheus.kinds(SERVER["targets"]).items():
        Path(places.targets_of(kind)).write_text(prometheus.targets_file(targets))
    file = tmp_path / "prometheus.yml"
    file.write_text(prometheus.configuration(server, places))
    return file


def test_it_is_good_by_prometheus_own_tool(promtool: Call, written: Path) -> None:
    done = promtool("check", "config", written)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_that_tool_notices_a_word_that_prometheus_does_not_know(promtool: Call, written: Path) -> None:
    written.write_text(written.read_text().replace("password_file", "password_fil"))
    assert promtool("check", "config", written).returncode != 0


def test_a_password_goes_to_nobody_who_does_not_ask_for_it(written: Path) -> None:
    jobs = {job["job_name"]: job for job in yaml.safe_load(written.read_text())["scrape_configs"]}
    assert {name for name, job in jobs.items() if "basic_auth" in job} == {"plain-password", "tls-password"}
    assert {name for name, job in jobs.items() if job.get("scheme") == "https"} == {"tls", "tls-password"}
    assert {name for name, job in jobs.items() if "tls_config" in job} == {"tls", "tls-password"}


def test_a_target_has_the_labels_that_rules_and_dashboards_ask_for(written: Path) -> None:
    first, second = json.loads(written.with_name("targets-plain.json").read_text())
    assert first == {"targets": ["gpu1.example.org:9400"], "labels": {"host": "gpu1", "job": "gpu"}}
    assert second == {"targets": ["gpu1.example.org:9100"], "labels": {"host": "gpu1", "job": "node"}}


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - nothing listens
        ("::", "[::1]"),
        ("fd00::5", "[fd00::5]"),
    ],
)
def test_alertmanager_is_found_where_it_listens(address: str, asked: str) -> None:
    text = prometheus.configuration({**SERVER, "address": address}, prometheus.Places("r", "t", "s", "p"))
    (alerting,) = yaml.safe_load(text)["alerting"]["alertmanagers"]
    assert alerting["static_configs"] == [{"targets": [f"{asked}:9093"]}]
    assert alerting["basic_auth"] == {"username": "gpuwright", "password_file": "p"}


def test_a_server_without_targets_asks_nobody(promtool: Call, tmp_path: Path, rules_file: Path) -> None:
    file = tmp_path / "prometheus.yml"
    server: Any = {**SERVER, "targets": [], "remote_write": [], "scrape": None}
    file.write_text(prometheus.configuration(server, prometheus.Places(str(rules_file), "t", "s", "/dev/null")))
    assert promtool("check", "config", file).returncode == 0

"""The server of metrics: where it may be, which exporters it asks, and what a person is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_exporters.fleet import exporters
from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_server import (
    resolve as monitoring_server,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.log import Log, Unresolved
from ansible_collections.gpuwright.node.plugins.plugin_utils.resolver.machine import Machine
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules
from ansible_collections.gpuwright.node.plugins.plugin_utils.wish.wish import Wish

from .conftest import TODAY, Resolve
from .test_monitoring import listener

TLS = {"certificate": "/etc/ssl/node.pem", "key": "/etc/ssl/private/node.key"}
USERS = {"prometheus": f"$2y$10${'a' * 53}"}
HOSTS: dict[str, dict[str, Any]] = {
    "gpu1": {"gpuwright_want": ["driver", "monitoring"], "monitoring_address": "10.0.0.1"},
    "gpu2": {"gpuwright_want": "monitoring=smi", "monitoring_address": "::", "ansible_host": "gpu2.example.org"},
    "gpu3": {"gpuwright_wish": {"gpuwright_want": ["monitoring"], "monitoring_address": "fd00::3"}, "monitoring_tls": TLS,
             "monitoring_users": USERS, "monitoring_gpu_port": "9401", "monitoring_node_port": 9101},
    "storage": {"monitoring_source": "smi", "monitoring_address": "10.0.0.9", "gpuwright_gpus_expected": 0},
    "alone": {"gpuwright_want": ["monitoring"]},
    "monitor": {"gpuwright_want": ["monitoring-server", "monitoring"], "gpuwright_gpus_expected": "0"},
    "other": {"gpuwright_want": ["driver"], "monitoring_address": "10.0.0.7"},
}  # fmt: skip


#: What is told of a machine and of no wish.
OF_MACHINE = ("monitoring", "running", "strangers")


def chosen(hosts: Mapping[str, Mapping[str, Any]], os: str = "debian-13", **given: Any) -> tuple[Any, Log]:
    """The server of a machine without cards, and what was said."""
    seen = {name: given[name] for name in OF_MACHINE if name in given}
    variables = {name: value for name, value in given.items() if name not in seen}
    wish = Wish.from_variables({"gpuwright_want": ["monitoring-server"], **variables})
    known = Wish(**{**vars(wish), "fleet": exporters(hosts, "monitor")})
    rules = load_rules()
    (system,) = [row for row in rules["systems"]["rows"] if f"{row['id']}-{row['version']}" == os]
    log = Log(rules)
    return monitoring_server.choose(Machine((), os, "x86_64", TODAY, **seen), known, system, log), log


def addresses(hosts: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    return {(each["host"], each["job"]): each["address"] for each in chosen(hosts)[0]["targets"]}


def test_every_host_that_wishes_monitoring_is_asked_where_it_says_that_it_listens() -> None:
    assert addresses(HOSTS) == {
        ("gpu1", "gpu"): "10.0.0.1:9400",
        ("gpu1", "node"): "10.0.0.1:9100",
        ("gpu2", "gpu"): "gpu2.example.org:9400",
        ("gpu2", "node"): "gpu2.example.org:9100",
        ("gpu3", "gpu"): "[fd00::3]:9401",
        ("gpu3", "node"): "[fd00::3]:9101",
        ("monitor", "node"): "127.0.0.1:9100",
        ("storage", "node"): "10.0.0.9:9100",
    }


def test_who_asks_for_a_certificate_or_a_password_is_known() -> None:
    targets = chosen(HOSTS)[0]["targets"]
    assert {each["host"] for each in targets if each["tls"] and each["password"]} == {"gpu3"}
    assert {each["host"] for each in targets if each["tls"] or each["password"]} == {"gpu3"}


def test_a_host_that_listens_for_itself_alone_is_named() -> None:
    _server, log = chosen(HOSTS)
    (text,) = [each["text"] for each in log.warnings if each["rule"] == "monitoring-server.loopback"]
    assert text == "not asked: alone, whose exporters listen for their own machine alone; set monitoring_address there"


def test_a_password_that_would_be_sent_unencrypted_is_told() -> None:
    hosts = {"gpu4": {**HOSTS["gpu1"], "monitoring_users": USERS}}
    assert "monitoring-server.unencrypted" in [each["rule"] for each in chosen(hosts)[1].warnings]
    assert "monitoring-server.unencrypted" not in [each["rule"] for each in chosen(HOSTS)[1].warnings]


_WEBHOOK = {"severities": ["page"], "webhook": {"url": "http://hook.example/x"}}


@pytest.mark.parametrize(
    ("variables", "rules"),
    [
        ({}, []),
        ({"monitoring_server_address": "::"}, ["open"]),
        ({"monitoring_server_address": "10.0.0.5"}, ["open"]),
        ({"monitoring_server_address": "::1"}, []),
        ({"monitoring_receivers": {"a": _WEBHOOK}}, ["clear"]),
        ({"monitoring_receivers": {"a": {**_WEBHOOK, "webhook": {"url": "https://hook.example/x"}}}}, []),
        ({"monitoring_receivers": {"a": {**_WEBHOOK, "webhook": {"url": "http://127.0.0.1:8060/x"}}}}, []),
        ({"monitoring_remote_write": [{"url": "http://far.example/write", "token": "SECRET"}]}, ["clear"]),
        ({"monitoring_remote_write": [{"url": "http://far.example/write"}]}, []),
        ({"monitoring_remote_write": [{"url": "https://far.example/write", "token": "SECRET"}]}, []),
    ],
)
def test_what_everybody_may_read_or_hear_is_told(variables: dict[str, Any], rules: list[str]) -> None:
    warnings = {each["rule"]: each["text"] for each in chosen(HOSTS, **variables)[1].warnings}
    names = [name.partition(".")[2] for name in warnings if name.startswith("monitoring-server.")]
    assert [name for name in names if name in ("open", "clear")] == rules
    assert "SECRET" not in str(warnings)


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        ({"monitoring_address": "somewhere"}, "gpu1: monitoring_address: expected an address"),
        ({"monitoring_node_port": "many"}, "gpu1: monitoring_node_port: expected a port"),
    ],
)
def test_what_cannot_be_read_of_a_host_is_told_with_its_name(variables: dict[str, Any], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        exporters({"gpu1": {**HOSTS["gpu1"], **variables}}, "monitor")


def test_that_alerts_are_told_to_nobody_is_said() -> None:
    assert "monitoring-server.nobody" in [each["rule"] for each in chosen({})[1].warnings]
    told = chosen({}, monitoring_receivers={"hook": {"webhook": {"url": "https://example.org/hook"}}})[1]
    assert "monitoring-server.nobody" not in [each["rule"] for each in told.warnings]


def test_where_no_archive_has_it_the_reason_and_the_way_out_are_told(resolve: Resolve) -> None:
    answer = resolve([], "rocky-9", "monitoring-server")
    (conflict,) = answer["conflicts"]
    assert conflict["rule"] == "monitoring-server.archive"
    assert "let a machine with Debian or Ubuntu be the server" in conflict["remedy"]


def test_a_password_of_mail_is_refused_where_alertmanager_reads_it_from_no_file() -> None:
    mail = {"to": ["a@example.org"], "from": "b@example.org", "server": "mail.example.org:587"}
    receivers = {"on-call": {"mail": {**mail, "user": "gpu", "password": "secret"}}}
    with pytest.raises(Unresolved, match="reads no password of mail from a file"):
        chosen({}, "ubuntu-22.04", monitoring_receivers=receivers)
    assert chosen({}, "ubuntu-24.04", monitoring_receivers=receivers)[0]
    assert chosen({}, "ubuntu-22.04", monitoring_receivers={"on-call": {"mail": mail}})[0]


def test_a_machine_without_cards_may_be_the_server_and_one_with_cards_too(resolve: Resolve) -> None:
    for cards in ([], ["H100"]):
        stack = resolve(cards, "ubuntu-24.04", "monitoring-server")["stack"]
        assert stack["monitoring_server"]["packages"] == ["prometheus", "prometheus-alertmanager"]


PORTS = {"monitoring_server_port": (9090, "prometheus.service"), "monitoring_server_alerts_port": (9093, "prometheus-alertmanager.service"),
         "monitoring_grafana_port": (3000, "grafana-server.service")}  # fmt: skip


def held(*listeners: Any, running: Any = (), **variables: Any) -> tuple[Any, Log]:
    """The server of a machine on which this listens."""
    facts: Any = {"listeners": list(listeners), "drop_ins": [], "certificate": None}
    return chosen({}, monitoring=facts, running=tuple(running), **{"monitoring_grafana": True, **variables})


@pytest.mark.parametrize("variable", PORTS)
@pytest.mark.parametrize(
    ("changes", "who"),
    [({}, "somebody (theirs.service)"), ({"process": "docker-proxy", "unit": None}, "docker-proxy"),
     ({"process": None, "unit": None}, "a program of the user other"), ({"address": "::"}, "somebody")],
)  # fmt: skip
def test_a_port_that_another_program_holds_is_refused_with_who_it_is(variable: str, changes: Any, who: str) -> None:
    port, unit = PORTS[variable]
    with pytest.raises(Unresolved) as caught:
        held(listener(port, **changes))
    (found,) = caught.value.conflicts
    assert found["rule"] == "monitoring-server.port"
    assert f"where {unit} shall listen, is held by {who}" in found["text"]
    assert found["remedy"].startswith(f"set {variable} to a port that is free")


def test_every_port_that_is_held_is_told_at_once() -> None:
    with pytest.raises(Unresolved) as caught:
        held(*(listener(port) for port, _unit in PORTS.values()))
    assert len(caught.value.conflicts) == 3


def test_what_is_ours_and_what_listens_elsewhere_is_in_nobodys_way() -> None:
    ours = [listener(port, unit=unit) for port, unit in PORTS.values()]
    hidden = [listener(port, unit=None, process=None) for port, _unit in PORTS.values()]
    assert held(*ours)[0]["grafana"]
    assert held(*hidden, running=[unit for _port, unit in PORTS.values()])[0]["grafana"]
    assert held(listener(9090, address="10.0.0.7"), listener(3001))[0]["grafana"]
    assert held(listener(3000), monitoring_grafana=False)[0]["grafana"] is None


def test_a_grafana_of_somebody_else_keeps_its_port() -> None:
    server, log = chosen(
        {},
        monitoring_grafana=True,
        strangers={"monitoring_server": ["grafana"]},
        monitoring={"listeners": [listener(3000)]},
    )
    assert server["grafana"] is None
    assert "monitoring-server.grafana" in [each["rule"] for each in log.warnings]


def test_where_the_dashboards_are_seen_is_told() -> None:
    assert "to be imported into a Grafana" in chosen({})[1].why[0]["text"]
    text = held(monitoring_server_address="fd00::5", monitoring_grafana_port=3001)[1].why[0]["text"]
    assert "Prometheus listens on [fd00::5]:9090, Alertmanager on [fd00::5]:9093" in text
    assert text.endswith("Grafana listens on [fd00::5]:3001 and has the dashboards")


def test_its_repository_is_there_on_machines_with_and_without_cards(resolve: Resolve) -> None:
    for cards in ([], ["H100"]):
        stack = resolve(cards, "ubuntu-24.04", "monitoring-server", wish={"monitoring_grafana": True})["stack"]
        assert "grafana" in [row["name"] for row in stack["repositories"]]
        assert stack["monitoring_server"]["packages"] == ["prometheus", "prometheus-alertmanager", "grafana"]


def test_a_jetson_is_told_that_it_is_none(resolve: Resolve) -> None:
    answer = resolve("Jetson AGX Orin 64GB", "ubuntu-22.04", "monitoring-server", arch="aarch64")
    assert "monitoring_server" not in answer["stack"]
    assert "monitoring-server.jetson" in [each["rule"] for each in answer["warnings"]]

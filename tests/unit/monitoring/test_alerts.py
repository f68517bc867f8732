"""Every alert fires on its fault in time and not before, and is silent for what mends itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring import metrics, xid
from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring.alerts import alerts, recorded
from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring.severities import SEVERITIES
from ansible_collections.gpuwright.node.plugins.plugin_utils.rules import load_rules

from .conftest import Call
from .faults import FAULTS, HARMLESS, HOST, Fault
from .names import metrics_of
from .series import Series, input_series, node, reboot

Hold = Callable[..., str]

ALERTS = {alert.name: alert for alert in alerts()}
BEGIN = 30
FIRING = 'ALERTS{alertstate="firing"}'
# Every fault of a single machine, by the name of a machine that has it.
CASES = {
    f"{name}-{number}".lower(): (name, fault)
    for name, each in FAULTS.items()
    for number, fault in enumerate(each, 1)
    if "host" in fault.labels
}
# When the last of them fires.
LAST = BEGIN + max(fault.fires for _name, fault in CASES.values())
HOSTS = tuple(f"gpu{number}" for number in range(11, 31))
# Labels that an alert may have: each has as many values as there are machines, cards, disks, checks, or numbers of Xid.
BOUNDED = {
    "alertname",
    "alertstate",
    "severity",
    "host",
    "gpu",
    "pci_bus_id",
    "job",
    "xid",
    "mountpoint",
    "check",
    "verdict",
}


def fleet(minutes: int, hosts: tuple[str, ...] = (HOST,)) -> Series:
    return {name: values for host in hosts for name, values in node(host, minutes).items()}


def faulty(faults: Mapping[str, Fault], minutes: int, *, mended: bool = False) -> Series:
    """A machine for each fault, with its name, in one fleet: a call of promtool for each would cost many times as much."""
    series: Series = {}
    for host, fault in faults.items():
        machine = node(HOST, minutes)
        fault.put(machine, BEGIN, fault.mends if mended else None)
        series |= {name.replace(HOST, host): values for name, values in machine.items()}
    return series


def fired(minutes: int, of: str = "") -> dict[str, Any]:
    """A test that nothing fired at any time until then, of what the matchers say."""
    firing = FIRING.replace("}", f"{of}}}")
    return {"expr": f"count_over_time({firing}[{minutes}m])", "eval_time": f"{minutes}m", "exp_samples": []}


def fires(name: str, labels: Mapping[str, str], at: int, of: str = "") -> dict[str, Any]:
    """A test that this alert fires then, and of what the matchers say no other one."""
    told = {"alertname": name, "alertstate": "firing", "severity": ALERTS[name].severity, **labels}
    text = f"ALERTS{{{','.join(f'{key}={value!r}' for key, value in told.items())}}}".replace("'", '"')
    return {
        "expr": FIRING.replace("}", f"{of}}}"),
        "eval_time": f"{at}m",
        "exp_samples": [{"labels": text, "value": 1}],
    }


def test_rules_are_good_by_prometheus_own_tool(promtool: Call, rules_file: Path) -> None:
    done = promtool("check", "rules", rules_file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS) + len(recorded())} rules found" in done.stdout


def test_every_alert_has_a_fault() -> None:
    assert list(FAULTS) == list(ALERTS)


@pytest.mark.slow
def test_each_fires_in_time_and_not_before_with_these_labels_and_alone(rules_hold: Hold) -> None:
    checks = []
    for host, (name, fault) in CASES.items():
        of, at = f',host="{host}"', BEGIN + fault.fires
        checks.append(fires(name, {**fault.labels, "host": host}, at, of))
        if fault.fires:
            checks.append(fired(at - fault.edge - 1, of))
    checks.append(fired(LAST, ',host=""'))
    series = faulty({host: fault for host, (_name, fault) in CASES.items()}, LAST + 1)
    assert not rules_hold({"input_series": input_series(series), "promql_expr_test": checks})


@pytest.mark.parametrize(("machines", "told"), [(10, True), (16, False)])
def test_many_machines_are_gone_where_three_of_them_are_a_fifth(machines: int, told: bool, rules_hold: Hold) -> None:
    (fault,) = FAULTS["ManyNodesGone"]
    at = BEGIN + fault.fires
    series = fleet(at + 1, HOSTS[:machines])
    fault.put(series, BEGIN)
    checks = [fires("ManyNodesGone", {}, at), fired(at - 1)] if told else [fired(at)]
    assert not rules_hold({"input_series": input_series(series), "promql_expr_test": checks})


@pytest.mark.slow
def test_none_is_for_what_mends_itself(rules_hold: Hold) -> None:
    minutes = LAST + 30
    faults = {host: fault for host, (_name, fault) in CASES.items() if fault.mends}
    series = faulty(faults, minutes, mended=True)
    assert not rules_hold({"input_series": input_series(series), "promql_expr_test": [fired(minutes - 1)]})


@pytest.mark.slow
def test_none_is_for_what_is_no_fault(rules_hold: Hold) -> None:
    minutes = BEGIN + 90
    series = faulty({what.replace(" ", "-"): fault for what, fault in HARMLESS.items()}, minutes)
    series |= {_with_pods(name): values for name, values in node("names-pods", minutes).items()}
    assert not rules_hold({"input_series": input_series(series), "promql_expr_test": [fired(minutes - 1)]})


def _with_pods(name: str) -> str:
    """A series of an exporter that names jobs and their pods."""
    return re.sub(r"^(DCGM_\w+\{)", r'\1namespace="team",pod="train-7f9c",container="main",hpc_job="4711",', name)


@pytest.mark.slow
def test_all_are_silent_for_ten_machines_of_which_one_reboots(rules_hold: Hold) -> None:
    minutes = 150
    series = fleet(minutes, HOSTS[:10])
    reboot(series, HOSTS[3], begin=BEGIN, minutes=14)
    assert not rules_hold({"input_series": input_series(series), "promql_expr_test": [fired(minutes - 1)]})


@pytest.mark.slow
def test_all_are_silent_for_a_day_of_ten_machines(rules_hold: Hold) -> None:
    minutes = 24 * 60
    checks = {"input_series": input_series(fleet(minutes, HOSTS[:10])), "promql_expr_test": [fired(minutes - 1)]}
    assert not rules_hold(checks, every="10m")


def test_those_tests_notice_a_single_alert(rules_hold: Hold) -> None:
    series = fleet(120)
    FAULTS["GpuPowerBrake"][0].put(series, BEGIN, 7)
    found = rules_hold({"input_series": input_series(series), "promql_expr_test": [fired(119)]})
    assert "GpuPowerBrake" in found


def test_xid_after_a_reboot_is_new_though_it_was_counted_before(rules_hold: Hold) -> None:
    """Since boot there is one line again, as there was before it."""
    series = fleet(200)
    reboot(series, HOST, begin=BEGIN, minutes=5)
    fault = FAULTS["GpuXidApplication"][1]
    series[next(name for name in series if "gpuwright_xid_total" in name)][100:] = [1] * 100
    checks = [
        fired(99),
        fires("GpuXidApplication", fault.labels, 100),
    ]
    assert not rules_hold({"input_series": input_series(series), "promql_expr_test": checks})


def test_xid_of_before_a_reboot_is_told_anew_only_once_the_watch_has_looked_again(rules_hold: Hold) -> None:
    """The file of before outlives the reboot. The watch looks 10 minutes after it, and there is one line again."""
    looked = BEGIN + 15
    series = fleet(looked + 1)
    name = next(name for name in series if "gpuwright_xid_total" in name and HOST in name)
    counted = list(series[name])
    reboot(series, HOST, begin=BEGIN, minutes=5)
    series[name] = [None if BEGIN <= minute < BEGIN + 5 else value for minute, value in enumerate(counted)]
    told = {"host": HOST, "pci_bus_id": "00000000:01:00.0", "xid": "31"}
    checks = [
        fired(looked - 1),
        fires("GpuXidApplication", told, looked),
    ]
    assert not rules_hold({"input_series": input_series(series), "promql_expr_test": checks})


def test_xid_is_told_for_a_while_and_then_no_more(rules_hold: Hold) -> None:
    day = 24 * 60
    series = fleet(BEGIN + day + 20, (HOST,))
    fault = FAULTS["GpuXidApplication"][0]
    fault.put(series, BEGIN)
    checks = [
        fires("GpuXidApplication", fault.labels, BEGIN + day - 10),
        {"expr": FIRING, "eval_time": f"{BEGIN + day + 10}m", "exp_samples": []},
    ]
    assert not rules_hold({"input_series": input_series(series), "promql_expr_test": checks}, every="10m")


def test_watch_that_does_not_say_how_often_it_looks_has_an_hour(rules_hold: Hold) -> None:
    minutes = BEGIN + 240
    series = fleet(minutes)
    hourly = Fault(
        {},
        0,
        {},
        before={
            r"^gpuwright_watch_interval_seconds": lambda _minute: None,
            r"^gpuwright_watch_timestamp_seconds": lambda minute: (minute + BEGIN) // 60 * 3600.0,
        },
    )
    hourly.put(series, BEGIN)
    assert not rules_hold({"input_series": input_series(series), "promql_expr_test": [fired(minutes - 1)]})


def read_by_people(series: Series, names: Iterable[str], rules_hold: Hold) -> dict[str, str]:
    """The texts of alerts by their machine, when all faults have lasted long.

    promtool is told to expect another text, and says which it got.
    """
    wrong = {"eval_time": "160m", "exp_alerts": [{"exp_annotations": {"none": "none"}}]}
    checks = [{"alertname": name, **wrong} for name in names]
    said = rules_hold({"input_series": input_series(series), "alert_rule_test": checks}, every="10m")
    read = {}
    for alert in re.finditer(r"Labels:\{(?P<labels>.*)\}\s+Annotations:\{(?P<texts>command=.*)\}", said):
        host = re.search(r'host="([^"]*)"', alert["labels"])
        read[host[1] if host else ""] = alert["texts"].replace('\\"', '"')
    return read


def test_what_a_person_reads_is_whole(rules_hold: Hold) -> None:
    series = faulty({host: fault for host, (_name, fault) in CASES.items()}, 161)
    read = read_by_people(series, FAULTS.keys() - {"ManyNodesGone"}, rules_hold)
    assert set(read) == set(CASES)
    gone = fleet(161, HOSTS[:10])
    FAULTS["ManyNodesGone"][0].put(gone, BEGIN)
    read |= read_by_people(gone, ["ManyNodesGone"], rules_hold)
    for host, texts in read.items():
        for part in ("summary", "description", "command", "runbook"):
            assert f'{part}="' in texts, host
        for wrong in ("{{", "}}", "<no value>", "<error", "%!"):
            assert wrong not in texts, (host, texts)
        assert host in texts.partition("summary=")[2]


@pytest.mark.parametrize("host", [host for host, (_name, fault) in CASES.items() if "xid" in fault.labels])
def test_text_of_an_xid_is_that_of_its_row(host: str, rules_hold: Hold) -> None:
    name, fault = CASES[host]
    read = read_by_people(faulty({host: fault}, 161), [name], rules_hold)
    rows = load_rules()["xid"]["rows"]
    row = next((row for row in rows if int(fault.labels["xid"]) in row["codes"]), None)
    assert (xid.sentence(row) if row else "did not have") in read[host]


QUERIES = {**{name: alert.expression for name, alert in ALERTS.items()}, **recorded()}


@pytest.mark.parametrize("name", QUERIES)
def test_names_only_metrics_that_somebody_tells(name: str) -> None:
    used = metrics_of(QUERIES[name])
    assert used
    assert used <= set(metrics.NAMES)


def test_labels_of_alerts_are_bounded() -> None:
    for name, faults in FAULTS.items():
        for fault in faults:
            assert set(fault.labels) <= BOUNDED, name


def test_rows_are_whole() -> None:
    for alert in ALERTS.values():
        assert alert.severity in SEVERITIES
        for text in (alert.summary, alert.meaning, alert.command, alert.source):
            assert text.strip() == text
            assert text, alert.name
        assert not alert.summary.endswith("."), alert.name
        assert alert.meaning.endswith("."), alert.name


def test_every_number_of_xid_has_one_class() -> None:
    rows = load_rules()["xid"]["rows"]
    numbers = sorted(code for row in rows for code in row["codes"])
    classes = ("critical", "warning", "application", "quiet")
    assert sorted(code for name in classes for code in xid.codes(rows, name)) == numbers  # type: ignore[arg-type] # the words
    assert {79, 48, 95} <= set(xid.codes(rows, "critical"))
    assert {13, 31} <= set(xid.codes(rows, "application"))
    assert 94 in xid.codes(rows, "warning"), "memory of the card, and no fault of the application that it ended"
    assert {45, 43} <= set(xid.codes(rows, "quiet"))


def test_the_rules_are_yaml_that_a_linter_takes(rules_file: Path) -> None:
    text = rules_file.read_text()
    assert text.startswith("---\n")
    (group,) = yaml.safe_load(text)["groups"]
    assert [rule["alert"] for rule in group["rules"] if "alert" in rule] == list(ALERTS)

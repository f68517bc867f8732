"""Alertmanager's configuration: whom an alert reaches, and what is silent meanwhile. amtool reads it as Alertmanager does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpuwright.node.plugins.plugin_utils.components.monitoring_server.alertmanager import (
    NOBODY,
    Mail,
    Slack,
    Webhook,
    WeCom,
    Wish,
    configuration,
    inhibitions,
)
from ansible_collections.gpuwright.node.plugins.plugin_utils.model.errors import BadInput
from ansible_collections.gpuwright.node.plugins.plugin_utils.monitoring.alerts import alerts

from .conftest import Call

ALERTS = {alert.name: alert for alert in alerts()}
WISH = Wish(
    receivers={
        "on-call": Mail(
            ("night@example.org", "day@example.org"),
            "gpu@example.org",
            "mail.example.org:587",
            "gpu",
            "/etc/alertmanager/mail.password",
        ),
        "dingtalk": Webhook("http://127.0.0.1:8060/dingtalk/webhook1/send"),
        "desk": Webhook("https://desk.example.org/hook", "/etc/alertmanager/desk.token"),
        "slack": Slack("/etc/alertmanager/slack.url", "#gpu"),
        "wecom": WeCom("ww0123456789", "1000002", "secret", to_party="2"),
    },
    told={"page": ["on-call", "dingtalk", "slack"], "ticket": ["desk", "wecom"]},
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "alertmanager.yml"
    file.write_text(configuration(WISH))
    return file


def test_it_is_good_by_alertmanagers_own_tool(amtool: Call, config: Path) -> None:
    done = amtool("check-config", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 receivers" in done.stdout
    assert f"{len(inhibitions())} inhibit rules" in done.stdout


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_reaches_the_receivers_of_its_severity(name: str, amtool: Call, config: Path) -> None:
    expected = {"page": "on-call,dingtalk,slack", "ticket": "desk,wecom", "info": NOBODY}[ALERTS[name].severity]
    labels = [f"alertname={name}", f"severity={ALERTS[name].severity}", "host=gpu17"]
    done = amtool("config", "routes", "test", f"--config.file={config}", f"--verify.receivers={expected}", *labels)
    assert done.returncode == 0, done.stdout + done.stderr


def test_that_tool_notices_a_wrong_receiver(amtool: Call, config: Path) -> None:
    done = amtool("config", "routes", "test", f"--config.file={config}", "--verify.receivers=desk", "severity=page")
    assert done.returncode != 0


def test_nobody_is_told_where_nobody_is_wished(amtool: Call, tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.yml"
    file.write_text(configuration(Wish({}, {})))
    assert amtool("check-config", file).returncode == 0
    done = amtool("config", "routes", "test", f"--config.file={file}", f"--verify.receivers={NOBODY}", "severity=page")
    assert done.returncode == 0


def test_messages_are_put_together_by_machine_and_alert(config: Path) -> None:
    route = yaml.safe_load(config.read_text())["route"]
    assert route["group_by"] == ["host", "alertname"]
    # Alertmanager forgets after five days what it told.
    assert {each["repeat_interval"] for each in route["routes"]} <= {"4h", "3d", "4d"}


def test_receiver_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(
        BadInput, match=r"names the receiver 'pager'.*receivers are desk, dingtalk, on-call, slack, wecom"
    ):
        configuration(WISH._replace(told={"page": ["pager"]}))


def test_no_password_of_mail_or_slack_is_in_the_file(config: Path) -> None:
    text = config.read_text()
    assert "auth_password_file: /etc/alertmanager/mail.password" in text
    assert "api_url_file: /etc/alertmanager/slack.url" in text
    assert "auth_password:" not in text


def matches(matchers: list[str], labels: dict[str, str]) -> bool:
    """Alertmanager's matchers, as far as they are used here: alertname =~ or !~, anchored."""
    for matcher in matchers:
        key, negated, names = matcher.split('"')[0][:-2], "!~" in matcher, matcher.split('"')[1].split("|")
        if (labels.get(key, "") in names) == negated:
            return False
    return True


def silenced(rules: list[Any], source: dict[str, str], target: dict[str, str]) -> bool:
    return any(
        matches(rule["source_matchers"], source)
        and matches(rule["target_matchers"], target)
        and all(source.get(label, "") == target.get(label, "") for label in rule.get("equal", ()))
        for rule in rules
    )


@pytest.mark.parametrize(
    ("source", "target", "silent"),
    [
        ({"alertname": "NodeGone", "host": "gpu17"}, {"alertname": "GpuLost", "host": "gpu17"}, True),
        (
            {"alertname": "NodeGone", "host": "gpu17"},
            {"alertname": "ExporterGone", "host": "gpu17", "job": "gpu"},
            True,
        ),
        ({"alertname": "NodeGone", "host": "gpu17"}, {"alertname": "GpuHot", "host": "gpu17", "gpu": "3"}, True),
        ({"alertname": "NodeGone", "host": "gpu17"}, {"alertname": "GpuLost", "host": "gpu18"}, False),
        ({"alertname": "NodeGone", "host": "gpu17"}, {"alertname": "NodeGone", "host": "gpu17"}, False),
        ({"alertname": "NodeGone", "host": "gpu17"}, {"alertname": "ManyNodesGone"}, False),
        ({"alertname": "ManyNodesGone"}, {"alertname": "NodeGone", "host": "gpu17"}, True),
        ({"alertname": "ManyNodesGone"}, {"alertname": "GpuHot", "host": "gpu17", "gpu": "3"}, False),
        (
            {"alertname": "GpuHot", "host": "a", "gpu": "1"},
            {"alertname": "GpuThermalThrottle", "host": "a", "gpu": "1"},
            True,
        ),
        (
            {"alertname": "GpuHot", "host": "a", "gpu": "1"},
            {"alertname": "GpuThermalThrottle", "host": "a", "gpu": "2"},
            False,
        ),
        (
            {"alertname": "DiskFull", "host": "a", "mountpoint": "/"},
            {"alertname": "DiskFilling", "host": "a", "mountpoint": "/"},
            True,
        ),
        (
            {"alertname": "GpuXidCritical", "host": "a"},
            {"alertname": "CheckFailed", "host": "a", "check": "kernel.xid"},
            True,
        ),
        ({"alertname": "GpuXidCritical", "host": "a"}, {"alertname": "GpuLost", "host": "a"}, False),
        *(
            ({"alertname": "DiskFull", "host": "a", "mountpoint": "/"}, {"host": "a", **target}, False)
            for target in (
                {"alertname": "ProofNotPass"},
                {"alertname": "CheckFailed", "check": "gpu.lost"},
                {"alertname": "CheckFailed", "check": "seals.nvidia_driver"},
                {"alertname": "DiskFilling", "mountpoint": "/data"},
                {"alertname": "GpuLost"},
            )
        ),
        *(
            ({"alertname": source, "host": "a"}, {"alertname": "CheckFailed", "host": "a", "check": check}, silent)
            for source, check, silent in (
                ("GpuLost", "gpu.lost", True),
                ("GpuLost", "ecc.volatile_unc", False),
                ("GpuEccUncorrectable", "ecc.sram_threshold", True),
                ("GpuEccUncorrectable", "gpu.recovery_action", True),
                ("GpuRowRemapFailed", "remap.failure", True),
                ("GpuRowRemapFailed", "gpu.lost", False),
                ("FabricManagerDown", "seals.nvidia_driver", False),
                ("DriverLibraryMismatch", "smi.runs", True),
                ("DriverLibraryMismatch", "kernel.xid", False),
            )
        ),
        ({"alertname": "GpuLost", "host": "a"}, {"alertname": "ProofNotPass", "host": "a"}, True),
        ({"alertname": "GpuHot", "host": "a", "gpu": "1"}, {"alertname": "ProofNotPass", "host": "a"}, False),
        *(
            (
                {"alertname": source, "host": "a", "gpu": "1"},
                {"alertname": "CheckFailed", "host": "a", "gpu": gpu, "check": check},
                gpu == "1",
            )
            for gpu in ("1", "2")
            for source, check in (
                ("GpuHot", "throttle.sw_thermal"),
                ("GpuThermalThrottle", "throttle.hw"),
                ("GpuPowerBrake", "throttle.hw"),
                ("GpuRowRemapPending", "gpu.recovery_action"),
            )
        ),
    ],
)
def test_a_cause_silences_its_consequence(source: dict[str, str], target: dict[str, str], silent: bool) -> None:
    assert silenced(inhibitions(), source, target) is silent


def test_silences_name_only_alerts_that_are() -> None:
    for rule in yaml.safe_load(configuration(WISH))["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            if not matcher.startswith("alertname"):
                continue
            assert set(matcher.split('"')[1].split("|")) <= set(ALERTS)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Alertmanager's configuration: who is told what, how alerts are put together, and which one silences which.

It is written for Alertmanager 0.25 (Debian 12) and newer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import yaml

from ...model.errors import BadInput
from ...monitoring.severities import SEVERITIES, Severity

#: The receiver that tells nobody: such alerts are seen in Alertmanager and in the dashboards.
NOBODY = "nobody"

# How long to collect before a first message: with a look of Prometheus and one at the rules, nobody waits a minute.
_COLLECTS = "10s"
# When one that still fires is told again. Alertmanager forgets after five days.
_AGAIN: dict[Severity, str] = {"page": "4h", "ticket": "3d", "info": "4d"}
_HEAD = "---\n# Written by gpuwright.\n"
_TEXT = """\
{{ range .Alerts }}{{ .Annotations.summary }}
{{ .Annotations.description }}
{{ .Annotations.command }}
{{ .Annotations.runbook }}
{{ end }}"""


class Mail(NamedTuple):
    """Mail to one or more addresses. The password is a file on the server, so that it is in no configuration."""

    to: tuple[str, ...]
    sender: str
    server: str
    user: str = ""
    password_file: str = ""
    require_tls: bool = True


class Webhook(NamedTuple):
    """A POST of Alertmanager's own JSON. The token, if any, is a file on the server and sent as a bearer."""

    url: str
    token_file: str = ""


class Slack(NamedTuple):
    """Slack's own webhook, whose address is the secret: a file on the server. Alertmanager speaks Slack's form itself."""

    url_file: str
    channel: str


class WeCom(NamedTuple):
    """A message of an application of WeCom (企业微信), which Alertmanager speaks itself. A robot of a group needs a converter."""

    corp_id: str
    agent_id: str
    secret: str
    to_party: str = ""
    to_user: str = ""


Receiver = Mail | Webhook | Slack | WeCom
Document = dict[str, object]


class Wish(NamedTuple):
    """Receivers by name, and the names that each severity goes to; a severity without one is told to nobody."""

    receivers: Mapping[str, Receiver]
    told: Mapping[Severity, Sequence[str]]


def configuration(wish: Wish) -> str:
    """Return alertmanager.yml.

    Raises BadInput where a severity names a receiver that is not there.
    """
    for severity, names in wish.told.items():
        for name in names:
            if severity not in SEVERITIES or name not in wish.receivers:
                known = ", ".join(sorted(wish.receivers)) or "none"
                raise BadInput(
                    f"severity {severity!r} names the receiver {name!r}: severities are {', '.join(SEVERITIES)}, receivers are {known}"
                )
    document = {
        "route": {
            "receiver": NOBODY,
            "group_by": ["host", "alertname"],
            "group_wait": _COLLECTS,
            "group_interval": "5m",
            "routes": _routes(wish),
        },
        "receivers": [{"name": NOBODY}, *(_receiver(name, each) for name, each in wish.receivers.items())],
        "inhibit_rules": inhibitions(),
    }
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=150)
    return _HEAD + text


#: What a quick check finds of a fault that has an alert of its own: checks by the alert that explains them, on the same machine.
_EXPLAINS: Mapping[str, Sequence[str]] = {
    "GpuLost": ("gpu.lost", "gpu.count", "gpu.on_bus", "gpu.readable", "smi.runs", "smi.readable", "kernel.xid"),
    "GpuEccUncorrectable": (
        "ecc.volatile_unc",
        "ecc.mig_unc",
        "ecc.sram_threshold",
        "gpu.reset_required",
        "gpu.drain_recommended",
        "gpu.recovery_action",
        "remap.uncorrectable",
        "remap.pending",
        "pages.pending",
        "kernel.xid",
    ),
    "GpuRowRemapFailed": ("remap.failure", "ecc.unrepairable_memory", "repair.memory", "kernel.xid"),
    "GpuXidCritical": ("kernel.xid", "gpu.reset_required", "gpu.drain_recommended", "gpu.recovery_action"),
    "NvlinkDown": ("kernel.xid", "kernel.sxid", "fabric.health"),
    "FabricManagerDown": ("fabric.state", "fabric.status", "fabric.health", "fabricmanager.version"),
    "DriverLibraryMismatch": ("smi.runs", "driver.version_match"),
}
#: The same of one card alone, by which no proof is explained: heat may last for weeks.
_EXPLAINS_OF_CARD: Mapping[str, Sequence[str]] = {
    "GpuRowRemapPending": ("remap.pending", "gpu.reset_required", "gpu.recovery_action"),
    "GpuHot": ("temp.gpu", "temp.mem", "throttle.hw", "throttle.sw_thermal"),
    "GpuThermalThrottle": ("throttle.hw", "throttle.sw_thermal"),
    "GpuPowerBrake": ("throttle.hw",),
}


def inhibitions() -> list[Document]:
    """Return which alert silences which: the cause the consequence, on the same machine or card, and nothing that it does not explain."""
    return [
        _silences(["ManyNodesGone"], ["NodeGone"], []),
        _silences(["NodeGone"], None, ["host"]),
        _silences(["GpuLost"], ["NvlinkDown"], ["host"]),
        _silences(["FabricManagerDown"], ["NvlinkDown"], ["host"]),
        _silences(["DriverLibraryMismatch"], ["ExporterGone"], ["host"]),
        _silences(list(_EXPLAINS), ["ProofNotPass"], ["host"]),
        *(_silences([alert], ["CheckFailed"], ["host"], checks) for alert, checks in _EXPLAINS.items()),
        *(_silences([alert], ["CheckFailed"], ["host", "gpu"], checks) for alert, checks in _EXPLAINS_OF_CARD.items()),
        _silences(["GpuRowRemapFailed"], ["GpuRowRemapPending"], ["host", "gpu"]),
        _silences(["GpuHot", "GpuPowerBrake"], ["GpuThermalThrottle"], ["host", "gpu"]),
        _silences(["DiskFull"], ["DiskFilling"], ["host", "mountpoint"]),
    ]


def _silences(
    sources: Sequence[str], targets: Sequence[str] | None, equal: Sequence[str], checks: Sequence[str] = ()
) -> Document:
    """One rule; None are all alerts but the source itself. ``checks``: of an alert of a check these alone."""
    target = f'alertname=~"{"|".join(targets)}"' if targets else f'alertname!~"{"|".join(sources)}"'
    return {
        "source_matchers": [f'alertname=~"{"|".join(sources)}"'],
        "target_matchers": [target, *([f'check=~"{"|".join(checks)}"'] if checks else [])],
        **({"equal": list(equal)} if equal else {}),
    }


def _routes(wish: Wish) -> list[Document]:
    """One route for each receiver of each severity; every message of a severity reaches all of its receivers."""
    return [
        {
            "receiver": name,
            "matchers": [f'severity="{severity}"'],
            "repeat_interval": _AGAIN[severity],
            "continue": number < len(wish.told[severity]),
        }
        for severity in SEVERITIES
        for number, name in enumerate(wish.told.get(severity, ()), 1)
    ]


def _receiver(name: str, receiver: Receiver) -> Document:
    if isinstance(receiver, Mail):
        return {"name": name, "email_configs": [_mail(receiver)]}
    if isinstance(receiver, Webhook):
        return {"name": name, "webhook_configs": [_webhook(receiver)]}
    if isinstance(receiver, Slack):
        slack = {
            "api_url_file": receiver.url_file,
            "channel": receiver.channel,
            "send_resolved": True,
            "title": "{{ .Status }}: {{ .CommonLabels.alertname }} {{ .CommonLabels.host }}",
            "text": _TEXT,
        }
        return {"name": name, "slack_configs": [slack]}
    wecom = {
        "corp_id": receiver.corp_id,
        "agent_id": receiver.agent_id,
        "api_secret": receiver.secret,
        **({"to_party": receiver.to_party} if receiver.to_party else {}),
        **({"to_user": receiver.to_user} if receiver.to_user else {}),
        "send_resolved": True,
        "message": _TEXT,
    }
    return {"name": name, "wechat_configs": [wecom]}


def _mail(mail: Mail) -> Document:
    return {
        "to": ", ".join(mail.to),
        "from": mail.sender,
        "smarthost": mail.server,
        "require_tls": mail.require_tls,
        **({"auth_username": mail.user} if mail.user else {}),
        **({"auth_password_file": mail.password_file} if mail.password_file else {}),
        "send_resolved": True,
        "headers": {
            "Subject": "[{{ .CommonLabels.severity }}] {{ .Status }}: {{ .CommonLabels.alertname }} {{ .CommonLabels.host }}"
        },
        "text": _TEXT,
        "html": "",
    }


def _webhook(webhook: Webhook) -> Document:
    bearer = {"http_config": {"authorization": {"credentials_file": webhook.token_file}}} if webhook.token_file else {}
    return {"url": webhook.url, "send_resolved": True, **bearer}

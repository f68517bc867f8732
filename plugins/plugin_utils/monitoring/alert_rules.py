# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules file of Prometheus and the chapter of the documentation, both from the table of alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from ..rules import Row
from . import xid
from .alerts import Alert
from .severities import SEVERITIES

_HEAD = """\
---
# Alerting rules of Prometheus for machines with NVIDIA cards.
# Written by `make rules` from plugins/plugin_utils/monitoring/alerts.py: change that.
# yamllint disable rule:line-length
# docs/monitoring.md says what each one means and what to do.
"""
_PAGE = "docs/monitoring.md"
_WIDTH = 150
# With 15 seconds between two looks at an exporter and 10 of Alertmanager, an alert is told within a minute after its wait.
_INTERVAL = "30s"


class _Block(str):
    """A text that keeps its lines."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - yamllint wants lists indented
        super().increase_indent(flow, False)


_Dumper.add_representer(
    _Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")
)


def anchor(alert: Alert) -> str:
    """Return where the documentation has the alert."""
    return f"{_PAGE}#{alert.name.lower()}"


def rules_file(alerts: Sequence[Alert], recorded: Mapping[str, str]) -> str:
    """Return the file that Prometheus reads, as YAML: what is recorded comes first, alerts read it."""
    records = [{"record": name, "expr": _Block(f"{query}\n")} for name, query in recorded.items()]
    document = {"groups": [{"name": "gpuwright", "interval": _INTERVAL, "rules": [*records, *map(_rule, alerts)]}]}
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return _HEAD + text


def _rule(alert: Alert) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": _Block(f"{alert.expression}\n"),
        **({"for": alert.wait} if alert.wait else {}),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.meaning,
            "command": alert.command,
            "runbook": anchor(alert),
        },
    }


def chapter(alerts: Sequence[Alert], rows: Sequence[Row]) -> str:
    """Return the generated part of the documentation: a table of all alerts, a paragraph for each, the numbers of Xid."""
    parts = [
        "| severity | what it asks |\n|---|---|",
        *(f"| {name} | {text} |" for name, text in SEVERITIES.items()),
        "",
        "| alert | severity | after | threshold from |\n|---|---|---|---|",
        *(f"| [{a.name}](#{a.name.lower()}) | {a.severity} | {a.wait or 'at once'} | {a.source} |" for a in alerts),
        "",
        *(paragraph for alert in alerts for paragraph in _paragraph(alert)),
        "### Numbers of Xid",
        "",
        "| Xid | alert | what it means, and what to do |\n|---|---|---|",
        *(_xid_row(row) for row in rows),
    ]
    return "\n".join(parts) + "\n"


def _paragraph(alert: Alert) -> list[str]:
    meaning = alert.meaning.rpartition("{{ end }}")[2].strip() if "{{ end }}" in alert.meaning else alert.meaning
    return [f"### {alert.name}", "", meaning, "", f"To type: {_plain(alert.command)}", ""]


def _plain(command: str) -> str:
    """A command with the names of labels for what Prometheus fills in."""
    for label in ("host", "gpu", "mountpoint"):
        command = command.replace(f"{{{{ $labels.{label} }}}}", label.upper())
    return command


def _xid_row(row: Row) -> str:
    names = {"critical": "GpuXidCritical", "warning": "GpuXidWarning", "application": "GpuXidApplication", "quiet": "–"}
    return f"| {', '.join(map(str, row['codes']))} | {names[xid.class_of(row)]} | {xid.sentence(row)} |"

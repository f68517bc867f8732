# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the programs of a server of metrics run by what was written for them, and which exporters answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.observe.monitoring_server import (
    GRAFANA,
    PROGRAMS,
)

from ...model import sections
from ...model.stack import Stack
from ..view import UP, View
from . import files
from .model import NAME, MonitoringServer, of

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Facts,
        MetricsServer,
        MetricsTarget,
        ServerProgram,
    )


def wrong(facts: Facts, name: str) -> str | None:
    """What is not as it should be of a program; None where all is."""
    unit = sections.service(facts, {**PROGRAMS, "grafana": GRAFANA}[name].unit)
    if unit["active"] != "active":
        return "does not run"
    if unit["enabled"] != "enabled":
        return "does not begin with the machine"
    seen = facts.get("monitoring_server")
    program = _seen(seen, name) if seen else None
    if program is None:
        return "runs by another configuration than gpuwright's"
    if not program["answers"]:
        return f"does not answer where it should listen ({program['problem'] or 'its unit does not say where'})"
    if not program["started"]:
        return "was started before its unit was written"
    return None if program["loaded"] else program["problem"] or "has not read what was written"


def _seen(seen: MetricsServer, name: str) -> ServerProgram | None:
    programs = {"prometheus": seen["prometheus"], "alertmanager": seen["alertmanager"], "grafana": seen["grafana"]}
    return programs[name]


def judge(view: View, stack: Stack) -> list[Check]:
    """Its programs run by what was written, and every exporter of the inventory answers."""
    if NAME not in stack:
        return []
    wished = of(stack)
    if "services" in view.unknown:
        reason = f"it is not known whether the server of metrics runs: {view.unknown['services']}"
        return [checks.incomplete("monitoring.server", reason)]
    programs = files.programs(wished)
    found = [f"{program.unit} {what}" for name, program in programs.items() if (what := wrong(view.facts, name))]
    units = " -u ".join(program.unit for program in programs.values())
    server = checks.judged(
        "monitoring.server",
        not found,
        reason="; ".join(found) or None,
        action="configure",
        remedy=f"journalctl -u {units} says why; {UP}",
    )
    return [server] if found else [server, _exporters(view, wished)]


def _exporters(view: View, server: MonitoringServer) -> Check:
    seen = view.facts.get("monitoring_server")
    rows = seen["targets"] if seen else None
    if rows is None:
        return checks.incomplete("monitoring.targets", "Prometheus does not say which exporters answer", "warning")
    told = {(row["host"], row["job"]): row for row in rows}
    wished = {(target["host"], target["job"]) for target in server["targets"]}
    silent = [_silent(*key, told.get(key)) for key in sorted(wished) if not _is_up(told.get(key))]
    return checks.judged(
        "monitoring.targets",
        not silent,
        "warning",
        measured=len(wished) - len(silent),
        expected=len(wished),
        unit="exporters",
        reason="; ".join(silent) or None,
        action="configure",
        remedy="look whether the exporter runs there (gpuwright doctor on that host), and whether a firewall is between",
    )


def _is_up(row: MetricsTarget | None) -> bool:
    return row is not None and row["health"] == "up"


def _silent(host: str, job: str, row: MetricsTarget | None) -> str:
    """Why an exporter does not answer; one that was just named was not asked yet."""
    if row is None or row["health"] == "unknown":
        return f"{job} of {host} was not asked yet"
    return f"{job} of {host}: {row['error'] or 'no answer'}"

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the exporters that are wished can be read, whoever runs them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks

from .. import firewall
from ..view import UP, View, unknown
from . import seen, units

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ...model.monitoring_exporters import MonitoringExporters
    from ...model.stack import Stack

#: Days before its end at which a certificate is told: authorities that renew by themselves do it earlier.
_DAYS = 14
_OF = {"gpu": "the cards", "node": "this machine"}


def judge(view: View, stack: Stack) -> list[Check]:
    """Each exporter runs, listens where it is wished, and answers with what it shall tell; the certificate is good."""
    exporters = stack.get("monitoring_exporters")
    if exporters is None or (exporters["gpu"] and not view.gpus):
        return []
    certificate = [_certificate(view)] if exporters["tls"] else []
    found = [*(_exporter(view, exporters, kind) for kind in units.wished(exporters)), *certificate]
    if not exporters["firewall"] and not firewall.is_open(view.facts, "exporters"):
        return found
    return [*found, firewall.judged("monitoring.firewall", view, "exporters", units.openings(exporters))]


def _exporter(view: View, exporters: MonitoringExporters, kind: str) -> Check:
    name = f"monitoring.{kind}"
    run = next((each for each in units.ours(exporters) if each.kind == kind), None)
    if run and "services" in view.unknown:
        return unknown(name, view, "services", f"whether {run.unit} runs", "warning")
    if view.get("monitoring") is None:
        return checks.incomplete(name, "it is not known what listens: nobody looked", "warning")
    wrong = run and (seen.idle(view.facts, run) or seen.astray(view.facts, exporters, run))
    reason = wrong or _silent(view, exporters, kind)
    who = run.unit if run else units.wished(exporters)[kind]["adopted"]
    return checks.judged(
        name,
        reason is None,
        "warning",
        reason=reason,
        action="configure",
        remedy=f"journalctl -u {run.unit} says why; {UP if wrong else f'systemctl restart {run.unit}'}"
        if run
        else f"look at {who}: gpuwright leaves it as it is",
    )


def _silent(view: View, exporters: MonitoringExporters, kind: str) -> str | None:
    """Why nobody gets the metrics. Whether they are right behind a password is not to be seen from here."""
    port = units.wished(exporters)[kind]["port"]
    found = seen.listeners(view.facts, exporters, port)
    place = f"{exporters['address']}, port {port}"
    if not found:
        return f"nothing listens on {place}"
    status, tells = found[0]["status"], found[0]["tells"]
    if status == 401 and exporters["users"]:
        return None
    if status != 200:
        return f"what listens on {place} {'does not answer' if status is None else f'answers with status {status}'}"
    return None if tells == kind else f"what answers on {place} has no metrics of {_OF[kind]}"


def _certificate(view: View) -> Check:
    found = view.get("monitoring.certificate")
    if found is None:
        return unknown(
            "monitoring.certificate", view, "monitoring.certificate", "whether the certificate is good", "warning"
        )
    reason = found["problem"] or _ends_soon(found["expires"])
    return checks.judged(
        "monitoring.certificate",
        reason is None,
        "warning",
        measured=found["expires"],
        reason=reason,
        action="configure",
        remedy=f"renew the certificate; {UP}",
    )


def _ends_soon(expires: str) -> str | None:
    left = datetime.fromisoformat(expires) - datetime.now(UTC)
    return None if left > timedelta(days=_DAYS) else f"the certificate expires on {expires}"

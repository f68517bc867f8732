# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the exporters that are wished can be read, whoever runs them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version

from ...rules import gpus, load_rules
from .. import firewall
from ..view import UP, View, unknown
from . import seen, units

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check

    from ...model.stack import Stack
    from ...rules import Row
    from .model import MonitoringExporters

#: The packages of DCGM from 4 on and before; the parts for one CUDA have its number.
_CORE, _OLDER = "datacenter-gpu-manager-4-core", "datacenter-gpu-manager"
_PART = re.compile(r"datacenter-gpu-manager-4-cuda(\d+)")
#: Days before its end at which a certificate is told: authorities that renew by themselves do it earlier.
_DAYS = 14
_OF = {"gpu": "the cards", "node": "this machine"}


def judge(view: View, stack: Stack) -> list[Check]:
    """Each exporter runs, listens where it is wished, and answers with what it shall tell; the certificate is good."""
    return [*_dcgm(view), *_wished(view, stack)]


def _dcgm(view: View) -> list[Check]:
    """A DCGM that is here, whoever brought it, knows the CUDA of the driver and has its parts for it (compat/monitoring.yaml, cuda)."""
    there = view.get("packages.installed") or {}
    core = there.get(_CORE) or there.get(_OLDER)
    branch = numeric_version.major(str(view.get("driver.loaded_version") or ""))
    row = _cuda(view, branch) if core and branch.isdecimal() else None
    if not core or not row:
        return []
    version = numeric_version.upstream(core)
    parts = sorted(found[1] for name in there for found in [_PART.fullmatch(name)] if found)
    reason, remedy = None, None
    if row["dcgm"] and not numeric_version.at_least(version, row["dcgm"]):
        reason = f"DCGM {version} does not know CUDA {row['cuda']} of driver {branch}, which {row['dcgm']} is the first to know"
        remedy = f"install datacenter-gpu-manager-4-cuda{row['cuda']} in its place (it brings the newer DCGM), and restart nvidia-dcgm"
    if parts and str(row["cuda"]) not in parts:
        named = f"datacenter-gpu-manager-4-cuda{parts[-1]}"
        reason = f"DCGM {version} has its parts for CUDA {' and '.join(parts)} ({named}), and driver {branch} brings CUDA {row['cuda']}"
        remedy = f"install datacenter-gpu-manager-4-cuda{row['cuda']} in place of {named}, and restart nvidia-dcgm; diagnostics fail before"
    return [
        checks.judged(
            "monitoring.dcgm_version",
            reason is None,
            "warning",
            measured=version,
            reason=reason,
            action="install",
            remedy=remedy,
        )
    ]


def _cuda(view: View, branch: str) -> Row | None:
    """The row of the CUDA that DCGM has to know; None where a card is not known."""
    rules = load_rules()
    cards = [gpus.by_pci(card["device"], rules) for card in view.gpus]
    if not cards or None in cards:
        return None
    old = {card["architecture"] for card in cards if card}
    rows = [
        row for row in rules["monitoring"]["cuda"] if int(row["since"]) <= int(branch) and not old & set(row["without"])
    ]
    return max(rows, key=lambda row: int(row["since"]), default=None)


def _wished(view: View, stack: Stack) -> list[Check]:
    """The exporters that are wished."""
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

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an observation says of the exporters that are wished: whether they run, and listen as they shall. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model import sections
from ...resolver.listeners import meets

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, Listener

    from .model import MonitoringExporters
    from .units import Run

#: A program in Go that is told to listen on every address of IPv4 takes one socket of IPv6 for both (net/ipsock_posix.go,
#: favoriteAddrFamily).
_ALSO = {"0.0.0.0": "::"}  # noqa: S104 - what somebody wished


def listeners(facts: Facts, exporters: MonitoringExporters, port: int) -> list[Listener]:
    """What listens at the address and a port."""
    seen = facts.get("monitoring")
    return [each for each in (seen["listeners"] if seen else ()) if meets(each, exporters["address"], port)]


def idle(facts: Facts, run: Run) -> str | None:
    """Why an exporter does not run, now or after a boot."""
    # The program first: where it does not run, that is the cause.
    states = {unit: sections.service(facts, unit) for unit in (*run.needs, run.unit, *run.own)}
    for unit, state in states.items():
        if state["active"] != "active":
            return f"{unit} does not run"
    late = [unit for unit, state in states.items() if state["enabled"] not in ("enabled", "enabled-runtime")]
    return f"{late[0]} does not start with the machine" if late else None


def astray(facts: Facts, exporters: MonitoringExporters, run: Run) -> str | None:
    """Why an exporter that runs is not where and as it is wished; None where it is, and where nobody looked."""
    seen = facts.get("monitoring")
    if seen is None:
        return None
    place = f"{exporters['address']}, port {run.port}"
    found = [each for each in listeners(facts, exporters, run.port) if each["unit"] in (run.unit, None)]
    if not found:
        return f"{run.unit} does not listen on {place}"
    (first, *more) = found
    if more or first["address"] not in (exporters["address"], _ALSO.get(exporters["address"])):
        return f"{run.unit} listens on {', '.join(each['address'] for each in found)}, wished is {exporters['address']}"
    return _read_otherwise(first, exporters, run) or _another_certificate(facts, first, exporters, run)


def _read_otherwise(listener: Listener, exporters: MonitoringExporters, run: Run) -> str | None:
    """Why who may read is not who is wished. What did not answer now is nobody's fault yet."""
    if listener["tls"] is not None and listener["tls"] is not bool(exporters["tls"]):
        return f"{run.unit} speaks {'TLS' if listener['tls'] else 'no TLS'}, wished is the other"
    asks = {200: False, 401: True}.get(listener["status"] or 0)
    if asks is not None and asks is not bool(exporters["users"]):
        return f"{run.unit} asks {'for a password' if asks else 'nobody for a password'}, wished is the other"
    return None


def _another_certificate(facts: Facts, listener: Listener, exporters: MonitoringExporters, run: Run) -> str | None:
    """Why a certificate is not that of the file: it was renewed, and a service has a copy of what was there at its start."""
    seen = facts.get("monitoring")
    wished = seen["certificate"] if seen else None
    if (
        not exporters["tls"]
        or not wished
        or not wished["digest"]
        or listener["certificate"] in (None, wished["digest"])
    ):
        return None
    return f"{run.unit} shows another certificate than {exporters['tls']['certificate']} has"

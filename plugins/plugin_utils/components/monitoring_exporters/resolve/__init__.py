# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exporters of metrics: what tells those of the cards and of the machine, where it listens, and whose it is."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ....resolver import firewall, listeners
from ....resolver.log import DESIGN, Entry, Log, Unresolved, conflict
from ....resolver.machine import Machine
from ....resolver.part import CUDA_SOURCE, EPEL, OF_DCGM, HostPart
from ....rules import Row
from ....wish.reading import ANY
from ....wish.wish import Wish
from ..model import CardExporter, Dcgm, Exporter, MonitoringExporters, NodeExporter
from ..wish import DCGM, FIREWALL, SMI, MonitoringSettings
from . import dcgm

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Listener
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import DriverStack

#: Its key of a stack.
NAME = dcgm.NAME
#: The unit of the exporter that is our own.
UNIT = "gpuwright-gpu-exporter.service"
NODE_EXPORTER = "node_exporter"
_FLAG = "--web.config.file"
#: By which rule it is told for whom the firewall is opened.
_OPENS = "monitoring.firewall"
_FACTS = "the machine's facts"
_WISH = "the wish"
_JETSON = "docs.nvidia.com/jetson: nvidia-smi is there since JetPack 6 and has no utilization, memory or power of the card (assumed)"
#: What each exporter tells, by the word of the facts: for a person, and the variable of its port.
_OF = {"gpu": ("the cards", "monitoring_gpu_port"), "node": ("this machine", "monitoring_node_port")}


def choose(
    machine: Machine, wish: Wish, system: Row, driver: DriverStack | None, log: Log
) -> MonitoringExporters | None:
    """Return None without a wish, else what listens where. Raises Unresolved for what is not to be had."""
    if wish.monitoring_exporters is None:
        return None
    settings = wish.monitoring_exporters_settings
    row = next((each for each in log.rules["monitoring"]["rows"] if each["family"] == system["family"]), None)
    if row is None:
        text = f"no repository of {system['name']} is known to have node_exporter"
        remedy = "run one of your own on the port of monitoring_node_port: it is taken as it is"
        raise Unresolved(conflict("monitoring.node-exporter", text, "compat/monitoring.yaml", remedy))
    found: list[Entry] = [
        *_certificate(machine, settings),
        *firewall.refused(machine.firewall, settings.firewall, _OPENS, FIREWALL),
    ]
    gpu = log.attempt(_cards, machine, wish, system, driver, row["unit"], log) if machine.cards else None
    node = log.attempt(_adopted, "node", row["unit"], machine, settings, log)
    found += [] if node else _elsewhere("node", row["unit"], machine, settings)
    if found:
        raise Unresolved(*found)
    if not machine.cards:
        _without_cards(wish, log)
    _tell(gpu["source"] if gpu else None, settings, log)
    ports = [*([gpu["port"]] if gpu and not gpu["adopted"] else []), *([] if node else [settings.node_port])]
    if settings.firewall:
        _tell_firewall(machine, settings, ports, log)
    return {
        "address": settings.address,
        "gpu": gpu,
        "node": _node(row, machine, wish, node, log),
        "tls": {"certificate": settings.certificate, "key": settings.key}
        if settings.certificate and settings.key
        else None,
        "users": dict(settings.users),
        "firewall": list(settings.firewall),
    }


def _exporter(source: str, port: int, adopted: str | None) -> Exporter:
    return {"source": source, "port": port, "adopted": adopted}


def _cards(machine: Machine, wish: Wish, system: Row, driver: DriverStack | None, node: str, log: Log) -> CardExporter:
    """Return what tells the metrics of the cards. ``node``: the unit of the machine's exporter. Raises Unresolved."""
    settings = wish.monitoring_exporters_settings
    adopted = _adopted("gpu", node, machine, settings, log)
    brought = None if adopted else _dcgm(machine, wish, system, driver, log)
    found = [*_elsewhere("gpu", dcgm.UNIT, machine, settings)] if brought else []
    if found:
        raise Unresolved(*found)
    return {**_exporter(DCGM if brought else SMI, settings.gpu_port, adopted), "dcgm": brought}


def _without_cards(wish: Wish, log: Log) -> None:
    """Say that no card has metrics here. No source is refused: one inventory serves hosts with cards and without."""
    asked = "" if wish.monitoring_exporters == ANY else f", and {wish.monitoring_exporters} has nothing to tell"
    text = f"no NVIDIA GPU: the exporter of this machine comes alone{asked}"
    if wish.gpus_expected != 0:
        text += "; gpuwright_gpus_expected: 0 in the inventory tells the server of metrics not to ask it for cards"
    log.warn("monitoring.no-cards", text, DESIGN)


def _dcgm(machine: Machine, wish: Wish, system: Row, driver: DriverStack | None, log: Log) -> Dcgm | None:
    """Return DCGM where it is wished, or where it is left to the rules and serves the machine."""
    if wish.monitoring_exporters == SMI:
        return None
    return log.attempt(partial(dcgm.choose, asked=wish.monitoring_exporters == DCGM), machine, system, driver, log)


def _node(row: Row, machine: Machine, wish: Wish, adopted: str | None, log: Log) -> NodeExporter:
    older = next((each for each in log.rules["monitoring"]["flags"] if machine.os in each["os"]), None)
    return {
        **_exporter(NODE_EXPORTER, wish.monitoring_exporters_settings.node_port, adopted),
        "package": row["package"],
        "repository": row["repository"],
        "unit": row["unit"],
        "program": row["program"],
        "textfiles": wish.metrics,
        "flag": older["flag"] if older else _FLAG,
    }


# Whose the ports are


def _adopted(kind: str, node: str, machine: Machine, settings: MonitoringSettings, log: Log) -> str | None:
    """Return who runs an exporter of this kind already where one is wished; None where nobody does. Raises Unresolved where another program
    is there.
    """
    port = _port(kind, settings)
    there = listeners.at(machine, settings.address, port)
    held = [each for each in there if not _is_ours(each, kind, node, machine)]
    what, variable = _OF[kind]
    strangers = [each for each in held if each["tells"] != kind]
    if strangers:
        first = strangers[0]
        place = listeners.place(first["address"], port)
        text = f"{place} is held by {listeners.name(first)}, which is no exporter of {what} ({_said(first)})"
        remedy = f"set {variable} to a port that is free, or end what listens there"
        raise Unresolved(conflict("monitoring.port", text, _FACTS, remedy))
    if not held:
        return None
    name = listeners.name(held[0])
    places = ", ".join(listeners.place(each["address"], port) for each in held)
    text = f"{name} tells the metrics of {what} on {places} already: it is left as it is"
    log.decided("monitoring.adopted", text, _FACTS)
    return name


def _is_ours(listener: Listener, kind: str, node: str, machine: Machine) -> bool:
    """Say whether an exporter of ours listens. ``node``: the unit of the one of the machine."""
    return any(
        listeners.is_of(listener, unit, machine) and (unit == UNIT or _is_changed(kind, unit, machine))
        for unit in ((UNIT, dcgm.UNIT) if kind == "gpu" else (node,))
    )


def _is_changed(kind: str, unit: str, machine: Machine) -> bool:
    """Say whether a unit that came with a package is ours: by its drop-in, or by the seal where that is gone."""
    sealed = dcgm.sealed(machine).get(kind)
    ours = isinstance(sealed, Mapping) and sealed.get("source") in (DCGM, NODE_EXPORTER) and not sealed.get("adopted")
    return ours or unit in (machine.monitoring["drop_ins"] if machine.monitoring else ())


def _elsewhere(kind: str, unit: str, machine: Machine, settings: MonitoringSettings) -> Iterable[Entry]:
    """Say where an exporter of somebody else's runs and is not where one is wished: its unit would get other options."""
    if machine.monitoring is None or unit not in machine.running or _is_changed(kind, unit, machine):
        return []
    port, (what, variable) = _port(kind, settings), _OF[kind]
    if listeners.at(machine, settings.address, port):
        return []
    text = f"{unit} tells metrics of {what} already, and not on {listeners.place(settings.address, port)}"
    remedy = f"set monitoring_address and {variable} to where it listens, and it is left as it is; or disable it"
    return [conflict("monitoring.elsewhere", text, _FACTS, remedy)]


def _port(kind: str, settings: MonitoringSettings) -> int:
    return settings.gpu_port if kind == "gpu" else settings.node_port


def _said(listener: Listener) -> str:
    if listener["status"] is None:
        return "it does not answer"
    return f"it answers with status {listener['status']}" if listener["status"] != 200 else "its metrics are of others"


# Who may read


def _certificate(machine: Machine, settings: MonitoringSettings) -> Iterable[Entry]:
    seen = machine.monitoring["certificate"] if machine.monitoring else None
    if settings.certificate is None or seen is None or seen["problem"] is None:
        return []
    remedy = "name in monitoring_tls a certificate that is good today and its key without a password, both in root's hands alone"
    return [conflict("monitoring.certificate", seen["problem"], _FACTS, remedy)]


def _tell(source: str | None, settings: MonitoringSettings, log: Log) -> None:
    """Say what listens where, and who may read it. ``source``: what tells of the cards, None where there are none."""
    scheme = "https" if settings.certificate else "http"
    cards, machine = (
        f"{scheme}://{listeners.place(settings.address, port)}" for port in (settings.gpu_port, settings.node_port)
    )
    readers = f"for {', '.join(settings.users)}" if settings.users else "for everybody who reaches it"
    of_cards = f"of the cards (by {source}) on {cards}, " if source else ""
    text = f"metrics {of_cards}of this machine on {machine}, {readers}"
    log.decided("monitoring.listens", text, _WISH)
    address = ipaddress.ip_address(settings.address)
    if address.is_unspecified:
        log.warn(
            "monitoring.everywhere", f"the exporters listen on every address ({settings.address}), as wished", _WISH
        )
    if not address.is_loopback and not settings.users:
        text = f"whoever reaches {settings.address} may read the metrics: monitoring_users names who may"
        log.warn("monitoring.open", text, _WISH)
    if settings.users and not settings.certificate and not address.is_loopback:
        text = "the passwords of monitoring_users go over the network in clear: monitoring_tls hides them"
        log.warn("monitoring.clear", text, _WISH)


def _tell_firewall(machine: Machine, settings: MonitoringSettings, ports: Sequence[int], log: Log) -> None:
    """Say for whom the firewall is opened. ``ports``: those of the exporters that are ours."""
    if ports:
        what = f"TCP {' and '.join(map(str, ports))}"
        firewall.tell(machine.firewall, settings.firewall, what, _OPENS, log)
    else:
        text = f"nothing is opened for {', '.join(settings.firewall)}: no exporter here is gpuwright's"
        log.decided(_OPENS, text, _FACTS)
    everybody = [each for each in settings.firewall if each.endswith("/0")]
    if everybody:
        text = f"the firewall is opened for everybody ({', '.join(everybody)}), as wished"
        log.warn("monitoring.everybody", text, _WISH)
    if ipaddress.ip_address(settings.address).is_loopback:
        text = f"the exporters listen on {settings.address} alone: no network of {FIREWALL} reaches them"
        log.warn("monitoring.unreachable", text, _WISH)


# What its packages come from


def _sources(exporters: MonitoringExporters) -> Mapping[str, str]:
    """Return what comes from which package source, for a person."""
    node = exporters["node"]
    of_epel = node["repository"] == EPEL and not node["adopted"]
    return {
        **({CUDA_SOURCE: OF_DCGM} if exporters["gpu"] and exporters["gpu"]["dcgm"] else {}),
        **({EPEL: NODE_EXPORTER} if of_epel else {}),
    }


HOST_PART = HostPart(
    NAME,
    "monitoring",
    lambda machine, wish, system, stack, log: choose(machine, wish, system, stack.get("driver"), log),
    useless={
        "jetson": (
            "monitoring.jetson",
            "monitoring left out: the nvidia-smi of a Jetson tells none of its values",
            _JETSON,
        )
    },
    sources=_sources,
    cards=False,
)

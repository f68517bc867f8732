# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The server of metrics: where its packages come from, where it listens, and which exporters of the inventory it asks."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import words
from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy
from ansible_collections.gpuwright.node.plugins.module_utils.observe.monitoring_server import (
    ALERTMANAGER,
    DASHBOARDS,
    GRAFANA,
    PROMETHEUS,
)

from ....resolver import listeners
from ....resolver.log import DESIGN, Entry, Log, Unresolved, conflict
from ....resolver.machine import Machine
from ....resolver.part import HostPart, Place
from ....rules import Row
from ....wish.fleet import Exporters
from ....wish.wish import Wish
from ..model import NAME, Grafana, MonitoringServer, ServerSettings, Target
from ..wish import ALERTS_PORT, GRAFANA_PORT, PORT, default_settings, ports
from . import grafana

#: What a server of metrics is, in the archives that have one.
PACKAGES = ("prometheus", "prometheus-alertmanager")
_ARCHIVE = "packages prometheus and prometheus-alertmanager of Debian 12 and 13, and of Ubuntu's component universe"
_NONE = "neither Red Hat's archive nor EPEL is known to have both, with their units (assumed: not read)"
_FACTS = "the machine's facts"
#: An address over which everybody on the way reads along: not one of this machine's own.
_CLEAR = lazy(r"http://(?!(localhost|127[.]|\[::1\]))")
#: The unit that listens on each port, by the variable of that.
_UNITS = {PORT: PROMETHEUS.unit, ALERTS_PORT: ALERTMANAGER.unit, GRAFANA_PORT: GRAFANA.unit}
_DEBIAN = "let a machine with Debian or Ubuntu be the server: it needs no card"
# Since Alertmanager 0.25, which Debian 12 has and whose amtool takes it; that Ubuntu 22.04 has 0.23 is assumed.
_NO_PASSWORD_FILE = ("ubuntu-22.04",)


def choose(machine: Machine, wish: Wish, system: Row, log: Log) -> MonitoringServer | None:
    """Return None without a wish, else what the server is set to. Raises Unresolved where there is no package of it, or another one."""
    if not wish.monitoring_server:
        return None
    if system["family"] == "rhel":
        text = f"{machine.os} has no package of a server of metrics that gpuwright could install"
        raise Unresolved(conflict("monitoring-server.archive", text, _NONE, _DEBIAN))
    others = [name for name in grafana.strangers(machine) if name in PACKAGES]
    if others:
        text = f"{' and '.join(others)} is here and was not set up by gpuwright: what it keeps would be left behind"
        remedy = (
            "let another machine be the server, or give that one the rules and dashboards of gpuwright (docs/monitoring.md); where nobody "
            "needs it, remove its packages"
        )
        raise Unresolved(conflict("monitoring-server.foreign", text, DESIGN, remedy))
    settings = wish.monitoring_server_settings or default_settings()
    if machine.os in _NO_PASSWORD_FILE and any(
        each["kind"] == "mail" and each["access"] for each in settings["receivers"]
    ):
        text = "the Alertmanager of Ubuntu 22.04 (0.23) reads no password of mail from a file"
        remedy = "let a newer Debian or Ubuntu be the server, or a mail server that takes mail without a password"
        raise Unresolved(
            conflict(
                "monitoring-server.mail", text, "alertmanager 0.25 of Debian 12, 0.23 of Ubuntu 22.04 (assumed)", remedy
            )
        )
    beside = grafana.choose(machine, settings["grafana"], DASHBOARDS, log)
    settings = {**settings, "grafana": beside}
    held = [*_held(machine, settings)]
    if held:
        raise Unresolved(*held)
    targets = [target for each in wish.fleet for target in _targets(each)]
    _tell(settings, wish.fleet, targets, log)
    return {**settings, "packages": [*PACKAGES, *([grafana.GRAFANA] if beside else [])], "targets": targets}


def _held(machine: Machine, settings: ServerSettings) -> Iterator[Entry]:
    """Say which ports other programs hold."""
    for variable, port in ports(settings).items():
        there = listeners.at(machine, settings["address"], port)
        others = [each for each in there if not listeners.is_of(each, _UNITS[variable], machine)]
        if others:
            place = listeners.place(others[0]["address"], port)
            text = f"{place}, where {_UNITS[variable]} shall listen, is held by {listeners.name(others[0])}"
            remedy = f"set {variable} to a port that is free, or end what listens there"
            yield conflict("monitoring-server.port", text, _FACTS, remedy)


def _targets(exporters: Exporters) -> Iterator[Target]:
    for job, port in (("gpu", exporters.gpu_port), ("node", exporters.node_port)):
        if exporters.address is not None and port is not None:
            yield {
                "host": exporters.host,
                "job": job,
                "address": f"{exporters.address}:{port}",
                "tls": exporters.tls,
                "password": exporters.users,
            }


def _seen(address: str, beside: Grafana | None) -> str:
    """Return where the dashboards are seen."""
    if beside is None:
        return f"the dashboards are files in {DASHBOARDS}, to be imported into a Grafana"
    return f"Grafana listens on {listeners.place(address, beside['port'])} and has the dashboards"


def _tell(settings: ServerSettings, fleet: Sequence[Exporters], targets: Sequence[Target], log: Log) -> None:
    address, days, size = settings["address"], settings["days"], settings["size"]
    log.decided(
        "monitoring-server",
        f"Prometheus listens on {listeners.place(address, settings['port'])}, Alertmanager on "
        f"{listeners.place(address, settings['alerts_port'])}; {words.count(len(targets), 'exporters', 'are')} asked; "
        f"metrics are kept for {words.count(days, 'days')}, at most {size}, and stay where the server is removed; "
        f"{_seen(address, settings['grafana'])}",
        _ARCHIVE,
    )
    unreachable = [each.host for each in fleet if each.address is None]
    if unreachable:
        text = f"not asked: {', '.join(unreachable)}, whose exporters listen for their own machine alone; set monitoring_address there"
        log.warn("monitoring-server.loopback", text, DESIGN)
    open_for_all = [each.host for each in fleet if each.users and not each.tls]
    if open_for_all:
        text = (
            f"the password for the exporters of {', '.join(open_for_all)} is sent unencrypted; set monitoring_tls there"
        )
        log.warn("monitoring-server.unencrypted", text, DESIGN)
    if not ipaddress.ip_address(address).is_loopback:
        text = (
            f"whoever reaches {address} reads all metrics, and silences alerts: neither Prometheus nor Alertmanager asks for a password. "
            "Leave monitoring_server_address at 127.0.0.1 and come by ssh or a proxy that asks, or let a firewall keep others out"
        )
        log.warn("monitoring-server.open", text, DESIGN)
    # The address of a webhook is itself a secret.
    told = [each["url"] for each in settings["remote_write"] if each["access"]]
    told += [each["at"] for each in settings["receivers"] if "at" in each]
    clear = [each for each in told if _CLEAR.match(each)]
    if clear:
        text = f"passwords, tokens or secret addresses are sent unencrypted to {', '.join(clear)}; an address with https:// hides them"
        log.warn("monitoring-server.clear", text, DESIGN)
    if not settings["receivers"]:
        text = "alerts are told to nobody: set monitoring_receivers; until then Alertmanager's own page shows them"
        log.warn("monitoring-server.nobody", text, DESIGN)


def _places(server: MonitoringServer, _machine: Machine, wish: Wish, _system: Row, log: Log) -> Sequence[Place]:
    return [grafana.place(wish, log)] if server["grafana"] else ()


HOST_PART = HostPart(
    NAME,
    "monitoring-server",
    lambda machine, wish, system, _stack, log: choose(machine, wish, system, log),
    useless={"jetson": ("monitoring-server.jetson", f"monitoring-server left out on a Jetson: {_DEBIAN}", DESIGN)},
    places=_places,
    cards=False,
)

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machine's own firewall: for whom it is opened, and what is told where there is nothing to open."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ..wish.monitoring_exporters import MonitoringSettings
from .log import Entry, Log, conflict

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Firewall, FirewallTool

_FACTS = "the machine's facts"
_WISH = "the wish"


def active(seen: Firewall | None) -> list[FirewallTool]:
    """Return those of the two that are active."""
    return [tool for tool in (seen["tools"] if seen else ()) if tool["active"]]


def refused(seen: Firewall | None, networks: Collection[str]) -> list[Entry]:
    """Say which firewall takes no rule for a network that is wished."""
    of_ipv6 = [network for network in networks if ":" in network]
    return [
        conflict(
            "monitoring.firewall",
            f"{tool['name']} takes no rules for IPv6, and monitoring_firewall names {', '.join(of_ipv6)}",
            _FACTS,
            "leave these networks out, or set IPV6=yes in /etc/default/ufw and run ufw reload",
        )
        for tool in active(seen)
        if of_ipv6 and not tool["ipv6"]
    ]


def tell(seen: Firewall | None, settings: MonitoringSettings, ports: Sequence[int], log: Log) -> None:
    """Say for whom which port is opened, and by which firewall. ``ports``: those of the exporters that are ours."""
    if not settings.firewall:
        return
    whom, what = ", ".join(settings.firewall), " and ".join(map(str, ports))
    if not ports:
        log.decided("monitoring.firewall", f"nothing is opened for {whom}: no exporter here is gpuwright's", _FACTS)
    elif seen is None:
        log.warn("monitoring.firewall", f"it is not known which firewall to open for {whom} (TCP {what})", _FACTS)
    elif tools := active(seen):
        names = " and ".join(tool["name"] for tool in tools)
        log.decided("monitoring.firewall", f"TCP {what} opened in {names} for {whom} alone", _FACTS)
    else:
        others = " and ".join(seen["others"])
        left = f"; the rules of {others} are left as they are, and may have to let {whom} in" if others else ""
        text = f"nothing to open for {whom} (TCP {what}): neither firewalld nor ufw is active{left}"
        (log.warn if others else log.decided)("monitoring.firewall", text, _FACTS)
    everybody = [each for each in settings.firewall if each.endswith("/0")]
    if everybody:
        log.warn(
            "monitoring.everybody", f"the firewall is opened for everybody ({', '.join(everybody)}), as wished", _WISH
        )
    if ipaddress.ip_address(settings.address).is_loopback:
        text = f"the exporters listen on {settings.address} alone: no network of monitoring_firewall reaches them"
        log.warn("monitoring.unreachable", text, _WISH)

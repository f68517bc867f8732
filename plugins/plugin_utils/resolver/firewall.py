# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machine's own firewall: for whom it is opened, and what is told where there is nothing to open."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .log import Entry, Log, conflict

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Firewall, FirewallTool

_FACTS = "the machine's facts"


def active(seen: Firewall | None) -> list[FirewallTool]:
    """Return those of the two that are active."""
    return [tool for tool in (seen["tools"] if seen else ()) if tool["active"]]


def refused(seen: Firewall | None, networks: Collection[str], rule: str, variable: str) -> list[Entry]:
    """Say which firewall takes no rule for a network that is wished. ``rule``: by which that is told; ``variable``: what names networks."""
    of_ipv6 = [network for network in networks if ":" in network]
    return [
        conflict(
            rule,
            f"{tool['name']} takes no rules for IPv6, and {variable} names {', '.join(of_ipv6)}",
            _FACTS,
            "leave these networks out, or set IPV6=yes in /etc/default/ufw and run ufw reload",
        )
        for tool in active(seen)
        if of_ipv6 and not tool["ipv6"]
    ]


def tell(seen: Firewall | None, networks: Collection[str], ports: str, rule: str, log: Log) -> None:
    """Say for whom which ports are opened, and by which firewall. ``ports``: for a person."""
    whom = ", ".join(networks)
    if seen is None:
        log.warn(rule, f"it is not known which firewall to open for {whom} ({ports})", _FACTS)
    elif tools := active(seen):
        names = " and ".join(tool["name"] for tool in tools)
        log.decided(rule, f"{ports} opened in {names} for {whom} alone", _FACTS)
    else:
        others = " and ".join(seen["others"])
        left = f"; the rules of {others} are left as they are, and may have to let {whom} in" if others else ""
        text = f"nothing to open for {whom} ({ports}): neither firewalld nor ufw is active{left}"
        (log.warn if others else log.decided)(rule, text, _FACTS)

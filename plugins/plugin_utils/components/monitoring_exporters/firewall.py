# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules that open the machine's firewall for exporters: which lack, which are too many, and the commands for both. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import firewall_marks

from ...resolver import firewall
from ..base import Finding
from . import units

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Facts, FirewallRule, FirewallTool

    from ...model.monitoring_exporters import MonitoringExporters

#: The network and the port of a rule.
Opened = tuple[str, int]


def wrong(facts: Facts, exporters: MonitoringExporters) -> list[str]:
    """Why the firewalls that are active are not open as wished, for a person; nothing where nobody could look."""
    return [
        text
        for tool in firewall.active(facts.get("firewall"))
        for text in (
            *(f"{tool['name']} does not let {network} to port {port}" for network, port in _lacking(tool, exporters)),
            *(
                f"{tool['name']} lets {rule['network']} to port {rule['port']}, which is not wished any more"
                for rule in _left_over(tool, exporters)
            ),
        )
    ]


def commands(facts: Facts, exporters: MonitoringExporters) -> list[list[str]]:
    """What makes it so: the rules that are too many go first."""
    return [
        command
        for tool in firewall.active(facts.get("firewall"))
        for command in (
            *_away(tool, _left_over(tool, exporters)),
            *(command for opened in _lacking(tool, exporters) for command in _commands(tool, opened, opens=True)),
        )
    ]


def ours(facts: Facts) -> list[FirewallRule]:
    """All rules of gpuwright, also those of a firewall that is not active now."""
    seen = facts.get("firewall")
    return [rule for tool in (seen["tools"] if seen else ()) for rule in tool["rules"] if rule["ours"]]


def take_back(facts: Facts) -> list[Finding]:
    """The firewall is closed again."""
    rules = ours(facts)
    whom = ", ".join(f"{rule['network']} to port {rule['port']}" for rule in rules)
    return [Finding("remove", f"rules of the firewall that let {whom}")] if rules else []


def closing(facts: Facts) -> list[list[str]]:
    """The commands that take every rule of gpuwright back."""
    seen = facts.get("firewall")
    return [
        command
        for tool in (seen["tools"] if seen else ())
        for command in _away(tool, [rule for rule in tool["rules"] if rule["ours"]])
    ]


def _wished(exporters: MonitoringExporters) -> list[Opened]:
    return [(network, run.port) for network in exporters["firewall"] for run in units.ours(exporters)]


def _lacking(tool: FirewallTool, exporters: MonitoringExporters) -> list[Opened]:
    """What no rule lets in, now and after a boot; one of somebody else's serves too."""
    there = {(rule["network"], rule["port"]) for rule in tool["rules"] if rule["permanent"] and rule["runtime"]}
    return [opened for opened in _wished(exporters) if opened not in there]


def _left_over(tool: FirewallTool, exporters: MonitoringExporters) -> list[FirewallRule]:
    wished = _wished(exporters)
    return [rule for rule in tool["rules"] if rule["ours"] and (rule["network"], rule["port"]) not in wished]


def _away(tool: FirewallTool, rules: Iterable[FirewallRule]) -> list[list[str]]:
    return [command for rule in rules for command in _commands(tool, (rule["network"], rule["port"]), opens=False)]


def _commands(tool: FirewallTool, opened: Opened, *, opens: bool) -> list[list[str]]:
    """What opens or closes: ufw keeps and loads a rule in one, firewalld in two. A firewalld that is off has nothing loaded."""
    network, port = opened
    if tool["name"] == "ufw":
        rule = ["allow", "proto", "tcp", "from", network, "to", "any", "port", str(port)]
        return [["ufw", *rule, "comment", firewall_marks.COMMENT] if opens else ["ufw", "delete", *rule]]
    rich = (
        f'rule priority="{firewall_marks.PRIORITY}" family="{"ipv6" if ":" in network else "ipv4"}" source address="{network}"'
        f' port port="{port}" protocol="tcp" accept'
    )
    option = f"--{'add' if opens else 'remove'}-rich-rule={rich}"
    if not tool["active"]:
        return [["firewall-offline-cmd", option]]
    return [["firewall-cmd", "--permanent", option], ["firewall-cmd", option]]

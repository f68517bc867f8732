# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules that open the machine's firewall for a component: which lack, which are too many, and the commands for both. Pure.

The role ``firewall`` runs the commands. A component has a mark of its own (module_utils/base/firewall_marks.py), and only rules that bear
it are taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks
from ansible_collections.gpuwright.node.plugins.module_utils.base.firewall_marks import MARKS

from ..resolver import firewall
from .base import Finding
from .view import UP, View, unknown

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Facts,
        FirewallOwner,
        FirewallProtocol,
        FirewallRule,
        FirewallTool,
    )


class Opening(NamedTuple):
    """A network that is let to ports: one, or the first and the last of a range (1024-65535)."""

    network: str
    protocol: FirewallProtocol
    ports: str

    def __str__(self) -> str:
        return f"{self.network} to {self.protocol.upper()} {self.ports}"


def findings(facts: Facts, owner: FirewallOwner, wished: Sequence[Opening]) -> list[Finding]:
    """What is not as wished, as one finding."""
    reasons = wrong(facts, owner, wished)
    return [Finding("configure", "; ".join(reasons))] if reasons else []


def wrong(facts: Facts, owner: FirewallOwner, wished: Sequence[Opening]) -> list[str]:
    """Why the firewalls that are active are not open as wished, for a person; nothing where nobody could look."""
    return [
        text
        for tool in firewall.active(facts.get("firewall"))
        for text in (
            *(f"{tool['name']} does not let {opening}" for opening in _lacking(tool, wished)),
            *(
                f"{tool['name']} lets {opening}, which is not wished any more"
                for opening in _left_over(tool, owner, wished)
            ),
        )
    ]


def commands(facts: Facts, owner: FirewallOwner, wished: Sequence[Opening]) -> list[list[str]]:
    """What makes it so: the rules that are too many go first."""
    return [
        command
        for tool in firewall.active(facts.get("firewall"))
        for command in (
            *_away(tool, owner, _left_over(tool, owner, wished)),
            *(command for opening in _lacking(tool, wished) for command in _commands(tool, owner, opening, opens=True)),
        )
    ]


def is_open(facts: Facts, owner: FirewallOwner) -> bool:
    """Whether a rule of this component is there, also in a firewall that is not active now."""
    return any(_ours(tool, owner) for tool in _tools(facts))


def take_back(facts: Facts, owner: FirewallOwner) -> list[Finding]:
    """The firewall is closed again."""
    whom = ", ".join(str(opening) for tool in _tools(facts) for opening in _ours(tool, owner))
    return [Finding("remove", f"rules of the firewall that let {whom}")] if whom else []


def closing(facts: Facts, owner: FirewallOwner) -> list[list[str]]:
    """The commands that take every rule of this component back."""
    return [command for tool in _tools(facts) for command in _away(tool, owner, _ours(tool, owner))]


def judged(name: str, view: View, owner: FirewallOwner, wished: Sequence[Opening]) -> Check:
    """The machine's firewall lets in who is wished, and by this component nobody else. ``name``: the id of the check."""
    if view.get("firewall") is None:
        return unknown(name, view, "firewall", "for whom the firewall is open", "warning")
    reasons = wrong(view.facts, owner, wished)
    return checks.judged(name, not reasons, "warning", reason="; ".join(reasons) or None, action="configure", remedy=UP)


def _tools(facts: Facts) -> list[FirewallTool]:
    seen = facts.get("firewall")
    return seen["tools"] if seen else []


def _opening(rule: FirewallRule) -> Opening:
    return Opening(rule["network"], rule["protocol"], rule["ports"])


def _ours(tool: FirewallTool, owner: FirewallOwner) -> list[Opening]:
    return [_opening(rule) for rule in tool["rules"] if rule["owner"] == owner]


def _lacking(tool: FirewallTool, wished: Sequence[Opening]) -> list[Opening]:
    """What no rule lets in, now and after a boot; one of somebody else's serves too."""
    there = {_opening(rule) for rule in tool["rules"] if rule["permanent"] and rule["runtime"]}
    return [opening for opening in wished if opening not in there]


def _left_over(tool: FirewallTool, owner: FirewallOwner, wished: Sequence[Opening]) -> list[Opening]:
    return [opening for opening in _ours(tool, owner) if opening not in wished]


def _away(tool: FirewallTool, owner: FirewallOwner, openings: Iterable[Opening]) -> list[list[str]]:
    return [command for opening in openings for command in _commands(tool, owner, opening, opens=False)]


def _commands(tool: FirewallTool, owner: FirewallOwner, opening: Opening, *, opens: bool) -> list[list[str]]:
    """What opens or closes: ufw keeps and loads a rule in one, firewalld in two. A firewalld that is off has nothing loaded."""
    network, protocol, ports = opening
    mark = MARKS[owner]
    if tool["name"] == "ufw":
        rule = ["allow", "proto", protocol, "from", network, "to", "any", "port", ports.replace("-", ":")]
        return [["ufw", *rule, "comment", mark.comment] if opens else ["ufw", "delete", *rule]]
    rich = (
        f'rule priority="{mark.priority}" family="{"ipv6" if ":" in network else "ipv4"}" source address="{network}"'
        f' port port="{ports}" protocol="{protocol}" accept'
    )
    option = f"--{'add' if opens else 'remove'}-rich-rule={rich}"
    if not tool["active"]:
        return [["firewall-offline-cmd", option]]
    return [["firewall-cmd", "--permanent", option], ["firewall-cmd", option]]

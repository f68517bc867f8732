# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The firewalls that can be opened, firewalld and ufw, and which of their rules are gpuwright's. Nothing is changed by it."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, List, Optional, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base.firewall_marks import MARKS

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Firewall,
        FirewallOwner,
        FirewallProtocol,
        FirewallRule,
        FirewallTool,
    )

    #: Network, protocol, ports, and for whom of ours it is.
    Opened = Tuple[str, FirewallProtocol, str, Optional[FirewallOwner]]

FACT = "firewall"
UFW_SETTINGS, UFW_DEFAULTS = "/etc/ufw/ufw.conf", "/etc/default/ufw"
UFW_RULES = ("/etc/ufw/user.rules", "/etc/ufw/user6.rules")
ZONES = "/etc/firewalld/zones/*.xml"
_LIMIT = 1 << 20
_MOST = 1000
_HIGHEST_PORT = 65535
#: How firewall-cmd ends where firewalld does not run (NOT_RUNNING of firewall/errors.py).
_NOT_RUNNING = 252
#: As ufw 0.36 keeps a rule that names a source, without an application or an interface (ufw's backend_iptables.py): the comment is in hex.
_TUPLE = re.compile(
    r"^### tuple ### allow (tcp|udp) (\d{1,5}(?::\d{1,5})?) (?:0\.0\.0\.0/0|::/0) any ([0-9A-Fa-f.:]{2,45}(?:/\d{1,3})?) in"
    r"(?: comment=([0-9a-f]{1,512}))?$",
    re.MULTILINE,
)
#: As firewalld prints a rich rule (str of Rich_Rule in firewall/core/rich.py) that has a priority.
_RICH = re.compile(
    r'^rule priority="(-?\d{1,5})" family="ipv[46]" source address="([0-9A-Fa-f.:]{2,45}(?:/\d{1,3})?)"'
    r' port port="(\d{1,5}(?:-\d{1,5})?)" protocol="(tcp|udp)" accept$',
    re.MULTILINE,
)
_BY_COMMENT = {mark.comment.encode().hex(): owner for owner, mark in MARKS.items()}
_BY_PRIORITY = {str(mark.priority): owner for owner, mark in MARKS.items()}


def observe(host: Host) -> Firewall | None:
    """None where it cannot be seen, or does not answer: a firewall of which nothing is known is not taken for one that is off."""
    if not host.live:
        host.unknown(FACT, "the firewall of a tree that does not run is not looked at")
        return None
    if host.euid != 0:
        host.unknown(FACT, "only root sees the rules of a firewall")
        return None
    tools = [each for each in (_ufw(host), _firewalld(host)) if each]
    # What either of the two has made needs no other telling.
    others = [] if any(each["active"] for each in tools) else _others(host)
    return None if FACT in host.unknown_facts else {"tools": tools, "others": others}


def _ufw(host: Host) -> FirewallTool | None:
    if not host.which("ufw"):
        return None
    texts = [host.read(path, FACT, limit=_LIMIT) or "" for path in UFW_RULES]
    # What ufw keeps is what it has loaded: each of its own commands changes both.
    rules = [_rule(opened, permanent=True, runtime=True) for text in texts for opened in parse_ufw(text)]
    return {
        "name": "ufw",
        "active": is_set(host.read(UFW_SETTINGS, FACT, limit=_LIMIT) or "", "ENABLED"),
        "ipv6": is_set(host.read(UFW_DEFAULTS, FACT, limit=_LIMIT) or "", "IPV6"),
        # Ours first: where somebody has very many, what is left out is none of ours.
        "rules": sorted(rules, key=lambda rule: rule["owner"] is None)[:_MOST],
    }


def _rule(opened: Opened, *, permanent: bool, runtime: bool) -> FirewallRule:
    network, protocol, ports, owner = opened
    return {
        "network": network,
        "protocol": protocol,
        "ports": ports,
        "owner": owner,
        "permanent": permanent,
        "runtime": runtime,
    }


def is_set(text: str, name: str) -> bool:
    """Whether a file of ufw's says yes to this."""
    return bool(re.search(rf"^{name}=[\"']?yes[\"']?\s*$", text, re.MULTILINE | re.IGNORECASE))


def parse_ufw(text: str) -> list[Opened]:
    """The rules of ufw that let a network to ports, and to nothing else."""
    found = [
        (_network(source), protocol, _ports(ports, ":"), _BY_COMMENT.get(comment))
        for protocol, ports, source, comment in _TUPLE.findall(text)
    ]
    return [(network, protocol, ports, owner) for network, protocol, ports, owner in found if network and ports]


def _firewalld(host: Host) -> FirewallTool | None:
    if not host.which("firewall-cmd"):
        return None
    loaded = host.run(["firewall-cmd", "--list-rich-rules"])
    if loaded.ok:
        kept = host.run(["firewall-cmd", "--permanent", "--list-rich-rules"])
    elif loaded.rc != _NOT_RUNNING:
        host.unknown(FACT, f"firewalld did not say what it lets in: {loaded.error or loaded.err.strip()[:200]}")
        return None
    elif any(_keeps_ours(host.read(path, FACT, limit=_LIMIT) or "") for path in host.glob(ZONES)):
        kept = host.run(["firewall-offline-cmd", "--list-rich-rules"])
    else:
        return {"name": "firewalld", "active": False, "ipv6": True, "rules": []}
    if not kept.ok:
        host.unknown(FACT, f"the rules that firewalld keeps could not be read: {kept.error or kept.err.strip()[:200]}")
    now = set(parse_firewalld(loaded.out)) if loaded.ok else set()
    after = set(parse_firewalld(kept.out)) if kept.ok else set()
    rules: List[FirewallRule] = [
        _rule(opened, permanent=opened in after, runtime=opened in now) for opened in sorted(now | after)
    ]
    return {"name": "firewalld", "active": loaded.ok, "ipv6": True, "rules": rules[:_MOST]}


def _keeps_ours(zone: str) -> bool:
    """Whether a rule of ours is in the file of a zone."""
    return any(f'priority="{priority}"' in zone for priority in _BY_PRIORITY)


def parse_firewalld(text: str) -> list[Opened]:
    """Each rich rule of ours."""
    found = [
        (_network(source), protocol, _ports(ports, "-"), _BY_PRIORITY.get(priority))
        for priority, source, ports, protocol in _RICH.findall(text)
    ]
    return [
        (network, protocol, ports, owner) for network, protocol, ports, owner in found if network and ports and owner
    ]


def _ports(text: str, separator: str) -> str | None:
    """A port, or the first and the last of a range, as the wish has them."""
    numbers = [int(number) for number in text.split(separator)]
    if numbers != sorted(numbers) or numbers[-1] > _HIGHEST_PORT:
        return None
    return "-".join(map(str, numbers))


def _network(text: str) -> str | None:
    """A network as the wish has it; an address is a network of one."""
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        return None


def _others(host: Host) -> list[str]:
    """Who else has rules: nftables, which iptables of today writes into too, and iptables as it was."""
    program = host.which("nft")
    tables = host.run([program, "list", "tables"]) if program else None
    if tables and tables.rc is None:
        host.unknown(FACT, f"nft did not list its tables: {tables.error}")
    of_nft = ["nftables"] if tables and tables.ok and tables.out.strip() else []
    return [*of_nft, *(["iptables"] if host.line("/proc/net/ip_tables_names") or _ruled(host) else [])]


def _ruled(host: Host) -> bool:
    """Whether iptables over nftables has a rule for what comes in, or lets nothing in; only asked where there is no nft to tell."""
    program = None if host.which("nft") else host.which("iptables-nft")
    listed = host.run([program, "-S", "INPUT"]) if program else None
    if listed and listed.rc is None:
        host.unknown(FACT, f"iptables did not list its rules: {listed.error}")
    return bool(listed and listed.ok and [line for line in listed.out.splitlines() if line != "-P INPUT ACCEPT"])

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How the machine finds the addresses of names (DNS). By its files: nobody is asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Names

RESOLVER, HOSTS = "/etc/resolv.conf", "/etc/hosts"
_SERVER = re.compile(r"^[ \t]*nameserver[ \t]+([0-9A-Fa-f.:%\w-]{1,64})", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}", re.ASCII)
_LIMIT = 1 << 18
_MOST = 500


def _known(text: str) -> list[str]:
    """The names of a file such as /etc/hosts."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return sorted({name.lower() for words in lines for name in words[1:] if _NAME.fullmatch(name)})[:_MOST]


def observe(host: Host) -> Names:
    """The part `names`."""
    text = host.read(RESOLVER, "names", limit=_LIMIT)
    servers = list(dict.fromkeys(_SERVER.findall(text or "")))[:20]
    target = host.link(RESOLVER)
    problem = None
    if text is None and "names" not in host.unknown_facts:
        problem = f"{RESOLVER} leads to {target}, which is not there" if target else f"there is no {RESOLVER}"
    elif text is not None and not servers:
        problem = f"{RESOLVER} names no server"
    return {
        "servers": servers,
        "hosts": _known(host.read(HOSTS, "names", limit=_LIMIT) or ""),
        "problem": problem,
    }

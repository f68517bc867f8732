# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proxies on the machine itself that apt is told to go through, and which of them take no connection.

One elsewhere is not asked: a look at a node opens no connection to anybody else.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import SilentProxy

_FILES = ("/etc/apt/apt.conf", "/etc/apt/apt.conf.d/*")
_LIMIT = 1 << 16
_SECONDS = 1.0
# Of a block and of a line; what stands behind // or # is none. A proxy for one host has its name before the value.
_PROXY = re.compile(
    r"""^[ \t]*(?:Acquire::)?(?:https?(?:::|[ \t]*\{[ \t]*))?Proxy[ \t]+"https?://(?:[^@"/]*@)?(127\.[\d.]+|localhost|\[::1\]):(\d{1,5})/?";""",
    re.MULTILINE | re.IGNORECASE,
)


def parse(text: str) -> list[tuple[str, int]]:
    """Host and port of the proxies on the machine itself in a file of apt's settings."""
    return [(host.strip("[]"), int(port)) for host, port in _PROXY.findall(text) if int(port) < 1 << 16]


def silent(host: Host) -> list[SilentProxy]:
    """Those that take no connection; of another machine's files nobody can say."""
    found: list[SilentProxy] = []
    for path in (path for pattern in _FILES for path in host.glob(pattern)) if host.live else ():
        for name, port in parse(host.read(path, limit=_LIMIT) or ""):
            if not answers(name, port):
                found.append({"file": path, "address": f"{name}:{port}"})
    return found


def answers(name: str, port: int) -> bool:
    """Whether something takes a connection there."""
    try:
        socket.create_connection((name, port), timeout=_SECONDS).close()
    except OSError:
        return False
    return True

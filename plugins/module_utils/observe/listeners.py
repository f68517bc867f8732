# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What listens on some ports: who it is, and whether it answers as an exporter of Prometheus does."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import socket
import ssl
import time
from typing import TYPE_CHECKING, Dict, Iterable, List, NamedTuple, Optional, Pattern, Sequence, Tuple

from ansible_collections.gpuwright.node.plugins.module_utils.base import addresses

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Listener, MetricsOf

# Python 3.8 runs this too: the alias below is evaluated.
#: Address, port, inode of the socket, and the user (id) whose it is.
Open = Tuple[str, int, str, int]

#: A socket that listens, state 0A (net/tcp_states.h): address, port, user, inode (proc_net_tcp.rst of the kernel).
_LISTENS = re.compile(
    r"^ *\d+: ([0-9A-F]{8}(?:[0-9A-F]{24})?):([0-9A-F]{4}) [0-9A-F:]+ 0A \S+ \S+ \S+ +(\d{1,10}) +\d+ (\d{1,20})\b",
    re.MULTILINE,
)
_UNIT = re.compile(r"/([A-Za-z0-9:_.@\\-]+\.service)(?=/|$)", re.MULTILINE)
_SYSTEMD = "1"
#: The sockets that our exporters have of it, each with the service that it is for.
_SOCKETS, _SERVICE = "/etc/systemd/system/gpuwright-*.socket", re.compile(r"^Service=(\S+)$", re.MULTILINE)
_MOST = 32
#: For all that one listener is asked: what Prometheus leaves an exporter by itself (scrape_timeout).
_SECONDS = 10.0
_MOST_BYTES = 4 * 2**20
_STATUS = re.compile(rb"^HTTP/1\.[01] (\d{3})\b")
#: What Go's server says in clear where it expects TLS (net/http, server.go).
_EXPECTS_TLS = b"Client sent an HTTP request to an HTTPS server."
#: What the pages of exporters have in them, each at the beginning of a line: those of cards (dcgm-exporter's, and ours before its first
#: sample), those of machines.
_TELLS: Sequence[Tuple[MetricsOf, Pattern[bytes]]] = (
    ("gpu", re.compile(rb"^DCGM_FI_DEV_\w+\{", re.MULTILINE)),
    (
        "node",
        re.compile(rb"^node_(exporter_build_info|boot_time_seconds|cpu_seconds_total|uname_info)\b", re.MULTILINE),
    ),
    ("metrics", re.compile(rb"^# (HELP|TYPE) \w+ ", re.MULTILINE)),
)
#: Where one asks for what listens on all addresses, as somebody else chose it: an IPv6 socket takes those of IPv4 too, as a rule.
_ANY = {"0.0.0.0": ("127.0.0.1",), "::": ("::1", "127.0.0.1")}  # noqa: S104 - these are the names of what is found


class Answer(NamedTuple):
    """What a listener says to a question for its metrics; ``certificate``: SHA-256 of the one that it shows."""

    tls: Optional[bool] = None
    status: Optional[int] = None
    tells: Optional[MetricsOf] = None
    certificate: Optional[str] = None


def observe(host: Host, ports: Iterable[int]) -> List[Listener]:
    """What listens on these ports. Who holds a socket only root can see, in some containers not even root."""
    wanted = frozenset(ports)
    found = [each for each in opened(host) if each[1] in wanted][:_MOST]
    holders = _holders(host, {each[2] for each in found}) if found else {}
    return [_listener(host, each, holders.get(each[2])) for each in found]


def opened(host: Host) -> List[Open]:
    """All sockets that listen, by TCP."""
    found: List[Open] = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        told = _LISTENS.findall(host.read(path, "monitoring.listeners") or "")
        found += [(_address(address), int(port, 16), inode, int(user)) for address, port, user, inode in told]
    return sorted(found, key=lambda each: (each[1], each[0]))


def _address(text: str) -> str:
    """An address as the kernel writes it: words of four bytes in the machine's own order, which is little endian where cards are."""
    data = b"".join(bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8))
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


def _holders(host: Host, inodes: Iterable[str]) -> Dict[str, str]:
    """The process that holds each socket, by the inode."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: Dict[str, str] = {}
    # systemd holds the sockets of others too.
    for process in sorted(host.names("/proc"), key=lambda name: name == _SYSTEMD):
        if not process.isdigit() or len(found) == len(wanted):
            continue
        try:
            links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{process}/fd")]
        except OSError:
            # It ended in between, or it is somebody else's.
            continue
        found.update((wanted[link], process) for link in links if link in wanted)
    return found


def _listener(host: Host, opened_as: Open, process: Optional[str]) -> Listener:
    address, port, _inode, user = opened_as
    name = _shown(host.line(f"/proc/{process}/comm") or "") if process else None
    # A question to systemd's own socket would start its service.
    places = () if process == _SYSTEMD else _ANY.get(address, (address,))
    said = next((told for told in (ask(place, port) for place in places) if told.status), Answer())
    return {
        "address": address,
        "port": port,
        "process": name or None,
        "user": _user(user),
        "unit": _unit(host, process, f"{addresses.bracketed(address)}:{port}") if process else None,
        "tls": said.tls,
        "status": said.status,
        "tells": said.tells,
        "certificate": said.certificate,
    }


def _unit(host: Host, process: str, place: str) -> Optional[str]:
    """The service whose socket it is."""
    if process != _SYSTEMD:
        return unit_of(host.read(f"/proc/{process}/cgroup") or "")
    texts = [host.read(path) or "" for path in host.glob(_SOCKETS)]
    found = [_SERVICE.search(text) for text in texts if f"\nListenStream={place}\n" in text]
    return next((each.group(1) for each in found if each), None)


def _user(uid: int) -> str:
    try:
        return _shown(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def _shown(name: str) -> str:
    """A name that whoever runs the process has chosen."""
    return "".join(each if each.isprintable() else "?" for each in name)[:64]


def unit_of(cgroup: str) -> Optional[str]:
    """The service of a process, by what the kernel says of its control groups."""
    found: Sequence[str] = _UNIT.findall(cgroup)
    return found[-1] if found else None


# What it answers


def ask(address: str, port: int) -> Answer:
    """Ask for the metrics, in clear and, where that is not understood, by TLS, whoever signed the certificate."""
    end = time.monotonic() + _SECONDS
    try:
        page = _page(address, port, end, None)
        if _STATUS.match(page) and _EXPECTS_TLS not in page:
            return _read(page, Answer(tls=False))
    except OSError:
        pass
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    shown: List[bytes] = []
    try:
        page = _page(address, port, end, context, shown)
    except (OSError, ValueError):
        page = b""
    return _read(page, Answer(tls=True, certificate=digest(shown[0]))) if shown else Answer()


def _read(page: bytes, answer: Answer) -> Answer:
    status = _STATUS.match(page)
    if status is None:
        return answer
    tells = next((name for name, mark in _TELLS if mark.search(page)), None) if status.group(1) == b"200" else None
    return answer._replace(status=int(status.group(1)), tells=tells)


def digest(certificate: bytes) -> str:
    """SHA-256 of a certificate, as DER."""
    return hashlib.sha256(certificate).hexdigest()


def _page(
    address: str, port: int, end: float, context: Optional[ssl.SSLContext], shown: Optional[List[bytes]] = None
) -> bytes:
    """What is answered to a question for metrics, with the status in front, until there is no more or the time is over."""
    with socket.create_connection((address, port), timeout=_left(end)) as plain:
        connection = context.wrap_socket(plain) if context else plain
        if shown is not None and isinstance(connection, ssl.SSLSocket):
            shown.append(connection.getpeercert(binary_form=True) or b"")
        connection.settimeout(_left(end))
        connection.sendall(f"GET /metrics HTTP/1.0\r\nHost: {addresses.bracketed(address)}:{port}\r\n\r\n".encode())
        found = b""
        while len(found) < _MOST_BYTES:
            connection.settimeout(_left(end))
            more = connection.recv(2**16)
            if not more:
                break
            found += more
        return found


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left

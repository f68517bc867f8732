# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a certificate and its key can be served: root's alone, a pair, and good today."""

from __future__ import annotations

import os
import ssl
import stat
import time
from typing import TYPE_CHECKING, Dict, Optional, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership
from ansible_collections.gpuwright.node.plugins.module_utils.observe import listeners

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Certificate

# x509_vfy.h: a certificate that is trusted itself needs no chain, and whether it has expired is judged here.
_PARTIAL_CHAIN, _NO_CHECK_TIME = 0x80000, 0x200000
_FACT = "monitoring.certificate"
_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"


class _Problem(Exception):
    """Why it cannot be served."""


def observe(host: Host, certificate: str, key: str) -> Optional[Certificate]:
    """What there is to say of the pair; None, and unknown, where this process may not read it."""
    if not host.live or host.euid != 0:
        host.unknown(_FACT, "only root on the machine itself reads a key")
        return None
    found: Certificate = {"problem": None, "expires": None, "digest": None}
    try:
        _check_file(certificate)
        _check_file(key, private=True)
        pem = _first(certificate)
        found["digest"] = listeners.digest(ssl.PEM_cert_to_DER_cert(pem))
        told = _told(certificate, key, pem)
        found["expires"] = _iso(ssl.cert_time_to_seconds(told["notAfter"]))
        found["problem"] = _of_today(certificate, told)
    except _Problem as problem:
        found["problem"] = str(problem)
    except (OSError, ValueError) as error:
        # An SSLError is an OSError. What OpenSSL says has its own brackets and lines.
        reason = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
        found["problem"] = f"{certificate} with the key {key} cannot be used: {' '.join(reason.split())}"
    return found


def _iso(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def _of_today(certificate: str, told: Dict[str, str]) -> Optional[str]:
    """Why it is not good at this moment."""
    now, begins, ends = time.time(), *(ssl.cert_time_to_seconds(told[name]) for name in ("notBefore", "notAfter"))
    if now > ends:
        return f"{certificate} expired on {_iso(ends)}"
    return None if now >= begins else f"{certificate} is not valid before {_iso(begins)}"


def _check_file(path: str, *, private: bool = False) -> None:
    try:
        status = os.stat(path)
    except OSError as error:
        raise _Problem(f"{path} cannot be read: {error.strerror}") from None
    offence = ownership.offence(path)
    if offence:
        raise _Problem(f"{path} is not root's alone: there is {offence.text}")
    if not stat.S_ISREG(status.st_mode):
        raise _Problem(f"{path} is no file")
    if private and stat.S_IMODE(status.st_mode) & 0o007:
        raise _Problem(f"{path} is a key that everybody can read (mode {stat.S_IMODE(status.st_mode):04o})")


def _first(path: str) -> str:
    """The first certificate of a file, which is the machine's own."""
    with open(path, encoding="ascii") as stream:
        text = stream.read(2**20)
    if _BEGIN not in text or _END not in text:
        raise _Problem(f"{path} has no certificate in it (PEM)")
    return text[text.index(_BEGIN) : text.index(_END) + len(_END)] + "\n"


def _told(certificate: str, key: str, pem: str) -> Dict[str, str]:
    """What the certificate says of itself, by a handshake in memory that a client who trusts it makes. Raises OSError, ValueError."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Nobody is asked for the password of a key that has one.
    server.load_cert_chain(certificate, key, password=lambda: "")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= _PARTIAL_CHAIN | _NO_CHECK_TIME
    client.load_verify_locations(cadata=pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [asking, answering]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    return cast("Dict[str, str]", asking.getpeercert())

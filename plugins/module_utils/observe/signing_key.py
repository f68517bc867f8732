# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The key with which DKMS signs the modules it builds, and whether the firmware will accept it.

shim shows its list of keys (MOK, machine owner keys) and the keys that wait for its menu at the next boot as EFI variables; what
mokutil --test-key and --list-new print is read from them. A certificate is in a list where its bytes are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import SigningKey

_EFIVARS = "/sys/firmware/efi/efivars/"
_SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
_ACCEPTED = (
    "/sys/firmware/efi/mok-variables/MokListRT*",
    _EFIVARS + "MokListRT*-" + _SHIM,
    _EFIVARS + "db-d719b2cb-3d3a-4596-a3bc-dad00e67656f",
)
_WAITING = _EFIVARS + "MokNew-" + _SHIM

_UBUNTU = "/var/lib/shim-signed/mok/MOK.der"
_DKMS = "/var/lib/dkms/mok.pub"
_CONFIGURATION = ("/etc/dkms/framework.conf", "/etc/dkms/framework.conf.d/*.conf")
_SETTING = re.compile(r"^[ \t]*(mok_certificate|sign_tool)[ \t]*=[ \t]*[\"']?([^\"'\s#]+)", re.MULTILINE)
_PEM = b"-----BEGIN CERTIFICATE-----"


def _settings(host: Host) -> dict[str, str]:
    """Settings of DKMS about signing; of several files the last counts."""
    found: dict[str, str] = {}
    for pattern in _CONFIGURATION:
        for path in sorted(host.glob(pattern)):
            found.update(_SETTING.findall(host.read(path) or ""))
    return found


def _certificate(data: bytes) -> bytes:
    """A certificate's bytes in the form in which the firmware has it (DER)."""
    if not data.startswith(_PEM):
        return data
    try:
        import ssl  # here: it takes longer to load than most looks need it

        return ssl.PEM_cert_to_DER_cert(data.decode("ascii"))
    except ValueError:
        return data


def observe(host: Host, system: str | None) -> SigningKey:
    """The part `boot.signing_key`: `path` of the certificate, and `state`, one of enrolled, pending (it waits for shim's menu at the
    next boot), not-enrolled, absent (DKMS has no key yet); None where it is not known, with the reason. `system`: id of os-release.
    """
    fact = "boot.signing_key"
    settings = _settings(host)
    if "sign_tool" in settings:
        host.unknown(fact, "DKMS signs by a tool of this machine's own: " + settings["sign_tool"])
        return {"path": None, "state": None}
    usual = [_UBUNTU, _DKMS] if system == "ubuntu" else [_DKMS, _UBUNTU]
    places = [settings["mok_certificate"]] if "mok_certificate" in settings else usual
    path = next((place for place in places if host.exists(place)), None)
    if path is None:
        return {"path": places[0], "state": "absent"}
    data = host.read_bytes(path, fact)
    if not data:
        return {"path": path, "state": None}
    wanted = _certificate(data)
    waiting = host.read_bytes(_WAITING) or b""
    lists = [host.read_bytes(name) for pattern in _ACCEPTED for name in host.glob(pattern)]
    known = [each for each in lists if each]
    if any(wanted in each for each in known):
        return {"path": path, "state": "enrolled"}
    if wanted in waiting:
        return {"path": path, "state": "pending"}
    if not known:
        host.unknown(fact, "neither shim's list of keys nor the firmware's could be read")
        return {"path": path, "state": None}
    return {"path": path, "state": "not-enrolled"}

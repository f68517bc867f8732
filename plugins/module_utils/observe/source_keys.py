# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The keys that a package source of apt may be signed by, and why apt takes none of them.

apt before 3 has gpgv verify an index as the user _apt, and takes a file for what its name says (apt-key, is_supported_keyring). From 3 on
sqv reads either form.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from typing import TYPE_CHECKING, Iterator

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version, openpgp
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import PackageSource

#: Where keys are that every source without Signed-By may be signed by.
_TRUSTED = ("/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d/*.gpg", "/etc/apt/trusted.gpg.d/*.asc")
_FACT = "packages.sources"
_LONGEST = 1 << 20
_MOST = 100
#: From this version on the name of a file does not matter.
_ANY_FORM = "3"
_BINARY, _ARMOURED = ".gpg", ".asc"


def look(host: Host, source: PackageSource, apt: str | None) -> None:
    """Add to a source what is seen of its keys. `apt`: the version of it."""
    named = source["signed_by"]
    if named is None:
        keys = host.once("trusted keys", lambda: list(_trusted(host)))
        if keys:
            source["keys"] = keys
    elif named.startswith("/") and not re.search(r"[\s,]", named):
        _of_file(host, source, named, apt)


def _trusted(host: Host) -> Iterator[str]:
    for path in (path for pattern in _TRUSTED for path in host.glob(pattern)):
        yield from _fingerprints(host.read_bytes(path, _FACT, limit=_LONGEST) or b"")


def _fingerprints(data: bytes) -> list[str]:
    """The keys of a file; none of one that is no key file."""
    try:
        return openpgp.fingerprints(data)
    except openpgp.KeyFileError:
        return []


def _of_file(host: Host, source: PackageSource, path: str, apt: str | None) -> None:
    if not host.exists(path):
        source["key_missing"] = True
    elif not _everybody_reads(host, path):
        source["key_fault"] = "closed"
    else:
        data = host.read_bytes(path, _FACT, limit=_LONGEST) or b""
        try:
            source["keys"] = openpgp.fingerprints(data)[:_MOST]
            ended = openpgp.expired(data, time.time())
        except openpgp.KeyFileError:
            source["key_fault"] = "empty" if not data.strip() else "none"
            return
        if not numeric_version.at_least(apt or _ANY_FORM, _ANY_FORM) and not _named_as_it_is(path, data):
            source["key_fault"] = "form"
        if set(source["keys"]) <= set(ended):
            last = dt.datetime.fromtimestamp(max(ended.values()), dt.timezone.utc)
            source["key_expired"] = last.date().isoformat()


def _everybody_reads(host: Host, path: str) -> bool:
    """Whether the user _apt may read a file, in a directory that everybody may enter."""
    parts = path.split("/")
    above = (host.stat("/".join(parts[:length])) for length in range(2, len(parts)))
    file = host.stat(path)
    return bool(file and file.st_mode & 0o004 and all(each and each.st_mode & 0o001 for each in above))


def _named_as_it_is(path: str, data: bytes) -> bool:
    """Whether a file has the form that its name says."""
    if path.endswith(_BINARY):
        return bool(data[0] & 0x80)
    return path.endswith(_ARMOURED)

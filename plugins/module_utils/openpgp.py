# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fingerprints of the keys in an OpenPGP key file (RFC 4880, RFC 9580), without gpg.

Only the packets are taken apart. Nothing here checks a signature: that is done by apt and rpm with the keys that
the fingerprint proved to be the right ones.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Iterator

_PUBLIC_KEY = 6
_SECRET_KEY = 5
_ARMOUR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----[^\S\n]*\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)


class KeyFileError(Exception):
    """The file is no OpenPGP key file; the text says what it is instead."""


def normalise(fingerprint: str) -> str:
    """A fingerprint in capitals without spaces, colons and 0x. Raises KeyFileError for what is none (a short key id, say)."""
    text = re.sub(r"[\s:]", "", fingerprint).upper()
    text = text[2:] if text.startswith("0X") else text
    if not re.match(r"^(?:[0-9A-F]{40}|[0-9A-F]{64})$", text):
        raise KeyFileError(
            f"{fingerprint!r} is no fingerprint: expected 40 (or 64) hexadecimal digits, a short key id is not enough"
        )
    return text


def _unarmour(block: bytes) -> bytes:
    """Binary content of an armoured block. Headers have a colon, which base64 has not; the checksum begins with =."""
    lines = [line.strip() for line in block.splitlines()]
    encoded = b"".join(line for line in lines if b":" not in line and not line.startswith(b"="))
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise KeyFileError(f"the armour of the key file is damaged: {exc}") from exc


def binary(data: bytes) -> bytes:
    """The key file without its armour. Raises KeyFileError."""
    if not data.strip():
        raise KeyFileError("the key file is empty")
    if data[0] & 0x80:
        return data
    blocks = [_unarmour(block) for block in _ARMOUR.findall(data)]
    if blocks:
        return b"".join(blocks)
    head = data.strip()[:40].decode("utf-8", "replace")
    raise KeyFileError(f"no OpenPGP key: it begins with {head!r} (a page of a proxy or a portal?)")


def armoured(data: bytes) -> bytes:
    """The key file with an armour, as rpm takes it. Raises KeyFileError."""
    if not data.strip() or not data[0] & 0x80:
        binary(data)  # raises for what is no key file
        return data
    text = base64.encodebytes(data)  # lines of 76 characters, as an armour may have; its checksum may be left out
    head, foot = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n", b"-----END PGP PUBLIC KEY BLOCK-----\n"
    return head + text + foot


def _need(data: bytes, start: int, count: int) -> bytes:
    if start + count > len(data):
        raise KeyFileError("the key file is cut off")
    return data[start : start + count]


def _new_length(data: bytes, at: int) -> tuple[int, int]:
    """Length of a packet in the new format, and where its body begins (RFC 9580, 4.2.1)."""
    first = _need(data, at, 1)[0]
    if first < 192:
        return first, at + 1
    if first < 224:
        return ((first - 192) << 8) + _need(data, at + 1, 1)[0] + 192, at + 2
    if first == 255:
        return int.from_bytes(_need(data, at + 1, 4), "big"), at + 5
    raise KeyFileError("the key file has a packet of unknown length, which keys never have")


def packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and body of each packet of a binary key file. Raises KeyFileError."""
    at = 0
    while at < len(data):
        tag = data[at]
        if not tag & 0x80:
            raise KeyFileError(f"the key file is damaged: no packet begins at byte {at}")
        if tag & 0x40:
            kind = tag & 0x3F
            length, body = _new_length(data, at + 1)
        else:
            kind = (tag >> 2) & 0x0F
            width = (1, 2, 4, 0)[tag & 0x03]
            if not width:
                raise KeyFileError("the key file has a packet of unknown length, which keys never have")
            length, body = int.from_bytes(_need(data, at + 1, width), "big"), at + 1 + width
        yield kind, _need(data, body, length)
        at = body + length


def fingerprint_of(body: bytes) -> str:
    """Fingerprint of the body of a public key packet, of version 4 or 6. Raises KeyFileError."""
    version = body[0] if body else 0
    if version == 4:
        # The fingerprint of version 4 is SHA-1 by definition (RFC 9580, 5.5.4.2).
        return (
            hashlib.sha1(  # noqa: S324 - as the line above says
                b"\x99" + len(body).to_bytes(2, "big") + body
            )
            .hexdigest()
            .upper()
        )
    if version == 6:
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise KeyFileError(f"the key file holds a key of version {version}, which is too old or unknown")


def fingerprints(data: bytes) -> list[str]:
    """Fingerprints of the primary keys of a key file, armoured or binary. Raises KeyFileError."""
    found = []
    for kind, body in packets(binary(data)):
        if kind == _SECRET_KEY:
            raise KeyFileError("the file holds a secret key; a repository's key is a public one")
        if kind == _PUBLIC_KEY:
            found.append(fingerprint_of(body))
    if not found:
        raise KeyFileError("the file holds no public key")
    return found


def mismatch(data: bytes, expected: str) -> str | None:
    """Why a key file may not be trusted: any primary key in it that is not the expected one. None when it may.

    Every key of a keyring may sign the repository, so one foreign key is one too many. Raises KeyFileError.
    """
    wanted = normalise(expected)
    foreign = [found for found in fingerprints(data) if found != wanted]
    return "expected the key {}, found {}".format(wanted, ", ".join(foreign)) if foreign else None

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The keys in an OpenPGP key file (RFC 4880, RFC 9580), without gpg.

A key file is taken apart into its packets, and what is handed on is made anew from these: what apt, rpm or gpg would read in the
file besides (a second armour, a tail) was not looked at. Nothing here checks a signature: whether a subkey, an expiry or a
revocation is the key's own word is judged by apt and rpm, with the key that the fingerprint proved to be the right one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Iterator

_SIGNATURE, _SECRET_KEY, _PUBLIC_KEY, _SECRET_SUBKEY, _USER_ID, _SUBKEY = 2, 5, 6, 7, 13, 14
# What a signature says, by the number of the field: when it was made, how long the key lasts, and by whom it is.
_SIGNED, _LASTS, _BY, _BY_FINGERPRINT = 2, 9, 16, 33
# Kinds of signatures that a key makes of itself: with a name, and alone.
_ALONE = 0x1F
_OF_ITSELF = (0x10, 0x11, 0x12, 0x13, _ALONE)
# No key needs a mark, a note of GnuPG to itself, a filling or a picture, so they are not handed on.
_MARK, _NOTE, _PICTURE, _FILLING = 10, 12, 17, 21
_ARMOUR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----[^\S\n]*\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)
# What is expected of a key whose fingerprint was never read: the SHA-256 of its file's text, and the end of the fingerprint.
_VERSION = re.compile(rb"^Version.*\n?", re.MULTILINE)
_TEXT = re.compile(r"text-sha256:(?P<hash>[0-9a-f]{64}):(?P<end>[0-9A-F]{8})\Z")


class KeyFileError(Exception):
    """The file is no OpenPGP key file; the text says what it is instead."""


def normalise(fingerprint: str) -> str:
    """A fingerprint in capitals without spaces, colons and 0x; what names a file by its text stays as it is. Raises KeyFileError for
    what is neither (a short key id, say).
    """
    if _TEXT.match(fingerprint):
        return fingerprint
    text = re.sub(r"[\s:]", "", fingerprint).upper()
    text = text[2:] if text.startswith("0X") else text
    if not re.match(r"^(?:[0-9A-F]{40}|[0-9A-F]{64})$", text):
        raise KeyFileError(
            f"{fingerprint!r} is no fingerprint: expected 40 (or 64) hexadecimal digits, a short key id is not enough"
        )
    return text


def _unarmour(block: bytes) -> bytes:
    """Binary content of an armoured block: headers (they have a colon), lines of base64, a checksum. Raises KeyFileError."""
    lines = [line.strip() for line in block.splitlines()]
    first = next((number for number, line in enumerate(lines) if b":" not in line), len(lines))
    encoded = lines[first:]
    while encoded and not encoded[-1]:
        encoded.pop()
    if encoded and encoded[-1].startswith(b"="):
        encoded.pop()
    try:
        return base64.b64decode(b"".join(encoded), validate=True)
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


def _checksum(data: bytes) -> int:
    """CRC-24 of an armour (RFC 9580, 6.1.1)."""
    found = 0xB704CE
    for byte in data:
        found ^= byte << 16
        for _bit in range(8):
            found = found << 1 ^ (0x1864CFB if found & 0x800000 else 0)
    return found


def armour(keyring: bytes) -> bytes:
    """A binary keyring with an armour, as rpm takes it."""
    head, foot = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n", b"-----END PGP PUBLIC KEY BLOCK-----\n"
    checksum = base64.b64encode(_checksum(keyring).to_bytes(3, "big"))
    return head + base64.encodebytes(keyring) + b"=" + checksum + b"\n" + foot


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
    return _taken_apart(data)[0]


def expired(data: bytes, now: float) -> dict[str, float]:
    """The primary keys of a key file, by fingerprint, that had expired by `now`, each with the second since 1970 at which it did. As the
    last signature of a key by itself has it (RFC 9580, 5.2.3.13). Raises KeyFileError.
    """
    ends: dict[str, tuple[int, float | None]] = {}
    here, made = "", 0
    for kind, body in packets(binary(data)):
        if kind == _PUBLIC_KEY:
            here, made = fingerprint_of(body), int.from_bytes(body[1:5], "big")
        elif kind == _SIGNATURE and here and body[:1] == b"\x04" and body[1:2] and body[1] in _OF_ITSELF:
            fields = dict(_fields(body))
            signed, lasts = (
                int.from_bytes(fields.get(_SIGNED, b""), "big"),
                int.from_bytes(fields.get(_LASTS, b""), "big"),
            )
            # One of the key alone may name who may revoke it, and leaves its end to the others.
            tells = body[1] != _ALONE or _LASTS in fields
            if tells and _is_by(here, fields) and signed >= ends.get(here, (0, None))[0]:
                ends[here] = signed, made + lasts if lasts else None
    return {key: end for key, (_signed, end) in ends.items() if end is not None and end <= now}


def _is_by(key: str, fields: dict[int, bytes]) -> bool:
    """Whether a signature is by this key, as far as it says by whom it is."""
    if _BY_FINGERPRINT in fields:
        return fields[_BY_FINGERPRINT][1:].hex().upper() == key
    return _BY in fields and key.endswith(fields[_BY].hex().upper())


def _fields(signature: bytes) -> Iterator[tuple[int, bytes]]:
    """The subpackets of a signature of version 4, those that are hashed and the others (RFC 9580, 5.2.3.7)."""
    at = 4
    for _part in range(2):
        end = at + 2 + int.from_bytes(_need(signature, at, 2), "big")
        at += 2
        while at < end:
            length, at = _new_length(signature, at) if signature[at] != 255 else (0, end)
            if length:
                field = _need(signature, at, length)
                yield field[0] & 0x7F, field[1:]
            at += length
        at = end


def keyring(data: bytes) -> bytes:
    """The binary keyring that is made of the packets of a key file, and of nothing else in it. Raises KeyFileError."""
    return _taken_apart(data)[1]


def _taken_apart(data: bytes) -> tuple[list[str], bytes]:
    """Fingerprints of the primary keys, and the keyring. Raises KeyFileError for a packet that no public key has."""
    found: list[str] = []
    kept: list[bytes] = []
    of_picture = False
    for kind, body in packets(binary(data)):
        if kind in (_MARK, _NOTE, _FILLING):
            continue
        if kind in (_SECRET_KEY, _SECRET_SUBKEY):
            raise KeyFileError("the file holds a secret key; a repository's key is a public one")
        if kind not in (_PUBLIC_KEY, _SIGNATURE, _USER_ID, _SUBKEY, _PICTURE):
            raise KeyFileError(f"the file holds a packet of the kind {kind}, which no public key has")
        if kind == _PUBLIC_KEY:
            found.append(fingerprint_of(body))
        elif not found:
            raise KeyFileError("the file does not begin with a public key")
        # The signatures behind a picture are of it.
        of_picture = kind == _PICTURE or (of_picture and kind == _SIGNATURE)
        if not of_picture:
            kept.append(_packet(kind, body))
    if not found:
        raise KeyFileError("the file holds no public key")
    return found, b"".join(kept)


def _packet(kind: int, body: bytes) -> bytes:
    """A packet as every reader knows it: in the old format, its length in two bytes, or four where it is longer."""
    width = 2 if len(body) < 1 << 16 else 4
    return bytes([0x80 | kind << 2 | width // 2]) + len(body).to_bytes(width, "big") + body


def mismatch(data: bytes, expected: str) -> str | None:
    """Why a key file may not be trusted: any primary key in it that is not the expected one. None when it may.

    Every key of a keyring may sign the repository, so one foreign key is one too many. Raises KeyFileError.
    """
    by_text = _TEXT.match(expected)
    if by_text:
        return _other_text(data, by_text.group("hash"), by_text.group("end"))
    wanted = normalise(expected)
    foreign = [found for found in fingerprints(data) if found != wanted]
    return "expected the key {}, found {}".format(wanted, ", ".join(foreign)) if foreign else None


def of_text(expected: str) -> bool:
    """Whether a key is expected by the text of its file."""
    return _TEXT.match(expected) is not None


def _other_text(data: bytes, digest: str, end: str) -> str | None:
    """Why a key file is not the one of that text, without the line in which a program puts its version. None when it is.

    The hash binds the whole file; the end of the fingerprint is looked at because the repository names its file after it.
    """
    found = hashlib.sha256(_VERSION.sub(b"", data)).hexdigest()
    if found != digest:
        return f"expected a key file whose text has the SHA-256 {digest}, found {found}"
    foreign = [each for each in fingerprints(data) if not each.endswith(end)]
    return "expected a key that ends with {}, found {}".format(end, ", ".join(foreign)) if foreign else None


def checked(data: bytes, expected: str) -> bytes:
    """The binary keyring of a key file that holds the expected key alone. Raises KeyFileError."""
    wrong = mismatch(data, expected)
    if wrong:
        raise KeyFileError(wrong)
    return keyring(data)

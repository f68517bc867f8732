# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a kernel module tells of itself, read from its file: for trees and machines without the program modinfo."""

from __future__ import annotations

import struct

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SIGNED = b"~Module signature appended~\n"


class ModuleFileError(Exception):
    """The file is no module that can be read here; the text says why."""


def unpacked(data: bytes, path: str) -> bytes:
    """The module without its compression, which the ending of its name tells. Raises ModuleFileError."""
    try:
        if path.endswith(".xz"):
            import lzma

            return lzma.decompress(data)
        if path.endswith(".gz"):
            import gzip

            return gzip.decompress(data)
    except (ImportError, OSError, EOFError, ValueError) as exc:
        raise ModuleFileError(f"{path} could not be unpacked: {exc}") from exc
    except Exception as exc:
        # lzma.LZMAError has no other base, and lzma need not be there to be named.
        raise ModuleFileError(f"{path} could not be unpacked: {exc}") from exc
    if path.endswith(".zst"):
        raise ModuleFileError(f"{path} is packed by zstd, which only modinfo can unpack here")
    return data


def is_signed(data: bytes) -> bool:
    """Whether a signature is appended to an unpacked module."""
    return data.endswith(_SIGNED)


def _sections(data: bytes) -> dict[bytes, bytes]:
    """Contents of the sections of a 64-bit little-endian object file by name (elf(5))."""
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    headers = [_SECTION_HEADER.unpack_from(data, table + size * index) for index in range(count)]
    names = data[headers[names_at][4] :][: headers[names_at][5]]
    return {names[head[0] : names.index(b"\0", head[0])]: data[head[4] : head[4] + head[5]] for head in headers}


def fields(data: bytes, path: str) -> dict[str, str]:
    """The first value of each field in the section .modinfo of an unpacked module. Raises ModuleFileError."""
    if not data.startswith(_ELF64_LITTLE):
        raise ModuleFileError(f"{path} is no 64-bit module")
    try:
        section = _sections(data)[b".modinfo"]
    except (struct.error, IndexError, ValueError, KeyError, OverflowError) as exc:
        raise ModuleFileError(f"{path} is damaged: it has no readable section .modinfo") from exc
    found: dict[str, str] = {}
    for entry in section.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals:
            found.setdefault(name.decode("ascii", "replace"), value.decode("utf-8", "replace"))
    return found

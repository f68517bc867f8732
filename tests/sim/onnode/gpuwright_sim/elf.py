"""Kernel modules that the real `modinfo` and `depmod` read: a relocatable ELF file with a .modinfo section and no code."""

from __future__ import annotations

import struct
from collections.abc import Iterable

_TYPE_RELOCATABLE = 1
_MACHINE_X86_64 = 62
_SECTION_PROGBITS = 1
_SECTION_STRTAB = 3
_SECTION_SYMTAB = 2
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")


def module(information: Iterable[tuple[str, str]]) -> bytes:
    """The bytes of a module whose .modinfo holds INFORMATION, pairs such as ("version", "580.126.20")."""
    modinfo = b"".join(f"{key}={value}".encode() + b"\0" for key, value in information)
    sections: list[tuple[str, int, bytes, int]] = [
        (".modinfo", _SECTION_PROGBITS, modinfo, 0),
        # depmod wants a symbol table, be it empty: its first entry is the undefined symbol.
        (".symtab", _SECTION_SYMTAB, bytes(24), 3),
        (".strtab", _SECTION_STRTAB, b"\0", 0),
    ]
    names = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", _SECTION_STRTAB, names, 0))
    offset = 64
    body = b""
    headers = bytes(_SECTION_HEADER.size)
    for name, kind, content, link in sections:
        content_padded = content + bytes(-len(content) % 8)
        entry_size = 24 if kind == _SECTION_SYMTAB else 0
        headers += _SECTION_HEADER.pack(
            names.index(b"\0" + name.encode() + b"\0") + 1, kind, 0, 0, offset + len(body), len(content), link,
            1 if kind == _SECTION_SYMTAB else 0, 8, entry_size,
        )  # fmt: skip
        body += content_padded
    count = len(sections) + 1
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH",
        _TYPE_RELOCATABLE,
        _MACHINE_X86_64,
        1,
        0,
        0,
        offset + len(body),
        0,
        64,
        0,
        0,
        64,
        count,
        count - 1,
    )
    return head + body + headers


def nvidia(name: str, version: str, kernel: str, *, open_source: bool, signer: str | None = None) -> bytes:
    """One of NVIDIA's modules for KERNEL; SIGNER is only text: a real signature is appended, not part of .modinfo."""
    fields = [("license", "Dual MIT/GPL" if open_source else "NVIDIA"), ("version", version)]
    if name in ("nvidia", "nvidia-current"):
        fields += [("supported", "external"), ("firmware", f"nvidia/{version}/gsp_ga10x.bin")]
        fields += [("alias", f"pci:v000010DEd*sv*sd*bc03sc{subclass}i00*") for subclass in ("02", "00")]
    fields += [("depends", "" if name == "nvidia" else "nvidia"), ("retpoline", "Y"), ("name", name.replace("-", "_"))]
    fields.append(("vermagic", f"{kernel} SMP preempt mod_unload modversions "))
    if signer:
        fields += [("sig_id", "PKCS#7"), ("signer", signer)]
    return module(fields)


def nouveau(kernel: str) -> bytes:
    """The kernel's own driver for NVIDIA's cards: it has no version."""
    return module(
        [("license", "GPL and additional rights"), ("description", "nVidia Riva/TNT/GeForce/Quadro/Tesla/Tegra K1+"),
         ("alias", "pci:v000010DEd*sv*sd*bc03sc*i*"), ("depends", ""), ("intree", "Y"), ("name", "nouveau"),
         ("vermagic", f"{kernel} SMP preempt mod_unload modversions ")]
    )  # fmt: skip

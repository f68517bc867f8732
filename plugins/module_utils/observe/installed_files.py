# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the files that pip installed are still there, by the RECORD of each distribution.

Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/ (a row is path, hash, size; the path is
relative to the directory of the distributions; hash and size may be empty).
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import re
from typing import Iterator, NamedTuple

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

# Python compiles its own anew, and leaves it out where it cannot write.
_COMPILED = re.compile(r"(^|/)__pycache__/|\.pyc$")
_LIBRARY = re.compile(r"\.so[.\d]*$")
_INIT = re.compile(r"^[^/]+/__init__\.py$")
_TOP = re.compile(r'^([^/,"\n]+)', re.MULTILINE)
_NO_PACKAGES = {"..", "__pycache__"}
_READ_WHOLE = 1 << 20
"""Bytes up to which a file is compared by content on a full look; larger ones by size."""
_LONGEST = 1 << 25
"""Bytes of a RECORD that are read: fifty times the longest that is known."""
_MOST_NAMED = 3


class Row(NamedTuple):
    """A row of a RECORD."""

    path: str
    digest: str
    size: int | None


def damage(host: Host, site: str) -> list[str]:
    """What is not as pip left it in a directory of distributions, as parts of a sentence; empty when all is.

    An ordinary look takes the RECORD itself, the top of each package with its `__init__.py`, and the shared libraries: what an import
    needs first, and few enough to be looked for each time. With `host.full` it is every file.
    """
    found: list[str] = []
    for name in host.names(site):
        # What begins with ~ is the rest of a distribution that pip was taking away.
        if not name.endswith(".dist-info") or name.startswith("~"):
            continue
        text = host.read(f"{site}/{name}/RECORD", limit=_LONGEST)
        if text is None:
            found.append(f"{name}/RECORD is gone")
            continue
        if f"{name}/RECORD" not in text:  # each has a row of itself
            found.append(f"{name}/RECORD is not whole")
            continue
        try:
            found += _differences(host, site, rows_of(text) if host.full else _needed_first(text))
        except csv.Error as exc:
            found.append(f"{name}/RECORD cannot be read ({exc})")
    return _shortened(found)


def rows_of(text: str) -> list[Row]:
    """The rows of a RECORD. Raises csv.Error for what is no table."""
    rows = []
    for cells in csv.reader(text.splitlines()):
        if cells and cells[0]:
            digest, size = [*cells, "", ""][1:3]
            rows.append(Row(cells[0], digest, int(size) if size.isdecimal() and len(size) < 20 else None))
    return rows


def _needed_first(text: str) -> list[Row]:
    """The top of each package and the shared libraries. PyTorch's environment has 25,000 rows, and this is made at each look: only the
    rows of libraries are taken apart.
    """
    tops = set(_TOP.findall(text)) - _NO_PACKAGES
    rows = [Row(top, "", None) for top in sorted(tops) if not top.endswith(".dist-info")]
    needed = rows_of("\n".join([line for line in text.splitlines() if ".so" in line or "/__init__.py" in line]))
    return rows + [row for row in needed if _LIBRARY.search(row.path) or _INIT.search(row.path)]


def _differences(host: Host, site: str, rows: list[Row]) -> Iterator[str]:
    gone: set[str] = set()
    for row in rows:
        # Of a package that is gone each of its files is.
        if _COMPILED.search(row.path) or row.path.partition("/")[0] in gone:
            continue
        path = f"{site}/{row.path}" if not row.path.startswith("/") else row.path
        status = None if "\0" in path else host.stat(path)
        if status is None:
            gone.add(row.path)
            yield f"{row.path} is gone"
        elif row.size is not None and status.st_size != row.size:
            yield f"{row.path} has {status.st_size} bytes instead of {row.size}"
        elif host.full and row.digest and status.st_size <= _READ_WHOLE and not _same(host, path, row.digest):
            yield f"{row.path} changed"


def _same(host: Host, path: str, digest: str) -> bool:
    """Whether a file has a RECORD's digest (`sha256=` and URL-safe base64 without its padding). Another kind says nothing."""
    kind, _equals, coded = digest.partition("=")
    if kind != "sha256":
        return True
    try:
        wanted = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))
    except (binascii.Error, ValueError):
        return True
    data = host.read_bytes(path)
    return data is not None and hashlib.sha256(data).digest() == wanted


def _shortened(found: list[str]) -> list[str]:
    rest = len(found) - _MOST_NAMED
    return found if rest <= 0 else [*found[:_MOST_NAMED], f"{rest} more"]

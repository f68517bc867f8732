# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directory of a run on the controller: its user's alone, or refused.

It holds what was seen of every host and what was asked. Once nobody else can write it, or put another directory in its place, what is
written there goes nowhere else.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ansible_collections.gpuwright.node.plugins.module_utils.base import ownership, redact

#: A document that was read from a file: whoever reads it says which it is.
Json = dict[str, Any]

PLAIN, PACKED = ".json", ".json.gz"


class RefusedError(Exception):
    """The directory is not its user's alone; the text says who else may change it."""


def make(path: Path) -> Path:
    """Make the directory where it is missing, closed to others; its real path. One that is there keeps its mode: it may be more than this
    run's, and what a run writes is its user's alone wherever it lies.

    Raises:
        RefusedError: it, or a directory above it, is somebody else's or may be written by somebody else.
        OSError: it cannot be made.
    """
    ours = (os.geteuid(),)
    # What is missing in a directory like /tmp is made here, or was made by somebody else just now: it is judged again.
    _judge(path, (0, *ours), sticky=True)
    for folder in (*reversed(path.parents), path):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    real = path.resolve()
    _judge(path, (0, *ours))
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid not in ours:
            raise RefusedError(f"{real}, which belongs to root")
    finally:
        os.close(descriptor)
    return real


def is_own_file(path: Path) -> bool:
    """Whether a path is a regular file of this user, and no link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def write(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Replace a file in one step, readable by its user alone: a reader sees the old one or the new one, whole. No link is followed."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any, *, sync: bool = False) -> None:
    """Write JSON that any parser reads, compact since a fleet's is large; with gzip where the name ends in ``.gz``.

    There are no credentials and no NaN in it, and lone surrogates of odd output are escaped.
    """
    content = (_dumps(redact.document(value)) + "\n").encode("ascii")
    # The same document is the same file: no time in it.
    write(path, gzip.compress(content, 6, mtime=0) if path.suffix == ".gz" else content, sync=sync)


def read_json(path: Path) -> Json | None:
    """A JSON object that :func:`write_json` wrote; None where it cannot be read."""
    try:
        content = path.read_bytes()
        value = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    return value if isinstance(value, dict) else None


def write_document(
    folder: Path, host: str, document: Mapping[str, object], *, packed: bool = False, sync: bool = False
) -> None:
    """Write what a run has of a host, ``HOST.json``, or ``HOST.json.gz`` where it is seldom looked at."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept, other = (PACKED, PLAIN) if packed else (PLAIN, PACKED)
    write_json(folder / (_name(host) + kept), document, sync=sync)
    (folder / (_name(host) + other)).unlink(missing_ok=True)


def documents(folder: Path) -> Iterator[Path]:
    """The documents of hosts in a folder, by name."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    yield from (folder / name for name in names if name.endswith((PLAIN, PACKED)) and not name.startswith("."))


def document(folder: Path, host: str) -> Path | None:
    """Where the document of a host is; None where there is none."""
    paths = (folder / (_name(host) + suffix) for suffix in (PLAIN, PACKED))
    return next((path for path in paths if path.exists()), None)


def is_packed(path: Path) -> bool:
    """Whether a document of a host is a packed one."""
    return path.name.endswith(PACKED)


def host_of(path: Path) -> str:
    """The host whose document a path is, by its name."""
    return unquote(path.name.removesuffix(PACKED).removesuffix(PLAIN))


def _name(host: str) -> str:
    """A file name for a host; a name with a slash in it stays inside its folder, and one of a dot is no hidden file."""
    name = quote(host, safe=" :@+,[]()=")
    return f"%2E{name[1:]}" if name.startswith(".") else name


def _dumps(value: Any) -> str:
    def text(value: object) -> str:
        return json.dumps(value, separators=(",", ":"), default=str, allow_nan=False)

    try:
        return text(value)
    except ValueError:
        return text(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def _judge(path: Path, owners: Sequence[int], *, sticky: bool = False) -> None:
    found = ownership.offence(str(path), owners, sticky=sticky)
    if found:
        raise RefusedError(found.text)

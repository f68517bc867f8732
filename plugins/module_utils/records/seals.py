# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Seals: small records on the node of what a component manages, so that one look tells whether it is still so.

Beside them lie the record of the last proof and the lock of the run at work. All are JSON, readable by their owner only. Here they are
read and compared; `sealing` makes and writes them. (Apart, because every look reads them and its program is compiled anew each time.)
"""

from __future__ import annotations

import hashlib
import json
import stat as stat_module
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, NamedTuple, TypedDict, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths, versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Service
    from ansible_collections.gpuwright.node.plugins.module_utils.observe.package import Package
    from ansible_collections.gpuwright.node.plugins.module_utils.seal import Proof, RunLock, SealState

SCHEMA = 1

_DIGEST_LIMIT = 1 << 20
"""Bytes up to which a file is compared by content at each look; larger ones by size and time of change."""
_BLOCK = 1 << 20
_RECORD_LIMIT = 1 << 21
"""Bytes of a record that are read: what is longer is none of ours, and would cost the controller many times its size."""
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


#: A record as it was read on the node: it passed no gate, and another version may have written it (docs/adr/0012).
Record = Dict[str, Any]


class LightRecord(TypedDict):
    """A large file in a seal: size (bytes) and time of change."""

    size: int
    mtime_ns: int


class FileRecord(LightRecord):
    """A file in a seal."""

    sha256: str
    mode: str


class SealError(Exception):
    """A record cannot be read, made or written; the text says what to do."""


class Verdict(NamedTuple):
    """How a seal compares with the node."""

    state: SealState
    """"good", "broken", "begun" (a run was cut off in the middle), "alone" (a role was used alone, and nobody looked again), or
    "newer" (written by a newer gpuwright).
    """
    reason: str | None


def iso(seconds: float) -> str:
    """UTC time in ISO 8601."""
    return time.strftime(TIME_FORMAT, time.gmtime(seconds))


# What is recorded


def file_record(host: Host, path: str) -> FileRecord | None:
    """Digest, size, time and mode of a file; None when it is not there."""
    found = host.stat(path)
    if found is None:
        return None
    digest = hashlib.sha256()
    try:
        with open(host.at(path), "rb") as stream:
            for block in iter(lambda: stream.read(_BLOCK), b""):
                digest.update(block)
    except OSError as exc:
        raise SealError(f"{path} could not be read: {exc.strerror or exc}") from exc
    return {
        "sha256": digest.hexdigest(),
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "mode": f"{found.st_mode & 0o7777:04o}",
    }


def digest(host: Host, path: str) -> str | None:
    """SHA-256 of a file; None where it is not there or no file. Raises SealError for one that cannot be read."""
    found = None if host.isdir(path) else file_record(host, path)
    return found["sha256"] if found else None


def light_record(host: Host, path: str) -> LightRecord | None:
    """Size and time of a large file; None when it is not there."""
    found = host.stat(path)
    return None if found is None else {"size": found.st_size, "mtime_ns": found.st_mtime_ns}


def environment_record(host: Host, path: str) -> str | None:
    """Digest over the installation records of a virtual environment: each one's path, size and time. None without environment.

    The contents (gigabytes) are not read; whoever installs or removes a package changes a record.
    """
    if not host.exists(path + "/pyvenv.cfg"):
        return None
    digest = hashlib.sha256()
    for record in host.glob(path + "/lib/python3.*/site-packages/*.dist-info/RECORD"):
        found = host.stat(record)
        if found is not None:
            digest.update(f"{record}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


# What is compared


def _file_difference(host: Host, path: str, sealed: Mapping[str, object]) -> str | None:
    found = host.stat(path)
    if found is None:
        return f"{path} is gone"
    mode = f"{found.st_mode & 0o7777:04o}"
    if sealed.get("mode") not in (None, mode):
        return "{} has mode {} instead of {}".format(path, mode, sealed["mode"])
    if found.st_size != sealed.get("size"):
        return f"{path} changed"
    if found.st_size >= _DIGEST_LIMIT and not host.full:
        return None if found.st_mtime_ns == sealed.get("mtime_ns") else f"{path} changed"
    record = file_record(host, path)
    return None if record and record["sha256"] == sealed.get("sha256") else f"{path} changed"


def _light_difference(host: Host, path: str, sealed: Mapping[str, object]) -> str | None:
    now = light_record(host, path)
    if now is None:
        return f"{path} is gone"
    return None if now == sealed else f"{path} changed"


def _package_difference(name: str, version: str, package: Any) -> str | None:
    if package is None:
        return f"package {name} is not installed"
    if package.version != version:
        return f"package {name} is {package.version} instead of {version}"
    return None if package.state == "installed" else f"package {name} is {package.state}"


def _service_difference(unit: str, sealed: Mapping[str, object], state: Service | None) -> str | None:
    if state is None:
        return f"service {unit} could not be seen"
    for key in ("active", "enabled"):
        if key == "active" and sealed.get(key) != "active":
            continue  # sealed before it could run (a driver that waits for a boot): that it runs now breaks nothing
        if sealed.get(key) is not None and state.get(key) != sealed[key]:
            return "service {} is {} instead of {}".format(unit, state.get(key) or "in no known state", sealed[key])
    return None


def _environment_difference(host: Host, path: str, sealed: Mapping[str, object]) -> str | None:
    record = environment_record(host, path)
    if record is None:
        return f"environment {path} is gone"
    return None if record == sealed.get("record") else f"packages of the environment {path} changed"


def _comparisons(
    host: Host, seal: Record, installed: Mapping[str, Package], services: Mapping[str, Service]
) -> Iterator[str | None]:
    """Each sealed thing compared, the cheap ones first."""
    for name, version in seal.get("packages", {}).items():
        yield _package_difference(name, version, installed.get(name))
    for unit, sealed in seal.get("services", {}).items():
        yield _service_difference(unit, sealed, services.get(unit))
    for path, sealed in seal.get("files", {}).items():
        yield _file_difference(host, path, sealed)
    for path, sealed in seal.get("light_files", {}).items():
        yield _light_difference(host, path, sealed)
    for path, sealed in seal.get("environments", {}).items():
        yield _environment_difference(host, path, sealed)


def difference(
    host: Host,
    seal: Record,
    installed: Mapping[str, Package],
    services: Mapping[str, Service],
) -> str | None:
    """The first thing that is not as it was sealed, as a sentence; None when all is."""
    return next((text for text in _comparisons(host, seal, installed, services) if text), None)


def is_newer(seal: Record) -> bool:
    """Whether a newer gpuwright than this one wrote a seal."""
    schema = seal.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        return True
    return versions.key(str(seal.get("gpuwright") or "0")) > versions.key(versions.COLLECTION)


def verify(
    host: Host,
    seal: Record | SealError,
    installed: Mapping[str, Package],
    services: Mapping[str, Service],
) -> Verdict:
    """Compare a seal with the node. What cannot be read or compared is broken, never good."""
    if isinstance(seal, SealError):
        return Verdict("broken", str(seal))
    if is_newer(seal):
        return Verdict(
            "newer", "written by gpuwright {}, this is {}".format(seal.get("gpuwright"), versions.COLLECTION)
        )
    if seal.get("begun") and seal.get("alone"):
        return Verdict("alone", "a role of gpuwright was used alone at {}".format(seal.get("written")))
    if seal.get("begun"):
        return Verdict("begun", "a run that began {} has not come to its end".format(seal.get("written")))
    try:
        reason = difference(host, seal, installed, services)
    except (SealError, AttributeError, TypeError, ValueError) as exc:
        reason = f"the seal could not be compared: {exc}"
    return Verdict("broken", reason) if reason else Verdict("good", None)


# Reading


def read_object(host: Host, path: str) -> Record | None:
    """A record; None when there is none. Raises SealError for one that is no JSON object, no file, or longer than any of ours."""
    found = host.stat(path)
    if found is not None and not stat_module.S_ISREG(found.st_mode):
        raise SealError(f"{path} is unreadable: it is no file")
    try:
        with open(host.at(path), "rb") as stream:
            data = stream.read(_RECORD_LIMIT + 1)
        if len(data) > _RECORD_LIMIT:
            raise SealError(
                f"{path} is unreadable: it has more than {_RECORD_LIMIT} bytes, which no record of gpuwright has"
            )
        record = json.loads(data.decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise SealError(f"{path} is unreadable: {exc}") from exc
    if not isinstance(record, dict):
        raise SealError(f"{path} is unreadable: it holds no object")
    return record


def path_of(component: str, places: paths.Places = paths.ROOTS) -> str:
    """File of a component's seal."""
    if not component or "/" in component or component.startswith("."):
        raise SealError(f"{component!r} is no name of a component")
    return f"{places.seals}/{component}.json"


def read(host: Host, component: str) -> Record | None:
    """Seal of a component; None when there is none. Raises SealError."""
    return read_object(host, path_of(component, host.places))


def read_all(host: Host) -> dict[str, Record | SealError]:
    """All seals of the node by component; unreadable ones as the error."""
    seals: dict[str, Record | SealError] = {}
    for name in host.names(host.places.seals, "seals"):
        if name.endswith(".json") and not name.startswith("."):
            component = name[: -len(".json")]
            try:
                record = read(host, component)
            except SealError as exc:
                seals[component] = exc
            else:
                if record is not None:
                    seals[component] = record
    return seals


def read_proof(host: Host) -> Proof | None:
    """Record of the last proof; None when there is none or it is unreadable (then nothing is proven)."""
    try:
        return cast("Proof | None", read_object(host, host.places.proof))
    except SealError as exc:
        host.unknown("proof", str(exc))
        return None


def read_lock(host: Host) -> RunLock | None:
    """The lock of the run at work, expired or not; None when there is none. An unreadable one is of an unknown owner."""
    try:
        return cast("RunLock | None", read_object(host, host.places.lock))
    except SealError as exc:
        host.unknown("lock", str(exc))
        return {"owner": None, "since": None, "expires": None}

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Add package sources to a machine: what is in their way goes to a backup, then key, credentials, source, preferences, and the index.

The order is that of the writing: a run that was cut is finished by the next one, which compares each part with what it has to be.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths, redact
from ansible_collections.gpuwright.node.plugins.module_utils.base import run as run_module
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result
from ansible_collections.gpuwright.node.plugins.module_utils.packages import keyring, private_apt

#: Seconds between two attempts to fetch an index, and at most for one.
DELAY, TIMEOUT = 5.0, 1800.0
#: Seconds that the download of a key may take.
_OF_KEY = 30.0
# Older versions of apt do not know Error-Mode: an index that could not be fetched must not pass as a warning.
_NOT_FETCHED = re.compile("Failed to fetch|not signed|NO_PUBKEY|Some index files failed")
_MOST_WORDS = 4_000


class Displaced(TypedDict):
    """A file of the host that is in the way: these addresses in it, or the whole of it."""

    file: str
    whole: bool
    uris: List[str]


class InstalledKey(TypedDict):
    """The key of a source. `form`: binary for apt, armoured for rpm."""

    url: str
    fingerprint: str
    path: str
    form: str


class Source(TypedDict):
    """A package source as it is added.

    `addresses`: what is fetched of it. `access`: files for what the mirror asks for, by path; `form` is auth.conf (with the line that it
    begins with), login or password. `preferences`: content by path, empty where the file goes. `index`: whether its index is fetched
    now; dnf reads it when it next installs.
    """

    name: str
    addresses: List[str]
    key: Optional[InstalledKey]
    access: Dict[str, Dict[str, str]]
    file: str
    content: str
    preferences: Dict[str, str]
    index: bool


#: How a line begins that was put out of force.
DISABLED = f"# Disabled by gpuwright, the file as it was is in {paths.BACKUP}: "


class NotFetched(Exception):
    """The index of a source that could not be fetched."""


class Changes(NamedTuple):
    """What was (in check mode, would be) done: files that were written, and those that went."""

    written: list[str]
    gone: list[str]


class Machine(NamedTuple):
    """How the machine is reached; tests give another root and other programs. ``check``: nothing is written."""

    check: bool = False
    root: str = ""
    runner: Callable[..., Result] = run_module.run
    sleep: Callable[[float], None] = time.sleep

    def at(self, path: str) -> str:
        """Where a path of the machine lies."""
        return self.root + path


def displace(machine: Machine, rows: Iterable[Displaced]) -> Changes:
    """Take what is in the way of the sources out of it (`file`, `uris`, and whether the `whole` file goes). What an earlier run has taken
    out already is not kept a second time, or the backup would be what was left. Raises OSError.
    """
    done = Changes([], [])
    for row in rows:
        path, there = row["file"], _read(machine.at(row["file"]))
        left = None if row["whole"] or there is None else _disabled(there, row["uris"])
        if there is None or left == there:
            continue
        if not machine.check:
            _keep(machine, path)
        if left is None:
            done.gone.append(path)
            if not machine.check:
                os.unlink(machine.at(path))
        else:
            done.written.append(path)
            if not machine.check:
                keyring.write(machine.at(path), left, os.stat(machine.at(path)).st_mode & 0o7777)
    return done


def _disabled(content: bytes, uris: Iterable[str]) -> bytes:
    """A file of one-line sources with these commented out: it has others too, which stay. The file may have a user and a password in the
    address, which no record has.
    """
    for uri in uris:
        address = re.escape(uri).replace("://", "://(?:[^ ]*@)?")
        pattern = r"^([ \t]*deb(?:-src)?[ \t].*" + address + r"(?:[ \t].*)?)$"
        content = re.sub(pattern.encode(), DISABLED.encode() + rb"\1", content, flags=re.MULTILINE)
    return content


def restored(content: bytes) -> bytes:
    """A file of one-line sources without our marks: the lines that were commented out count again, whatever else was written since."""
    return re.sub(rb"^" + re.escape(DISABLED.encode()), b"", content, flags=re.MULTILINE)


def _keep(machine: Machine, path: str) -> None:
    """A copy in the backup, in one step; another one that is there already stays beside it under a number."""
    target = machine.at(paths.BACKUP + path)
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    there = _read(target)
    if there is not None and there != _read(machine.at(path)):
        earlier = (f"{target}.{number}~" for number in itertools.count(1))
        os.rename(target, next(path for path in earlier if not os.path.lexists(path)))
    shutil.copy2(machine.at(path), target + ".new")
    os.rename(target + ".new", target)


def add(machine: Machine, source: Source, credentials: Sequence[Mapping[str, str]], retries: int) -> Changes:
    """Bring one source to be as it is told, with those of the credentials that are for it.

    Raises KeyFileError, FetchError, OSError, NotFetched.
    """
    mine = [each for each in credentials if any(redact.covers(each["machine"], url) for url in source["addresses"])]
    done = Changes([], [])
    key = source["key"]
    if key:
        options: keyring.Options = {
            "url": key["url"],
            "fingerprint": key["fingerprint"],
            "form": key["form"],
            "path": machine.at(key["path"]),
            "timeout": _OF_KEY,
            "credentials": [dict(each) for each in mine],
        }
        if keyring.install(options, machine.check)["changed"]:
            done.written.append(key["path"])
    for path, what in sorted(source["access"].items()):
        _bring(machine, path, _access(what, mine), 0o600, done)
    _bring(machine, source["file"], source["content"], 0o644, done)
    for path, content in sorted(source["preferences"].items()):
        _bring(machine, path, content or None, 0o644, done)
    if source["index"] and not machine.check:
        fetch_index(machine, source, retries)
    return done


def _access(what: Mapping[str, str], credentials: Sequence[Mapping[str, str]]) -> str | None:
    """The content of a file with credentials; None where the mirror asks for none."""
    if not credentials:
        return None
    if what["form"] == "auth.conf":
        return what["begin"] + private_apt.auth_conf(credentials)
    return credentials[0][what["form"]] + "\n"


def _bring(machine: Machine, path: str, content: str | None, mode: int, done: Changes) -> None:
    """Write a file where its content or mode differs, or remove it."""
    target = machine.at(path)
    there = _read(target)
    if content is None:
        if there is not None:
            done.gone.append(path)
            if not machine.check:
                os.unlink(target)
        return
    data = content.encode("utf-8")
    if there == data:
        status = os.stat(target)
        if status.st_mode & 0o7777 == mode and status.st_uid == os.geteuid():
            return
    done.written.append(path)
    if not machine.check:
        keyring.write(target, data, mode)


def fetch_index(machine: Machine, source: Source, retries: int) -> None:
    """Fetch the index of this source alone: one of somebody else's that is broken does not stop it, and lists of others are kept.

    Raises NotFetched with what apt said at last.
    """
    options = {
        "Dir::Etc::SourceList": machine.at(source["file"]),
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Get::List-Cleanup": "false",
        "APT::Update::Error-Mode": "any",
    }
    argv = ["apt-get", "update"] + [word for name in options for word in ("-o", name + "=" + options[name])]
    for attempt in range(retries + 1):
        if attempt:
            machine.sleep(DELAY)
        result = machine.runner(argv, timeout=TIMEOUT)
        if result.ok and not _NOT_FETCHED.search(result.err):
            return
    said = redact.text((result.error or result.err or result.out).strip())[-_MOST_WORDS:]
    raise NotFetched(
        f"Expected the index of {source['name']} ({' '.join(source['addresses'])}). Found: {said} What to do: check the network, the "
        "proxy of apt and the address, or name a mirror (gpuwright_mirrors); then run again."
    )


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None

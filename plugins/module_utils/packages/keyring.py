# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The keyring of a package repository: fetched, checked against its fingerprint, written in one step."""

from __future__ import annotations

import os
import tempfile
from typing import TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import openpgp
from ansible_collections.gpuwright.node.plugins.module_utils.packages.fetch import fetch

_MODE = 0o644


class _Options(TypedDict):
    url: str
    fingerprint: str
    path: str
    timeout: float


class Options(_Options, total=False):
    """The options of the module."""

    form: str
    credentials: list[dict[str, str]]


class _Change(TypedDict):
    changed: bool
    fingerprint: str


class Answer(_Change):
    """What the module answers."""

    previous: list[str]


def present(path: str, armour: bool = False) -> tuple[list[str], bool]:
    """Fingerprints in the file at `path`, and whether it can be used as it is: readable by all, and as it would be written here."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
        readable = os.stat(path).st_mode & 0o7777 == _MODE
    except FileNotFoundError:
        return [], False
    try:
        return openpgp.fingerprints(data), readable and data == _in_form(openpgp.keyring(data), armour)
    except openpgp.KeyFileError:
        return [], False


def _in_form(keyring: bytes, armour: bool) -> bytes:
    """A keyring as its reader takes it: binary for apt, with an armour for rpm."""
    return openpgp.armour(keyring) if armour else keyring


def write(path: str, data: bytes, mode: int = _MODE) -> None:
    """Write a file in one step, with its directory: whoever reads it sees the old one or the new one."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix="." + os.path.basename(path) + ".", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def install(options: Options, check: bool) -> Answer:
    """Bring the file to hold exactly the expected key; the module's answer. Raises KeyFileError, FetchError, OSError."""
    wanted = openpgp.normalise(options["fingerprint"])
    armour = options.get("form") == "armoured"
    previous, usable = present(options["path"], armour)
    answer: Answer = {"changed": False, "fingerprint": wanted, "previous": previous}
    if openpgp.of_text(wanted):
        return {**answer, **_by_text(options, check, wanted, armour, previous if usable else [])}
    if usable and set(previous) == {wanted}:
        return answer
    answer["changed"] = True
    if not check:
        data = fetch(options["url"], options["timeout"], options.get("credentials") or ())
        write(options["path"], _in_form(openpgp.checked(data, wanted), armour))
    return answer


def _by_text(options: Options, check: bool, wanted: str, armour: bool, usable: list[str]) -> _Change:
    """The answer about a key that is known by the text of its file: a keyring does not tell it, so the file is fetched each time.

    `usable`: fingerprints of the keyring that is there. In check mode they stand for the file.
    """
    named = len(set(usable)) == 1 and usable[0].endswith(wanted[-8:])
    if check:
        return {"changed": not named, "fingerprint": usable[0] if named else "0" * 32 + wanted[-8:]}
    keyring = openpgp.checked(fetch(options["url"], options["timeout"], options.get("credentials") or ()), wanted)
    found, there = openpgp.fingerprints(keyring)[0], _in_form(keyring, armour)
    if named and _content(options["path"]) == there:
        return {"changed": False, "fingerprint": found}
    write(options["path"], there)
    return {"changed": True, "fingerprint": found}


def _content(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()

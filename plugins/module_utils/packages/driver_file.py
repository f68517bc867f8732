# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A .run file of NVIDIA's (a driver, a toolkit): fetched from the first address that has it, checked, put in its place in one step."""

from __future__ import annotations

import hashlib
import os
from typing import TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.packages.fetch import FetchError, download

_BLOCK = 1 << 20
# NVIDIA's servers answer 403 for a file that they do not have.
_HAS_IT_NOT = (401, 403, 404)


class Options(TypedDict):
    """The options of the module."""

    addresses: list[str]
    sha256: str
    path: str
    timeout: float
    credentials: list[dict[str, str]]


class DriverFileError(Exception):
    """No address has the file, or it is not the expected one; the text says what was expected, what was found and what to do."""


def install(options: Options, check: bool) -> bool:
    """Bring the expected file to its place; whether it was, or in check mode would be, written.

    Raises DriverFileError, FetchError, OSError.
    """
    path, wanted = options["path"], options["sha256"].lower()
    if sha256(path) == wanted:
        return False
    if not check:
        part = path + ".part"
        url, found = _fetched(options, part)
        if found != wanted:
            os.unlink(part)
            raise DriverFileError(
                f"Expected {os.path.basename(path)} with the SHA256 {wanted}. Found {found} at {url}. It was not run. "
                "What to do: look who changed it before you trust it, or correct its checksum (nvidia_driver_runfile_sha256, "
                "cuda_runfile_sha256)."
            )
        os.rename(part, path)
    return True


def sha256(path: str) -> str:
    """SHA-256 of a file; empty where there is none."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(_BLOCK), b""):
                digest.update(block)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()


def _fetched(options: Options, part: str) -> tuple[str, str]:
    """The address that had the file, which lies at `part` now, and its SHA-256. Raises DriverFileError, FetchError."""
    refusals = []
    for url in options["addresses"]:
        found = _download(url, part, options)
        if isinstance(found, str):
            return url, found
        refusals.append(str(found))
    raise DriverFileError(
        f"Expected {os.path.basename(options['path'])} at one of {', '.join(options['addresses'])}. Found it at none: "
        f"{'; '.join(refusals)}. What to do: ask for another version (nvidia_driver_version, cuda_versions), or say where the file is "
        "(nvidia_driver_runfile, cuda_runfile)."
    )


def _download(url: str, part: str, options: Options) -> str | FetchError:
    """SHA-256 of what an address has, or its word that it has nothing. Raises FetchError."""
    try:
        return download(url, part, options["timeout"], options["credentials"])
    except FetchError as exc:
        if exc.status not in _HAS_IT_NOT:
            raise
        return exc

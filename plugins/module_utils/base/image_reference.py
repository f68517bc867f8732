# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""References of container images: written in full, so that what is wished and what an engine lists can be compared.

The grammar is that of distribution/reference (reference.go); what Docker leaves away when it shows a name is put back.
"""

from __future__ import annotations

import re

_HUB = "docker.io"
_HUB_TOO = "index.docker.io"
_OF_DOCKER = "library"
_HOST = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?|\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?", re.ASCII
)
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_LONGEST = 400


def name_in_full(name: str) -> str | None:
    """A name (nvidia/cuda) with its registry (docker.io/nvidia/cuda); None for what is no name."""
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = _HUB, name
    host = _HUB if host == _HUB_TOO else host
    if host == _HUB and "/" not in path:
        path = f"{_OF_DOCKER}/{path}"
    if len(name) > _LONGEST or not _HOST.fullmatch(host) or not _PATH.fullmatch(path):
        return None
    return f"{host}/{path}"


def in_full(text: str) -> str | None:
    """A reference with its registry, and a tag or a digest; None for one without either, and for what is no reference.

    Of a tag and a digest together the digest counts: engines pull by that alone.
    """
    rest, at, digest = text.partition("@")
    # A colon before the last slash is that of the registry's port.
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    name = name_in_full(f"{head}{slash}{last}")
    if name is None or (colon and not _TAG.fullmatch(tag)) or (at and not _DIGEST.fullmatch(digest)):
        return None
    if at:
        return f"{name}@{digest}"
    return f"{name}:{tag}" if colon else None


def registry(reference: str) -> str:
    """The registry of a reference in full, as `docker login` takes it."""
    return reference.partition("/")[0]

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's local repository: what the package cuda-repo-ubuntu2404-12-8-local unpacks on a machine, a CUDA release with its own key.

It is wished as a mirror, ``gpuwright_mirrors: {nvidia: "file:///var/cuda-repo-ubuntu2404-12-8-local"}``, with the fingerprint of its key.
"""

from __future__ import annotations

from ansible_collections.gpuwright.node.plugins.module_utils.base.pattern import lazy

from ..rules import Row
from ..wish.wish import Wish
from .log import Entry, conflict
from .naming import RPM_FAMILY

_DIRECTORY = lazy(r"file:///(?:[^/]+/)*cuda-repo-(?P<system>[a-z0-9-]+?)-\d+-\d+-local/?")
_SOURCE = "the wish"


def of(wish: Wish) -> str | None:
    """Return the address of the local repository that a wish names, with a slash at its end; None where it names none."""
    mirror = wish.mirrors.get("nvidia", "")
    return f"{mirror.rstrip('/')}/" if _DIRECTORY.fullmatch(mirror) else None


def obstacles(base: str, wish: Wish, system: Row) -> list[Entry]:
    """Return why it cannot be used on a system: it is of another one, or its key is not known."""
    found = _DIRECTORY.fullmatch(base)
    made_for = found["system"] if found else ""
    if made_for != system["nvidia_repository"]:
        text = f"the local repository {base} is made for {made_for}, and this system is {system['nvidia_repository']} to NVIDIA"
        remedy = f"take NVIDIA's local installer for {system['name']}, or leave gpuwright_mirrors: nvidia out"
        return [conflict("repository.local-system", text, _SOURCE, remedy)]
    if not wish.repository_keys.get("nvidia"):
        text = f"each local repository of NVIDIA's has a key of its own, and none is used unseen: {base}"
        remedy = (
            f"set gpuwright_repository_keys: {{nvidia: <full fingerprint>}}: on the node `gpg --show-keys {base[len('file://') :]}*.gpg` "
            "tells it (rpm: `*.pub`), and NVIDIA's guide of that release"
        )
        return [conflict("repository.key-unknown", text, _SOURCE, remedy)]
    return []


def key_file(fingerprint: str, system: Row) -> str:
    """Return the name of the file with its key, beside its packages."""
    identity = fingerprint[-8:]
    return f"{identity}.pub" if system["family"] == RPM_FAMILY else f"cuda-{identity}-keyring.gpg"

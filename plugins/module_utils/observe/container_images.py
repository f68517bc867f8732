# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The images that engines have. Docker is asked where it runs, which starts nothing; of Podman its own list is read, because each of its
programs makes directories where there are none yet.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Iterable, Iterator

from ansible_collections.gpuwright.node.plugins.module_utils.base import image_reference
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import EngineImages

_MOST = 2000
_LIMIT = 1 << 24
_LIST = ["docker", "image", "ls", "--digests", "--no-trunc", "--format", "{{.Repository}}\t{{.Tag}}\t{{.Digest}}"]
#: Docker's word for no tag, no name and no digest.
_NONE = "<none>"
#: containers-storage.conf(5): the file of the host comes in the place of the one of the package.
_STORAGE = ("/etc/containers/storage.conf", "/usr/share/containers/storage.conf")
_GRAPH_ROOT = re.compile(r"""^[ \t]*graphroot[ \t]*=[ \t]*["']([^"']+)["']""", re.MULTILINE)
_DEFAULT_ROOT = "/var/lib/containers/storage"


def observe(host: Host, docker: bool, active: bool | None, podman: bool, *, asked: bool) -> EngineImages:
    """Images by engine, with their registries. Of an engine that is not there they are none. ``active``: whether Docker runs; ``asked``:
    whether somebody wants to know.
    """
    if not asked:
        return {"docker": _not_asked(host, "docker", docker), "podman": _not_asked(host, "podman", podman)}
    found = _docker(host) if active else None
    return {
        "docker": _few(host, "containers.images.docker", found) if docker else [],
        "podman": _few(host, "containers.images.podman", _podman(host)) if podman else [],
    }


def _not_asked(host: Host, engine: str, there: bool) -> list[str] | None:
    if not there:
        return []
    host.unknown(f"containers.images.{engine}", "not looked at: nobody asked for it")
    return None


def _few(host: Host, fact: str, found: Iterable[str] | None) -> list[str] | None:
    """The images of an engine, each once; more than anybody can mean are not known."""
    names = None if found is None else sorted(set(found))
    if names is not None and len(names) > _MOST:
        host.unknown(fact, f"there are {len(names)} images, more than {_MOST}")
        return None
    return names


def _docker(host: Host) -> Iterable[str] | None:
    told = host.run(_LIST)
    if told.ok:
        return parse_docker(told.out)
    said = (told.err.strip().splitlines() or ["it does not say why"])[-1]
    host.unknown("containers.images.docker", told.error or f"Docker does not list its images: {said}")
    return None


def parse_docker(text: str) -> Iterator[str]:
    """The images of a list of names, tags and digests: each by its tag, and by its digest where it has one."""
    for line in dict.fromkeys(text.splitlines()):  # the same line says nothing new
        name, _tab, rest = line.partition("\t")
        tag, _tab, digest = rest.partition("\t")
        for written in (f"{name}:{tag}" if tag != _NONE else "", f"{name}@{digest}"):
            found = image_reference.in_full(written)
            if found:
                yield found


def _podman(host: Host) -> Iterable[str] | None:
    """The images in the place where Podman keeps them, whatever the driver of the storage is."""
    fact = "containers.images.podman"
    settings = next((text for text in (host.read(path, fact) for path in _STORAGE) if text), "")
    root = _GRAPH_ROOT.search(settings)
    files = host.glob(f"{(root[1] if root else _DEFAULT_ROOT).rstrip('/')}/*-images/images.json")
    try:
        found = [image for path in files for image in _of_storage(host.read(path, fact, limit=_LIMIT))]
    except (ValueError, RecursionError) as exc:
        host.unknown(fact, f"the list of Podman's images is no valid JSON: {exc}")
    return None if fact in host.unknown_facts else found


def _of_storage(text: str | None) -> Iterator[str]:
    return parse_podman(json.loads(text or "[]"))


def parse_podman(rows: object) -> Iterator[str]:
    """The images of a list of Podman's storage (github.com/containers/storage, images.go)."""
    for row in rows if isinstance(rows, list) else ():
        names = row.get("names") if isinstance(row, dict) else None
        for name in names if isinstance(names, list) else ():
            found = image_reference.in_full(str(name))
            if found:
                yield found

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Docker's configuration as the host's own again: for another engine in its place, and for the removal of all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths

from .tables import Table, taken_out

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Docker, Facts

DAEMON_JSON = "/etc/docker/daemon.json"
#: What has to be seen of it before it is written or goes.
_SEEN = ("containers.docker.daemon_json", "containers.docker.added")
#: The file as it was, root's alone.
ORIGINAL = paths.BACKUP + DAEMON_JSON


class PutBack(TypedDict):
    """A copy that was kept, and its place."""

    src: str
    dest: str


class Content(TypedDict):
    """A file and what it holds; it keeps its mode and owner."""

    path: str
    content: str


class GivenBack(TypedDict):
    """What makes a configuration the host's own again: files that are put back, written and removed."""

    put_back: list[PutBack]
    files: list[Content]
    absent: list[str]


def given_back(facts: Facts) -> GivenBack:
    """The configuration without what was put in; one that held nothing else goes, and one that cannot be read stays as it is."""
    docker = facts["containers"]["docker"]
    added = docker["added"]
    if added and added["original"] == "file":
        return {"put_back": [{"src": ORIGINAL, "dest": DAEMON_JSON}], "files": [], "absent": []}
    content = _without_ours(docker)
    unread = bool(docker["daemon_json_error"]) or any(each in facts["unknown"] for each in _SEEN)
    gone = (not content or bool(added and added["original"] == "none")) and not unread
    file: Content = {"path": DAEMON_JSON, "content": json.dumps(content, indent=4) + "\n"}
    writes = bool(content) and not gone and not unread
    return {"put_back": [], "files": [file] if writes else [], "absent": [DAEMON_JSON] if gone else []}


def _without_ours(docker: Docker) -> Table:
    """What is there without what was put in, by the record of it, or where none was kept, the runtime. `runtimes` that a person wrote as
    something else than an object stay.
    """
    content, added = dict(docker["daemon_json"] or {}), docker["added"]
    if added:
        return taken_out(content, added["put"], added["had"])
    if content.get("default-runtime") == "nvidia":
        del content["default-runtime"]
    runtimes = content.get("runtimes")
    if isinstance(runtimes, Mapping):
        others = {name: each for name, each in runtimes.items() if name != "nvidia"}
        del content["runtimes"]
        content |= {"runtimes": others} if others else {}
    return content

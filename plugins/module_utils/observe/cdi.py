# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What engines find the cards by: the CDI specifications, and the links in /dev/char."""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Cdi, CdiSpecification

#: Where engines look for specifications; of a device that both have, the second one counts (cncf-tags/container-device-interface, SPEC.md).
DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
#: Where Podman is told other ones, each file in place of those before it (containers.conf(5), cdi_spec_dirs).
_PODMAN = (
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d/*.conf",
)
_LOOKS = re.compile(r"^[ \t]*cdi_spec_dirs[ \t]*=[ \t]*\[([^\]]{0,4000})\]", re.MULTILINE)
_DIRECTORY = re.compile(r"""["'](/[\w./+-]{1,200})["']""", re.ASCII)
_LIMIT = 1 << 20
_MOST = 20
_MOST_NODES = 200
_KIND = re.compile(r"""^[ \t]*["']?kind["']?:[ \t]*["']?nvidia\.com/gpu["']?,?[ \t\r]*$""", re.MULTILINE)
#: A name on a line of its own, as nvidia-ctk writes it in YAML and in JSON.
_NAME = re.compile(
    r"""^[ \t]*(?:-[ \t]+)?["']?name["']?:[ \t]*["']?([A-Za-z0-9._:-]{1,64})["']?,?[ \t\r]*$""", re.MULTILINE
)
#: The library of the driver, which is handed into each container, has the version in its name.
_DRIVER = re.compile(r"/libcuda\.so\.(\d+(?:\.\d+)+)\b")
#: The version of CDI, on a line of its own.
_VERSION = re.compile(r"""^[ \t]*["']?cdiVersion["']?:[ \t]*["']?(\d+(?:\.\d+){1,2})["']?,?[ \t\r]*$""", re.MULTILINE)
#: A node of a card or of its display, on a line of its own.
_DEVICE = re.compile(
    r"""^[ \t]*(?:-[ \t]+)?["']?(?:path|hostPath)["']?:[ \t]*["']?(/dev/(?:nvidia|dri/)[\w/-]{1,60})["']?,?[ \t\r]*$""",
    re.MULTILINE,
)
#: What a container gets besides (`hostPath`), and what is run when it starts (`path`): of neither the nodes.
_FILE, _PROGRAM = (
    re.compile(
        rf"""^[ \t]*(?:-[ \t]+)?["']?{key}["']?:[ \t]*["']?(/(?!dev/)[\w./+-]{{1,200}})["']?,?[ \t\r]*$""",
        re.ASCII | re.MULTILINE,
    )
    for key in ("hostPath", "path")
)
#: Nodes that a container gets and that nvidia-ctk makes links to.
_NODE = re.compile(r"/dev/nvidia(?:\d+|ctl|-modeset|-uvm|-uvm-tools)", re.ASCII)


def parse(path: str, text: str) -> CdiSpecification | None:
    """What a specification says of the cards; None where it is of another kind."""
    text = _a_line_for_each(text)
    if not _KIND.search(text):
        return None
    driver, version = _DRIVER.search(text), _VERSION.search(text)
    nodes = list(dict.fromkeys(_DEVICE.findall(text)))
    return {
        "path": path,
        "version": version[1] if version else None,
        "driver": driver[1] if driver else None,
        "devices": _NAME.findall(text)[:1000],
        "nodes": nodes[:_MOST_NODES],
    }


def _a_line_for_each(text: str) -> str:
    """A document of JSON with a line for each key, nothing where it is none; YAML as it is."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.dumps(json.loads(text), indent=1)
    except (ValueError, RecursionError):
        return ""


def observe(host: Host) -> Cdi:
    """The specifications in the order in which they count, and device nodes that runc does not find by their numbers."""
    files = [
        path for folder in DIRECTORIES for ending in ("yaml", "json") for path in host.glob(f"{folder}/*.{ending}")
    ]
    nodes = [path for path in host.glob("/dev/nvidia*") if _NODE.fullmatch(path)]
    specifications: list[CdiSpecification] = []
    for path in files[:_MOST]:
        text = host.read(path, "containers.cdi.specifications", limit=_LIMIT) or ""
        found = parse(path, text)
        if found and nodes:
            _put_lost(host, found, text)
        if found:
            hidden = next((each for each in (os.path.dirname(path), path) if _is_hidden(host, each)), None)
            specifications.append({**found, "hidden": hidden} if hidden else found)
    return {"specifications": specifications, "unlinked": [path for path in nodes if not _linked(host, path)]}


def podman_looks(host: Host) -> list[str]:
    """The directories that Podman is told to look into, by their first names; empty where nothing tells any."""
    texts = [
        host.read(path, "containers.podman.looks", limit=_LIMIT) or ""
        for pattern in _PODMAN
        for path in host.glob(pattern)
    ]
    told = [found for text in texts for found in _LOOKS.findall(text)][-1:]
    found = [path.rstrip("/") for each in told for path in _DIRECTORY.findall(each) if "/.." not in path]
    return ["/var" + path if path.startswith("/run/") else path for path in found][:_MOST]


def _put_lost(host: Host, found: CdiSpecification, text: str) -> None:
    """Put in what a specification names and the machine does not have."""
    text = _a_line_for_each(text)
    files, programs = (
        [path for path in dict.fromkeys(pattern.findall(text)) if "/../" not in path] for pattern in (_FILE, _PROGRAM)
    )
    found["lost"] = [path for path in [*found["nodes"], *files] if not host.exists(path)][:_MOST_NODES]
    found["lost_programs"] = [path for path in programs if not host.executable(path)][:_MOST_NODES]


def _is_hidden(host: Host, path: str) -> bool:
    """Whether only root may read a file, or look into a directory."""
    found = host.stat(path)
    needed = stat.S_IROTH | (stat.S_IXOTH if found and stat.S_ISDIR(found.st_mode) else 0)
    return found is not None and found.st_mode & needed != needed


def _linked(host: Host, path: str) -> bool:
    """Whether the number of a device leads to its node; what is no device needs no link."""
    found = host.stat(path)
    if found is None or not stat.S_ISCHR(found.st_mode):
        return True
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    return host.link(f"/dev/char/{number}") is not None

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration of NVIDIA's container runtime: what in it takes the cards from containers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import ContainerRuntime

PATH = "/etc/nvidia-container-runtime/config.toml"
_LIMIT = 1 << 18
_TABLE = re.compile(r"\[\s*([\w.\"'-]+)\s*\]\s*(?:#.*)?", re.ASCII)
_PAIR = re.compile(r"([\w-]+)\s*=\s*(?:\"(\w[\w-]*)\"|'(\w[\w-]*)'|(\w[\w-]*))\s*(?:#.*)?", re.ASCII)
#: A path behind @ is the machine's own; any other one is the container's.
_LDCONFIG = re.compile(r"^[ \t]*ldconfig[ \t]*=[ \t]*[\"']@(/[\w./-]{1,200})[\"']", re.ASCII | re.MULTILINE)
_ROOT = re.compile(r"^[ \t]*root[ \t]*=[ \t]*[\"'](/[\w./-]{1,200})[\"']", re.ASCII | re.MULTILINE)
#: Of the file itself; true where it says nothing (NVIDIA/nvidia-container-toolkit, api/config/v1).
_BY_VARIABLE = ("", "accept-nvidia-visible-devices-envvar-when-unprivileged")
_CGROUPS, _MODE = ("nvidia-container-cli", "no-cgroups"), ("nvidia-container-runtime", "mode")


def parse(text: str) -> ContainerRuntime:
    """What it says of cgroups and of how the cards get in; of both the toolkit's own default where it says nothing."""
    found, table = {}, ""
    for line in map(str.strip, text.splitlines()):
        header, pair = _TABLE.fullmatch(line), _PAIR.fullmatch(line)
        if header:
            table = header[1].replace('"', "").replace("'", "")
        elif pair:
            found[(table, pair[1])] = pair[2] or pair[3] or pair[4] or ""
    seen: ContainerRuntime = {"no_cgroups": found.get(_CGROUPS) == "true", "mode": found.get(_MODE) or "auto"}
    if found.get(_BY_VARIABLE) == "false":
        seen["privileged_only"] = True
    return seen


def observe(host: Host) -> ContainerRuntime | None:
    """The part `containers.runtime`; None where there is no such file."""
    text = host.read(PATH, "containers.runtime", limit=_LIMIT)
    if text is None:
        return None
    seen, named, root = parse(text), _LDCONFIG.search(text), _ROOT.search(text)
    if named and not host.exists(named[1]):
        seen["lost_ldconfig"] = named[1]
    if root and root[1].strip("/"):
        seen["root"] = root[1]
    return seen

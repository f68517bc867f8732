# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What containers of users without root need: the kernel's leave, and ranges of subordinate ids (subuid(5))."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, List, Mapping, Sequence

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.measure import disk_class

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import IdRange, Rootless, RootlessAdded

SUBUID, SUBGID = "/etc/subuid", "/etc/subgid"
_PEOPLE = "/etc/passwd"
_MAX_NAMESPACES = "/proc/sys/user/max_user_namespaces"
_CLONE = "/proc/sys/kernel/unprivileged_userns_clone"
_APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
#: The profile that Ubuntu's AppArmor has for Podman, which may make user namespaces by it.
_PROFILE = "/etc/apparmor.d/podman"
#: Names as the gate takes them. Others are nobody's whom a wish could name, and their ranges are taken all the same.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}", re.ASCII)
_UNTOLD = "_"
#: Digits of the largest id, and then some.
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_LIMIT = 1 << 18
_FACT = "containers.rootless"
HOMES = "/home"
#: Where the setup of Docker without root puts its unit (docs.docker.com/engine/security/rootless).
_UNIT = (".config", "systemd", "user", "docker.service")
_MOST = 100
#: Ids of people begin there, and the last one is nobody's (login.defs(5)).
_FIRST, _NOBODY = 1000, 65534


def _number(host: Host, path: str) -> int | None:
    """A number of the kernel's; None where it has none of that name."""
    text = host.line(path)
    return int(text) if text and _DIGITS.fullmatch(text) else None


def _flag(host: Host, path: str) -> bool | None:
    number = _number(host, path)
    return None if number is None else number != 0


def _users(host: Host) -> dict[str, int]:
    """The ids of this machine's own people by name."""
    found = {}
    for line in (host.read(_PEOPLE, _FACT, limit=_LIMIT) or "").splitlines():
        fields = line.split(":")
        if len(fields) != 7 or not _NAME.fullmatch(fields[0]) or not _DIGITS.fullmatch(fields[2]):
            continue
        if _FIRST <= int(fields[2]) != _NOBODY:
            found[fields[0]] = int(fields[2])
    return found


def parse_ranges(text: str) -> list[IdRange]:
    """The ranges of a file such as /etc/subuid: owner (a name or an id), first id, how many."""
    found: List[IdRange] = []
    for line in text.splitlines():
        fields = line.strip().split(":")
        if len(fields) == 3 and _DIGITS.fullmatch(fields[1]) and _DIGITS.fullmatch(fields[2]):
            owner = fields[0] if _NAME.fullmatch(fields[0]) else _UNTOLD
            found.append({"owner": owner, "first": int(fields[1]), "count": int(fields[2])})
    return found


def _ranges(host: Host, path: str) -> list[IdRange]:
    return parse_ranges(host.read(path, _FACT, limit=_LIMIT) or "")


def _added(host: Host, uids: list[IdRange], gids: list[IdRange]) -> RootlessAdded:
    """The ranges that the role gave, by its record, and that are there."""
    try:
        record: object = json.loads(host.read(paths.ROOTLESS, _FACT, limit=_LIMIT) or "{}")
    except (ValueError, RecursionError) as exc:
        host.unknown(_FACT, f"{paths.ROOTLESS} is no valid JSON: {exc}")
        record = {}
    known: Mapping[str, object] = record if isinstance(record, dict) else {}

    def ours(key: str, there: list[IdRange]) -> list[IdRange]:
        named = known.get(key)
        return [each for each in there if isinstance(named, list) and each in named]

    return {"uids": ours("uids", uids), "gids": ours("gids", gids)}


def of_homes(host: Host, parts: Sequence[str]) -> list[str]:
    """Users who have a file, by its path below their homes. Root follows no link of theirs, and asks no server that may not answer."""
    mounts = disk_class.parse_mountinfo(host.read("/proc/1/mountinfo", limit=_LIMIT) or "")
    if any(_is_served(mount) and f"{mount['mount']}/".startswith(f"{HOMES}/") for mount in mounts):
        return []
    names = filter(_NAME.fullmatch, host.names(HOMES, _FACT))
    return [name for name in names if _has(host, f"{HOMES}/{name}", parts)][:_MOST]


def _is_served(mount: dict[str, str]) -> bool:
    return mount["fstype"].startswith(("autofs", "fuse")) or disk_class.network_name(mount) is not None


def _has(host: Host, path: str, parts: Sequence[str]) -> bool:
    if host.link(path) is not None:
        return False
    for part in parts:
        path = f"{path}/{part}"
        if host.link(path) is not None:
            return False
    return host.exists(path)


def observe(host: Host) -> Rootless:
    """The part `containers.rootless`."""
    uids, gids = _ranges(host, SUBUID), _ranges(host, SUBGID)
    seen: Rootless = {
        "max_namespaces": _number(host, _MAX_NAMESPACES),
        "clone": _flag(host, _CLONE),
        "apparmor": _flag(host, _APPARMOR),
        "profile": host.exists(_PROFILE),
        "users": _users(host),
        "uids": uids,
        "gids": gids,
        "added": _added(host, uids, gids),
    }
    docker = of_homes(host, _UNIT)
    if docker:
        seen["docker"] = docker
    return seen

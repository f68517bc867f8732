# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Container engines and the NVIDIA container toolkit: files and packages only. Asking an engine could start it."""

from __future__ import annotations

import datetime as dt
import json
import time
from typing import TYPE_CHECKING, Any, Mapping

from ansible_collections.gpuwright.node.plugins.module_utils.base import versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import packages

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Containers

_DAEMON_JSON = "/etc/docker/daemon.json"
_LIMIT = 1 << 18
_ENGINES = ("docker.io", "docker-ce", "moby-engine", "docker")


def started(fields: Mapping[str, str], now: float, monotonic: float) -> float | None:
    """When a service's main process started, in seconds since 1970.

    systemd tells the wall clock's second, and microseconds of the monotonic clock. The second is sure even when the clock was set later;
    the fraction comes from the monotonic value where both agree.
    """
    text = fields.get("ExecMainStartTimestamp", "")
    words = text.split()
    if len(words) < 3:
        return None
    try:
        second = dt.datetime.fromisoformat(" ".join(words[1:3]) + "+00:00").timestamp()
    except ValueError:
        return None
    ticks = fields.get("ExecMainStartTimestampMonotonic", "")
    precise = now - monotonic + int(ticks) / 1e6 if ticks.isdigit() and ticks != "0" else second
    return precise if second <= precise < second + 1 else second


def _daemon_json(host: Host) -> tuple[Any, str | None]:
    text = host.read(_DAEMON_JSON, "containers.docker.daemon_json", limit=_LIMIT + 1)
    if text is None:
        return None, None
    if len(text) > _LIMIT:
        return None, f"{_DAEMON_JSON} has more than {_LIMIT} characters"
    if not text.strip():
        return {}, None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as exc:
        return None, f"{_DAEMON_JSON} is no valid JSON: {exc}"
    if not isinstance(parsed, dict):
        return None, f"{_DAEMON_JSON} holds a {type(parsed).__name__} instead of an object"
    return parsed, None


def _config_loaded(host: Host, active: bool | None, fields: Mapping[str, str]) -> bool | None:
    """Whether the running daemon started after its configuration was last modified; None when there is nothing to compare."""
    changed = host.stat(_DAEMON_JSON)
    if changed is None or not active:
        return None
    since = started(fields, time.time(), time.clock_gettime(time.CLOCK_MONOTONIC))
    if since is None:
        host.unknown("containers.docker.config_loaded", "systemd does not tell since when docker runs")
        return None
    return since >= changed.st_mtime


def _version(host: Host, *names: str) -> str | None:
    found = packages.version_of(host, *names)
    return versions.upstream(found) if found else None


def observe(host: Host, shown: Mapping[str, Mapping[str, str]]) -> Containers:
    """The part `containers`. `shown`: systemd's properties of the units."""
    fields = shown.get("docker.service", {})
    version = _version(host, *_ENGINES)
    there = version is not None or host.which("dockerd") is not None
    if there and version is None:
        host.unknown("containers.docker.version", "docker was installed by no package, and asking it could start it")
    active: bool | None = fields.get("ActiveState") == "active" if fields else False if not there else None
    if active is None:
        host.unknown("containers.docker.active", "services could not be asked")
    config, error = _daemon_json(host)
    return {
        "docker": {
            "installed": there,
            "version": version,
            "active": active,
            "daemon_json": config,
            "daemon_json_error": error,
            "config_loaded": _config_loaded(host, active, fields),
        },
        "toolkit": {"version": _version(host, "nvidia-container-toolkit", "nvidia-container-toolkit-base")},
        "containerd": {"version": _version(host, "containerd.io", "containerd")},
        "podman": {"version": _version(host, "podman")},
    }

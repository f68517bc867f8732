# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Docker's configuration: the NVIDIA runtime merged into daemon.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ..base import Context, Finding
from .shape import Merged

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Docker, Facts

DAEMON_JSON = "/etc/docker/daemon.json"
SERVICE = "docker.service"
RUNNING = ("docker", "ps", "--quiet")
#: What Docker's configuration must hold; the rest of it is the host's own.
_RUNTIMES = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
_DEFAULT_RUNTIME = {"default-runtime": "nvidia"}
#: The first Docker that checks a configuration without starting.
_VALIDATES = "23.0"


def has_runtime(docker: Docker) -> bool:
    """Say whether Docker's configuration, in which a person may have written anything, names the NVIDIA runtime."""
    written = docker.get("daemon_json")
    runtimes = written.get("runtimes") if isinstance(written, Mapping) else None
    return isinstance(runtimes, Mapping) and "nvidia" in runtimes


def findings(context: Context) -> list[Finding]:
    docker = context.facts["containers"]["docker"]
    found = []
    if not has_runtime(docker):
        found.append(Finding("configure", f"Docker has no runtime 'nvidia' in {DAEMON_JSON}", files=[DAEMON_JSON]))
    elif docker["config_loaded"] is False:
        found.append(
            Finding("configure", f"Docker has not loaded {DAEMON_JSON} since it was changed", services=[SERVICE])
        )
    return found


def refusal(facts: Facts) -> str | None:
    """Why nothing can be merged into Docker's configuration; None where it can."""
    docker = facts["containers"]["docker"]
    error = docker["daemon_json_error"] or facts["unknown"].get("containers.docker.daemon_json")
    if not error and isinstance(docker["daemon_json"] or {}, Mapping):
        return None
    return (
        f"Expected {DAEMON_JSON} to be a JSON object. Found: {error or 'something else than an object'}. What to do: correct the file by "
        "hand (Docker itself does not start with it either) and run again. Nothing has been changed in it."
    )


def with_runtime(config: Mapping[str, object], *, default: bool) -> Mapping[str, object]:
    """Docker's configuration with the runtime, and as the one that each container gets where that is wished. Foreign keys stay."""
    return _combined(config, {**_RUNTIMES, **(_DEFAULT_RUNTIME if default else {})})


def _combined(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    combined = dict(below)
    for key, value in above.items():
        there = combined.get(key)
        combined[key] = _combined(there, value) if isinstance(there, Mapping) and isinstance(value, Mapping) else value
    return combined


def files(context: Context, *, check: bool) -> list[Merged]:
    """The configuration. Nothing is written where nothing is missing, so that a file in its owner's own layout keeps it. In check mode the
    directory or dockerd may be missing still, because the engine of this same plan is not installed.
    """
    docker = context.facts["containers"]["docker"]
    now: Mapping[str, object] = docker["daemon_json"] or {}
    default = context.variables.get("container_toolkit", {}).get("container_toolkit_default_runtime", False)
    wished = with_runtime(now, default=bool(default))
    if wished == now or (check and not docker["installed"]):
        return []
    file: Merged = {"path": DAEMON_JSON, "content": json.dumps(wished, indent=4) + "\n", "backup": True}
    if docker["daemon_json"] is None:
        file["mode"] = "0644"
    if numeric_version.at_least(docker["version"] or "0", _VALIDATES):
        file["validate"] = "dockerd --validate --config-file=%s"
    return [file]

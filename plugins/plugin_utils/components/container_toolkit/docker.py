# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Docker's configuration: the NVIDIA runtime, CDI and the settings that are wished, merged into daemon.json.

What is put in is recorded on the node, with what stood in its place, so that it can be taken out again: the file as it was where nobody
else wrote it since, and otherwise nothing but what was put in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version, paths

from ...model import sections
from ..base import Context, Finding, not_known
from ..daemon_json import DAEMON_JSON, ORIGINAL
from ..tables import Table, combined, lacking, replaced, taken_out
from .shape import Kept, Merged

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Docker, Facts

SERVICE = "docker.service"
_SEEN = "containers.docker.daemon_json"
#: What Docker's configuration must hold; the rest of it is the host's own.
_RUNTIMES: Table = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
_DEFAULT_RUNTIME: Table = {"default-runtime": "nvidia"}
#: From the first to before the second, CDI is there and off (compat/container_toolkit.yaml, features).
_CDI: Table = {"features": {"cdi": True}}
_CDI_THERE, _CDI_ON = "25.0", "28.2"
#: The first Docker that checks a configuration without starting.
_VALIDATES = "23.0"
DATA_ROOT = "/var/lib/docker"


#: Keys of daemon.json that are called otherwise than the option of dockerd; the others have its name.
_KEYS = {
    "add-runtime": "runtimes",
    "host": "hosts",
    "insecure-registry": "insecure-registries",
    "registry-mirror": "registry-mirrors",
    "exec-opt": "exec-opts",
    "log-opt": "log-opts",
    "storage-opt": "storage-opts",
    "label": "labels",
}


def key_of(flag: str) -> str:
    """The key of daemon.json that is the same as an option of dockerd: it refuses to start with both."""
    return _KEYS.get(flag, flag)


def has_runtime(docker: Docker) -> bool:
    """Say whether Docker's configuration, in which a person may have written anything, names the NVIDIA runtime."""
    written = docker.get("daemon_json")
    runtimes = written.get("runtimes") if isinstance(written, Mapping) else None
    return isinstance(runtimes, Mapping) and "nvidia" in runtimes


def findings(context: Context) -> list[Finding]:
    docker = context.facts["containers"]["docker"]
    broken, found = docker["daemon_json_error"], []
    if broken:
        text = f"{broken}: Docker does not start with it, and nothing is put into it before it is corrected by hand"
        return [Finding("configure", text, files=[DAEMON_JSON])]
    if _SEEN in context.facts["unknown"]:
        text = not_known(context.facts, _SEEN, f"whether Docker has a runtime 'nvidia' in {DAEMON_JSON}")
        return [Finding("configure", text, files=[DAEMON_JSON])]
    if not has_runtime(docker):
        found.append(Finding("configure", f"Docker has no runtime 'nvidia' in {DAEMON_JSON}", files=[DAEMON_JSON]))
    others = _other_differences(context)
    if others:
        found.append(Finding("configure", others, files=[DAEMON_JSON]))
    if not found and docker["config_loaded"] is False:
        found.append(
            Finding("configure", f"Docker has not loaded {DAEMON_JSON} since it was changed", services=[SERVICE])
        )
    return found


def _other_differences(context: Context) -> str | None:
    """What beside the runtime is not as wished, as a sentence. The runtime's own program may be another one of the host's."""
    now, wished = _now(context.facts), settings(context)
    missing, aim = lacking(now, wished), with_runtime(_base(context.facts), wished)
    gone = [key for key in now if key not in ("runtimes", *missing) and (key not in aim or aim[key] != now[key])]
    told = []
    if missing:
        told.append(f"Docker's {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not as wished")
    if gone:
        told.append(f"{', '.join(gone)} of an earlier wish {'is' if len(gone) == 1 else 'are'} in {DAEMON_JSON} yet")
    if "data-root" in missing and context.facts["containers"]["docker"]["installed"]:
        old = now.get("data-root", DATA_ROOT)
        told.append(f"images and containers in {old} stay there, and Docker does not see them")
    return "; ".join(told) or None


def refusal(facts: Facts) -> str | None:
    """Why nothing can be merged into Docker's configuration; None where it can."""
    docker = facts["containers"]["docker"]
    error = docker["daemon_json_error"] or facts["unknown"].get(_SEEN)
    given = next((each for each in docker.get("flags") or () if key_of(each["name"]) == "runtimes"), None)
    if given and not has_runtime(docker):
        return (
            f"Expected {DAEMON_JSON} alone to name Docker's runtimes. Found: {given['file']} gives --{given['name']}, and Docker does not "
            f"start with runtimes in both. What to do: take --{given['name']} out of it, sudo systemctl daemon-reload, and run again."
        )
    if not error and isinstance(docker["daemon_json"] or {}, Mapping):
        return None
    return (
        f"Expected {DAEMON_JSON} to be a JSON object. Found: {error or 'something else than an object'}. What to do: correct the file by "
        "hand (Docker itself does not start with it either) and run again. Nothing has been changed in it."
    )


def settings(context: Context) -> Table:
    """What is wished beside the runtime itself."""
    default = context.variables.get("container_toolkit", {}).get("container_toolkit_default_runtime", False)
    off = has_cdi_off_by_itself(context.facts["containers"]["docker"])
    wished = context.stack["container_toolkit"]["engine"].get("settings") or {}
    return {**(_CDI if off else {}), **(_DEFAULT_RUNTIME if default else {}), **wished}


def has_cdi_off_by_itself(docker: Docker) -> bool:
    """Say whether this Docker has CDI and leaves it off where nobody switches it on."""
    version = docker["version"] or "0"
    return numeric_version.at_least(version, _CDI_THERE) and not numeric_version.at_least(version, _CDI_ON)


def lacks_cdi(docker: Docker) -> bool:
    """Say whether this Docker does not know cards by their names (nvidia.com/gpu=all), and would with a setting."""
    written = docker.get("daemon_json")
    features = written.get("features") if isinstance(written, Mapping) else None
    return has_cdi_off_by_itself(docker) and not (isinstance(features, Mapping) and features.get("cdi") is True)


def with_runtime(config: Mapping[str, object], wished: Mapping[str, object]) -> Table:
    """Docker's configuration with the runtime and what else is wished. Foreign keys stay."""
    return combined(config, {**_RUNTIMES, **wished})


def _now(facts: Facts) -> Mapping[str, object]:
    there = facts["containers"]["docker"]["daemon_json"]
    return there if isinstance(there, Mapping) else {}


def _base(facts: Facts) -> Mapping[str, object]:
    """The host's own configuration: what is there without what was put in."""
    added = facts["containers"]["docker"]["added"]
    if added:
        return taken_out(_now(facts), added["put"], added["had"])
    return taken_out(_now(facts), {**_RUNTIMES, **_DEFAULT_RUNTIME}, {}) if _unrecorded(facts) else _now(facts)


def _unrecorded(facts: Facts) -> bool:
    """Whether an earlier version was at work, which put the runtime in and kept no record of that. By the files of earlier runs: a seal is
    there as soon as the first run begins.
    """
    written = DAEMON_JSON in (sections.history(facts).get("files") or ())
    return written and facts["containers"]["docker"]["added"] is None


def files(context: Context, *, check: bool) -> list[Merged]:
    """The record of what is put in, and then the configuration. Nothing is written where nothing is missing, so that a file in its owner's
    own layout keeps it. In check mode the directory or dockerd may be missing still, because the engine of this same plan is not installed.
    """
    docker = context.facts["containers"]["docker"]
    base = _base(context.facts)
    wished = with_runtime(base, settings(context))
    if wished == _now(context.facts) or (check and not docker["installed"]):
        return []
    file: Merged = {"path": DAEMON_JSON, "content": json.dumps(wished, indent=4) + "\n"}
    if docker["daemon_json"] is None:
        file["mode"] = "0644"
    if numeric_version.at_least(docker["version"] or "0", _VALIDATES):
        file["validate"] = "dockerd --validate --config-file=%s"
    return [_record(context.facts, base, wished, file["content"]), file]


def _record(facts: Facts, base: Mapping[str, object], wished: Table, content: str) -> Merged:
    put = lacking(base, wished)
    record = {
        "put": put,
        "had": replaced(base, put),
        "before": _original(facts),
        "after": hashlib.sha256(content.encode()).hexdigest(),
    }
    return {"path": paths.DOCKER, "content": json.dumps(record, indent=1) + "\n", "mode": "0600"}


def _original(facts: Facts) -> str | None:
    """Whether there is a file as it was, or there was none; None where what is there is not the host's own alone and no copy was kept."""
    docker = facts["containers"]["docker"]
    if docker["added"]:
        return docker["added"]["original"]
    if _unrecorded(facts):
        return None
    return "none" if docker["daemon_json"] is None else "file"


def kept(context: Context, merged: list[Merged]) -> list[Kept]:
    """The file as it is, which is kept before it is written for the first time."""
    first = context.facts["containers"]["docker"]["added"] is None and _original(context.facts) == "file"
    writes = any(file["path"] == DAEMON_JSON for file in merged)
    return [{"src": DAEMON_JSON, "dest": ORIGINAL}] if first and writes else []


def left_behind(facts: Facts) -> list[Finding]:
    """What is to be taken back where Docker is the engine no more."""
    reason = f"Docker is not the engine that is wished, and {DAEMON_JSON} has what an earlier run put in"
    return [Finding("configure", reason, files=[DAEMON_JSON])] if is_ours(facts) else []


def is_ours(facts: Facts) -> bool:
    """Whether something in the configuration was put in here: by the record of it, or by the seal of a version that kept none."""
    docker = facts["containers"]["docker"]
    return bool(docker["added"]) or (_unrecorded(facts) and has_runtime(docker))

# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""containerd's configuration: the NVIDIA runtime and CDI for pods of Kubernetes, in a file of our own where containerd can have one.

containerd 1.x puts a whole section of an imported file in the place of the main file's section, so that a file of our own would take away
what the host says there (containerd/containerd, issue 5837): there the main file is edited. From 2.0 on it merges them (pull request 9982),
and a file of our own serves where the main file imports its directory.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import numeric_version

from ...model import sections
from ...model.errors import StepRefused
from ..base import Context, Finding
from ..tables import Table, combined, table
from . import toml
from .shape import Merged

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import Containerd, Facts

    from ...model.plan import GivenBack

CONFIG = "/etc/containerd/config.toml"
#: Read after those of others, by its name.
DIRECTORY = "/etc/containerd/conf.d"
DROP_IN = f"{DIRECTORY}/99-gpuwright.toml"
SERVICE = "containerd.service"
PROGRAM = "/usr/bin/nvidia-container-runtime"
#: What is wrong with a runtime that somebody else configured, and what a person does about it
#: (https://github.com/NVIDIA/nvidia-docker/issues/1788).
UNMANAGED = "containerd's runtime nvidia does not leave control groups to systemd (SystemdCgroup), and the kubelet does: pods come and go"
MANAGE = f"set SystemdCgroup = true beside BinaryName in the options of the runtime nvidia in {CONFIG}, then restart containerd"
_VALIDATE = "containerd --config %s config dump"
#: The section of what serves Kubernetes, by the version of the configuration (containerd/containerd, docs/cri/config.md).
_SECTIONS = {1: "cri", 2: "io.containerd.grpc.v1.cri"}
_NEWER_SECTION = "io.containerd.cri.v1.runtime"
_RUNC: Table = {"runtime_type": "io.containerd.runc.v2"}
#: The first version with CDI (compat/container_toolkit.yaml, features); from _MERGES on it is on by itself.
_CDI = "1.7"
_MERGES = "2.0"


def there(context: Context) -> Containerd:
    return context.facts["containers"]["containerd"]


def findings(context: Context) -> list[Finding]:
    """What containerd's own words of its configuration lack."""
    seen, config = there(context), there(context)["config"]
    broken, found = seen["config_error"], []
    if broken:
        text = f"containerd cannot read its configuration ({broken}): nothing is put into it before {CONFIG} is corrected by hand"
        return [Finding("configure", text, files=[CONFIG])]
    lacking = [
        *(["has no runtime 'nvidia'"] if not (config and config["runtime"]) else []),
        *(["has CDI switched off"] if config and config["cdi"] is False and _has_cdi(seen) else []),
        *(
            ["gives containers another runtime than 'nvidia' by default"]
            if config and default_wished(context) and config["default_runtime"] != "nvidia"
            else []
        ),
    ]
    if lacking:
        found.append(Finding("configure", f"containerd {' and '.join(lacking)}", files=[CONFIG]))
    elif seen["config_loaded"] is False:
        reason = "containerd has not loaded its configuration since it was changed"
        found.append(Finding("configure", reason, services=[SERVICE]))
    return found


def unmanaged(seen: Containerd) -> bool:
    """Say whether the runtime is there and leaves no control groups to systemd, of which the kubelet has it manage those of pods."""
    config = seen["config"]
    there = config is not None and bool(config["runtime"]) and config.get("systemd_cgroup") is not True
    return there and seen.get("kubelet_cgroups") == "systemd"


def left_behind(facts: Facts) -> list[Finding]:
    """What is to be taken back where containerd is the engine no more."""
    marked = facts["containers"]["containerd"]["marked"]
    reason = "containerd is not the engine that is wished, and has the NVIDIA runtime from an earlier run"
    return [Finding("configure", reason, files=marked)] if marked else []


def refusal(facts: Facts) -> str | None:
    """Why nothing can be put into the configuration; None where it can. The file itself is read later, when it is edited."""
    seen = facts["containers"]["containerd"]
    error = seen["config_error"]
    if error:
        return _refused(f"a configuration that containerd can start with. Found: {error}", "correct the file by hand")
    config = seen["config"]
    others = [path for path in (config["imports"] if config else ()) if path != CONFIG]
    if others and not _merges(seen) and not (config and config["runtime"]):
        return _refused(
            f"the whole section {_SECTIONS[2]} in {CONFIG}: containerd {seen['version']} lets an imported file take its place. "
            f"Found: imported files ({', '.join(others)})",
            f"move what they say of that section into {CONFIG}",
        )
    return None


def _refused(expected: str, what_to_do: str) -> str:
    return f"Expected {expected}. What to do: {what_to_do} and run again. Nothing has been changed in {CONFIG}."


def default_wished(context: Context) -> bool:
    return bool(context.variables.get("container_toolkit", {}).get("container_toolkit_default_runtime", False))


def _has_cdi(seen: Containerd) -> bool:
    return numeric_version.at_least(seen["version"] or "0", _CDI)


def _merges(seen: Containerd) -> bool:
    return numeric_version.at_least(seen["version"] or "0", _MERGES)


def content(encoded: str | None) -> str:
    """The text of the file as it was read on the node. Raises StepRefused where it is none."""
    try:
        return base64.b64decode(encoded or "", validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise StepRefused(_refused(f"text in UTF-8 in {CONFIG}. Found: {error}", "correct the file by hand")) from None


def files(context: Context, text: str) -> list[Merged]:
    """What is to be written. ``text``: what the main file says now, empty where there is none. Raises StepRefused."""
    try:
        seen = there(context)
        systemd = seen.get("kubelet_cgroups") == "systemd"
        main, own = configured(text, seen["version"], default=default_wished(context), systemd=systemd)
    except toml.Unmergeable as error:
        raise StepRefused(
            _refused(f"{CONFIG} to be a file that can be added to. Found: {error}", "add it by hand")
        ) from None
    return [*_main(text, main), *([_own(own)] if own else [])]


def taken_back(text: str) -> list[Merged]:
    """The main file without what was put in."""
    return _main(text, toml.restored(text))


def given_back(facts: Facts) -> GivenBack | None:
    """What `remove` does to the configuration; None where nothing of ours is in it."""
    seen = facts["containers"]["containerd"]
    if not seen["marked"]:
        return None
    goes = "containerd" in (sections.history(facts).get("brought") or ())
    return {
        "path": CONFIG,
        "patterns": list(toml.PATTERNS) if CONFIG in seen["marked"] else [],
        "absent": [DROP_IN] if DROP_IN in seen["marked"] else [],
        "unit": SERVICE,
        "restart": bool(seen["active"]) and not goes,
    }


def _main(now: str, wished: str) -> list[Merged]:
    if now == wished:
        return []
    file: Merged = {"path": CONFIG, "content": wished, "validate": _VALIDATE}
    return [file if now else {**file, "mode": "0644"}]


def _own(text: str) -> Merged:
    return {"path": DROP_IN, "content": text, "mode": "0644", "validate": _VALIDATE}


def configured(text: str, version: str | None, *, default: bool, systemd: bool = False) -> tuple[str, str]:
    """The main file with what is wished of it, and the file of our own, empty where there is none. Raises toml.Unmergeable.

    ``systemd``: the kubelet has systemd manage the control groups of pods.
    """
    host = toml.restored(text)
    says = toml.parsed(host)
    wished = _wished(says, version or "0", default=default, systemd=systemd)
    if wished and numeric_version.at_least(version or "0", _MERGES) and _imported(says):
        head = "# Written by gpuwright (role container_toolkit); a change by hand is undone by the next run.\n"
        return host, head + toml.rendered(toml.flat({"version": says.get("version", 1), **wished}))
    return toml.merged(host, wished if says or not wished else {"version": 2, **wished}), ""


def _imported(says: Table) -> bool:
    """Whether the main file imports the file of our own."""
    patterns = says.get("imports")
    return isinstance(patterns, list) and any(fnmatch.fnmatchcase(DROP_IN, str(pattern)) for pattern in patterns)


def _wished(says: Table, version: str, *, default: bool, systemd: bool) -> Table:
    """What is added. A runtime nvidia of the host's own stays as it is."""
    section = _section(says)
    serves = table(says, "plugins", section)
    runtimes = table(serves, "containerd", "runtimes")
    merges = numeric_version.at_least(version, _MERGES)
    wished: Table = {}
    containerd: Table = {"default_runtime_name": "nvidia"} if default else {}
    if not table(runtimes, "nvidia", "options").get("BinaryName"):
        containerd["runtimes"] = {**_beside(runtimes, merges=merges), "nvidia": _runtime(runtimes, systemd=systemd)}
    if numeric_version.at_least(version, _CDI) and (not merges or serves.get("enable_cdi") is False):
        wished["enable_cdi"] = True
    if containerd:
        wished["containerd"] = containerd
    return {"plugins": {section: wished}} if wished else {}


def _section(says: Table) -> str:
    """The name of the section. A file that says nothing is begun with version 2, one without a version is of version 1."""
    version = says.get("version", 1 if says else 2)
    return _SECTIONS.get(version, _NEWER_SECTION) if isinstance(version, int) else _NEWER_SECTION


def _beside(runtimes: Table, *, merges: bool) -> Table:
    """runc, which containerd 1.x has by itself only as long as the file names no runtime at all."""
    return {} if runtimes or merges else {"runc": dict(_RUNC)}


def _runtime(runtimes: Table, *, systemd: bool) -> Table:
    """The runtime, with what the host says of runc: the driver of the control groups has to be the same, and the kubelet's."""
    runc = table(runtimes, "runc") or _RUNC
    options: Table = {"SystemdCgroup": True} if systemd else {}
    return combined(runc, {"options": {**options, "BinaryName": PROGRAM}})

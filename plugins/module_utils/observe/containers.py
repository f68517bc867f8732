# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Container engines and the NVIDIA container toolkit: files and packages only, since asking an engine could start it.

containerd alone tells of its configuration without being started, and is asked where something in it may be of interest. A Docker that
runs is asked for its images where they matter.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import time
from typing import TYPE_CHECKING, Any, Iterable, Literal, Mapping, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import paths, versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host
from ansible_collections.gpuwright.node.plugins.module_utils.observe import (
    cdi,
    container_images,
    container_runtime,
    packages,
    rootless,
)

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        CgroupDriver,
        Containerd,
        ContainerdConfig,
        Containers,
        Docker,
        DockerAdded,
        DockerFlag,
        Kubernetes,
    )

_DAEMON_JSON = "/etc/docker/daemon.json"
_DATA_ROOT = "/var/lib/docker"
_LIMIT = 1 << 18
_ENGINES = ("docker.io", "docker-ce", "moby-engine", "docker")
_SNAPS = ("/snap", "/var/lib/snapd/snap")
_CONTAINERD = "/etc/containerd/config.toml"
_MICROK8S = "/var/snap/microk8s/current/args/containerd-template.toml"
_NVIDIA = re.compile(r"""runtimes\.["']?nvidia\b""")
_DROP_INS = "/etc/containerd/conf.d"
_KUBELET = "/var/lib/kubelet/config.yaml"
_CGROUP_DRIVER = re.compile(r"""^["']?cgroupDriver["']?:[ \t]*["']?(systemd|cgroupfs)\b""", re.MULTILINE)
#: NVIDIA/k8s-device-plugin, internal/plugin/server.go (getPluginSocketPath): of each kind of card one, and none where it finds no card.
_PLUGINS = "/var/lib/kubelet/device-plugins/nvidia-*.sock"
#: What a kubelet asks Docker by (github Mirantis/cri-dockerd).
_CRI_DOCKERD = ("/usr/bin/cri-dockerd", "/usr/local/bin/cri-dockerd")
#: Docker's own settings of each user, where the context is that commands go to.
_CLIENT = (".docker", "config.json")
_TO_DESKTOP = re.compile(r'"currentContext"\s{0,20}:\s{0,20}"desktop-')
_SELINUX = "/sys/fs/selinux"
#: What a configuration says where its runtimes may be others than containerd's own, or may come from elsewhere.
_OF_INTEREST = re.compile(r"nvidia|^[ \t]*imports\b", re.MULTILINE)
#: containerd's part for Kubernetes by its names: of version 1, 2 and 3 of the configuration.
_CRI = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_DISABLED = re.compile(r"^[ \t]*disabled_plugins[ \t]*=[ \t]*\[([^\]]{0,4000})\]", re.MULTILINE)
#: What containerd prints has a line for each key, a table's header on its own, and no text of several lines.
_TABLE = re.compile(r"\[(.+)\]")
_PAIR = re.compile(r"([\w-]+)\s*=(.*)")
#: How a role of ours marks what it writes there: a block, a line of its own, and a line of the host's that it put out of force.
MARKS = re.compile(r"^# Written by gpuwright |^# BEGIN gpuwright$|# gpuwright$|^#gpuwright# ", re.MULTILINE)
_WORD = re.compile(r"""\"([^\"]*)\"|'([^']*)'|([^\s.,\"'\[\]]+)""")


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


def lost_runtimes(host: Host, config: Any) -> list[str]:
    """Runtimes of a daemon.json, in which a person may have written anything, whose program is not there."""
    runtimes = config.get("runtimes") if isinstance(config, dict) else None
    rows = runtimes.items() if isinstance(runtimes, dict) else ()
    paths = {name: row.get("path") for name, row in rows if isinstance(row, dict)}
    return sorted(
        name
        for name, path in paths.items()
        if isinstance(path, str) and path and not (host.executable(path) if "/" in path else host.which(path))
    )


#: Where a person, or another program, tells systemd how Docker is started.
_UNIT_FILES = ("/etc/systemd/system/docker.service", "/etc/systemd/system/docker.service.d/*.conf")
_START = re.compile(r"^[ \t]*ExecStart=((?:.*\\\n)*.*)$", re.MULTILINE)
_FLAG = re.compile(r"(?:^|\s)(-H|--[a-z][a-z-]{1,40})(?=[\s=]|$)")


def flags(host: Host) -> list[DockerFlag]:
    """The options that the machine's own files of the unit give Docker. An empty ExecStart takes back what stood before it."""
    found: list[DockerFlag] = []
    for path in (path for pattern in _UNIT_FILES for path in host.glob(pattern)):
        for line in _START.findall(host.read(path, "containers.docker.flags", limit=_LIMIT) or ""):
            if not line.strip():
                found = []
            names = ("host" if flag == "-H" else flag[2:] for flag in _FLAG.findall(line))
            found += [{"file": path, "name": name} for name in names]
    return found[:100]


def data_root(docker: Docker) -> str:
    """The directory in which Docker keeps everything."""
    config = docker.get("daemon_json")
    named = config.get("data-root") if isinstance(config, dict) else None
    return named if isinstance(named, str) and named.startswith("/") else _DATA_ROOT


def _added(host: Host) -> DockerAdded | None:
    """What the role put into daemon.json, by its record. The file as it was can be put back where nobody else wrote it since; a run that
    was cut off has left it as it was.
    """
    try:
        record = json.loads(host.read(paths.DOCKER, "containers.docker.added", limit=_LIMIT) or "null")
    except (ValueError, RecursionError) as exc:
        host.unknown("containers.docker.added", f"{paths.DOCKER} is no valid JSON: {exc}")
        return None
    if not isinstance(record, dict) or not all(isinstance(record.get(name), dict) for name in ("put", "had")):
        return None
    now, kept = _digest(host, _DAEMON_JSON), _digest(host, paths.BACKUP + _DAEMON_JSON)
    before = record.get("before")
    original: Literal["file", "none"] | None = None
    if before == "file" and kept is not None and now in (kept, record.get("after")):
        original = "file"
    elif before == "none" and now in (None, record.get("after")):
        original = "none"
    return {"put": record["put"], "had": record["had"], "original": original}


def _digest(host: Host, path: str) -> str | None:
    data = host.read_bytes(path, "containers.docker.added", limit=_LIMIT + 1)
    return None if data is None else hashlib.sha256(data).hexdigest()


def _config_loaded(
    host: Host, engine: str, active: bool | None, fields: Mapping[str, str], files: Iterable[str]
) -> bool | None:
    """Whether the running daemon started after its configuration was last modified; None when there is nothing to compare."""
    changed = [found.st_mtime for found in map(host.stat, files) if found is not None]
    if not changed or not active:
        return None
    since = started(fields, time.time(), time.clock_gettime(time.CLOCK_MONOTONIC))
    if since is None:
        host.unknown(f"containers.{engine}.config_loaded", f"systemd does not tell since when {engine} runs")
        return None
    return since >= max(changed)


def _active(host: Host, engine: str, there: bool, fields: Mapping[str, str]) -> bool | None:
    active = fields.get("ActiveState") == "active" if fields else False if not there else None
    if active is None:
        host.unknown(f"containers.{engine}.active", "services could not be asked")
    return active


def _words(text: str) -> list[str]:
    """The names of a key with dots, or the texts of an array."""
    return ["".join(found) for found in _WORD.findall(text)]


def parse_dump(text: str) -> ContainerdConfig:
    """What `containerd config dump` says of runtimes, CDI and imports. Passwords of registries are in it too, and stay where they are."""
    found: ContainerdConfig = {
        "runtime": None,
        "default_runtime": None,
        "cdi": None,
        "imports": [],
        "systemd_cgroup": None,
    }
    table: list[str] = []
    for line in map(str.strip, text.splitlines()):
        header, pair = _TABLE.fullmatch(line), _PAIR.fullmatch(line)
        if header:
            table = _words(header[1])
        elif pair:
            _take(found, table, pair[1], pair[2])
    return found


def _take(found: ContainerdConfig, table: list[str], key: str, value: str) -> None:
    words = _words(value)
    if not table and key == "imports":
        found["imports"] = words
    if table[:1] != ["plugins"] or table[1:2] not in [[name] for name in _CRI] or not words:
        return
    below = table[2:]
    if not below and key == "enable_cdi":
        found["cdi"] = words[0] == "true"
    elif below == ["containerd"] and key == "default_runtime_name":
        found["default_runtime"] = words[0]
    elif below == ["containerd", "runtimes", "nvidia", "options"] and key == "BinaryName":
        found["runtime"] = words[0]
    elif below == ["containerd", "runtimes", "nvidia", "options"] and key == "SystemdCgroup":
        found["systemd_cgroup"] = words[0] == "true"


def _containerd(host: Host, shown: Mapping[str, Mapping[str, str]], docker: bool) -> Containerd:
    """The part of containerd. Beside Docker, which brings it, it is asked only where its configuration may be another than Docker's."""
    fields = shown.get("containerd.service", {})
    program = host.which("containerd")
    version = _version(host, "containerd.io", "containerd") or (_told_version(host) if program else None)
    there = version is not None or program is not None
    active = _active(host, "containerd", there, fields)
    files = [_CONTAINERD, *host.glob(f"{_DROP_INS}/*.toml")]
    texts = {path: host.read(path, "containers.containerd.config", limit=_LIMIT) or "" for path in files}
    # What it does not print itself, this file says all the same.
    read = "containers.containerd.config" not in host.unknown_facts
    asks = bool(program) and (not docker or any(map(_OF_INTEREST.search, texts.values())))
    config, error = _dump(host) if asks else (None, None)
    if config and config["runtime"] and config["runtime"].startswith("/"):
        config["lost"] = not host.executable(config["runtime"])
    disabled = _DISABLED.search(texts[_CONTAINERD])
    cgroups = _kubelet_cgroups(host)
    found: Containerd = {
        "installed": there,
        "version": version,
        "active": active,
        "cri": not (disabled and set(_words(disabled[1])) & set(_CRI)) if read else None,
        "marked": [path for path, text in texts.items() if MARKS.search(text)],
        "config": config,
        "config_error": error,
        "config_loaded": _config_loaded(host, "containerd", active, fields, files),
        "kubelet_cgroups": cgroups,
    }
    if cgroups:
        found["device_plugin"] = bool(host.glob(_PLUGINS))
    return found


def _kubelet_cgroups(host: Host) -> CgroupDriver | None:
    """Who manages the control groups of pods by the kubelet's configuration (KubeletConfiguration, cgroupDriver)."""
    found = _CGROUP_DRIVER.search(host.read(_KUBELET, "containers.containerd", limit=_LIMIT) or "")
    return cast("CgroupDriver", found[1]) if found else None


def _told_version(host: Host) -> str | None:
    """What a containerd that no package brought says of itself; that starts nothing."""
    told = host.run(["containerd", "--version"])
    number = re.search(r"\bv?(\d+\.\d+\.\d+)", told.out)
    if number:
        return number[1]
    host.unknown("containers.containerd.version", told.error or "containerd does not tell its version")
    return None


def _dump(host: Host) -> tuple[ContainerdConfig | None, str | None]:
    """What containerd says of its configuration, or why it would not start with it."""
    result = host.run(["containerd", "config", "dump"])
    if result.ok:
        return parse_dump(result.out), None
    if result.error:
        host.unknown("containers.containerd.config", result.error)
        return None, None
    return None, (result.err.strip().splitlines() or ["it does not say why"])[-1]


def _elsewhere(host: Host) -> Literal["snap", "desktop"] | None:
    """A Docker that is no service of this system: a snap, or Docker Desktop, which has a machine of its own."""
    if any(host.isdir(f"{root}/docker/current") for root in _SNAPS):
        return "snap"
    return "desktop" if host.isdir("/opt/docker-desktop") or packages.version_of(host, "docker-desktop") else None


def _to_desktop(host: Host) -> list[str]:
    """Settings of users whose commands go to Docker Desktop's machine."""
    homes = ["/root", *(f"{rootless.HOMES}/{name}" for name in rootless.of_homes(host, _CLIENT))]
    places = ["/".join((home, *_CLIENT)) for home in homes]
    return [path for path in places if _TO_DESKTOP.search(host.read(path, limit=_LIMIT) or "")]


def _kubernetes(host: Host) -> Kubernetes | None:
    """A Kubernetes that brings a containerd of its own."""
    for name in ("k3s", "rke2"):
        agent = f"/var/lib/rancher/{name}/agent"
        if host.which(name) or host.isdir(agent):
            return _with_runtime(host, {"name": name, "config": f"{agent}/etc/containerd/config.toml"})
    if any(host.isdir(f"{root}/microk8s/current") for root in _SNAPS):
        return _with_runtime(host, {"name": "microk8s", "config": _MICROK8S})
    return None


def _with_runtime(host: Host, found: Kubernetes) -> Kubernetes:
    """The same, with whether its containerd has the runtime nvidia."""
    text = host.read(found["config"], "containers.kubernetes", limit=_LIMIT)
    if text is not None:
        found["runtime"] = _NVIDIA.search(text) is not None
    return found


def _version(host: Host, *names: str) -> str | None:
    found = packages.version_of(host, *names)
    return versions.upstream(found) if found else None


def observe(host: Host, shown: Mapping[str, Mapping[str, str]], *, images: bool = False) -> Containers:
    """The part `containers`. `shown`: systemd's properties of the units; `images`: whether those of the engines are listed."""
    fields = shown.get("docker.service", {})
    version = _version(host, *_ENGINES)
    there = version is not None or host.which("dockerd") is not None
    if there and version is None:
        host.unknown("containers.docker.version", "docker was installed by no package, and asking it could start it")
    active = _active(host, "docker", there, fields)
    config, error = _daemon_json(host)
    podman = _version(host, "podman")
    runtime = container_runtime.observe(host)
    seen: Containers = {
        "docker": {
            "installed": there,
            "version": version,
            "active": active,
            "daemon_json": config,
            "daemon_json_error": error,
            "flags": flags(host),
            "lost_runtimes": lost_runtimes(host, config),
            "added": _added(host),
            "config_loaded": _config_loaded(host, "docker", active, fields, [_DAEMON_JSON]),
            "elsewhere": _elsewhere(host),
            "to_desktop": _to_desktop(host),
            "serves_kubelet": host.exists(_KUBELET) and any(map(host.exists, _CRI_DOCKERD)),
        },
        "kubernetes": _kubernetes(host),
        "toolkit": {"version": _version(host, "nvidia-container-toolkit", "nvidia-container-toolkit-base")},
        "containerd": _containerd(host, shown, docker=there),
        "podman": {"version": podman},
        "rootless": rootless.observe(host),
        "images": container_images.observe(host, there, active, podman is not None, asked=images),
        "cdi": cdi.observe(host),
    }
    looks = cdi.podman_looks(host) if podman else []
    if looks:
        seen["podman"]["looks"] = looks
    denied = _denied(host)
    if denied is not None:
        seen["devices_denied"] = denied
    return seen if runtime is None else {**seen, "runtime": runtime}


def _denied(host: Host) -> bool | None:
    """Whether SELinux keeps containers from device nodes; None where it is not there, or has no such switch (container-selinux)."""
    enforces, allows = (
        host.read(f"{_SELINUX}/{name}", limit=16) for name in ("enforce", "booleans/container_use_devices")
    )
    return None if not enforces or not allows else enforces.strip() == "1" and allows.split()[:1] == ["0"]

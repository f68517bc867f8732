# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is checked of the engines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ansible_collections.gpuwright.node.plugins.module_utils.base import checks, numeric_version

from ...model.stack import Stack
from ...rules import load_rules
from ..daemon_json import DAEMON_JSON
from ..view import UP, View, unknown
from . import cdi as of_cdi
from . import docker as of_docker
from . import rootless as of_users
from .containerd import MANAGE, PROGRAM, UNMANAGED, unmanaged

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.check import Check
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        Containerd,
        ContainerRuntime,
        Docker,
        DockerFlag,
        Rootless,
    )

#: Those that look for the runtime themselves, with the units that start them.
_LOOKS = {"k3s": ("k3s", "k3s-agent"), "rke2": ("rke2-server", "rke2-agent")}
_TITLES = {"docker": "Docker", "containerd": "containerd"}
_RUNTIME = "/etc/nvidia-container-runtime/config.toml"
#: NVIDIA/nvidia-container-toolkit: the command line leaves the devices of a container shut, and the hook of `--gpus` ends with an error in
#: each mode but auto and legacy (cmd/nvidia-container-runtime-hook/main.go, doPrestart).
_NO_CGROUPS = "containers of root are not let to the cards (NVML: Insufficient Permissions)"
#: The same command line ends there with an error (NVIDIA/nvidia-container-toolkit, issues 139 and 290).
_NO_RULES = "nobody may write which devices a container is let to (cgroup), and none starts with --gpus"
_BY_COMMAND = ("auto", "legacy")
_OTHER_WAY = "name the cards by CDI (--device nvidia.com/gpu=all), which needs no such rules"
#: NVIDIA/k8s-device-plugin, issue 203; NVIDIA/nvidia-container-toolkit, internal/config/image (VisibleDevices).
_BY_VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"
_PRIVILEGED_ONLY = "by --gpus and NVIDIA_VISIBLE_DEVICES only privileged containers get cards, and others may not start"
#: NVIDIA/nvidia-container-toolkit, internal/config/cli.go: from this version on `.real` is taken off where there is no such file.
_FINDS_LDCONFIG = "1.15.0"
#: NVIDIA/libnvidia-container, release 1.8.0 and issue 111: cgroup v2.
_TOOLKIT, _BASE = "nvidia-container-toolkit", "nvidia-container-toolkit-base"
_PACKAGES = (_TOOLKIT, _BASE, "libnvidia-container-tools", "libnvidia-container1")
_WITHOUT_HOOK = "1.18"
#: How the cards may get in (NVIDIA/nvidia-container-toolkit, internal/info/auto.go and cmd/nvidia-container-runtime).
_MODES = ("auto", "legacy", "csv", "cdi", "jit-cdi")
#: https://github.com/NVIDIA/k8s-device-plugin/issues/314, and the README there, Configure containerd.
_PAST = (
    "the default runtime of containerd is {default}, not NVIDIA's, which it knows: a pod that names none gets no card, and NVIDIA's device "
    "plugin, which does not serve the kubelet, finds none"
)
_BOTH_WAYS = (
    "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default, then sudo systemctl restart containerd; or let the "
    "device plugin and the pods name runtimeClassName: nvidia, of a RuntimeClass with that handler"
)
_LIBRARY, _KNOWS_UNIFIED = "libnvidia-container1", "1.8.0"
#: From which release on a system starts with cgroup v2 alone (release notes of Debian 11, Ubuntu 21.10, Fedora 31 and RHEL 9).
_UNIFIED_SINCE = {
    "debian": "11",
    "ubuntu": "21.10",
    "fedora": "31",
    **dict.fromkeys(("rhel", "centos", "rocky", "almalinux", "ol"), "9"),
}
_UNIFIED_WORD = re.compile(r"\bsystemd\.unified_cgroup_hierarchy=(\w+)")
#: Where the program is that a container's libraries are listed by: Ubuntu has a script in its place.
_LDCONFIG = {"ubuntu": "/sbin/ldconfig.real"}
_MODE_CDI = "NVIDIA's hook refuses docker run --gpus"
#: What the toolkit writes from a release on, and what older engines do not read (compat/container_toolkit.yaml, engines).
_NEEDS_NEWER, _WRITES_NEWER = "0.7.0", "1.19.1"
_GENERATE = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
_REFRESH = (
    f"systemctl restart {of_cdi.REFRESH} (before toolkit 1.18: {_GENERATE}); a specification "
    "that was written by hand has to go by hand"
)


def judge(view: View, stack: Stack) -> list[Check]:
    """Whether the engines can read their configuration, run with it, and know the NVIDIA runtime where they should."""
    toolkit = stack.get("container_toolkit")
    # A stack of an earlier version may not tell the engine: it was Docker then.
    engine = toolkit.get("engine", {}).get("name", "docker") if toolkit is not None else None
    docker = view.get("containers.docker")
    if not isinstance(docker, Mapping):
        if view.why_unknown("containers"):
            return [unknown("container.daemon_json", view, "containers", "how Docker is configured", "warning")]
        return []
    toolkit_there = view.get("containers.toolkit.version") is not None
    return [
        _docker(cast("Docker", docker), knows=engine == "docker", toolkit=toolkit_there),
        *_runs(view, engine),
        *_packages(view, cast("Docker", docker)),
        *_runtime(
            view,
            of_docker=bool(docker.get("active")) or (engine == "docker" and not view.get("containers.rootless.docker")),
        ),
        *([_containerd(view)] if engine == "containerd" or _serves_nobody(view) else []),
        *_to_desktop(cast("Docker", docker)),
        *_pods_of_docker(view, cast("Docker", docker)),
        *_kubernetes(view),
        *_control_groups(view),
        *([_cdi(view, engine), _links(view)] if toolkit is not None else _left(view)),
        *_denied(view, podman=engine == "podman"),
        *([_for_users(view)] if toolkit is not None and (engine == "podman" or "rootless" in toolkit) else []),
        *([_rootless(view, toolkit["rootless"]["users"])] if toolkit is not None and "rootless" in toolkit else []),
    ]


def _packages(view: View, docker: Docker) -> Iterator[Check]:
    """The packages of the toolkit are of one version, since each knows the words of its own release alone, and the one with the hook is
    there where Docker has its runtime.
    """
    there = view.get("packages.installed") or {}
    versions = {name: there[name] for name in _PACKAGES if name in there}
    if not versions:
        return
    told = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    several = len({numeric_version.upstream(version) for version in versions.values()}) > 1
    reason = (
        f"the packages of the toolkit are of several versions: {told}"
        if several
        else _without_hook(view, versions, docker)
    )
    yield checks.judged(
        "container.toolkit",
        reason is None,
        "warning",
        measured=sorted(set(versions.values())),
        reason=reason,
        action="install",
        remedy=f"{UP} (--want container-toolkit), or install all of them in one version; a hold (apt-mark showhold) may keep one back",
    )


def _without_hook(view: View, versions: Mapping[str, str], docker: Docker) -> str | None:
    """Why containers of Docker do not start: before 1.18 the runtime calls the hook of another package (release notes of 1.18.0)."""
    base = numeric_version.upstream(versions.get(_BASE, ""))
    by_cdi = (view.get("containers.runtime") or {}).get("mode") in ("cdi", "jit-cdi")
    if _TOOLKIT in versions or not base or by_cdi or numeric_version.at_least(base, _WITHOUT_HOOK):
        return None
    if not of_docker.has_runtime(docker):
        return None
    return f"Docker knows the NVIDIA runtime, and {_TOOLKIT}, which has its hook, is not installed: no container with cards starts"


def _denied(view: View, *, podman: bool) -> Iterator[Check]:
    """SELinux lets containers to the nodes of cards. NVIDIA's documentation has Podman run without its label where it enforces."""
    denied = view.get("containers.devices_denied")
    alone = podman or (view.get("containers.podman.version") and not view.get("containers.docker.installed"))
    if denied is None or not alone:
        return
    yield checks.judged(
        "container.selinux",
        not denied,
        "warning",
        reason="SELinux enforces and keeps containers from device nodes (container_use_devices is off): they see no card"
        if denied
        else None,
        action="configure",
        remedy="sudo setsebool -P container_use_devices on; or start containers with --security-opt label=disable",
    )


def _to_desktop(docker: Docker) -> Iterator[Check]:
    """The commands of users go to this system's Docker, which has the cards."""
    users = docker.get("to_desktop")
    if users and docker["installed"]:
        yield _warned(
            "container.docker",
            f"{', '.join(users)} has docker ask Docker Desktop (context desktop-linux), whose containers run in a virtual machine without "
            "card and driver",
            "docker context use default, as the user whose file that is; or remove docker-desktop",
        )


def _pods_of_docker(view: View, docker: Docker) -> Iterator[Check]:
    """A kubelet names no runtime to Docker: pods, the device plugin's too, get the default one."""
    written = docker.get("daemon_json")
    if not docker.get("serves_kubelet") or not of_docker.has_runtime(docker) or not isinstance(written, Mapping):
        return
    default = written.get("default-runtime", "runc")
    by_plugin = (view.get("containers.containerd") or {}).get("device_plugin")
    if default != "nvidia" and not by_plugin:
        yield _warned(
            "container.docker",
            f"a kubelet asks Docker here (cri-dockerd), and Docker's default runtime is {default}: pods get no card, and NVIDIA's device "
            "plugin finds no library of the driver",
            'gpuwright up -e container_toolkit_default_runtime=true ("default-runtime": "nvidia" in /etc/docker/daemon.json), which '
            "restarts Docker",
        )


def _kubernetes(view: View) -> Iterator[Check]:
    """Whether a Kubernetes with a containerd of its own has seen NVIDIA's runtime, which it looks for when it starts
    (docs.k3s.io/advanced, NVIDIA Container Runtime Support).
    """
    found = view.get("containers.kubernetes") or {}
    if found.get("runtime") is None or view.get("containers.toolkit.version") is None or found["name"] not in _LOOKS:
        return
    units = " or ".join(_LOOKS[found["name"]])
    yield checks.judged(
        "container.kubernetes",
        found["runtime"],
        "warning",
        reason=None
        if found["runtime"]
        else f"{found['name']} has not seen NVIDIA's runtime, which it looks for when it starts: no pod finds a runtime nvidia",
        action="restart_service",
        remedy=f"sudo systemctl restart {units}; then {found['config']} names nvidia",
    )


def _control_groups(view: View) -> Iterator[Check]:
    """Whether the part of the toolkit that lets a container to its cards knows the control groups of the system."""
    version = (view.get("packages.installed") or {}).get(_LIBRARY, "")
    found = numeric_version.upstream(version) if version else None
    if not found or numeric_version.at_least(found, _KNOWS_UNIFIED):
        return
    if not _unified(view) or (view.get("containers.runtime") or {}).get("no_cgroups"):
        return
    yield checks.failed(
        "container.control_groups",
        measured=found,
        expected=f"{_KNOWS_UNIFIED} or newer",
        reason=f"{_LIBRARY} {found} is older than {_KNOWS_UNIFIED} and does not know control groups of version 2 (cgroup v2), which this "
        "system has: no container with cards starts",
        action="install",
        remedy=f"{UP} (--want container-toolkit), which brings a newer toolkit; or upgrade {_LIBRARY} to {_KNOWS_UNIFIED} or newer",
    )


def _unified(view: View) -> bool:
    """Whether systemd has control groups of version 2 alone, as it is made for this system and as its kernel was started."""
    told = _UNIFIED_WORD.search(str(view.get("boot.cmdline") or ""))
    if told:
        return told[1] in ("1", "yes", "true")
    first = _UNIFIED_SINCE.get(str(view.get("os.id")))
    version = view.get("os.version")
    return bool(first and version and numeric_version.at_least(str(version), first))


def _cdi(view: View, engine: str | None = None) -> Check:
    """Whether containers get by CDI the very cards that the node has."""
    name = "container.cdi"
    if view.get("containers.cdi") is None or view.why_unknown("containers.cdi"):
        return unknown(name, view, "containers.cdi", "which cards engines find", "warning")
    if view.get("driver.loaded_version") is None:
        return checks.skipped(name, "no driver is loaded", "warning")
    if view.get("smi.data") is None:
        return unknown(name, view, "smi", "which cards there are", "warning")
    twice = next(of_cdi.twice(view.get("containers.cdi.specifications") or ()), None)
    if twice:
        return _warned(
            name,
            f"containers get no card by CDI: {twice}",
            "remove one of the two files; nvidia-ctk cdi list shows what is left",
        )
    told = _without_hook_program(view) or _too_new(view) or _not_looked_at(view) or _for_root_alone(view)
    if told:
        return _warned(name, *told)
    reason = of_cdi.stale(view.facts)
    if reason:
        return _warned(name, f"containers would get other cards than the node has: {reason}", f"{UP}, or {_REFRESH}")
    if not view.get("containers.cdi.specifications"):
        version = view.get("containers.toolkit.version")
        if engine == "podman" and version:
            reason = f"there is no CDI specification, by which alone Podman finds the cards, and the toolkit {version} makes none by itself"
            return _warned(name, reason, f"{_GENERATE}; a toolkit from 1.18 on keeps it up to date")
        return checks.skipped(
            name, "the toolkit is older than 1.18, which makes no CDI specification by itself", "warning"
        )
    return checks.passed(name, "warning")


def _without_hook_program(view: View) -> tuple[str, str] | None:
    """That an engine has to run what is not there, and what helps."""
    for each in view.get("containers.cdi.specifications") or ():
        lost = each.get("lost_programs")
        if lost:
            reason = (
                f"no container gets a card by CDI: {each['path']} has {lost[0]} run at each start, which is not there"
            )
            return (
                reason,
                f"{checks.again(lost[0])}: nvidia-container-toolkit-base has those of NVIDIA; then {_GENERATE}",
            )
    return None


def _for_root_alone(view: View) -> tuple[str, str] | None:
    """That users' Podman does not read a specification, and what helps (containers/podman, issue 17539)."""
    hidden = [each["hidden"] for each in view.get("containers.cdi.specifications") or () if each.get("hidden")]
    if not hidden or not view.get("containers.podman.version"):
        return None
    reason = f"users' containers get no card by CDI from Podman: only root may read {hidden[0]}"
    return reason, f"sudo chmod a+rX {hidden[0]}"


def _too_new(view: View) -> tuple[str, str] | None:
    """That Podman, which finds the cards by CDI alone, does not read what the toolkit wrote, and what helps."""
    podman = view.get("containers.podman.version")
    if not podman:
        return None
    tables = load_rules()["container_toolkit"]
    knows, reads = (
        next(row["version"] for row in tables[name] if row["engine"] == "podman") for name in ("features", "engines")
    )
    for each in view.get("containers.cdi.specifications") or ():
        if not numeric_version.at_least(podman, knows):
            reason = f"Podman {podman} finds no card by CDI ({each['path']}), which it knows from {knows} on"
            return reason, f"take Podman {knows} or newer (that of a newer release of the system), or Docker"
        written = each.get("version")
        if written and numeric_version.at_least(written, _NEEDS_NEWER) and not numeric_version.at_least(podman, reads):
            reason = f"Podman {podman} finds no card in {each['path']}: that is CDI {written}, which Podman reads from {reads} on"
            older = (
                f"take a toolkit before {_WRITES_NEWER} (its packages in one older version), or Podman {reads} or newer"
            )
            return reason, f"{older}; then {_GENERATE}"
    return None


def _not_looked_at(view: View) -> tuple[str, str] | None:
    """That Podman looks for specifications where there is none, and what helps."""
    podman, found = view.get("containers.podman.version"), view.get("containers.cdi.specifications") or ()
    looks = _looks(view, podman) if podman else None
    if not looks or not found or any(each["path"].rpartition("/")[0] in looks for each in found):
        return None
    paths = ", ".join(each["path"] for each in found)
    reason = f"Podman {podman} finds no card by CDI: it looks into {' and '.join(looks)}, and there is {paths}"
    named = f"podman --cdi-spec-dir={paths.rpartition('/')[0]}, or cdi_spec_dirs in containers.conf"
    return reason, f"{_GENERATE}, anew for each driver; or name the directory ({named}); or take a newer Podman"


def _looks(view: View, podman: str) -> Sequence[str] | None:
    """Where a Podman looks for specifications, as its configuration has it or as it was made; None where that is everywhere."""
    row = next(row for row in load_rules()["container_toolkit"]["looks"] if row["engine"] == "podman")
    if not numeric_version.at_least(podman, row["since"]):
        return None
    made: Sequence[str] | None = None if numeric_version.at_least(podman, row["until"]) else row["directories"]
    return view.get("containers.podman.looks") or made


def _left(view: View) -> list[Check]:
    """A specification that is wrong, or that Podman lacks, where no toolkit is wished, or its wish is refused: engines read it all the
    same.
    """
    there = view.get("containers.cdi.specifications")
    alone = not there and view.get("containers.toolkit.version") and not view.get("containers.docker.installed")
    podman = bool(alone and view.get("containers.podman.version"))
    if not there and not podman:
        return []
    remedy = _REFRESH if there else _GENERATE
    return [
        {**check, "remedy": check["remedy"] if re.search("by CDI|that is CDI", str(check["reason"])) else remedy}
        for check in [_cdi(view, "podman" if podman else None)]
        if check["status"] == "warn"
    ]


def _links(view: View) -> Check:
    """Whether containers keep their cards over a `systemctl daemon-reload`."""
    name = "container.device_links"
    if view.get("containers.cdi") is None:
        return unknown(name, view, "containers.cdi", "which device nodes have links", "warning")
    if view.get("driver.loaded_version") is None or view.environment == "wsl":
        return checks.skipped(name, "no driver with device nodes is loaded", "warning")
    unlinked = view.get("containers.cdi.unlinked")
    if unlinked:
        lost = "a systemctl daemon-reload may take the cards from containers that run"
        return _warned(name, f"{lost}: no link in /dev/char leads to {', '.join(unlinked)}", UP)
    return checks.passed(name, "warning")


def _for_users(view: View) -> Check:
    """Whether containers without root may open the cards' nodes: in them a user is in no group of the machine."""
    name, nodes = "container.device_nodes", view.get("driver.nodes")
    if not nodes or view.environment == "wsl":
        return checks.skipped(name, "no driver with device nodes runs here", "warning")
    closed = [node for node in nodes if node["device"] and node["mode"] & 0o006 != 0o006]
    named = ", ".join(f"{node['path']} ({node['mode']:04o}, group {node['group']})" for node in closed[:4])
    return checks.judged(
        name,
        not closed,
        "warning",
        measured=[node["path"] for node in closed] or None,
        reason=f"containers without root are not let to the cards: only root and a group may open {named}"
        if closed
        else None,
        action="configure",
        remedy="take NVreg_DeviceFileMode and NVreg_DeviceFileGID out of /etc/modprobe.d (the driver's own mode is 0666) and load the "
        "driver again or reboot; or start them with podman run --group-add keep-groups, as a user of that group",
    )


def _rootless(view: View, users: Sequence[str]) -> Check:
    """Whether the users who are to start containers without root can."""
    name = "container.rootless"
    seen = view.get("containers.rootless")
    if not isinstance(seen, Mapping) or view.why_unknown("containers.rootless"):
        return unknown(name, view, "containers.rootless", "what containers without root need", "warning")
    if view.get("containers.podman.version") is None:
        return _warned(name, "Podman is not installed", UP)
    reason = of_users.reason(cast("Rootless", seen), users)
    return (
        _warned(name, f"containers without root do not start: {reason}", UP)
        if reason
        else checks.passed(name, "warning")
    )


def _runs(view: View, engine: str | None) -> Iterator[Check]:
    """Whether the engine that is to start containers runs; of another one, whether it failed."""
    for name, title in _TITLES.items():
        unit = f"{name}.service"
        state = view.get("services").get(unit, {}).get("active") if view.get("services") else None
        if not view.get(f"containers.{name}.installed") or state not in ("active", "failed", "inactive"):
            continue
        if name != engine and state != "failed":
            continue
        if state != "active" and (view.get("services").get(unit) or {}).get("enabled") == "masked":
            yield checks.failed(
                "container.engine",
                measured=state,
                expected="active",
                reason=f"{title} does not run: its unit is masked, so that nothing starts it",
                action="restart_service",
                remedy=f"sudo systemctl unmask {unit}, then sudo systemctl enable --now {unit}",
            )
            continue
        why = dict(_why_down(view)) if name == "docker" and state == "failed" else {}
        yield checks.judged(
            "container.engine",
            state == "active",
            "critical" if state == "failed" else "warning",
            measured=state,
            expected="active",
            reason=None if state == "active" else "; ".join([f"{title} does not run ({state})", *why]),
            action="restart_service",
            remedy=f"{'; '.join(dict.fromkeys(why.values()))}; then sudo systemctl daemon-reload and sudo systemctl restart {unit}"
            if why
            else f"sudo systemctl start {unit}; where it fails again, journalctl -u {unit} says why",
        )


def _why_down(view: View) -> Iterator[tuple[str, str]]:
    """What in daemon.json Docker does not start with, and what helps."""
    written = view.get("containers.docker.daemon_json")
    if not isinstance(written, Mapping):
        return
    version = view.get("containers.docker.version")
    twice = _said_twice(view)
    for row in load_rules()["container_toolkit"]["refused"]:
        key, since = row["key"], row.get("version")
        names = key in written and written[key] == row.get("value", written[key])
        if not names or key in {of_docker.key_of(each["name"]) for each in twice}:
            continue
        if not (version and since) or numeric_version.at_least(version, since):
            yield f"{DAEMON_JSON} {row['why']}", f"in {DAEMON_JSON} {row['instead']}"
    for each in twice:
        key = of_docker.key_of(each["name"])
        reason = (
            f"{each['file']} gives --{each['name']}, and {DAEMON_JSON} has {key}: Docker refuses what is said twice"
        )
        yield reason, f"take {key} out of {DAEMON_JSON}, or --{each['name']} out of {each['file']}"


def _said_twice(view: View) -> list[DockerFlag]:
    """The options of Docker's unit that daemon.json has too."""
    written = view.get("containers.docker.daemon_json")
    keys = written if isinstance(written, Mapping) else {}
    return [each for each in view.get("containers.docker.flags") or () if of_docker.key_of(each["name"]) in keys]


def _runtime(view: View, *, of_docker: bool) -> Iterator[Check]:
    """Whether NVIDIA's runtime hands the cards to containers. Guides for containers without root have some settings changed, and only
    these want that. ``of_docker``: whether Docker starts containers as root here.
    """
    name, config = "container.runtime", view.get("containers.runtime")
    if view.why_unknown("containers.runtime"):
        yield unknown(name, view, "containers.runtime", "how NVIDIA's runtime is configured", "warning")
    if not config:
        return
    why = _writes_no_rules(view)
    keeps = next(_keeps_out(view, config, asks=of_docker or why is not None), None)
    if keeps:
        reason, settings = keeps
        yield checks.failed(name, reason=f"{_RUNTIME} {reason}", action="configure", remedy=_set(settings))
        return
    if why and not config["no_cgroups"] and config["mode"] in _BY_COMMAND:
        reason = f"{_RUNTIME} leaves no-cgroups off, and {why}: {_NO_RULES}"
        yield _warned(name, reason, f"{_set('nvidia-container-cli.no-cgroups=true')}; or {_OTHER_WAY}")
        return
    wrong = [
        *(
            [("no-cgroups = true", _NO_CGROUPS, "nvidia-container-cli.no-cgroups=false")]
            if config["no_cgroups"] and not why
            else []
        ),
        *([('mode = "cdi"', _MODE_CDI, "nvidia-container-runtime.mode=auto")] if config["mode"] == "cdi" else []),
    ]
    if wrong and not of_docker:
        lines = " and ".join(line for line, _harm, _set in wrong)
        yield checks.skipped(name, f"{lines}, as containers without root may want it")
        return
    yield checks.judged(
        name,
        not wrong,
        measured={"no-cgroups": config["no_cgroups"], "mode": config["mode"]},
        reason="; ".join(f"{_RUNTIME} says {line}: {harm}" for line, harm, _setting in wrong) or None,
        action="configure",
        remedy=_set(*(setting for _line, _harm, setting in wrong)),
    )


def _set(*settings: str) -> str:
    each = " ".join(f"--set {setting}" for setting in settings)
    return f"sudo nvidia-ctk config --in-place {each}; then start the containers again"


def _keeps_out(view: View, config: ContainerRuntime, *, asks: bool) -> Iterator[tuple[str, str]]:
    """What in the configuration of the runtime keeps cards out of containers, and the setting that lets them in. ``asks``: whether somebody
    here asks for cards by a variable, as Docker does; NVIDIA's device plugin has another way.
    """
    lost, version = config.get("lost_ldconfig"), view.get("containers.toolkit.version")
    if lost and not (lost.endswith(".real") and version and numeric_version.at_least(version, _FINDS_LDCONFIG)):
        reason = f"says ldconfig = @{lost}, which is not there: no container with cards starts"
        yield reason, "nvidia-container-cli.ldconfig=@/sbin/ldconfig"
    if config.get("root") and view.get("driver.loaded_version") and view.get("driver.owner") in ("packages", "runfile"):
        reason = (
            f"looks for the driver in {config['root']}, and it is this machine's own: no container with cards starts"
        )
        ldconfig = _LDCONFIG.get(str(view.get("os.id")), "/sbin/ldconfig")
        yield reason, f"nvidia-container-cli.root=/ --set nvidia-container-cli.ldconfig=@{ldconfig}"
    if config["mode"] not in _MODES:
        reason = (
            f'says mode = "{config["mode"]}", which NVIDIA\'s runtime does not know: no container with cards starts'
        )
        yield reason, "nvidia-container-runtime.mode=auto"
    if config.get("privileged_only") and asks and not view.get("containers.containerd.kubelet_cgroups"):
        yield f"says {_BY_VARIABLE} = false: {_PRIVILEGED_ONLY}", f"{_BY_VARIABLE}=true"


def _writes_no_rules(view: View) -> str | None:
    """Why whoever starts containers here may not write which devices they are let to; None where root of the machine does it."""
    if view.environment == "container" and view.get("environment.user_namespace") is not False:
        return "this machine is a container that is not privileged"
    users = view.get("containers.rootless.docker")
    return (
        f"Docker runs without root here ({', '.join(users)})"
        if users and not view.get("containers.docker.active")
        else None
    )


def _docker(docker: Docker, *, knows: bool, toolkit: bool) -> Check:
    """``knows``: whether it should know the NVIDIA runtime; ``toolkit``: whether that is installed."""
    if not docker.get("installed"):
        return checks.skipped("container.daemon_json", "Docker is not installed", "warning")
    if docker.get("daemon_json_error"):
        return checks.failed(
            "container.daemon_json",
            reason="Docker's daemon.json cannot be read: Docker will not start with it",
            evidence=docker["daemon_json_error"],
            action="configure",
            remedy="correct /etc/docker/daemon.json; gpuwright keeps the copy that it found beside it",
        )
    lost = docker.get("lost_runtimes")
    if lost:
        return _without_program(docker, lost)
    if docker.get("elsewhere") == "snap":
        reason = "Docker is here twice, as a package and as a snap: where the snap answers, it finds neither driver nor toolkit"
        return _warned(
            "container.daemon_json", reason, "sudo snap remove docker, when its containers may go; then restart Docker"
        )
    if knows and not of_docker.has_runtime(docker) and not toolkit:
        reason = "the NVIDIA Container Toolkit is not installed: Docker gives containers no card (could not select device driver)"
        return _warned("container.daemon_json", reason, UP)
    if knows and not of_docker.has_runtime(docker):
        return _warned("container.daemon_json", "Docker does not know the NVIDIA runtime", UP)
    if knows and of_docker.lacks_cdi(docker):
        reason = f"Docker {docker['version']} has CDI off: it knows no card by its name (--device nvidia.com/gpu=all), only --gpus"
        return _warned("container.daemon_json", reason, f'{UP}, which sets "features": {{"cdi": true}} in daemon.json')
    if docker.get("config_loaded") is False:
        return _warned(
            "container.daemon_json",
            "Docker has not read its configuration since it changed",
            "restart Docker when its containers may stop",
        )
    return checks.passed("container.daemon_json", "warning")


def _without_program(docker: Docker, lost: Sequence[str]) -> Check:
    """Runtimes that Docker is told of, and that nobody can start."""
    written = docker.get("daemon_json")
    default = written.get("default-runtime") if isinstance(written, Mapping) else None
    harm = "no container starts, since it is the default one" if default in lost else "no container starts with it"
    return checks.failed(
        "container.daemon_json",
        "critical" if default in lost else "warning",
        reason=f"daemon.json names the runtime {', '.join(lost)}, whose program is not there: {harm}",
        action="configure",
        remedy="take it out of /etc/docker/daemon.json and restart Docker, or install its program again (nvidia: gpuwright up --want "
        "container-toolkit)",
    )


def _serves_nobody(view: View) -> bool:
    """Whether containerd runs beside a kubelet and without its part for Kubernetes, whatever is wished."""
    seen = view.get("containers.containerd") or {}
    return bool(seen.get("active") and seen.get("cri") is False and seen.get("kubelet_cgroups"))


def _containerd(view: View) -> Check:
    name = "container.containerd"
    containerd = cast("Containerd", view.get("containers.containerd") or {})
    if not containerd.get("installed"):
        return _warned(name, "containerd is not installed", UP)
    if containerd.get("config_error"):
        return checks.failed(
            name,
            reason="containerd's configuration cannot be read: containerd will not start with it",
            evidence=containerd["config_error"],
            action="configure",
            remedy="correct /etc/containerd/config.toml; gpuwright keeps the copy that it found beside it",
        )
    if containerd.get("cri") is False and containerd.get("kubelet_cgroups") and containerd.get("active") is not False:
        reason = "containerd leaves out its part for Kubernetes (disabled_plugins has cri), which the kubelet here asks: no pod starts"
        remedy = "take cri out of disabled_plugins in /etc/containerd/config.toml, and restart containerd"
        return checks.failed(name, reason=reason, action="configure", remedy=remedy)
    why = view.why_unknown("containers.containerd.config")
    if why:
        return unknown(name, view, "containers.containerd.config", "how containerd is configured", "warning")
    config = containerd.get("config")
    if not config and containerd.get("active") is False:
        return checks.skipped(name, "containerd does not run", "warning")
    if not config or not config["runtime"]:
        return _warned(name, "containerd does not know the NVIDIA runtime", UP)
    if config.get("lost"):
        reason = (
            f"containerd's runtime nvidia is the program {config['runtime']}, which is not there: no pod with it starts"
        )
        remedy = f"in /etc/containerd/config.toml name {PROGRAM} (BinaryName), or take that runtime out; then restart containerd"
        return checks.failed(name, reason=reason, action="configure", remedy=remedy)
    return _started(name, containerd)


def _started(name: str, containerd: Containerd) -> Check:
    """How pods are started by a runtime that is there."""
    if unmanaged(containerd):
        return checks.failed(name, reason=UNMANAGED, action="configure", remedy=MANAGE)
    config = containerd["config"]
    if config and _past_nvidias(containerd):
        return _warned(name, _PAST.format(default=config["default_runtime"] or "runc"), _BOTH_WAYS)
    if containerd.get("config_loaded") is False:
        remedy = "restart containerd when it suits: containers run on meanwhile"
        return _warned(name, "containerd has not read its configuration since it changed", remedy)
    return checks.passed(name, "warning")


def _past_nvidias(containerd: Containerd) -> bool:
    """Whether a pod gets the cards only where it names NVIDIA's runtime, and nothing tells that the device plugin, which has to, does."""
    config = containerd.get("config")
    if not config or config["cdi"] or str(config["default_runtime"]).startswith("nvidia"):
        return False
    return containerd.get("device_plugin") is False


def _warned(name: str, reason: str, remedy: str) -> Check:
    return checks.failed(name, "warning", reason=reason, action="configure", remedy=remedy)

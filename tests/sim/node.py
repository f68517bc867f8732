"""The life of a simulated node: create, list, execute, inject a fault, remove; and the inventory that Ansible reads."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import socket
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import yaml

from . import image, repository, rpm, scenario, settings
from .engine import docker, docker_text
from .onnode.gpuwright_sim.node import FAULTS, WSL_BUILD, WSL_LIBRARIES
from .shell import SimulationError, run, say

_SCRIPTS = tuple(sorted((settings.HERE / "onnode").glob("*.sh")))
_PACKAGE = settings.HERE / "onnode/gpuwright_sim"
_BOOT_LIMIT_SECONDS = 60

# What a container must be allowed so that systemd, bind mounts over /proc and a Docker inside it work. Never --privileged:
# where this runs it may be refused. Root of a machine sees what every process has open, and so does root here. A name space of its own for
# control groups: nothing on the node tells that it is a container.
_ALLOWED = (
    "--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cap-add", "SYS_PTRACE",
    "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
    # The device nodes of NVIDIA's cards, for the containers inside.
    "--device-cgroup-rule", "c 195:* rwm",
    "--cgroupns", "private", "--tmpfs", "/run", "--tmpfs", "/run/lock", "--tmpfs", "/tmp:exec", "--stop-signal", "SIGRTMIN+3",
)  # fmt: skip
# A simulated node is born with a new host key each time; nothing secret goes over this connection.
SSH_OPTIONS = (
    "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR",
)  # fmt: skip
_INIT = f"{settings.NODE_LIBRARY}/init.sh"


# --------------------------------------------------------------------------------------------------------------------
# Create and remove
# --------------------------------------------------------------------------------------------------------------------


def create(name: str, scenario_name: str, operating_system: str | None = None) -> None:
    """A node called NAME with the hardware of a scenario, booted and reachable over ssh."""
    wish = scenario.load(scenario_name)
    if operating_system:
        given = yaml.safe_load(_scenario_path(scenario_name).read_text()) or {}
        wish = scenario.expand(
            {**given, "kernels": given.get("kernels") if given.get("os") == operating_system else None},
            name,
            operating_system,
        )
    create_from(name, wish)


def _scenario_path(name: str) -> Path:
    path = Path(name)
    return path if path.suffix else settings.HERE / "scenarios" / f"{name}.yaml"


def create_from(name: str, wish: dict[str, Any], kept: str | None = None) -> None:
    """As :func:`create`, from a scenario that is already expanded; with all that a node had when it was kept as KEPT."""
    container = settings.container_name(name)
    if docker("container", "inspect", container, check=False).returncode == 0:
        raise SimulationError(f"there is a node {name} already: `python -m tests.sim node rm {name}`")
    prepared = kept or prepare(wish)
    port = free_port()
    docker(
        "create", "--name", container, "--hostname", name, "--restart", "unless-stopped",
        "--network", settings.NETWORK, "--network-alias", name,
        "--label", f"{settings.LABEL}=node", "--label", settings.INSTANCE_LABEL,
        "--label", f"{settings.LABEL}.os={wish['os']}", "--label", f"{settings.LABEL}.port={port}",
        "-p", f"127.0.0.1:{port}:22", *_ALLOWED, prepared, "sh", _INIT,
    )  # fmt: skip
    files = {
        f"{settings.NODE_CONFIG}/scenario.json": (json.dumps({**wish, "name": name}, indent=1).encode(), 0),
        f"{settings.NODE_CONFIG}/faults.json": (json.dumps(wish["faults"]).encode(), 0),
        f"/home/{settings.NODE_USER}/.ssh/authorized_keys": (public_key().encode(), 1000),
    }
    if wish["windows_driver"]:
        files[f"{WSL_LIBRARIES}/libcuda.so.1"] = (repository.compiled("libcuda", WSL_BUILD), 0)
    docker("cp", "-", f"{container}:/", stdin=_tar(files))
    docker("start", container)
    _wait_for_boot(container)
    say(f"node {name} is up: {wish['os']}, {len(wish['gpus'])} GPU(s), ssh on 127.0.0.1:{port}")


def keep(name: str, image_name: str) -> None:
    """Keep the disk of a node as an image, for other nodes to begin with; what its programs had not written yet is not on it."""
    shell(name, "sync")
    docker("commit", "--change", f"LABEL {settings.LABEL}=image", settings.container_name(name), image_name)


def remove(name: str) -> None:
    """The node and everything in it."""
    docker("rm", "-f", "-v", settings.container_name(name), check=False)


def names() -> list[str]:
    """Every node that there is."""
    filters = ("--filter", f"label={settings.LABEL}=node", "--filter", f"label={settings.INSTANCE_LABEL}")
    text = docker_text("ps", "-a", *filters, "--format", "{{.Names}}")
    ours = [line for line in text.splitlines() if line.startswith(settings.NODE_PREFIX)]
    return sorted(line.removeprefix(settings.NODE_PREFIX) for line in ours)


def execute(name: str, command: list[str]) -> int:
    """Run COMMAND on the node as root with this terminal's streams; its exit status."""
    import subprocess  # the one place that needs the streams themselves

    interactive = ["-it"] if sys.stdin.isatty() else ["-i"]
    return subprocess.run(
        ["docker", "exec", *interactive, settings.container_name(name), *command], check=False
    ).returncode


def shell(name: str, command: str, *, check: bool = True) -> str:
    """What COMMAND prints on the node, run by a shell as root."""
    return docker("exec", settings.container_name(name), "sh", "-c", command, check=check).stdout


def reboot(name: str) -> None:
    """Reboot the node and wait until it is back."""
    container = settings.container_name(name)
    before = shell(name, "cat /proc/sys/kernel/random/boot_id")
    docker("exec", container, "systemctl", "reboot", check=False)
    limit = time.monotonic() + _BOOT_LIMIT_SECONDS
    while time.monotonic() < limit:
        time.sleep(0.5)
        now = docker("exec", container, "cat", "/run/gpuwright-sim/proc/sys/kernel/random/boot_id", check=False)
        if now.returncode == 0 and now.stdout.strip() and now.stdout.strip() != before.strip():
            _wait_for_boot(container)
            return
    raise SimulationError(f"the node {name} did not come back within {_BOOT_LIMIT_SECONDS} s")


def power_cut(name: str) -> None:
    """Switch the node off in the middle of whatever it does, and on again."""
    container = settings.container_name(name)
    docker("kill", "--signal", "KILL", container)
    docker("start", container)
    _wait_for_boot(container)


def fault(name: str, kind: str, *, clear: bool = False) -> None:
    """Inject the fault KIND (KIND:N for card N), or take it back."""
    if not clear and kind.partition(":")[0] not in FAULTS:
        raise SimulationError(f"there is no fault {kind}; there are: {', '.join(FAULTS)}")
    change = (
        "import json, pathlib, sys; path = pathlib.Path('/etc/gpuwright-sim/faults.json'); faults = json.loads(path.read_text());"
        " kind, clear = sys.argv[1], sys.argv[2] == 'clear';"
        " faults = [] if clear and kind == 'all' else [entry for entry in faults if entry != kind] + ([] if clear else [kind]);"
        " path.write_text(json.dumps(faults));"
        " from gpuwright_sim import kernel, node;"
        " 'module-not-loaded' in faults and 'nvidia' in node.loaded() and kernel.remove('nvidia'); kernel.refresh()"
    )
    docker(
        "exec",
        "-e",
        f"PYTHONPATH={settings.NODE_LIBRARY}",
        settings.container_name(name),
        "python3",
        "-c",
        change,
        kind,
        "clear" if clear else "inject",
    )


# --------------------------------------------------------------------------------------------------------------------
# The prepared image
# --------------------------------------------------------------------------------------------------------------------


def prepare(wish: dict[str, Any]) -> str:
    """The image of a node of this system with these kernels: made once, then nodes of it start in seconds."""
    repository.serve(image.ensure())
    base = rpm.ensure_image() if scenario.is_rpm(wish["os"]) else image.ensure()
    kernels = ["linux-image-amd64"]
    if not wish["real_packages"] or wish["kernel"]["chosen"]:
        kernels = [f"linux-image-{release}" for release in wish["kernel"]["installed"]]
        kernels += [f"linux-headers-{release}" for release in wish["kernel"]["headers"]]
    kernels += wish["packages"]
    if scenario.is_rpm(wish["os"]):
        kernels = [f"kernel-{release}" for release in wish["kernel"]["installed"]]
        kernels += [f"kernel-devel-matched-{release}" for release in wish["kernel"]["headers"]]
    trusted = "" if wish["real_packages"] else repository.build_information()["fingerprint"] + repository.digest()
    recipe = f"{base} {trusted} {settings.ARCHIVE_URL} {wish['os']} {kernels} {settings.recipe(*_SCRIPTS, *sorted(_PACKAGE.glob('*.py')))}"
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    name = f"{settings.IMAGE}-prepared:{digest}"
    # A lock for each image: one with a driver that DKMS compiles takes minutes, and no other node waits for it.
    with settings.locked(f"prepare-{digest}"):
        if docker("image", "inspect", name, check=False).returncode != 0:
            say(f"preparing a node of {wish['os']} with {', '.join(kernels)}")
            _prepare(base, name, wish["os"], simulated=not wish["real_packages"], kernels=kernels)
    return name


def _prepare(base: str, name: str, operating_system: str, *, simulated: bool, kernels: list[str]) -> None:
    archive = f"{settings.ARCHIVE_URL}/{operating_system}" if simulated else ""
    container = f"{settings.CONTAINER_PREFIX}prepare-{name.partition(':')[2]}"
    docker("rm", "-f", container, check=False)
    files = {
        f"{settings.NODE_LIBRARY}/gpuwright_sim/{path.name}": (path.read_bytes(), 0) for path in _PACKAGE.glob("*.py")
    }
    files.update({f"{settings.NODE_LIBRARY}/{path.name}": (path.read_bytes(), 0) for path in _SCRIPTS})
    docker("create", "--name", container, "--label", f"{settings.LABEL}=build", "--label", settings.INSTANCE_LABEL,
           "--network", settings.NETWORK, base,
           "sh", f"{settings.NODE_LIBRARY}/install.sh", operating_system,
           settings.REPOSITORY_HOST, archive, *kernels)  # fmt: skip
    try:
        docker("cp", "-", f"{container}:/", stdin=_tar(files))
        done = docker("start", "--attach", container, check=False)
        if done.returncode != 0:
            raise SimulationError(f"the node could not be prepared:\n{(done.stdout + done.stderr)[-3000:]}")
        docker("commit", "--change", f"LABEL {settings.LABEL}=image", container, name)
    finally:
        docker("rm", "-f", container, check=False)


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    """An archive for `docker cp -`: path to content and owner."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path, (content, owner) in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.uid, entry.gid = len(content), 0o600 if owner else 0o644, owner, owner
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def public_key() -> str:
    """The public half of a throw-away key of this clone."""
    with settings.locked("key", settings.STATE):
        if not settings.KEY.exists():
            settings.KEY.parent.mkdir(parents=True, exist_ok=True)
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuwright simulated node", "-f", settings.KEY])
    return settings.KEY.with_suffix(".pub").read_text()


def _wait_for_boot(container: str) -> None:
    limit = time.monotonic() + _BOOT_LIMIT_SECONDS
    state = ""
    while time.monotonic() < limit:
        answer = docker("exec", container, "systemctl", "is-system-running", check=False)
        state = answer.stdout.strip()
        if state in ("running", "degraded"):
            ssh = docker("exec", container, "systemctl", "is-active", "ssh.service", check=False)
            if ssh.stdout.strip() == "active":
                return
        time.sleep(0.3)
    log = docker("logs", "--tail", "20", container, check=False)
    raise SimulationError(
        f"the node did not boot within {_BOOT_LIMIT_SECONDS} s (systemd says {state!r}):\n{log.stdout}{log.stderr}"
    )


# --------------------------------------------------------------------------------------------------------------------
# Inventory
# --------------------------------------------------------------------------------------------------------------------


def inventory(wanted: list[str], *, wrong_key: bool = False) -> str:
    """An Ansible inventory (YAML) over real ssh; the simulated repositories as mirrors."""
    hosts = {}
    for name in wanted or names():
        hosts[name] = {"ansible_host": "127.0.0.1", "ansible_port": int(_label(name, "port"))}
        if scenario.is_rpm(_label(name, "os")):
            mirrors = _variables(wrong_key=wrong_key)["gpuwright_mirrors"]
            rpm = f"{settings.REPOSITORY_URL}/libnvidia-container/stable/rpm"
            hosts[name]["gpuwright_mirrors"] = {**mirrors, "nvidia-container-toolkit": rpm}
    return yaml.safe_dump({"all": {"hosts": hosts, "vars": _variables(wrong_key=wrong_key)}}, sort_keys=False)


def login() -> dict[str, Any]:
    """How Ansible gets in."""
    return {
        "ansible_user": settings.NODE_USER,
        "ansible_ssh_private_key_file": str(settings.KEY),
        "ansible_ssh_common_args": " ".join(SSH_OPTIONS),
        "ansible_python_interpreter": "/usr/bin/python3",
    }


def _label(name: str, key: str) -> str:
    """What a node's container was labelled with when it was made."""
    form = f'{{{{index .Config.Labels "{settings.LABEL}.{key}"}}}}'
    return docker_text("inspect", "--format", form, settings.container_name(name))


def _variables(*, wrong_key: bool) -> dict[str, Any]:
    base = settings.REPOSITORY_URL
    fingerprint = repository.build_information()["fingerprint"]
    prefix = "/wrong-key" if wrong_key else ""
    return {
        **login(),
        "gpuwright_mirrors": {
            "nvidia": f"{base}{prefix}/compute/cuda/repos",
            "nvidia-container-toolkit": f"{base}/libnvidia-container/stable/deb",
            "epel": f"{base}/epel",
            "docker": f"{base}/docker/linux",
            "grafana": f"{base}/grafana",
            "pytorch": f"{base}/whl",
            "nvidia-runfile": f"{base}/driver",
            "nvidia-cuda-runfile": f"{base}/compute/cuda",
        },
        # A proof is often on a simulated node, and its disk is the one of whatever machine this is.
        "validate_fio_runtime": 1,
        "gpuwright_repository_keys": dict.fromkeys(
            ("nvidia", "nvidia-container-toolkit", "epel", "docker", "grafana"), fingerprint
        ),
    }


# --------------------------------------------------------------------------------------------------------------------
# Clean
# --------------------------------------------------------------------------------------------------------------------


def clean(*, images: bool = True) -> None:
    """Remove every trace of this clone: containers, the network, the state; and the images and packages that no other clone uses."""
    containers = docker_text("ps", "-aq", "--filter", f"label={settings.INSTANCE_LABEL}").split()
    if containers:
        docker("rm", "-f", "-v", *containers, check=False)
    docker("network", "rm", settings.NETWORK, check=False)
    if images:
        found = docker_text("images", "--format", "{{.Repository}}:{{.Tag}}").split()
        ours = [entry for entry in found if entry.startswith(settings.IMAGE)]
        # What is built on another image goes before it; Docker keeps what a container still needs.
        for name in sorted(ours, key=lambda entry: ("prepared" not in entry, "base" in entry)):
            docker("rmi", name, check=False)
        if not docker_text("ps", "-aq", "--filter", f"label={settings.LABEL}.instance"):
            for cached in (settings.REPOSITORIES, settings.SIGNING):
                shutil.rmtree(cached, ignore_errors=True)
    shutil.rmtree(settings.STATE, ignore_errors=True)
    say(f"removed {len(containers)} container(s), the network{', the images' if images else ''} and {settings.STATE}")

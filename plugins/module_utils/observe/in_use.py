# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What runs on a machine that a change would end: who holds the cards, containers, builds and pulls, jobs of Slurm.

By the processes of the machine and the files of its engines: no engine is asked, so none can hang, be started, or stay silent.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING

from ansible_collections.gpuwright.node.plugins.module_utils.base import processes
from ansible_collections.gpuwright.node.plugins.module_utils.base.host import Host

if TYPE_CHECKING:
    from ansible_collections.gpuwright.node.plugins.module_utils.facts import (
        EngineInUse,
        EngineWork,
        Running,
        RunningContainer,
    )

_FACT = "in_use"
_LIMIT = 1 << 18
# Of one kind that are told; more than that are not known.
_MOST = 2000
# Each container of Docker and containerd has one of these, whoever started it; the kernel cuts the name. Podman's and CRI-O's have another.
_SHIM, _MONITOR = "containerd-shim", ("conmon", "conmonrs")
# Namespaces of containerd (containerd/containerd, docs/namespaces.md) and whose they are.
_OWNERS: dict[str, EngineInUse] = {"moby": "docker", "k8s.io": "kubernetes"}
# What Docker starts again by itself with the machine (docs.docker.com, "Start containers automatically").
_COMES_BACK = ("always", "unless-stopped")
# A container of Podman's that is a service of the machine, and a pod of CRI-O's.
_OF_SERVICE = re.compile(r"^[^:]*:[^:]*:/system\.slice/\S*\.service", re.MULTILINE)
_OF_POD = re.compile(r"/kubepods|/crio-")
# Clients that have an engine work, by the engine, and their words for work that ends with it.
_CLIENTS: dict[str, EngineInUse] = {
    "docker": "docker",
    "docker-compose": "docker",
    "docker-buildx": "docker",
    "buildctl": "containerd",
    "nerdctl": "containerd",
    "ctr": "containerd",
    "crictl": "containerd",
    "podman": "podman",
    "buildah": "podman",
}
_WORDS = frozenset(
    (
        "build",
        "buildx",
        "bake",
        "bud",
        "commit",
        "cp",
        "exec",
        "export",
        "import",
        "load",
        "pull",
        "push",
        "run",
        "save",
    )
)
# Where Docker and containerd keep what they are pulling now.
_PULLS: tuple[tuple[EngineInUse, str], ...] = (
    ("docker", "tmp/GetImageBlob*"),
    ("containerd", "/var/lib/containerd/io.containerd.content.v1.content/ingest/*/data"),
)
# Seconds since the last byte after which a pull that was cut off is over.
_PULL_IDLE = 600.0
_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock")
# States of the sockets of clients (SS_CONNECTING, which nobody has answered yet, and SS_CONNECTED of linux/net.h) in /proc/net/unix.
_CONNECTED = ("02", "03")
# The last words of a row: the path and the inode of a socket, and those of its other end, which are * and 0 where there is none.
_ENDS, _END_FIELDS = ("ss", "-xnH", "state", "connected"), 4
# Slurm has one for each step of a job, and one that holds its cgroup scope and is no job.
_STEP, _SCOPE = "slurmstepd", "infinity"
# Processes whose command lines are read.
_TELLING = {_SHIM, *_MONITOR, *_CLIENTS, _STEP}


def observe(host: Host, data_root: str) -> Running:
    """The part `in_use`. `data_root`: Docker's directory."""
    held, unread = processes.holders(host.root)
    seen: Running = {
        "holders": held,
        "containers": [],
        "working": _pulls(host, data_root),
        "docker_clients": _clients(host),
        "jobs": [],
        "unread": None,
    }
    try:
        pids = processes.numbers(host.root)
    except OSError:
        pids = []  # told by `unread`
    for pid in pids:
        comm = host.line(f"/proc/{pid}/comm") or ""
        words = _words(host, pid) if comm in _TELLING else []
        if comm == _SHIM and not processes.in_own_root(pid, host.root):
            seen["containers"].append(_of_shim(host, words, data_root))
        elif comm in _MONITOR and not processes.in_own_root(pid, host.root):
            seen["containers"].append(_of_monitor(host, pid, words))
        elif comm in _CLIENTS and _WORDS.intersection(words):
            verb = next(word for word in words if word in _WORDS)
            seen["working"].append({"engine": _CLIENTS[comm], "what": f"{comm} {verb} (pid {pid})"})
        elif comm == _STEP and _SCOPE not in words and processes.is_roots(pid, host.root):
            seen["jobs"].append(f"{' '.join(words)[:80] or comm} (pid {pid})")
    most = max(len(held), len(seen["containers"]), len(seen["working"]), len(seen["jobs"]))
    if unread or most > _MOST:
        host.unknown(_FACT, unread or f"more than {_MOST} of one kind run here")
    return {
        "holders": held[:_MOST],
        "containers": seen["containers"][:_MOST],
        "working": seen["working"][:_MOST],
        "docker_clients": seen["docker_clients"],
        "jobs": seen["jobs"][:_MOST],
        "unread": host.unknown_facts.get(_FACT),
    }


def _words(host: Host, pid: int) -> list[str]:
    return [word for word in (host.read(f"/proc/{pid}/cmdline", limit=4096) or "").split("\0") if word]


def _after(words: list[str], *options: str) -> str:
    """The value of one of the options in a command line."""
    return next((value for option, value in zip(words, words[1:]) if option in options), "")


def _of_shim(host: Host, words: list[str], data_root: str) -> RunningContainer:
    engine = _OWNERS.get(_after(words, "-namespace", "--namespace"), "containerd")
    number = _after(words, "-id", "--id")
    return {
        "engine": engine,
        "id": number[:12],
        # The kubelet starts what a pod needs again.
        "comes_back": engine == "kubernetes"
        or (engine == "docker" and _policy(host, data_root, number) in _COMES_BACK),
    }


def _policy(host: Host, data_root: str, number: str) -> str | None:
    """When Docker starts a container again; None where that cannot be read."""
    if not re.fullmatch(r"[0-9a-f]{64}", number):
        return None
    try:
        told = json.loads(host.read(f"{data_root}/containers/{number}/hostconfig.json", _FACT, limit=_LIMIT) or "null")
        return str(told["RestartPolicy"]["Name"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _of_monitor(host: Host, pid: int, words: list[str]) -> RunningContainer:
    group = host.read(f"/proc/{pid}/cgroup", limit=_LIMIT) or ""
    pod = _OF_POD.search(group) is not None
    return {
        "engine": "kubernetes" if pod else "podman",
        "id": _after(words, "-c", "--cid")[:12],
        "comes_back": pod or _OF_SERVICE.search(group) is not None,
    }


def _pulls(host: Host, data_root: str) -> list[EngineWork]:
    """What is being pulled, by the files that it comes into. Those of a pull that was cut off are left there and grow no more."""
    found: list[EngineWork] = []
    for engine, pattern in _PULLS:
        places = host.glob(os.path.join(data_root, pattern), _FACT)
        times = [seen.st_mtime for seen in map(host.stat, places) if seen is not None]
        if any(time.time() - _PULL_IDLE < moment for moment in times):
            found.append({"engine": engine, "what": "an image that is being pulled"})
    return found


def _clients(host: Host) -> int:
    """Connections to Docker: what is done by one, nobody else can tell. Those from containers are not among them.

    Docker keeps some whose client is gone: they end nothing.
    """
    rows = [line.split() for line in (host.read("/proc/net/unix", _FACT, limit=1 << 22) or "").splitlines()]
    there = [row[6] for row in rows if len(row) == 8 and row[5] in _CONNECTED and row[7] in _SOCKETS]
    return len(set(there) - _left(host)) if there else 0


def _left(host: Host) -> set[str]:
    """The sockets (inodes) that have no other end any more, as iproute2 tells; of a machine without it none."""
    rows = [line.split() for line in host.run(_ENDS).out.splitlines()]
    return {row[-3] for row in rows if len(row) >= _END_FIELDS and row[-1] == "0"}

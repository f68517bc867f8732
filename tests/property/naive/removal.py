"""What a removal may take: what the node's own record names, as long as nothing that decides it is unknown, and no data of anybody's.

Written from the record and from the node as it is drawn, without the planner's patterns and tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Directories that programs fill with what their users have, each with the packages of the program.
DATA = {
    "/var/lib/docker": ("docker.io", "docker-ce"),
    "/var/lib/containerd": ("containerd", "containerd.io"),
    "/var/lib/containers": ("podman",),
    "/var/lib/dkms": ("dkms",),
    "/var/lib/grafana": ("grafana",),
    "/var/lib/prometheus/metrics2": ("prometheus",),
}
#: Of these, what dpkg's purge of a package deletes. docker-ce has no script for it (docker/docker-ce-packaging, deb/common at c2c97b0).
PURGED = {
    "docker.io": "/var/lib/docker",
    "prometheus": "/var/lib/prometheus/metrics2",
}
#: What each program is asked for what it holds.
PROGRAMS = {
    "/var/lib/docker": "docker",
    "/var/lib/containerd": "ctr",
    "/var/lib/containers": "podman",
    "/var/lib/dkms": "dkms",
}
#: Files of the host's own, in which lines of ours are: they are written or put back, and never removed with ours.
HOSTS = ("/etc/containerd/config.toml",)
#: Files that no seal names, beside a source of ours: what apt and dnf read its name and password from.
_SECRETS = ("/etc/apt/auth.conf.d/gpuwright-", "/etc/dnf/vars/gpuwright_")
_LISTS = "/var/lib/apt/lists/"


@dataclass(frozen=True)
class Node:
    """What is on a node, whatever the observation says of it.

    ``holds``: what a program tells of each kind where it is asked: None where it does not answer. ``data``: directories in which somebody
    has something. ``there``: paths that exist. ``lists``: what apt has of our package sources. ``others``: packages that would go with
    ours. ``aside``: files of the host that were put aside, with what is in the place of each today. ``needs``: what an engine needs.
    """

    facts: Any
    holds: Mapping[tuple[str, str], list[str] | None]
    data: frozenset[str]
    there: frozenset[str]
    lists: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    aside: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def silent(self, program: str) -> bool:
        """Whether a program does not tell all that it holds."""
        return any(found is None for (name, _kind), found in self.holds.items() if name == program)


_KINDS = ("packages", "absent", "environments", "made", "units", "streams", "also", "rpm_keys", "restore", "runfile")


def faults(node: Node, plan: Mapping[str, Any], work: Mapping[str, Any]) -> Iterator[str]:
    """Everything that is wrong with what goes."""
    record = node.facts["history"]
    if record is None:
        yield from (f"nobody could read the record, and {kind} go: {work[kind]}" for kind in _KINDS if work.get(kind))
        return
    yield from _packages(record, work)
    yield from _named(record, work)
    yield from _files(node, record, work)
    yield from _purged(node, work)
    yield from _directories(node, record, work)
    if plan["remove"]["restore"] and not record.get("original"):
        yield "a driver is put back that nobody remembered"
    if plan["remove"]["runfile"] and node.facts["driver"]["owner"] != "runfile":
        yield "an uninstaller runs where no file of NVIDIA's brought the driver"


def _packages(record: Mapping[str, Any], work: Mapping[str, Any]) -> Iterator[str]:
    """A package that goes is in the record, and a machine still boots after that."""
    before = (record.get("original") or {}).get("packages") or {}
    for name in [*work["packages"], *work["also"], *work["rpm_keys"]]:
        if name not in (record.get("brought") or ()):
            yield f"the package {name} goes, and no call of ours brought it"
        if name.startswith(("linux-image", "grub", "shim", "kernel-core")):
            yield f"{name} goes, without which the machine does not boot"
        if name in before:
            yield f"{name} goes, which the driver before had"


def _named(record: Mapping[str, Any], work: Mapping[str, Any]) -> Iterator[str]:
    """So is an environment, a module stream, a unit."""
    for path in work["environments"]:
        if path not in (record.get("environments") or ()):
            yield f"the environment {path} goes, and no run of ours made it"
    for name in work["streams"]:
        if name not in (record.get("streams") or {}):
            yield f"the module stream {name} is reset, and nobody remembers it"
    units = {*(record.get("services") or ()), *_units_of(work["packages"])}
    yield from (f"{unit} is switched off, and is not of ours" for unit in work["units"] if unit not in units)


def _units_of(packages: list[str]) -> Iterator[str]:
    """Units that go with a package have its name in theirs."""
    for name in packages:
        stems = {name, name.replace("datacenter-gpu-manager-4-core", "nvidia-dcgm"), name.removesuffix("-base")}
        stems |= {"nvidia-cdi-refresh"} if name == "nvidia-container-toolkit-base" else set()
        yield from (f"{stem}{suffix}" for stem in stems for suffix in (".service", ".path", ".timer"))


def _files(node: Node, record: Mapping[str, Any], work: Mapping[str, Any]) -> Iterator[str]:
    """So is a file, or it belongs to a package source that is."""
    named = set(record.get("files") or ())
    sources = {path for path in named if "/sources.list.d/gpuwright-" in path or "/yum.repos.d/gpuwright-" in path}
    for path in work["absent"]:
        if path in HOSTS:
            yield f"{path} goes, which is the host's own"
        elif path in named:
            continue
        elif path.startswith(_LISTS):
            if not any(path.startswith(_LISTS + name) for name in node.lists):
                yield f"{path} goes, of which no source of ours has anything"
        elif not (path.startswith(_SECRETS) and sources):
            yield f"the file {path} goes, and no run of ours wrote it"
    for each in work["put_back"]:
        if node.aside.get(each["dest"]) != "absent":
            yield f"{each['dest']} is written over"
        if not each["dest"].startswith(("/etc/apt/sources.list", "/etc/yum.repos.d/")):
            yield f"{each['dest']} is written, which is no package source"


def _purged(node: Node, work: Mapping[str, Any]) -> Iterator[str]:
    """To purge such a package is to delete what it has of its users."""
    if node.facts["packages"]["manager"] != "apt":
        return
    for name in set(work["packages"]) - set(work.get("removed", ())):
        path = PURGED.get(name, "")
        if path in node.data:
            yield f"{name} is purged with what somebody has in {path}"
        if node.silent(PROGRAMS.get(path, "")):
            yield f"{name} is purged, and nobody knows what {PROGRAMS[path]} holds"


def _directories(node: Node, record: Mapping[str, Any], work: Mapping[str, Any]) -> Iterator[str]:
    """A directory with data goes where a program of ours made it, and says that nothing is in it."""
    for path in work["made"]:
        (place,) = [each for each in DATA if f"{path}/".startswith(f"{each}/")] or [""]
        if path in node.data:
            yield f"{path} goes with what somebody has in it"
        if place and not set(DATA[place]) & set(record.get("brought") or ()):
            yield f"{path} goes, and what made it was not ours"
        if path in DATA and path not in record.get("made", ()):
            yield f"{path} goes, and may have been there before"
        if path in DATA and node.silent(PROGRAMS.get(path, "")):
            yield f"{path} goes, and nobody knows what is in it"
